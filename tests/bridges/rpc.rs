//! The JSON-RPC endpoint, by the specification of JSON-RPC 2.0 and its examples.

use expect_test::expect;
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn};
use tower_toolcall::{BoxError, MAX_DEPTH, ToolCall, serve::Routes};

use crate::kit::{self, LIMIT, Seen, Server, Tools, ms, post, seen, serve_axum};

async fn ask(server: &Server, body: impl Into<reqwest::Body>) -> Seen {
    seen(post(&server.url("/rpc"), body)).await
}

async fn start() -> Server {
    kit::axum(ms(60_000)).await
}

fn call(id: Value, tool: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool } })
}

fn error(id: Value, code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

const INVALID: &str = "Invalid Request";

/// E5: what is no call is answered by the protocol's own codes, and with 200.
#[tokio::test]
async fn bad_requests_have_the_codes_of_the_specification() {
    let server = start().await;
    let deep = "[".repeat(200) + &"]".repeat(200);
    let mut answers = String::new();
    for body in [
        "",
        "{",
        r#"{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]"#,
        r#"[{"jsonrpc": "2.0", "method": "sum", "id": "1"}, {"jsonrpc": "2.0", "method"]"#,
        "\"\u{fffd}",
        "1",
        "null",
        "[]",
        r#"{"jsonrpc": "2.0", "method": 1, "params": "bar"}"#,
        r#"{"method": "tools/call", "id": 4}"#,
        r#"{"jsonrpc": "1.0", "method": "tools/call", "id": "x"}"#,
        r#"{"jsonrpc": "2.0", "method": "tools/call", "id": [1]}"#,
        r#"{"jsonrpc": "2.0", "method": "tools/call", "id": true}"#,
        r#"{"jsonrpc": "2.0", "method": "tools/call", "id": "\ud800"}"#,
        r#"{"jsonrpc": "2.0", "method": "tools/call", "id": 1e999}"#,
        r#"{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "tools/call"}"#,
        r#"{"jsonrpc": "2.0", "method": "tools/list", "id": 5}"#,
        r#"{"jsonrpc": "2.0", "method": "tools/call", "id": 5}"#,
        r#"{"jsonrpc": "2.0", "method": "tools/call", "id": 5, "params": ["ok"]}"#,
        &format!(
            r#"{{"jsonrpc": "2.0", "method": "tools/call", "id": 5, "params": {{"name": {deep}}}}}"#
        ),
        r#"{"jsonrpc": "2.0", "method": "tools/call", "id": 5, "params": {"name": "ok", "arguments": {"a": 1e999}}}"#,
        r#"{"jsonrpc": "2.0", "method": "tools/call", "id": 5, "params": {"name": "\ud800"}}"#,
        r#"{"jsonrpc": "2.0", "method": "tools/call", "id": 5, "params": null}"#,
        r#"{"jsonrpc": 2.0, "method": "tools/call", "id": 5, "params": {"name": "ok"}}"#,
        r#"{"jsonrpc": "2.0", "id": 5, "result": {}}"#,
        r#"{"jsonrpc": "2.0", "method": "rpc.discover", "id": 5, "params": 7}"#,
        r#"{"jsonrpc": "2.0", "method": "tools/call", "id": 5, "params": {}}"#,
        r#"{"jsonrpc": "2.0", "method": "tools/call", "id": 5, "params": {"name": 7}}"#,
        r#"{"jsonrpc": "2.0", "method": "tools/call", "id": 5, "params": {"name": "ok", "server": 7}}"#,
    ] {
        let got = ask(&server, body.to_owned()).await;
        assert_eq!(got.status, 200, "{body}");
        assert_eq!(got.content_type.as_deref(), Some("application/json"));
        answers += &format!("{}\n", got.body);
    }
    expect![[r#"
        {"error":{"code":-32700,"message":"Parse error"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32700,"message":"Parse error"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32700,"message":"Parse error"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32700,"message":"Parse error"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32700,"message":"Parse error"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"Invalid Request"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"Invalid Request"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"The batch is empty"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"Invalid Request"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"Invalid Request"},"id":4,"jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"Invalid Request"},"id":"x","jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"Invalid Request"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"Invalid Request"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"Invalid Request"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"Invalid Request"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"Invalid Request"},"id":null,"jsonrpc":"2.0"}
        {"error":{"code":-32601,"message":"Method not found"},"id":5,"jsonrpc":"2.0"}
        {"error":{"code":-32602,"message":"`params` is not an object"},"id":5,"jsonrpc":"2.0"}
        {"error":{"code":-32602,"message":"`params` is not an object"},"id":5,"jsonrpc":"2.0"}
        {"error":{"code":-32602,"message":"`params` has too many levels, or an invalid number or escape"},"id":5,"jsonrpc":"2.0"}
        {"error":{"code":-32602,"message":"`params` has too many levels, or an invalid number or escape"},"id":5,"jsonrpc":"2.0"}
        {"error":{"code":-32602,"message":"`params` has too many levels, or an invalid number or escape"},"id":5,"jsonrpc":"2.0"}
        {"error":{"code":-32602,"message":"`params` is not an object"},"id":5,"jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"Invalid Request"},"id":5,"jsonrpc":"2.0"}
        {"error":{"code":-32600,"message":"Invalid Request"},"id":5,"jsonrpc":"2.0"}
        {"error":{"code":-32601,"message":"Method not found"},"id":5,"jsonrpc":"2.0"}
        {"error":{"code":-32602,"message":"`params.name` is not a string"},"id":5,"jsonrpc":"2.0"}
        {"error":{"code":-32602,"message":"`params.name` is not a string"},"id":5,"jsonrpc":"2.0"}
        {"error":{"code":-32602,"message":"`params.server` is not a string"},"id":5,"jsonrpc":"2.0"}
    "#]].assert_eq(&answers);
    assert_eq!(
        ask(&server, vec![b'"', 0xff, b'"']).await.body["error"]["code"],
        -32700
    );
    assert_eq!(server.tools.begun(), 0);
}

/// E5: wrong arguments are invalid params, and the tool is not called.
#[tokio::test]
async fn wrong_arguments_say_what_is_wrong_and_quote_nothing() {
    let server = start().await;
    let mut deep = json!(1);
    for _ in 0..122 {
        deep = json!([deep]);
    }
    let mut errors = String::new();
    for (name, arguments) in [
        ("ok", json!("hunter2")),
        ("", json!({})),
        ("ok", json!({ "a": deep })),
    ] {
        let params = json!({ "name": name, "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let got = ask(&server, body.to_string()).await;
        errors += &format!("{}\n", got.body["error"]);
    }
    expect![[r#"
        {"code":-32602,"data":{"code":"TOOL_INVALID_INPUT","execution":"not_started","retryable":false,"tool_id":"ok"},"message":"tool arguments must be a JSON object, not a string"}
        {"code":-32602,"data":{"code":"TOOL_INVALID_INPUT","execution":"not_started","retryable":false,"tool_id":""},"message":"the tool name is empty"}
        {"code":-32602,"data":{"code":"TOOL_INVALID_INPUT","execution":"not_started","retryable":false,"tool_id":"ok"},"message":"the arguments are nested deeper than 120 levels"}
    "#]].assert_eq(&errors);
    for name in ["", "a\nb", &"x".repeat(257)] {
        let params = json!({ "name": "ok", "server": name });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let got = ask(&server, body.to_string()).await;
        assert_eq!(got.body["error"]["code"], -32602, "{name:?}");
    }
    assert_eq!(server.tools.begun(), 0);
}

/// Ids come back as they were written, whatever a parser would make of them.
#[tokio::test]
async fn ids_are_echoed_exactly() {
    let server = start().await;
    for id in [
        "1",
        "-7",
        "1.0",
        "1e2",
        "-0",
        "1.5",
        r#""null""#,
        "123456789012345678901234567890",
        r#""a\u0041\n""#,
        r#""""#,
        "null",
    ] {
        let body = format!(
            r#"{{ "id" : {id} , "jsonrpc":"2.0","method":"tools/call","params":{{"name":"text"}}}}"#
        );
        let response = post(&server.url("/rpc"), body).send().await.unwrap();
        let text = response.text().await.unwrap();
        assert_eq!(
            text,
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"12 degrees"}}"#)
        );
    }
}

/// JSON has many ways to write a word.
#[tokio::test]
async fn escapes_change_nothing() {
    let server = start().await;
    let body = r#"{ "\u006asonrpc": "2\u002e0", "\u0069d": 1, "method": "tools\/call", "params": { "n\u0061me": "t\u0065xt" } }"#;
    assert_eq!(
        ask(&server, body).await.body,
        json!({ "jsonrpc": "2.0", "id": 1, "result": "12 degrees" })
    );
}

/// The call's id is the request's, its server the one that the params name.
#[tokio::test]
async fn params_become_the_call() {
    let server = start().await;
    for (id, call_id) in [
        (json!("a-1"), "a-1"),
        (json!(17), "17"),
        (json!(null), "r-9"),
        // Echoed, but no id for logs.
        (json!("a\nb"), "r-9"),
        (json!("x".repeat(129)), "r-9"),
    ] {
        let body = json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "ok", "server": "docs", "arguments": { "q": [1] }, "_meta": { "progressToken": 1 } },
        });
        let request = post(&server.url("/rpc"), body.to_string()).header("x-request-id", "r-9");
        let got = seen(request).await.body["result"].take();
        assert_eq!(
            got,
            json!({ "arguments": { "q": [1] }, "server": "docs", "id": call_id, "has_deadline": true })
        );
    }
}

/// A notification runs and is not answered, not even if it fails; but nobody can tell what is no
/// request at all.
#[tokio::test]
async fn notifications_get_no_answer() {
    let server = start().await;
    let mut one = call(json!(0), "ok");
    one.as_object_mut().unwrap().remove("id");
    let mut two = one.clone();
    two["params"]["name"] = json!("down");
    let mut unknown = one.clone();
    unknown["method"] = json!("notifications/initialized");
    for body in [
        json!(one),
        json!(two),
        json!(unknown),
        json!([one, two, unknown]),
    ] {
        let got = ask(&server, body.to_string()).await;
        assert_eq!(got.status, 204);
        assert_eq!(got.content_type, None);
        assert_eq!(got.body, Value::Null);
    }
    assert_eq!(server.tools.begun(), 4);
}

/// X1, X3: one answer for each id, in the order of the batch, each call on its own.
#[tokio::test]
async fn a_batch_has_one_answer_for_each_id() {
    let server = start().await;
    let mut notification = call(json!(0), "ok");
    notification.as_object_mut().unwrap().remove("id");
    let batch = json!([
        call(json!(1), "slow"),
        notification,
        call(json!("two"), "text"),
        7,
        [],
        call(json!("two"), "panic"),
        { "jsonrpc": "2.0", "id": 6, "method": "other" },
    ]);
    let got = ask(&server, batch.to_string()).await;
    assert_eq!(got.status, 200);
    let answers = got.body.as_array().unwrap();
    assert_eq!(answers[0]["id"], 1);
    assert_eq!(answers[0]["error"]["code"], -32000);
    assert_eq!(
        answers[1],
        json!({ "jsonrpc": "2.0", "id": "two", "result": "12 degrees" })
    );
    assert_eq!(answers[2], error(json!(null), -32600, INVALID));
    assert_eq!(answers[3], error(json!(null), -32600, INVALID));
    assert_eq!(
        (&answers[4]["id"], &answers[4]["error"]["code"]),
        (&json!("two"), &json!(-32603))
    );
    assert_eq!(answers[5], error(json!(6), -32601, "Method not found"));
    assert_eq!(answers.len(), 6);
}

/// The fields in their order are no request, although serde would take them.
#[tokio::test]
async fn an_array_is_no_request() {
    let server = start().await;
    let batch = r#"[["2.0", 1, "tools/call", {"name": "ok"}]]"#;
    let got = ask(&server, batch).await;
    assert_eq!(got.body, json!([error(json!(null), -32600, INVALID)]));
    assert_eq!(server.tools.begun(), 0);
}

/// A batch of one is answered with an array of one.
#[tokio::test]
async fn a_batch_of_one_is_a_batch() {
    let server = start().await;
    let got = ask(&server, json!([call(json!(1), "text")]).to_string()).await;
    assert_eq!(
        got.body,
        json!([{ "jsonrpc": "2.0", "id": 1, "result": "12 degrees" }])
    );
}

/// X1: side by side. All of them are dropped with their client.
#[tokio::test]
async fn the_calls_of_a_batch_run_side_by_side() {
    let server = start().await;
    let batch: Vec<_> = (0..LIMIT).map(|id| call(json!(id), "hang")).collect();
    let request = post(&server.url("/rpc"), json!(batch).to_string());
    let client = tokio::spawn(request.send());
    server.tools.until_running(LIMIT).await;
    client.abort();
    server.tools.until_running(0).await;
}

/// Rule 6: a batch is bounded.
#[tokio::test]
async fn a_batch_that_is_too_long_runs_nothing() {
    let server = start().await;
    let batch: Vec<_> = (0..33).map(|id| call(json!(id), "ok")).collect();
    let got = ask(&server, json!(batch).to_string()).await;
    assert_eq!(
        got.body,
        error(json!(null), -32600, "A batch has at most 32 requests")
    );
    assert_eq!(server.tools.begun(), 0);
    let got = ask(&server, json!(batch[1..]).to_string()).await;
    assert_eq!(got.body.as_array().unwrap().len(), 32);
}

#[test]
fn a_batch_of_none_is_no_setting() {
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) });
    let error = Routes::new(tool).with_max_batch(0).unwrap_err();
    assert!(error.to_string().contains("max_batch"), "{error}");
}

