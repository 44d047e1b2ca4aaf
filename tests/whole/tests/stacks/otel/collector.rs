//! A collector that receives OTLP over HTTP, and keeps what it got.

use std::sync::{Arc, Mutex};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, status::StatusCode},
};
use prost::Message;
use tokio::{net::TcpListener, task::AbortHandle};

/// Listens on the loopback interface until it is dropped.
pub(crate) struct Collector {
    pub(crate) endpoint: String,
    bodies: Arc<Mutex<Vec<Bytes>>>,
    serving: AbortHandle,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let bodies = Arc::default();
        let app = Router::new()
            .route("/v1/traces", post(receive))
            .with_state(Arc::clone(&bodies));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            endpoint,
            bodies,
            serving: serving.abort_handle(),
        }
    }

    /// Whether these bytes were received, in whatever place.
    pub(crate) fn has_received(&self, text: &str) -> bool {
        let bodies = self.bodies.lock().unwrap();
        let found = |body: &Bytes| body.windows(text.len()).any(|w| w == text.as_bytes());
        bodies.iter().any(found)
    }

    pub(crate) fn spans(&self) -> Spans {
        let mut spans = Vec::new();
        for body in &*self.bodies.lock().unwrap() {
            let request = ExportTraceServiceRequest::decode(body.clone()).unwrap();
            let scopes = request
                .resource_spans
                .into_iter()
                .flat_map(|r| r.scope_spans);
            spans.extend(scopes.flat_map(|scope| scope.spans));
        }
        Spans(spans)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn receive(State(bodies): State<Arc<Mutex<Vec<Bytes>>>>, head: HeaderMap, body: Bytes) {
    assert_eq!(head["content-type"], "application/x-protobuf");
    bodies.lock().unwrap().push(body);
}

#[derive(Debug)]
pub(crate) struct Spans(pub(crate) Vec<Span>);

impl Spans {
    pub(crate) fn named(&self, name: &str) -> Vec<&Span> {
        self.0.iter().filter(|s| s.name == name).collect()
    }

    /// The only span of this name.
    pub(crate) fn one(&self, name: &str) -> &Span {
        match self.named(name)[..] {
            [span] => span,
            ref found => panic!("{} spans {name} in {:?}", found.len(), self.names()),
        }
    }

    /// The only child of a span.
    pub(crate) fn child(&self, of: &Span) -> &Span {
        let children: Vec<_> = self.children(of);
        match children[..] {
            [child] => child,
            ref found => panic!("{} children of {}", found.len(), of.name),
        }
    }

    pub(crate) fn children(&self, of: &Span) -> Vec<&Span> {
        let is_child = |s: &&Span| s.parent_span_id == of.span_id && s.trace_id == of.trace_id;
        self.0.iter().filter(is_child).collect()
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|s| s.name.as_str()).collect()
    }
}

/// An attribute as text; no span has one twice.
pub(crate) fn attribute(span: &Span, key: &str) -> Option<String> {
    let found: Vec<&KeyValue> = span.attributes.iter().filter(|a| a.key == key).collect();
    assert!(found.len() < 2, "{key} stands twice in {}", span.name);
    Some(match found.first()?.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => text.clone(),
        Value::BoolValue(b) => b.to_string(),
        Value::IntValue(n) => n.to_string(),
        Value::DoubleValue(x) => x.to_string(),
        other => panic!("{key}: {other:?}"),
    })
}

/// The message of a span whose status is ERROR; none of one whose status is not set.
pub(crate) fn error(span: &Span) -> Option<&str> {
    let status = span.status.as_ref()?;
    match status.code() {
        StatusCode::Unset => None,
        StatusCode::Error => Some(&status.message),
        StatusCode::Ok => panic!("{}: nobody said that it is OK", span.name),
    }
}
