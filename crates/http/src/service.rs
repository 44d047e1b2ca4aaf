use std::{
    future::{Future, poll_fn},
    marker::PhantomData,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode, response::Parts};
use http_body::Body as HttpBody;
use serde_json::Value;
use tower_service::Service;

use super::{
    HttpTool, MAX_ANSWER,
    answer::{HttpAnswer, Refused, read_body},
    events,
    execution::UpstreamStatus,
    job::Asked,
};
use crate::body::{Exchanged, exchange, is_encoded, wall_clock};
use tower_toolcall::{
    AnyError, ErrorKind, ReplaySafety, ToolCall, ToolError,
    answer::{ModelText as _, register},
    call::CallInfo,
    event::names::span as names,
    flow::CallExt,
    hint::{self, HintSource},
    redact::Rules,
};

/// Stands behind a body that was not read to its end.
const CUT: &str = "... [the rest of the body was not read]";

/// The tool service of an [`HttpTool`]: sends one request for each call. Made by
/// [`HttpTool::client`].
///
/// Always ready; errors come from the response future only. Dropping that drops the request.
///
/// # Clone
///
/// Clones share the tool and hold clones of the client.
pub struct HttpService<C, B> {
    tool: Arc<HttpTool>,
    client: C,
    body: PhantomData<fn() -> B>,
}

impl<C, B> HttpService<C, B> {
    pub(super) fn new(tool: Arc<HttpTool>, client: C) -> Self {
        register::<HttpAnswer>();
        let body = PhantomData;
        Self { tool, client, body }
    }

    /// Returns the tool.
    pub fn tool(&self) -> &HttpTool {
        &self.tool
    }
}

impl<C: Clone, B> Clone for HttpService<C, B> {
    fn clone(&self) -> Self {
        Self {
            tool: Arc::clone(&self.tool),
            client: self.client.clone(),
            body: PhantomData,
        }
    }
}

impl<C, B> std::fmt::Debug for HttpService<C, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpService")
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}

impl<C, B, R> Service<ToolCall> for HttpService<C, B>
where
    C: Service<Request<B>, Response = Response<R>, Error: Into<AnyError>> + Clone + Send + 'static,
    C::Future: Send,
    B: From<Bytes> + Send + 'static,
    R: HttpBody<Data: Send, Error: Into<AnyError>> + Send + 'static,
{
    type Response = HttpAnswer;
    type Error = ToolError;
    type Future = ResponseFuture;

    /// Always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> ResponseFuture {
        let tool = match Asked::of(&call) {
            Some(asked) => Arc::clone(&asked.tool),
            None => Arc::clone(&self.tool),
        };
        let max = tool.max_bytes.or(self.tool.max_bytes);
        let max = max.unwrap_or(MAX_ANSWER);
        let client = self.client.clone();
        Box::pin(async move {
            let call = match tool.replay_safety() {
                ReplaySafety::Unsafe => call.with_replay_safety(ReplaySafety::Unsafe),
                _ => call,
            };
            let info = call.info();
            let answer = run(&tool, max, client, call).await;
            answer.map_err(|error| error.for_call(&info))
        })
    }
}

/// Response future of [`HttpService`].
pub type ResponseFuture = BoxFuture<'static, Result<HttpAnswer, ToolError>>;

async fn run<C, B, R>(
    tool: &HttpTool,
    max_bytes: usize,
    client: C,
    mut call: ToolCall,
) -> Result<HttpAnswer, ToolError>
where
    C: Service<Request<B>, Response = Response<R>, Error: Into<AnyError>>,
    B: From<Bytes>,
    R: HttpBody<Error: Into<AnyError>>,
{
    call.check()?;
    tool.hide_secrets(&mut call);
    #[cfg_attr(not(feature = "otel"), expect(unused_mut))]
    let mut request = match Asked::of(&call) {
        // The job was started with the same arguments, so a missing value must not start it again.
        Some(_) => tool.request(&call).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => {
                let text = format!("the job cannot be asked for: {}", error.message());
                ToolError::refusal(ErrorKind::Internal, text)
            }
            _ => error,
        })?,
        None => {
            call.check_job()?;
            tool.request(&call)?
        }
    };
    let (secrets, own) = tool.secrets(&call, request.headers());
    call.hide_secrets_of(&secrets);
    let info = &call.info();
    // Nothing below needs the call, and the answer may be long in coming.
    drop(call);
    info.record(|r| r.set_server(Arc::clone(&tool.host)));
    let span = events::span(info, tool, &request);
    #[cfg(feature = "otel")]
    span.in_scope(|| super::tool::propagate(request.headers_mut()));
    let sent = async {
        events::request(info, tool, &request);
        let mut bytes = Vec::new();
        let on_head = |head: &Parts| {
            span.record(names::STATUS_CODE, head.status.as_u16());
            !is_encoded(&head.headers)
        };
        let url = (!tool.kept.is_empty()).then(|| request.uri().clone());
        let exchanged = exchange(client, request, max_bytes, &mut bytes, on_head).await?;
        let answer = answered(tool, exchanged, &bytes, info, &own);
        answer.map(|answer| HttpAnswer { url, ..answer })
    };
    // Polled in its place: `Instrument` would move it.
    let mut sent = pin!(sent);
    let result = poll_fn(|cx| span.in_scope(|| sent.as_mut().poll(cx))).await;
    let result = result.map_err(|error| error.for_call(info));
    events::ended(&span, &result);
    result
}

