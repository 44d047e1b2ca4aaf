//! X10, X11: which names and deadlines a bridge takes from a wire.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{Router as App, body::Body, extract::ConnectInfo, routing::post as on_post};
use http::{Extensions, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::sleep;
use tonic::metadata::MetadataMap;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Identity, ServiceBuilderExt, ToolCall, ToolError, Trust, VerifiedCaller,
    circuit_breaker::{CircuitBreakerHandle, CircuitBreakerLayer},
    flow::CallExt,
    identity::Resolve,
    serve::Routes,
};

use crate::kit::{Server, Tools, post, seen, serve_axum};

/// A table with one tool: `charge` of `pay`.
struct Pay;

impl Resolve for Pay {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        match (call.named_server(), call.tool()) {
            (None | Some("pay"), "pay__charge") | (Some("pay"), "charge") => {
                Ok(Some(Identity::new("charge").with_server("pay")))
            }
            _ => Err(
                ToolError::refusal(ErrorKind::NotFound, "there is no tool of this name")
                    .with_model_message("Did you mean 'pay__charge'?"),
            ),
        }
    }
}

struct Behind {
    routes: Routes,
    breakers: CircuitBreakerHandle,
    calls: Arc<AtomicUsize>,
}

/// A stack that shows what reaches the tool; `fails` is a tool that does.
fn behind() -> Behind {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let tool = service_fn(move |call: ToolCall| {
        count.fetch_add(1, SeqCst);
        let answer = json!({
            "tool": call.tool(),
            "server": call.server(),
            "has_deadline": call.deadline().is_some(),
            "untrusted": call.is_deadline_untrusted(),
        });
        async move {
            match answer["tool"] == "fails" || call.arguments().contains_key("fail") {
                true => Err(BoxError::from("503 Service Unavailable")),
                false => Ok(answer),
            }
        }
    });
    let layer = CircuitBreakerLayer::new();
    let breakers = layer.handle();
    let stack = ServiceBuilder::new().layer(layer).service(tool);
    Behind {
        routes: Routes::new(stack),
        breakers,
        calls,
    }
}

async fn send(app: &App, path: &str, body: Value, header: Option<&str>) -> (StatusCode, Value) {
    let mut request = Request::post(path).header("content-type", "application/json");
    if let Some(ms) = header {
        request = request.header("x-envoy-expected-rq-timeout-ms", ms);
    }
    let request = request.body(Body::from(body.to_string())).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap())
}

