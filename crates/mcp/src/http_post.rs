//! Requests of [`McpHttpClient`](super::McpHttpClient), as rmcp's client sends them. Their answers
//! are bounded before they are parsed.

use std::{
    borrow::Cow,
    collections::HashMap,
    io,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use futures_util::StreamExt as _;
use http::{HeaderName, HeaderValue, StatusCode, header};
use reqwest::Response;
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage},
    transport::{
        common::{client_side_sse::BoxedSseResponse, http_header as names},
        streamable_http_client::{
            AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
            StreamableHttpPostResponse as Posted, StreamableHttpResponseLimits as Limits,
        },
    },
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, json};
use sse_stream::{Sse, SseStream};
use tokio::time::timeout;
use tower_toolcall::{
    call::ValueCounter,
    redact::{Rules, TRUNCATED},
};

use super::{
    McpHttpClient,
    http::{ask_to_wait, refused},
    http_client::secrets,
    lines::{MAX_VALUES, TOO_LARGE, bounded, too_long, too_many},
};

pub(super) type Headers = HashMap<HeaderName, HeaderValue>;
pub(super) type Failed = StreamableHttpError<reqwest::Error>;
pub(super) type Answer = Result<Posted, Failed>;

/// How long the body of a refusal is waited for: its status is what counts.
const REFUSAL_TIME: Duration = Duration::from_secs(2);

/// How much is shown of a body that is not a message.
const MAX_SHOWN: usize = 256;

/// Sends a message, and reads the answer unless it is a stream of events.
pub(super) async fn post(
    client: &McpHttpClient,
    uri: &str,
    message: ClientJsonRpcMessage,
    session: Option<Arc<str>>,
    auth: Option<String>,
    headers: Headers,
    limits: Limits,
) -> Answer {
    let secrets = secrets(auth.as_deref(), &headers);
    let accepted = [names::EVENT_STREAM_MIME_TYPE, names::JSON_MIME_TYPE].join(", ");
    let mut request = client.client.post(uri).json(&message);
    request = request.header(header::ACCEPT, accepted);
    //= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/index#token-requirements
    //# Access tokens MUST NOT be included in the URI query string
    if let Some(token) = auth {
        request = request.bearer_auth(token);
    }
    for (name, value) in headers {
        if ["accept", "mcp-session-id", "last-event-id"].contains(&name.as_str()) {
            return Err(Failed::ReservedHeaderConflict(name.to_string()));
        }
        request = request.header(name, value);
    }
    //= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
    //# The client MUST handle the session ID in a secure manner, see Session Hijacking mitigations
    //# for more details.
    if let Some(session) = &session {
        request = request.header(names::HEADER_SESSION_ID, &**session);
    }
    let response = request.send().await?;
    let (id, is_discovery) = match message {
        ClientJsonRpcMessage::Request(request) => {
            let is_discovery = matches!(request.request, ClientRequest::DiscoverRequest(_));
            (Some(request.id), is_discovery && session.is_none())
        }
        _ => (None, false),
    };
    let challenge = text_of(&response, header::WWW_AUTHENTICATE);
    let challenge = challenge.map(|text| secrets.without_secrets(&text).into_owned());
    match (response.status(), challenge) {
        (StatusCode::UNAUTHORIZED, Some(challenge)) => {
            Err(Failed::AuthRequired(AuthRequiredError::new(challenge)))
        }
        (StatusCode::FORBIDDEN, Some(challenge)) => {
            let scope = scope(&challenge).map(str::to_owned);
            let error = InsufficientScopeError::new(challenge, scope);
            Err(Failed::InsufficientScope(error))
        }
        (StatusCode::ACCEPTED | StatusCode::NO_CONTENT, _) if id.is_none() => Ok(Posted::Accepted),
        // At `SessionExpired` rmcp connects and sends the message again, below all layers.
        (StatusCode::NOT_FOUND, _) if session.is_some() => {
            Err(HttpStatusError::new(404, None).into())
        }
        (status, _) if status.is_success() => {
            success(response, id, limits, client.max_values, secrets).await
        }
        _ => failure(response, id, is_discovery, limits, &secrets).await,
    }
}

