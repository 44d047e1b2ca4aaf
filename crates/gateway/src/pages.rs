//! The pages for operators, `/health` and `/metrics`, and for probes, `/healthz` and `/readyz`.

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
use tower_toolcall::{health::Availability, tool_metrics::Metrics};

use super::current::Live;

/// `/health` and `/metrics`.
pub(crate) fn for_operators(live: Live, draining: Arc<AtomicBool>) -> Router {
    let metrics = live.metrics().clone();
    let health = move || async move {
        let now = live.now();
        let servers = now.health.snapshot();
        let mut upstreams = now.servers.iter().map(|(_, server)| server);
        // Health is learnt from calls, and there may be none for a server that was never there.
        let all_there = servers.iter().all(|s| s.state == Availability::Available)
            && upstreams.all(|u| u.connection().is_connected());
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

/// `/healthz`: the process lives. `/readyz`: the tools of all servers are known, and it is not
/// closing.
pub(crate) fn for_probes(live: Live, draining: Arc<AtomicBool>) -> Router {
    let ready = move || async move {
        let now = live.now();
        let servers = now.servers.iter().map(|(_, server)| server);
        let unknown = servers.filter(|server| !server.tools().catalog().is_read());
        let unknown: Vec<_> = unknown.map(|server| server.name().to_string()).collect();
        let (status, word) = match draining.load(SeqCst) {
            true => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
            false if unknown.is_empty() => (StatusCode::OK, "ready"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "waiting"),
        };
        (status, Json(json!({ "status": word, "unknown": unknown })))
    };
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
}

/// `/metrics`.
pub(crate) fn metrics_page(metrics: Metrics) -> Router {
    let metrics = move || async move {
        let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
        (kind, metrics.prometheus()).into_response()
    };
    Router::new().route("/metrics", get(metrics))
}
