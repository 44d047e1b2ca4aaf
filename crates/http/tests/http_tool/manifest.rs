//! Tools as files.

use std::{fs, time::Duration};

use http::{Method, Response};
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, ServiceBuilderExt, ToolCall, poll::PollLayer, token::UpstreamToken,
};
use tower_toolcall_http::{HttpTool, ToolManifest};

use crate::kit::{Got, Server, answered_by, call, full, hyper};

/// The pizzeria's, as it is stored.
fn order() -> Value {
    json!({
        "name": "create_order",
        "description": "Orders a pizza.",
        "input_schema": {
            "type": "object",
            "properties": {
                "pizza_type": { "type": "string" },
                "quantity": { "type": "integer" },
                "toppings": { "type": "array", "items": { "type": "string" } },
            },
            "required": ["pizza_type"],
        },
        "execution_profile": {
            "mode": "SYNC_HTTP",
            "method": "post",
            "url_template": "http://api.example.com/orders",
            "headers_template": r#"{
                "Content-Type": "application/json",
                "X-Request-ID": "{{ request_id | default(uuid()) }}",
                "Authorization": "Bearer {{ upstream_token }}"
            }"#,
            "body_template": r#"{
                "pizza_type": "{{ pizza_type }}",
                {% if toppings is defined %}"toppings": {{ toppings | tojson }},{% endif %}
                "quantity": {{ quantity | default(1) }}
            }"#,
            "required_audience": "pizzeria",
            "required_scopes": ["orders:write"],
            "source_path": "pizzeria/openapi.json",
        },
    })
}

/// A job at this server.
fn deliver(at: &str) -> Value {
    json!({
        "name": "deliver",
        "input_schema": { "properties": { "shop": { "type": "string" } } },
        "execution_profile": {
            "mode": "async_poll",
            "url_template": format!("{at}/shops/{{{{ shop }}}}/deliveries"),
            "headers_template": { "X-Shop": "{{ shop }}", "Content-Type": "application/json" },
            "body_template": "{}",
            "poll_config": {
                "status_url_template": format!("{at}/shops/{{{{ shop }}}}/deliveries/{{{{ id }}}}"),
                "status_field_path": "state",
                "result_field_path": "data.at",
                "error_field_path": "$.why",
                "interval_seconds": 0.01,
                "max_attempts": 5,
            },
        },
    })
}

fn manifest(json: Value) -> ToolManifest {
    serde_json::from_value(json).unwrap()
}

/// H3, E.4: as its authors expect.
#[tokio::test]
async fn the_pizzerias_file_is_a_tool() {
    let manifest = manifest(order());
    assert_eq!(
        (manifest.name(), manifest.required_audience()),
        ("create_order", Some("pizzeria"))
    );
    assert_eq!(manifest.required_scopes(), ["orders:write"]);
    assert_eq!(manifest.source_path(), Some("pizzeria/openapi.json"));
    assert!(manifest.poll_layer().unwrap().is_none());
    let leaf = answered_by(manifest.tool().unwrap(), |got: &Got| {
        assert_eq!(
            (
                got.method(),
                got.headers()["x-request-id"].to_str().unwrap()
            ),
            (&Method::POST, "r-1")
        );
        assert_eq!(got.headers()["authorization"], "Bearer t0k3n");
        Response::new(full(got.body().clone()))
    });
    let arguments = json!({ "pizza_type": "Quattro \"Stagioni\"", "toppings": ["ham", "\"}"] });
    let mut call = call(arguments).with_id("r-1");
    call.extensions_mut().insert(UpstreamToken::new("t0k3n"));
    let sent = leaf.oneshot(call).await.unwrap().into_json();
    let expected =
        json!({ "pizza_type": "Quattro \"Stagioni\"", "toppings": ["ham", "\"}"], "quantity": 1 });
    assert_eq!(sent, expected);
}

/// H5: the same over sockets, with a job.
#[tokio::test]
async fn a_file_with_a_poll_config_waits_for_its_job() {
    let started = async |id: Value| {
        Server::start(move |n, got| {
            let body = match n {
                0 => json!({ "id": id }),
                1 => json!({ "state": "running" }),
                _ => json!({ "state": "completed", "data": { "at": got.uri().path() } }),
            };
            Response::new(full(body.to_string()))
        })
        .await
    };
    let run = |server: &Server| {
        let manifest = manifest(deliver(&server.at));
        let stack = ServiceBuilder::new()
            .option_layer(manifest.poll_layer().unwrap())
            .tool_timeout(Duration::from_secs(5))
            .service(manifest.tool().unwrap().client(hyper()));
        stack.oneshot(call(json!({ "shop": "a b" })))
    };
    // A job's own values are percent-encoded, and a `/` among them never is one of the path.
    let error = run(&started(json!("d/1")).await).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");

    let server = started(json!(17)).await;
    let answer = run(&server).await.unwrap();
    assert_eq!(answer.into_json(), json!("/shops/a%20b/deliveries/17"));
    assert_eq!(server.headers("x-shop"), ["a b"; 3]);
    // A poll has no body, and says of none what it is.
    assert_eq!(server.headers("content-type"), ["application/json", "", ""]);
}

