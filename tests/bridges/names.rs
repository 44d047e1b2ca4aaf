//! P17: names of modules and names of crates.

/// P17: who imports all names of this crate still has each crate beside it.
#[test]
#[allow(unused_imports, reason = "to import them is the test")]
fn a_glob_import_hides_no_crate() {
    use tower_toolcall::*;
    use {
        anyhow as _, axum as _, http as _, hyper as _, metrics as _, opentelemetry as _,
        reqwest as _, schemars as _, serde_json as _, tokio as _, tonic as _, tower as _,
        tower_layer as _, tower_service as _, tracing as _, tracing_opentelemetry as _,
    };
    let call: ToolCall = ToolCall::new("weather");
    let _: (axum::Router, tonic::Status) = (axum::Router::new(), tonic::Status::ok(call.tool()));
    metrics::counter!("calls").increment(1);
}
