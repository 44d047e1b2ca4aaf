//! Requests and answers as DEBUG events, and the span of a request. Nothing is written unless
//! somebody listens.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, StatusCode, Uri, uri::Scheme};
use tracing::{
    Span,
    field::{Empty, display},
};

use super::{HttpAnswer, HttpTool};
use crate::{
    call::CallInfo,
    error::ToolError,
    event::{emit, ms, names::span as names},
    redact::Rules,
    text::{plain, redacted_head},
};

/// The longest text, in characters.
const MAX: usize = 500;

/// The span of a request, by OpenTelemetry's conventions for HTTP clients.
pub(super) fn span(call: &CallInfo, tool: &HttpTool, request: &Request<Bytes>) -> Span {
    let (method, uri) = (request.method().as_str(), request.uri());
    let template = || template(call.rules(), &tool.url_template());
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
    emit!(DEBUG HTTP_REQUEST, call, METHOD = request.method().as_str(),
        URL = display(url(call.rules(), request.uri(), &tool.url_template())),
        HEADERS = display(listed(request.headers())),
        BODY = display(text(call.rules(), request.body())));
}

pub(super) fn response(
    call: &CallInfo,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    elapsed: Duration,
) {
    emit!(DEBUG HTTP_RESPONSE, call, STATUS = status.as_u16(), DURATION_MS = ms(elapsed),
        HEADERS = display(listed(headers)), BODY = display(text(call.rules(), body)));
}

/// Returns a text redacted, cut, and without hidden characters.
fn text(rules: &Rules, text: &[u8]) -> String {
    let shown = redacted_head(rules, &String::from_utf8_lossy(text), MAX);
    shown.chars().map(plain).collect()
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
