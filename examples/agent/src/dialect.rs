//! What the formats of providers look like from the other side: requests are read, and responses
//! written.

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tower_toolcall_turn::Format;

/// What the user wants. The password in it is `show::PASSWORD`, which no line shows.
pub(crate) const TASK: &str = "Sign me in (user ada, password hunter2). Then prepare the evening in Oslo: \
    tell me the weather there, book a table for my 40 guests, import their list of 500 rows, \
    and search the archive of the last 50 years for letters. Do as much as you can at once. \
    When that is done, open report Q3. If something fails, do what is possible instead.";

/// A call as the scripted model makes it.
pub(crate) struct Call {
    /// The name of the tool in Gemini, which need not give ids: results are matched by their order
    /// there.
    pub(crate) id: String,
    pub(crate) tool: &'static str,
    pub(crate) arguments: &'static str,
}

impl Call {
    fn object(&self) -> Value {
        serde_json::from_str(self.arguments).unwrap_or_default()
    }
}

pub(crate) fn has_text_arguments(format: Format) -> bool {
    matches!(format, Format::OpenAiChat | Format::OpenAiResponses)
}

pub(crate) fn id(format: Format, n: usize, tool: &str) -> String {
    match format {
        Format::OpenAiChat | Format::OpenAiResponses => format!("call_{n}"),
        Format::Anthropic => format!("toolu_{n}"),
        Format::Gemini => tool.to_owned(),
        _ => format!("tooluse_{n}"),
    }
}

/// Where a request has its messages.
pub(crate) fn messages_key(format: Format) -> &'static str {
    match format {
        Format::OpenAiResponses => "input",
        Format::Gemini => "contents",
        _ => "messages",
    }
}

/// A request, but for what each provider has beside.
pub(crate) fn request(format: Format, tools: &Value, messages: &[Value]) -> Value {
    let tools_key = match format {
        Format::Bedrock => "toolConfig",
        _ => "tools",
    };
    json!({ messages_key(format): messages, tools_key: tools })
}

/// What the user says.
pub(crate) fn user(format: Format, text: &str) -> Value {
    match format {
        Format::Gemini => json!({ "role": "user", "parts": [{ "text": text }] }),
        Format::Bedrock => json!({ "role": "user", "content": [{ "text": text }] }),
        _ => json!({ "role": "user", "content": text }),
    }
}

/// What the model says to the user, in a message or an item of a turn.
pub(crate) fn said_text(message: &Value) -> String {
    let content = &message[if message["parts"].is_array() {
        "parts"
    } else {
        "content"
    }];
    let is_said = |block: &&Value| block["thought"] != true;
    let blocks = content.as_array().into_iter().flatten().filter(is_said);
    let texts = blocks.filter_map(|block| block["text"].as_str());
    texts.chain(content.as_str()).collect::<Vec<_>>().join(" ")
}

/// The names of the tools in a request.
pub(crate) fn tool_names(format: Format, request: &Value) -> Vec<&str> {
    let (list, name) = match format {
        Format::OpenAiChat => ("/tools", "/function/name"),
        Format::Gemini => ("/tools/0/functionDeclarations", "/name"),
        Format::Bedrock => ("/toolConfig/tools", "/toolSpec/name"),
        _ => ("/tools", "/name"),
    };
    let tools = request.pointer(list).and_then(Value::as_array);
    let names = tools.into_iter().flatten().map(|tool| tool.pointer(name));
    names.filter_map(|name| name?.as_str()).collect()
}

/// The response with these calls, and what of it has to come back. Each has something beside the
/// calls that must not be lost.
pub(crate) fn say_calls(format: Format, calls: &[&Call]) -> (Value, Vec<Value>) {
    let calls = calls.iter();
    match format {
        Format::OpenAiChat => {
            let calls: Value = calls
                .map(|call| {
                    let function = json!({ "name": call.tool, "arguments": call.arguments });
                    json!({ "id": call.id, "type": "function", "function": function })
                })
                .collect();
            let message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
            let choice = json!({ "index": 0, "message": message, "finish_reason": "tool_calls" });
            (json!({ "choices": [choice] }), vec![message])
        }
        Format::OpenAiResponses => {
            let reasoning = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
            let calls = calls.map(|call| {
                json!({ "type": "function_call", "call_id": call.id, "name": call.tool, "arguments": call.arguments })
            });
            let output: Vec<_> = [reasoning].into_iter().chain(calls).collect();
            (json!({ "status": "completed", "output": output }), output)
        }
        Format::Anthropic => {
            let thinking =
                json!({ "type": "thinking", "thinking": "So.", "signature": "c2lnbmVk" });
            let calls = calls.map(|call| {
                json!({ "type": "tool_use", "id": call.id, "name": call.tool, "input": call.object() })
            });
            let content: Value = [thinking].into_iter().chain(calls).collect();
            let message = json!({ "role": "assistant", "content": content });
            let response = json!({ "type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use" });
            (response, vec![message])
        }
        Format::Gemini => {
            let parts: Value = calls
                .map(|call| {
                    let call = json!({ "name": call.tool, "args": call.object() });
                    json!({ "functionCall": call, "thoughtSignature": "c2lnbmVk" })
                })
                .collect();
            let content = json!({ "role": "model", "parts": parts });
            let candidate = json!({ "content": content, "finishReason": "STOP" });
            (json!({ "candidates": [candidate] }), vec![content])
        }
        _ => {
            let text = json!({ "text": "So.", "signature": "c2lnbmVk" });
            let reasoning = json!({ "reasoningContent": { "reasoningText": text } });
            let calls = calls.map(|call| {
                json!({ "toolUse": { "toolUseId": call.id, "name": call.tool, "input": call.object() } })
            });
            let content: Value = [reasoning].into_iter().chain(calls).collect();
            let message = json!({ "role": "assistant", "content": content });
            let response = json!({ "output": { "message": message }, "stopReason": "tool_use" });
            (response, vec![message])
        }
    }
}

