//! The variables of a template.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
};

use minijinja::{Value, value::Serde};

use super::super::token::UpstreamToken;
use crate::call::ToolCall;

/// The variable that has the upstream's token.
pub(in super::super) const TOKEN: &str = "upstream_token";

/// Variables that no argument can shadow.
const OURS: &[&str] = &[TOKEN, "request_id", "trace_id", "idempotency_key", "uuid"];

pub(super) fn is_ours(name: &str) -> bool {
    OURS.contains(&name)
}

/// The variables that one call gives its templates.
pub(in super::super) struct Scope<'a> {
    call: &'a ToolCall,
    values: Value,
}

impl<'a> Scope<'a> {
    /// Of the arguments only those of these `names`, [ours](is_ours) not among them.
    pub(in super::super) fn new(call: &'a ToolCall, names: &BTreeSet<String>) -> Self {
        let arguments = call.arguments().iter();
        let arguments = arguments.filter(|(name, _)| names.contains(*name));
        let mut all: Vec<(&str, Value)> = arguments
            .map(|(name, value)| (&**name, Value::from(Serde(value))))
            .collect();
        let request_id = match call.id() {
            Some(id) => id.into(),
            None => uuid(),
        };
        all.push(("request_id", request_id.into()));
        let key = call.idempotency_key().map(|key| key.to_string());
        let token = call.extensions().get::<UpstreamToken>();
        let known = [
            ("trace_id", call.trace_id().map(Value::from)),
            ("idempotency_key", key.map(Value::from)),
            (TOKEN, token.map(|token| Value::from(token.expose()))),
        ];
        all.extend(known.into_iter().filter_map(|(name, v)| Some((name, v?))));
        let values = Value::from_pairs(all);
        Self { call, values }
    }

    pub(super) fn values(&self) -> Value {
        self.values.clone()
    }

    pub(super) fn has_token(&self) -> bool {
        self.call.extensions().get::<UpstreamToken>().is_some()
    }

    /// Whether a variable is defined, one of a nested value too.
    pub(super) fn has(&self, name: &str) -> bool {
        if name == "uuid" {
            return true;
        }
        let mut value = self.values.clone();
        name.split('.').all(|part| {
            value = value.get_attr(part).unwrap_or_default();
            !value.is_undefined()
        })
    }

    /// The argument that a template has printed as this text, for a person: one of `names`, if it is clear which.
    pub(super) fn name_of(&self, names: &BTreeSet<String>, text: Option<&str>) -> String {
        let given = names.iter().filter(|name| !is_ours(name) && self.has(name));
        let given: Vec<&String> = given.collect();
        let is_it = |name: &str| {
            let mut value = self.values.clone();
            for part in name.split('.') {
                value = value.get_attr(part).unwrap_or_default();
            }
            text.is_some_and(|text| value.as_str() == Some(text))
        };
        let mut same = given.iter().filter(|name| is_it(name));
        match (same.next(), same.next(), &*given) {
            (Some(name), None, _) | (None, None, [name]) => format!("`{name}`"),
            _ => "an argument".to_owned(),
        }
    }
}

/// A random UUID (version 4). Unique; no secret.
pub(super) fn uuid() -> String {
    let random = RandomState::new();
    let (a, b) = (random.hash_one(0), random.hash_one(1));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xfff,
        b >> 48 & 0x3fff | 0x8000,
        b & 0xffff_ffff_ffff,
    )
}
