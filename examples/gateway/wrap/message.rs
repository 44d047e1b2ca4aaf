//! JSON-RPC messages: little is read of them, and they are passed on as they came.

use std::{
    collections::{BTreeMap, HashMap},
    io,
};

use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::{Map, Value, json, value::RawValue};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

/// A message, without the end of its line.
pub(crate) type Line = String;

/// An id or a progress token, as compact JSON: `7` and `"7"` are two.
pub(crate) type Id = String;

/// The longest message that is passed on. A longer one ends the connection: nothing can be made of what comes after it.
const MAX_LINE: u64 = 256 << 20;

/// How many messages a batch may have.
const MAX_BATCH: usize = 10_000;

/// The longest id.
const MAX_ID: usize = 1024;

/// The code of JSON-RPC for what is no message.
pub(crate) const INVALID_REQUEST: i32 = -32600;
/// The code of JSON-RPC for parameters that cannot be read.
pub(crate) const INVALID_PARAMS: i32 = -32602;
/// The code of JSON-RPC that says least.
pub(crate) const INTERNAL_ERROR: i32 = -32603;

/// What is read of a message.
#[derive(Deserialize)]
pub(crate) struct Head<'a> {
    #[serde(default, deserialize_with = "compact")]
    id: Option<Id>,
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

/// What is read of the parameters of some methods, as compact JSON.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Params {
    #[serde(deserialize_with = "compact")]
    pub(crate) cursor: Option<String>,
    #[serde(deserialize_with = "compact")]
    pub(crate) progress_token: Option<Id>,
    #[serde(deserialize_with = "compact")]
    pub(crate) request_id: Option<Id>,
    #[serde(deserialize_with = "compact")]
    pub(crate) uri: Option<String>,
}

fn compact<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let value = Option::<Value>::deserialize(from)?;
    Ok(value.map(|value| match value.as_f64() {
        // Some write `1.0` for 1.
        Some(number) if value.is_f64() => number.to_string(),
        _ => value.to_string(),
    }))
}

/// Reads an object that has none of these members twice: its receiver may believe the other one, or that in other letters, as Go's
/// `encoding/json` does.
pub(crate) fn object<'a, T: Deserialize<'a>>(json: &'a str, members: &[&str]) -> Option<T> {
    // No array, in which serde finds the members by their places.
    let all: HashMap<String, IgnoredAny> = serde_json::from_str(json).ok()?;
    let is_clear = |name: &String| {
        members.contains(&name.as_str())
            || members
                .iter()
                .all(|known| known.to_uppercase() != name.to_uppercase())
    };
    all.keys()
        .all(is_clear)
        .then(|| serde_json::from_str(json).ok())?
}

impl<'a> Head<'a> {
    /// `None` if the line is no message.
    pub(crate) fn of(line: &'a str) -> Option<Self> {
        let head: Self = object(line, &["id", "method", "params", "result", "error"])?;
        head.id
            .as_ref()
            .is_none_or(|id| id.len() <= MAX_ID)
            .then_some(head)
    }

    pub(crate) fn kind(&self) -> Kind<'_> {
        match (self.id.clone(), self.method.as_deref()) {
            (Some(id), Some(method)) => Kind::Request(id, method),
            (None, Some(method)) => Kind::Notification(method),
            (Some(id), None) => Kind::Response(id),
            (None, None) => Kind::Other,
        }
    }

    /// None, if they cannot be read.
    pub(crate) fn params(&self) -> Params {
        let params = self.params.map(RawValue::get).unwrap_or_default();
        serde_json::from_str(params).unwrap_or_default()
    }
}

/// The id that some peers take for the same: `"7"` for `7`, and `7` for `"7"`.
pub(crate) fn other_form(id: &Id) -> Id {
    match id.strip_prefix('"').and_then(|id| id.strip_suffix('"')) {
        Some(number) => number.to_owned(),
        None => format!(r#""{id}""#),
    }
}

/// The answer with this `result` or `error`.
pub(crate) fn answer(id: &str, part: &str, json: &str) -> Line {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"{part}":{json}}}"#)
}

/// The answer with an error of ours.
pub(crate) fn failure(id: &str, code: i32, message: &str) -> Line {
    let error = json!({ "code": code, "message": message });
    answer(id, "error", &error.to_string())
}

/// Says that nobody waits for the answer to this request any more. `said` are the parameters of whoever said so first.
pub(crate) fn cancelled(id: &Id, said: &str) -> Line {
    let mut params: Map<String, Value> = serde_json::from_str(said).unwrap_or_default();
    let id = serde_json::from_str(id).unwrap_or_default();
    params.insert("requestId".to_owned(), id);
    let method = "notifications/cancelled";
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

/// The same request or answer under another id.
pub(crate) fn under_id(line: &str, id: &Id) -> Option<Line> {
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(line).ok()?;
    members.insert("id".to_owned(), RawValue::from_string(id.clone()).ok()?);
    serde_json::to_string(&members).ok()
}

/// The next line with anything in it; `None` at the end. What is no UTF-8 is replaced, so that everybody can read the rest.
pub(crate) async fn next_line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Line>> {
    loop {
        let mut line = Vec::new();
        let read = from.take(MAX_LINE).read_until(b'\n', &mut line).await?;
        if read as u64 == MAX_LINE && line.last() != Some(&b'\n') {
            let reason = format!("a message of more than {} MiB", MAX_LINE >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        line.truncate(line.trim_ascii_end().len());
        // White space to JSON; to Python, Java and C# the end of a line, so that another message could begin.
        line.iter_mut()
            .filter(|byte| **byte == b'\r')
            .for_each(|byte| *byte = b' ');
        match (read, line.is_empty()) {
            (0, _) => return Ok(None),
            (_, true) => {}
            (_, false) => return Ok(Some(text(line))),
        }
    }
}

fn text(line: Vec<u8>) -> Line {
    String::from_utf8(line).unwrap_or_else(|no| String::from_utf8_lossy(no.as_bytes()).into_owned())
}

/// The messages of a line: one, or those of a batch, which MCP 2025-03-26 had.
pub(crate) fn messages(line: Line) -> Vec<Line> {
    match serde_json::from_str::<Vec<&RawValue>>(&line) {
        Ok(all) if (1..=MAX_BATCH).contains(&all.len()) => {
            all.into_iter().map(|one| one.get().to_owned()).collect()
        }
        _ => vec![line],
    }
}
