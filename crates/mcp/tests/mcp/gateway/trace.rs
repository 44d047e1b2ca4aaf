//! O6: one trace from the client to the server behind the gateway.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{InMemorySpanExporter, SdkTracerProvider},
};
use rmcp::{
    model::{CallToolRequest, CallToolRequestParams, ClientRequest, RequestMetaObject},
    service::PeerRequestOptions,
};
use tower::ServiceBuilder;
use tower_toolcall::trace::TraceLayer;
use tower_toolcall_mcp::GatewayHandler;
use tracing_subscriber::{filter::filter_fn, prelude::*};

use super::kit::{WAYS, connect, gateway_with};
use crate::observers::listen;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#_meta
//# When present, their values MUST follow W3C Trace Context and W3C Baggage formats respectively.
#[tokio::test]
async fn the_clients_trace_goes_on_through_the_gateway_to_the_server() {
    listen();
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("test"))
        .with_filter(filter_fn(|meta| {
            meta.target().starts_with("tower_toolcall")
        }));
    let _guard = tracing_subscriber::registry().with(layer).set_default();
    for way in WAYS {
        let gateway = gateway_with(true, |router| {
            let stack = ServiceBuilder::new()
                .layer(TraceLayer::new())
                .service(router);
            GatewayHandler::new(stack, Vec::new)
        })
        .await;
        let client = connect(way, gateway.handler.clone()).await;
        exporter.reset();
        let mut meta = RequestMetaObject::default();
        let parent = format!("00-{TRACE}-{SPAN}-01");
        meta.insert("traceparent".into(), parent.into());
        let call = CallToolRequest::new(CallToolRequestParams::new("docs__echo"));
        let call = ClientRequest::CallToolRequest(call);
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let peer = client.client.peer();
        let handle = peer.send_cancellable_request(call, options).await.unwrap();
        handle.await_response().await.unwrap();

        let spans = exporter.get_finished_spans().unwrap();
        let [span] = &spans[..] else {
            panic!("{way:?} {spans:?}")
        };
        assert_eq!(span.parent_span_id.to_string(), SPAN, "{way:?}");
        let sent = gateway.upstream.meta()["traceparent"].clone();
        let own = span.span_context.span_id();
        assert_eq!(sent, format!("00-{TRACE}-{own}-01"), "{way:?}");
    }
}
