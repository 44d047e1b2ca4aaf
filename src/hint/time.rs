//! Numbers and durations in text.

use std::time::Duration;

/// Longer numbers mean nothing.
const MAX_NUMBER: usize = 64;

pub(super) const SECOND: u64 = 1_000_000_000;

/// A number that is neither negative nor infinite: `12`, `1.5`, `1e3`.
pub(super) fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let number: f64 = (text.len() <= MAX_NUMBER).then(|| text.parse().ok())??;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// Seconds, with or without a fraction.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    number(text).map(saturating)
}

/// Milliseconds, with or without a fraction.
pub(super) fn millis(text: &str) -> Option<Duration> {
    number(text).map(|number| saturating(number / 1000.0))
}

/// Reads a number of seconds that is not negative. One that is too large gives the longest
/// duration.
pub(super) fn saturating(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Reads a whole number. A number that is too large becomes the largest.
pub(super) fn digits(text: &str) -> Option<u64> {
    let is_number = (1..=MAX_NUMBER).contains(&text.len());
    let all = is_number && text.bytes().all(|b| b.is_ascii_digit());
    all.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Reads a decimal number of units of so many nanoseconds, rounded up: a wait never ends before the
/// server asked.
pub(super) fn quantity(number: &str, unit: u64) -> Option<Duration> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let or_zero = |s: &str| if s.is_empty() { Some(0) } else { digits(s) };
    // 18 digits fit into 64 bits.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let parts = (u128::from(or_zero(fraction)?) * u128::from(unit)).div_ceil(scale);
    let nanos = u128::from(or_zero(whole)?) * u128::from(unit) + parts;
    let second = u128::from(SECOND);
    let rest = u32::try_from(nanos % second).ok()?;
    let whole = u64::try_from(nanos / second);
    Some(whole.map_or(Duration::MAX, |whole| Duration::new(whole, rest)))
}

/// Reads a duration as Go prints it: `1m26.4s`, `6m0s`, `12ms`. A number without a unit, except
/// `0`, and a negative duration are `None`. More than a [`Duration`] can hold is [`Duration::MAX`].
///
/// The grammar is that of Go's `time.ParseDuration`.
pub(super) fn go_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let numeric = |c: char| c.is_ascii_digit() || c == '.';
    let mut sum = None;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c| !numeric(c))?);
        let (unit, tail) = tail.split_at(tail.find(numeric).unwrap_or(tail.len()));
        let part = quantity(number, go_unit(unit)?)?;
        sum = Some(sum.unwrap_or(Duration::ZERO).saturating_add(part));
        rest = tail;
    }
    sum
}

fn go_unit(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read_as_go_prints_them() {
        for (text, nanos) in [
            ("1s", 1_000_000_000),
            ("6m0s", 360_000_000_000),
            ("12ms", 12_000_000),
            ("1m26.4s", 86_400_000_000),
            ("2m59.56s", 179_560_000_000),
            ("1h2m3s", 3_723_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("+1s", 1_000_000_000),
            ("0", 0),
            ("0s", 0),
            ("7µs", 7_000),
            ("7μs", 7_000),
            ("7us3ns", 7_003),
            ("0.1ns", 1),
            (" 1s ", 1_000_000_000),
            ("1.0000000000000000000000000001s", 1_000_000_000),
        ] {
            let expected = Some(Duration::from_nanos(nanos));
            assert_eq!(go_duration(text), expected, "{text}");
        }
        for rubbish in [
            "", "100", "s", "-1s", "1d", "1S", "1 s", "1..2s", ".s", "1e3s", "NaNs", "1s2", "١s",
        ] {
            assert_eq!(go_duration(rubbish), None, "{rubbish}");
        }
        assert!(go_duration(&"1s".repeat(1 << 20)).is_some());
        assert_eq!(go_duration(&format!("{}s", "9".repeat(16 << 20))), None);
    }

    #[test]
    fn numbers_are_total() {
        for (text, expected) in [
            ("0", Some(0.0)),
            ("-0", Some(0.0)),
            (" 1.5 ", Some(1.5)),
            ("1e3", Some(1000.0)),
            ("1e-400", Some(0.0)),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
        for rubbish in [
            "", "-1", "NaN", "inf", "infinity", "1e400", "1,5", "0x10", "12 s",
        ] {
            assert_eq!(number(rubbish), None, "{rubbish}");
        }
        assert_eq!(number(&"1".repeat(16 << 20)), None);
        assert_eq!(seconds("99999999999999999999"), Some(Duration::MAX));
        assert_eq!(millis("1234.5"), Some(Duration::from_micros(1_234_500)));
    }
}
