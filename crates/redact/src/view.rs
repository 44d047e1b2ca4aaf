//! The lazy view of JSON.

use std::{borrow::Cow, cell::Cell, fmt, io};

use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::{Map, Value};

use super::{
    REDACTED,
    pairs::{Arguments, Members, NAME_LISTS},
    rules::{BUILT_IN, Limits, Rules},
    shown,
};
use crate::{
    TRUNCATED,
    hidden::visible,
    text::{
        bytes::{floor, is_one_of, prefix},
        catalog::{ELEMENT, KEY, MEMBER},
    },
};

/// A redacted view of JSON. `Display` prints JSON, `Serialize` gives the same structure.
///
/// Printed text that would be longer than the [rules](super::Rules) allow ends with
/// `...[truncated]`. A serialised view is bounded in depth, number of values and bytes: its keys
/// and strings together have at most that many, and one such mark. Escapes, punctuation, numbers
/// and `[REDACTED]` come on top of that, for each value.
#[derive(Clone, Copy)]
pub struct Redacted<'a> {
    rules: &'a Rules,
    source: Source<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Map(&'a Map<String, Value>),
    Value(&'a Value),
}

impl<'a> Redacted<'a> {
    /// Returns the view of an object by the built-in rules.
    pub fn of_map(map: &'a Map<String, Value>) -> Self {
        BUILT_IN.object(map)
    }

    /// Returns the view of any value by the built-in rules.
    pub fn of(value: &'a Value) -> Self {
        BUILT_IN.json(value)
    }

    pub(super) fn new(rules: &'a Rules, source: Source<'a>) -> Self {
        Self { rules, source }
    }
}

impl Serialize for Redacted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let walk = Walk::new(self.rules, self.rules.limits(), 0);
        walk.of(self.source).serialize(serializer)
    }
}

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = self.rules.limits().bytes;
        let mut out = Head {
            bytes: Vec::new(),
            max,
        };
        // An error means that the limit is reached: serde_json has no other reason to fail here.
        let whole = serde_json::to_writer(&mut out, self).is_ok();
        let text = String::from_utf8_lossy(&out.bytes);
        if whole {
            return f.write_str(&text);
        }
        f.write_str(&text[..floor(&text, max - TRUNCATED.len())])?;
        f.write_str(TRUNCATED)
    }
}

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Keeps the first `max` bytes, and refuses more.
struct Head {
    bytes: Vec<u8>,
    max: usize,
}

impl io::Write for Head {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fit = bytes.len().min(self.max - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..fit]);
        Ok(fit)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A walk through JSON: what is left of its limits, and whether a secret was hidden.
pub(super) struct Walk<'r> {
    rules: &'r Rules,
    limits: Limits,
    nested: usize,
    nodes: Cell<usize>,
    bytes: Cell<usize>,
    found: Cell<bool>,
}

impl<'r> Walk<'r> {
    pub(super) fn new(rules: &'r Rules, limits: Limits, nested: usize) -> Self {
        Self {
            rules,
            limits,
            nested,
            nodes: Cell::new(limits.nodes),
            bytes: Cell::new(limits.bytes),
            found: Cell::new(false),
        }
    }

    pub(super) fn of<'w>(&'w self, value: Source<'w>) -> Node<'w> {
        Node {
            walk: self,
            value,
            depth: 0,
            columns: 0,
            row: 0,
            role: Role::Plain,
        }
    }

    pub(super) fn has_found(&self) -> bool {
        self.found.get()
    }

    /// Returns whether a value is a secret by a rule, and records it unless it was hidden before.
    fn hides(&self, rule: Option<&'static str>, value: &Value) -> bool {
        let Some(rule) = rule.filter(|rule| self.rules.allows(rule)) else {
            return false;
        };
        if value.as_str() != Some(REDACTED) {
            self.found.set(true);
            match value {
                Value::String(text) => self.rules.note(rule, text),
                value => self.rules.note(rule, value),
            }
        }
        true
    }

