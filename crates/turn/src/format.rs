//! Where each format has its calls, and what it makes of a result.

use serde_json::{Map, Value, json};
use tower_toolcall::{ModelPart, router::MAX_TOOL_NAME};

use crate::{reply::TurnError, tools::is_allowed};

/// More levels than any JSON parser takes.
pub(crate) const LEVELS: usize = 128;

/// The longest image that goes to a model, in bytes of Base64: the least that a provider takes.
const MAX_IMAGE: usize = 5_000_000;

/// A provider's form of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// OpenAI's chat completions, and the many servers that speak them.
    OpenAiChat,
    /// OpenAI's responses.
    OpenAiResponses,
    /// Anthropic's messages.
    Anthropic,
    /// Gemini's `generateContent`.
    Gemini,
    /// Amazon Bedrock's `Converse`.
    Bedrock,
}

/// The fields of a call.
pub(super) struct Fields {
    /// The id, if it is a string that is not blank.
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) arguments: Value,
    pub(super) is_custom: bool,
}

/// The type of an item of OpenAI's responses: a call of a tool that takes a text.
pub(super) const CUSTOM_TOOL_CALL: &str = "custom_tool_call";

/// How a response ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The model said all that it wanted to.
    Whole,
    /// The end is missing, and the model may add it if it is asked again.
    Cut,
    /// The model continues when it gets the turn back unchanged.
    Paused,
    /// The end is missing for good: a filter or a refusal has ended the turn.
    Filtered,
    /// A stream without an end.
    BrokenOff,
    /// A stream with a refused chunk, in an unknown place.
    Holed,
}

impl End {
    /// An unknown reason is one of the many that servers have for a whole response.
    pub(super) fn of(reason: &Value) -> Self {
        match reason.as_str().unwrap_or_default() {
            "length" | "max_tokens" | "MAX_TOKENS" | "model_length" => Self::Cut,
            "model_context_window_exceeded" => Self::Cut,
            "insufficient_system_resource" | "network_error" => Self::Cut,
            "incomplete" | "in_progress" | "queued" | "failed" | "cancelled" => Self::Cut,
            "pause_turn" => Self::Paused,
            "compaction" | "error" | "abort" | "OTHER" => Self::Cut,
            "malformed_tool_use" | "malformed_model_output" => Self::Cut,
            "MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE" => Self::Cut,
            "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" => Self::Cut,
            "content_filter" | "content_filtered" | "guardrail_intervened" => Self::Filtered,
            "sensitive" => Self::Filtered,
            "refusal" | "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" => Self::Filtered,
            "PROHIBITED_CONTENT" | "SPII" => Self::Filtered,
            _ => Self::Whole,
        }
    }

    /// Of OpenAI's responses. What made one incomplete is said beside its status.
    pub(super) fn of_response(response: &Value) -> Self {
        match Self::of(&response["incomplete_details"]["reason"]) {
            Self::Filtered => Self::Filtered,
            _ => Self::of(&response["status"]),
        }
    }
}

impl Format {
    /// Returns the model's message, which goes back before the results, and how it ended.
    pub(super) fn said(self, value: &Value) -> Result<(Vec<Value>, End), TurnError> {
        check_depth(value)?;
        let (said, reason) = match self {
            Self::OpenAiChat => match value.get("choices") {
                Some(choices) => {
                    let choice = &choices[0];
                    (one(&choice["message"])?, &choice["finish_reason"])
                }
                None => (one(value)?, &Value::Null),
            },
            Self::OpenAiResponses => {
                let output = value.get("output").unwrap_or(value);
                let items = output.as_array().ok_or(TurnError::NotATurn)?;
                return Ok((items.clone(), End::of_response(value)));
            }
            Self::Anthropic => (of_content(&value["content"])?, &value["stop_reason"]),
            Self::Gemini => match value.get("candidates") {
                // A blocked candidate has no content.
                Some(candidates) => {
                    let candidate = &candidates[0];
                    let content = one(&candidate["content"]).unwrap_or_default();
                    (content, &candidate["finishReason"])
                }
                None if value.get("promptFeedback").is_some() => (Vec::new(), &Value::Null),
                None if value["parts"].is_array() => (one(value)?, &Value::Null),
                None => return Err(TurnError::NotATurn),
            },
            Self::Bedrock => {
                let output = value.get("output");
                let message = output.map_or(value, |output| &output["message"]);
                (of_content(&message["content"])?, &value["stopReason"])
            }
        };
        Ok((said, End::of(reason)))
    }

