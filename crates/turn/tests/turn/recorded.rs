//! Responses that providers sent, from the tests of their own SDKs; each file says which.

use serde_json::{Value, json};
use tower_toolcall::result::ToolResult;
use tower_toolcall_turn::{Assembler, Format, Turn};

use crate::kit::check;

macro_rules! fixture {
    ($name:literal) => {
        serde_json::from_str::<Value>(include_str!(concat!("fixtures/", $name, ".json"))).unwrap()
    };
}

fn assembled(format: Format, fixture: &Value) -> Turn {
    let mut assembler = Assembler::new(format);
    for event in fixture["events"].as_array().expect("events") {
        assembler.push(event).expect("small");
    }
    assembler.finish().expect("a turn")
}

fn unanswered(turn: Turn) -> Vec<Value> {
    let (format, calls) = (turn.format(), turn.len());
    let reply = turn.answer(Vec::<ToolResult<String>>::new());
    let messages: Vec<_> = reply.into_messages().collect();
    check(format, &messages, calls);
    messages
}

#[test]
fn a_stream_of_anthropic() {
    let turn = assembled(Format::Anthropic, &fixture!("anthropic_tool_use_response"));
    let call = turn.calls().next().unwrap();
    assert_eq!(
        (call.tool(), call.id()),
        ("get_weather", Some("toolu_01NRLabsLyVHZPKxbKvkfSMn"))
    );
    assert_eq!(json!(call.arguments()), json!({ "location": "Paris" }));
    let messages = unanswered(turn);
    let said = &messages[0]["content"];
    assert_eq!(
        said[0]["text"],
        "I'll check the current weather in Paris for you."
    );
    assert_eq!(said[1]["caller"]["type"], "direct");
}

/// It ended at its limit of tokens, in the middle of the arguments.
#[test]
fn a_cut_stream_of_anthropic() {
    let fixture = fixture!("anthropic_incomplete_partial_json_response");
    let turn = assembled(Format::Anthropic, &fixture);
    assert_eq!((turn.len(), turn.calls().count()), (1, 0));
    assert_eq!(unanswered(turn)[1]["content"][0]["is_error"], true);
}

#[test]
fn parallel_calls_of_chat_completions() {
    let fixture = fixture!("openai_chat_parallel");
    let turn = Turn::read(Format::OpenAiChat, &fixture["response"]).unwrap();
    let names: Vec<_> = turn.calls().map(|call| call.tool().to_owned()).collect();
    assert_eq!(names, ["GetWeatherArgs", "get_stock_price"]);
    let messages = unanswered(turn);
    let mut said = fixture["response"]["choices"][0]["message"].clone();
    let refusal = said.as_object_mut().unwrap().remove("refusal");
    assert_eq!((&messages[0], refusal), (&said, Some(Value::Null)));
}

#[test]
fn a_stream_of_chat_completions() {
    let turn = assembled(Format::OpenAiChat, &fixture!("openai_chat_stream"));
    let calls: Vec<_> = turn.calls().collect();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].arguments()["city"], "Edinburgh");
    assert_eq!(calls[1].arguments()["ticker"], "AAPL");
    let messages = unanswered(turn);
    assert_eq!(messages[0]["tool_calls"][0]["type"], "function");
    assert_eq!(messages[0]["role"], "assistant");
}
