//! The names of settings in errors: that of the variable if the setting came from one, else its
//! key.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Settings, VARIABLES, Variable};
use crate::config::ConfigError;

/// Names the setting of a layer by its key in a section.
pub(super) fn in_section(section: &'static str) -> impl Fn(ConfigError) -> ConfigError {
    move |error| {
        let key = format!("{section}.{}", error.field());
        error.with_field(key)
    }
}

impl Settings {
    /// Names the setting of an error as its operator knows it: by its variable if it came from one,
    /// else by its key in this section. For crates that read a section of these settings, such as
    /// `tower-toolcall-redis`.
    ///
    /// ```
    /// use tower_toolcall::{ConfigError, settings::Settings};
    ///
    /// # fn main() -> Result<(), tower_toolcall::BoxError> {
    /// let settings = Settings::default().with_env_from([("TOOLCALL_SHARED_GRACE", "9s")])?;
    /// let named = |error| settings.name_error("shared", error);
    /// assert_eq!(named(ConfigError::new("grace", "too long")).field(), "TOOLCALL_SHARED_GRACE");
    /// assert_eq!(named(ConfigError::new("url", "unknown host")).field(), "shared.url");
    /// # Ok(()) }
    /// ```
    pub fn name_error(&self, section: &str, error: ConfigError) -> ConfigError {
        let key = format!("{section}.{}", error.field());
        self.origin.rename(error.with_field(key))
    }
}

/// The keys that a file or a variable has set, be it to the value of the preset.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    pub(super) keys: BTreeSet<&'static str>,
    /// The keys of variables, each with the name or alias of its variable and the value.
    pub(super) variables: Vec<(&'static str, &'static str, Value)>,
}

/// Settings are equal if their values are.
impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Origin {
    /// Renames the settings of an error for the operator: settings from variables by their
    /// variable. If the faulty setting is not from a variable, the error adds its variable, if
    /// variables are used at all.
    pub(super) fn rename(&self, error: ConfigError) -> ConfigError {
        let error = ConfigError::new(error.field().to_owned(), self.in_text(error.reason()));
        if let Some((_, name, _)) = self
            .variables
            .iter()
            .find(|(key, ..)| *key == error.field())
        {
            return error.with_field(*name);
        }
        let is_it = |variable: &&Variable| variable.key() == error.field();
        // Without a variable the operator uses files.
        let variable = VARIABLES.iter().find(is_it);
        match variable.filter(|_| !self.variables.is_empty()) {
            Some(variable) => {
                let reason = format!("{} ({})", error.reason(), variable.name());
                ConfigError::new(variable.key(), reason)
            }
            None => error,
        }
    }

    /// Keys stand in backticks.
    pub(super) fn in_text(&self, reason: &str) -> String {
        let quoted = |name: &str| format!("`{name}`");
        self.variables
            .iter()
            .fold(reason.to_owned(), |text, (key, name, _)| {
                text.replace(&quoted(key), &quoted(name))
            })
    }
}