/// Where the file is changed, to what, the field of the error, and its reason. H-6: a second POST
/// without its body is another request, and an error status never goes on. Values of a job are not
/// arguments: else each caller would choose by one whose job it is.
const WRONG: &str = r##"
tool name "" => name | empty
profile method "PO ST" => method | is none of `GET`
profile url_template "{{ host }}/x" => url | https://
profile url_template "http://a/{{ shops }}" => url | `shops`
profile headers_template "no JSON" => headers_template | not a JSON
profile headers_template {"Content-Type": "text/xml"} => headers_template | JSON
profile headers_template {"Host": "x"} => header host | client's own
profile headers_template {"X-A": 1} => headers_template | `X-A` is not a string
profile headers_template "{\"X-A\": 1}" => headers_template | `X-A` is not a string
profile headers_template "{\"X-A\": \"1\", \"x-a\": \"2\"}" => headers_template | `x-a` comes twice
profile headers_template "{\"X-A\": \"1\", \"X-A\": \"2\"}" => headers_template | `X-A` comes twice
profile headers_template ["X-A"] => headers_template | not a JSON object
profile headers_template 7 => headers_template | not a JSON object
profile headers_template {"Authorization": "Bearer {{ upstream_token }}"} => required_audience | missing
profile body_template "{\"a\": " => body |
profile poll_config {"pending_statuses": [202]} => status_url_template | missing
profile poll_config null => poll_config | missing
poll pending_statuses [202, 404] => pending_statuses | 404
poll status_url_template "x" => status_url_template | https://
poll status_url_template "http://api.example.com/{{ job.id }}" => status_url_template | `job.id` is within a value
poll status_field_path "$." => status_field_path | JSONPath
poll result_field_path "[" => result_field_path | JSONPath
poll error_field_path "[" => error_field_path | JSONPath
poll completed_values [] => completed_values | no state
poll completed_values ["failed"] => completed_values | failed
poll completed_values [["done"]] => completed_values | ["done"] is not a state
poll interval_seconds 0 => interval_seconds | zero
poll interval_seconds -1 => interval_seconds | -1
poll max_interval_seconds 0.0001 => max_interval_seconds | shorter
poll job_values {"typo": "$.id"} => job_values | `typo` is not in
poll backoff_multiplier 0.5 => backoff_multiplier | 0.5
poll max_attempts 0 => max_attempts | 0
"##;

#[test]
fn a_file_that_cannot_work_names_the_part() {
    let refused = |json: Value, field: &str, reason: &str| {
        let manifest = manifest(json);
        let tool = manifest.tool().map(drop);
        let error = tool.and_then(|()| manifest.poll_layer().map(drop));
        let error = error.unwrap_err();
        assert_eq!(error.field(), field, "{error}");
        assert!(error.reason().contains(reason), "{error}");
    };
    for row in WRONG.lines().filter(|row| !row.is_empty()) {
        let (change, error) = row.split_once(" => ").unwrap();
        let [part, key, value] = change.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let (field, reason) = error.split_once(" |").unwrap();
        let mut json = deliver("http://api.example.com");
        let part = match part {
            "profile" => &mut json["execution_profile"],
            "poll" => &mut json["execution_profile"]["poll_config"],
            _ => &mut json,
        };
        part[key] = serde_json::from_str(value).unwrap();
        refused(json, field, reason.trim());
    }
    // Nor does a path to the whole, or to the part, help while the URL has the dot.
    for path in ["$.job", "$.job.id"] {
        let mut json = deliver("http://api.example.com");
        let poll = &mut json["execution_profile"]["poll_config"];
        poll["status_url_template"] = "http://api.example.com/{{ job.id }}".into();
        poll["job_values"] = json!({ "job": path });
        refused(json, "status_url_template", "use a name without a dot");
    }
    let unknown = json!({ "name": "x", "execution_profil": {} });
    let unknown = serde_json::from_value::<ToolManifest>(unknown).unwrap_err();
    assert!(unknown.to_string().contains("execution_profil"));
}

