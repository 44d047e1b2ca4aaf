use std::{
    future::{Future, poll_fn},
    marker::PhantomData,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tower_service::Service;
use tracing::Span;

use super::{
    HttpTool, MAX_ANSWER,
    answer::{Body, HttpAnswer, Refused},
    events,
    execution::UpstreamStatus,
    job::Asked,
};
use crate::{
    answer::Answer,
    call::{CallInfo, ReplaySafety, ToolCall},
    edge::body::{is_encoded, read, read_all, wall_clock},
    error::{AnyError, ErrorKind, Execution, ToolError},
    event::names::span as names,
    hint::{self, HintSource},
    redact::Rules,
};

/// How much of the body of an answer with an error status is read, in bytes.
const MAX_REFUSAL: usize = 64 << 10;

/// Stands behind a body that was not read to its end.
const CUT: &str = "... [the rest of the body was not read]";

/// How long the body of an answer with an error status is waited for: its status is what counts.
const REFUSAL_TIME: Duration = Duration::from_secs(2);

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
        let body = PhantomData;
        Self { tool, client, body }
    }

    /// The tool.
    pub fn tool(&self) -> &HttpTool {
        &self.tool
    }
}

impl<C: Clone, B> Clone for HttpService<C, B> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.tool), self.client.clone())
    }
}

crate::text::debug_fields! { {C, B} |this| HttpService<C, B> { tool: this.tool, .. } }

impl<C, B, R> Service<ToolCall> for HttpService<C, B>
where
    C: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    C::Error: Into<AnyError>,
    C::Future: Send,
    B: From<Bytes> + Send + 'static,
    R: HttpBody + Send + 'static,
    R::Data: Send,
    R::Error: Into<AnyError>,
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
        let max = tool.max_bytes().or(self.tool.max_bytes());
        let max = max.unwrap_or(MAX_ANSWER);
        ResponseFuture(Box::pin(answer(tool, max, self.client.clone(), call)))
    }
}

/// Response future of [`HttpService`]. Boxed: one allocation beside the dozens of a request.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture(Pin<Box<dyn Future<Output = Result<HttpAnswer, ToolError>> + Send>>);

crate::text::opaque_debug!({} ResponseFuture);

