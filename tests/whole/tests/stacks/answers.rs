//! Answers of MCP tools and HTTP tools in layers and routers that read them.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, InputRequiredResult, MetaObject, TextContent,
};
use serde_json::json;
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    ErrorKind, ModelText as _, ToolCall, ToolError,
    cache::CacheLayer,
    once::OnceLayer,
    repeat_guard::{RepeatGuardLayer, TOOL_REPEATED},
    router::{IntoAnswer, Json},
};
use tower_toolcall_http::HttpTool;
use tower_toolcall_mcp::{McpAnswer, McpExtras};
use tower_toolcall_test::{Script, Step};

fn query(text: &str) -> ToolCall {
    let call = ToolCall::new("search").with_session_id("s1");
    call.with_json(json!({ "query": text })).unwrap()
}

/// A tool that reads a file, and one that edits it as long as it is as the model has read it.
async fn reads_again<Res: Clone + Send + Sync + 'static>(answers: [Res; 2]) -> u64 {
    let layer = RepeatGuardLayer::new();
    let [before, after] = answers;
    let read = Script::new([Step::ok(before), Step::ok(after)]);
    let edit = Script::<&str>::always(Step::fail(ErrorKind::InvalidInput));
    let file = query("read a.txt");
    layer
        .layer(read.clone())
        .oneshot(file.clone())
        .await
        .ok()
        .unwrap();
    for _ in 0..3 {
        let edited = layer.layer(edit.clone()).oneshot(query("edit a.txt"));
        assert_ne!(edited.await.unwrap_err().code(), TOOL_REPEATED);
    }
    layer.layer(read).oneshot(file).await.ok().unwrap();
    let _ = layer.layer(edit.clone()).oneshot(query("edit a.txt")).await;
    edit.count()
}

/// D8: a success whose answer differs from the one before is news; the same answer is none.
#[tokio::test(start_paused = true)]
async fn another_answer_to_the_same_call_lets_other_calls_be_tried_again() {
    assert_eq!(reads_again(["old", "new"]).await, 4);
    assert_eq!(reads_again(["old", "old"]).await, 3);
    assert_eq!(reads_again([json!({ "a": 1 }), json!({ "a": 2 })]).await, 4);
    assert_eq!(
        reads_again([json!({ "a": 1, "b": [] }), json!({ "b": [], "a": 1 })]).await,
        3
    );
    // Answers of a type that the layer does not know are not compared.
    assert_eq!(reads_again([Duration::ZERO, Duration::MAX]).await, 3);
}

/// D8: the answers of MCP's tools are compared too.
#[tokio::test(start_paused = true)]
async fn another_answer_of_an_mcp_tool_lets_other_calls_be_tried_again() {
    let says =
        |text: &str| McpAnswer::from(CallToolResult::success(vec![ContentBlock::text(text)]));
    assert_eq!(reads_again([says("old"), says("new")]).await, 4);
    assert_eq!(reads_again([says("old"), says("old")]).await, 3);
}

