//! The text of a variable as a value of a file.

use serde::{
    Deserializer,
    de::{
        IntoDeserializer, Visitor,
        value::{Error, SeqDeserializer},
    },
    forward_to_deserialize_any,
};

pub(super) fn is_none(text: &str) -> bool {
    text.eq_ignore_ascii_case("none")
}

/// Deserializes the text as the type that its setting has.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    text: &'a str,
    /// The text is the value itself, which `none` may unset, and no longer the option that a file
    /// has for each value.
    is_value: bool,
}

impl<'a> Text<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self {
            text,
            is_value: false,
        }
    }
}

impl<'de> IntoDeserializer<'de> for Text<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Text<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.text)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &*self.text.to_ascii_lowercase() {
            "true" | "yes" | "on" | "1" => visitor.visit_bool(true),
            "false" | "no" | "off" | "0" => visitor.visit_bool(false),
            _ => visitor.visit_str(self.text),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.text.parse() {
            Ok(number) => visitor.visit_u64(number),
            Err(_) => visitor.visit_str(self.text),
        }
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.text.parse() {
            Ok(number) => visitor.visit_f64(number),
            Err(_) => visitor.visit_str(self.text),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.is_value && is_none(self.text) {
            true => visitor.visit_none(),
            false => visitor.visit_some(Self {
                is_value: true,
                ..self
            }),
        }
    }

    /// Words between commas.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let words = self.text.split(',').map(str::trim);
        let words = words.filter(|word| !word.is_empty() && !is_none(self.text));
        visitor.visit_seq(SeqDeserializer::new(words))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 char str string bytes byte_buf unit unit_struct
        newtype_struct tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::{
        super::{KeyBy, Preset},
        *,
    };
    use crate::{kit::backoff::Jitter, reader::Reader};

    fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
        let value = Option::deserialize(Reader::without_keys(Text::new(text)));
        value.map(Option::unwrap).map_err(|e| e.to_string())
    }

    #[test]
    fn a_name_is_one_of_those_that_stand_in_files() {
        assert_eq!(parse("full"), Ok(Jitter::Full));
        assert_eq!(parse("gateway"), Ok(Preset::Gateway));
        let reason = parse::<KeyBy>("session").unwrap_err();
        assert_eq!(
            reason,
            "unknown value `session`; expected one of `tool`, `tool_name`, `server`, `agent`"
        );
    }

    #[test]
    fn a_number_says_its_range() {
        for (reason, expected) in [
            (
                parse::<u32>("-1").unwrap_err(),
                "`-1` is not a whole number from 0 to 4,294,967,295",
            ),
            (
                parse::<usize>("x").unwrap_err(),
                "`x` is not a whole number of at least 0",
            ),
            (
                parse::<std::num::NonZeroUsize>("0").unwrap_err(),
                "`0` is not a whole number of at least 1",
            ),
            (parse::<f64>("half").unwrap_err(), "`half` is not a number"),
            (
                parse::<bool>("maybe").unwrap_err(),
                "`maybe` is neither true nor false",
            ),
        ] {
            assert_eq!(reason, expected);
        }
    }

    #[test]
    fn a_long_value_is_not_quoted() {
        let reason = parse::<u32>(&"8".repeat(41)).unwrap_err();
        assert!(
            reason.starts_with("a value of 41 characters is not"),
            "{reason}"
        );
    }

    /// A secret in the wrong variable.
    #[test]
    fn a_short_value_is_redacted() {
        let token = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
        assert!(!parse::<bool>(&token[..40]).unwrap_err().contains("a1B2c3"));
        assert!(!parse::<KeyBy>(&token[..40]).unwrap_err().contains("a1B2c3"));
    }

    #[test]
    fn words_are_separated_by_commas() {
        let words: Vec<String> = parse(" iban, ,bic ").unwrap();
        assert_eq!(words, ["iban", "bic"]);
    }

    #[test]
    fn none_takes_a_setting_away_in_any_case() {
        for none in ["none", "None", "NONE"] {
            assert_eq!(parse::<Option<u32>>(none), Ok(None));
            assert_eq!(parse(none), Ok(Jitter::None));
            assert_eq!(parse::<Vec<String>>(none), Ok(vec![]));
        }
    }
}
