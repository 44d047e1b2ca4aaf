//! The schemas of MCP servers, real ones too: wrong arguments never reach them. `tests/run`
//! installs them.

use std::{
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use expect_test::expect;
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolResult, ContentBlock, JsonObject, ListToolsResult, PaginatedRequestParams,
        ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
    transport::TokioChildProcess,
};
use serde_json::{Value, json};
use tokio::{process::Command, time::timeout};
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, ModelText as _, ToolCall, ToolError,
    check::{Check as _, CheckLayer},
    validate::{Schemas, ValidateLayer},
};
use tower_toolcall_mcp::{Catalog, McpAnswer, McpOutput, McpService, McpTools, OnInvalid};

use crate::{
    log::Log,
    real::{call, installed},
};

fn object(value: Value) -> JsonObject {
    value.as_object().unwrap().clone()
}

fn tool(name: &'static str, input: Value) -> Tool {
    Tool::new(name, "", object(input))
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#schema-dialect
//# Supported dialects: Implementations MUST support at least 2020-12 and SHOULD document which
//# additional dialects they support
//# Recommendation: Implementors are RECOMMENDED to use JSON Schema 2020-12.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#implementation-requirements
//# Clients and servers MUST support JSON Schema 2020-12 for schemas without an explicit `$schema`
//# field
/// MCP's default is draft 2020-12.
#[test]
fn the_schemas_of_a_list_are_of_2020_12() {
    let tuple = json!({ "properties": { "a": { "prefixItems": [{ "type": "string" }] } } });
    let old = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "properties": { "a": { "items": [{ "type": "string" }] } } });
    let catalog = Catalog::new([tool("new", tuple), tool("old", old)]).with_server("docs");
    let schemas = Schemas::from(&catalog);
    for name in ["new", "old"] {
        let schema = schemas.get(Some("docs"), name).unwrap();
        assert!(!schema.is_valid(&json!({ "a": [1] })), "{name}");
    }
}

#[test]
fn a_list_that_was_read_already_is_compiled_at_once_and_a_dropped_one_leaves_its_schemas() {
    let schemas = Schemas::new();
    let tools =
        McpTools::new(Catalog::new([tool("a", json!({ "type": "object" }))]).with_server("s"));
    let tools = tools.with_schemas(&schemas);
    assert_eq!(schemas.len(), 1);
    drop(tools);
    assert_eq!(schemas.len(), 1);
}

/// A server whose list changes.
#[derive(Clone, Default)]
struct Changing(Arc<Mutex<Vec<Tool>>>);

impl ServerHandler for Changing {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.0.lock().unwrap().clone();
        Ok(ListToolsResult::with_all_items(tools))
    }
}

/// E.2: a schema is that of the current list; a tool that has gone has none.
#[tokio::test]
async fn schemas_follow_a_list_that_changes() {
    let of = |wanted: &str| json!({ "type": "object", "properties": { "a": { "type": wanted } } });
    let server = Changing::default();
    let list = |tools: Vec<Tool>| *server.0.lock().unwrap() = tools;
    list(vec![
        tool("pay", of("string")),
        tool("search", of("string")),
    ]);
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    let serve = server.clone();
    tokio::spawn(async move { serve.serve(theirs).await.unwrap().waiting().await });
    let client = ().serve(ours).await.unwrap();

    let schemas = Schemas::new();
    let tools = McpTools::default().with_schemas(&schemas);
    let fits = |tool: &str, value: Value| {
        let schema = schemas.get(None, tool);
        schema.map(|schema| schema.is_valid(&json!({ "a": value })))
    };
    tools.refresh(client.peer()).await.unwrap();
    assert_eq!(
        (fits("pay", json!(1)), fits("search", json!("x"))),
        (Some(false), Some(true))
    );

    list(vec![tool("pay", of("integer"))]);
    tools.refresh(client.peer()).await.unwrap();
    assert_eq!(
        (fits("pay", json!(1)), fits("search", json!("x"))),
        (Some(true), None)
    );
    client.cancel().await.unwrap();
}

