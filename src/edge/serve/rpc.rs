//! The JSON-RPC 2.0 endpoint.

use ::axum::{
    body::Bytes,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    request::{Rejection, Servers, checked, json_body, of_json, shown},
    routes::Routes,
};
use crate::{
    batch::Parallel, call::ToolCall, edge::headers::is_usable_id, error::ToolError,
    result::ToolResult,
};

pub(super) async fn answer(State(routes): State<Routes>, request: Request) -> Response {
    let headers = request.headers().clone();
    let extensions = request.extensions().clone();
    let for_caller = routes.for_caller(&headers, &extensions);
    let to_call = |asked: Asked| {
        let call = asked.with_headers(&headers);
        for_caller(call.with_request_extensions(&extensions))
    };
    let answers = match json_body(request, &()).await {
        Ok(body) => run(&routes, to_call, body).await,
        Err(rejection) => return of_rejection(&rejection),
    };
    match answers.into_json() {
        Some(json) => of_json(StatusCode::OK, json),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

/// axum adds which method is allowed.
pub(super) async fn no_post() -> Response {
    of_rejection(&Rejection::no_post())
}

/// The response to a body that was not read.
fn of_rejection(rejection: &Rejection) -> Response {
    rejection.log();
    let error = refusal(INVALID_REQUEST, rejection.error().message());
    let answer = Answers::of_unknown(&error).into_json();
    of_json(rejection.status(), answer.unwrap_or_default())
}

async fn run(routes: &Routes, to_call: impl Fn(Asked) -> ToolCall, body: Bytes) -> Answers {
    let message = match Message::read(&body, routes.max_batch) {
        Ok(message) => message,
        Err(error) => return Answers::of_unknown(&error),
    };
    let mut calls = Vec::new();
    let mut call = |asked: Asked| calls.push(to_call(asked));
    let entries = message
        .entries(routes.servers)
        .map(|entry| (entry.id, entry.asked.map(&mut call)));
    let entries: Vec<_> = entries.collect();
    let results = Parallel::new(routes.stack.clone()).run(calls).await;
    answered(message.answers(), entries, results)
}

/// To each its own: there is a result for each call, in their order.
fn answered(
    mut answers: Answers,
    entries: Vec<(Id<'_>, Result<(), Value>)>,
    results: Vec<ToolResult<Vec<u8>>>,
) -> Answers {
    let mut results = results.into_iter().map(ToolResult::into_result);
    for (id, called) in entries {
        let result = called.map(|()| results.next().expect("each call has a result"));
        match result {
            Ok(Ok(json)) => answers.succeed(id, &json),
            Ok(Err(error)) => answers.refuse(id, &shown(error).to_json_rpc()),
            Err(error) => answers.refuse(id, &error),
        }
    }
    answers
}

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;

/// An error object of the protocol's own.
fn refusal(code: i32, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

/// The answers to requests with an id, as JSON. Written by hand: the tools' answers are JSON
/// already.
#[derive(Default)]
struct Answers {
    json: Vec<u8>,
    batch: bool,
}

impl Answers {
    /// One error, for a request whose id is not known.
    fn of_unknown(error: &Value) -> Self {
        let mut answers = Self::default();
        answers.refuse(Id::UNKNOWN, error);
        answers
    }

    fn succeed(&mut self, id: Id<'_>, result: &[u8]) {
        self.add(id, "result", result);
    }

    fn refuse(&mut self, id: Id<'_>, error: &Value) {
        self.add(id, "error", error.to_string().as_bytes());
    }

    fn add(&mut self, id: Id<'_>, member: &str, json: &[u8]) {
        let Some(id) = id.0 else { return };
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
    fn into_json(mut self) -> Option<Vec<u8>> {
        if self.json.is_empty() {
            return None;
        }
        if self.batch {
            self.json.push(b']');
        }
        Some(self.json)
    }
}

const METHOD: &str = "tools/call";

/// Well-formed JSON may still have `1e999`, or `"\ud800"`.
const UNREADABLE: &str =
    "`params` has too many levels, or a number or an escape that nobody can read";

/// A request, or a batch of them, as they were written.
enum Message<'a> {
    One(&'a RawValue),
    Batch(Vec<&'a RawValue>),
}

impl<'a> Message<'a> {
    fn read(body: &'a [u8], max_batch: usize) -> Result<Self, Value> {
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

    fn answers(&self) -> Answers {
        Answers {
            batch: matches!(self, Self::Batch(_)),
            ..Answers::default()
        }
    }

    fn entries(&self, servers: Servers) -> impl Iterator<Item = Entry<'a>> {
        let entries = match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Batch(batch) => batch,
        };
        entries.iter().map(move |raw| Entry::read(raw, servers))
    }
}

/// The id to answer with.
#[derive(Clone, Copy)]
struct Id<'a>(Option<&'a str>);

impl<'a> Id<'a> {
    /// The id of a request whose id cannot be read.
    const UNKNOWN: Self = Self(Some("null"));

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
struct Entry<'a> {
    id: Id<'a>,
    asked: Result<Asked, Value>,
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
struct Asked {
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
    fn with_headers(self, headers: &HeaderMap) -> ToolCall {
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
