//! Durations as people write them: `30s`, `500ms`, `1m30s`.

use std::{fmt, marker::PhantomData, time::Duration};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

use super::text::{is_none, quoted};

/// A duration with its unit. A number alone is refused: it may mean seconds or milliseconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    if is_number(text) {
        let text = quoted(text);
        return Err(format!("{text} has no unit: write 30s, 500ms or 1m30s"));
    }
    humantime::parse_duration(text).map_err(|_| {
        let text = quoted(text);
        format!("{text} is not a duration such as 30s, 500ms or 1m30s")
    })
}

/// The same, and a number alone means seconds, as MCP gateways have it.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    if !is_number(text) {
        return parse(text);
    }
    let secs = text.parse().ok();
    let duration = secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
    duration.ok_or_else(|| format!("{} is not a number of seconds", quoted(text)))
}

/// As it is written and read.
pub(super) fn show(duration: Duration) -> String {
    // A file that a shell reads cannot take a space.
    humantime::format_duration(duration)
        .to_string()
        .replace(' ', "")
}

fn is_number(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.any(|b| b.is_ascii_digit()) && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// A duration as a value of a file: text.
pub(super) trait Written: Sized {
    const EXPECTED: &'static str;

    fn parse(text: &str) -> Result<Self, String>;

    fn show(&self) -> String;
}

impl Written for Duration {
    const EXPECTED: &'static str = "a duration with its unit, such as \"30s\"";

    fn parse(text: &str) -> Result<Self, String> {
        parse(text)
    }

    fn show(&self) -> String {
        show(*self)
    }
}

impl Written for Option<Duration> {
    const EXPECTED: &'static str = "a duration with its unit, such as \"30s\", or \"none\"";

    fn parse(text: &str) -> Result<Self, String> {
        match is_none(text) {
            true => Ok(None),
            false => parse(text).map(Some),
        }
    }

    fn show(&self) -> String {
        self.map_or("none".into(), show)
    }
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
pub(super) fn serialize<T: Written, S: Serializer>(
    value: &Option<T>,
    to: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(T::show).serialize(to)
}

/// `null` is as if the key were missing.
pub(super) fn deserialize<'de, T: Written, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<FromText<T>>::deserialize(from)?;
    Ok(text.map(|FromText(value)| value))
}

struct FromText<T>(T);

impl<'de, T: Written> Deserialize<'de> for FromText<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text<T>(PhantomData<T>);
        impl<T: Written> Visitor<'_> for Text<T> {
            type Value = FromText<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<FromText<T>, E> {
                T::parse(text.trim()).map(FromText).map_err(E::custom)
            }
        }
        from.deserialize_str(Text(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_alone_is_refused_with_the_remedy() {
        let reason = parse("30").unwrap_err();
        assert_eq!(reason, "`30` has no unit: write 30s, 500ms or 1m30s");
    }

    #[test]
    fn seconds_may_have_fractions() {
        assert_eq!(parse_seconds("2.5"), Ok(Duration::from_millis(2500)));
        for text in ["1m30s", "1m 30s"] {
            assert_eq!(parse_seconds(text), Ok(Duration::from_secs(90)));
        }
    }

    /// Rule 8: parsed totally.
    #[test]
    fn what_is_no_duration_is_refused() {
        let digits = "9".repeat(40);
        for text in [
            "1e30",
            "NaN",
            "inf",
            "-5",
            "-5s",
            "30 parsecs",
            ".",
            "1.2.3",
            &digits,
            "٣s",
        ] {
            assert!(
                parse(text).is_err() && parse_seconds(text).is_err(),
                "{text}"
            );
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
            let _ = (parse(&text), parse_seconds(&text));
        }
    }
}