fn rpc(params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

/// V2: never ignored without a word, and never a key.
#[tokio::test]
async fn without_a_table_a_request_that_names_a_server_is_refused() {
    let Behind {
        routes,
        breakers,
        calls,
    } = behind();
    let app = routes.into_router();
    let reason = "no server can be named here: call the tool by its name alone";
    for n in 0..100 {
        let path = format!("/servers/server-{n}/tools/charge/call");
        let (status, body) = send(&app, &path, json!({}), None).await;
        assert_eq!(status, 404);
        assert_eq!(body["error"]["message"], reason);
        assert_eq!(body["error"]["code"], "TOOL_NOT_FOUND");
        let params = json!({ "name": "charge", "server": format!("server-{n}") });
        let (status, body) = send(&app, "/rpc", rpc(params), None).await;
        assert_eq!(status, 200);
        assert_eq!(body["error"]["code"], -32602);
        assert_eq!(body["error"]["message"], reason);
    }
    assert_eq!((calls.load(SeqCst), breakers.len()), (0, 0));
    let (status, body) = send(&app, "/tools/pay__charge/call", json!({}), None).await;
    assert_eq!((status, &body["server"]), (StatusCode::OK, &Value::Null));
    let unnamed = rpc(json!({ "name": "charge", "server": null }));
    let (_, body) = send(&app, "/rpc", unnamed, None).await;
    assert_eq!(body["result"]["tool"], "charge");
}

/// V2: one tool, whatever way it is called.
#[tokio::test]
async fn with_a_table_every_path_reaches_one_tool_and_one_breaker() {
    let Behind {
        routes,
        breakers,
        calls,
    } = behind();
    let app = routes.with_identity(Pay).into_router();
    let fail = json!({ "fail": true });
    let paths = [
        "/tools/pay__charge/call",
        "/servers/pay/tools/charge/call",
        "/servers/pay/tools/pay__charge/call",
    ];
    for path in paths {
        let (status, body) = send(&app, path, json!({}), None).await;
        assert_eq!(status, 200);
        assert_eq!(
            (&body["server"], &body["tool"]),
            (&json!("pay"), &json!("charge"))
        );
    }
    for path in paths.iter().cycle().take(5) {
        assert_eq!(send(&app, path, fail.clone(), None).await.0, 502);
    }
    let begun = calls.load(SeqCst);
    for path in paths {
        let (status, body) = send(&app, path, json!({}), None).await;
        assert_eq!(status, 503);
        let name = path.split('/').rev().nth(1).unwrap();
        assert_eq!(body["error"]["tool"], name, "as the caller spelled it");
    }
    for params in [
        json!({ "name": "charge", "server": "pay" }),
        json!({ "name": "pay__charge" }),
    ] {
        let (_, body) = send(&app, "/rpc", rpc(params.clone()), None).await;
        assert_eq!(body["error"]["code"], -32001);
        assert_eq!(body["error"]["data"]["tool_id"], params["name"]);
    }
    assert_eq!((calls.load(SeqCst), breakers.len()), (begun, 1));
}

/// V2.
#[tokio::test]
async fn with_a_table_invented_names_make_no_key_and_hear_what_is_near() {
    let Behind {
        routes,
        breakers,
        calls,
    } = behind();
    let app = routes.with_identity(Pay).into_router();
    for n in 0..1000 {
        let path = match n % 2 {
            0 => format!("/servers/server-{n}/tools/charge/call"),
            _ => format!("/tools/tool-{n}/call"),
        };
        let (status, body) = send(&app, &path, json!({}), None).await;
        assert_eq!(status, 404);
        assert_eq!(body["error"]["message"], "Did you mean 'pay__charge'?");
        let params = json!({ "name": "charge", "server": format!("server-{n}") });
        let (_, body) = send(&app, "/rpc", rpc(params), None).await;
        assert_eq!(body["error"]["code"], -32602);
        assert_eq!(body["error"]["message"], "Did you mean 'pay__charge'?");
    }
    assert_eq!((calls.load(SeqCst), breakers.len()), (0, 0));
}

/// X11: a mesh of one's own, whose peer has resolved the names.
#[tokio::test]
async fn servers_are_believed_where_callers_are_trusted() {
    let Behind {
        routes, breakers, ..
    } = behind();
    let app = routes.trust_servers().into_router();
    let path = "/servers/pay/tools/charge/call";
    let (status, body) = send(&app, path, json!({}), None).await;
    assert_eq!((status, &body["server"]), (StatusCode::OK, &json!("pay")));
    let params = json!({ "name": "charge", "server": "shop" });
    let (_, body) = send(&app, "/rpc", rpc(params), None).await;
    assert_eq!(body["result"]["server"], "shop");
    assert_eq!(breakers.len(), 2);
}

/// V2: an extractor knows no table.
#[tokio::test]
async fn a_call_out_of_a_handlers_request_has_no_server() {
    async fn call(call: ToolCall) -> String {
        json!({ "server": call.server(), "tool": call.tool() }).to_string()
    }
    let app = App::new()
        .route("/a/{tool}", on_post(call))
        .route("/b/{server}/{tool}", on_post(call));
    let (status, body) = send(&app, "/a/charge", json!({}), None).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body, json!({ "server": null, "tool": "charge" }));
    let (status, body) = send(&app, "/b/pay/charge", json!({}), None).await;
    assert_eq!(status, 500);
    let reason = "a `ToolCall` out of a request takes no parameter `server`";
    assert_eq!(body["error"]["message"], reason);
}

/// V2, over a real connection.
#[tokio::test]
async fn names_are_resolved_over_a_socket() {
    let Behind {
        routes, breakers, ..
    } = behind();
    let app = routes.with_identity(Pay).into_router();
    let server = Server::start(Tools::default(), |listener| serve_axum(listener, app)).await;
    for path in ["/tools/pay__charge/call", "/servers/pay/tools/charge/call"] {
        let got = seen(post(&server.url(path), "{}")).await;
        assert_eq!((got.status, &got.body["server"]), (200, &json!("pay")));
    }
    let got = seen(post(&server.url("/servers/x/tools/charge/call"), "{}")).await;
    assert_eq!(got.status, 404);
    assert_eq!(breakers.len(), 1);
}

