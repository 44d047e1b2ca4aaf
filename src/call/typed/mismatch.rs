use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use crate::text::{Bounded, Short};

/// The longest list of names that is shown, in bytes.
const MAX_NAMES: usize = 100;

/// How many steps of a path are shown.
const MAX_STEPS: usize = 8;

/// Why arguments do not fit, without a value of theirs.
///
/// serde passes its errors by type before it makes texts of them. Only texts that are written in
/// the program are kept: names of fields and variants, the lengths of tuples, serde's own words for
/// types. Any other text may contain a value, so none is kept.
#[derive(Debug)]
pub(super) struct Mismatch {
    text: String,
    /// A length is wrong: of what, is not known.
    is_length: bool,
    /// From the inside out.
    path: Vec<Step>,
}

/// A step on the way to a value.
#[derive(Debug)]
pub(super) enum Step {
    /// A name that the program has: of a field, or of a variant.
    Name(&'static str),
    Item(usize),
    /// A key of the caller's own: not shown.
    Key,
}

impl Step {
    /// Returns the step to the field `name`: by its name if the program knows it, else as a key.
    pub(super) fn to(name: &str, known: &[&'static str]) -> Self {
        let known = known.iter().find(|known| **known == name);
        known.map_or(Self::Key, |known| Self::Name(known))
    }
}

impl Mismatch {
    fn new(text: String) -> Self {
        Self {
            text,
            is_length: false,
            path: Vec::new(),
        }
    }

    /// Nothing is known, or nothing that may be shown.
    pub(super) fn unfit() -> Self {
        Self::new("the value does not fit".to_owned())
    }

    /// There are more elements, or fields, than were read, or a length is wrong in another way.
    pub(super) fn length() -> Self {
        Self {
            is_length: true,
            ..Self::unfit()
        }
    }

    /// The type of a value is another.
    pub(super) fn expected(expected: &str, came: &Unexpected<'_>) -> Self {
        Self::new(format!("expected {expected}, not {}", a(kind(came))))
    }

    /// Returns the mismatch of a type, in that type's words if they hold no value.
    pub(super) fn of_type(came: &Unexpected<'_>, expected: &dyn Expected) -> Self {
        plain(expected).map_or_else(Self::unfit, |expected| Self::expected(&expected, came))
    }

    /// Adds the lengths, if an array of `all` elements should have `declared` elements.
    pub(super) fn of_length(mut self, declared: Option<usize>, all: usize) -> Self {
        if let (true, true, Some(declared)) = (self.path.is_empty(), self.is_length, declared) {
            self.text = format!("expected {declared} elements, not {all}");
        }
        self
    }

    /// Puts `step` in front of the path.
    pub(super) fn under(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }

