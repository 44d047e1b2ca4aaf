//! Answers that layers keep.

use std::{future::ready, time::Duration};

use rmcp::model::{CallToolResult, ContentBlock, InputRequiredResult};
use serde_json::{Value, json};
use tower::{Layer, Service, ServiceExt as _, service_fn};
use tower_toolcall::{ErrorKind, ToolCall, ToolError, cache::CacheLayer, once::OnceLayer};
use tower_toolcall_mcp::McpAnswer;

use crate::{MB, counted};

/// Objects of one member, which take 90 times their text.
fn answer() -> Value {
    let items = vec![json!({ "a": 0.1 }); 6_000];
    json!(items)
}

/// A tool with these answers, each of its own.
macro_rules! tool {
    ($answer:expr) => {
        service_fn(|_: ToolCall| ready($answer as Result<_, ToolError>))
    };
}

/// One agent's call, different from those with other numbers.
fn call(n: u32) -> ToolCall {
    let call = ToolCall::new("a").with_agent_id("agent");
    let call = call.with_once_key(n.to_string());
    call.with_json(json!({ "n": n })).unwrap()
}

/// The call of a session that its caller has invented.
fn invented(n: u32) -> ToolCall {
    let call = ToolCall::new("a").with_session_id(format!("session {n}"));
    call.with_unverified_ids().with_once_key("k")
}

/// Bytes that are kept of so many calls.
fn kept<S>(stack: &S, calls: u32, call: fn(u32) -> ToolCall) -> i64
where
    S: Service<ToolCall, Error = ToolError> + Clone,
{
    let send = async {
        for n in 0..calls {
            let _ = stack.clone().oneshot(call(n)).await;
        }
    };
    counted(send).bytes_current
}

/// A cache that keeps answers of a megabyte.
fn cache() -> CacheLayer {
    let layer = CacheLayer::builder(Duration::from_secs(60), ["a"]);
    layer.with_max_answer(MB).build().unwrap()
}

fn assert_kept_as_text<S>(stack: &S)
where
    S: Service<ToolCall, Response = Value, Error = ToolError> + Clone,
{
    let bytes = kept(stack, 100, call);
    assert!(bytes < 7 * MB as i64, "{bytes}");
    // Each is given as it was.
    let again = counted(async {
        assert_eq!(stack.clone().oneshot(call(0)).await.unwrap(), answer());
    });
    assert!(again.bytes_max < 20 * MB, "{again:?}");
}

/// S-2: what is kept is text, so the bound in bytes is one of memory.
#[test]
fn answers_that_are_made_once_are_kept_as_text() {
    assert_kept_as_text(&OnceLayer::new().layer(tool!(Ok(answer()))));
}

/// S-2
#[test]
fn answers_in_a_cache_are_kept_as_text() {
    assert_kept_as_text(&cache().layer(tool!(Ok(answer()))));
}

/// S-2: 18 MB of answers, which a bound of keys and of each answer allows.
#[test]
fn once_keeps_eight_mebibytes_of_answers_of_a_principal() {
    let tool = tool!(Ok(json!("a".repeat(60_000))));
    let bytes = kept(&OnceLayer::new().layer(tool), 300, call);
    assert!((7_000_000..9_000_000).contains(&bytes), "{bytes}");
}

/// S-2
#[test]
fn a_cache_keeps_eight_mebibytes_of_answers_of_a_principal() {
    let tool = tool!(Ok(json!("a".repeat(900_000))));
    let bytes = kept(&cache().layer(tool), 40, call);
    assert!((7_000_000..9_000_000).contains(&bytes), "{bytes}");
}

/// S-2: an answer of MCP beyond `max_answer`.
#[test]
fn an_mcp_answer_that_is_too_large_is_not_kept() {
    let text = || vec![ContentBlock::text("a".repeat(1_000_000))];
    let tool = tool!(Ok(McpAnswer::from(CallToolResult::success(text()))));
    let bytes = kept(&OnceLayer::new().layer(tool), 30, call);
    assert!(bytes < 1_000_000, "{bytes}");
}

/// S-2: neither is another kind of result, which is not kept as text.
#[test]
fn an_mcp_result_that_asks_for_much_is_not_kept() {
    let tool = tool!(Ok(McpAnswer::from(
        InputRequiredResult::from_request_state("a".repeat(1_000_000))
    )));
    let bytes = kept(&OnceLayer::new().layer(tool), 30, call);
    assert!(bytes < 1_000_000, "{bytes}");
}

/// S-2: an answer of a type that no layer knows counts as `max_answer` bytes.
#[test]
fn answers_of_unknown_size_are_bounded_by_default() {
    let tool = tool!(Ok(vec![b'a'; 60_000]));
    let bytes = kept(&OnceLayer::new().layer(tool), 300, call);
    assert!(bytes < 9_000_000, "{bytes}");
}

/// S-2: errors are kept too.
#[test]
fn errors_that_are_kept_are_bounded() {
    let tool = tool!(Err::<(), _>({
        let error = ToolError::new(ErrorKind::Failed, "no");
        error.with_model_message("a".repeat(60_000))
    }));
    let bytes = kept(&OnceLayer::new().layer(tool), 300, call);
    assert!((7_000_000..9_000_000).contains(&bytes), "{bytes}");
}

/// S-2: half of the bytes for all principals together whose ids are free to invent.
#[test]
fn principals_that_were_not_verified_keep_half_of_the_bytes() {
    let tool = tool!(Ok(json!("a".repeat(60_000))));
    let bytes = kept(&OnceLayer::new().layer(tool), 1_000, invented);
    assert!((30_000_000..36_000_000).contains(&bytes), "{bytes}");
}
