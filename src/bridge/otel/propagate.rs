use std::{borrow::Cow, collections::HashMap};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context, global,
    propagation::{Injector, TextMapPropagator},
    trace::TraceContextExt,
};
use serde_json::{Map, Value};
use tracing::Span;
use tracing_opentelemetry::{OpenTelemetrySpanExt, SetParentError};

use super::w3c::{self, TraceContext};
use crate::{call::ToolCall, trace::NewSpan};

/// A longer value that a peer sends is ignored: what W3C's baggage may have in all.
const MAX_VALUE_BYTES: usize = 8192;

/// Not part of the parent's context.
const BAGGAGE: &str = "baggage";

/// Writes the context of the current span into an MCP request's `_meta`: `traceparent`,
/// `tracestate`, and `baggage` if the configured propagator has it.
///
/// `McpService` of `tower-toolcall-mcp` does it by itself. Without a valid context nothing is
/// written, and nothing that is there already is overwritten: where the caller has put a
/// `traceparent`, it stays alone.
pub fn inject_meta(meta: &mut Map<String, Value>) {
    for (key, value) in absent(|key| meta.contains_key(key)) {
        meta.insert(key, value.into());
    }
}

/// Writes the context of the current span into the headers of an HTTP request, by the same rules.
///
/// ```
/// use http::HeaderMap;
/// use tower_toolcall::otel;
///
/// // In a tool that speaks HTTP, before it sends:
/// let mut headers = HeaderMap::new();
/// otel::inject_headers(&mut headers);
/// assert!(headers.is_empty()); // no exporter is set up here, so there is no context
/// ```
pub fn inject_headers(headers: &mut HeaderMap) {
    for (key, value) in absent(|key| headers.contains_key(key)) {
        if let (Ok(key), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            headers.insert(key, value);
        }
    }
}

/// Returns the caller's span, as an MCP request's `_meta` names it.
///
/// In the handler of an rmcp server that is `&cx.meta`. None if there is nothing, or nothing
/// well-formed; a value of more than 8 KiB is ignored.
pub fn parent_from_meta(meta: &Map<String, Value>) -> Option<Context> {
    extract(|field| meta.get(field)?.as_str().map(Cow::Borrowed))
}

/// Returns the caller's span, as the headers of an HTTP request name it, or the metadata of a gRPC
/// request (`request.metadata().as_ref()`).
///
/// None by the same rules. A `traceparent` that comes twice is malformed.
pub fn parent_from_headers(headers: &HeaderMap) -> Option<Context> {
    extract(|field| {
        let mut values = headers.get_all(field).iter().map(HeaderValue::to_str);
        let first = values.next()?.ok()?;
        let Some(second) = values.next() else {
            return Some(Cow::Borrowed(first));
        };
        // The lists of the specifications may be spread over several headers.
        let mut all = format!("{first},{}", second.ok()?);
        for more in values {
            if all.len() > MAX_VALUE_BYTES {
                return None;
            }
            all.push(',');
            all.push_str(more.ok()?);
        }
        Some(Cow::Owned(all))
    })
}

/// Returns the context to send with a call: the current span's, or OpenTelemetry's own current
/// context if tracing has none. `None` if it is not valid.
fn current() -> Option<Context> {
    let valid = |cx: &Context| cx.span().span_context().is_valid();
    Some(Span::current().context())
        .filter(valid)
        .or_else(|| Some(Context::current()).filter(valid))
}

/// Calls `f` with the propagator of the process, or with that of W3C trace context.
fn with_propagator<T>(mut f: impl FnMut(&dyn TextMapPropagator) -> T) -> T {
    global::get_text_map_propagator(|configured| match configured.fields().next() {
        Some(_) => f(configured),
        None => f(&TraceContext),
    })
}

/// Collects the fields that a propagator writes.
#[derive(Default)]
struct Written(Vec<(String, String)>);

impl Injector for Written {
    fn set(&mut self, key: &str, value: String) {
        self.0.push((key.to_owned(), value));
    }
}

/// The fields of the current context that a request does not have yet.
fn absent(has: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut written = Written::default();
    if let Some(cx) = current() {
        with_propagator(|propagator| {
            let mut fields = propagator.fields();
            // Half of another trace's context would be worse than none.
            if !fields.any(|field| field != BAGGAGE && has(field)) {
                propagator.inject_context(&cx, &mut written);
            }
        });
    }
    let mut fields = written.0;
    fields.retain(|(key, value)| !value.is_empty() && !has(key));
    fields
}