/// V3: over plain HTTP and JSON-RPC.
#[tokio::test]
async fn a_deadline_in_a_header_is_taken_only_where_it_is_asked_for() {
    for (trust, taken, untrusted) in [
        (None, false, false),
        (Some(Trust::Untrusted), true, true),
        (Some(Trust::Trusted), true, false),
    ] {
        let mut routes = behind().routes;
        if let Some(trust) = trust {
            routes = routes.with_deadlines(trust);
        }
        let app = routes.into_router();
        let expected = (json!(taken), json!(untrusted));
        let (_, body) = send(&app, "/tools/t/call", json!({}), Some("60000")).await;
        let got = (body["has_deadline"].clone(), body["untrusted"].clone());
        assert_eq!(got, expected, "{trust:?}");
        let ask = rpc(json!({ "name": "t" }));
        let (_, body) = send(&app, "/rpc", ask, Some("60000")).await;
        let body = &body["result"];
        let got = (body["has_deadline"].clone(), body["untrusted"].clone());
        assert_eq!(got, expected, "{trust:?}");
    }
}

/// V3: the caller waits from when it has asked, however slowly it sends the rest.
#[tokio::test(start_paused = true)]
async fn the_time_in_which_a_body_arrives_counts_for_the_deadline() {
    let slow = service_fn(|_: ToolCall| async {
        sleep(Duration::from_millis(300)).await;
        Ok::<_, BoxError>("done")
    });
    let stack = ServiceBuilder::new()
        .tool_timeout(Duration::from_secs(10))
        .service(slow);
    let routes = Routes::new(stack).with_deadlines(Trust::Untrusted);
    let app = routes.into_router();
    for (path, body) in [
        ("/tools/t/call", json!({})),
        ("/rpc", rpc(json!({ "name": "t" }))),
    ] {
        for (arrives_ms, in_time) in [(500, true), (900, false)] {
            let text = body.to_string();
            let body = Body::from_stream(futures_util::stream::once(async move {
                sleep(Duration::from_millis(arrives_ms)).await;
                Ok::<_, BoxError>(text)
            }));
            let request = Request::post(path)
                .header("content-type", "application/json")
                .header("x-envoy-expected-rq-timeout-ms", "1000");
            let response = app.clone().oneshot(request.body(body).unwrap());
            let body = response.await.unwrap().into_body();
            let bytes = body.collect().await.unwrap().to_bytes();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            assert_eq!(text.contains("done"), in_time, "{path}: {text}");
        }
    }
}

/// V3: strangers who wait half a second say nothing of a tool that takes longer.
#[tokio::test(start_paused = true)]
async fn deadlines_of_strangers_open_no_breaker() {
    for (trust, opens) in [
        (None, false),
        (Some(Trust::Untrusted), false),
        (Some(Trust::Trusted), true),
    ] {
        let slow = service_fn(|_: ToolCall| async {
            sleep(Duration::from_secs(2)).await;
            Ok::<_, BoxError>("done")
        });
        let layer = CircuitBreakerLayer::new();
        let breakers = layer.handle();
        let stack = ServiceBuilder::new()
            .layer(layer)
            .tool_timeout(Duration::from_secs(10))
            .service(slow);
        let mut routes = Routes::new(stack);
        if let Some(trust) = trust {
            routes = routes.with_deadlines(trust);
        }
        let app = routes.into_router();
        for _ in 0..5 {
            let (status, _) = send(&app, "/tools/t/call", json!({}), Some("501")).await;
            assert_eq!(status, if trust.is_some() { 504 } else { 200 });
        }
        assert_eq!(breakers.breakers()[0].is_open(), opens, "{trust:?}");
    }
}

