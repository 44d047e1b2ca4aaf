//! What the references in a schema mean, or may mean.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::limits::{MAX_RESOURCES, Reason};

/// The places in a schema that references can name. Where a reference may mean several places, it means all of them here: they are
/// counted, and not followed.
#[derive(Default)]
pub(super) struct Names<'s> {
    /// The document, and what has an `$id` in it: where pointers begin.
    resources: Vec<&'s Value>,
    /// By the last part of their `$id`s.
    ids: HashMap<&'s str, Vec<&'s Value>>,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
}

impl<'s> Names<'s> {
    pub(super) fn new(schema: &'s Value) -> Result<Self, Reason> {
        let mut names = Self {
            resources: vec![schema],
            ..Self::default()
        };
        // In old drafts `id` is a keyword; in data it is a name like any other.
        let (mut olds, mut is_old) = (Vec::new(), false);
        let mut rest = vec![schema];
        while let Some(value) = rest.pop() {
            match value {
                Value::Array(items) => rest.extend(items),
                Value::Object(map) => {
                    rest.extend(map.values());
                    names.note(value, map)?;
                    let text = |keyword| map.get(keyword).and_then(Value::as_str);
                    is_old |= text("$schema").is_some_and(|uri| uri.contains("draft-04"));
                    olds.extend(text("id").map(|id| (value, id)));
                }
                _ => {}
            }
        }
        for (value, id) in olds.into_iter().filter(|_| is_old) {
            names.note_id(value, id)?;
        }
        Ok(names)
    }

    fn note(&mut self, value: &'s Value, map: &'s Map<String, Value>) -> Result<(), Reason> {
        let text = |keyword| map.get(keyword).and_then(Value::as_str);
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(name) = text(keyword) {
                self.anchors.entry(name).or_default().push(value);
            }
        }
        match text("$id") {
            Some(id) => self.note_id(value, id),
            None => Ok(()),
        }
    }

    fn note_id(&mut self, value: &'s Value, id: &'s str) -> Result<(), Reason> {
        let (uri, anchor) = id.split_once('#').unwrap_or((id, ""));
        if !anchor.is_empty() {
            self.anchors.entry(anchor).or_default().push(value);
        }
        if !uri.is_empty() {
            self.ids.entry(last_part(uri)).or_default().push(value);
            if !std::ptr::eq(value, self.resources[0]) {
                self.resources.push(value);
            }
        }
        match self.resources.len() > MAX_RESOURCES {
            true => Err(format!("has more than {MAX_RESOURCES} parts with an `$id`").into()),
            false => Ok(()),
        }
    }

    /// All places that a reference may mean.
    ///
    /// # Errors
    ///
    /// If it means none, or if it is written in a way that only a whole parser of URIs understands.
    pub(super) fn targets(&self, reference: &'s str) -> Result<Vec<&'s Value>, Reason> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let named = match uri {
            "" => self.resources.as_slice(),
            _ if is_plain(uri) => self.ids.get(last_part(uri)).map_or(&[][..], Vec::as_slice),
            _ => &[],
        };
        let mut targets: Vec<&Value> = match fragment {
            "" => named.to_vec(),
            _ if fragment.starts_with('/') => {
                let pointer = decoded(fragment).ok_or("has a `$ref` that cannot be read")?;
                let targets = named
                    .iter()
                    .filter_map(|resource| resource.pointer(&pointer));
                targets.collect()
            }
            _ => self.anchors.get(fragment).cloned().unwrap_or_default(),
        };
        // One that has several names is one.
        targets.sort_unstable_by_key(|target| std::ptr::from_ref::<Value>(target));
        targets.dedup_by_key(|target| std::ptr::from_ref::<Value>(target));
        match targets.is_empty() {
            true => Err("has a `$ref` to something that is not in it".into()),
            false => Ok(targets),
        }
    }
}

/// What stays the same however the rest of a URI is resolved.
fn last_part(uri: &str) -> &str {
    uri.rsplit(['/', ':']).next().unwrap_or(uri)
}

/// Whether the last part of a URI is a name, in one spelling.
fn is_plain(uri: &str) -> bool {
    let name = last_part(uri);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    name.chars().all(plain) && name.chars().any(|c| c != '.')
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