/// The longest interval is 30 s, or as long as the first one.
#[test]
fn a_long_interval_alone_is_taken() {
    let mut json = deliver("http://api.example.com");
    json["execution_profile"]["poll_config"]["interval_seconds"] = json!(60);
    assert!(manifest(json).poll_layer().unwrap().is_some());
}

/// As E's files have fields that were left empty.
#[test]
fn null_is_a_field_that_is_not_there() {
    let mut json = deliver("http://api.example.com");
    for field in ["input_schema", "source_path", "description"] {
        json[field] = Value::Null;
    }
    for field in [
        "method",
        "headers_template",
        "required_audience",
        "required_scopes",
    ] {
        json["execution_profile"][field] = Value::Null;
    }
    for field in [
        "job_values",
        "status_field_path",
        "result_field_path",
        "error_field_path",
        "completed_values",
        "failed_values",
        "interval_seconds",
        "backoff_multiplier",
        "max_interval_seconds",
        "max_attempts",
    ] {
        json["execution_profile"]["poll_config"][field] = Value::Null;
    }
    let by_default = manifest(json).poll_layer().unwrap().unwrap();
    let text = format!("{by_default:?}");
    let numbers = PollLayer::new(());
    let numbers = format!("{numbers:?}");
    let (_, limits) = numbers.split_once("limits").unwrap();
    assert!(text.ends_with(limits), "{text}\n{limits}");

    let mut json = order();
    json["execution_profile"]["mode"] = Value::Null;
    json["execution_profile"]["poll_config"] = Value::Null;
    assert!(manifest(json).poll_layer().unwrap().is_none());
}

/// `[poll]` holds where the file says nothing.
#[test]
fn the_files_numbers_go_before_those_of_the_settings() {
    use tower_toolcall::settings::Settings;

    let mut json = deliver("http://api.example.com");
    let mut settings = Settings::default();
    settings.poll.polls = 7;
    settings.poll.interval = Duration::from_secs(4);
    settings.poll.budget = Some(Duration::from_secs(9));
    let layer = |json: Value| manifest(json).poll_layer_with(&settings).unwrap().unwrap();
    let text = format!("{:?}", layer(json.clone()));
    assert!(
        text.contains("10ms") && text.contains("polls: 5") && text.contains("budget: Some(9s)"),
        "{text}"
    );
    let config = &mut json["execution_profile"]["poll_config"];
    (config["interval_seconds"], config["max_attempts"]) = (Value::Null, Value::Null);
    let text = format!("{:?}", layer(json));
    assert!(text.contains("4s") && text.contains("polls: 7"), "{text}");
    assert!(
        manifest(order())
            .poll_layer_with(&settings)
            .unwrap()
            .is_none()
    );
}

/// Numbers and booleans are states, as their JSON.
#[test]
fn states_may_be_numbers() {
    let mut json = deliver("http://api.example.com");
    json["execution_profile"]["poll_config"]["completed_values"] = json!([2, true, "done"]);
    assert!(manifest(json).poll_layer().is_ok());
}

/// The key is that of the request that starts the job: its polls are none of its attempts.
#[tokio::test]
async fn a_header_with_the_idempotency_key_is_not_sent_with_polls() {
    let mut json = deliver("http://api.example.com");
    json["execution_profile"]["headers_template"] =
        json!({ "X-Key": "{{ idempotency_key }}", "X-Shop": "no idempotency_key: {{ shop }}" });
    let manifest = manifest(json);
    let leaf = answered_by(manifest.tool().unwrap(), |got: &Got| {
        let is_poll = got.method() == Method::GET;
        assert_eq!(got.headers().contains_key("x-key"), !is_poll);
        assert!(got.headers().contains_key("x-shop"));
        let body = json!({ "id": 7, "state": is_poll.then_some("completed") });
        Response::new(full(body.to_string()))
    });
    let stack = ServiceBuilder::new()
        .tool_retry(tower_toolcall::retry::RetryPolicy::default())
        .option_layer(manifest.poll_layer().unwrap())
        .service(leaf);
    stack.oneshot(call(json!({ "shop": "a" }))).await.unwrap();
}

#[test]
fn a_value_of_a_job_that_comes_twice_is_refused() {
    let json = deliver("http://api.example.com").to_string();
    let once = "\"poll_config\":{";
    assert!(json.contains(once));
    let twice = json.replace(
        once,
        r#""poll_config":{"job_values":{"id":"$.a","id":"$.b"},"#,
    );
    let error = serde_json::from_str::<ToolManifest>(&twice).unwrap_err();
    assert!(error.to_string().contains("`id` comes twice"), "{error}");
}

