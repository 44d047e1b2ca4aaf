//! Moments in text.

use std::{
    ops::Range,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::hint::time::{SECOND, digits, quantity};

/// Reads a moment (RFC 3339): `2025-08-21T12:40:59Z`, `2025-08-21T14:40:59.5+02:00`. The seconds
/// may be left out, as in ISO 8601.
pub(super) fn rfc3339(text: &str) -> Option<SystemTime> {
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
}
