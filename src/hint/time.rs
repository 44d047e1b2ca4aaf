//! Numbers, durations and moments in text.

use std::{
    ops::Range,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

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
fn digits(text: &str) -> Option<u64> {
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
pub fn go_duration(text: &str) -> Option<Duration> {
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

/// Reads a moment (RFC 3339): `2025-08-21T12:40:59Z`, `2025-08-21T14:40:59.5+02:00`. The seconds
/// may be left out, as in ISO 8601.
pub fn rfc3339(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    let is = |at: usize, marks: &[u8]| text.as_bytes().get(at).is_some_and(|b| marks.contains(b));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":")) {
        return None;
    }
    let field = |at| field(text, at);
    let (year, month, day) = (field(0..4)?, field(5..7)?, field(8..10)?);
    let (hour, minute) = (field(11..13)?, field(14..16)?);
    let (second, zone) = second(text.get(16..)?)?;
    let first = days(year, month);
    let next = days(year + month / 12, month % 12 + 1);
    let is_date = (1..=12).contains(&month) && (1..=next - first).contains(&day);
    // A leap second is the first one of the next minute.
    if !is_date || hour > 23 || minute > 59 || second >= Duration::from_secs(61) {
        return None;
    }
    let at = ((first + day - 1) * 24 + hour) * 3_600 + minute * 60 - offset(zone)?;
    let since = Duration::from_secs(at.unsigned_abs());
    let moment = match at {
        0.. => UNIX_EPOCH.checked_add(since)?,
        _ => UNIX_EPOCH.checked_sub(since)?,
    };
    moment.checked_add(second)
}

fn field(text: &str, at: Range<usize>) -> Option<i64> {
    i64::try_from(digits(text.get(at)?)?).ok()
}

/// `:59.5Z`: the seconds, and what follows.
fn second(text: &str) -> Option<(Duration, &str)> {
    let Some(text) = text.strip_prefix(':') else {
        return Some((Duration::ZERO, text));
    };
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, rest) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let complete = whole.len() == 2 && !fraction.is_empty();
    complete.then(|| Some((quantity(number, SECOND)?, rest)))?
}

/// `Z`, `+02:00`: seconds east of Greenwich.
fn offset(zone: &str) -> Option<i64> {
    let east = match zone.as_bytes() {
        b"Z" | b"z" => return Some(0),
        [b'+', _, _, b':', _, _] => 1,
        [b'-', _, _, b':', _, _] => -1,
        _ => return None,
    };
    let (hours, minutes) = (field(zone, 1..3)?, field(zone, 4..6)?);
    (hours < 24 && minutes < 60).then_some(east * (hours * 3_600 + minutes * 60))
}

/// Days from 1970-01-01 to the first of a month. Years begin in March here, so that the leap day is
/// the last one (Hinnant, "chrono-compatible low-level date algorithms").
fn days(year: i64, month: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + of_year - 719_468
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
    fn moments_are_read_with_offsets_and_fractions() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2025-08-21T12:40:59Z", 1_755_780_059_000),
            ("2025-08-21T14:40:59+02:00", 1_755_780_059_000),
            ("2025-08-21T07:10:59-05:30", 1_755_780_059_000),
            ("2025-08-21t12:40:59.25z", 1_755_780_059_250),
            ("2025-08-21 12:40:59Z", 1_755_780_059_000),
            ("2025-08-21T12:40Z", 1_755_780_000_000),
            ("2024-02-29T00:00:00Z", 1_709_164_800_000),
            ("2000-02-29T23:59:60Z", 951_868_800_000),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000),
        ] {
            let expected = UNIX_EPOCH + Duration::from_millis(millis);
            assert_eq!(rfc3339(text), Some(expected), "{text}");
        }
        let year_0 = UNIX_EPOCH.checked_sub(Duration::from_secs(62_167_219_200));
        assert_eq!(rfc3339("0000-01-01T00:00:00Z"), year_0);
        for rubbish in [
            "",
            "2025-08-21",
            "2025-08-21T12:40:59",
            "2025-08-21T12:40:59+0200",
            "2025-08-21T12:40:59+02:00:00",
            "2025-08-21T12:40:59+24:00",
            "2025-08-21T12:40:59.Z",
            "2025-08-21T12:40:5Z",
            "2025-08-21T12:40:61Z",
            "2025-08-21T12:60:59Z",
            "2025-08-21T24:00:00Z",
            "2025-00-21T12:40:59Z",
            "2025-13-21T12:40:59Z",
            "2025-08-00T12:40:59Z",
            "2025-02-29T12:40:59Z",
            "1900-02-29T12:40:59Z",
            "2025-04-31T12:40:59Z",
            "99999-08-21T12:40:59Z",
            "2025-08-21T12:40:59Zé",
            "éééé-08-21T12:40:59Z",
            "Tue Feb 16 2021 09:02:42 GMT+0100",
        ] {
            assert_eq!(rfc3339(rubbish), None, "{rubbish}");
        }
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