    /// Puts right what the provider writes but does not take back. `end` is that of the response.
    pub(super) fn tidy(self, said: &mut Vec<Value>, end: End) {
        if !matches!(end, End::Whole | End::Paused)
            && let Some(entries) = self.entries(said)
        {
            entries.pop_if(|last| is_thought(last));
        }
        let role = match self {
            Self::OpenAiResponses => return said.retain(Value::is_object),
            Self::Gemini => "model",
            _ => "assistant",
        };
        for message in said.iter_mut().filter_map(Value::as_object_mut) {
            if !message.get("role").is_some_and(Value::is_string) {
                message.insert("role".into(), role.into());
            }
            if self == Self::OpenAiChat {
                tidy_chat(message);
            }
        }
        if self == Self::OpenAiChat {
            let is_said = |map: &Map<String, Value>| map.contains_key("content") || has_more(map);
            said.retain(|message| message.as_object().is_some_and(is_said));
        } else {
            let is_empty = match self.entries(said) {
                Some(entries) => {
                    entries.retain(|entry| !is_blank_text(entry));
                    entries.is_empty()
                }
                None => !said.first().is_some_and(|m| has_text(&m["content"])),
            };
            if is_empty {
                said.clear();
            }
        }
    }

    /// The list that has the calls, among other things.
    pub(super) fn entries(self, said: &mut Vec<Value>) -> Option<&mut Vec<Value>> {
        let key = match self {
            Self::OpenAiResponses => return Some(said),
            Self::OpenAiChat => "tool_calls",
            Self::Anthropic | Self::Bedrock => "content",
            Self::Gemini => "parts",
        };
        said.first_mut()?.get_mut(key)?.as_array_mut()
    }

    /// Returns the call in an entry of that list, if a result answers it.
    pub(super) fn call(self, entry: &mut Value) -> Option<&mut Map<String, Value>> {
        let map = entry.as_object_mut()?;
        let is = |name| map.get("type").and_then(Value::as_str) == Some(name);
        match self {
            Self::OpenAiChat => Some(map),
            Self::OpenAiResponses => (is("function_call") || is(CUSTOM_TOOL_CALL)).then_some(map),
            Self::Anthropic => is("tool_use").then_some(map),
            Self::Gemini => map.get_mut("functionCall")?.as_object_mut(),
            Self::Bedrock => {
                let call = map.get_mut("toolUse")?.as_object_mut()?;
                let at_server = call.get("type").and_then(Value::as_str) == Some("server_tool_use");
                (!at_server).then_some(call)
            }
        }
    }

    /// Returns the fields of a call.
    pub(super) fn fields(self, call: &Map<String, Value>) -> Fields {
        let is_custom = self.is_custom(call);
        let body = match self {
            Self::OpenAiChat => call.get(chat_body(is_custom)).and_then(Value::as_object),
            _ => Some(call),
        };
        let get = |key: &str| body.and_then(|b| b.get(key)).unwrap_or(&Value::Null);
        let id = call.get(self.id_key()).and_then(Value::as_str);
        Fields {
            id: id.filter(|id| !id.trim().is_empty()).map(str::to_owned),
            name: get("name").as_str().unwrap_or_default().to_owned(),
            arguments: get(self.arguments_key(is_custom)).clone(),
            is_custom,
        }
    }

