//! A streamed turn: its chunks are put together, and its calls run one after the other.
//!
//! ```sh
//! cargo run -p tower-toolcall-turn --example stream
//! ```

use serde_json::{Value, json};
use tower::service_fn;
use tower_toolcall::{AnyError, ToolCall, batch::Sequence};
use tower_toolcall_turn::{Assembler, Format};

/// The `data` of the server-sent events, as OpenAI's chat completions stream them.
const STREAM: [&str; 4] = [
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"weather"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"Oslo\"}"}}]}}]}"#,
    r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
];

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let mut assembler = Assembler::new(Format::OpenAiChat);
    for data in STREAM {
        assembler.push(&serde_json::from_str(data)?)?;
    }
    let turn = assembler.finish()?;

    let tools = Sequence::new(service_fn(|call: ToolCall| async move {
        let city = call.arguments()["city"].clone();
        Ok::<_, AnyError>(json!({ "city": city, "degrees": 12 }))
    }));
    let report = tools.run(turn.calls()).await;
    let messages: Vec<Value> = turn.answer(report.into_results()).into_messages().collect();
    println!("{:#}", Value::from(messages));
    Ok(())
}