    /// A key or a string, redacted and cut: both may be long.
    fn shown<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let (mut text, mut cut) = shown::head(self.rules, text, self.limits.string, self.nested);
        if matches!(text, Cow::Owned(_)) {
            self.found.set(true);
        }
        // The outer view escapes the characters of a text that is JSON.
        if self.nested == 0 {
            let more;
            (text, more) = visible(text, self.limits.string);
            cut |= more;
        }
        let fits = floor(&text, self.bytes.get());
        if cut || fits < text.len() {
            let head = text.to_mut();
            head.truncate(fits);
            head.push_str(TRUNCATED);
        }
        self.bytes.set(self.bytes.get().saturating_sub(text.len()));
        text
    }

    /// The beginning of data that is not read.
    fn media<'t>(&self, data: &'t str) -> Cow<'t, str> {
        let head = prefix(data, self.limits.string).0;
        let head = &head[..floor(head, self.bytes.get())];
        self.bytes.set(self.bytes.get().saturating_sub(head.len()));
        match head.len() < data.len() {
            true => Cow::Owned([head, TRUNCATED].concat()),
            false => Cow::Borrowed(head),
        }
    }

    /// Counts a value; false once there were too many.
    fn admit(&self) -> bool {
        let (nodes, left) = (self.nodes.get(), self.bytes.get());
        self.nodes.set(nodes.saturating_sub(1));
        self.bytes.set(left.saturating_sub(1));
        nodes > 0 && left > 0
    }
}

/// A value in a walk.
#[derive(Clone, Copy)]
pub(super) struct Node<'w> {
    walk: &'w Walk<'w>,
    value: Source<'w>,
    depth: usize,
    /// The columns that are secrets, a bit each: of the rows in this array, and of this row.
    columns: u64,
    row: u64,
    role: Role,
}

/// What a value is in the object around it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Plain,
    /// A list of names.
    Names,
    /// A picture or a sound in Base64.
    Media,
}

impl<'w> Node<'w> {
    fn below(self, value: &'w Value, columns: u64, row: u64) -> Self {
        Self {
            value: Source::Value(value),
            depth: self.depth + 1,
            columns,
            row,
            role: Role::Plain,
            ..self
        }
    }

    fn map<S: Serializer>(self, map: &'w Map<String, Value>, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_map(None)?;
        let rules = self.walk.rules;
        let members = Members::of(rules, map);
        for (key, value) in map {
            if !self.walk.admit() {
                out.serialize_entry("...", TRUNCATED)?;
                break;
            }
            let shown = self.walk.shown(key);
            let rule = if rules.is_sensitive_key(key) && rules.allows(KEY) {
                Some(KEY)
            } else {
                members.hides(key, value).then_some(MEMBER)
            };
            if self.walk.hides(rule, value) {
                out.serialize_entry(&shown, REDACTED)?;
            } else {
                let role = match value {
                    Value::Array(_) if is_one_of(key, NAME_LISTS) => Role::Names,
                    Value::String(_) if members.is_media(key, value) => Role::Media,
                    _ => Role::Plain,
                };
                let below = self.below(value, members.columns(value), 0);
                out.serialize_entry(&shown, &Self { role, ..below })?;
            }
        }
        out.end()
    }

    fn array<S: Serializer>(self, items: &'w [Value], s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_seq(None)?;
        let mut arguments = Arguments::new(self.walk.rules, items.len(), self.role == Role::Names);
        for (index, value) in items.iter().enumerate() {
            if !self.walk.admit() {
                out.serialize_element(TRUNCATED)?;
                break;
            }
            let column = self.row >> index.min(63) & 1 == 1;
            let secret = arguments.is_secret(index, value) || column;
            if self.walk.hides(secret.then_some(ELEMENT), value) {
                out.serialize_element(REDACTED)?;
            } else {
                out.serialize_element(&self.below(value, 0, self.columns))?;
            }
        }
        out.end()
    }
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let deep = self.depth >= self.walk.limits.depth;
        let hides = |text: &str| matches!(self.walk.rules.1.hide(text), Cow::Owned(_));
        match self.value {
            Source::Value(Value::Array(_) | Value::Object(_)) if deep => s.serialize_str("[...]"),
            Source::Map(map) | Source::Value(Value::Object(map)) => self.map(map, s),
            Source::Value(Value::Array(items)) => self.array(items, s),
            Source::Value(Value::String(data)) if self.role == Role::Media && !hides(data) => {
                s.serialize_str(&self.walk.media(data))
            }
            Source::Value(Value::String(text)) => s.serialize_str(&self.walk.shown(text)),
            Source::Value(number @ Value::Number(_))
                if !self.walk.rules.1.is_empty() && hides(&number.to_string()) =>
            {
                self.walk.found.set(true);
                s.serialize_str(REDACTED)
            }
            Source::Value(plain) => plain.serialize(s),
        }
    }
}
