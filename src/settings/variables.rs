//! Environment variables, over settings.

use std::{env, iter, mem};

use serde::{
    Deserialize as _,
    de::value::{Error, MapDeserializer},
};

use super::{Settings, VARIABLES, check, sections::File, text::Text, token};
use crate::{
    config::ConfigError,
    reader::{Reader, meant, quoted},
    text::Short,
};

/// An environment variable and the setting that it holds. See [`VARIABLES`].
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) help: &'static str,
}

impl Variable {
    pub(super) const PRESET: Self = Self {
        name: "TOOLCALL_PRESET",
        key: "preset",
        help: "The preset to begin with: `default`, `agent_library`, `agent_loop`, `gateway` or `http_proxy`",
    };

    /// Returns its name: `TOOLCALL_TIMEOUT`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns its name without the crate's prefix, if MCP gateways have it already:
    /// `TOOL_TIMEOUT`.
    pub fn alias(&self) -> Option<&'static str> {
        let bare = self.name.strip_prefix(PREFIX);
        let is_it = |alias: &&&str| alias.strip_prefix("TOOL_") == bare;
        ALIASES.iter().find(is_it).copied()
    }

    /// Returns the setting's key in a file: `timeout.default`.
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// Returns its meaning, in a sentence without the full stop.
    pub fn help(&self) -> &'static str {
        let text = self.help.trim();
        let first = text.split_once(". ").map_or(text, |(first, _)| first);
        first.trim_end_matches('.')
    }

    /// Reads its text as a file that has this key alone.
    fn read(&self, text: &str) -> Result<File, Error> {
        let (section, key) = self.key.split_once('.').unwrap_or((self.key, ""));
        let value = Text::new(text);
        if key.is_empty() {
            let file = MapDeserializer::new(iter::once((section, value)));
            return File::deserialize(Reader::without_keys(file));
        }
        let keys = MapDeserializer::new(iter::once((key, value)));
        let file = MapDeserializer::new(iter::once((section, keys)));
        File::deserialize(Reader::without_keys(file))
    }
}

/// The beginning of the names of all variables of this crate.
const PREFIX: &str = "TOOLCALL_";

/// The names without the crate's prefix that an MCP gateway has already.
const ALIASES: [&str; 5] = [
    "TOOL_TIMEOUT",
    "TOOL_CIRCUIT_BREAKER_ENABLED",
    "TOOL_CIRCUIT_BREAKER_THRESHOLD",
    "TOOL_CIRCUIT_BREAKER_RESET",
    "TOOL_CIRCUIT_BREAKER_WINDOW",
];

/// The variable of this name, or of this alias.
fn find(name: &str) -> Option<&'static Variable> {
    let is_it = |variable: &&Variable| variable.name == name || variable.alias() == Some(name);
    VARIABLES.iter().find(is_it)
}

/// Returns whether a variable of this name is read. One with the prefix that is not in the table is
/// a typing error.
fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX) || ALIASES.contains(&name)
}

/// A variable that was set: by its name or alias, the text, and what it says.
struct Chosen {
    variable: &'static Variable,
    name: &'static str,
    text: String,
    file: File,
}

impl Chosen {
    fn new(variable: &'static Variable, name: &str, text: &str) -> Result<Self, ConfigError> {
        let alias = variable.alias().filter(|alias| *alias == name);
        let name = alias.unwrap_or(variable.name);
        let file = variable.read(text);
        Ok(Self {
            variable,
            name,
            text: text.to_owned(),
            file: file.map_err(|e| ConfigError::new(name, e.to_string()))?,
        })
    }

    /// Returns an error if `other` sets the same variable, by either name, to another value.
    fn agrees_with(&self, other: &Self) -> Result<(), ConfigError> {
        if self.variable.key != other.variable.key || self.file == other.file {
            return Ok(());
        }
        let [text, others] = [self, other].map(|set| quoted(&set.text));
        let reason = format!("{text} differs from `{}`, which is {others}", other.name);
        Err(ConfigError::new(self.name, reason))
    }
}

impl Settings {
    /// Returns the default settings, or those of `TOOLCALL_PRESET`, with what the environment says.
    ///
    /// # Errors
    ///
    /// As [`with_env_from`](Self::with_env_from).
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::default().with_env()
    }

    /// Returns these settings with what the environment says.
    ///
    /// # Errors
    ///
    /// As [`with_env_from`](Self::with_env_from), and if the value of one of our variables is not
    /// UTF-8.
    pub fn with_env(self) -> Result<Self, ConfigError> {
        let ours = env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| is_ours(name));
        let (mut vars, mut wrong) = (Vec::new(), Vec::new());
        for (name, value) in ours {
            match value.into_string() {
                Ok(value) => vars.push((name, value)),
                Err(_) => wrong.push(ConfigError::new(shown(&name), "its value is not UTF-8")),
            }
        }
        self.with_vars(vars, wrong)
    }

    /// Returns these settings with what `vars` say, names and values. One that is blank changes
    /// nothing. Those that are not ours are not looked at.
    ///
    /// # Errors
    ///
    /// If a value is not valid, or a name begins with `TOOLCALL_` and is not in the
    /// [table](super::VARIABLES). If a variable and its alias have different values. If the
    /// settings as a whole fail the [check](Self::check). The error names the variable if the
    /// setting came from one, else its key, and the variable that would set it; its reason has all
    /// other errors.
    pub fn with_env_from<K, V>(
        self,
        vars: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigError>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        self.with_vars(vars, Vec::new())
    }

    /// Reads variables, besides those that are wrong already.
    fn with_vars(
        mut self,
        vars: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)>,
        mut wrong: Vec<ConfigError>,
    ) -> Result<Self, ConfigError> {
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
                Some(variable) => match Chosen::new(variable, name, text) {
                    Ok(set) => chosen.push(set),
                    Err(error) => wrong.push(error),
                },
                None if is_ours(name) => wrong.push(unknown(name)),
                None => {}
            }
        }
        // The last one is the same in every environment.
        chosen.sort_by_key(|chosen| (chosen.variable.name, chosen.name));
        for pair in chosen.windows(2) {
            wrong.extend(pair[0].agrees_with(&pair[1]).err());
        }
        wrong.sort_by(|one, other| one.field().cmp(other.field()));
        check::joined(wrong)?;
        for set in &mut chosen {
            self.apply(mem::take(&mut set.file));
        }
        let values = serde_json::to_value(self.file_of(true)).unwrap_or_default();
        let set = chosen.iter().map(|set| {
            let key = set.variable.key;
            let value = key.split('.').fold(&values, |value, name| &value[name]);
            (key, set.name, value.clone())
        });
        self.origin.variables = set.collect();
        let errors = check::whole(&self).into_iter();
        check::joined(errors.map(|error| self.origin.rename(error)))?;
        Ok(self)
    }
}

fn unknown(name: &str) -> ConfigError {
    let known = VARIABLES.iter().map(|variable| variable.name);
    let known = known.chain([token::SECRET]);
    let known: Vec<_> = known.map(|name| name.trim_start_matches(PREFIX)).collect();
    let reason = match meant(name.trim_start_matches(PREFIX), &known, PREFIX) {
        Some(meant) => format!("unknown variable; {meant}"),
        None => "unknown variable; `settings::VARIABLES` lists all".to_owned(),
    };
    ConfigError::new(shown(name), reason)
}

fn shown(name: &str) -> String {
    Short::name(name).to_string()
}
