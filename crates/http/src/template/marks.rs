//! Values never enter the rendered text: each is kept apart, and a mark stands for it until its
//! place is known.

use std::fmt;

use minijinja::{
    Error, ErrorKind, Output, State, UndefinedBehavior, Value,
    value::{Object, ObjectRepr, ValueKind},
};

use super::Fault;

/// Stands before and after the number of a value. A noncharacter: it is refused in templates and in
/// values.
pub(super) const MARK: char = '\u{10FFFE}';

/// How many bytes the values of one part of a request may have together.
pub(in super::super) const MAX_BYTES: usize = 16 << 20;

/// A value that a template prints.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    Text(String),
    /// A number or a truth value, as JSON has it.
    Scalar(String),
    /// An array, an object, or what `tojson` made.
    Json(String),
    /// Several segments of a path.
    Path(String),
    /// One segment of a path, which may have a slash in it.
    Segment(String),
    Null,
    /// An undefined variable, where that prints nothing.
    Nothing,
}

impl Slot {
    fn of(value: &Value) -> Result<Self, Error> {
        if let Some(Written(slot)) = value.downcast_object_ref() {
            return Ok(slot.clone());
        }
        if let Some(text) = value.as_str() {
            return Ok(Self::Text(text.to_owned()));
        }
        Ok(match value.kind() {
            ValueKind::Undefined => return Err(ErrorKind::UndefinedError.into()),
            ValueKind::None => Self::Null,
            ValueKind::Number | ValueKind::Bool => Self::Scalar(json(value)?),
            ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => Self::Json(json(value)?),
            _ => return Err(Fault::Value(None, "cannot be printed").into()),
        })
    }

    /// Its text, as far as it has one.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Scalar(text) | Self::Json(text) => text,
            Self::Path(text) | Self::Segment(text) => text,
            Self::Null => "null",
            Self::Nothing => "",
        }
    }

    /// The text that stands in a URL, a header or a form: structured values have none.
    pub(super) fn plain(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Scalar(text) => Some(text),
            Self::Nothing => Some(""),
            Self::Json(_) | Self::Path(_) | Self::Segment(_) | Self::Null => None,
        }
    }
}

/// The values of one rendering. An extension of the engine's state.
#[derive(Default)]
pub(super) struct Slots {
    list: Vec<Slot>,
    bytes: usize,
}

impl Slots {
    pub(super) fn take(&mut self) -> Vec<Slot> {
        std::mem::take(&mut self.list)
    }
}

/// Keeps a value, and writes its mark.
pub(super) fn write_mark(
    out: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    let slot = match state.undefined_behavior() {
        UndefinedBehavior::Lenient if value.is_undefined() => Slot::Nothing,
        _ => Slot::of(value)?,
    };
    // Either a caller's value contains a mark, or a block has captured the value to print it again.
    if slot.text().contains(MARK) {
        return Err(Fault::Value(None, "cannot be captured and printed again").into());
    }
    let slots = state.get_or_insert_extension_with(Slots::default);
    slots.bytes = slots.bytes.saturating_add(slot.text().len());
    if slots.bytes > MAX_BYTES {
        return Err(Fault::TooMuch.into());
    }
    let n = slots.list.len();
    slots.list.push(slot);
    write!(out, "{MARK}{n}{MARK}").map_err(Error::from)
}

/// Starts the text in place of an unknown value. For private use: templates do not have it.
const ANYTHING: char = '\u{E000}';

/// A part of a request: the template's own words, and the values between them.
#[derive(Clone)]
pub(super) struct Marked {
    text: String,
    slots: Vec<Slot>,
}

