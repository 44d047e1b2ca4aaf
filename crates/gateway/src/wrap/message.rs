//! JSON-RPC messages: little is read of them, and they are passed on as they came.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt, io, process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, json, value::RawValue};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

/// A message, without the end of its line.
pub(crate) type Line = String;

/// An id or a progress token, as compact JSON: `7` and `"7"` are two.
pub(crate) type Id = String;

/// The longest message that is passed on. A longer one ends the connection: nothing can be made of
/// what comes after it.
const MAX_LINE: u64 = 256 << 20;

/// How many messages a batch may have.
const MAX_BATCH: usize = 10_000;

/// How many members an object may have of which some are read.
const MAX_MEMBERS: usize = 1000;

/// The longest id.
const MAX_ID: usize = 1024;

/// The longest value that is read beside the name and the arguments of a call.
const MAX_VALUE: usize = 64 << 10;

/// The JSON-RPC code for input that is not JSON.
const PARSE_ERROR: i32 = -32700;
/// The JSON-RPC code for JSON that is not a message.
pub(crate) const INVALID_REQUEST: i32 = -32600;
/// The JSON-RPC code for unreadable parameters.
pub(crate) const INVALID_PARAMS: i32 = -32602;
/// The most general JSON-RPC code.
pub(crate) const INTERNAL_ERROR: i32 = -32603;

/// The members of a message that are read. A request has an id and a method, a notification has no
/// id, an answer no method. The answer to an unreadable message has neither.
#[derive(Deserialize)]
pub(crate) struct Head<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "compact")]
    pub(crate) id: Option<Id>,
    pub(crate) method: Option<String>,
    #[serde(borrow)]
    pub(crate) params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

/// The parameters of some methods that are read, as compact JSON.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Params {
    #[serde(deserialize_with = "compact")]
    pub(crate) progress_token: Option<Id>,
    #[serde(deserialize_with = "compact")]
    pub(crate) request_id: Option<Id>,
    #[serde(deserialize_with = "compact")]
    pub(crate) uri: Option<String>,
}

fn compact<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let Some(raw) = Option::<&RawValue>::deserialize(from)? else {
        return Ok(None);
    };
    if raw.get().len() > MAX_VALUE {
        return Err(D::Error::custom("the value is too long"));
    }
    let value: Value = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
    Ok(Some(match value.as_f64() {
        // Some write `1.0` for 1.
        Some(number) if value.is_f64() => number.to_string(),
        _ => value.to_string(),
    }))
}

/// Reads an object that has none of these members twice, nor in other letters: its receiver may
/// believe the other one, as Go's `encoding/json` takes `Method` for `method`.
pub(crate) fn object<'a, T: Deserialize<'a>>(json: &'a str, members: &[&str]) -> Option<T> {
    // No array, in which serde finds the members by their places.
    let mut json_of = serde_json::Deserializer::from_str(json);
    json_of.deserialize_map(Names(members)).ok()?;
    serde_json::from_str(json).ok()
}

