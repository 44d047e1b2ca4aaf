//! Text in Base64: it is decoded, and redacted as a whole if there is a secret in it.

use super::{filter::LONG, prelude::*};
use crate::shown;

/// Lines of this length and more may go on in the next one.
const LINE: usize = 48;

/// The whole of an encoded text that holds a secret.
pub(super) fn find(run: &Run<'_>) -> Option<Range<usize>> {
    let (text, word, scan) = (run.text, run.word(), run.scan);
    if run.at < scan.decoded.get() || word.len() < LONG || scan.nested >= shown::MAX_NESTED {
        return None;
    }
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    // Decodes as long as what comes out is text.
    let mut decodes = |digits: &str| {
        looked_at(digits.len());
        digits.bytes().all(|digit| {
            bits = bits << 6 | value(digit);
            count += 6;
            if count < 8 {
                return true;
            }
            count -= 8;
            let byte = (bits >> count) as u8;
            bytes.push(byte);
            byte >= b' ' && byte != 0x7f || b"\0\t\n\r".contains(&byte)
        })
    };
    if !word.chars().all(is_digit) || !decodes(word) {
        return None;
    }
    let (mut end, mut len) = (run.end, word.len());
    while len >= LINE {
        let next = line_end(text, end);
        let start = skip(text, next, |c| c == ' ' || c == '\t');
        let line = &text[start..skip(text, start, is_digit)];
        if next == end || line.is_empty() || !decodes(line) {
            break;
        }
        (end, len) = (start + line.len(), line.len());
    }
    // The lines are not decoded again one by one.
    scan.decoded.set(end);
    // Of UTF-16, every other is 0.
    if bytes.get(1) == Some(&0) {
        bytes.retain(|byte| *byte != 0);
    }
    let inner = String::from_utf8(bytes).ok()?;
    // A decoded text is not hidden itself, so it is not a finding.
    let found = shown::redacted(&run.rules.silent(), &inner, scan.nested + 1) != inner;
    found.then(|| run.at..skip(text, end, |c| c == '='))
}

/// Of the standard alphabet or the one for URLs.
fn is_digit(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_')
}

fn value(digit: u8) -> u32 {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' | b'-' => 62,
        _ => 63,
    };
    value.into()
}