    /// Where it is: `place.cities[2]`.
    pub(super) fn place(&self) -> Option<String> {
        let mut place = String::new();
        for step in self.path.iter().rev().take(MAX_STEPS) {
            let dot = if place.is_empty() { "" } else { "." };
            place += &match step {
                Step::Name(name) => format!("{dot}{}", Short::name(name)),
                Step::Item(index) => format!("[{index}]"),
                Step::Key => format!("{dot}*"),
            };
        }
        (!place.is_empty()).then_some(place)
    }
}

/// Prints the mismatch. A type that wraps this error in its own error gets no values either.
impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Mismatch {}

/// The texts by which types of serde and of the standard library name what they expect.
const WORDS: &str = "a string, a borrowed string, a character, a boolean, a number, option, an array, \
    an object, any valid JSON value, IP address, IPv4 address, IPv6 address, socket address, \
    path string";

/// Such texts for numbers: one of these words, alone or behind `a nonzero`.
const NUMBERS: &str = "u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64";

/// How serde's words for types of the program begin, and what these types are in JSON: names of
/// Rust types mean nothing to a model.
const TYPES: &[(&str, &str)] = &[
    ("unit struct ", "null"),
    ("enum ", "a string or an object"),
    ("tuple struct ", "an array"),
    ("tuple variant ", "an array"),
    ("a tuple of size ", "an array"),
    ("an array of length ", "an array"),
    ("struct ", "an object"),
    ("internally tagged enum ", "an object"),
    ("adjacently tagged enum ", "an object"),
];

/// serde's words for what the program expects, in those of JSON: always a text from these tables.
/// `None` if the words may be those of another crate.
fn plain(expected: &dyn Expected) -> Option<String> {
    let expected = Bounded::print(64, &expected);
    let json = match &*expected {
        "map" | "a map" => "an object",
        "sequence" | "a sequence" => "an array",
        "unit" | "()" => "null",
        "variant identifier" | "field identifier" => "a string",
        _ => match TYPES.iter().find(|(start, _)| expected.starts_with(start)) {
            Some((_, json)) => json,
            None => {
                let has = |words: &str, word: &str| words.split(", ").any(|known| known == word);
                let number = expected.strip_prefix("a nonzero ").unwrap_or(&expected);
                let known = has(WORDS, &expected) || has(NUMBERS, number);
                return known.then_some(expected);
            }
        },
    };
    Some(json.to_owned())
}

/// Names from the program, as many as fit.
fn one_of(names: &[&str]) -> String {
    let mut text = String::new();
    for name in names {
        let comma = if text.is_empty() { "" } else { ", " };
        let next = format!("{comma}`{}`", Short::name(name));
        if text.len() + next.len() > MAX_NAMES && !text.is_empty() {
            return format!("one of {text} and others");
        }
        text += &next;
    }
    match names {
        [_] => text,
        _ => format!("one of {text}"),
    }
}

/// The type of a value, without the value.
fn kind(unexpected: &Unexpected<'_>) -> &'static str {
    match unexpected {
        Unexpected::Bool(_) => "boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "integer",
        Unexpected::Float(_) => "number",
        Unexpected::Char(_) | Unexpected::Str(_) => "string",
        Unexpected::Seq => "array",
        Unexpected::Map => "object",
        Unexpected::Unit | Unexpected::Option => "null",
        _ => "value",
    }
}

fn a(kind: &str) -> String {
    match kind {
        "null" => kind.to_owned(),
        "value" => "this".to_owned(),
        _ if kind.starts_with(['a', 'i', 'o']) => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

impl Error for Mismatch {
    /// Its text is not even printed.
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::unfit()
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::of_type(&unexpected, expected)
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let not = |expected| {
            Self::new(format!(
                "expected {expected}, not this {}",
                kind(&unexpected)
            ))
        };
        plain(expected).map_or_else(Self::unfit, not)
    }

    /// The number may be that of the characters of a secret.
    fn invalid_length(_: usize, _: &dyn Expected) -> Self {
        Self::length()
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(match expected {
            [] => "no value fits".to_owned(),
            names => format!("expected {}", one_of(names)),
        })
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(match expected {
            [] => "expected no fields".to_owned(),
            names => format!("unknown field, expected {}", one_of(names)),
        })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("the field `{}` is missing", Short::name(field)))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(format!("the field `{}` is there twice", Short::name(field)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_steps_are_shown() {
        let at = |steps: usize| {
            let mismatch =
                (0..steps).fold(Mismatch::unfit(), |m, i| m.under(Step::Item(steps - 1 - i)));
            mismatch.place().unwrap()
        };
        assert_eq!(at(8), "[0][1][2][3][4][5][6][7]");
        assert_eq!(at(9), at(8));
    }

    #[test]
    fn names_are_listed_as_far_as_there_is_room() {
        let fifty: &str = &"x".repeat(50);
        let (room, more) = (&fifty[..44], &fifty[..45]);
        assert!(!one_of(&[fifty, room]).contains("others"));
        assert!(one_of(&[fifty, more]).ends_with(" and others"));
    }
}