/// D8: answers of HTTP tools are compared by status and body; a date in a header is not news.
#[tokio::test(start_paused = true)]
async fn another_answer_of_an_http_tool_lets_other_calls_be_tried_again() {
    let says = async |date: &'static str, status: u16, body: &'static str| {
        let client = tower::service_fn(move |_: Request<Full<Bytes>>| {
            let answer = Response::builder().status(status).header("date", date);
            let answer = answer.body(Full::<Bytes>::from(body)).unwrap();
            std::future::ready(Ok::<_, Infallible>(answer))
        });
        let tool = HttpTool::new(Method::GET, "http://localhost/").unwrap();
        tool.client(client).oneshot(query("read")).await.unwrap()
    };
    for (old, new) in [("old", "new"), (r#"{"a":1}"#, r#"{"a":2}"#)] {
        let first = says("Mon", 200, old).await;
        assert_eq!(
            reads_again([first.clone(), says("Tue", 200, old).await]).await,
            3
        );
        assert_eq!(
            reads_again([first.clone(), says("Mon", 200, new).await]).await,
            4
        );
        assert_eq!(reads_again([first, says("Mon", 201, old).await]).await, 4);
    }
}

/// D8: what the protocol adds to an answer, such as the id of a request or a time, is not news.
#[tokio::test(start_paused = true)]
async fn meta_of_an_mcp_answer_is_not_compared() {
    let meta = |id: u32| {
        let mut meta = MetaObject::default();
        meta.insert("requestId".into(), json!(id));
        meta
    };
    let says = |text: &str, id| {
        let text = TextContent::new(text).with_meta(meta(id));
        let result = CallToolResult::success(vec![ContentBlock::Text(text)]);
        McpAnswer::from(result.with_meta(Some(meta(id))))
    };
    assert_eq!(reads_again([says("old", 1), says("old", 2)]).await, 3);
    assert_eq!(reads_again([says("old", 1), says("new", 2)]).await, 4);
    let structured = |n, id| {
        let result = CallToolResult::structured(json!({ "n": n }));
        McpAnswer::from(result.with_meta(Some(meta(id))))
    };
    assert_eq!(reads_again([structured(1, 1), structured(1, 2)]).await, 3);
    assert_eq!(reads_again([structured(1, 1), structured(2, 1)]).await, 4);
}

/// D8: of long answers the beginning is compared, and the length of texts.
#[tokio::test(start_paused = true)]
async fn long_answers_are_compared_by_their_beginning() {
    let long = |first: &str, last: &str| format!("{first}{}{last}", "x".repeat(16 << 10));
    assert_eq!(reads_again([long("", "a"), long("", "b")]).await, 3);
    assert_eq!(reads_again([long("", "a"), long("", "bb")]).await, 4);
    assert_eq!(reads_again([long("a", ""), long("b", "")]).await, 4);
    let of_json = |[a, b]: [String; 2]| [json!([a]), json!([b])];
    let ends = of_json([long("", "a"), long("", "bb")]);
    assert_eq!(reads_again(ends).await, 3);
    let begins = of_json([long("a", ""), long("b", "")]);
    assert_eq!(reads_again(begins).await, 4);
    let numbers = |n: usize| json!((0..n).collect::<Vec<_>>());
    assert_eq!(reads_again([numbers(9_000), numbers(10_000)]).await, 3);
    assert_eq!(reads_again([numbers(900), numbers(1_000)]).await, 4);
}

/// An answer that asks for input ends nothing: the call is made again, with the input.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_asked_for_input_is_made_again_with_it() {
    let pay = || ToolCall::new("pay").with_agent_id("a1").with_once_key("k1");
    let tool = service_fn(|call: ToolCall| async move {
        let asks = InputRequiredResult::from_request_state("state");
        let done = CallToolResult::success(vec![ContentBlock::text("paid")]);
        Ok::<McpAnswer, ToolError>(match call.extensions().get::<McpExtras>() {
            None => asks.into(),
            Some(_) => done.into(),
        })
    });
    let cache = CacheLayer::new(Duration::from_secs(1), ["pay"]).unwrap();
    // MCP cache9: no answer to a question is kept for a call that was not asked.
    for (stack, keeps) in [
        (BoxCloneSyncService::new(OnceLayer::new().layer(tool)), true),
        (BoxCloneSyncService::new(cache.layer(tool)), false),
    ] {
        let first = stack.clone().oneshot(pay()).await.unwrap();
        assert!(matches!(*first, CallToolResponse::InputRequired(_)));
        let mut answered = pay();
        let extras = McpExtras::new().with_request_state("state");
        answered.extensions_mut().insert(extras);
        for (call, is_done) in [(answered, true), (pay(), keeps)] {
            let answer = stack.clone().oneshot(call).await.unwrap();
            let done = matches!(*answer, CallToolResponse::Complete(_));
            assert_eq!(done, is_done);
        }
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching#cache-key
//# Results produced by retrying a request through the multi round-trip requests
//# mechanism&mdash;that is, requests carrying `inputResponses` or `requestState`&mdash;MUST NOT be
//# cached, as they depend on inputs that are not part of the cache key.
/// MCP cache9: an answer to a question gets no answer that was kept for a call without one, nor
/// that of another answer.
#[tokio::test(start_paused = true)]
async fn a_call_with_an_answer_to_a_question_gets_no_kept_answer() {
    let with = |state: Option<&str>| {
        let mut call = ToolCall::new("pay").with_agent_id("a1");
        if let Some(state) = state {
            let extras = McpExtras::new().with_request_state(state);
            call.extensions_mut().insert(extras);
        }
        call
    };
    let cache = CacheLayer::new(Duration::from_secs(1), ["pay"]).unwrap();
    for is_once in [true, false] {
        let sent = Arc::new(AtomicU64::new(0));
        let runs = Arc::clone(&sent);
        let tool = service_fn(move |_: ToolCall| {
            let n = runs.fetch_add(1, SeqCst);
            let text = CallToolResult::success(vec![ContentBlock::text(n.to_string())]);
            async move { Ok::<_, ToolError>(McpAnswer::from(text)) }
        });
        let stack = match is_once {
            true => BoxCloneSyncService::new(OnceLayer::new().layer(tool)),
            false => BoxCloneSyncService::new(cache.layer(tool)),
        };
        // The last is a repetition, which a cache does not know.
        let again = if is_once { 3 } else { 4 };
        for (state, runs) in [
            (None, 1),
            (None, 1),
            (Some("a"), 2),
            (Some("b"), 3),
            (Some("a"), again),
        ] {
            stack.clone().oneshot(with(state)).await.unwrap();
            assert_eq!(sent.load(SeqCst), runs, "{state:?}");
        }
    }
}

fn response(answer: impl IntoAnswer<McpAnswer>) -> CallToolResult {
    answer.into_answer().unwrap().result().cloned().unwrap()
}

fn text(answer: impl IntoAnswer<McpAnswer>) -> String {
    answer.into_answer().unwrap().model_text().into_owned()
}

#[test]
fn results_of_mcp() {
    let result = CallToolResult::error(vec![ContentBlock::text("no such city")]);
    assert_eq!(response(result).is_error, Some(true));
    assert_eq!(text("text"), "text");
    assert_eq!(text("text".to_owned()), "text");
    assert_eq!(text(()), "");
    let object = || json!({ "a": 1 });
    for structured in [response(object()), response(Json(object()))] {
        assert!(structured.structured_content.is_some());
    }
    assert_eq!(text(object()), r#"{"a":1}"#);
    assert_eq!(text(Json(object())), r#"{"a":1}"#);
    // As it would be alone.
    let text = response(json!("a \"b\""));
    assert_eq!(text.content[0].as_text().unwrap().text, "a \"b\"");
    assert_eq!(text.structured_content, Some(json!("a \"b\"")));
    let nothing = response(json!(null));
    assert_eq!(nothing.content.len(), 0);
    assert_eq!(nothing.structured_content, None);
}
