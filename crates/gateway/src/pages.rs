//! The pages for operators: `/health` and `/metrics`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use axum::{
    Json, Router,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use serde_json::json;
use tower_toolcall::{
    health::{Availability, Health},
    tool_metrics::Metrics,
};
use tower_toolcall_mcp::McpServer;

/// `/health` and `/metrics`.
pub(crate) fn pages(
    upstreams: Vec<McpServer>,
    health: Health,
    metrics: Metrics,
    draining: Arc<AtomicBool>,
) -> Router {
    let health = move || async move {
        let servers = health.snapshot();
        // Health is learnt from calls, and there may be none for a server that was never there.
        let all_there = servers.iter().all(|s| s.state == Availability::Available)
            && upstreams.iter().all(|u| u.connection().is_connected());
        // A missing server does not take the gateway out of service, because its other tools work.
        let (status, word) = match draining.load(SeqCst) {
            true => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
            false if all_there => (StatusCode::OK, "ok"),
            false => (StatusCode::OK, "degraded"),
        };
        (status, Json(json!({ "status": word, "servers": servers })))
    };
    Router::new()
        .route("/health", get(health))
        .merge(metrics_page(metrics))
}

/// `/metrics`.
pub(crate) fn metrics_page(metrics: Metrics) -> Router {
    let metrics = move || async move {
        let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
        (kind, metrics.prometheus()).into_response()
    };
    Router::new().route("/metrics", get(metrics))
}