async fn success(
    response: Response,
    id: Option<RequestId>,
    limits: Limits,
    max_values: usize,
    secrets: Rules,
) -> Answer {
    let session = text_of(&response, names::HEADER_SESSION_ID);
    if is(&response, names::EVENT_STREAM_MIME_TYPE) {
        let events = events(response, limits.max_sse_event_size, id.clone());
        return Ok(Posted::Sse(
            tidied(events, id, secrets, max_values),
            session,
        ));
    }
    let Some(id) = id else {
        return Ok(Posted::Accepted);
    };
    if !is(&response, names::JSON_MIME_TYPE) {
        let found = text_of(&response, header::CONTENT_TYPE);
        return Err(Failed::UnexpectedContentType(found));
    }
    let mut body = Vec::new();
    let max = limits.max_json_response_size;
    let excess = read(response, max, max_values, &mut body).await?;
    hide(&secrets, &mut body);
    let message = match excess {
        Some(why) => too_large(why, id),
        None => serde_json::from_slice(&addressed(&body, &id))
            .map_err(|error| unexpected(format!("{error}: {}", shown(&body, MAX_SHOWN))))?,
    };
    match message {
        // The call would wait for another one.
        ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => {
            let text = format!("not an answer: {}", shown(&body, MAX_SHOWN));
            Err(unexpected(text))
        }
        answer => Ok(Posted::Json(answer, session)),
    }
}

/// Returns the JSON-RPC error of an answer that is not successful, or else the error that its
/// status, headers and body mean.
async fn failure(
    response: Response,
    id: Option<RequestId>,
    is_discovery: bool,
    limits: Limits,
    secrets: &Rules,
) -> Answer {
    let (status, headers) = (response.status(), response.headers().clone());
    let is_json = is(&response, names::JSON_MIME_TYPE);
    let session = text_of(&response, names::HEADER_SESSION_ID);
    let says_more = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::SERVICE_UNAVAILABLE => ask_to_wait(&headers),
        _ => false,
    };
    let max = match is_json && !says_more {
        true => limits.max_json_response_size,
        false => limits.max_error_response_size,
    };
    let mut body = Vec::new();
    // What there is of it will do.
    let read = timeout(REFUSAL_TIME, read(response, max, MAX_VALUES, &mut body)).await;
    let fits = !matches!(read, Ok(Ok(Some(_))));
    hide(secrets, &mut body);
    //= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#backward-compatibility
    //# On `400 Bad Request`, the client SHOULD inspect the response body before falling back:
    //# modern servers also use `400` for `UnsupportedProtocolVersionError`,
    //# `MissingRequiredClientCapabilityError`, and header-validation failures.
    if fits && !says_more && (is_json || !status.is_server_error()) {
        let answer = id.as_ref().map(|id| addressed(&body, id));
        let answer = serde_json::from_slice(answer.as_deref().unwrap_or(&body));
        if let Ok(error @ ServerJsonRpcMessage::Error(_)) = answer {
            return Ok(Posted::Json(error, session));
        }
    }
    let text = shown(&body, limits.max_error_response_size);
    if is_discovery && !says_more && !status.is_server_error() {
        // rmcp then speaks a revision without `server/discover`.
        let error = ErrorData::invalid_request(format!("HTTP {status}: {text}"), None);
        return Ok(Posted::Json(ServerJsonRpcMessage::error(error, id), None));
    }
    Err(refused(status, &headers, &text).into())
}

/// Returns a message without secrets, which stays JSON, or a text without them.
fn hidden<'t>(secrets: &Rules, text: &'t str) -> Cow<'t, str> {
    let hidden = secrets.without_secrets(text);
    if let Cow::Owned(_) = hidden
        && let Ok(mut message) = serde_json::from_str::<Value>(text)
    {
        // The id of a message is matched, and never shown.
        let id = message.get("id").filter(|id| id.is_number()).cloned();
        secrets.hide_secrets(&mut message);
        if let (Some(id), Some(members)) = (id, message.as_object_mut()) {
            members.insert("id".to_owned(), id);
        }
        return message.to_string().into();
    }
    hidden
}

/// Takes secrets out of a message or a text.
fn hide(secrets: &Rules, body: &mut Vec<u8>) {
    if let Cow::Owned(hidden) = hidden(secrets, &String::from_utf8_lossy(body)) {
        *body = hidden.into_bytes();
    }
}

/// Returns events without these secrets, of which none has more than `max_values` values. An answer
/// among them has the id of the request.
pub(super) fn tidied(
    events: BoxedSseResponse,
    id: Option<RequestId>,
    secrets: Rules,
    max_values: usize,
) -> BoxedSseResponse {
    let tidied = events.map(move |event| {
        let mut event = event?;
        event.data = event
            .data
            .and_then(|data| bounded(data, max_values))
            .map(|data| {
                let answer = id.as_ref().map(|id| addressed(data.as_bytes(), id));
                let data = match answer {
                    Some(Cow::Owned(answer)) => String::from_utf8_lossy(&answer).into_owned(),
                    _ => data,
                };
                hidden(&secrets, &data).into_owned()
            });
        Ok(event)
    });
    tidied.boxed()
}

