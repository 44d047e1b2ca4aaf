use std::{
    future::{Future, poll_fn},
    marker::PhantomData,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use bytes::{Buf, Bytes};
use http::{
    HeaderMap, Request, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use tokio::time::Instant;
use tower_service::Service;

use super::{
    HttpTool,
    answer::{Body, HttpAnswer, Refused},
    events,
};
use crate::{
    answer::Answer,
    call::{CallInfo, ToolCall},
    edge::hinted,
    error::{AnyError, ErrorKind, Execution, ToolError},
    hint,
    redact::Rules,
};

/// How much of the body of an answer with an error status stands in the error's message, in characters.
const MAX_REASON: usize = 200;

/// The leaf of an [`HttpTool`]: sends one request for each call. Made by [`HttpTool::client`].
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
        ResponseFuture(Box::pin(answer(
            Arc::clone(&self.tool),
            self.client.clone(),
            call,
        )))
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
    let answer = run(&tool, client, call, &info).await;
    answer.map_err(|error| error.for_call(&info))
}

async fn run<C, B, R>(
    tool: &HttpTool,
    mut client: C,
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
    let request = tool.request(&call)?;
    // Nothing below needs the call, and the answer may be long in coming.
    drop(call);
    info.record(|r| r.set_server(Arc::clone(tool.shared_host())));
    events::request(info, &request);

    poll_fn(|cx| client.poll_ready(cx))
        .await
        .map_err(from_wire)?;
    let begun = Instant::now();
    let sent = client.call(request.map(B::from));
    let response = sent.await.map_err(from_wire)?;

    let (head, body) = response.into_parts();
    let (bytes, broken) = read(body, &head.headers, tool.max_bytes()).await;
    let elapsed = begun.elapsed();
    events::response(info, head.status, &head.headers, &bytes, elapsed);
    let now = wall_clock();
    let is_success = head.status.is_success();
    if let Some(error) = broken.filter(|_| is_success) {
        return Err(error);
    }
    let answer = HttpAnswer {
        status: head.status,
        body: Body::of(&bytes),
        headers: tool.kept(&head.headers),
        elapsed,
        cooldown: hint::exhausted(&head.headers, now).filter(|_| is_success),
    };
    if !is_success {
        return Err(refused(answer, &head.headers, info.rules(), now));
    }
    info.record(|r| {
        if r.wants_output_bytes() {
            r.set_output_bytes(answer.body().bytes());
        }
    });
    Ok(answer)
}

/// Of [`AnyError`] it is known in `Send` futures, too, that errors become it.
fn from_wire(error: impl Into<AnyError>) -> ToolError {
    ToolError::from_transport(error.into().into_inner())
}

/// The body as far as it could be read, and why it was not read to its end.
async fn read<R>(body: R, headers: &HeaderMap, max: usize) -> (Vec<u8>, Option<ToolError>)
where
    R: HttpBody,
    R::Error: Into<AnyError>,
{
    let mut bytes = Vec::new();
    if let Some(encoding) = headers.get(CONTENT_ENCODING)
        && encoding != "identity"
    {
        let text = "the answer is compressed, which was not asked for";
        return (bytes, Some(ToolError::new(ErrorKind::Reported, text)));
    }
    let too_large = || {
        let text = format!("the answer has more than {max} bytes");
        Some(ToolError::new(ErrorKind::Reported, text))
    };
    let length = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    if length.is_some_and(|n| n.parse::<u64>().is_ok_and(|n| n > max as u64)) {
        return (bytes, too_large());
    }
    let mut body = pin!(body);
    loop {
        let mut data = match body.frame().await {
            None => return (bytes, None),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(_) => continue,
            },
            // The request was sent, and an answer has begun.
            Some(Err(error)) => {
                let error = from_wire(error).with_execution(Execution::Unknown);
                return (bytes, Some(error));
            }
        };
        if data.remaining() > max - bytes.len() {
            return (bytes, too_large());
        }
        while data.has_remaining() {
            let chunk = data.chunk();
            bytes.extend_from_slice(chunk);
            let read = chunk.len();
            data.advance(read);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "an HTTP date can be compared with the wall clock only"
)]
fn wall_clock() -> SystemTime {
    SystemTime::now()
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
    let message = if status.is_redirection() {
        "the server redirects, which is not followed".to_owned()
    } else if body.is_empty() {
        format!("HTTP {status}")
    } else {
        format!("HTTP {status}: {}", rules.text(&body, MAX_REASON))
    };
    let mut delay = hint::from_headers(headers, now).and_then(|hint| hint.delay);
    let turned_away = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    if let (None, true, Body::Json(json)) = (delay, turned_away.contains(&status), &answer.body) {
        delay = hint::from_json(json).and_then(|hint| hint.delay);
    }
    let mut error = ToolError::from_status(status, message);
    if !body.is_empty() {
        error = error.with_body(&body);
    }
    hinted(error.with_source(Refused(answer)), delay)
}