/// A piece of a [`Marked`] text.
pub(super) enum Piece<'a> {
    Words(&'a str),
    Value(usize, &'a Slot),
}

impl Marked {
    pub(super) fn new(text: String, slots: Vec<Slot>) -> Self {
        Self { text, slots }
    }

    /// A rendering in which something stands for the values that are not known.
    pub(super) fn sketch(text: String, slots: Vec<Option<Slot>>) -> Self {
        // Each differs: they may be keys of one object.
        let anything = |n| Slot::Text(format!("{ANYTHING}{n}"));
        let slots = slots.into_iter().enumerate();
        let slots = slots.map(|(n, slot)| slot.unwrap_or_else(|| anything(n)));
        Self::new(text, slots.collect())
    }

    /// Puts a number in place of the unknown values of a sketch for which `is_number` holds, by the
    /// words before and behind each.
    pub(super) fn with_numbers(mut self, is_number: fn(&str, &str) -> bool) -> Self {
        let pieces: Vec<&str> = self.text.split(MARK).collect();
        // Each value of a sketch has its mark once, in order.
        let around = pieces.windows(3).step_by(2);
        for (n, (slot, around)) in self.slots.iter_mut().zip(around).enumerate() {
            let is_unknown = matches!(slot, Slot::Text(text) if text.starts_with(ANYTHING));
            if is_unknown && is_number(around[0], around[2]) {
                *slot = Slot::Scalar((n + 1).to_string());
            }
        }
        self
    }

    pub(super) fn has(&self, is_it: impl Fn(&Slot) -> bool) -> bool {
        self.slots.iter().any(is_it)
    }

    pub(super) fn slot(&self, n: usize) -> Option<&Slot> {
        self.slots.get(n)
    }

    /// The pieces in turn, an empty one where two values touch.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Result<Piece<'_>, Fault>> {
        let parts = self.text.split(MARK).enumerate();
        parts.map(|(i, part)| match i % 2 {
            0 => Ok(Piece::Words(part)),
            _ => {
                let found = part.parse().ok().and_then(|n| Some((n, self.slot(n)?)));
                let (n, slot) = found.ok_or(Fault::Template("has a mark of no value"))?;
                Ok(Piece::Value(n, slot))
            }
        })
    }

    /// How long the text is about to be.
    pub(super) fn capacity(&self) -> usize {
        let values: usize = self.slots.iter().map(|slot| slot.text().len()).sum();
        self.text.len() + values
    }
}

/// The output of a filter, with its place. It is printed unchanged.
#[derive(Debug)]
struct Written(Slot);

impl Object for Written {
    fn repr(self: &std::sync::Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &std::sync::Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.text())
    }
}

fn json(value: &Value) -> Result<String, Error> {
    let failed = |_| Fault::Value(None, "cannot be written as JSON");
    let json = serde_json::to_string(value).map_err(failed)?;
    // Another value, in place of `"inf" | float`.
    if json.contains("null") && !is_finite(value) {
        return Err(Fault::Value(None, "is not a number that JSON has").into());
    }
    Ok(json)
}

/// Returns whether all numbers in a value are finite.
fn is_finite(value: &Value) -> bool {
    let items = || value.try_iter().into_iter().flatten();
    match value.kind() {
        ValueKind::Number => f64::try_from(value.clone()).map_or(true, f64::is_finite),
        ValueKind::Seq | ValueKind::Iterable => items().all(|item| is_finite(&item)),
        ValueKind::Map => items().all(|key| value.get_item(&key).is_ok_and(|v| is_finite(&v))),
        _ => true,
    }
}

/// Counts the work of a filter: a step for each KiB, so that a loop cannot repeat it for long.
fn charge(state: &State<'_, '_>, text: &str) -> Result<(), Error> {
    state.consume_fuel(text.len() as u64 >> 10)
}

/// The filter `tojson`.
pub(super) fn to_json(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(ErrorKind::UndefinedError.into());
    }
    if let Some(Written(Slot::Json(_))) = value.downcast_object_ref() {
        return Ok(value.clone());
    }
    let json = json(value)?;
    charge(state, &json)?;
    Ok(Value::from_object(Written(Slot::Json(json))))
}

/// The filter `path`.
pub(super) fn path(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    segments(state, value, Slot::Path)
}

/// The filter `segment`.
pub(super) fn segment(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    segments(state, value, Slot::Segment)
}

fn segments(
    state: &State<'_, '_>,
    value: &Value,
    slot: fn(String) -> Slot,
) -> Result<Value, Error> {
    match Slot::of(value)? {
        Slot::Text(text) | Slot::Scalar(text) => {
            charge(state, &text)?;
            Ok(Value::from_object(Written(slot(text))))
        }
        _ => Err(Fault::Value(None, "is not a text, number or boolean, as a path takes it").into()),
    }
}

/// The filter `urlencode`: nothing in URLs and forms, which encode by themselves.
pub(super) fn urlencode(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(ErrorKind::UndefinedError.into());
    }
    let encodes = state.name() == "url" || state.name().starts_with("field ");
    match Slot::of(value)?.plain() {
        Some(text) if !encodes => {
            charge(state, text)?;
            Ok(super::encoded(text).into())
        }
        _ => Ok(value.clone()),
    }
}

/// The filters `safe` and `escape`: places escape, whatever a template says.
pub(super) fn same(value: Value) -> Value {
    value
}
