//! The lazy view of JSON.

use std::{borrow::Cow, cell::Cell, fmt};

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Map, Value};

use crate::hidden::{misleads, visible};
use crate::pairs::{Arguments, Members, Role};
use crate::rules::{BUILT_IN, Limits, Rules};
use crate::text::bytes::{floor, prefix};
use crate::text::catalog::{ELEMENT, MEMBER, SENSITIVE};
use crate::text::filter::{are_plain_words, is_one_word};
use crate::{REDACTED, TRUNCATED, shown};

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
        walk.node(self.source, 0, Role::Plain).serialize(serializer)
    }
}

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = self.rules.limits().bytes;
        // A serialised view is bounded, too.
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        if text.len() <= max {
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

/// A walk through JSON.
pub(super) struct Walk<'r> {
    rules: &'r Rules,
    nested: usize,
    /// The limits, less the bytes and values that were shown.
    left: Cell<Limits>,
    /// A secret was hidden.
    pub(super) found: Cell<bool>,
}

impl<'r> Walk<'r> {
    pub(super) fn new(rules: &'r Rules, limits: Limits, nested: usize) -> Self {
        Self {
            rules,
            nested,
            left: Cell::new(limits),
            found: Cell::new(false),
        }
    }

    pub(super) fn node<'w>(&'w self, value: Source<'w>, depth: usize, role: Role) -> Node<'w> {
        Node {
            walk: self,
            value,
            depth,
            role,
        }
    }

    /// Returns whether a value is a secret by a rule, and records it unless it was hidden before.
    fn hides(&self, rule: &'static str, value: &Value) -> bool {
        let hides = self.rules.allows(rule);
        if hides && value != REDACTED {
            self.found.set(true);
            match value {
                Value::String(text) => self.rules.note(rule, text),
                value => self.rules.note(rule, value),
            }
        }
        hides
    }

    /// A key or a string, redacted and cut: both may be long. `media` is not read.
    fn shown<'t>(&self, text: &'t str, media: bool) -> Cow<'t, str> {
        let mut left = self.left.get();
        // Plain words have nothing to hide and nothing to escape.
        let own = self.rules.has_own() || !self.rules.1.is_empty();
        let plain = || !own && (is_one_word(text) || are_plain_words(text));
        let as_is = media || text.len() <= left.string && plain();
        let (mut text, mut cut) = if as_is {
            let (head, cut) = prefix(text, left.string);
            (Cow::Borrowed(head), cut)
        } else {
            shown::head(self.rules, text, left.string, self.nested)
        };
        if matches!(text, Cow::Owned(_)) {
            self.found.set(true);
        }
        // The outer view escapes the characters of a text that is JSON.
        if self.nested == 0 && !as_is {
            let more;
            (text, more) = visible(text, left.string, misleads);
            cut |= more;
        }
        let fits = floor(&text, left.bytes);
        if cut || fits < text.len() {
            let head = text.to_mut();
            head.truncate(fits);
            head.push_str(TRUNCATED);
        }
        left.bytes = left.bytes.saturating_sub(text.len());
        self.left.set(left);
        text
    }

    /// Counts a value; false once there were too many.
    fn admit(&self) -> bool {
        let mut left = self.left.get();
        let admits = left.nodes > 0 && left.bytes > 0;
        left.nodes = left.nodes.saturating_sub(1);
        left.bytes = left.bytes.saturating_sub(1);
        self.left.set(left);
        admits
    }
}

/// A value in a walk.
#[derive(Clone, Copy)]
pub(super) struct Node<'w> {
    walk: &'w Walk<'w>,
    value: Source<'w>,
    depth: usize,
    role: Role,
}

impl<'w> Node<'w> {
    fn below(self, value: &'w Value, role: Role) -> Self {
        self.walk.node(Source::Value(value), self.depth + 1, role)
    }

    fn map<S: Serializer>(self, map: &'w Map<String, Value>, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_map(None)?;
        let (walk, rules) = (self.walk, self.walk.rules);
        let members = Members::of(rules, map);
        for (key, value) in map {
            if !walk.admit() {
                out.serialize_entry("...", TRUNCATED)?;
                break;
            }
            let shown = walk.shown(key, false);
            if rules.is_sensitive_key(key) && walk.hides(SENSITIVE, value)
                || members.hides(key, value) && walk.hides(MEMBER, value)
            {
                out.serialize_entry(&shown, REDACTED)?;
            } else {
                out.serialize_entry(&shown, &self.below(value, members.role(key, value)))?;
            }
        }
        out.end()
    }

    fn array<S: Serializer>(self, items: &'w [Value], s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_seq(None)?;
        let mut arguments = Arguments::default();
        let pair = items.len() == 2 && self.role != Role::Names;
        let (row, role) = match self.role {
            Role::Rows(columns) => (0, Role::Row(columns)),
            Role::Row(columns) => (columns, Role::Plain),
            _ => (0, Role::Plain),
        };
        for (index, value) in items.iter().enumerate() {
            if !self.walk.admit() {
                out.serialize_element(TRUNCATED)?;
                break;
            }
            let first = pair && index == 0;
            let secret =
                arguments.is_secret(self.walk.rules, first, value) || row >> index.min(63) & 1 == 1;
            if secret && self.walk.hides(ELEMENT, value) {
                out.serialize_element(REDACTED)?;
            } else {
                out.serialize_element(&self.below(value, role))?;
            }
        }
        out.end()
    }
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let deep = self.depth >= self.walk.left.get().depth;
        let hides = |text: &str| matches!(self.walk.rules.1.hide(text), Cow::Owned(_));
        match self.value {
            Source::Value(Value::Array(_) | Value::Object(_)) if deep => s.serialize_str("[...]"),
            Source::Map(map) | Source::Value(Value::Object(map)) => self.map(map, s),
            Source::Value(Value::Array(items)) => self.array(items, s),
            Source::Value(Value::String(text)) => {
                let media = self.role == Role::Media && !hides(text);
                s.serialize_str(&self.walk.shown(text, media))
            }
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
