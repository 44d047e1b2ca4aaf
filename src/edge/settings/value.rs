//! What the text of a variable means.

use std::{any::Any, num::NonZeroUsize, str::FromStr, time::Duration};

use serde::{
    de::{DeserializeOwned, Error},
    de::{IntoDeserializer, value::StrDeserializer},
};

use super::{KeyBy, Preset, duration};
use crate::{kit::backoff::Jitter, text::Short};

/// Longer values are not quoted: they are no slips, and may be secrets.
const MAX_QUOTED: usize = 40;

/// A setting that a variable can hold. The error is the reason, without the variable's name.
pub(super) trait Value: Sized {
    fn parse(text: &str) -> Result<Self, String>;

    /// The same where a plain number is seconds, as in an MCP gateway.
    fn parse_seconds(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

/// A setting whose type is forgotten.
pub(super) trait Setting: Any {
    /// Takes the value of a variable.
    fn read(&mut self, text: &str, seconds: bool) -> Result<(), String>;

    /// Takes the value of the same setting of others.
    fn copy(&mut self, other: &dyn Any);

    /// Whether it is that value.
    fn is(&self, other: &dyn Any) -> bool;
}

impl<T: Value + Clone + PartialEq + 'static> Setting for T {
    fn read(&mut self, text: &str, seconds: bool) -> Result<(), String> {
        *self = match seconds {
            true => T::parse_seconds(text)?,
            false => T::parse(text)?,
        };
        Ok(())
    }

    fn copy(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<T>() {
            self.clone_from(other);
        }
    }

    fn is(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

/// A short value, redacted.
pub(super) fn quoted(text: &str) -> String {
    match text.chars().count() {
        0..=MAX_QUOTED => format!("`{}`", Short::new(text, MAX_QUOTED)),
        n => format!("a value of {n} characters"),
    }
}

impl Value for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        duration::parse(text)
    }

    fn parse_seconds(text: &str) -> Result<Self, String> {
        duration::parse_seconds(text)
    }
}

pub(super) fn is_none(text: &str) -> bool {
    text.eq_ignore_ascii_case("none")
}

/// `none` takes away what is set below.
impl<T: Value> Value for Option<T> {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            text if is_none(text) => Ok(None),
            text => T::parse(text).map(Some),
        }
    }

    fn parse_seconds(text: &str) -> Result<Self, String> {
        match text {
            text if is_none(text) => Ok(None),
            text => T::parse_seconds(text).map(Some),
        }
    }
}

impl Value for bool {
    fn parse(text: &str) -> Result<Self, String> {
        match &*text.to_ascii_lowercase() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(format!("{} is neither true nor false", quoted(text))),
        }
    }
}

fn number<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    let number = text.parse();
    number.map_err(|_| format!("{} is not {what}", quoted(text)))
}

impl Value for u16 {
    fn parse(text: &str) -> Result<Self, String> {
        number(text, "a whole number from 0 to 65,535")
    }
}

impl Value for u32 {
    fn parse(text: &str) -> Result<Self, String> {
        number(text, "a whole number from 0 to 4,294,967,295")
    }
}

impl Value for usize {
    fn parse(text: &str) -> Result<Self, String> {
        number(text, "a whole number of at least 0")
    }
}

impl Value for NonZeroUsize {
    fn parse(text: &str) -> Result<Self, String> {
        number(text, "a whole number of at least 1")
    }
}

impl Value for f64 {
    fn parse(text: &str) -> Result<Self, String> {
        number(text, "a number")
    }
}

/// Separated by commas; `none` empties it.
impl Value for Vec<String> {
    fn parse(text: &str) -> Result<Self, String> {
        if is_none(text) {
            return Ok(Self::new());
        }
        let words = text.split(',').map(str::trim);
        Ok(words
            .filter(|word| !word.is_empty())
            .map(Into::into)
            .collect())
    }
}

impl Value for Jitter {
    fn parse(text: &str) -> Result<Self, String> {
        match is_none(text) {
            true => Ok(Self::None),
            false => variant(text),
        }
    }
}

impl Value for KeyBy {
    fn parse(text: &str) -> Result<Self, String> {
        variant(text)
    }
}

impl Value for Preset {
    fn parse(text: &str) -> Result<Self, String> {
        variant(text)
    }
}

/// One of a few names, the same that stand in files.
fn variant<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let from: StrDeserializer<'_, NoVariant> = text.into_deserializer();
    T::deserialize(from).map_err(|NoVariant(reason)| reason)
}

/// serde's own error would quote the text whatever it is.
#[derive(Debug)]
struct NoVariant(String);

impl std::error::Error for NoVariant {}

impl std::fmt::Display for NoVariant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for NoVariant {
    fn custom<T: std::fmt::Display>(reason: T) -> Self {
        Self(reason.to_string())
    }

    fn unknown_variant(text: &str, expected: &'static [&'static str]) -> Self {
        let expected = expected.join(", ");
        Self(format!("{} is none of {expected}", quoted(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_of_those_that_stand_in_files() {
        assert_eq!(Jitter::parse("full"), Ok(Jitter::Full));
        let reason = KeyBy::parse("agent").unwrap_err();
        assert_eq!(reason, "`agent` is none of tool, tool_name, server");
    }

    #[test]
    fn a_long_value_is_not_quoted() {
        let reason = u32::parse(&"8".repeat(41)).unwrap_err();
        assert!(
            reason.starts_with("a value of 41 characters is not"),
            "{reason}"
        );
    }

    /// A secret in the wrong variable.
    #[test]
    fn a_short_value_is_redacted() {
        let token = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
        assert!(!bool::parse(&token[..40]).unwrap_err().contains("a1B2c3"));
    }

    #[test]
    fn words_are_separated_by_commas() {
        let words = Vec::parse(" iban, ,bic ").unwrap();
        assert_eq!(words, ["iban", "bic"]);
    }

    #[test]
    fn none_takes_a_setting_away_in_any_case() {
        for none in ["none", "None", "NONE"] {
            assert_eq!(Option::<u32>::parse(none), Ok(None));
            assert_eq!(Jitter::parse(none), Ok(Jitter::None));
            assert_eq!(Vec::parse(none), Ok(vec![]));
        }
    }
}
