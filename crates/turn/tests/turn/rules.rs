//! What the provider's rules ask, whatever the model wrote and whatever became of the calls.

use proptest::prelude::*;
use serde_json::{Value, json};
use tower::service_fn;
use tower_toolcall::{AnyError, ToolCall, batch::Parallel, result::ToolResult};
use tower_toolcall_turn::{Assembler, Format, MAX_TOOL_NAME, Names, Turn};

use crate::kit::{FORMATS, Written, check, limited, response, written};

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

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "choices", "message", "tool_calls", "function", "arguments", "id", "name", "content",
    "type", "tool_use", "input", "candidates", "parts", "functionCall", "args", "output",
    "toolUse", "toolUseId", "function_call", "delta", "index", "content_block_start",
    "content_block", "content_block_delta", "contentBlockStart", "start", "contentBlockDelta",
    "contentBlockIndex", "response.output_item.added",
    "response.function_call_arguments.delta", "item", "item_id", "text", "partial_json",
    "reasoningContent", "role", "stop_reason", "finish_reason", "response.completed",
    "response", "custom", "custom_tool_call", "response.custom_tool_call_input.delta",
    "status", "incomplete", "length", "",
];

/// Any JSON, with words of the formats in it.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(WORDS);
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

/// What was put right once is right: read again, it is the same.
fn stays_right(format: Format, said: &[Value], calls: usize) {
    // A message with such a field would be read as a response.
    let is_response = |m: &Value| m.get("choices").or(m.get("candidates")).is_some();
    let Some(first) = said.first().filter(|first| !is_response(first)) else {
        return;
    };
    let message = match format {
        Format::OpenAiResponses => json!(said),
        _ => first.clone(),
    };
    let again = Turn::read(format, &message).expect("what was put right");
    assert_eq!(again.len(), calls);
    let again = again.answer(Vec::<ToolResult<String>>::new());
    assert_eq!(again.said(), said);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every call of every format is answered exactly once, in order, whichever results come, in
    /// whichever order.
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
            // Only custom tools have this argument here, and they take a text.
            prop_assert!(turn.calls().all(|c| c.arguments().get("input").is_none_or(Value::is_string)));
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
            stays_right(format, reply.said(), calls.len());
            let messages: Vec<_> = reply.into_messages().collect();
            check(format, &messages, calls.len());
        }
    }

    /// All providers take the names, no two tools have one, and what the model calls is the tool.
    #[test]
    fn names_fit_and_come_back(tools in prop::collection::hash_set(prop_oneof![
        3 => ".{0,90}",
        2 => "[a-b/._-]{0,3}",
        1 => prop::sample::select(vec!["docs/search", "docs_search_5af14947", "7zip", "-", "", "näme"]).prop_map(str::to_owned),
    ], 0..12)) {
        let names = Names::new(&tools);
        let mut seen = std::collections::HashSet::new();
        for tool in &tools {
            let name = names.to_model(tool).into_owned();
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            prop_assert!((1..=MAX_TOOL_NAME).contains(&name.len()) && name.chars().all(is_allowed), "{}", name);
            prop_assert!(!name.starts_with(|c: char| c.is_ascii_digit() || c == '-'), "{}", name);
            prop_assert_eq!(names.to_tool(&name), tool);
            for format in FORMATS {
                let turn = Turn::read(format, &response(format, &[Written::new("a", &name, "{}")])).unwrap();
                let call = turn.with_names(&names).calls().next().unwrap();
                prop_assert_eq!(call.tool(), tool);
            }
            prop_assert!(seen.insert(name));
        }
    }

    /// Nothing panics, and what can be read keeps the rules.
    #[test]
    fn any_json_is_read_or_refused(value in any_json()) {
        for format in FORMATS {
            if let Ok(turn) = Turn::read(format, &value) {
                let calls = turn.len();
                let reply = turn.answer(Vec::<ToolResult<String>>::new());
                prop_assert!(calls == 0 || !reply.said().is_empty());
                stays_right(format, reply.said(), calls);
            }
        }
    }

    /// A model that met its limit may have been in the middle of its last call: a provider closes
    /// the object, and what is in it looks whole.
    #[test]
    fn a_limited_turn_runs_all_but_its_last_call(calls in prop::collection::vec(written(), 1..6)) {
        for format in FORMATS {
            let whole = Turn::read(format, &response(format, &calls)).unwrap();
            let turn = Turn::read(format, &limited(format, response(format, &calls))).unwrap();
            prop_assert_eq!((whole.is_cut(), turn.is_cut()), (false, true));
            let shown = |c: ToolCall| format!("{} {:?}", c.tool(), c.arguments());
            let has_arguments = |c: &ToolCall| c.arguments().values().any(|value| value != "");
            let others = Turn::read(format, &response(format, &calls[..calls.len() - 1])).unwrap();
            let expected: Vec<_> = others.calls().filter(has_arguments).map(shown).collect();
            prop_assert_eq!(turn.calls().map(shown).collect::<Vec<_>>(), expected);
            let calls = turn.len();
            let messages: Vec<_> = turn.answer(Vec::<ToolResult<String>>::new()).into_messages().collect();
            check(format, &messages, calls);
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
                let calls = turn.len();
                let reply = turn.answer(Vec::<ToolResult<String>>::new());
                stays_right(format, reply.said(), calls);
            }
        }
    }
}
