use std::borrow::Cow;

use expect_test::expect;
use serde::Deserialize;
use serde_json::json;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, Evidence, Execution, ToolCall, circuit_breaker::CircuitBreakerLayer,
};

#[derive(Deserialize)]
struct Weather {
    city: String,
}

async fn weather(call: ToolCall) -> Result<String, AnyError> {
    let Weather { city } = call.arguments_as()?;
    Ok(format!("{city}: 12 degrees"))
}

fn call(arguments: serde_json::Value) -> ToolCall {
    ToolCall::new("weather").with_json(arguments).unwrap()
}

/// P2.
#[tokio::test(start_paused = true)]
async fn calls_without_an_argument_never_open_the_circuit() {
    let stack = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new())
        .service(service_fn(weather));
    for _ in 0..50 {
        let error = stack.clone().oneshot(call(json!({}))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.to_http().status(), 400);
        expect!["the field `city` is missing"].assert_eq(error.message());
    }
    let answer = stack.oneshot(call(json!({ "city": "Oslo" }))).await;
    assert_eq!(answer.unwrap(), "Oslo: 12 degrees");
}

/// P2: the error is the tool's own word, and the call has not started.
#[test]
fn the_error_names_the_field_and_not_the_value() {
    let call = call(json!({ "city": "Oslo", "days": ["hunter2"] })).with_server("docs");
    #[derive(Debug, Deserialize)]
    struct Days {
        #[expect(dead_code, reason = "never read")]
        days: Vec<u8>,
    }
    let error = call.arguments_as::<Days>().unwrap_err();
    expect!["`days[0]`: expected u8, not a string"].assert_eq(error.message());
    assert_eq!(error.evidence(), Evidence::Reported);
    assert_eq!(error.execution(), Execution::NotStarted);
    assert_eq!(error.tool(), Some("weather"));
    assert_eq!(error.server(), Some("docs"));
    assert!(!format!("{error:?}").contains("hunter2"));
}

/// P2: no copy of the arguments.
#[test]
fn texts_are_borrowed_from_the_call() {
    #[derive(Deserialize)]
    struct Borrowed<'a> {
        city: &'a str,
        #[serde(borrow)]
        country: Cow<'a, str>,
    }
    let call = call(json!({ "city": "Oslo", "country": "Norway" }));
    let read: Borrowed<'_> = call.arguments_as().unwrap();
    assert!(matches!(read.country, Cow::Borrowed("Norway")));
    let kept = call.arguments()["city"].as_str().unwrap();
    assert!(std::ptr::eq(read.city, kept));
}

#[test]
fn a_call_without_arguments_fits_what_needs_none() {
    let call = ToolCall::new("weather");
    call.arguments_as::<()>().unwrap();
    assert!(call.arguments_as::<Option<Weather>>().unwrap().is_none());
}

/// Makes calls that fail until the breaker would open, and tells whether it is closed.
async fn stays_closed<F>(tool: fn(ToolCall) -> F, kind: ErrorKind) -> bool
where
    F: Future<Output = Result<String, AnyError>>,
{
    let breaker = CircuitBreakerLayer::new();
    let stack = ServiceBuilder::new()
        .layer(&breaker)
        .service(service_fn(tool));
    for _ in 0..5 {
        let call = call(json!({ "city": 7, "day": "monday" }));
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!(error.execution(), Execution::Unknown);
    }
    let next = stack.oneshot(ToolCall::new("weather")).await;
    next.unwrap_err().kind() != ErrorKind::CircuitOpen
}

/// P2: arguments that are read by `serde_json`.
#[tokio::test(start_paused = true)]
async fn arguments_that_serde_json_refuses_never_open_the_circuit() {
    async fn weather(call: ToolCall) -> Result<String, AnyError> {
        let Weather { city } = serde_json::from_value(call.arguments().clone().into())?;
        Ok(city)
    }
    assert!(stays_closed(weather, ErrorKind::InvalidInput).await);
}

/// P2: a text in the arguments that is not a number, an address or a boolean.
#[tokio::test(start_paused = true)]
async fn texts_that_cannot_be_parsed_never_open_the_circuit() {
    async fn number(_: ToolCall) -> Result<String, AnyError> {
        Ok("monday".parse::<u8>()?.to_string())
    }
    async fn address(_: ToolCall) -> Result<String, AnyError> {
        let parsed: Result<std::net::IpAddr, _> = "monday".parse();
        Ok(anyhow::Context::context(parsed, "the server")?.to_string())
    }
    async fn too_large(_: ToolCall) -> Result<String, AnyError> {
        Ok(u8::try_from(7_000)?.to_string())
    }
    assert!(stays_closed(number, ErrorKind::Failed).await);
    assert!(stays_closed(address, ErrorKind::Failed).await);
    assert!(stays_closed(too_large, ErrorKind::Failed).await);
}

/// An answer of a server is read from text: that it is not JSON is the tool's failure.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_json_opens_the_circuit() {
    async fn weather(_: ToolCall) -> Result<String, AnyError> {
        let Weather { city } = serde_json::from_str("<html>down for maintenance</html>")?;
        Ok(city)
    }
    async fn other_fields(_: ToolCall) -> Result<String, AnyError> {
        let Weather { city } = serde_json::from_str(r#"{ "town": "Oslo" }"#)?;
        Ok(city)
    }
    assert!(!stays_closed(weather, ErrorKind::Failed).await);
    assert!(!stays_closed(other_fields, ErrorKind::Failed).await);
}