/// The same without calls: the model has ended.
pub(crate) fn say_text(format: Format, text: &str) -> (Value, Vec<Value>) {
    let message = |content: Value| json!({ "role": "assistant", "content": content });
    match format {
        Format::OpenAiChat => {
            let message = message(text.into());
            let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
            (json!({ "choices": [choice] }), vec![message])
        }
        Format::OpenAiResponses => {
            let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
            let item = json!({ "type": "message", "role": "assistant", "content": content });
            (
                json!({ "status": "completed", "output": [item] }),
                vec![item],
            )
        }
        Format::Anthropic => {
            let content = json!([{ "type": "text", "text": text }]);
            let response =
                json!({ "type": "message", "content": content, "stop_reason": "end_turn" });
            (response, vec![message(content)])
        }
        Format::Gemini => {
            let content = json!({ "role": "model", "parts": [{ "text": text }] });
            let candidate = json!({ "content": content, "finishReason": "STOP" });
            (json!({ "candidates": [candidate] }), vec![content])
        }
        _ => {
            let message = message(json!([{ "text": text }]));
            let response = json!({ "output": { "message": message }, "stopReason": "end_turn" });
            (response, vec![message])
        }
    }
}

/// The results in what follows the model's calls, with the ids that they answer; nothing else may
/// be there. A first message of the user's has none.
pub(crate) fn results(format: Format, new: &[Value]) -> anyhow::Result<Vec<(String, String)>> {
    if let [first] = new
        && *first == user(format, TASK)
    {
        return Ok(Vec::new());
    }
    let one_message = |key: &str| match new {
        [message] if message["role"] == "user" => {
            let entries = message[key].as_array();
            entries.context("the message has no content")
        }
        _ => bail!(
            "not one message of the user's with all results, but {}",
            new.len()
        ),
    };
    let entries: Vec<Value> = match format {
        Format::OpenAiChat | Format::OpenAiResponses => new.to_vec(),
        Format::Gemini => one_message("parts")?.clone(),
        _ => one_message("content")?.clone(),
    };
    entries.iter().map(|entry| result(format, entry)).collect()
}

fn result(format: Format, entry: &Value) -> anyhow::Result<(String, String)> {
    let (id, text) = match format {
        Format::OpenAiChat => {
            ensure!(entry["role"] == "tool", "no result: {entry}");
            (&entry["tool_call_id"], &entry["content"])
        }
        Format::OpenAiResponses => {
            ensure!(
                entry["type"] == "function_call_output",
                "no result: {entry}"
            );
            (&entry["call_id"], &entry["output"])
        }
        Format::Anthropic => {
            ensure!(entry["type"] == "tool_result", "no result: {entry}");
            let flag = entry.get("is_error");
            ensure!(flag.is_none_or(Value::is_boolean), "bad flag: {entry}");
            (&entry["tool_use_id"], &entry["content"])
        }
        Format::Gemini => {
            let result = &entry["functionResponse"];
            let response = result["response"].as_object();
            let text = response.and_then(|map| map.get("output").or(map.get("error")));
            (&result["name"], text.context("no output and no error")?)
        }
        _ => {
            let result = &entry["toolResult"];
            let status = result["status"].as_str();
            ensure!(
                matches!(status, Some("success" | "error")),
                "bad status: {entry}"
            );
            (&result["toolUseId"], &result["content"][0]["text"])
        }
    };
    let (Some(id), Some(text)) = (id.as_str(), text.as_str()) else {
        bail!("a result without id or text: {entry}");
    };
    Ok((id.to_owned(), text.to_owned()))
}
