//! JSON-RPC messages: little is read of them, and they are passed on as they came.

use std::io;

use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

/// A message, without the end of its line.
pub(crate) type Line = Vec<u8>;

/// An id or a progress token, as compact JSON: `7` and `"7"` are two.
pub(crate) type Id = String;

/// The longest message that is passed on. A longer one ends the connection: nothing can be made of what comes after it.
const MAX_LINE: u64 = 256 << 20;

/// What is read of a message.
#[derive(Deserialize)]
pub(crate) struct Head<'a> {
    id: Option<Value>,
    method: Option<String>,
    #[serde(borrow)]
    pub(crate) params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

pub(crate) enum Kind<'a> {
    Request(Id, &'a str),
    Notification(&'a str),
    Response(Id),
    /// For example the answer to a message that could not be read.
    Other,
}

impl<'a> Head<'a> {
    /// `None` if the line is no JSON object. So is a batch, which only the revision 2025-03-26 of MCP had.
    pub(crate) fn of(line: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    pub(crate) fn kind(&self) -> Kind<'_> {
        let id = self.id.as_ref().map(Value::to_string);
        match (id, self.method.as_deref()) {
            (Some(id), Some(method)) => Kind::Request(id, method),
            (None, Some(method)) => Kind::Notification(method),
            (Some(id), None) => Kind::Response(id),
            (None, None) => Kind::Other,
        }
    }

    /// A member of the parameters: an id, or a token.
    pub(crate) fn param(&self, name: &str) -> Option<Id> {
        let params: Map<String, Value> = serde_json::from_str(self.params?.get()).ok()?;
        Some(params.get(name)?.to_string())
    }
}

/// The answer with this result.
pub(crate) fn result(id: &Id, result: &str) -> Line {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into()
}

/// The answer with this error object.
pub(crate) fn error(id: &Id, error: &str) -> Line {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into()
}

/// The answer with an error of ours. Of the codes that a client knows this one says the least.
pub(crate) fn failure(id: &Id, message: &str) -> Line {
    error(
        id,
        &json!({ "code": -32603, "message": message }).to_string(),
    )
}

pub(crate) fn request(id: &Id, method: &str) -> Line {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#).into()
}

pub(crate) fn notification(method: &str, params: &str) -> Line {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#).into()
}

/// Says that nobody waits for the answer to this request any more. `said` are the parameters of whoever said so first.
pub(crate) fn cancelled(id: &Id, said: &str) -> Line {
    let mut params: Map<String, Value> = serde_json::from_str(said).unwrap_or_default();
    let id = serde_json::from_str(id).unwrap_or_default();
    params.insert("requestId".to_owned(), id);
    notification(
        "notifications/cancelled",
        &Value::Object(params).to_string(),
    )
}

/// The same request under another id.
pub(crate) fn under_id(line: &[u8], id: &Id) -> Option<Line> {
    let mut members: std::collections::BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(line).ok()?;
    members.insert("id".to_owned(), RawValue::from_string(id.clone()).ok()?);
    serde_json::to_vec(&members).ok()
}

/// The next line that is not empty; `None` at the end.
pub(crate) async fn next_line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Line>> {
    loop {
        let mut line = Line::new();
        let read = from.take(MAX_LINE).read_until(b'\n', &mut line).await?;
        if read as u64 == MAX_LINE && line.last() != Some(&b'\n') {
            let reason = format!("a message of more than {} MiB", MAX_LINE >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        line.truncate(line.trim_ascii_end().len());
        match (read, line.is_empty()) {
            (0, _) => return Ok(None),
            (_, true) => {}
            (_, false) => return Ok(Some(line)),
        }
    }
}
