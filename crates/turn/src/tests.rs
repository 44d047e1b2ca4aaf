//! Rules of single formats; what holds for all of them is in `tests`.

use serde_json::{Value, json};
use tower::{Layer as _, ServiceExt as _};
use tower_toolcall::{ErrorKind, ToolCall, ToolError, ToolResult, result::ToolResultLayer};

use super::{Assembler, Format, MAX_CALLS, Names, ToolDefinition, Turn, TurnError};

/// No result at all.
fn unanswered(turn: Turn) -> Vec<Value> {
    let results = Vec::<ToolResult<String>>::new();
    turn.answer(results).into_messages().collect()
}

fn assembled(format: Format, chunks: impl IntoIterator<Item = Value>) -> Turn {
    let mut assembler = Assembler::new(format);
    for chunk in chunks {
        assembler.push(&chunk).unwrap();
    }
    assembler.finish().unwrap()
}

fn arguments(turn: &Turn) -> Vec<String> {
    let text = |call: ToolCall| serde_json::to_string(call.arguments()).unwrap();
    turn.calls().map(text).collect()
}

fn chat_calls(calls: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let chunk = |call| json!({ "choices": [{ "delta": { "tool_calls": [call] } }] });
    let end = json!({ "choices": [{ "delta": {}, "finish_reason": "tool_calls" }] });
    calls.into_iter().map(chunk).chain([end]).collect()
}

