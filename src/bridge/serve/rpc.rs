//! The JSON-RPC 2.0 endpoint.

use ::axum::{
    body::Bytes,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::StatusCode;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    request::{Rejection, Servers, checked, json_body, of_json, shown},
    routes::Routes,
};
use crate::{
    batch::Parallel, bridge::headers::is_usable_id, call::ToolCall, error::ToolError,
    result::ToolResult,
};

pub(super) async fn answer(State(routes): State<Routes>, request: Request) -> Response {
    let (headers, extensions) = (request.headers().clone(), request.extensions().clone());
    let for_caller = routes.for_caller(&headers, &extensions);
    let of_request = |call: ToolCall| {
        let call = call.with_request_headers(&headers);
        for_caller(call.with_request_extensions(&extensions))
    };
    let answer = match json_body(request, &()).await {
        Ok(body) => run(&routes, of_request, body).await,
        Err(rejection) => return of_rejection(&rejection),
    };
    match answer {
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
    let answer = Id::UNKNOWN.refuse(&error);
    of_json(rejection.status(), answer.unwrap_or_default())
}

/// Returns the answers as JSON; `None` if there is nothing to answer.
async fn run(
    routes: &Routes,
    of_request: impl Fn(ToolCall) -> ToolCall,
    body: Bytes,
) -> Option<Vec<u8>> {
    let (requests, is_batch) = match requests(&body, routes.max_batch) {
        Ok(requests) => requests,
        Err(error) => return Id::UNKNOWN.refuse(&error),
    };
    let mut calls = Vec::new();
    let entries = requests.into_iter().map(|raw| {
        let (id, call) = entry(raw, routes.servers, &of_request);
        (id, call.map(|call| calls.push(call)))
    });
    let entries: Vec<_> = entries.collect();
    let results = Parallel::new(routes.stack.clone()).run(calls).await;
    // There is a result for each call, in their order.
    let mut results = results.into_iter().map(ToolResult::into_result);
    let answers = entries.into_iter().filter_map(|(id, called)| {
        let result = called.map(|()| results.next().expect("each call has a result"));
        match result {
            Ok(Ok(json)) => id.answer("result", &json),
            Ok(Err(error)) => id.refuse(&shown(error).to_json_rpc()),
            Err(error) => id.refuse(&error),
        }
    });
    if !is_batch {
        return answers.last();
    }
    let mut json = Vec::new();
    for answer in answers {
        json.push(if json.is_empty() { b'[' } else { b',' });
        json.extend(answer);
    }
    if json.is_empty() {
        return None;
    }
    json.push(b']');
    Some(json)
}

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;

/// An error object of the protocol's own.
fn refusal(code: i32, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

const METHOD: &str = "tools/call";

/// Well-formed JSON may still have `1e999`, or `"\ud800"`.
const UNREADABLE: &str = "`params` has too many levels, or an invalid number or escape";

/// Reads a request, or a batch of them, as they were written. Returns whether it is a batch.
fn requests(body: &[u8], max_batch: usize) -> Result<(Vec<&RawValue>, bool), Value> {
    let unreadable = |_| refusal(PARSE_ERROR, "Parse error");
    let whole: &RawValue = serde_json::from_slice(body).map_err(unreadable)?;
    if !whole.get().starts_with('[') {
        return Ok((vec![whole], false));
    }
    let batch: Vec<&RawValue> = serde_json::from_str(whole.get()).map_err(unreadable)?;
    if batch.is_empty() {
        return Err(refusal(INVALID_REQUEST, "The batch is empty"));
    }
    if batch.len() > max_batch {
        let message = format!("A batch has at most {max_batch} requests");
        return Err(refusal(INVALID_REQUEST, &message));
    }
    Ok((batch, true))
}

/// The id to answer with.
#[derive(Clone, Copy)]
struct Id<'a>(Option<&'a str>);

impl<'a> Id<'a> {
    /// The id of an answer if the request's id cannot be read.
    const UNKNOWN: Self = Self(Some("null"));

    /// Reads an id; a notification has none. `Err` if it is not an id, or not readable by every
    /// parser: `"\ud800"`, `1e999`.
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

    fn refuse(self, error: &Value) -> Option<Vec<u8>> {
        self.answer("error", error.to_string().as_bytes())
    }

    /// Writes an answer, unless the request is a notification. By hand: the tools' answers are JSON
    /// already.
    fn answer(self, member: &str, json: &[u8]) -> Option<Vec<u8>> {
        let head = format!(r#"{{"jsonrpc":"2.0","id":{},"{member}":"#, self.0?);
        Some([head.as_bytes(), json, b"}"].concat())
    }
}

/// Reads a request: the call that it asks for, or the error that answers it.
fn entry<'a>(
    raw: &'a RawValue,
    servers: Servers,
    of_request: impl Fn(ToolCall) -> ToolCall,
) -> (Id<'a>, Result<ToolCall, Value>) {
    let invalid = |id| (id, Err(refusal(INVALID_REQUEST, "Invalid Request")));
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
    match method == METHOD {
        true => (id, call_of(id, params, servers, of_request)),
        false => (id, Err(refusal(METHOD_NOT_FOUND, "Method not found"))),
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

/// Reads the call that a request asks for.
fn call_of(
    id: Id<'_>,
    params: Option<&RawValue>,
    servers: Servers,
    of_request: impl Fn(ToolCall) -> ToolCall,
) -> Result<ToolCall, Value> {
    let params = params.map(RawValue::get);
    let params = params.filter(|json| json.starts_with('{'));
    let params = params.ok_or_else(|| wrong("`params` is not an object"))?;
    // The parser's own words would quote what was sent.
    let mut params: Map<String, Value> =
        serde_json::from_str(params).map_err(|_| wrong(UNREADABLE))?;
    let call = addressed(&mut params, servers)?;
    let call = call.with_json(params.remove("arguments").unwrap_or_default());
    let mut call = of_request(call.and_then(checked).map_err(to_rpc)?);
    // What the request says itself is nearer than its headers.
    if let Some(id) = id.text() {
        call = call.with_id(id);
    }
    #[cfg(feature = "otel")]
    if let Some(Value::Object(meta)) = params.get("_meta")
        && let Some(parent) = crate::otel::parent_from_meta(meta)
    {
        call = call.with_remote_parent(parent);
    }
    Ok(call)
}

/// A call of what the params name.
fn addressed(params: &mut Map<String, Value>, servers: Servers) -> Result<ToolCall, Value> {
    let Some(Value::String(name)) = params.remove("name") else {
        return Err(wrong("`params.name` is not a string"));
    };
    let call = ToolCall::new(name);
    match params.remove("server") {
        None | Some(Value::Null) => Ok(call),
        Some(Value::String(server)) => servers.put_on(call, &server).map_err(to_rpc),
        Some(_) => Err(wrong("`params.server` is not a string")),
    }
}

fn wrong(message: &str) -> Value {
    refusal(INVALID_PARAMS, message)
}

/// Converts an error of [`ToolCall`], which gives the reason and quotes nothing.
fn to_rpc(error: ToolError) -> Value {
    let message = error.message().to_owned();
    error.with_user_message(message).to_json_rpc()
}
