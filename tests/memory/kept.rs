//! Answers that layers keep.

use std::time::Duration;

use serde_json::{Value, json};
use tower::{Layer, Service, ServiceExt as _, service_fn};
use tower_toolcall::{AnyError, ToolCall, ToolError, cache::CacheLayer, once::OnceLayer};

use crate::{MB, counted};

/// Objects of one member, which take 90 times their text.
fn answer() -> Value {
    let items = vec![json!({ "a": 0.1 }); 6_000];
    json!(items)
}

/// Bytes that are kept of so many answers of 60 KB.
fn kept<L>(layer: L, calls: u32) -> i64
where
    L: Layer<Tool, Service: Service<ToolCall, Response = Value, Error = ToolError> + Clone>,
{
    let tool: Tool = service_fn(|_| std::future::ready(Ok(answer())));
    let stack = layer.layer(tool);
    let send = |n: u32| {
        let call = ToolCall::new("a")
            .with_agent_id("agent")
            .with_once_key(n.to_string());
        stack
            .clone()
            .oneshot(call.with_json(json!({ "n": n })).unwrap())
    };
    let taken = counted(async {
        for n in 0..calls {
            assert_eq!(send(n).await.unwrap(), answer());
        }
    });
    // Each is given as it was.
    let again = counted(async { assert_eq!(send(0).await.unwrap(), answer()) });
    assert!(again.bytes_max < 20 * MB, "{again:?}");
    taken.bytes_current
}

type Made = std::future::Ready<Result<Value, AnyError>>;
type Tool = tower::util::ServiceFn<fn(ToolCall) -> Made>;

/// S-2: what is kept is text, so the bound in bytes is one of memory.
#[test]
fn answers_that_are_made_once_are_kept_as_text() {
    let kept = kept(OnceLayer::new(), 100);
    assert!(kept < 7 * MB as i64, "{kept}");
}

/// S-2
#[test]
fn answers_in_a_cache_are_kept_as_text() {
    let kept = kept(
        CacheLayer::new(Duration::from_secs(60), ["a"]).unwrap(),
        100,
    );
    assert!(kept < 7 * MB as i64, "{kept}");
}
