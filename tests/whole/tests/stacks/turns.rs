//! What models' providers read and write, with routers and logs.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tower_toolcall::{
    AnyError,
    router::{Definition, Router},
};
use tower_toolcall_mcp as mcp;
use tower_toolcall_turn::{Format, Names, Turn};
use tracing::{Level, subscriber::set_default};

use crate::observed::{Log, listening};

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
    let router = Router::builder().typed_tool("weather", "Says how warm it is", weather);
    router.build().unwrap()
}

/// P16.
#[test]
fn mcp_clients_see_typed_tools() {
    let definitions = router().definitions();
    assert_eq!(
        definitions.iter().map(Definition::name).next(),
        Some("weather")
    );
    let weather = mcp::tool(&definitions[0]);
    assert_eq!(weather.description.as_deref(), Some("Says how warm it is"));
    assert_eq!(weather.input_schema["required"], json!(["city"]));
}

/// P16.
#[test]
fn typed_tools_stand_in_the_request_of_every_provider() {
    let names = Names::new(["weather"]);
    for format in [
        Format::OpenAiChat,
        Format::OpenAiResponses,
        Format::Anthropic,
        Format::Gemini,
        Format::Bedrock,
    ] {
        let tools = format.tools(&names, &router().definitions()).to_string();
        for part in ["Says how warm it is", "The name of a city.", "fahrenheit"] {
            assert!(tools.contains(part), "{format:?}: {tools}");
        }
    }
}

/// S8: arguments of a model that never become a call are a line in the log.
#[test]
fn arguments_that_are_no_object_are_one_line() {
    listening();
    let log = Log::default();
    let listens = tracing_subscriber::fmt().with_max_level(Level::INFO);
    let _guard = set_default(listens.with_ansi(false).with_writer(log.clone()).finish());
    let response = json!({ "stop_reason": "tool_use", "content": [
        { "type": "tool_use", "id": "t1", "name": "weather", "input": "Oslo" },
        { "type": "tool_use", "id": "t2", "name": "weather", "input": {} },
    ] });
    let turn = Turn::read(Format::Anthropic, &response).unwrap();
    assert_eq!(turn.calls().count(), 1);
    let text = log.text();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains(" INFO ") && text.contains("tool.rejected tool=weather"),
        "{text}"
    );
}
