//! Texts without the escapes of JSON, URLs and HTML.

use crate::chars::Text as _;
use crate::{inside::first, text::bytes::floor};

/// The escapes that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// None, but the text gets the form of [`All`](Self::All).
    None,
    /// Those of strings of JSON and Rust. All else stays as it is.
    Strings,
    /// Those of JSON, URLs and HTML. Each `+` becomes a blank, and each line end and the indent
    /// behind it a line feed.
    All,
}

/// Returns a text without its escapes, and where each byte of it, and its end, stood before.
pub(super) fn unescaped(text: &str, escapes: Escapes) -> (String, Vec<usize>) {
    let (mut plain, mut places) = (String::with_capacity(text.len()), Vec::new());
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let (c, len) = match c {
            '\\' if escapes != Escapes::None => first(rest),
            '%' if escapes == Escapes::All => percent(rest).unwrap_or((c, 1)),
            '&' if escapes == Escapes::All => entity(rest).unwrap_or((c, 1)),
            c => (c, c.len_utf8()),
        };
        match c {
            c if escapes == Escapes::Strings => plain.push(c),
            ' ' | '\t' | '\n' | '\r' if plain.ends_with('\n') => {}
            '\r' => plain.push('\n'),
            '+' => plain.push(' '),
            c => plain.push(c),
        }
        places.resize(plain.len(), at);
        at += len;
    }
    places.push(at);
    (plain, places)
}

/// The character of `%C3%A9`, and the length of that.
fn percent(text: &str) -> Option<(char, usize)> {
    let byte = |nth: usize| {
        let digits = text.get(3 * nth..3 * nth + 3)?.strip_prefix('%')?;
        let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    };
    let len = match byte(0)? {
        0..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    let bytes: Vec<u8> = (0..len).map(byte).collect::<Option<_>>()?;
    Some((str::from_utf8(&bytes).ok()?.chars().next()?, 3 * len))
}

/// The character of `&amp;`, `&#38;` or `&#x26;`, and the length of that.
fn entity(text: &str) -> Option<(char, usize)> {
    let (name, _) = text.get(1..floor(text, 10))?.cut(";")?;
    let code = |digits: &str| match digits.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    };
    let c = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        other => char::from_u32(code(other.strip_prefix('#')?)?)?,
    };
    Some((c, name.len() + 2))
}
