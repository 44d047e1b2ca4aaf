//! Answers of HTTP servers, as tool services read them.

use std::{
    future::poll_fn,
    pin::pin,
    time::{Duration, SystemTime},
};

use bytes::{Buf, BufMut, Bytes};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
    response::Parts,
};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use tokio::time::{Instant, timeout};
use tower_service::Service;

use tower_toolcall::{AnyError, ToolError, error::Execution};

/// All but the unreserved characters (RFC 3986, section 2.3).
pub(crate) const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The most bytes that are read of a refusal.
const MAX_REFUSAL: usize = 64 << 10;

/// The longest time that the body of a refusal is waited for. What has arrived by then will do.
const REFUSAL_TIME: Duration = Duration::from_secs(2);

/// The answer to a request, without its body.
pub(crate) struct Exchanged {
    pub(crate) head: Parts,
    pub(crate) elapsed: Duration,
    /// Fails if the body of a 2xx cannot be taken. `false`: the body of a refusal was cut.
    pub(crate) whole: Result<bool, ToolError>,
}

/// Sends a request, once the client is ready, and reads up to `max` bytes of the answer's body.
/// That of a refusal is read if `on_head` returns `true`.
pub(crate) async fn exchange<C, B, R>(
    mut client: C,
    request: Request<Bytes>,
    max: usize,
    bytes: &mut Vec<u8>,
    on_head: impl FnOnce(&Parts) -> bool,
) -> Result<Exchanged, ToolError>
where
    C: Service<Request<B>, Response = Response<R>, Error: Into<AnyError>>,
    B: From<Bytes>,
    R: HttpBody<Error: Into<AnyError>>,
{
    let is_head = *request.method() == Method::HEAD;
    let ready = poll_fn(|cx| client.poll_ready(cx)).await;
    ready
        .map_err(|error| ToolError::from_transport(error).with_execution(Execution::NotStarted))?;
    let begun = Instant::now();
    let sent = client.call(request.map(B::from));
    let response = sent.await.map_err(ToolError::from_transport)?;
    let (head, body) = response.into_parts();
    let reads_refusal = on_head(&head);
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];
    let whole = if is_head || bodiless.contains(&head.status) {
        drop(body);
        Ok(true)
    } else if head.status.is_success() {
        let read = read_all(body, &head.headers, max, bytes).await;
        read.map(|()| true)
    } else if !reads_refusal {
        Ok(true)
    } else {
        let read = timeout(REFUSAL_TIME, read(body, max.min(MAX_REFUSAL), bytes)).await;
        Ok(matches!(read, Ok(Ok(()))))
    };
    Ok(Exchanged {
        head,
        elapsed: begun.elapsed(),
        whole,
    })
}

/// Returns whether a body is compressed, or otherwise encoded (RFC 9110, section 8.4).
pub(crate) fn is_encoded(headers: &HeaderMap) -> bool {
    let is_one = |value: &HeaderValue| {
        let value = value.as_bytes().trim_ascii();
        !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")
    };
    headers.get_all(CONTENT_ENCODING).iter().any(is_one)
}

/// Reads the body of a 2xx, unless its headers say already that it cannot be taken.
async fn read_all<R>(
    body: R,
    headers: &HeaderMap,
    max: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), ToolError>
where
    R: HttpBody<Error: Into<AnyError>>,
{
    if is_encoded(headers) {
        let text = "the answer is compressed, which was not asked for";
        return Err(ToolError::unusable(text));
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    if length.is_some_and(|n| n.parse::<u64>().is_ok_and(|n| n > max as u64)) {
        return Err(too_large(max));
    }
    read(body, max, bytes).await
}

/// Reads a body, up to `max` bytes of it.
async fn read<R>(body: R, max: usize, bytes: &mut Vec<u8>) -> Result<(), ToolError>
where
    R: HttpBody<Error: Into<AnyError>>,
{
    let mut body = pin!(body);
    while let Some(frame) = body.frame().await {
        // The request was sent, and an answer has begun.
        let frame =
            frame.map_err(|e| ToolError::from_transport(e).with_execution(Execution::Unknown))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let room = max - bytes.len();
        let fits = data.remaining() <= room;
        bytes.put(data.take(room));
        if !fits {
            return Err(too_large(max));
        }
    }
    Ok(())
}

fn too_large(max: usize) -> ToolError {
    let text = format!("the answer has more than {max} bytes");
    ToolError::unusable(text)
}

#[expect(
    clippy::disallowed_methods,
    reason = "an HTTP date can be compared with the wall clock only"
)]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_known_in_any_case_and_on_any_line() {
        for (lines, encoded) in [
            (&[][..], false),
            (&["identity"], false),
            (&["Identity"], false),
            (&[""], false),
            (&["gzip"], true),
            (&["identity", "gzip"], true),
            (&["br, gzip"], true),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(CONTENT_ENCODING, line.parse().unwrap());
            }
            assert_eq!(is_encoded(&headers), encoded, "{lines:?}");
        }
    }
}
