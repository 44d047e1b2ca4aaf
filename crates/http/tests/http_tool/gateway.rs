//! A folder of files as an MCP server, for a client of somebody else.

use std::{fs, path::PathBuf, process::Stdio, time::Duration};

use bytes::Bytes;
use http::{Response, StatusCode};
use rmcp::transport::{
    StreamableHttpServerConfig, StreamableHttpService,
    streamable_http_server::session::local::LocalSessionManager,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, process::Command, time::timeout};
use tower::ServiceBuilder;
use tower_toolcall::{ServiceBuilderExt, validate::Schemas};
use tower_toolcall_http::{ReqwestClient, ToolManifest};
use tower_toolcall_mcp::{self as mcp, Catalog, GatewayHandler};

use crate::kit::{Body, Got, Server, full};

/// The API: orders, and deliveries that are done when they have been asked for twice.
fn api(n: usize, got: &Got) -> Response<Body> {
    let (method, path) = (got.method().as_str(), got.uri().path());
    let (status, body) = match (method, path) {
        ("POST", "/shops/no%201/orders") => (200, json!({ "order": 7, "of": body(got) })),
        ("POST", "/shops/no%201/deliveries") => (202, json!({ "delivery_id": n })),
        ("GET", "/deliveries/1") if n < 3 => (200, json!({ "state": "baking" })),
        ("GET", "/deliveries/1") => (200, json!({ "state": "delivered", "report": "warm" })),
        ("POST", "/shops/closed/orders") => (409, json!({ "error": "the shop is closed" })),
        _ => (404, json!({})),
    };
    let mut answer = Response::new(full(body.to_string()));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    answer
}

fn body(got: &Got) -> Value {
    serde_json::from_slice(got.body()).unwrap()
}

fn schema(properties: &[&str]) -> Value {
    let text = |name: &&str| (name.to_string(), json!({ "type": "string" }));
    let texts: serde_json::Map<_, _> = properties.iter().map(text).collect();
    json!({ "type": "object", "properties": texts, "required": properties })
}

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn folder(at: &str) -> Folder {
    let folder = std::env::temp_dir().join(format!("http-tools-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let order = json!({
        "name": "create_order",
        "description": "Orders a pizza.",
        "input_schema": schema(&["shop", "pizza"]),
        "execution_profile": {
            "url_template": format!("{at}/shops/{{{{ shop }}}}/orders"),
            "body_template": r#"{"pizza": "{{ pizza }}"}"#,
        },
    });
    let deliver = json!({
        "name": "deliver",
        "description": "Delivers an order.",
        "input_schema": schema(&["shop"]),
        "execution_profile": {
            "mode": "async_poll",
            "url_template": format!("{at}/shops/{{{{ shop }}}}/deliveries"),
            "poll_config": {
                "status_url_template": format!("{at}/deliveries/{{{{ delivery_id }}}}"),
                "status_field_path": "state",
                "completed_values": ["delivered"],
                "result_field_path": "report",
                "interval_seconds": 0.01,
            },
        },
    });
    for (name, manifest) in [("order.json", order), ("deliver.json", deliver)] {
        fs::write(folder.join(name), manifest.to_string()).unwrap();
    }
    Folder(folder)
}

/// As the docs have it: files, a stack for each, a router, a gateway.
fn gateway(folder: &Folder) -> GatewayHandler {
    let manifests = ToolManifest::read_dir(&folder.0).unwrap();
    let client = ReqwestClient::new().unwrap();
    let schemas = Schemas::new();
    Catalog::new(manifests.iter().map(ToolManifest::definition)).put_schemas(&schemas);
    let mut router = mcp::router();
    for manifest in manifests {
        let tool = ServiceBuilder::new()
            .option_layer(manifest.poll_layer().unwrap())
            .tool_circuit_breaker()
            .tool_timeout(Duration::from_secs(30))
            .service(manifest.tool().unwrap().client::<_, Bytes>(client.clone()));
        router = router.described_tool(mcp::definition(manifest.definition()), tool);
    }
    let router = router.build().unwrap();
    let stack = ServiceBuilder::new()
        .tool_deadline(Duration::from_secs(60))
        .tool_validate(&schemas)
        .service(router.clone());
    GatewayHandler::new(stack, router)
}