/// What is not read is refused by HTTP as well.
#[tokio::test]
async fn a_body_that_is_not_read_is_refused_by_http() {
    let server = start().await;
    let got = seen(post(&server.url("/rpc"), "x".repeat(3 << 20))).await;
    assert_eq!(
        (got.status, got.body),
        (413, error(json!(null), -32600, "the body is too large"))
    );
    let request = reqwest::Client::new()
        .post(server.url("/rpc"))
        .body(call(json!(1), "ok").to_string());
    let got = seen(request).await;
    let message = "the request has to say `content-type: application/json`";
    assert_eq!(got.status, 415);
    assert_eq!(got.body, error(json!(null), -32600, message));
    assert_eq!(server.tools.begun(), 0);
}

/// N2: a stack that panics without a layer to catch it still answers.
#[tokio::test]
async fn a_bare_tool_that_panics_is_answered() {
    let tool = service_fn(|call: ToolCall| async move {
        match call.tool() {
            "panic" => panic!("boom"),
            "failing" => Err(BoxError::from("404 Not Found")),
            _ => Ok(()),
        }
    });
    let app = Routes::new(tool).into_router();
    let server = Server::start(Tools::default(), |listener| serve_axum(listener, app)).await;
    // Names are there although no layer has put them there.
    let panicked = ask(&server, call(json!(1), "panic").to_string()).await;
    expect![[r#"{"code":-32603,"data":{"code":"INTERNAL_ERROR","execution":"unknown","retryable":false,"tool_id":"panic"},"message":"The tool 'panic' failed because of an internal error."}"#]].assert_eq(&panicked.body["error"].to_string());
    let failed = seen(post(&server.url("/tools/failing/call"), "")).await;
    assert_eq!(failed.body["error"]["tool"], "failing");
    assert_eq!(
        seen(post(&server.url("/tools/panic/call"), ""))
            .await
            .status,
        500
    );
    assert_eq!(
        seen(post(&server.url("/tools/other/call"), "")).await.body,
        Value::Null
    );
}

/// The deepest answer that goes out is one that a client can read, in an answer to a batch too.
#[tokio::test]
async fn an_answer_is_no_deeper_than_clients_can_read() {
    let tool = service_fn(|call: ToolCall| async move {
        let levels = call.arguments()["levels"].as_u64().unwrap();
        let deep = (0..levels).fold(json!(0), |inner, _| json!([inner]));
        Ok::<_, BoxError>(deep)
    });
    let app = Routes::new(tool).into_router();
    let server = Server::start(Tools::default(), |listener| serve_axum(listener, app)).await;
    for (levels, answered) in [
        (MAX_DEPTH, true),
        (MAX_DEPTH + 1, false),
        (127, false),
        (128, false),
    ] {
        let arguments = json!({ "levels": levels });
        let got = seen(post(&server.url("/tools/t/call"), arguments.to_string())).await;
        assert_eq!(got.status, if answered { 200 } else { 502 }, "{levels}");
        let mut one = call(json!(1), "t");
        one["params"]["arguments"] = arguments;
        let got = ask(&server, json!([one]).to_string()).await;
        assert_eq!(got.body[0].get("result").is_some(), answered, "{levels}");
    }
}

/// Anything that is nearly a request.
fn nearly_a_request() -> impl Strategy<Value = String> {
    let scrap = prop_oneof![
        Just("null"),
        Just("1"),
        Just("-0.5e7"),
        Just("true"),
        Just("\"x\""),
        Just("\"\\ud800\""),
        Just("[]"),
        Just("{}"),
        Just("[1]"),
        Just("{\"name\":\"t\"}"),
        Just("\"2.0\""),
        Just("\"tools/call\""),
        Just("{\"name\":\"t\",\"arguments\":{\"a\":[1]}}"),
        Just("\u{e4}"),
    ];
    let key = prop_oneof![
        Just("id"),
        Just("jsonrpc"),
        Just("method"),
        Just("params"),
        Just("more"),
    ];
    let member = (key, scrap).prop_map(|(key, value)| format!("\"{key}\":{value}"));
    let object = vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(",")));
    let valid = Just(call(json!(1), "t").to_string());
    let one = prop_oneof![object, valid, "\\PC{0,8}"];
    let batch = vec(one.clone(), 0..5).prop_map(|all| format!("[{}]", all.join(",")));
    prop_oneof![one, batch]
}

proptest! {
    /// Rule 8: whatever comes in, what goes out is JSON-RPC, or nothing.
    #[test]
    fn whatever_is_asked_the_answer_is_one(body in nearly_a_request()) {
        let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(7) });
        let request = http::Request::post("/rpc").header("content-type", "application/json");
        let request = request.body(axum::body::Body::from(body)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let answer = runtime.block_on(async {
            let response = Routes::new(tool).into_router().oneshot(request).await.unwrap();
            let status = response.status().as_u16();
            (status, axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap())
        });
        match answer {
            (204, body) => prop_assert!(body.is_empty()),
            (status, body) => {
                prop_assert_eq!(status, 200);
                let answers = match serde_json::from_slice(&body).unwrap() {
                    Value::Array(answers) => { prop_assert!(!answers.is_empty()); answers }
                    one => vec![one],
                };
                for answer in answers {
                    prop_assert_eq!(&answer["jsonrpc"], "2.0");
                    prop_assert!(answer.get("id").is_some());
                    prop_assert!(answer["result"] == 7 || answer["error"]["code"].is_i64());
                    prop_assert_eq!(answer.as_object().unwrap().len(), 3);
                }
            }
        }
    }
}
