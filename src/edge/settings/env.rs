//! Environment variables over settings.

use std::env;

use super::{
    Settings, check,
    names::Names,
    variables::{find, is_ours},
};
use crate::{config::ConfigError, text::Short};

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
            let (name, text) = (name.as_ref(), text.as_ref().trim());
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
