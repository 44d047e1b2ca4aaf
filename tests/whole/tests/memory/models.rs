//! Arguments that a model writes as text.

use serde_json::json;
use tower_toolcall::ErrorKind;
use tower_toolcall_turn::{Format, Turn};

use crate::{MB, counted, small_values};

fn response(arguments: &[&str]) -> serde_json::Value {
    let calls = arguments.iter().map(|arguments| {
        json!({ "type": "function", "function": { "name": "a", "arguments": arguments } })
    });
    json!({ "role": "assistant", "tool_calls": calls.collect::<Vec<_>>() })
}

/// S-1
#[test]
fn a_models_call_with_too_many_values_is_invalid_and_not_parsed() {
    let taken = counted(async {
        let response = response(&[&small_values(1_900_000), r#"{"b":1}"#]);
        let turn = Turn::read(Format::OpenAiChat, &response).unwrap();
        let error = turn.invalid().next().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(
            error.model_message().contains("more than 40000 values"),
            "{error:?}"
        );
        let call = turn.calls().next().unwrap();
        assert_eq!(call.arguments()["b"], 1);
    });
    assert!(taken.bytes_max < 20 * MB, "{taken:?}");
}

/// S-1: many calls whose arguments fit one by one.
#[test]
fn the_values_of_all_calls_of_a_turn_are_counted_together() {
    let taken = counted(async {
        let one = small_values(60_000);
        let turn = Turn::read(Format::OpenAiChat, &response(&[&*one; 100])).unwrap();
        assert_eq!((turn.calls().count(), turn.invalid().count()), (1, 99));
    });
    assert!(taken.bytes_max < 60 * MB, "{taken:?}");
}