/// V3: over gRPC.
#[test]
fn a_deadline_in_metadata_is_taken_only_where_it_is_asked_for() {
    let mut metadata = MetadataMap::new();
    metadata.insert("grpc-timeout", "300m".parse().unwrap());
    metadata.insert("x-envoy-expected-rq-timeout-ms", "501".parse().unwrap());
    let call = || ToolCall::new("t").with_grpc_metadata(&metadata);
    assert_eq!(call().deadline(), None);
    for (trust, untrusted) in [(Trust::Untrusted, true), (Trust::Trusted, false)] {
        let call = call().with_grpc_deadline(&metadata, trust);
        assert!(call.deadline().is_some());
        assert_eq!(call.is_deadline_untrusted(), untrusted);
    }
}

/// A request as a server has it that knows its peers; `is` puts what else is known into the
/// extensions.
async fn send_from(app: &App, (path, body): (&str, Value), is: impl Fn(&mut Extensions)) -> u16 {
    let mut request = Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    is(request.extensions_mut());
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&bytes).unwrap();
    match body["error"]["code"].as_i64() {
        Some(-32001) => 503,
        Some(_) => 502,
        None => status,
    }
}

fn peer(address: [u8; 4]) -> impl Fn(&mut Extensions) {
    move |extensions| {
        let peer = SocketAddr::from((address, 50_000));
        extensions.insert(ConnectInfo(peer));
    }
}

fn caller(name: &'static str) -> impl Fn(&mut Extensions) {
    move |extensions| {
        extensions.insert(VerifiedCaller::new(name));
        peer([192, 0, 2, 1])(extensions);
    }
}

/// S-3: what one client's arguments cause is refused to that client alone, on both endpoints.
#[tokio::test]
async fn a_clients_failing_arguments_refuse_the_tool_to_its_address_alone() {
    let plain = |arguments| ("/tools/charge/call", arguments);
    let by_rpc = |arguments| {
        let params = json!({ "name": "charge", "arguments": arguments });
        ("/rpc", rpc(params))
    };
    let (alice, bob) = (peer([192, 0, 2, 1]), peer([192, 0, 2, 2]));
    let asks: [&dyn Fn(Value) -> (&'static str, Value); 2] = [&plain, &by_rpc];
    for ask in asks {
        let app = behind().routes.into_router();
        for _ in 0..5 {
            let status = send_from(&app, ask(json!({ "fail": true })), &alice).await;
            assert_eq!(status, 502);
        }
        assert_eq!(send_from(&app, ask(json!({})), &alice).await, 503);
        assert_eq!(send_from(&app, ask(json!({})), &bob).await, 200);
    }
}

/// S-3: a caller that a layer in front has verified is known by its name, and not by its address.
#[tokio::test]
async fn a_verified_callers_failing_arguments_refuse_the_tool_to_it_alone() {
    let app = behind().routes.into_router();
    for _ in 0..5 {
        let asks = ("/tools/charge/call", json!({ "fail": true }));
        assert_eq!(send_from(&app, asks, caller("alice")).await, 502);
    }
    let asks = || ("/tools/charge/call", json!({}));
    assert_eq!(send_from(&app, asks(), caller("alice")).await, 503);
    assert_eq!(send_from(&app, asks(), caller("bob")).await, 200);
    assert_eq!(send_from(&app, asks(), peer([192, 0, 2, 1])).await, 200);
}

/// The same for gRPC and for a service of hyper's, which make their calls themselves.
#[test]
fn extensions_say_who_has_sent_a_request() {
    let mut request = tonic::Request::new(());
    request
        .extensions_mut()
        .insert(VerifiedCaller::new("alice"));
    let call = ToolCall::new("search").with_grpc_metadata(request.metadata());
    let call = call.with_request_extensions(request.extensions());
    assert_eq!(call.agent_id(), Some("alice"));
    assert!(!call.has_unverified_principal());

    let mut extensions = Extensions::new();
    let call = ToolCall::new("search").with_request_extensions(&extensions);
    assert_eq!((call.agent_id(), call.session_id()), (None, None));
    peer([192, 0, 2, 7])(&mut extensions);
    let call = call.with_request_extensions(&extensions);
    assert_eq!(call.session_id(), Some("192.0.2.7"));
    assert!(call.has_unverified_principal());
    // What the handler has set itself stays verified.
    let call = ToolCall::new("search").with_agent_id("bot");
    let call = call.with_request_extensions(&extensions);
    assert!(!call.has_unverified_principal());
}
