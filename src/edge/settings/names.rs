//! What a setting is called in an error: by its variable if it came from one, else by its key.

use super::variables::Variable;
use crate::config::ConfigError;

/// The variables that were set.
#[derive(Debug, Default)]
pub(super) struct Names(pub(super) Vec<&'static Variable>);

impl Names {
    pub(super) fn of<'a>(&self, key: &'a str) -> &'a str {
        let variable = self.0.iter().find(|variable| variable.key() == key);
        variable.map_or(key, |variable| variable.name())
    }

    pub(super) fn rename(&self, error: ConfigError) -> ConfigError {
        let name = self.of(error.field()).to_owned();
        error.named(name)
    }
}
