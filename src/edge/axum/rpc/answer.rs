//! Answers to requests.

use serde_json::{Value, json};

use super::request::Id;

pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
pub(super) const INVALID_PARAMS: i32 = -32602;

/// An error object of the protocol's own.
pub(super) fn refusal(code: i32, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

/// The answers to requests with an id, as JSON. Written by hand: the tools' answers are JSON
/// already.
#[derive(Default)]
pub(super) struct Answers {
    json: Vec<u8>,
    batch: bool,
}

impl Answers {
    /// One error, for a request whose id is not known.
    pub(super) fn of_unknown(error: &Value) -> Self {
        let mut answers = Self::default();
        answers.refuse(Id::UNKNOWN, error);
        answers
    }

    pub(super) fn of(batch: bool) -> Self {
        Self {
            batch,
            ..Self::default()
        }
    }

    pub(super) fn succeed(&mut self, id: Id<'_>, result: &[u8]) {
        self.add(id, "result", result);
    }

    pub(super) fn refuse(&mut self, id: Id<'_>, error: &Value) {
        self.add(id, "error", error.to_string().as_bytes());
    }

    fn add(&mut self, id: Id<'_>, member: &str, json: &[u8]) {
        let Some(id) = id.echoed() else { return };
        if self.batch {
            let first = self.json.is_empty();
            self.json.push(if first { b'[' } else { b',' });
        }
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":"#);
        self.json.extend_from_slice(head.as_bytes());
        self.json.extend_from_slice(json);
        self.json.push(b'}');
    }

    /// `None` if there is nothing to answer.
    pub(super) fn into_json(mut self) -> Option<Vec<u8>> {
        if self.json.is_empty() {
            return None;
        }
        if self.batch {
            self.json.push(b']');
        }
        Some(self.json)
    }
}
