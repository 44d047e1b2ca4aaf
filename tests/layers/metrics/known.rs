//! Known tools whose calls are refused before they run, and names that there are not.

use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Identity, ServiceBuilderExt as _, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer,
    identity::Resolve,
    policy::PolicyLayer,
    router::{Router, tool_fn},
    tool_metrics::Metrics,
    validate::{Schema, Schemas, ValidateLayer},
};

/// A table with one tool.
struct One;

impl Resolve for One {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        match call.tool() {
            "pay" => Ok(Some(Identity::new("pay").with_server("bank"))),
            _ => Err(ToolError::new(ErrorKind::NotFound, "no such tool")),
        }
    }
}

async fn never(_: ToolCall) -> Result<Value, BoxError> {
    panic!("it is sent")
}

fn schemas() -> Schemas {
    let schema = json!({
        "type": "object", "properties": { "amount": { "type": "integer" } },
        "additionalProperties": false,
    });
    let schemas = Schemas::new();
    schemas.insert(None, "pay", Schema::compile(&schema).unwrap());
    schemas
}

/// The counters of failed calls in Prometheus' text: of the tool, and of what is no tool.
fn rows(metrics: &Metrics) -> (String, String) {
    let text = metrics.prometheus();
    assert!(!text.contains("pya"), "{text}");
    let row = |tool: &str| {
        let label = format!("tool=\"{tool}\"");
        let mut rows = text
            .lines()
            .filter(|line| line.starts_with("tool_execution_errors_total{"))
            .filter(|line| line.contains(&label) && !line.ends_with(" 0"));
        let row = rows.next().unwrap_or_default().to_owned();
        assert_eq!(rows.next(), None);
        row
    };
    (row("pay"), row("_other"))
}

/// H-9: denied by a policy, below a table of tools. An invented name has no row.
#[tokio::test]
async fn a_tool_that_a_table_knows_has_a_row_though_its_calls_are_denied() {
    let metrics = Metrics::new();
    let stack = ServiceBuilder::new()
        .tool_identity(One)
        .layer(metrics.layer())
        .layer(PolicyLayer::new().deny("*"))
        .service(service_fn(never));
    for tool in ["pay", "pya"] {
        stack
            .clone()
            .oneshot(ToolCall::new(tool))
            .await
            .unwrap_err();
    }
    let (row, other) = rows(&metrics);
    assert!(row.contains(r#"server="bank""#), "{row}");
    assert!(row.contains("TOOL_UNAVAILABLE"), "{row}");
    assert!(other.contains("TOOL_NOT_FOUND"), "{other}");
}

/// H-9: an open breaker, below a table of tools.
#[tokio::test]
async fn a_tool_that_a_table_knows_has_a_row_though_its_breaker_is_open() {
    let metrics = Metrics::new();
    let breaker = CircuitBreakerLayer::new();
    let pay = ToolCall::new("pay").with_server("bank");
    breaker.handle().breaker(&pay).force_open();
    let stack = ServiceBuilder::new()
        .tool_identity(One)
        .layer(metrics.layer())
        .layer(breaker)
        .service(service_fn(never));
    stack.oneshot(ToolCall::new("pay")).await.unwrap_err();
    let (row, _) = rows(&metrics);
    assert!(row.contains("CIRCUIT_OPEN"), "{row}");
}

/// H-9: a schema is a table as well: arguments of a wrong type, and ones that the tool does not
/// have.
#[tokio::test]
async fn a_tool_that_a_schema_knows_has_a_row_though_its_arguments_do_not_fit() {
    for arguments in [json!({ "amount": "many" }), json!({ "amuont": 1 })] {
        let metrics = Metrics::new();
        let stack = ServiceBuilder::new()
            .layer(metrics.layer())
            .layer(ValidateLayer::new(&schemas()))
            .layer(PolicyLayer::new().deny("*"))
            .service(service_fn(never));
        for tool in ["pay", "pya"] {
            let call = ToolCall::new(tool).with_json(arguments.clone()).unwrap();
            stack.clone().oneshot(call).await.unwrap_err();
        }
        let (row, other) = rows(&metrics);
        assert!(row.contains("TOOL_INVALID_INPUT"), "{row}");
        // Of a name without a schema nothing is known.
        assert!(other.contains("TOOL_UNAVAILABLE"), "{other}");
    }
}

/// H-9: a router is one, without a layer that resolves names.
#[tokio::test]
async fn a_tool_that_a_router_knows_has_a_row_though_its_arguments_do_not_fit() {
    #[derive(serde::Deserialize)]
    struct Pay {
        #[allow(dead_code, reason = "read by serde")]
        amount: u32,
    }
    let metrics = Metrics::new();
    let pay = tool_fn(|_: Pay| async { Ok::<_, BoxError>(()) });
    let router = Router::builder().tool("pay", pay).build().unwrap();
    let stack = ServiceBuilder::new().layer(metrics.layer()).service(router);
    for tool in ["pay", "pya"] {
        stack
            .clone()
            .oneshot(ToolCall::new(tool))
            .await
            .unwrap_err();
    }
    let (row, other) = rows(&metrics);
    assert!(row.contains("TOOL_INVALID_INPUT"), "{row}");
    assert!(other.contains("TOOL_NOT_FOUND"), "{other}");
}