/// Looks at the names of an object's members, and keeps none.
struct Names<'a>(&'a [&'a str]);

impl<'de> Visitor<'de> for Names<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object without repeated members")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut members = 0;
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let plain = name.to_uppercase().to_lowercase();
            members += 1;
            if members > MAX_MEMBERS || plain != *name && self.0.contains(&&*plain) {
                return Err(A::Error::custom(
                    "too many members, or a name that is another one",
                ));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

impl<'a> Head<'a> {
    /// Reads a line. `None` if it is not a message.
    pub(crate) fn of(line: &'a str) -> Option<Self> {
        let members = ["jsonrpc", "id", "method", "params", "result", "error"];
        let head: Self = object(line, &members)?;
        // A string or a number.
        let is_id = |id: &Id| !id.starts_with(['{', '[', 't', 'f']) && id.len() <= MAX_ID;
        head.id.as_ref().is_none_or(is_id).then_some(head)
    }

    /// Returns `true` if it names the version of JSON-RPC. Servers of the SDKs do not answer a
    /// request that does not. The version of an answer is not looked at.
    pub(crate) fn has_version(&self) -> bool {
        self.jsonrpc
            .is_some_and(|version| version.get() == r#""2.0""#)
    }

    /// None, if they cannot be read.
    pub(crate) fn params(&self) -> Params {
        let params = self.params.map(RawValue::get).unwrap_or_default();
        serde_json::from_str(params).unwrap_or_default()
    }
}

/// A name that no client has as an id: theirs are numbers, or random, or of another `wrap`.
pub(crate) fn new_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("wrap-{}-{}", process::id(), NEXT.fetch_add(1, Relaxed))
}

pub(crate) fn new_id() -> Id {
    format!(r#""{}""#, new_name())
}

/// Returns whether an answer is a result, not an error.
pub(crate) fn is_result(answer: &Line) -> bool {
    Head::of(answer).is_some_and(|head| head.result.is_some())
}

/// Returns the id that some peers treat as equal: `"7"` for `7`, and `7` for `"7"`.
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

/// Returns the answer to a line that is not a message.
pub(crate) fn no_message(line: &str) -> Line {
    match serde_json::from_str::<IgnoredAny>(line) {
        Ok(_) => failure("null", INVALID_REQUEST, "this is not a JSON-RPC message"),
        Err(_) => failure("null", PARSE_ERROR, "this is not JSON"),
    }
}

/// Returns an answer with our own error.
pub(crate) fn failure(id: &str, code: i32, message: &str) -> Line {
    let error = json!({ "code": code, "message": message });
    answer(id, "error", &error.to_string())
}

/// Returns the notification that the answer to this request is no longer needed. `said` are the
/// parameters of the notification that came first.
pub(crate) fn cancelled(id: &Id, said: &str) -> Line {
    let said = Some(said).filter(|said| said.len() <= MAX_VALUE);
    let params = said.and_then(|said| serde_json::from_str(said).ok());
    let mut params: Map<String, Value> = params.unwrap_or_default();
    let id = serde_json::from_str(id).unwrap_or_default();
    params.insert("requestId".to_owned(), id);
    let method = "notifications/cancelled";
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

/// Returns the request or answer with another id.
pub(crate) fn under_id(message: &str, id: &Id) -> Line {
    let members: Result<BTreeMap<String, &RawValue>, _> = serde_json::from_str(message);
    let mut members = members.unwrap_or_default();
    members.extend(serde_json::from_str(id).map(|id| ("id".to_owned(), id)));
    serde_json::to_string(&members).unwrap_or_default()
}

/// Returns the next line that is not empty; `None` at the end. Bytes that are not UTF-8 are
/// replaced, so that all peers can read the rest.
pub(crate) async fn next_line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Line>> {
    loop {
        let mut line = Vec::new();
        let read = from.take(MAX_LINE).read_until(b'\n', &mut line).await?;
        if read as u64 == MAX_LINE && line.last() != Some(&b'\n') {
            let reason = format!("a message of more than {} MiB", MAX_LINE >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        line.truncate(line.trim_ascii_end().len());
        // Some programs write a byte order mark before their first message; in JSON it means
        // nothing.
        if line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        // White space to JSON; to Python, Java and C# the end of a line, so that another message
        // could begin.
        line.iter_mut()
            .filter(|byte| **byte == b'\r')
            .for_each(|byte| *byte = b' ');
        match (read, line.is_empty()) {
            (0, _) => return Ok(None),
            (_, true) => {}
            (_, false) => {
                let lossy = |line: Vec<u8>| String::from_utf8_lossy(&line).into_owned();
                let line = String::from_utf8(line);
                return Ok(Some(line.unwrap_or_else(|e| lossy(e.into_bytes()))));
            }
        }
    }
}

/// The messages of a line: one, or those of a batch, which MCP 2025-03-26 had.
pub(crate) fn messages(line: Line) -> Vec<Line> {
    let batch = serde_json::from_str::<Batch<'_>>(&line);
    let all = batch.map(|Batch(all)| all.into_iter().map(|one| one.get().to_owned()));
    match all.map(Iterator::collect) {
        Ok(all) if !Vec::is_empty(&all) => all,
        _ => vec![line],
    }
}

/// At most [`MAX_BATCH`] messages: of more none is kept.
struct Batch<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Batch<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MAX_BATCH} messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = from.next_element()? {
                    if all.len() == MAX_BATCH {
                        return Err(A::Error::custom("too many messages"));
                    }
                    all.push(one);
                }
                Ok(all)
            }
        }
        from.deserialize_seq(All).map(Self)
    }
}