/// S13: the text says what is wrong: the type where a format has objects, the JSON where it has
/// texts.
#[test]
fn a_text_in_place_of_an_object_is_of_the_wrong_type() {
    let anthropic = |input| {
        json!({ "stop_reason": "tool_use", "content": [
            { "type": "tool_use", "id": "t", "name": "f", "input": input },
        ] })
    };
    let chat = json!({ "choices": [{ "message": { "tool_calls": [
        { "id": "t", "type": "function", "function": { "name": "f", "arguments": "Oslo" } },
    ] } }] });
    let of_object = "tool arguments must be a JSON object, not a string";
    let of_text = "tool arguments are not valid JSON (line 1, column 1)";
    for (format, response, text) in [
        (Format::Anthropic, anthropic("Oslo"), of_object),
        (Format::OpenAiChat, chat, of_text),
    ] {
        let turn = Turn::read(format, &response).unwrap();
        assert_eq!(turn.invalid().next().unwrap().message(), text);
    }
    // The object itself as a text is one.
    let turn = Turn::read(Format::Anthropic, &anthropic(r#"{"a":1}"#)).unwrap();
    assert_eq!(arguments(&turn), [r#"{"a":1}"#]);
}

#[test]
fn what_the_model_said_goes_back_unchanged() {
    let message = json!({ "role": "assistant", "content": null, "reasoning_content": "..", "tool_calls": [
        { "id": "a", "type": "function", "function": { "name": "f", "arguments": "{\"a\": 1" }, "extra_content": { "google": "c2ln" } },
    ] });
    let response = json!({ "choices": [{ "message": message }] });
    let turn = Turn::read(Format::OpenAiChat, &response).unwrap();
    assert_eq!(
        turn.invalid().next().unwrap().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(unanswered(turn)[0], message);

    let output = json!([
        { "type": "reasoning", "id": "rs_1", "encrypted_content": "x", "summary": [] },
        { "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}" },
    ]);
    let turn = Turn::read(
        Format::OpenAiResponses,
        &json!({ "output": output, "status": "completed" }),
    )
    .unwrap();
    let messages = unanswered(turn);
    assert_eq!(json!(messages[..2]), output);
    assert_eq!(messages[2]["call_id"], "call_1");

    let content = json!([
        { "type": "thinking", "thinking": "..", "signature": "c2ln" },
        { "type": "tool_use", "id": "toolu_1", "name": "f", "input": { "a": 1 } },
    ]);
    let turn = Turn::read(
        Format::Anthropic,
        &json!({ "id": "msg_1", "content": content }),
    )
    .unwrap();
    assert_eq!(
        unanswered(turn)[0],
        json!({ "role": "assistant", "content": content })
    );

    let parts = json!({ "role": "model", "parts": [
        { "functionCall": { "name": "f" }, "thoughtSignature": "c2ln" },
        { "functionCall": { "name": "f", "args": { "a": 1 } } },
    ] });
    let turn = Turn::read(
        Format::Gemini,
        &json!({ "candidates": [{ "content": parts }] }),
    )
    .unwrap();
    let messages = unanswered(turn);
    assert_eq!(messages[0], parts);
    assert_eq!(messages[1]["parts"][0]["functionResponse"].get("id"), None);

    let message = json!({ "role": "assistant", "content": [
        { "reasoningContent": { "reasoningText": { "text": "..", "signature": "c2ln" } } },
        { "toolUse": { "toolUseId": "t_1", "name": "f", "input": {} } },
    ] });
    let turn = Turn::read(
        Format::Bedrock,
        &json!({ "output": { "message": message } }),
    )
    .unwrap();
    let messages = unanswered(turn);
    assert_eq!(messages[0], message);
    assert_eq!(messages[1]["content"][0]["toolResult"]["status"], "error");
}

#[test]
fn what_a_provider_would_not_take_back_is_put_right() {
    let turn = Turn::read(
        Format::Anthropic,
        &json!({ "content": [
        { "type": "text", "text": " " },
        { "type": "tool_use", "id": "same", "name": "f", "input": "{\"a\":1}" },
        { "type": "tool_use", "id": "same", "name": "f", "input": "{\"a\"" },
        { "type": "tool_use", "id": 7, "name": "", "input": [1] },
        { "type": "server_tool_use", "id": "srv", "name": "web_search", "input": {} },
    ] }),
    )
    .unwrap();
    assert_eq!((turn.len(), turn.calls().count()), (3, 1));
    let messages = unanswered(turn);
    let said = messages[0]["content"].as_array().unwrap();
    let inputs: Vec<_> = said.iter().map(|block| &block["input"]).collect();
    assert_eq!(
        inputs,
        [&json!({ "a": 1 }), &json!({}), &json!({}), &json!({})]
    );
    for n in 0..3 {
        assert_eq!(said[n]["id"], messages[1]["content"][n]["tool_use_id"]);
    }
    assert_eq!(said[0]["id"], "same");
    assert_ne!(said[1]["id"], "same");
    assert!(said[2]["id"].is_string());

    let message = json!({ "message": { "content": "hello", "tool_calls": [] } });
    let turn = Turn::read(Format::OpenAiChat, &json!({ "choices": [message] })).unwrap();
    assert_eq!(
        unanswered(turn),
        [json!({ "role": "assistant", "content": "hello" })]
    );
}

/// The model makes names up; a provider that checks them would refuse each later request.
#[test]
fn a_name_that_no_request_may_have_is_put_right_where_it_goes_back() {
    let made_up = "checkErrors\" />";
    let long = "x".repeat(200);
    let chat = |name: &str| json!({ "tool_calls": [{ "id": "a", "function": { "name": name, "arguments": "{}" } }] });
    let gemini = |name: &str| json!({ "parts": [{ "functionCall": { "name": name } }] });
    for name in [made_up, long.as_str(), "docs.search"] {
        let turn = Turn::read(Format::OpenAiChat, &chat(name)).unwrap();
        assert_eq!(turn.calls().next().unwrap().tool(), name);
        let said = &unanswered(turn)[0]["tool_calls"][0]["function"]["name"];
        assert_eq!(*said, *Names::default().to_model(name));
    }
    // What Gemini takes stays. The result has the name that goes back.
    let fitting = Names::default().to_model("a b").into_owned();
    for (name, back) in [("docs.search", "docs.search"), ("a b", fitting.as_str())] {
        let turn = Turn::read(Format::Gemini, &gemini(name)).unwrap();
        let messages = unanswered(turn);
        let said = &messages[0]["parts"][0]["functionCall"]["name"];
        let result = &messages[1]["parts"][0]["functionResponse"]["name"];
        assert_eq!((said, result), (&json!(back), &json!(back)));
    }
    // So does what the others take, although none of `Names` begins so.
    let turn = Turn::read(Format::OpenAiChat, &chat("7zip")).unwrap();
    assert_eq!(
        unanswered(turn)[0]["tool_calls"][0]["function"]["name"],
        "7zip"
    );
    // A tool that the model calls by its own name is found.
    let turn = Turn::read(Format::OpenAiChat, &chat("docs/search")).unwrap();
    let turn = turn.with_names(&Names::new(["docs/search"]));
    assert_eq!(turn.calls().next().unwrap().tool(), "docs/search");
    let turn = Turn::read(Format::OpenAiChat, &chat(made_up)).unwrap();
    let turn = turn.with_names(&Names::new(["docs/search"]));
    assert_eq!(turn.calls().next().unwrap().tool(), made_up);
}

#[test]
fn a_chat_message_has_no_null_that_servers_refuse() {
    let back = |message: Value| unanswered(Turn::read(Format::OpenAiChat, &message).unwrap());
    let call =
        json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let calls = json!({ "role": "assistant", "content": null, "tool_calls": [call], "function_call": null, "refusal": null });
    let said = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    assert_eq!(back(calls)[0], said);
    // A server that has both kinds of calls, and a null for the other one.
    let mut filled = call.clone();
    filled["custom"] = Value::Null;
    assert_eq!(
        back(json!({ "role": "assistant", "content": null, "tool_calls": [filled] }))[0],
        said
    );
    // Without calls the content must be a text.
    let thought = json!({ "role": "assistant", "content": null, "reasoning_content": ".." });
    assert_eq!(
        back(thought),
        [json!({ "role": "assistant", "content": "", "reasoning_content": ".." })]
    );
    let nothing = json!({ "role": "assistant", "content": null, "refusal": null, "annotations": [], "tool_calls": null });
    assert!(back(nothing).is_empty());
}

/// A custom tool takes a text: the argument `input`. Without its own kind of result OpenAI answers
/// 400 for ever.
#[test]
fn calls_of_custom_tools_run_and_have_their_own_kind_of_result() {
    let item = json!({ "type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "run", "input": "print(1" });
    let whole = Turn::read(Format::OpenAiResponses, &json!([item])).unwrap();
    let event = |of: &str, more: Value| {
        let mut event =
            json!({ "type": format!("response.{of}"), "output_index": 0, "item_id": "ctc_1" });
        event
            .as_object_mut()
            .unwrap()
            .append(&mut more.as_object().unwrap().clone());
        event
    };
    let mut begun = item.clone();
    begun["input"] = "".into();
    let streamed = assembled(
        Format::OpenAiResponses,
        [
            event("output_item.added", json!({ "item": begun })),
            event("custom_tool_call_input.delta", json!({ "delta": "print" })),
            event("custom_tool_call_input.delta", json!({ "delta": "(1" })),
            event("completed", json!({})),
        ],
    );
    for turn in [whole, streamed] {
        assert_eq!(arguments(&turn), [r#"{"input":"print(1"}"#]);
        let messages = unanswered(turn);
        assert_eq!(messages[0]["input"], "print(1");
        assert_eq!(messages[1]["type"], "custom_tool_call_output");
        assert_eq!(messages[1]["call_id"], "call_1");
    }
    let cut = json!({ "status": "incomplete", "output": [item] });
    let turn = Turn::read(Format::OpenAiResponses, &cut).unwrap();
    assert_eq!((turn.calls().count(), turn.invalid().count()), (0, 1));

    let custom = json!({ "name": "run", "input": "print(1" });
    let call = json!({ "id": "a", "type": "custom", "custom": custom });
    let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let whole = Turn::read(Format::OpenAiChat, &message).unwrap();
    let pieces = [
        json!({ "index": 0, "id": "a", "type": "custom", "custom": { "name": "run", "input": "" } }),
        json!({ "index": 0, "custom": { "input": "print(1" } }),
    ];
    for turn in [whole, assembled(Format::OpenAiChat, chat_calls(pieces))] {
        assert_eq!(arguments(&turn), [r#"{"input":"print(1"}"#]);
        let messages = unanswered(turn);
        assert_eq!(messages[0]["tool_calls"][0], call);
        assert_eq!(messages[1]["tool_call_id"], "a");
    }
}

/// The limit came before `content`, and the object is closed all the same.
#[test]
fn a_turn_that_met_its_limit_does_not_run_its_last_call() {
    let calls = json!([
        { "type": "tool_use", "id": "a", "name": "read", "input": { "path": "a" } },
        { "type": "tool_use", "id": "b", "name": "write", "input": { "path": "a" } },
    ]);
    let of = |reason: &str| {
        let response = json!({ "content": calls, "stop_reason": reason });
        Turn::read(Format::Anthropic, &response).unwrap()
    };
    assert_eq!(of("tool_use").calls().count(), 2);
    for reason in ["max_tokens", "refusal"] {
        let turn = of(reason);
        assert_eq!(turn.calls().count(), 1, "{reason}");
        let error = turn.invalid().next().unwrap();
        assert_eq!(error.call_id(), Some("b"));
        assert_eq!(
            error.model_message(),
            "Tool 'write' refused its arguments: the response was cut off, and they may be incomplete. \
             Correct them and call it again."
        );
    }
}

#[test]
fn a_turn_without_calls_says_whether_it_is_the_last_word() {
    let ended = |format, response: Value| Turn::read(format, &response).unwrap();
    let text = json!([{ "type": "text", "text": "wait" }]);
    for (reason, cut) in [
        ("end_turn", false),
        ("pause_turn", true),
        ("max_tokens", true),
        ("refusal", false),
    ] {
        let response = json!({ "stop_reason": reason, "content": text });
        assert_eq!(ended(Format::Anthropic, response).is_cut(), cut, "{reason}");
    }
    let malformed = json!({ "candidates": [{ "finishReason": "MALFORMED_FUNCTION_CALL" }] });
    assert!(ended(Format::Gemini, malformed).is_cut());
    for status in ["failed", "queued", "in_progress"] {
        let response = json!({ "status": status, "output": [] });
        assert!(
            ended(Format::OpenAiResponses, response).is_cut(),
            "{status}"
        );
    }
    assert!(
        Assembler::new(Format::OpenAiChat)
            .finish()
            .unwrap()
            .is_cut()
    );
}

/// Mistral's, DeepSeek's and Z.ai's own reasons.
#[test]
fn a_chat_turn_that_its_server_could_not_end_does_not_run_its_last_call() {
    let call =
        json!({ "id": "a", "function": { "name": "write", "arguments": "{\"path\":\"a\"}" } });
    for (reason, is_cut) in [
        ("model_length", true),
        ("insufficient_system_resource", true),
        ("network_error", true),
        ("sensitive", false),
    ] {
        let message = json!({ "role": "assistant", "tool_calls": [call] });
        let response = json!({ "choices": [{ "message": message, "finish_reason": reason }] });
        let turn = Turn::read(Format::OpenAiChat, &response).unwrap();
        assert_eq!(
            (turn.calls().count(), turn.is_cut()),
            (0, is_cut),
            "{reason}"
        );
    }
}

#[test]
fn an_incomplete_response_says_whether_a_filter_has_ended_it() {
    for (reason, is_cut) in [
        ("max_output_tokens", true),
        ("content_filter", false),
        ("another", true),
    ] {
        let response = json!({ "status": "incomplete", "output": [], "incomplete_details": { "reason": reason } });
        let turn = Turn::read(Format::OpenAiResponses, &response).unwrap();
        assert_eq!(turn.is_cut(), is_cut, "{reason}");
        let event = json!({ "type": "response.incomplete", "response": response });
        let turn = assembled(Format::OpenAiResponses, [event]);
        assert_eq!(turn.is_cut(), is_cut, "{reason}");
    }
}

/// As servers in Go write them in each chunk.
#[test]
fn a_blank_reason_ends_no_stream() {
    let call =
        json!({ "index": 0, "id": "a", "function": { "name": "delete_all", "arguments": "" } });
    let chunk = json!({ "choices": [{ "delta": { "tool_calls": [call] }, "finish_reason": "" }] });
    let turn = assembled(Format::OpenAiChat, [chunk]);
    assert_eq!((turn.is_cut(), turn.calls().count()), (true, 0));
}

/// Its signature, which comes last, is cut off too (oh-my-pi#2145, openclaw#103938): Anthropic
/// answers 400 for ever.
#[test]
fn a_thought_that_was_cut_off_does_not_go_back() {
    let said = json!({ "type": "text", "text": "Well" });
    let start = |n: usize, block: &Value| json!({ "type": "content_block_start", "index": n, "content_block": block });
    let thought = json!({ "type": "thinking", "thinking": "Let", "signature": "" });
    let part = json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "signature_delta", "signature": "c2" } });
    for stream in [
        vec![start(0, &said), start(1, &thought)],
        vec![start(0, &said), start(1, &thought), part],
    ] {
        let turn = assembled(Format::Anthropic, stream);
        assert_eq!(unanswered(turn)[0]["content"], json!([said]));
    }
    let limited = json!({ "stop_reason": "max_tokens", "content": [thought] });
    let turn = Turn::read(Format::Anthropic, &limited).unwrap();
    assert!(turn.is_cut() && unanswered(turn).is_empty());
    let thought = json!({ "reasoningContent": { "text": "Let" } });
    let delta = json!({ "contentBlockDelta": { "contentBlockIndex": 0, "delta": thought } });
    assert!(unanswered(assembled(Format::Bedrock, [delta])).is_empty());
    // OpenAI takes no reasoning back without what follows it (vercel/ai#7099).
    let reasoning = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
    let limited = json!({ "status": "incomplete", "output": [reasoning] });
    let turn = Turn::read(Format::OpenAiResponses, &limited).unwrap();
    assert!(turn.is_cut() && unanswered(turn).is_empty());
    // Servers without signatures: one that is whole goes back.
    let whole = json!({ "stop_reason": "end_turn", "content": [
        { "type": "thinking", "thinking": "Let", "signature": "" }, said ] });
    let turn = Turn::read(Format::Anthropic, &whole).unwrap();
    assert_eq!(unanswered(turn)[0]["content"], whole["content"]);
}

/// Anthropic answers 400 for ever.
#[tokio::test(start_paused = true)]
async fn a_failure_without_a_word_has_one() {
    let use_of = json!({ "type": "tool_use", "id": "a", "name": "f", "input": {} });
    let turn = Turn::read(Format::Anthropic, &json!({ "content": [use_of] })).unwrap();
    let call = turn.calls().next().unwrap();
    let tool = tower::service_fn(|_| async {
        Err::<String, _>(ToolError::new(ErrorKind::Failed, "").with_model_message(" "))
    });
    let Ok(result) = ToolResultLayer::new().layer(tool).oneshot(call).await;
    let messages: Vec<_> = turn.answer([result]).into_messages().collect();
    let result = &messages[1]["content"][0];
    assert_eq!(result["is_error"], true);
    assert_eq!(result["content"], "(no output)");
}

#[test]
fn a_stream_that_breaks_off_does_not_run_its_last_call_without_arguments() {
    let call =
        json!({ "index": 0, "id": "a", "function": { "name": "delete_all", "arguments": "" } });
    let mut chunks = chat_calls([call]);
    assert_eq!(
        assembled(Format::OpenAiChat, chunks.clone())
            .calls()
            .count(),
        1
    );
    chunks.pop();
    assert_eq!(assembled(Format::OpenAiChat, chunks).calls().count(), 0);
}

#[test]
fn chat_calls_of_one_index_are_told_apart_by_their_ids() {
    let chunks = chat_calls([
        json!({ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{\"n\"" } }),
        json!({ "index": 0, "id": "b", "function": { "name": "f", "arguments": "{\"n\":2" } }),
        json!({ "index": 0, "id": "a", "function": { "arguments": ":1}" } }),
        json!({ "index": 0, "id": "", "function": { "name": null, "arguments": "}" } }),
    ]);
    let turn = assembled(Format::OpenAiChat, chunks);
    assert_eq!(arguments(&turn), [r#"{"n":1}"#, r#"{"n":2}"#]);
}

#[test]
fn chat_fragments_without_index_and_id_belong_to_the_last_call() {
    let chunks = chat_calls([
        json!({ "id": "a", "function": { "name": "f", "arguments": "{}" } }),
        json!({ "id": "b", "function": { "name": "f" } }),
        json!({ "function": { "arguments": "{\"n\":2}" } }),
    ]);
    assert_eq!(
        arguments(&assembled(Format::OpenAiChat, chunks)),
        ["{}", r#"{"n":2}"#]
    );
}

#[test]
fn whole_chat_calls_without_index_and_id_are_several() {
    let whole = |n: u8| json!({ "function": { "name": "f", "arguments": { "n": n } } });
    let turn = assembled(Format::OpenAiChat, chat_calls([whole(1), whole(2)]));
    assert_eq!(arguments(&turn), [r#"{"n":1}"#, r#"{"n":2}"#]);
}

#[test]
fn blocks_of_one_index_are_several() {
    let start = |id: &str| json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "tool_use", "id": id, "name": "f", "input": {} } });
    let delta = |text: &str| json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "input_json_delta", "partial_json": text } });
    let chunks = [
        start("a"),
        delta("{\"n\":1}"),
        start("b"),
        delta("{\"n\":"),
        delta("2}"),
        json!({ "type": "message_stop" }),
    ];
    assert_eq!(
        arguments(&assembled(Format::Anthropic, chunks)),
        [r#"{"n":1}"#, r#"{"n":2}"#]
    );
}

#[test]
fn a_delta_with_a_wrong_index_goes_to_a_block_that_can_have_it() {
    let start = |index: u8, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
    let delta = |index: u8, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let turn = assembled(
        Format::Anthropic,
        [
            start(
                0,
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
            ),
            start(1, json!({ "type": "text", "text": "" })),
            start(
                2,
                json!({ "type": "tool_use", "id": "a", "name": "f", "input": {} }),
            ),
            delta(2, json!({ "type": "thinking_delta", "thinking": "so" })),
            delta(9, json!({ "type": "text_delta", "text": "hello" })),
            delta(
                0,
                json!({ "type": "input_json_delta", "partial_json": "{\"n\":1}" }),
            ),
            delta(0, json!({ "type": "signature_delta", "signature": "c2ln" })),
            json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } }),
        ],
    );
    let content = json!([
        { "type": "thinking", "thinking": "so", "signature": "c2ln" },
        { "type": "text", "text": "hello" },
        { "type": "tool_use", "id": "a", "name": "f", "input": { "n": 1 } },
    ]);
    assert_eq!(unanswered(turn)[0]["content"], content);
}

#[test]
fn reasoning_of_a_bedrock_stream_is_put_together() {
    let delta = |index: u8, delta: Value| json!({ "contentBlockDelta": { "contentBlockIndex": index, "delta": delta } });
    let turn = assembled(
        Format::Bedrock,
        [
            delta(0, json!({ "reasoningContent": { "text": "a" } })),
            delta(0, json!({ "reasoningContent": { "text": "b" } })),
            delta(0, json!({ "reasoningContent": { "signature": "c2ln" } })),
            json!({ "contentBlockStart": { "contentBlockIndex": 1, "start": { "toolUse": { "toolUseId": "t", "name": "f" } } } }),
            delta(1, json!({ "toolUse": { "input": "{\"n\":" } })),
            delta(1, json!({ "toolUse": { "input": "1}" } })),
            json!({ "messageStop": { "stopReason": "tool_use" } }),
        ],
    );
    let said = &unanswered(turn)[0]["content"];
    assert_eq!(
        said[0],
        json!({ "reasoningContent": { "reasoningText": { "text": "ab", "signature": "c2ln" } } })
    );
    assert_eq!(said[1]["toolUse"]["input"], json!({ "n": 1 }));
}

#[test]
fn parts_with_signatures_stay_apart_in_a_gemini_stream() {
    let chunk = |part: Value| json!({ "candidates": [{ "content": { "parts": [part] } }] });
    let turn = assembled(
        Format::Gemini,
        [
            chunk(json!({ "text": "a" })),
            chunk(json!({ "text": "b" })),
            chunk(json!({ "functionCall": { "name": "f" } })),
            chunk(json!({ "text": "", "thoughtSignature": "c2ln" })),
            json!({ "candidates": [{ "finishReason": "STOP" }] }),
        ],
    );
    assert_eq!(turn.calls().count(), 1);
    let said = unanswered(turn).remove(0);
    let parts = json!([{ "text": "ab" }, { "functionCall": { "name": "f" } }, { "text": "", "thoughtSignature": "c2ln" }]);
    assert_eq!(said["parts"], parts);
}

#[test]
fn the_last_word_of_a_responses_stream_counts() {
    let item = |arguments: &str| json!({ "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": arguments });
    let event = |kind: &str, more: Value| {
        let mut event = json!({ "type": format!("response.{kind}"), "output_index": 0 });
        event
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        event
    };
    let added = event("output_item.added", json!({ "item": item("") }));
    let delta = event(
        "function_call_arguments.delta",
        json!({ "item_id": "fc_1", "delta": "{\"n\":1}" }),
    );
    let done = event("output_item.done", json!({ "item": item("{\"n\":2}") }));
    let completed = event(
        "completed",
        json!({ "response": { "output": [item("{\"n\":3}")] } }),
    );
    let chunks = [added, delta, done, completed];
    for (n, expected) in [(2, r#"{"n":1}"#), (3, r#"{"n":2}"#), (4, r#"{"n":3}"#)] {
        let turn = assembled(Format::OpenAiResponses, chunks[..n].to_vec());
        assert_eq!(arguments(&turn), [expected]);
        assert_eq!(turn.calls().next().unwrap().id(), Some("call_1"));
    }
}

#[test]
fn a_turn_and_a_stream_are_bounded() {
    let calls = vec![json!({ "type": "function_call" }); MAX_CALLS + 1];
    let turn = Turn::read(Format::OpenAiResponses, &json!(calls));
    assert_eq!(turn.unwrap_err(), TurnError::TooManyCalls);

    let mut assembler = Assembler::new(Format::Gemini);
    let chunk =
        json!({ "candidates": [{ "content": { "parts": [{ "text": "x".repeat(1 << 20) }] } }] });
    let error = (0..17).find_map(|_| assembler.push(&chunk).err());
    assert_eq!(error, Some(TurnError::TooLarge));

    let mut deep = json!(1);
    for _ in 0..100_000 {
        deep = Value::Array(vec![deep]);
    }
    assert_eq!(
        Turn::read(Format::OpenAiChat, &deep).unwrap_err(),
        TurnError::TooDeep
    );
    assert_eq!(
        Assembler::new(Format::OpenAiChat).push(&deep),
        Err(TurnError::TooDeep)
    );
    // Dropping it would recurse.
    std::mem::forget(deep);
}

#[test]
fn a_name_that_is_taken_is_not_made_again() {
    let taken = Names::new(["a/b"]).to_model("a/b").into_owned();
    let names = Names::new(["a/b", taken.as_str()]);
    assert_ne!(names.to_model("a/b"), taken);
    assert_eq!(names.to_tool(&names.to_model("a/b")), "a/b");
    assert_eq!(names.to_tool(&taken), taken);
}

#[test]
fn calls_have_the_names_of_tools_and_results_those_of_the_model() {
    let names = Names::new(["docs/search"]);
    let name = names.to_model("docs/search");
    let part = json!({ "functionCall": { "name": name, "args": { "a": 1 } } });
    let turn = Turn::read(Format::Gemini, &json!({ "parts": [part] }))
        .unwrap()
        .with_names(&names);
    let call = turn.calls().next().unwrap();
    assert_eq!(
        (call.tool(), &call.arguments()["a"]),
        ("docs/search", &json!(1))
    );
    let messages = unanswered(turn);
    assert_eq!(messages[1]["parts"][0]["functionResponse"]["name"], *name);
}

#[test]
fn debug_shows_nothing_that_was_said() {
    let response = json!({ "content": [{ "type": "tool_use", "id": "a", "name": "f", "input": { "key": "s3cr3t" } }] });
    let turn = Turn::read(Format::Anthropic, &response).unwrap();
    let shown = format!(
        "{turn:?} {:?}",
        turn.clone().answer(Vec::<ToolResult<String>>::new())
    );
    assert!(!shown.contains("s3cr3t"), "{shown}");
}

#[test]
fn the_tools_of_a_request_are_in_its_format() {
    let schema =
        json!({ "type": "object", "properties": { "q": { "type": "string" } }, "required": ["q"] });
    // As servers in Go have it.
    let none = json!({ "properties": null, "required": null });
    let [schema, none] = [&schema, &none].map(|schema| schema.as_object().unwrap());
    let search = || ToolDefinition::new("docs/search", schema).with_description("Searches");
    let tools = || {
        let stop = ToolDefinition::new("stop", none).with_description(" ");
        // An MCP server may list a name twice; providers refuse that.
        [search(), stop, search()]
    };
    let names = Names::new(["docs/search", "stop"]);
    let name = names.to_model("docs/search");
    let empty = json!({ "type": "object", "properties": {} });
    let of = |format: Format| format.tools(&names, tools());
    assert_eq!(
        of(Format::OpenAiChat),
        json!([
            { "type": "function", "function": { "name": name, "description": "Searches", "parameters": schema } },
            { "type": "function", "function": { "name": "stop", "parameters": empty } },
        ])
    );
    assert_eq!(
        of(Format::OpenAiResponses),
        json!([
            { "type": "function", "name": name, "description": "Searches", "parameters": schema, "strict": false },
            { "type": "function", "name": "stop", "parameters": empty, "strict": false },
        ])
    );
    assert_eq!(
        of(Format::Anthropic),
        json!([
            { "name": name, "description": "Searches", "input_schema": schema },
            { "name": "stop", "input_schema": empty },
        ])
    );
    assert_eq!(
        of(Format::Gemini),
        json!([{ "functionDeclarations": [
            { "name": name, "description": "Searches", "parametersJsonSchema": schema },
            { "name": "stop", "parametersJsonSchema": empty },
        ] }])
    );
    assert_eq!(
        of(Format::Bedrock),
        json!({ "tools": [
            { "toolSpec": { "name": name, "description": "Searches", "inputSchema": { "json": schema } } },
            { "toolSpec": { "name": "stop", "inputSchema": { "json": empty } } },
        ] })
    );
    let nothing: [ToolDefinition<'_>; 0] = [];
    assert_eq!(Format::Gemini.tools(&names, nothing), json!([]));
}
