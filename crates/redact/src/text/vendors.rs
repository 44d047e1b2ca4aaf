//! How the tokens of well-known vendors begin.

use std::sync::LazyLock;

use Tail::{Any, Digit, Dotted, Hex, Lower, Plain, Upper};

use crate::words::Index;

/// The part of a token that follows its prefix.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Tail {
    /// Letters, digits, `_` and `-`.
    Any,
    /// As above, with a digit among them, or capitals and small letters: the prefix alone could
    /// begin a word.
    Digit,
    /// As [`Any`](Self::Any), with `.`, `+`, `~` and `/` between them, which do not count.
    Dotted,
    /// Hexadecimal digits only.
    Hex,
    /// Capitals and digits only.
    Upper,
    /// Letters and digits only, with a digit among them.
    Plain,
    /// As [`Digit`](Self::Digit), with a small letter first.
    Lower,
}

impl Tail {
    /// A description, and characters of this form for examples.
    pub(crate) fn form(self) -> (&'static str, &'static str) {
        match self {
            Any => ("letters, digits, `_` and `-`", "Zq7hX2vT9kLw4bRn"),
            Digit => ("letters and digits, `_` and `-`", "Zq7hX2vT9kLw4bRn"),
            Dotted => ("letters, digits, `_`, `-` and dots", "Zq7hX2vT9kLw4bRn"),
            Hex => ("hexadecimal digits", "0a1b2c3d4e5f6789"),
            Plain => ("letters and digits", "Zq7hX2vT9kLw4bRn"),
            Lower => (
                "letters, digits, `_` and `-`, a small letter first",
                "q7hX2vT9kLw4bRnZ",
            ),
            Upper => ("capitals and digits", "Z7X2V9K4B1N8M3Q6"),
        }
    }
}

/// A vendor, how its tokens begin, what follows, and how many characters of it at least.
pub(crate) type Vendor = (&'static str, &'static str, Tail, usize);

/// The vendors by their prefixes.
pub(super) static BY_PREFIX: LazyLock<Index<Vendor>> =
    LazyLock::new(|| Index::new(vendors().map(|vendor| (vendor.1, vendor))));

/// The vendors, a row for each prefix. A line of their table has the tail, how long it is at least,
/// and all prefixes it follows.
pub(crate) fn vendors() -> impl Iterator<Item = Vendor> {
    include_str!("vendors.txt").lines().flat_map(|row| {
        let mut parts = row.split_whitespace();
        let mut next = || parts.next().unwrap_or_default();
        let (id, name, min) = (next(), next(), next().parse().unwrap_or(usize::MAX));
        let tails = [Any, Digit, Dotted, Hex, Upper, Plain, Lower];
        let tail = tails.into_iter().find(|tail| format!("{tail:?}") == name);
        parts.map(move |prefix| (id, prefix, tail.unwrap_or(Any), min))
    })
}
