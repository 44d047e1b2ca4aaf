use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use crate::text::{Bounded, Short};

/// The longest foreign text that is looked at, in bytes.
const MAX_TEXT: usize = 160;

/// The longest list of names that is shown, in bytes.
const MAX_NAMES: usize = 100;

/// How many steps of a path are shown.
const MAX_STEPS: usize = 8;

/// Why arguments do not fit, without a value of theirs.
///
/// serde tells its errors by type before it makes texts of them: here they stay what they are. What is written in
/// the program (names of fields and variants) is told apart from what was passed; of texts that others wrote
/// nobody knows, so they are checked before they are shown.
#[derive(Debug)]
pub(super) struct Misfit {
    what: What,
    /// From the inside out.
    path: Vec<Step>,
}

/// A step on the way to a value.
#[derive(Debug)]
pub(super) enum Step {
    /// A field that the program knows.
    Field(String),
    Item(usize),
    /// A key of the caller's own: not shown.
    Key,
}

#[derive(Debug)]
enum What {
    /// What was expected, in the words of a type, and what came.
    Other(String, String),
    /// One of these was expected.
    NoneOf(&'static [&'static str]),
    /// A field that is not one of these.
    Unknown(&'static [&'static str]),
    Missing(&'static str),
    Twice(&'static str),
    /// Somebody's words.
    Told(String),
}

impl Misfit {
    fn new(what: What) -> Self {
        Self {
            what,
            path: Vec::new(),
        }
    }

    fn other(expected: &dyn Expected, came: String) -> Self {
        Self::new(What::Other(Bounded::print(MAX_TEXT, &expected), came))
    }

    /// The same one step further out.
    pub(super) fn under(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }

    pub(super) fn path(&self) -> impl Iterator<Item = &Step> {
        self.path.iter().rev()
    }

    /// Where it is: `place.cities[2]`.
    pub(super) fn place(&self) -> Option<String> {
        let mut place = String::new();
        for step in self.path().take(MAX_STEPS) {
            let dot = if place.is_empty() { "" } else { "." };
            place += &match step {
                Step::Field(name) => format!("{dot}{}", Short::name(name)),
                Step::Item(index) => format!("[{index}]"),
                Step::Key => format!("{dot}*"),
            };
        }
        (!place.is_empty()).then_some(place)
    }

    /// What is wrong. `may_show` is asked for each text that may have a value in it.
    pub(super) fn what(&self, may_show: impl Fn(&str) -> bool) -> String {
        match &self.what {
            What::Other(expected, came) => match plain(expected) {
                Some(plain) => format!("expected {plain}, not {came}"),
                None if may_show(expected) => format!("expected {expected}, not {came}"),
                None => format!("expected something else, not {came}"),
            },
            What::NoneOf([]) => "no value fits".to_owned(),
            What::NoneOf(names) => format!("expected {}", one_of(names)),
            What::Unknown([]) => "expected no fields".to_owned(),
            What::Unknown(names) => format!("unknown field, expected {}", one_of(names)),
            What::Missing(name) => format!("the field `{}` is missing", Short::name(name)),
            What::Twice(name) => format!("the field `{}` is there twice", Short::name(name)),
            What::Told(text) if may_show(text) => text.clone(),
            What::Told(_) => "the value does not fit".to_owned(),
        }
    }
}

/// serde's words for what the program expects, in those of JSON; `None` if they may be somebody else's.
fn plain(expected: &str) -> Option<&str> {
    // Names of Rust types mean nothing to a model.
    let begins = |starts: &[&str]| starts.iter().any(|start| expected.starts_with(start));
    match expected {
        "map" | "a map" => Some("an object"),
        _ if begins(&[
            "struct ",
            "internally tagged enum ",
            "adjacently tagged enum ",
        ]) =>
        {
            Some("an object")
        }
        "sequence" | "a sequence" => Some("an array"),
        _ if begins(&["tuple struct ", "tuple variant "]) => Some("an array"),
        "unit" | "()" => Some("null"),
        _ if begins(&["unit struct "]) => Some("null"),
        _ if begins(&["enum "]) => Some("a string or an object"),
        "a string"
        | "a borrowed string"
        | "a character"
        | "a boolean"
        | "a number"
        | "option"
        | "an array"
        | "an object"
        | "u8"
        | "u16"
        | "u32"
        | "u64"
        | "u128"
        | "usize"
        | "i8"
        | "i16"
        | "i32"
        | "i64"
        | "i128"
        | "isize"
        | "f32"
        | "f64"
        | "any valid JSON value" => Some(expected),
        _ => None,
    }
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

impl Error for Misfit {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::new(What::Told(Bounded::print(MAX_TEXT, &text)))
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::other(expected, a(kind(&unexpected)))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::other(expected, format!("this {}", kind(&unexpected)))
    }

    fn invalid_length(len: usize, expected: &dyn Expected) -> Self {
        Self::other(expected, format!("{len} elements"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(What::NoneOf(expected))
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(What::Unknown(expected))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(What::Missing(field))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(What::Twice(field))
    }
}

/// Whoever wraps this error in one of his own gets no values either.
impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what(|_| false))
    }
}

impl std::error::Error for Misfit {}
