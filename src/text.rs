//! Bounded, printable text.

use std::fmt::{self, Write as _};

use crate::redact::redact_text;

/// Marks that something was cut away (S3).
pub(crate) const TRUNCATED: &str = "...[truncated]";

/// The longest prefix of `text` that has at most `max` characters, and whether anything is missing.
pub(crate) fn prefix(text: &str, max: usize) -> (&str, bool) {
    match text.char_indices().nth(max) {
        Some((end, _)) => (&text[..end], true),
        None => (text, false),
    }
}

/// `text` cut to `max` characters, the mark not counted.
pub(crate) fn truncate(text: &str, max: usize) -> String {
    match prefix(text, max) {
        (head, true) => format!("{head}{TRUNCATED}"),
        (whole, false) => whole.to_owned(),
    }
}

/// Prints at most `max` characters, redacted, control characters as spaces: for names that a model or a peer
/// chose and that go into messages, spans and labels.
#[derive(Clone, Copy)]
pub(crate) struct Short<'a> {
    text: &'a str,
    max: usize,
}

impl<'a> Short<'a> {
    /// A tool's, server's or call's name: 64 characters.
    pub(crate) fn name(text: &'a str) -> Self {
        Self { text, max: 64 }
    }

    pub(crate) fn new(text: &'a str, max: usize) -> Self {
        Self { text, max }
    }
}

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, cut) = prefix(self.text, self.max);
        for c in redact_text(head).chars() {
            f.write_char(if c.is_control() { ' ' } else { c })?;
        }
        if cut { f.write_str("...") } else { Ok(()) }
    }
}

impl fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Collects what a foreign `Display` writes, up to a number of bytes, and then refuses more: a
/// well-behaved `Display` stops there.
pub(crate) struct Bounded {
    text: String,
    max: usize,
}

impl Bounded {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            text: String::new(),
            max,
        }
    }

    /// What `value` prints, its first `max` bytes at the most.
    pub(crate) fn print(max: usize, value: &dyn fmt::Display) -> String {
        let mut out = Self::new(max);
        // An error means that the limit is reached, or that `value` cannot be printed further.
        let _ = write!(out, "{value}");
        out.text
    }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = self.max - self.text.len();
        if s.len() <= room {
            self.text.push_str(s);
            return Ok(());
        }
        let mut end = room;
        while !s.is_char_boundary(end) {
            end -= 1;
        }
        self.text.push_str(&s[..end]);
        self.max = self.text.len();
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_on_a_character_boundary() {
        assert_eq!(truncate("äöü", 2), "äö...[truncated]");
        assert_eq!(truncate("äöü", 3), "äöü");
    }

    #[test]
    fn a_name_of_a_megabyte_prints_67_characters() {
        let name = "x".repeat(1 << 20);
        assert_eq!(Short::name(&name).to_string().len(), 67);
    }

    #[test]
    fn control_characters_in_a_name_print_as_spaces() {
        assert_eq!(Short::name("a\nb\u{1b}[31m").to_string(), "a b [31m");
    }

    #[test]
    fn printing_stops_at_the_limit() {
        assert_eq!(Bounded::print(5, &"äöü"), "äö");
        assert_eq!(Bounded::print(6, &"äöü"), "äöü");
    }
}
