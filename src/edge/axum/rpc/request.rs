//! Bodies of requests: whatever they are, they become calls and errors.

use http::HeaderMap;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, value::RawValue};

use super::answer::{
    Answers, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, refusal,
};
use crate::{
    call::ToolCall,
    edge::{
        axum::request::{Servers, checked},
        headers::is_usable_id,
    },
    error::ToolError,
};

const METHOD: &str = "tools/call";

/// Well-formed JSON may still have `1e999`, or `"\ud800"`.
const UNREADABLE: &str =
    "`params` has too many levels, or a number or an escape that nobody can read";

/// A request, or a batch of them, as they were written.
pub(super) enum Message<'a> {
    One(&'a RawValue),
    Batch(Vec<&'a RawValue>),
}

impl<'a> Message<'a> {
    pub(super) fn read(body: &'a [u8], max_batch: usize) -> Result<Self, Value> {
        let whole: &RawValue =
            serde_json::from_slice(body).map_err(|_| refusal(PARSE_ERROR, "Parse error"))?;
        if !whole.get().starts_with('[') {
            return Ok(Self::One(whole));
        }
        match serde_json::from_str::<Vec<&RawValue>>(whole.get()) {
            Err(_) => Err(refusal(PARSE_ERROR, "Parse error")),
            Ok(batch) if batch.is_empty() => Err(refusal(INVALID_REQUEST, "The batch is empty")),
            Ok(batch) if batch.len() > max_batch => {
                let message = format!("A batch has at most {max_batch} requests");
                Err(refusal(INVALID_REQUEST, &message))
            }
            Ok(batch) => Ok(Self::Batch(batch)),
        }
    }

    pub(super) fn answers(&self) -> Answers {
        Answers::of(matches!(self, Self::Batch(_)))
    }

    pub(super) fn entries(&self, servers: Servers) -> impl Iterator<Item = Entry<'a>> {
        let entries = match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Batch(batch) => batch,
        };
        entries.iter().map(move |raw| Entry::read(raw, servers))
    }
}

/// The id to answer with.
#[derive(Clone, Copy)]
pub(super) struct Id<'a>(Option<&'a str>);

impl<'a> Id<'a> {
    /// The id of a request whose id cannot be read.
    pub(super) const UNKNOWN: Self = Self(Some("null"));

    /// A notification has none. `Err` for what is no id, or none that every parser takes:
    /// `"\ud800"`, `1e999`.
    fn read(raw: Option<&'a RawValue>) -> Result<Self, ()> {
        let Some(id) = raw.map(RawValue::get) else {
            return Ok(Self(None));
        };
        match serde_json::from_str(id) {
            Ok(Value::String(_) | Value::Number(_) | Value::Null) => Ok(Self(Some(id))),
            _ => Err(()),
        }
    }

    /// As it was written.
    pub(super) fn echoed(self) -> Option<&'a str> {
        self.0
    }

    /// For the call: without quotes, if it is fit for one.
    fn text(self) -> Option<String> {
        let json = self.0.filter(|id| *id != "null")?;
        let text = match json.starts_with('"') {
            true => serde_json::from_str(json).ok()?,
            false => json.to_owned(),
        };
        is_usable_id(&text).then_some(text)
    }
}

/// A request, and the call that it asks for or the error that answers it.
pub(super) struct Entry<'a> {
    pub(super) id: Id<'a>,
    pub(super) asked: Result<Asked, Value>,
}

impl<'a> Entry<'a> {
    fn read(raw: &'a RawValue, servers: Servers) -> Self {
        let invalid = |id| Self {
            id,
            asked: Err(refusal(INVALID_REQUEST, "Invalid Request")),
        };
        // An array would be read as the fields in their order.
        let object = Some(raw.get()).filter(|json| json.starts_with('{'));
        let Some(envelope) = object.and_then(|json| serde_json::from_str(json).ok()) else {
            return invalid(Id::UNKNOWN);
        };
        let Envelope {
            jsonrpc,
            id,
            method,
            params,
        } = envelope;
        let Ok(id) = Id::read(id) else {
            return invalid(Id::UNKNOWN);
        };
        let (Some("2.0"), Some(method)) = (text(jsonrpc).as_deref(), text(method)) else {
            // It is not known to be a notification.
            return invalid(Id(id.0.or(Id::UNKNOWN.0)));
        };
        let asked = match method == METHOD {
            true => Asked::read(id, params, servers),
            false => Err(refusal(METHOD_NOT_FOUND, "Method not found")),
        };
        Self { id, asked }
    }
}

/// A string, however it was written.
fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// An id that is `null` is an id all the same.
fn present<'de, D: Deserializer<'de>>(d: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

/// The call that a request asks for.
pub(super) struct Asked {
    call: ToolCall,
    id: Option<String>,
    #[cfg(feature = "otel")]
    meta: Map<String, Value>,
}

impl Asked {
    fn read(id: Id<'_>, params: Option<&RawValue>, servers: Servers) -> Result<Self, Value> {
        let params = params
            .map(RawValue::get)
            .filter(|json| json.starts_with('{'));
        let params = params.ok_or_else(|| wrong("`params` is not an object"))?;
        // The parser's own words would quote what was sent.
        let mut params: Map<String, Value> =
            serde_json::from_str(params).map_err(|_| wrong(UNREADABLE))?;
        let call = addressed(&mut params, servers)?;
        let arguments = params.remove("arguments").unwrap_or_default();
        Ok(Self {
            call: call
                .with_json(arguments)
                .and_then(checked)
                .map_err(to_rpc)?,
            id: id.text(),
            #[cfg(feature = "otel")]
            meta: match params.remove("_meta") {
                Some(Value::Object(meta)) => meta,
                _ => Map::new(),
            },
        })
    }

    /// The call. What the request says itself is nearer than the headers.
    pub(super) fn with_headers(self, headers: &HeaderMap) -> ToolCall {
        let mut call = self.call.with_request_headers(headers);
        if let Some(id) = self.id {
            call = call.with_id(id);
        }
        #[cfg(feature = "otel")]
        if let Some(parent) = crate::otel::parent_from_meta(&self.meta) {
            call = call.with_remote_parent(parent);
        }
        call
    }
}

/// A call of what the params name.
fn addressed(params: &mut Map<String, Value>, servers: Servers) -> Result<ToolCall, Value> {
    let Some(Value::String(name)) = params.remove("name") else {
        return Err(wrong("`params.name` is no string"));
    };
    let call = ToolCall::new(name);
    match params.remove("server") {
        None | Some(Value::Null) => Ok(call),
        Some(Value::String(server)) => servers.put_on(call, &server).map_err(to_rpc),
        Some(_) => Err(wrong("`params.server` is no string")),
    }
}

fn wrong(message: &str) -> Value {
    refusal(INVALID_PARAMS, message)
}

/// An error of [`ToolCall`] says what is wrong, and quotes nothing.
fn to_rpc(error: ToolError) -> Value {
    let message = error.message().to_owned();
    error.with_user_message(message).to_json_rpc()
}