fn extract<'a>(get: impl Fn(&str) -> Option<Cow<'a, str>>) -> Option<Context> {
    with_propagator(|propagator| {
        let admitted = |field: &str| {
            let value = get(field).filter(|value| is_admitted(field, value))?;
            Some((field.to_lowercase(), value.into_owned()))
        };
        let values: HashMap<_, _> = propagator.fields().filter_map(admitted).collect();
        if values.is_empty() {
            return None;
        }
        let cx = propagator.extract_with_context(&Context::new(), &values);
        cx.span().span_context().is_valid().then_some(cx)
    })
}

/// Propagators are written for what well-meaning peers send.
fn is_admitted(field: &str, value: &str) -> bool {
    let printable = |b| matches!(b, b' '..=b'~' | b'\t');
    value.len() <= MAX_VALUE_BYTES
        && value.bytes().all(printable)
        && match field {
            w3c::PARENT => w3c::parse(value).is_some(),
            w3c::STATE => w3c::is_state(value),
            _ => true,
        }
}

/// Makes `parent`, which a peer has sent, the parent of a span that was not yet entered.
///
/// A current span of another trace is linked. If the current span belongs to the parent's trace,
/// the span remains its child.
///
/// Nothing happens where no OpenTelemetry layer sees the span, or if it has been entered before.
pub fn set_parent(span: &Span, parent: Context) {
    let trace = parent.span().span_context().trace_id();
    if let Some(ambient) = current() {
        let ambient = ambient.span().span_context().clone();
        if ambient.trace_id() == trace {
            return;
        }
        span.add_link(ambient);
    }
    // What can fail is what the docs say: no layer sees the span, or it was entered.
    let _ = span.set_parent(parent);
}

impl ToolCall {
    /// Sets the span of the caller in another process, as [`parent_from_meta`] and
    /// [`parent_from_headers`] find it: the span of the call becomes its child, as
    /// [`otel::set_parent`](set_parent) says.
    ///
    /// The outermost [`TraceLayer`](crate::trace::TraceLayer) takes it off the call.
    ///
    /// [`parent_from_meta`]: super::parent_from_meta
    /// [`parent_from_headers`]: super::parent_from_headers
    pub fn with_remote_parent(mut self, parent: Context) -> Self {
        let set = move |span: &Span| set_parent(span, parent.clone());
        self.extensions_mut().insert(NewSpan::new(set));
        self
    }
}

/// Returns whether the subscriber has a layer of OpenTelemetry. The span is new, and stays as it
/// is.
///
/// Only `set_parent` reports that the layer is missing. It changes nothing on a span that is
/// started, or that the layer does not see: the current one, which this starts. Without a current
/// span, the parent of the new one is OpenTelemetry's current context anyway.
pub(crate) fn is_exported(span: &Span) -> bool {
    let current = Span::current();
    let found = match current.is_none() {
        true => span.set_parent(Context::current()),
        false => {
            let context = current.context();
            current.set_parent(context)
        }
    };
    !matches!(found, Err(SetParentError::LayerNotFound))
}

/// Returns whether OpenTelemetry's layer sees the span and its sampler drops it. The span has its
/// parent by now: this starts it.
pub(crate) fn is_sampled_out(span: &Span) -> bool {
    let context = span.context();
    let span = context.span();
    span.span_context().is_valid() && !span.is_recording()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// In this binary no propagator is configured.
    #[test]
    fn w3c_trace_context_without_baggage_is_the_default() {
        let mut came = HeaderMap::new();
        came.insert("traceparent", HeaderValue::from_static(PARENT));
        came.insert("tracestate", HeaderValue::from_static("vendor=1"));
        came.insert("baggage", HeaderValue::from_static("session=7"));
        let parent = parent_from_headers(&came).unwrap();

        let _attached = parent.attach();
        let mut meta = Map::new();
        inject_meta(&mut meta);
        let expected = serde_json::json!({ "traceparent": PARENT, "tracestate": "vendor=1" });
        assert_eq!(Value::from(meta), expected);
    }
}
