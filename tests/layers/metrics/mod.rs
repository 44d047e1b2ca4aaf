//! What is counted, when, and who sees it.

mod cancellation;
mod cardinality;
mod events;
#[cfg(all(feature = "tower", feature = "validate"))]
mod known;
mod outcomes;
mod reading;
mod sharing;
mod wiring;

use std::{
    future::{Future, pending},
    pin::Pin,
    time::Duration,
};

use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    ErrorKind, ToolCall, ToolError,
    tool_metrics::{Metrics, Stats},
};

pub(super) type Tools = BoxCloneSyncService<ToolCall, &'static str, ToolError>;
type Answer = Pin<Box<dyn Future<Output = Result<&'static str, BoxError>> + Send>>;

/// A server whose tools do what they are called.
pub(super) fn answer(call: ToolCall) -> Answer {
    let error = |kind| Err(ToolError::new(kind, "no").into());
    let tool = call.tool().to_owned();
    Box::pin(async move {
        match &*tool {
            "fails" => Err("?".into()),
            "times_out" => error(ErrorKind::Timeout),
            "skips" => error(ErrorKind::DeadlineExceeded),
            "cancels" => error(ErrorKind::Cancelled),
            "refuses" => error(ErrorKind::CircuitOpen),
            "panics" => panic!("the tool panics"),
            "hangs" => pending().await,
            "takes_a_second" => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok("answer")
            }
            name if name.starts_with("invented") => error(ErrorKind::NotFound),
            _ => Ok("answer"),
        }
    })
}

pub(super) fn tools(metrics: &Metrics) -> Tools {
    BoxCloneSyncService::new(
        ServiceBuilder::new()
            .layer(metrics.layer())
            .service(service_fn(answer)),
    )
}

pub(super) fn call(tool: &str) -> ToolCall {
    ToolCall::new(tool).with_server("docs")
}

pub(super) async fn run(metrics: &Metrics, tool: &str) {
    let _ = tools(metrics).oneshot(call(tool)).await;
}

pub(super) fn stats(metrics: &Metrics, tool: &str) -> Stats {
    let snapshot = metrics.snapshot();
    snapshot
        .tool(Some("docs"), tool)
        .cloned()
        .unwrap_or_default()
}
