//! What the references in a schema mean, or may mean.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::limits::{MAX_URI, Reason};

/// Keywords with a URI, or a part of one.
const URIS: [&str; 6] = [
    "$id",
    "$ref",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$schema",
];

const TOO_LONG: &str = "has a reference or an identifier that is too long";

/// The places in a schema that references can name: the document, by pointers, and what has an anchor. What else URIs could name is refused,
/// as there is no telling whether a compiler reads them alike.
pub(super) struct Names<'s> {
    document: &'s Value,
    id: &'s str,
    /// Whether a part has an `$id` of its own, from which references in it begin.
    has_parts: bool,
    /// An anchor that several parts have means all of them here: they are counted, and not followed.
    anchors: HashMap<&'s str, Vec<&'s Value>>,
}

impl<'s> Names<'s> {
    /// # Errors
    ///
    /// If one of them is too long.
    pub(super) fn new(document: &'s Value) -> Result<Self, Reason> {
        let mut names = Self {
            document,
            id: "",
            has_parts: false,
            anchors: HashMap::new(),
        };
        // In old drafts `id` is a keyword; in data it is a name like any other.
        let (mut olds, mut is_old) = (Vec::new(), false);
        let mut rest = vec![document];
        while let Some(value) = rest.pop() {
            match value {
                Value::Array(items) => rest.extend(items),
                Value::Object(map) => {
                    rest.extend(map.values());
                    names.note(value, map);
                    let text = |keyword| map.get(keyword).and_then(Value::as_str);
                    let mut uris = URIS.into_iter().filter_map(text);
                    if uris.any(|uri| uri.len() > MAX_URI) {
                        return Err(TOO_LONG.into());
                    }
                    is_old |= text("$schema").is_some_and(|uri| uri.contains("draft-04"));
                    olds.extend(text("id").map(|id| (value, id)));
                }
                _ => {}
            }
        }
        for (value, id) in olds.into_iter().filter(|_| is_old) {
            if id.len() > MAX_URI {
                return Err(TOO_LONG.into());
            }
            names.note_id(value, id);
        }
        Ok(names)
    }

    fn note(&mut self, value: &'s Value, map: &'s Map<String, Value>) {
        let text = |keyword| map.get(keyword).and_then(Value::as_str);
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(name) = text(keyword) {
                self.anchors.entry(name).or_default().push(value);
            }
        }
        if let Some(id) = text("$id") {
            self.note_id(value, id);
        }
    }

    fn note_id(&mut self, value: &'s Value, id: &'s str) {
        let (uri, anchor) = id.split_once('#').unwrap_or((id, ""));
        if !anchor.is_empty() {
            self.anchors.entry(anchor).or_default().push(value);
        }
        match std::ptr::eq(value, self.document) {
            true => self.id = uri,
            false => self.has_parts |= !uri.is_empty(),
        }
    }

    /// All places that a reference may mean.
    ///
    /// # Errors
    ///
    /// If it means none, or if it or the schema's `$id`s are written in a way that only a whole parser of URIs understands.
    pub(super) fn targets(&self, reference: &'s str) -> Result<Vec<&'s Value>, Reason> {
        if self.has_parts {
            return Err("has a `$ref`, and an `$id` that is not at its root".into());
        }
        if !is_plain_id(self.id) {
            return Err("has a `$ref`, and an `$id` that cannot be read".into());
        }
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let targets = match fragment {
            _ if !uri.is_empty() && uri != self.id => vec![],
            "" => vec![self.document],
            _ if fragment.starts_with('/') => {
                let pointer = decoded(fragment).filter(|pointer| is_plain_pointer(pointer));
                let pointer = pointer.ok_or("has a `$ref` that cannot be read")?;
                self.document.pointer(&pointer).into_iter().collect()
            }
            _ if is_name(fragment) => self.anchors.get(fragment).cloned().unwrap_or_default(),
            _ => vec![],
        };
        match targets.is_empty() {
            true => Err("has a `$ref` to something that is not in it".into()),
            false => Ok(targets),
        }
    }
}

/// Whether a name stays the same however URIs are resolved.
fn is_name(anchor: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    anchor.chars().all(plain)
}

/// Whether it cannot be that of a schema that the compiler knows by itself.
fn is_plain_id(uri: &str) -> bool {
    !uri.contains('%') && !uri.to_ascii_lowercase().contains("//json-schema.org")
}

/// Whether its escapes are read alike by all. An odd index, such as `+1` or `01`, is none here: it leads to nothing in a list.
fn is_plain_pointer(pointer: &str) -> bool {
    let mut escapes = pointer.split('~').skip(1);
    escapes.all(|rest| rest.starts_with(['0', '1']))
}

/// A fragment without its percent-encoding.
fn decoded(fragment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match (first, after) {
            (b'%', [a, b, after @ ..]) => (hex(*a)? << 4 | hex(*b)?, after),
            (b'%', _) => return None,
            (byte, after) => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}
