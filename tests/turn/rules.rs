//! What the provider's rules ask, whatever the model wrote and whatever became of the calls.

use proptest::prelude::*;
use serde_json::{Value, json};
use tower::service_fn;
use tower_toolcall::{
    AnyError, ToolCall,
    batch::Parallel,
    result::ToolResult,
    turn::{Assembler, Format, Turn},
};

use crate::kit::{FORMATS, check, response, written};

pub(crate) fn run(turn: &Turn) -> Vec<ToolResult<String>> {
    let tools = service_fn(|call: ToolCall| async move {
        match call.tool() {
            "ok" => Ok(call.arguments().len().to_string()),
            "panic" => panic!("a tool's bug"),
            _ => Err(AnyError::from("503 Service Unavailable")),
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(Parallel::new(tools).run(turn.calls()))
}

/// Silences the panics of the tool.
fn quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info.payload().downcast_ref::<&str>();
            if text != Some(&"a tool's bug") {
                hook(info);
            }
        }));
    });
}

/// Any JSON, with words of the formats in it.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "choices",
        "message",
        "tool_calls",
        "function",
        "arguments",
        "id",
        "name",
        "content",
        "type",
        "tool_use",
        "input",
        "candidates",
        "parts",
        "functionCall",
        "args",
        "output",
        "toolUse",
        "toolUseId",
        "function_call",
        "delta",
        "index",
        "content_block_start",
        "content_block",
        "content_block_delta",
        "contentBlockStart",
        "start",
        "contentBlockDelta",
        "contentBlockIndex",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "item",
        "item_id",
        "text",
        "partial_json",
        "reasoningContent",
        "role",
        "stop_reason",
        "finish_reason",
        "response.completed",
        "response",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every call of every format is answered exactly once, in order, whichever results come, in whichever order.
    #[test]
    fn each_call_is_answered_once(
        calls in prop::collection::vec(written(), 0..9),
        order in any::<u64>(),
        lost in 0..4_usize,
    ) {
        quiet();
        for format in FORMATS {
            let turn = Turn::read(format, &response(format, &calls)).unwrap();
            prop_assert_eq!(turn.len(), calls.len());
            prop_assert_eq!(turn.calls().count() + turn.invalid().count(), calls.len());
            let ids: std::collections::HashSet<_> = turn.calls().map(|c| c.id().unwrap().to_owned()).collect();
            prop_assert_eq!(ids.len(), turn.calls().count());
            let mut results = run(&turn);
            let all = results.len();
            results.truncate(all.saturating_sub(lost));
            let twice: Vec<_> = results.iter().take(lost).cloned().collect();
            let refused = twice.len();
            results.extend(twice);
            if !results.is_empty() {
                let by = (order % results.len() as u64) as usize;
                results.rotate_left(by);
                results.reverse();
            }
            let reply = turn.answer(results);
            prop_assert_eq!(reply.refused().count(), refused);
            let messages: Vec<_> = reply.into_messages().collect();
            check(format, &messages, calls.len());
            // What was put right once is right.
            if let Some(first) = messages.first() {
                let said = match format {
                    Format::OpenAiResponses => {
                        let is_result = |m: &&Value| m["type"] == "function_call_output";
                        messages.iter().filter(|m| !is_result(m)).cloned().collect()
                    }
                    _ => first.clone(),
                };
                let again = Turn::read(format, &said).unwrap();
                prop_assert_eq!(again.len(), calls.len());
                let reply = again.answer(Vec::<ToolResult<String>>::new());
                let said_again = match format {
                    Format::OpenAiResponses => json!(reply.said()),
                    _ => reply.said()[0].clone(),
                };
                prop_assert_eq!(said, said_again);
            }
        }
    }

    /// Nothing panics, and what can be read keeps the rules.
    #[test]
    fn any_json_is_read_or_refused(value in any_json()) {
        for format in FORMATS {
            if let Ok(turn) = Turn::read(format, &value) {
                let calls = turn.len();
                let messages: Vec<_> = turn.answer(Vec::<ToolResult<String>>::new()).into_messages().collect();
                prop_assert!(calls == 0 || !messages.is_empty());
            }
        }
    }

    /// The same for chunks of streams.
    #[test]
    fn any_chunks_are_read_or_refused(chunks in prop::collection::vec(any_json(), 0..8)) {
        for format in FORMATS {
            let mut assembler = Assembler::new(format);
            for chunk in &chunks {
                let _ = assembler.push(chunk);
                let _ = assembler.push(&json!({ "choices": [{ "delta": chunk }] }));
                let _ = assembler.push(&json!({ "type": "content_block_start", "index": 0, "content_block": chunk }));
                let _ = assembler.push(&json!({ "type": "content_block_delta", "index": 0, "delta": chunk }));
                let _ = assembler.push(&json!({ "type": "response.output_item.added", "output_index": 0, "item": chunk }));
                let _ = assembler.push(&json!({ "contentBlockStart": { "start": chunk } }));
                let _ = assembler.push(&json!({ "contentBlockDelta": { "delta": chunk } }));
                let _ = assembler.push(&json!({ "candidates": [{ "content": { "parts": [chunk] } }] }));
            }
            if let Ok(turn) = assembler.finish() {
                let _ = turn.answer(Vec::<ToolResult<String>>::new());
            }
        }
    }
}
