use std::{borrow::Cow, fmt};

/// A setting that cannot work. Names the field, and says why.
///
/// Layers check their settings when they are built, so that a mistake is found at the start of a
/// program and not in its first bad hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    field: Cow<'static, str>,
    reason: Cow<'static, str>,
}

impl ConfigError {
    pub(crate) fn new(
        field: impl Into<Cow<'static, str>>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            field: field.into(),
            reason: reason.into(),
        }
    }

    /// The same reason under the name by which the setting is known to who made it.
    #[cfg(feature = "settings")]
    pub(crate) fn named(self, field: impl Into<Cow<'static, str>>) -> Self {
        Self {
            field: field.into(),
            ..self
        }
    }

    /// The same with another reason.
    #[cfg(feature = "settings")]
    pub(crate) fn map_reason(self, change: impl FnOnce(&str) -> String) -> Self {
        Self {
            reason: change(&self.reason).into(),
            ..self
        }
    }

    /// The name of the setting.
    pub fn field(&self) -> &str {
        &self.field
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid `{}`: {}", self.field, self.reason)
    }
}

impl std::error::Error for ConfigError {}
