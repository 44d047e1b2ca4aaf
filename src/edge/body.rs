//! Answers of HTTP servers, as tool services read them.

use std::{pin::pin, time::SystemTime};

use bytes::Buf;
use http::{
    HeaderMap, HeaderValue,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;

use crate::error::{AnyError, Execution, ToolError};

/// Returns whether a body is compressed, or otherwise encoded (RFC 9110, section 8.4).
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    let is_one = |value: &HeaderValue| {
        let value = value.as_bytes().trim_ascii();
        !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")
    };
    headers.get_all(CONTENT_ENCODING).iter().any(is_one)
}

/// Reads the body of a 2xx, unless its headers say already that it cannot be taken.
pub(super) async fn read_all<R>(
    body: R,
    headers: &HeaderMap,
    max: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), ToolError>
where
    R: HttpBody,
    R::Error: Into<AnyError>,
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
pub(super) async fn read<R>(body: R, max: usize, bytes: &mut Vec<u8>) -> Result<(), ToolError>
where
    R: HttpBody,
    R::Error: Into<AnyError>,
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
        let mut data = data.take(room);
        while data.has_remaining() {
            let chunk = data.chunk();
            bytes.extend_from_slice(chunk);
            let read = chunk.len();
            data.advance(read);
        }
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
pub(super) fn wall_clock() -> SystemTime {
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
