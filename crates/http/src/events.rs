//! Requests and answers as DEBUG events, and the span of a request. Nothing is formatted without a
//! listener.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, StatusCode, Uri, uri::Scheme};
use tracing::{Level, Span, field::Empty};

use super::{HttpAnswer, HttpTool, plain};
use tower_toolcall::{
    ToolError,
    call::CallInfo,
    event::{
        TARGET,
        names::{event, field, span as names},
        shown_field,
    },
    redact::{Rules, TRUNCATED},
};

/// The longest text, in characters.
const MAX: usize = 500;

/// The span of a request, by OpenTelemetry's conventions for HTTP clients.
pub(super) fn span(call: &CallInfo, tool: &HttpTool, request: &Request<Bytes>) -> Span {
    let (method, uri) = (request.method().as_str(), request.uri());
    let template = || template(call.rules(), &tool.templates.source("url"));
    tracing::debug_span!(
        target: "tower_toolcall::http",
        names::HTTP,
        { names::OTEL_NAME } = %format_args!("{method} {}", template()),
        { names::OTEL_KIND } = "client",
        { names::OTEL_STATUS_CODE } = Empty,
        { names::METHOD } = method,
        { names::URL_TEMPLATE } = %template(),
        { names::SERVER_ADDRESS } = uri.host(),
        { names::SERVER_PORT } = port(uri),
        { names::STATUS_CODE } = Empty,
        { names::ERROR_TYPE } = Empty,
    )
}

fn port(uri: &Uri) -> u16 {
    let is_http = uri.scheme() == Some(&Scheme::HTTP);
    uri.port_u16().unwrap_or(if is_http { 80 } else { 443 })
}

/// Records the end of a request in its span.
pub(super) fn ended(span: &Span, result: &Result<HttpAnswer, ToolError>) {
    let Err(error) = result else { return };
    span.record(names::OTEL_STATUS_CODE, "ERROR");
    match error.status() {
        Some(status) => span.record(names::ERROR_TYPE, status.as_str()),
        None => span.record(names::ERROR_TYPE, error.kind().error_type()),
    };
}

pub(super) fn request(call: &CallInfo, tool: &HttpTool, request: &Request<Bytes>) {
    tracing::event!(
        name: event::HTTP_REQUEST,
        target: TARGET,
        Level::DEBUG,
        { field::TOOL } = %shown_field(call.tool()),
        { field::SERVER } = call.server().map(shown_field).map(tracing::field::display),
        { field::CALL_ID } = call.id().map(shown_field).map(tracing::field::display),
        { field::TRACE_ID } = call.trace_id().map(shown_field).map(tracing::field::display),
        { field::METHOD } = request.method().as_str(),
        { field::URL } = %url(call.rules(), request.uri(), &tool.templates.source("url")),
        { field::HEADERS } = %listed(request.headers()),
        { field::BODY } = %text(call.rules(), request.body()),
        "{}", event::HTTP_REQUEST
    );
}

pub(super) fn response(
    call: &CallInfo,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    elapsed: Duration,
) {
    tracing::event!(
        name: event::HTTP_RESPONSE,
        target: TARGET,
        Level::DEBUG,
        { field::TOOL } = %shown_field(call.tool()),
        { field::SERVER } = call.server().map(shown_field).map(tracing::field::display),
        { field::CALL_ID } = call.id().map(shown_field).map(tracing::field::display),
        { field::TRACE_ID } = call.trace_id().map(shown_field).map(tracing::field::display),
        { field::STATUS } = status.as_u16(),
        // Whole microseconds: more digits are noise.
        { field::DURATION_MS } = (elapsed.as_secs_f64() * 1e6).round() / 1e3,
        { field::HEADERS } = %listed(headers),
        { field::BODY } = %text(call.rules(), body),
        "{}", event::HTTP_RESPONSE
    );
}

/// Returns a text redacted, cut, and without hidden characters.
fn text(rules: &Rules, text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let (shown, is_cut) = rules.head(&text, MAX);
    let end = if is_cut { TRUNCATED } else { "" };
    shown.chars().map(plain).chain(end.chars()).collect()
}

/// Returns the path of a URL's template.
fn template(rules: &Rules, source: &str) -> String {
    let (_, url) = source.split_once("://").unwrap_or_default();
    let (url, _) = url.split_once('?').unwrap_or((url, ""));
    let path = url.find('/').map_or("/", |at| &url[at..]);
    text(rules, path.as_bytes())
}

/// Returns a URL without the values of its query, and without names that are values.
fn url(rules: &Rules, uri: &Uri, template: &str) -> String {
    let whole = uri.to_string();
    let (path, query) = whole.split_once('?').unwrap_or((&whole, ""));
    let mut shown = path.to_owned();
    let mut before = "?";
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some((name, _)) if template.contains(name) => shown.extend([before, name, "=*"]),
            Some(_) => shown.extend([before, "*=*"]),
            None => shown.extend([before, "*"]),
        }
        before = "&";
    }
    text(rules, shown.as_bytes())
}

/// Returns the names of headers.
fn listed(headers: &HeaderMap) -> String {
    let names: Vec<_> = headers.keys().take(64).map(HeaderName::as_str).collect();
    names.join(", ")
}
