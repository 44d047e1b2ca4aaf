//! Durations as people write them: `30s`, `500ms`, `1m30s`, or a number of seconds.

use std::{fmt, marker::PhantomData, time::Duration};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

use super::text::is_none;
use crate::reader::quoted;

/// Reads a duration with a unit, or a number of seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(number) if is_number(text) => seconds(number, text),
        _ if text.contains('M') => Err(format!(
            "{} has `M`, a month: write `m` for minutes, `d` for days",
            quoted(text)
        )),
        _ => humantime::parse_duration(text).map_err(|_| {
            let text = quoted(text);
            format!("{text} is not a duration such as 30s, 500ms or 1m30s, or a number of seconds")
        }),
    }
}

/// Converts a number of seconds, which is written as `text`.
fn seconds(number: f64, text: &str) -> Result<Duration, String> {
    let text = quoted(text);
    match Duration::try_from_secs_f64(number) {
        Ok(duration) => Ok(duration),
        Err(_) if number < 0.0 => Err(format!("{text} is negative: a duration is at least 0")),
        Err(_) if number.is_nan() => Err(format!("{text} is not a number of seconds")),
        Err(_) => Err(format!("{text} is too large for a number of seconds")),
    }
}

/// As it is written and read.
pub(super) fn show(duration: Duration) -> String {
    // A file that a shell reads cannot take a space.
    humantime::format_duration(duration)
        .to_string()
        .replace(' ', "")
}

/// Digits, with a sign or a point: neither `1e3` nor `inf`.
fn is_number(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_digit() || b"-.".contains(&b))
}

/// A duration as a value of a file: text, or a number of seconds.
pub(super) trait Written: From<Duration> + Into<Option<Duration>> + Copy {
    /// The value of `none`, if there is one.
    const NONE: Option<Self>;
}

impl Written for Duration {
    const NONE: Option<Self> = None;
}

impl Written for Option<Duration> {
    const NONE: Option<Self> = Some(None);
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
pub(super) fn serialize<T: Written, S: Serializer>(
    value: &Option<T>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let text = |value: T| value.into().map_or("none".to_owned(), show);
    value.map(text).serialize(to)
}

/// `null` is as if the key were missing.
pub(super) fn deserialize<'de, T: Written, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<Form<T>>::deserialize(from)?;
    Ok(text.map(|Form(value)| value))
}

struct Form<T>(T);

impl<'de, T: Written> Deserialize<'de> for Form<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // By its type: an integer before any other number.
        from.deserialize_any(Form(PhantomData)).map(Form)
    }
}

impl<T: Written> Visitor<'_> for Form<PhantomData<T>> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = T::NONE.map_or("", |_| ", or \"none\"");
        write!(
            f,
            "a duration such as \"30s\", or a number of seconds{none}"
        )
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        match T::NONE.filter(|_| is_none(text.trim())) {
            Some(none) => Ok(none),
            None => parse(text.trim()).map(T::from).map_err(E::custom),
        }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        Ok(Duration::from_secs(number).into())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        seconds(number, &number.to_string())
            .map(T::from)
            .map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// P15: a number without a unit is seconds.
    #[test]
    fn a_number_alone_is_seconds() {
        for (text, millis) in [("30", 30_000), ("2.5", 2_500), (".5", 500), ("0", 0)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["1m30s", "1m 30s", "90"] {
            assert_eq!(parse(text), Ok(Duration::from_secs(90)));
        }
    }

    /// P15: the error of a number gives the reason.
    #[test]
    fn a_number_that_is_not_a_duration_says_why() {
        for (text, why) in [
            ("-5", "`-5` is negative: a duration is at least 0"),
            (
                "99999999999999999999",
                "`99999999999999999999` is too large for a number of seconds",
            ),
        ] {
            assert_eq!(parse(text), Err(why.to_owned()));
        }
    }

    /// P15: a capital letter does not make months of minutes.
    #[test]
    fn months_are_refused() {
        for text in ["1M", "5M", "2h 1M"] {
            let why = "has `M`, a month: write `m` for minutes, `d` for days";
            assert_eq!(parse(text), Err(format!("`{text}` {why}")));
        }
        assert_eq!(parse("5m"), Ok(Duration::from_secs(300)));
    }

    /// Rule 8: parsed totally.
    #[test]
    fn other_texts_are_refused() {
        let digits = "9".repeat(40);
        for text in [
            "1e30",
            "NaN",
            "inf",
            "-5",
            "-5s",
            "30 parsecs",
            ".",
            "-",
            "",
            "1-2",
            "1.2.3",
            &digits,
            "٣s",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read_again(secs in 0u64..100_000_000_000, nanos in 0u32..1_000_000_000) {
            let duration = Duration::new(secs, nanos);
            prop_assume!(!duration.is_zero());
            prop_assert_eq!(parse(&show(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = parse(&text);
        }
    }
}
