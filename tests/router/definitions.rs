//! P16: functions of typed arguments define their tools.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, ToolCall, ToolError,
    router::{Definition, Router, tool_fn},
};

#[derive(Deserialize, JsonSchema)]
struct Weather {
    /// The name of a city.
    city: String,
    #[serde(default)]
    unit: Unit,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Unit {
    #[default]
    Celsius,
    Fahrenheit,
}

async fn weather(args: Weather) -> Result<String, AnyError> {
    Ok(format!("{}: 12 degrees {:?}", args.city, args.unit))
}

fn router() -> Router {
    let build = Router::builder()
        .typed_tool("weather", "Says how warm it is", weather)
        .typed_tool("now", "Tells the time", |(): ()| async {
            Ok::<_, AnyError>("noon")
        })
        .described_tool(
            Definition::of::<Weather>("forecast", "Guesses"),
            ServiceBuilder::new()
                .concurrency_limit(1)
                .service(tool_fn(weather)),
        )
        .tool("bare", tool_fn(weather))
        .build();
    build.unwrap()
}

async fn run(router: &Router, arguments: Value) -> Result<Value, ToolError> {
    let call = ToolCall::new("weather").with_json(arguments)?;
    router.clone().oneshot(call).await
}

#[test]
fn the_type_of_the_arguments_is_the_schema() {
    let all = router().definitions();
    let names: Vec<_> = all.iter().map(Definition::name).collect();
    assert_eq!(names, ["forecast", "now", "weather"]);
    let [forecast, now, weather] = &all[..] else {
        panic!("there are three")
    };
    assert_eq!(weather.description(), "Says how warm it is");
    let schema = weather.schema();
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["required"], json!(["city"]));
    let city = &schema["properties"]["city"];
    assert_eq!(city["description"], "The name of a city.");
    assert_eq!(forecast.schema(), schema);
    assert_eq!(now.schema()["type"], "object");
}

#[tokio::test]
async fn a_typed_tool_runs_as_any_other() {
    let answer = run(&router(), json!({ "city": "Oslo", "unit": "fahrenheit" })).await;
    assert_eq!(answer.unwrap(), "Oslo: 12 degrees Fahrenheit");
    let error = run(&router(), json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

/// P16: a type that fits no call is found at the start, and one that is an object or nothing is
/// one.
#[test]
fn a_type_that_is_no_object_is_a_configuration_error() {
    async fn list(cities: Vec<String>) -> Result<String, AnyError> {
        Ok(cities.concat())
    }
    async fn unit(unit: Unit) -> Result<String, AnyError> {
        Ok(format!("{unit:?}"))
    }
    async fn maybe(args: Option<Weather>) -> Result<String, AnyError> {
        Ok(args.map(|args| args.city).unwrap_or_default())
    }
    let error = Router::builder().typed_tool("list", "", list).build();
    assert_eq!(
        error.map(drop).unwrap_err().to_string(),
        "invalid `tool`: `list` has a schema of type \"array\", and arguments are an object"
    );
    assert!(
        Router::builder()
            .typed_tool("unit", "", unit)
            .build()
            .is_err()
    );
    async fn text(text: Option<String>) -> Result<String, AnyError> {
        Ok(text.unwrap_or_default())
    }
    let text = Router::builder().typed_tool("text", "", text).build();
    assert!(text.is_err());
    for (types, is_right) in [
        (json!(["array", "null"]), false),
        (json!([]), false),
        (json!(7), false),
        (json!(["object", "null"]), true),
    ] {
        let schema = json!({ "type": types }).as_object().unwrap().clone();
        let definition = Definition::new("by_hand", "", schema);
        let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>(String::new()) });
        let built = Router::builder().described_tool(definition, tool).build();
        assert_eq!(built.is_ok(), is_right, "{types}");
    }
    let router = Router::builder().typed_tool("maybe", "", maybe).build();
    assert_eq!(router.unwrap().definitions()[0].schema()["type"], "object");
}

/// The schema of another type is in `$defs`.
#[cfg(feature = "validate")]
#[tokio::test]
async fn arguments_are_checked_by_the_schemas_of_the_types() {
    use tower_toolcall::validate::ValidateLayer;

    let router = router();
    assert_eq!(router.schemas().refused(), []);
    let layer = ValidateLayer::new(&router.schemas());
    let stack = ServiceBuilder::new().layer(layer).service(router.clone());
    for (arguments, reason) in [
        (json!({}), r#"root: "city" is a required property"#),
        (json!({ "city": 7 }), r#"city: is not of type "string""#),
        (json!({ "city": "Oslo", "unit": "kelvin" }), "unit: "),
    ] {
        let call = ToolCall::new("weather").with_json(arguments).unwrap();
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let message = error.message();
        assert!(message.contains(reason), "{message}");
    }
    for (tool, arguments) in [
        ("weather", json!({ "city": "Oslo", "unit": "celsius" })),
        ("now", json!({})),
    ] {
        let call = ToolCall::new(tool).with_json(arguments).unwrap();
        stack.clone().oneshot(call).await.unwrap();
    }
}

#[test]
fn a_tool_whose_breaker_is_open_is_not_listed() {
    use tower_toolcall::circuit_breaker::CircuitBreakerLayer;

    let breaker = CircuitBreakerLayer::new();
    let list = router().withhold(&breaker.handle());
    let call = ToolCall::new("now");
    breaker.handle().breaker(&call).force_open();
    let names: Vec<_> = list
        .definitions()
        .iter()
        .map(|of| of.name().to_owned())
        .collect();
    assert_eq!(names, ["forecast", "weather"]);
}
