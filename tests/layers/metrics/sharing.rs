//! What clones share.

use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::tool_metrics::Metrics;

use super::{answer, call, run, stats};

/// Trap 25.
#[tokio::test(start_paused = true)]
async fn all_layers_and_services_of_one_handle_count_together() {
    let metrics = Metrics::new();
    let layer = metrics.layer();
    for layer in [layer.clone(), layer, metrics.clone().layer()] {
        let route = layer.layer(service_fn(answer));
        route.clone().oneshot(call("works")).await.unwrap();
        route.oneshot(call("works")).await.unwrap();
    }
    assert_eq!(stats(&metrics, "works").calls, 6);
}

#[tokio::test(start_paused = true)]
async fn two_handles_share_nothing() {
    let (a, b) = (Metrics::new(), Metrics::new());
    run(&a, "works").await;
    assert_eq!((stats(&a, "works").calls, stats(&b, "works").calls), (1, 0));
}
