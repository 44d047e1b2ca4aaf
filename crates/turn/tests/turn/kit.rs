//! Turns as models write them, in each format, and what providers check.

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tower_toolcall_turn::Format;

pub(crate) const FORMATS: [Format; 5] = [
    Format::OpenAiChat,
    Format::OpenAiResponses,
    Format::Anthropic,
    Format::Gemini,
    Format::Bedrock,
];

/// A call as a model writes it: id, name, arguments.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) id: Value,
    pub(crate) name: Value,
    /// A text for a custom tool.
    pub(crate) arguments: Value,
    /// A call of a custom tool, where the format has those.
    pub(crate) is_custom: bool,
    /// Written by a server that has a null for what is not there.
    pub(crate) has_nulls: bool,
}

impl Written {
    pub(crate) fn new(id: &str, name: &str, arguments: &str) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
            is_custom: false,
            has_nulls: false,
        }
    }

    pub(crate) fn custom(self) -> Self {
        Self {
            is_custom: true,
            ..self
        }
    }

    pub(crate) fn with_nulls(self) -> Self {
        Self {
            has_nulls: true,
            ..self
        }
    }

    /// Of chat completions: the keys of the body and of the arguments in it, and the key of the
    /// other kind's body.
    fn chat_keys(&self) -> [&'static str; 3] {
        match self.is_custom {
            true => ["custom", "input", "function"],
            false => ["function", "arguments", "custom"],
        }
    }
}

/// Anything, with faults.
pub(crate) fn written() -> impl Strategy<Value = Written> {
    let id = prop_oneof![
        4 => "[a-z]{1,8}".prop_map(Value::from),
        2 => Just(json!("same")),
        1 => Just(json!("")),
        1 => Just(Value::Null),
        1 => Just(json!(7)),
        1 => Just(json!("ä id/ of too many characters ".repeat(9))),
    ];
    let name = prop_oneof![
        4 => prop::sample::select(vec!["ok", "fail", "panic", "ok"]).prop_map(Value::from),
        1 => Just(json!("")),
        1 => Just(Value::Null),
        1 => Just(json!("checkErrors\" />")),
        1 => Just(json!("x".repeat(130))),
    ];
    let arguments = prop_oneof![
        3 => Just(json!({ "a": "ä\"\n", "b": [1, null] })),
        1 => Just(json!({})),
        1 => Just(Value::Null),
        1 => Just(json!("")),
        1 => Just(json!("{\"a\": \"ä\"}")),
        1 => Just(json!("{\"a\": 1, \"a\": 2}")),
        1 => Just(json!("{\"a\": ")),
        1 => Just(json!("[1]")),
        1 => Just(json!(3)),
        1 => Just(json!([{}])),
    ];
    let is_custom = prop::bool::weighted(0.25);
    (id, name, arguments, is_custom, any::<bool>()).prop_map(
        |(id, name, arguments, is_custom, has_nulls)| Written {
            id,
            name,
            arguments,
            is_custom,
            has_nulls,
        },
    )
}

fn object(fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
    fields
        .map(|(key, value)| (key.to_owned(), value))
        .collect::<Map<_, _>>()
        .into()
}

/// The response that has these calls.
pub(crate) fn response(format: Format, calls: &[Written]) -> Value {
    let calls = calls.iter().cloned();
    match format {
        Format::OpenAiChat => {
            let calls = calls.map(|call| {
                let [of, key, other] = call.chat_keys();
                let body = object([("name", call.name), (key, call.arguments)]);
                let mut entry = object([("id", call.id), ("type", of.into()), (of, body)]);
                if call.has_nulls {
                    entry[other] = Value::Null;
                }
                entry
            });
            let calls: Value = calls.collect();
            let message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
            json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "tool_calls" }] })
        }
        Format::OpenAiResponses => {
            let items = calls.map(|call| {
                let (of, key) = match call.is_custom {
                    true => ("custom_tool_call", "input"),
                    false => ("function_call", "arguments"),
                };
                object([
                    ("type", of.into()),
                    ("call_id", call.id),
                    ("name", call.name),
                    (key, call.arguments),
                ])
            });
            let items: Vec<_> = [json!({ "type": "reasoning", "id": "rs", "summary": [] })]
                .into_iter()
                .chain(items)
                .collect();
            json!({ "output": items, "status": "completed" })
        }
        Format::Anthropic => {
            let blocks = calls.map(|call| {
                object([
                    ("type", "tool_use".into()),
                    ("id", call.id),
                    ("name", call.name),
                    ("input", call.arguments),
                ])
            });
            let blocks: Vec<_> =
                [json!({ "type": "thinking", "thinking": "", "signature": "c2ln" })]
                    .into_iter()
                    .chain(blocks)
                    .collect();
            json!({ "role": "assistant", "content": blocks, "stop_reason": "tool_use" })
        }
        Format::Gemini => {
            let parts: Value = calls
                .map(|call| {
                    let call = object([
                        ("id", call.id),
                        ("name", call.name),
                        ("args", call.arguments),
                    ]);
                    json!({ "functionCall": call, "thoughtSignature": "c2ln" })
                })
                .collect();
            let content = json!({ "role": "model", "parts": parts });
            json!({ "candidates": [{ "content": content, "finishReason": "STOP" }] })
        }
        _ => {
            let blocks: Value = calls
                .map(|call| {
                    let call = object([
                        ("toolUseId", call.id),
                        ("name", call.name),
                        ("input", call.arguments),
                    ]);
                    json!({ "toolUse": call })
                })
                .collect();
            let message = json!({ "role": "assistant", "content": blocks });
            json!({ "output": { "message": message }, "stopReason": "tool_use" })
        }
    }
}

