//! Environment variables, over settings.

use std::{env, iter};

use serde::{
    Deserialize as _,
    de::value::{Error, MapDeserializer},
};

use super::{Settings, VARIABLES, check, names::Names, sections::File, text::Text, token};
use crate::{config::ConfigError, text::Short};

/// An environment variable and the setting that it holds. See [`VARIABLES`].
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) help: &'static str,
}

impl Variable {
    pub(super) const PRESET: Self = Self {
        name: "TOOL_PRESET",
        key: "preset",
        help: "the preset to begin with: default, agent_library, agent_loop, gateway or http_proxy",
    };

    /// Its name: `TOOL_TIMEOUT`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The setting's key in a file: `timeout.default`.
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// Its meaning, in a line.
    pub const fn help(&self) -> &'static str {
        self.help
    }

    /// Reads its text as a file that has this key alone.
    fn read(&self, text: &str) -> Result<File, Error> {
        let value = Text::new(text, SECONDS.contains(&self.name));
        match self.key.split_once('.') {
            Some((section, key)) => {
                let keys = MapDeserializer::new(iter::once((key, value)));
                File::deserialize(MapDeserializer::new(iter::once((section, keys))))
            }
            None => File::deserialize(MapDeserializer::new(iter::once((self.key, value)))),
        }
    }
}

/// Where a plain number is seconds, as in MCP gateways.
const SECONDS: [&str; 3] = [
    "TOOL_TIMEOUT",
    "TOOL_CIRCUIT_BREAKER_RESET",
    "TOOL_CIRCUIT_BREAKER_WINDOW",
];

/// The variable of this name.
fn find(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|variable| variable.name == name)
}

/// Whether a variable of this name would be ours: it begins as the name of a section does (`TOOL_RETRY_`). One that is not
/// in the table is a typing error.
fn is_ours(name: &str) -> bool {
    let begins = |variable: &Variable| {
        let section = variable.key.split_once('.').map(|(section, _)| section);
        section.is_some_and(|s| name.starts_with(&format!("TOOL_{}_", s.to_ascii_uppercase())))
    };
    find(name).is_some() || VARIABLES.iter().any(begins)
}

impl Settings {
    /// The default settings, or those of `TOOL_PRESET`, with what the environment says.
    ///
    /// # Errors
    ///
    /// As [`with_env_from`](Self::with_env_from).
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::default().with_env()
    }

    /// These settings with what the environment says.
    ///
    /// # Errors
    ///
    /// As [`with_env_from`](Self::with_env_from), and if the value of one of our variables is not UTF-8.
    pub fn with_env(self) -> Result<Self, ConfigError> {
        let vars: Result<Vec<_>, _> = env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| is_ours(name))
            .map(|(name, value)| match value.into_string() {
                Ok(value) => Ok((name, value)),
                Err(_) => Err(ConfigError::new(shown(&name), "its value is not UTF-8")),
            })
            .collect();
        self.with_env_from(vars?)
    }

    /// These settings with what `vars` say, names and values. One that is blank changes nothing. Those that are not
    /// ours are not looked at.
    ///
    /// # Errors
    ///
    /// If a value is none, if a name begins as one of our sections does (`TOOL_RETRY_`) and is not in the
    /// [table](super::VARIABLES), and if the settings as a whole fail the [check](Self::check). The error names
    /// the variable if the setting came from one, else its key, and the variable that would set it.
    pub fn with_env_from<K, V>(
        mut self,
        vars: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigError>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        let mut chosen = Vec::new();
        for (name, text) in vars {
            let (name, text) = (name.as_ref(), text.as_ref());
            if name == token::SECRET {
                self.token.client_secret.read(text);
                continue;
            }
            let text = text.trim();
            match find(name) {
                Some(_) if text.is_empty() => {}
                Some(variable) => chosen.push((variable, text.to_owned())),
                None if is_ours(name) => return Err(unknown(name)),
                None => {}
            }
        }
        // The first error is the same in every environment.
        chosen.sort_by_key(|(variable, _)| variable.name());
        for (variable, text) in &chosen {
            let file = variable.read(text);
            self.apply(file.map_err(|e| ConfigError::new(variable.name(), e.to_string()))?);
        }
        let names = Names(chosen.iter().map(|(variable, _)| *variable).collect());
        check::whole(&self).map_err(|e| names.rename(e))?;
        Ok(self)
    }
}

fn unknown(name: &str) -> ConfigError {
    let reason = "there is no such variable; `settings::VARIABLES` has them all";
    ConfigError::new(shown(name), reason)
}

fn shown(name: &str) -> String {
    Short::name(name).to_string()
}
