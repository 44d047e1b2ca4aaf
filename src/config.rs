use std::borrow::Cow;

#[doc(inline)]
pub use toolcall_redact::ConfigError;

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