/// What the client saw.
async fn seen_by_python(url: &str) -> Value {
    let root = concat!(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("python3");
    let child = command
        .arg(format!("{root}/tests/http_tool/client.py"))
        .arg(url)
        .env(
            "PYTHONPATH",
            format!("{root}/../../target/mcp-servers-python"),
        )
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(Duration::from_secs(60), child).await;
    let output = output.expect("the client hangs").unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let hint = "is it installed? Run `tests/run --no-run` once";
    assert!(output.status.success(), "{said}\n{hint}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// H3, H5: a REST API becomes tools of MCP by files.
#[tokio::test]
async fn a_folder_of_files_is_a_server_for_a_foreign_client() {
    let server = Server::start(api).await;
    let folder = folder(&server.at);
    let handler = gateway(&folder);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let mcp = StreamableHttpService::new(
        move || Ok(handler.clone()),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    );
    let app = axum::Router::new().nest_service("/mcp", mcp);
    tokio::spawn(async move { axum::serve(listener, app).await });

    let saw = seen_by_python(&url).await;
    let text = |step: &str| saw[step]["content"][0]["text"].as_str().unwrap();
    let of_json = |step: &str| serde_json::from_str::<Value>(text(step)).unwrap();
    let tools = saw["tools"].as_object().unwrap();
    assert!(tools.keys().eq(["create_order", "deliver"]), "{tools:?}");
    let mut shown = schema(&["shop"]);
    shown["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    assert_eq!(tools["deliver"]["inputSchema"], shown);
    assert_eq!(tools["deliver"]["description"], "Delivers an order.");
    assert_eq!(
        of_json("order"),
        json!({ "order": 7, "of": { "pizza": "Quattro \"Stagioni\"" } })
    );
    assert_eq!(text("delivery"), "warm");
    for (step, why) in [
        (
            "hostile",
            "`shop` has a slash or a control character, in a segment of a path",
        ),
        ("invalid", "pizza: is not of type"),
        ("refused", "the shop is closed"),
    ] {
        assert_eq!(saw[step]["isError"], true, "{step}");
        assert!(text(step).contains(why), "{}", text(step));
    }
    // An order, a delivery, twice its state, and an order that the API refuses.
    assert_eq!(server.count(), 5);
}

/// MCP's default is another one.
#[test]
fn the_schemas_of_files_are_of_draft_7() {
    let pair = json!([{ "type": "string" }, { "type": "integer" }]);
    let manifest: ToolManifest = serde_json::from_value(json!({
        "name": "pair",
        "input_schema": { "properties": { "pair": { "items": pair } } },
        "execution_profile": { "url_template": "https://api.example.com/" },
    }))
    .unwrap();
    let schemas = Schemas::from(&Catalog::new([manifest.definition()]));
    let schema = schemas.get(None, "pair").unwrap();
    assert!(schema.is_valid(&json!({ "pair": ["a", 1] })));
    assert!(!schema.is_valid(&json!({ "pair": [1, "a"] })));
}

/// H-6: a client that trusts the list would repeat what only reads.
#[test]
fn a_get_that_must_not_run_twice_is_not_listed_as_one_that_only_reads() {
    for (method, replay_safe, hints) in [
        ("GET", None, (Some(true), None)),
        ("GET", Some(false), (None, None)),
        ("DELETE", Some(false), (None, None)),
        ("POST", Some(true), (None, Some(true))),
    ] {
        let profile = json!({
            "method": method, "url_template": "https://h/", "replay_safe": replay_safe,
        });
        let manifest = json!({ "name": "t", "execution_profile": profile });
        let manifest: ToolManifest = serde_json::from_value(manifest).unwrap();
        let listed = manifest.definition().annotations.unwrap();
        let found = (listed.read_only_hint, listed.idempotent_hint);
        assert_eq!(found, hints, "{method} {replay_safe:?}");
    }
}
