//! The names of settings in errors: that of the variable if the setting came from one, else its key.

use super::{VARIABLES, Variable};
use crate::config::ConfigError;

/// Names the setting of a layer by its key in a section.
pub(super) fn in_section(section: &'static str) -> impl Fn(ConfigError) -> ConfigError {
    move |error| {
        let key = format!("{section}.{}", error.field());
        error.with_field(key)
    }
}

/// The variables that were set.
#[derive(Debug, Default)]
pub(super) struct Names(pub(super) Vec<&'static Variable>);

impl Names {
    /// The same error as the operator knows the settings: those that came from variables by these, and where the one
    /// at fault did not, with the variable that sets it.
    pub(super) fn rename(&self, error: ConfigError) -> ConfigError {
        let error = ConfigError::new(error.field().to_owned(), self.in_text(error.reason()));
        let is_it = |variable: &Variable| variable.key() == error.field();
        if let Some(variable) = self.0.iter().find(|variable| is_it(variable)) {
            return error.with_field(variable.name());
        }
        match VARIABLES.iter().find(|variable| is_it(variable)) {
            Some(variable) => {
                let reason = format!("{} ({})", error.reason(), variable.name());
                ConfigError::new(variable.key(), reason)
            }
            None => error,
        }
    }

    /// Keys stand in backticks.
    fn in_text(&self, reason: &str) -> String {
        let quoted = |name: &str| format!("`{name}`");
        self.0.iter().fold(reason.to_owned(), |text, variable| {
            text.replace(&quoted(variable.key()), &quoted(variable.name()))
        })
    }
}