    /// Returns whether it is a call of one of OpenAI's custom tools, which take a text and no JSON.
    fn is_custom(self, call: &Map<String, Value>) -> bool {
        match self {
            Self::OpenAiChat => match call.get("type").and_then(Value::as_str) {
                Some(of) => of == "custom",
                None => call.get("custom").is_some_and(Value::is_object),
            },
            Self::OpenAiResponses => call.get("type").is_some_and(|of| of == CUSTOM_TOOL_CALL),
            _ => false,
        }
    }

    pub(super) fn set_id(self, call: &mut Map<String, Value>, id: Option<&str>) {
        match id {
            Some(id) => drop(call.insert(self.id_key().into(), id.into())),
            None => drop(call.remove(self.id_key())),
        }
    }

    /// Returns whether arguments are JSON in a text.
    pub(super) fn takes_text(self) -> bool {
        matches!(self, Self::OpenAiChat | Self::OpenAiResponses)
    }

    /// Writes arguments in the type that the format has for them: `parsed`, or none where nothing
    /// could be parsed.
    pub(super) fn set_arguments(
        self,
        call: &mut Map<String, Value>,
        given: &Value,
        parsed: Option<&Map<String, Value>>,
    ) {
        let is_custom = self.is_custom(call);
        let object = || Value::Object(parsed.cloned().unwrap_or_default());
        let wanted = match self {
            Self::OpenAiChat | Self::OpenAiResponses if given.is_string() => return,
            _ if is_custom => "".into(),
            Self::OpenAiChat | Self::OpenAiResponses => object().to_string().into(),
            // Gemini leaves them out where there are none.
            Self::Gemini if given.is_null() => return,
            _ if given.is_object() => return,
            _ => object(),
        };
        if let Some(body) = self.body(call) {
            body.insert(self.arguments_key(is_custom).into(), wanted);
        }
    }

    pub(super) fn set_name(self, call: &mut Map<String, Value>, name: &str) {
        if let Some(body) = self.body(call) {
            body.insert("name".into(), name.into());
        }
    }

    /// Where a call has its name and its arguments; made if it is not there.
    fn body(self, call: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
        match self {
            Self::OpenAiChat => {
                let key = chat_body(self.is_custom(call));
                let body = call.entry(key).or_insert(Value::Null);
                if !body.is_object() {
                    *body = json!({});
                }
                body.as_object_mut()
            }
            _ => Some(call),
        }
    }

    /// The results as the provider takes them: messages, or the items of a request.
    pub(super) fn wrap(self, results: Vec<Value>) -> Vec<Value> {
        if results.is_empty() {
            return results;
        }
        match self {
            Self::OpenAiChat | Self::OpenAiResponses => results,
            Self::Anthropic | Self::Bedrock => vec![json!({ "role": "user", "content": results })],
            Self::Gemini => vec![json!({ "role": "user", "parts": results })],
        }
    }

    /// One result.
    pub(super) fn result(
        self,
        id: Option<&str>,
        name: &str,
        is_custom: bool,
        mut content: Value,
        failed: bool,
    ) -> Value {
        // Converse refuses a blank text, Anthropic that of a failure.
        let needs_text = self == Self::Bedrock || self == Self::Anthropic && failed;
        if needs_text && content.as_str().is_some_and(|text| text.trim().is_empty()) {
            content = "(no output)".into();
        }
        match self {
            Self::OpenAiChat => json!({ "role": "tool", "tool_call_id": id, "content": content }),
            Self::OpenAiResponses => {
                let of = match is_custom {
                    true => "custom_tool_call_output",
                    false => "function_call_output",
                };
                json!({ "type": of, "call_id": id, "output": content })
            }
            Self::Anthropic => {
                let mut result =
                    json!({ "type": "tool_result", "tool_use_id": id, "content": content });
                if failed {
                    result["is_error"] = true.into();
                }
                result
            }
            Self::Gemini => {
                let key = if failed { "error" } else { "output" };
                let mut response = json!({ "name": name, "response": { key: content } });
                if let Some(id) = id {
                    response["id"] = id.into();
                }
                json!({ "functionResponse": response })
            }
            Self::Bedrock => {
                let content = match content {
                    Value::Array(blocks) => Value::Array(blocks),
                    Value::String(text) => json!([{ "text": text }]),
                    object @ Value::Object(_) => json!([{ "json": object }]),
                    other => json!([{ "text": other.to_string() }]),
                };
                let status = if failed { "error" } else { "success" };
                json!({ "toolResult": { "toolUseId": id, "content": content, "status": status } })
            }
        }
    }