fn unexpected(text: String) -> Failed {
    Failed::UnexpectedServerResponse(text.into())
}

fn shown(body: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(max)]);
    let mark = if body.len() > max { TRUNCATED } else { "" };
    format!("{text}{mark}")
}

/// Returns a message with the id of the request, if it is an answer: HTTP has no other one on the
/// same exchange.
fn addressed<'a>(message: &'a [u8], id: &RequestId) -> Cow<'a, [u8]> {
    #[derive(Deserialize)]
    struct Head {
        id: Option<RequestId>,
        method: Option<IgnoredAny>,
    }
    let is_other = |head: Head| head.method.is_none() && head.id.as_ref() != Some(id);
    if serde_json::from_slice(message).is_ok_and(is_other)
        && let Ok(mut members) = serde_json::from_slice::<Map<String, Value>>(message)
    {
        members.insert("id".to_owned(), json!(id));
        return Value::from(members).to_string().into_bytes().into();
    }
    message.into()
}

fn too_large(why: String, id: RequestId) -> ServerJsonRpcMessage {
    let error = ErrorData::internal_error(why, Some(TOO_LARGE.into()));
    ServerJsonRpcMessage::error(error, Some(id))
}

fn text_of(response: &Response, name: impl header::AsHeaderName) -> Option<String> {
    let value = response.headers().get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

/// Returns whether the content is of this type, whatever its parameters.
fn is(response: &Response, media_type: &str) -> bool {
    let found = text_of(response, header::CONTENT_TYPE).unwrap_or_default();
    let found = found.split(';').next().unwrap_or_default();
    found.trim().eq_ignore_ascii_case(media_type)
}

/// Returns the scope that a challenge asks for: `scope="files:read files:write"`.
fn scope(challenge: &str) -> Option<&str> {
    let (_, value) = challenge.split_once("scope=")?;
    match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => value.split([',', ' ']).next(),
    }
}

/// Reads a body. Returns why its end was not read, if it is too large.
async fn read(
    mut response: Response,
    max: usize,
    max_values: usize,
    body: &mut Vec<u8>,
) -> Result<Option<String>, reqwest::Error> {
    let mut values = ValueCounter::default();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        let excess = match values.add(&chunk) > max_values {
            true => Some(too_many(max_values)),
            false => (body.len() > max).then(|| too_long(max)),
        };
        if excess.is_some() {
            return Ok(excess);
        }
    }
    Ok(None)
}

/// Returns the events of the answer to a request. An error of the request replaces an event that is
/// too long.
fn events(response: Response, max: usize, id: Option<RequestId>) -> BoxedSseResponse {
    // The bytes that have arrived since the last event.
    let arrived = Arc::new(AtomicUsize::new(0));
    let pending = Arc::clone(&arrived);
    let bytes = response.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(io::Error::other)?;
        match arrived.fetch_add(chunk.len(), Relaxed) + chunk.len() > max {
            true => Err(io::Error::other(too_long(max))),
            false => Ok(chunk),
        }
    });
    let events = SseStream::from_bytes_stream(bytes).map(move |event| match (event, &id) {
        (Err(_), Some(id)) if pending.load(Relaxed) > max => {
            let error = serde_json::to_string(&too_large(too_long(max), id.clone()));
            Ok(Sse::default().data(error.unwrap_or_default()))
        }
        (event, _) => {
            pending.store(0, Relaxed);
            event
        }
    });
    events.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H-7: the answer to a message with another id is lost.
    #[test]
    fn the_id_of_a_message_stays_though_it_is_a_secret() {
        let rules = Rules::new().with_secrets(["48151623"]);
        let text = r#"{"id":48151623,"jsonrpc":"2.0","method":"ping","params":{"x":48151623}}"#;
        let shown =
            r#"{"id":48151623,"jsonrpc":"2.0","method":"ping","params":{"x":"[REDACTED]"}}"#;
        assert_eq!(hidden(&rules, text), shown);
        let list = r#"[{"id":"48151623"},48151623]"#;
        assert_eq!(
            hidden(&rules, list),
            r#"[{"id":"[REDACTED]"},"[REDACTED]"]"#
        );
    }

    /// A reader sees that there was more, and a half secret at the end is found by the mark.
    #[test]
    fn a_text_that_is_cut_says_so() {
        assert_eq!(shown(b"abcdef", 3), "abc...[truncated]");
        assert_eq!(shown(b"abc", 3), "abc");
    }
}