/// A header is written by callers, too: its variables would let them name another's job.
#[tokio::test]
async fn a_variable_of_a_header_is_no_reason_to_take_a_callers_job() {
    let mut json = deliver("http://api.example.com");
    json["input_schema"] = Value::Null;
    json["execution_profile"]["headers_template"] = json!({ "X-Job": "{{ id | default('') }}" });
    json["execution_profile"]["poll_config"]["job_values"] = json!({ "id": "data.id" });
    let manifest = manifest(json);
    let leaf = answered_by(manifest.tool().unwrap(), |got: &Got| {
        let path = got.uri().path().to_owned();
        let body = json!({ "data": { "id": 7, "at": path }, "state": path.ends_with("/7").then_some("completed") });
        Response::new(full(body.to_string()))
    });
    let stack = tower::ServiceBuilder::new()
        .option_layer(manifest.poll_layer().unwrap())
        .service(leaf);
    let answer = stack
        .oneshot(call(json!({ "shop": "a", "id": "victim" })))
        .await;
    assert_eq!(answer.unwrap().into_json(), json!("/shops/a/deliveries/7"));
}

#[test]
fn a_token_without_an_audience_is_an_own_choice() {
    let mut json = order();
    json["execution_profile"]["required_audience"] = Value::Null;
    assert!(manifest(json.clone()).tool().is_err());
    assert!(
        manifest(json)
            .pass_subject_without_audience()
            .tool()
            .is_ok()
    );
}

/// A template may have a key in it.
#[test]
fn what_is_printed_of_a_file_has_no_template() {
    let mut json = order();
    json["execution_profile"]["headers_template"] = json!({ "X-Key": "canary" });
    json["execution_profile"]["url_template"] = json!("http://api.example.com/canary");
    assert!(!format!("{:?}", manifest(json)).contains("canary"));
}

/// A REST API becomes tools of MCP by files.
#[tokio::test]
async fn a_folder_of_files_is_a_router_with_a_list() {
    use tower_toolcall::{ModelText as _, ReplaySafety};
    use tower_toolcall_mcp as mcp;

    let server = Server::start(|_, got| {
        Response::new(full(json!({ "asked": got.uri().path() }).to_string()))
    })
    .await;
    let folder = std::env::temp_dir().join(format!("manifests-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let list = json!({
        "name": "list_orders",
        "input_schema": { "type": "object", "properties": { "shop": { "type": "string" } } },
        "execution_profile": { "method": "GET", "url_template": format!("{}/shops/{{{{ shop }}}}", server.at) },
    });
    let write = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    write("a.json", order().to_string());
    write("b.json", list.to_string());
    write("c.txt", "no manifest".to_owned());
    fs::create_dir_all(folder.join("e.json")).unwrap();
    let manifests = ToolManifest::read_dir(&folder);
    write("d.json", "{".to_owned());
    let broken = ToolManifest::read_dir(&folder).unwrap_err();
    write("d.json", list.to_string());
    let twice = ToolManifest::read_dir(&folder).unwrap_err();
    fs::remove_dir_all(&folder).unwrap();
    assert!(broken.field().ends_with("d.json") && broken.reason().contains("not a manifest"));
    assert!(twice.reason().contains("`list_orders`"), "{twice}");
    assert!(ToolManifest::read_dir(&folder).is_err());

    let mut router = mcp::router();
    for manifest in manifests.unwrap() {
        let tool: HttpTool = manifest.tool().unwrap();
        router =
            router.described_tool(mcp::definition(manifest.definition()), tool.client(hyper()));
    }
    let router = router.build().unwrap();
    assert_eq!(router.names(), ["create_order", "list_orders"]);
    let list = router.definition("list_orders").unwrap();
    assert!(list.schema().contains_key("properties"));
    let call = |name: &str| ToolCall::new(name.to_owned());
    assert_eq!(
        router.replay_safety(&call("list_orders")),
        ReplaySafety::Safe
    );
    assert_eq!(
        router.replay_safety(&call("create_order")),
        ReplaySafety::Unknown
    );
    let call = call("list_orders")
        .with_json(json!({ "shop": "x" }))
        .unwrap();
    let answer = router.oneshot(call).await.unwrap();
    assert_eq!(answer.model_text(), r#"{"asked":"/shops/x"}"#);
}