    /// Returns the content of a result with images in the provider's blocks, and the parts beside
    /// it. `None` if the provider takes none of the images. Other parts become texts.
    ///
    /// A chat message of the role `tool` takes text only.
    pub(super) fn with_images(self, parts: Vec<ModelPart<'_>>) -> Option<(Value, Vec<Value>)> {
        if !parts.iter().any(|part| self.image(part).is_some()) {
            return None;
        }
        let (mut blocks, mut beside, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            match (self.image(&part), self) {
                (Some(image), Self::Gemini) => beside.push(image),
                (Some(image), _) => blocks.push(image),
                (None, _) => {
                    let text = part.into_text().into_owned();
                    match self {
                        _ if text.trim().is_empty() => {}
                        Self::Gemini => texts.push(text),
                        Self::OpenAiResponses => {
                            blocks.push(json!({ "type": "input_text", "text": text }));
                        }
                        Self::Bedrock => blocks.push(json!({ "text": text })),
                        _ => blocks.push(json!({ "type": "text", "text": text })),
                    }
                }
            }
        }
        Some(match self {
            Self::Gemini => (texts.join("\n").into(), beside),
            _ => (blocks.into(), beside),
        })
    }

    /// The provider's block of an image, if it takes it.
    fn image(self, part: &ModelPart<'_>) -> Option<Value> {
        let ModelPart::Image { base64, .. } = part else {
            return None;
        };
        // Providers refuse a request, and each later one, for an image that is not of its type, or
        // too large. So a page of errors that is called an image is not sent as one.
        let format = match type_of(base64)? {
            "image/png" => "png",
            "image/jpeg" => "jpeg",
            "image/gif" if self != Self::Gemini => "gif",
            "image/webp" => "webp",
            _ => return None,
        };
        if base64.len() > MAX_IMAGE || base64.len() % 4 != 0 || !is_base64(base64) {
            return None;
        }
        let mime_type = format!("image/{format}");
        match self {
            Self::OpenAiChat => None,
            Self::OpenAiResponses => {
                let url = format!("data:{mime_type};base64,{base64}");
                Some(json!({ "type": "input_image", "image_url": url }))
            }
            Self::Anthropic => {
                let source = json!({ "type": "base64", "media_type": mime_type, "data": base64 });
                Some(json!({ "type": "image", "source": source }))
            }
            Self::Gemini => {
                Some(json!({ "inlineData": { "mimeType": mime_type, "data": base64 } }))
            }
            Self::Bedrock => {
                Some(json!({ "image": { "format": format, "source": { "bytes": base64 } } }))
            }
        }
    }

    /// Returns whether the provider takes back a call of this name.
    pub(super) fn takes_name(self, name: &str) -> bool {
        let max = match self {
            Self::Anthropic => 128,
            _ => MAX_TOOL_NAME,
        };
        let is_taken = |c| is_allowed(c) || (self == Self::Gemini && (c == '.' || c == ':'));
        name.len() <= max && name.chars().all(is_taken)
    }

    /// Returns whether a result cannot be matched without an id.
    pub(super) fn needs_id(self) -> bool {
        self != Self::Gemini
    }

    fn id_key(self) -> &'static str {
        match self {
            Self::OpenAiResponses => "call_id",
            Self::Bedrock => "toolUseId",
            _ => "id",
        }
    }

    fn arguments_key(self, is_custom: bool) -> &'static str {
        match self {
            _ if is_custom => "input",
            Self::OpenAiChat | Self::OpenAiResponses => "arguments",
            Self::Gemini => "args",
            Self::Anthropic | Self::Bedrock => "input",
        }
    }
}

/// How files begin, in Base64.
const BEGINNINGS: [(&str, &str); 5] = [
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("JVBERi0", "application/pdf"),
];

