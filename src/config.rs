use std::{borrow::Cow, time::Duration};

#[doc(inline)]
pub use toolcall_redact::ConfigError;

/// Returns the error of the setting `field` if it is bad.
///
/// # Errors
///
/// A [`ConfigError`] with the field and the reason.
pub fn refuse_if(
    bad: bool,
    field: &'static str,
    reason: impl Into<Cow<'static, str>>,
) -> Result<(), ConfigError> {
    match bad {
        true => Err(ConfigError::new(field, reason)),
        false => Ok(()),
    }
}

/// The longest duration of a setting: one year.
pub const MAX_PERIOD: Duration = Duration::from_secs(365 * 24 * 3600);

/// Refuses a period that is longer than a year.
pub(crate) fn period(field: &'static str, d: Duration) -> Result<(), ConfigError> {
    let reason = format!("{d:?} is longer than a year");
    refuse_if(d > MAX_PERIOD, field, reason)
}

/// Refuses a period of zero as well.
pub(crate) fn positive(
    field: &'static str,
    d: Duration,
    if_zero: impl Into<Cow<'static, str>>,
) -> Result<(), ConfigError> {
    refuse_if(d.is_zero(), field, if_zero)?;
    period(field, d)
}