fn answered(
    tool: &HttpTool,
    exchanged: Exchanged,
    bytes: &[u8],
    info: &CallInfo,
    own: &Rules,
) -> Result<HttpAnswer, ToolError> {
    let Exchanged {
        head,
        elapsed,
        whole,
    } = exchanged;
    let is_success = head.status.is_success();
    events::response(info, head.status, &head.headers, bytes, elapsed);
    info.record(|r| r.insert_extension(UpstreamStatus(head.status)));
    let is_whole = whole?;
    let now = wall_clock();
    let (body, is_text) = match is_whole {
        true => read_body(bytes, &head.headers),
        false => (
            format!("{}{CUT}", String::from_utf8_lossy(bytes)).into(),
            true,
        ),
    };
    let mut answer = HttpAnswer {
        status: head.status,
        body,
        is_text,
        headers: tool.kept(&head.headers),
        url: None,
        elapsed,
        cooldown: hint::exhausted(&head.headers, now).filter(|_| is_success),
        retry_after: asked_delay(&head.headers, now),
        is_failure: false,
        cut: None,
    };
    answer.hide(own);
    if !is_success {
        return Err(refused(answer, &head.headers, info.rules(), now));
    }
    let answer = picked(tool, answer, info.rules())?;
    answer.tell(info);
    info.record(|r| {
        if r.wants_output_bytes() {
            r.set_output_bytes(answer.body().bytes());
        }
    });
    Ok(answer)
}

/// The answer with the tool's result as its body.
fn picked(tool: &HttpTool, mut answer: HttpAnswer, rules: &Rules) -> Result<HttpAnswer, ToolError> {
    if let (Some(path), Some(json)) = (&tool.error, answer.json())
        && let Some(why) = path.first(json).filter(|why| is_something(why))
    {
        let text = rules.without_secrets(&why.model_text()).into_owned();
        return Err(ToolError::new(ErrorKind::Reported, text).with_source(Refused::new(answer)));
    }
    let Some(path) = &tool.result else {
        return Ok(answer);
    };
    let found = answer.json().and_then(|json| path.first(json));
    let Some(found) = found.cloned() else {
        let text = format!("the answer has nothing at `{path}`");
        return Err(ToolError::unusable(text).with_source(Refused::new(answer)));
    };
    answer.body = found;
    Ok(answer)
}

fn is_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    }
}

/// The delay of `Retry-After`, or of its form in milliseconds.
fn asked_delay(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let asked = [HintSource::RetryAfter, HintSource::RetryAfterMs];
    let hint = hint::from_headers(headers, now)?;
    hint.delay.filter(|_| asked.contains(&hint.source))
}

/// The error that a status means. It keeps the answer.
#[cold]
fn refused(answer: HttpAnswer, headers: &HeaderMap, rules: &Rules, now: SystemTime) -> ToolError {
    let status = answer.status;
    let body = match answer.json() {
        Some(Value::Null) => String::new(),
        Some(json) => json.to_string(),
        None => answer.body.model_text().into_owned(),
    };
    // Before anything is cut.
    let body = rules.without_secrets(&body);
    let error = match is_redirect(status) {
        true => {
            let text = "the server redirects, which is not followed";
            let error = ToolError::from_status(status, text);
            let error = match &*body {
                "" => error,
                body => error.with_body(body),
            };
            match answer.retry_after {
                Some(delay) => error.with_retry_after(delay),
                None => error,
            }
        }
        false => ToolError::from_http_with(rules, status, headers, &body, now),
    };
    error.with_source(Refused::new(answer))
}

/// Returns whether a status sends the client to another place. 300 and 304 do not.
fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}