/// The same response, ended by its limit of length.
pub(crate) fn limited(format: Format, mut response: Value) -> Value {
    let (at, reason) = match format {
        Format::OpenAiChat => ("/choices/0/finish_reason", "length"),
        Format::OpenAiResponses => ("/status", "incomplete"),
        Format::Anthropic => ("/stop_reason", "max_tokens"),
        Format::Gemini => ("/candidates/0/finishReason", "MAX_TOKENS"),
        _ => ("/stopReason", "max_tokens"),
    };
    *response.pointer_mut(at).expect("a reason") = reason.into();
    response
}

/// The same as a stream whose arguments come character by character. For calls that are whole.
pub(crate) fn stream(format: Format, calls: &[Written]) -> Vec<Value> {
    let mut chunks = Vec::new();
    let whole = response(format, calls);
    for (n, call) in calls.iter().enumerate() {
        let all = call.arguments.as_str().unwrap_or_default();
        let pieces = all.chars().map(String::from);
        let (id, name) = (&call.id, &call.name);
        match format {
            Format::OpenAiChat => {
                let delta = |call: Value| json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] } }] });
                let [of, key, other] = call.chat_keys();
                let piece = |body: Value| {
                    let mut piece = json!({ "index": n, of: body });
                    if call.has_nulls {
                        piece[other] = Value::Null;
                    }
                    piece
                };
                let mut first = piece(json!({ "name": name, key: "" }));
                first["id"] = id.clone();
                first["type"] = of.into();
                chunks.push(delta(first));
                chunks.extend(pieces.map(|p| delta(piece(json!({ key: p })))));
            }
            Format::OpenAiResponses => {
                let item = format!("fc_{n}");
                let (of, key, delta) = match call.is_custom {
                    true => ("custom_tool_call", "input", "custom_tool_call_input"),
                    false => ("function_call", "arguments", "function_call_arguments"),
                };
                chunks.push(
                    json!({ "type": "response.output_item.added", "output_index": n, "item":
                    { "type": of, "id": item, "call_id": id, "name": name, key: "" } }),
                );
                chunks.extend(pieces.map(|p| {
                    json!({ "type": format!("response.{delta}.delta"),
                    "item_id": item, "output_index": n, "delta": p })
                }));
            }
            Format::Anthropic => {
                chunks.push(
                    json!({ "type": "content_block_start", "index": n, "content_block":
                    { "type": "tool_use", "id": id, "name": name, "input": {} } }),
                );
                chunks.extend(pieces.map(|p| {
                    json!({ "type": "content_block_delta", "index": n,
                    "delta": { "type": "input_json_delta", "partial_json": p } })
                }));
                chunks.push(json!({ "type": "content_block_stop", "index": n }));
            }
            Format::Gemini => {
                let part = &whole["candidates"][0]["content"]["parts"][n];
                chunks.push(
                    json!({ "candidates": [{ "content": { "role": "model", "parts": [part] } }] }),
                );
            }
            _ => {
                chunks.push(json!({ "contentBlockStart": { "contentBlockIndex": n,
                    "start": { "toolUse": { "toolUseId": id, "name": name } } } }));
                chunks.extend(pieces.map(|p| {
                    json!({ "contentBlockDelta": { "contentBlockIndex": n,
                    "delta": { "toolUse": { "input": p } } } })
                }));
                chunks.push(json!({ "contentBlockStop": { "contentBlockIndex": n } }));
            }
        }
    }
    chunks.push(match format {
        Format::OpenAiChat => {
            json!({ "choices": [{ "delta": {}, "finish_reason": "tool_calls" }] })
        }
        Format::OpenAiResponses => {
            json!({ "type": "response.completed", "response": { "output": [] } })
        }
        Format::Anthropic => json!({ "type": "message_stop" }),
        Format::Gemini => json!({ "candidates": [{ "finishReason": "STOP" }] }),
        _ => json!({ "messageStop": { "stopReason": "tool_use" } }),
    });
    chunks
}