/// The media type of a file, by how it begins.
fn type_of(base64: &str) -> Option<&'static str> {
    let found = BEGINNINGS
        .iter()
        .find(|(begin, _)| base64.starts_with(begin));
    found.map(|(_, mime_type)| *mime_type)
}

/// Returns whether a text is Base64 as providers read it: of the standard alphabet, without line
/// breaks.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let is_digit = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    !digits.is_empty() && text.len() - digits.len() <= 2 && digits.bytes().all(is_digit)
}

/// Where a call of chat completions has its name and its arguments.
fn chat_body(is_custom: bool) -> &'static str {
    if is_custom { "custom" } else { "function" }
}

/// That the value is not nested deeper than `serde_json` parses, found without recursion.
pub(super) fn check_depth(value: &Value) -> Result<(), TurnError> {
    let mut left = vec![(value, 1)];
    while let Some((value, level)) = left.pop() {
        let nested = |v: &&Value| v.is_array() || v.is_object();
        match value {
            _ if level > LEVELS => return Err(TurnError::TooDeep),
            Value::Array(items) => left.extend(items.iter().filter(nested).map(|v| (v, level + 1))),
            Value::Object(map) => left.extend(map.values().filter(nested).map(|v| (v, level + 1))),
            _ => {}
        }
    }
    Ok(())
}

fn one(message: &Value) -> Result<Vec<Value>, TurnError> {
    let known = ["role", "content", "tool_calls", "parts"];
    match message {
        Value::Object(map) if known.iter().any(|key| map.contains_key(*key)) => {
            Ok(vec![message.clone()])
        }
        _ => Err(TurnError::NotATurn),
    }
}

/// A message of nothing but role and content: the other fields of a response are not taken back.
fn of_content(content: &Value) -> Result<Vec<Value>, TurnError> {
    match content {
        Value::Array(_) | Value::String(_) => {
            Ok(vec![json!({ "role": "assistant", "content": content })])
        }
        _ => Err(TurnError::NotATurn),
    }
}

/// Servers refuse a null for what they have not got, but for the content beside calls; and a null
/// content without them.
fn tidy_chat(message: &mut Map<String, Value>) {
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    let is_empty = calls.is_none_or(|calls| {
        calls.retain(Value::is_object);
        for call in calls.iter_mut().filter_map(Value::as_object_mut) {
            call.retain(|_, value| !value.is_null());
        }
        calls.is_empty()
    });
    if is_empty {
        message.remove("tool_calls");
    }
    message.retain(|key, value| key == "content" || !value.is_null());
    if message.get("content").is_some_and(Value::is_null) && !has_more(message) {
        message.remove("content");
        // Reasoning without a word, for example.
        let is_more = |(key, value): (&String, &Value)| key != "role" && !is_nothing(value);
        if message.iter().any(is_more) {
            message.insert("content".into(), "".into());
        }
    }
}

/// Returns whether a chat message has what stands for its content.
fn has_more(message: &Map<String, Value>) -> bool {
    let keys = ["tool_calls", "function_call", "audio"];
    keys.iter().any(|key| message.contains_key(*key))
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn has_text(content: &Value) -> bool {
    content.as_str().is_some_and(|text| !text.trim().is_empty())
}

/// Returns whether providers take the entry back only with its end: the signature, or OpenAI's next
/// item.
fn is_thought(entry: &Value) -> bool {
    entry["type"] == "thinking"
        || entry["type"] == "reasoning"
        || entry.get("reasoningContent").is_some()
}

/// A block that has nothing but a blank text: providers write such blocks and answer 400 when they
/// come back.
fn is_blank_text(block: &Value) -> bool {
    let Some(map) = block.as_object() else {
        return true;
    };
    let is_of_text = |key: &String| ["text", "type", "citations"].contains(&key.as_str());
    let text = map.get("text").and_then(Value::as_str);
    map.keys().all(is_of_text) && text.is_some_and(|text| text.trim().is_empty())
}