impl Future for ResponseFuture {
    type Output = Result<HttpAnswer, ToolError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

/// Sends a call; its errors name it.
async fn answer<C, B, R>(
    tool: Arc<HttpTool>,
    max_bytes: usize,
    client: C,
    call: ToolCall,
) -> Result<HttpAnswer, ToolError>
where
    C: Service<Request<B>, Response = Response<R>>,
    C::Error: Into<AnyError>,
    B: From<Bytes>,
    R: HttpBody,
    R::Error: Into<AnyError>,
{
    let info = call.info();
    let answer = run(&tool, max_bytes, client, call, &info).await;
    answer.map_err(|error| {
        let mut error = error.for_call(&info);
        if tool.replay_safety() == ReplaySafety::Unsafe {
            error.set_unsafe();
        }
        error
    })
}

async fn run<C, B, R>(
    tool: &HttpTool,
    max_bytes: usize,
    client: C,
    call: ToolCall,
    info: &CallInfo,
) -> Result<HttpAnswer, ToolError>
where
    C: Service<Request<B>, Response = Response<R>>,
    C::Error: Into<AnyError>,
    B: From<Bytes>,
    R: HttpBody,
    R::Error: Into<AnyError>,
{
    call.check()?;
    #[cfg_attr(not(feature = "otel"), expect(unused_mut))]
    let mut request = match Asked::of(&call) {
        // What started the job was made of the same arguments: what is missing now is no reason to
        // begin again.
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
    // Nothing below needs the call, and the answer may be long in coming.
    drop(call);
    info.record(|r| r.set_server(Arc::clone(tool.shared_host())));
    let span = events::span(info, tool, &request);
    #[cfg(feature = "otel")]
    span.in_scope(|| super::tool::propagate(request.headers_mut()));
    // In its place: `Instrument` would move it.
    let mut sent = pin!(send(tool, max_bytes, client, request, info, &span));
    let result = poll_fn(|cx| span.in_scope(|| sent.as_mut().poll(cx))).await;
    events::ended(&span, &result);
    result
}

async fn send<C, B, R>(
    tool: &HttpTool,
    max_bytes: usize,
    mut client: C,
    request: Request<Bytes>,
    info: &CallInfo,
    span: &Span,
) -> Result<HttpAnswer, ToolError>
where
    C: Service<Request<B>, Response = Response<R>>,
    C::Error: Into<AnyError>,
    B: From<Bytes>,
    R: HttpBody,
    R::Error: Into<AnyError>,
{
    events::request(info, tool, &request);
    let ready = poll_fn(|cx| client.poll_ready(cx)).await;
    // Whatever it is, nothing was sent.
    ready
        .map_err(|error| ToolError::from_transport(error).with_execution(Execution::NotStarted))?;
    let begun = Instant::now();
    let sent = client.call(request.map(B::from));
    let response = sent.await.map_err(ToolError::from_transport)?;

    let (head, body) = response.into_parts();
    span.record(names::STATUS_CODE, head.status.as_u16());
    let is_success = head.status.is_success();
    let (mut bytes, mut whole, mut is_cut) = (Vec::new(), Ok(()), false);
    if !has_body(tool.method(), head.status) {
        drop(body);
    } else if is_success {
        whole = read_all(body, &head.headers, max_bytes, &mut bytes).await;
    } else if !is_encoded(&head.headers) {
        let max = max_bytes.min(MAX_REFUSAL);
        // What there is of it will do.
        let read = timeout(REFUSAL_TIME, read(body, max, &mut bytes)).await;
        is_cut = !matches!(read, Ok(Ok(())));
    }
    let elapsed = begun.elapsed();
    events::response(info, head.status, &head.headers, &bytes, elapsed);
    info.record(|r| r.insert_extension(UpstreamStatus(head.status)));
    whole?;
    let now = wall_clock();
    let answer = HttpAnswer {
        status: head.status,
        body: match is_cut {
            true => Body::Text(format!("{}{CUT}", String::from_utf8_lossy(&bytes))),
            false => Body::of(&bytes),
        },
        headers: tool.kept(&head.headers),
        elapsed,
        cooldown: hint::exhausted(&head.headers, now).filter(|_| is_success),
        retry_after: asked_delay(&head.headers, now),
        is_failure: false,
        cut: None,
    };
    if !is_success {
        return Err(refused(answer, &head.headers, info.rules(), now));
    }
    let answer = picked(tool, answer)?;
    answer.tell(info);
    info.record(|r| {
        if r.wants_output_bytes() {
            r.set_output_bytes(answer.body().bytes());
        }
    });
    Ok(answer)
}

/// Returns whether an answer can have a body (RFC 9110, section 6.4.1): else its `Content-Length`
/// is that of another answer.
fn has_body(method: &Method, status: StatusCode) -> bool {
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];
    *method != Method::HEAD && !bodiless.contains(&status)
}

/// The answer with the tool's result as its body.
fn picked(tool: &HttpTool, mut answer: HttpAnswer) -> Result<HttpAnswer, ToolError> {
    if let (Some(path), Body::Json(json)) = (tool.error(), &answer.body)
        && let Some(why) = path.first(json).filter(|why| is_something(why))
    {
        let text = match why {
            Value::String(why) => why.clone(),
            why => why.to_string(),
        };
        return Err(ToolError::new(ErrorKind::Reported, text).with_source(Refused::new(answer)));
    }
    let Some(path) = tool.result() else {
        return Ok(answer);
    };
    let found = match &answer.body {
        Body::Json(json) => path.first(json).cloned(),
        Body::Text(_) => None,
    };
    let Some(found) = found else {
        let text = format!("the answer has nothing at `{path}`");
        return Err(ToolError::unusable(text).with_source(Refused::new(answer)));
    };
    answer.body = Body::Json(found);
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
    let body = match answer.body() {
        Answer::Text(text) => text.to_owned(),
        Answer::Json(json) if json.is_null() => String::new(),
        Answer::Json(json) => json.to_string(),
    };
    let message = match is_redirect(status) {
        true => "the server redirects, which is not followed".to_owned(),
        false => ToolError::reason_in(status, &body, rules),
    };
    ToolError::from_http(status, headers, &body, now)
        .named(&message)
        .with_source(Refused::new(answer))
}

/// Returns whether a status sends the client to another place. 300 and 304 do not.
fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}