/// Fails unless the provider would take these messages: the ids of calls and of results are the
/// same, in the same order, and no name has more than a request may have.
pub(crate) fn check(format: Format, messages: &[Value], calls: usize) {
    names_fit(messages);
    let (said, results) = halves(format, messages);
    assert_eq!((said.len(), results.len()), (calls, calls), "{messages:#?}");
    assert_eq!(said, results);
    let unique: HashSet<_> = said.iter().flatten().collect();
    let given = said.iter().flatten().count();
    assert_eq!(unique.len(), given, "an id is there twice");
    if format != Format::Gemini {
        assert_eq!(given, calls, "an id is missing");
        assert!(unique.iter().all(|id| !id.trim().is_empty()));
    }
}

/// Whatever the format, a name stands under this key.
fn names_fit<'a>(values: impl IntoIterator<Item = &'a Value>) {
    for value in values {
        if let Some(name) = value.get("name").and_then(Value::as_str) {
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            assert!(name.len() <= 64 && name.chars().all(is_allowed), "{name}");
        }
        match value {
            Value::Array(items) => names_fit(items),
            Value::Object(map) => names_fit(map.values()),
            _ => {}
        }
    }
}

type Ids = Vec<Option<String>>;

/// The ids of the calls, and of the results, in their order.
fn halves(format: Format, messages: &[Value]) -> (Ids, Ids) {
    let ids = |list: &[Value], path: &[&str]| -> Ids {
        let at = |entry: &Value| path.iter().fold(entry.clone(), |v, key| v[*key].clone());
        let is = |entry: &&Value| {
            path[..path.len() - 1]
                .iter()
                .all(|key| entry.get(*key).is_some())
        };
        list.iter()
            .filter(is)
            .map(|entry| at(entry).as_str().map(str::to_owned))
            .collect()
    };
    let of_type = |list: &[Value], kind: &str| -> Vec<Value> {
        list.iter()
            .filter(|entry| entry["type"] == kind)
            .cloned()
            .collect()
    };
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let Some(first) = messages.first() else {
        return Default::default();
    };
    match format {
        Format::OpenAiChat => {
            let calls = items(&first["tool_calls"]);
            assert!(calls.iter().all(|call| match call["type"] == "custom" {
                true => call["custom"]["input"].is_string(),
                false => call["function"]["arguments"].is_string(),
            }));
            assert!(
                messages[1..]
                    .iter()
                    .all(|m| m["role"] == "tool" && m["content"].is_string())
            );
            (ids(&calls, &["id"]), ids(&messages[1..], &["tool_call_id"]))
        }
        Format::OpenAiResponses => {
            let of = |item: &Value| item["type"].as_str().unwrap_or_default().to_owned();
            let ending = |end: &str| -> Vec<Value> {
                let all = messages.iter().filter(|item| of(item).ends_with(end));
                all.cloned().collect()
            };
            let (calls, results) = (ending("_call"), ending("_call_output"));
            assert!(calls.iter().all(|call| match of(call).as_str() {
                "custom_tool_call" => call["input"].is_string(),
                _ => call["arguments"].is_string(),
            }));
            for (call, result) in calls.iter().zip(&results) {
                assert_eq!(of(call) + "_output", of(result));
            }
            (ids(&calls, &["call_id"]), ids(&results, &["call_id"]))
        }
        Format::Anthropic => {
            let calls = of_type(&items(&first["content"]), "tool_use");
            assert!(calls.iter().all(|call| call["input"].is_object()));
            let results = messages
                .get(1)
                .map(|m| items(&m["content"]))
                .unwrap_or_default();
            assert!(results.iter().all(|result| result["type"] == "tool_result"));
            assert!(messages.len() <= 2 && messages.get(1).is_none_or(|m| m["role"] == "user"));
            (ids(&calls, &["id"]), ids(&results, &["tool_use_id"]))
        }
        Format::Gemini => {
            let results = messages
                .get(1)
                .map(|m| items(&m["parts"]))
                .unwrap_or_default();
            assert!(
                results
                    .iter()
                    .all(|r| r["functionResponse"]["response"].is_object())
            );
            assert!(messages.len() <= 2);
            let calls = ids(&items(&first["parts"]), &["functionCall", "id"]);
            // Numbers are no ids.
            (calls, ids(&results, &["functionResponse", "id"]))
        }
        _ => {
            let calls = items(&first["content"]);
            assert!(
                calls
                    .iter()
                    .all(|call| call["toolUse"]["input"].is_object())
            );
            let results = messages
                .get(1)
                .map(|m| items(&m["content"]))
                .unwrap_or_default();
            let status = |r: &Value| r["toolResult"]["status"].clone();
            assert!(
                results
                    .iter()
                    .all(|r| status(r) == "success" || status(r) == "error")
            );
            assert!(messages.len() <= 2);
            let calls = ids(&calls, &["toolUse", "toolUseId"]);
            (calls, ids(&results, &["toolResult", "toolUseId"]))
        }
    }
}