/// One bad schema is its tool's affair.
#[tokio::test]
async fn a_hostile_schema_in_a_list_leaves_the_other_tools_checked() {
    let (log, _guard) = Log::whole();
    let again = json!({ "properties": { "a": { "allOf": [{ "$ref": "#/properties/a" }] } } });
    let honest = json!({ "required": ["city"] });
    let list = [tool("hostile", again), tool("weather", honest)];
    let schemas = Schemas::new();
    let tools = McpTools::new(Catalog::new(list).with_server("docs")).with_schemas(&schemas);
    assert_eq!(tools.catalog().len(), 2);
    let refused = schemas.refused();
    assert_eq!((refused.len(), refused[0].0.as_str()), (1, "docs/hostile"));
    let events = log.events("tool.schema");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["tool"], "hostile");
    assert_eq!(events[0]["unchecked"], 1);

    let leaf = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) });
    let run = |name| {
        let stack = ServiceBuilder::new().layer(ValidateLayer::new(&schemas));
        stack
            .service(leaf)
            .oneshot(ToolCall::new(name).with_server("docs"))
    };
    assert!(run("hostile").await.is_ok());
    assert_eq!(
        run("weather").await.unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

/// Issue 48: what is not measured is enforced for trusted servers only, and else listed.
#[test]
fn recursion_and_unevaluated_are_enforced_for_trusted_servers_only() {
    let tree = json!({ "type": "object", "properties": { "a": { "$ref": "#" } } });
    let closed = json!({
        "allOf": [{ "properties": { "a": { "type": "object" } } }],
        "unevaluatedProperties": false,
    });
    for is_trusted in [false, true] {
        let catalog = Catalog::new([tool("tree", tree.clone()), tool("closed", closed.clone())]);
        let schemas = Schemas::from(&catalog.trust_annotations(is_trusted));
        let refused = schemas.refused();
        let reasons: Vec<_> = refused.iter().map(|(_, error)| error.reason()).collect();
        let enforces = |tool: &str, wrong: Value| {
            let schema = schemas.get(None, tool);
            schema.is_some_and(|schema| !schema.is_valid(&wrong))
        };
        assert_eq!(enforces("tree", json!({ "a": { "a": 1 } })), is_trusted);
        assert_eq!(enforces("closed", json!({ "b": 1 })), is_trusted);
        assert!(
            enforces("closed", json!({ "a": 1 })),
            "the rest is enforced"
        );
        match is_trusted {
            true => assert_eq!(reasons, [""; 0]),
            false => {
                expect![[r#"
                    [
                        "has a keyword that is left out: unevaluatedProperties",
                        "refers to itself",
                    ]
                "#]]
                .assert_debug_eq(&reasons);
            }
        }
    }
}

fn answer(result: CallToolResult) -> McpAnswer {
    result.into()
}

fn outputs() -> Schemas {
    let mut weather = tool("weather", json!({}));
    let schema = json!({ "type": "object", "properties": { "degrees": { "type": "number" } }, "required": ["degrees"] });
    weather.output_schema = Some(Arc::new(object(schema)));
    Catalog::new([weather, tool("other", json!({}))]).output_schemas()
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#output-schema
//# Clients SHOULD validate structured results against this schema.
/// X7: off, warn, report.
#[test]
fn structured_content_is_checked_against_the_output_schema() {
    let fits = || answer(CallToolResult::structured(json!({ "degrees": 12.5 })));
    let wrong = || {
        answer(CallToolResult::structured(
            json!({ "degrees": "marmalade" }),
        ))
    };
    let missing = || answer(CallToolResult::success(vec![ContentBlock::text("sunny")]));
    let flagged = || {
        let mut result = CallToolResult::structured(json!({ "degrees": "marmalade" }));
        result.is_error = Some(true);
        answer(result)
    };
    let call = ToolCall::new("weather").info();
    for (invalid, answer, refused, warns) in [
        (OnInvalid::Off, wrong(), false, false),
        (OnInvalid::Off, missing(), false, false),
        (OnInvalid::Warn, fits(), false, false),
        (OnInvalid::Warn, wrong(), false, true),
        (OnInvalid::Warn, missing(), false, true),
        (OnInvalid::Warn, flagged(), false, false),
        (OnInvalid::Report, fits(), false, false),
        (OnInvalid::Report, wrong(), true, false),
        (OnInvalid::Report, missing(), false, true),
        (OnInvalid::Report, flagged(), false, false),
    ] {
        let (log, _guard) = Log::whole();
        let checked = McpOutput::new(&outputs())
            .with_invalid(invalid)
            .check(&call, &answer);
        assert_eq!(checked.is_err(), refused, "{invalid:?} {answer:?}");
        assert_eq!(
            log.events("tool.invalid_output").len(),
            usize::from(warns),
            "{invalid:?} {answer:?}"
        );
        assert!(!log.text().contains("marmalade"));
        if let Err(why) = checked {
            expect![[r#"the structured content does not fit: degrees: is not of type "number""#]]
                .assert_eq(&why.to_string());
        }
    }
    let other = ToolCall::new("other").info();
    assert!(
        McpOutput::new(&outputs())
            .with_invalid(OnInvalid::Report)
            .check(&other, &wrong())
            .is_ok()
    );
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#security-considerations
//# Clients SHOULD:
//# Validate tool results before passing to LLM
#[tokio::test]
async fn an_answer_that_does_not_fit_is_reported_and_not_repeated() {
    let tool = service_fn(|_: ToolCall| async {
        Ok::<_, BoxError>(answer(CallToolResult::structured(json!({}))))
    });
    let check = McpOutput::new(&outputs()).with_invalid(OnInvalid::Report);
    let stack = ServiceBuilder::new()
        .layer(CheckLayer::new(check))
        .service(tool);
    let error = stack.oneshot(ToolCall::new("weather")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reported);
    expect![[r#"the structured content does not fit: root: "degrees" is a required property"#]]
        .assert_eq(error.message());
}

fn everything() -> Command {
    let script = "mcp-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let mut command = Command::new("node");
    command.arg(installed(script)).arg("stdio");
    command
}

fn time() -> Command {
    let mut command = Command::new("python3");
    command.args(["-m", "mcp_server_time", "--local-timezone", "UTC"]);
    command.env("PYTHONPATH", installed("mcp-servers-python"));
    command
}

/// Runs each call behind the layer; how many were sent is counted below it.
async fn served(
    mut command: Command,
    repair: bool,
    calls: &[ToolCall],
) -> (Vec<Result<String, ToolError>>, usize) {
    command.kill_on_drop(true);
    let run = async {
        let (process, _) = TokioChildProcess::builder(command)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let client = ().serve(process).await.unwrap();
        let schemas = Schemas::new();
        let tools = McpTools::default().with_schemas(&schemas);
        tools.refresh(client.peer()).await.unwrap();
        assert!(!schemas.is_empty() && schemas.len() == tools.catalog().len());
        assert_eq!(schemas.refused(), [], "honest schemas");

        let layer = ValidateLayer::new(&schemas);
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let stack = ServiceBuilder::new()
            .layer(if repair { layer.repair() } else { layer })
            .map_request(move |call: ToolCall| {
                count.fetch_add(1, SeqCst);
                call
            })
            .service(McpService::new(client.peer().clone()));
        let mut answers = Vec::new();
        for call in calls {
            let answer = stack.clone().oneshot(call.clone()).await;
            answers.push(answer.map(|answer| answer.model_text().into_owned()));
        }
        client.cancel().await.unwrap();
        (answers, sent.load(SeqCst))
    };
    let limit = Duration::from_secs(60);
    timeout(limit, run).await.expect("it hangs")
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#security-considerations
//# Servers MUST:
//# Validate all tool inputs
#[tokio::test]
async fn server_everything_gets_no_wrong_arguments() {
    let calls = [
        call("echo", json!({ "message": "hello" })),
        call("echo", json!({ "massage": "hello" })),
        call("get-sum", json!({ "a": "5", "b": 2 })),
    ];
    let (answers, sent) = served(everything(), false, &calls).await;
    assert_eq!(sent, 1);
    assert_eq!(answers[0].as_ref().unwrap(), "Echo: hello");
    let wrong = |n: usize| answers[n].as_ref().unwrap_err();
    expect![[r#"Tool 'echo' refused its arguments: root: "message" is a required property. Correct them and call it again."#]].assert_eq(&wrong(1).model_message());
    expect![[r#"a: is not of type "number""#]].assert_eq(wrong(2).message());
}

#[tokio::test]
async fn server_everything_understands_repaired_arguments() {
    let calls = [call("get-sum", json!({ "a": "5", "b": 2 }))];
    let (answers, sent) = served(everything(), true, &calls).await;
    assert_eq!(sent, 1);
    assert!(answers[0].as_ref().unwrap().contains('7'), "{answers:?}");
}

#[tokio::test]
async fn mcp_server_time_gets_no_wrong_arguments() {
    let calls = [
        call("get_current_time", json!({ "timezone": "Europe/Oslo" })),
        call("get_current_time", json!({ "timezone": 1 })),
        call(
            "convert_time",
            json!({ "source_timezone": "UTC", "time": "12:00" }),
        ),
    ];
    let (answers, sent) = served(time(), false, &calls).await;
    assert_eq!(sent, 1);
    assert!(answers[0].as_ref().unwrap().contains("Europe/Oslo"));
    expect![[r#"timezone: is not of type "string""#]]
        .assert_eq(answers[1].as_ref().unwrap_err().message());
    expect![[r#"root: "target_timezone" is a required property"#]]
        .assert_eq(answers[2].as_ref().unwrap_err().message());
}
