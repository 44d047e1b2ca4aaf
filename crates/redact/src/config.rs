//! The error of a setting.

use std::{borrow::Cow, fmt, ops::RangeInclusive};

/// A setting that cannot work. Names the field, and says why.
///
/// Settings are checked when they are given, so that a mistake is found at the start of a program
/// and not in its first bad hour.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    field: Cow<'static, str>,
    reason: Cow<'static, str>,
}

impl ConfigError {
    /// Makes an error of the setting `field`. The reason goes on where the name ends: `is not
    /// above 0`.
    pub fn new(field: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            field: field.into(),
            reason: reason.into(),
        }
    }

    /// Returns an error with the same reason, for a setting that its user knows by another name.
    #[must_use]
    pub fn with_field(self, field: impl Into<Cow<'static, str>>) -> Self {
        Self::new(field, self.reason)
    }

    /// Returns the name of the setting.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns the reason why the setting cannot work.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid `{}`: {}", self.field, self.reason)
    }
}

/// Prints as `Display` does, because a program prints `Debug` when `main` returns the error.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigError {}

/// The error of the setting `field`, unless its value is in the range.
pub(crate) fn within(
    field: &'static str,
    value: usize,
    range: RangeInclusive<usize>,
) -> Result<(), ConfigError> {
    let (min, max) = (range.start(), range.end());
    let reason = format!("must be {min} to {max}, is {value}");
    refuse_if(!range.contains(&value), field, reason)
}

/// The error of the setting `field`, if it is bad.
pub(crate) fn refuse_if(
    bad: bool,
    field: &'static str,
    reason: impl Into<Cow<'static, str>>,
) -> Result<(), ConfigError> {
    match bad {
        true => Err(ConfigError::new(field, reason)),
        false => Ok(()),
    }
}
