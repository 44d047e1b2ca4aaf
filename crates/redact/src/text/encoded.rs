//! Text in Base64: it is decoded, and redacted as a whole if there is a secret in it.

use std::ops::Range;

use super::{
    Run,
    bytes::{line_end, looked_at, skip},
};
use crate::shown;

/// Lines of this length and more may go on in the next one.
const LINE: usize = 48;

/// The whole of an encoded text that holds a secret.
pub(super) fn find(run: Run<'_>) -> Option<Range<usize>> {
    let (text, word, scan) = (run.text, run.word(), run.scan);
    if run.at < scan.decoded.get()
        || word.len() < 24
        || scan.nested >= shown::MAX_NESTED
        || !word.bytes().all(is_digit)
    {
        return None;
    }
    let mut decoder = Decoder::default();
    if !decoder.take(word) {
        return None;
    }
    let (mut end, mut len) = (run.end, word.len());
    loop {
        let next = line_end(text, end);
        let start = skip(text, next, |c| c == ' ' || c == '\t');
        let line_end = skip(text, start, |c| u8::try_from(c).is_ok_and(is_digit));
        if len < LINE || next == end || line_end == start || !decoder.take(&text[start..line_end]) {
            break;
        }
        (end, len) = (line_end, line_end - start);
    }
    // The lines are not decoded again one by one.
    scan.decoded.set(end);
    let inner = decoder.text()?;
    // A decoded text is not hidden itself, so it is not a finding.
    let found = shown::redacted(&run.rules.silent(), &inner, scan.nested + 1) != inner;
    found.then(|| run.at..skip(text, end, |c| c == '='))
}

/// Returns whether a byte may be one of a text: of UTF-16, every other is 0.
fn is_text(byte: u8) -> bool {
    byte >= b' ' && byte != 0x7f || b"\0\t\n\r".contains(&byte)
}

/// Of the standard alphabet or the one for URLs.
fn is_digit(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"+/-_".contains(&b)
}

/// Decodes as long as what comes out is text.
#[derive(Default)]
struct Decoder {
    bytes: Vec<u8>,
    bits: u32,
    count: u32,
}

impl Decoder {
    /// Returns whether all of `digits` are text.
    fn take(&mut self, digits: &str) -> bool {
        digits.bytes().all(|digit| {
            looked_at(1);
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' | b'-' => 62,
                _ => 63,
            };
            self.bits = self.bits << 6 | u32::from(value);
            self.count += 6;
            if self.count < 8 {
                return true;
            }
            self.count -= 8;
            let byte = (self.bits >> self.count) as u8;
            self.bits &= (1 << self.count) - 1;
            self.bytes.push(byte);
            is_text(byte)
        })
    }

    fn text(mut self) -> Option<String> {
        if self.bytes.get(1) == Some(&0) {
            self.bytes.retain(|byte| *byte != 0);
        }
        String::from_utf8(self.bytes).ok()
    }
}
