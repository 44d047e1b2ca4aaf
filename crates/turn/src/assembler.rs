//! Streams: chunks in, a turn out.

use std::{borrow::Cow, fmt};

use serde_json::{Map, Value, json};
use tower_toolcall::{Answer, ToolCall};

use crate::{
    MAX_BYTES,
    format::{CUSTOM_TOOL_CALL, End, Format, check_depth},
    read::Turn,
    reply::TurnError,
};

/// The most blocks, items, parts or calls of a stream.
pub(super) const MAX_BLOCKS: usize = 1024;

/// Puts a turn together from the chunks of a stream.
///
/// It takes the events of the format as JSON, without what carries them: the `data` of server-sent
/// events, the members of Bedrock's event stream by their names (`{"contentBlockDelta": {..}}`).
/// Events that say nothing about the message are ignored. Arguments that Gemini streams in parts,
/// if it is asked to (`streamFunctionCallArguments`), are not put together.
///
/// ```
/// use serde_json::json;
/// use tower_toolcall_turn::{Assembler, Format};
///
/// let mut assembler = Assembler::new(Format::OpenAiChat);
/// for call in [
///     json!({ "index": 0, "id": "call_1", "function": { "name": "weather", "arguments": "" } }),
///     json!({ "index": 0, "function": { "arguments": "{\"city\":" } }),
///     json!({ "index": 0, "function": { "arguments": "\"Oslo\"}" } }),
/// ] {
///     assembler.push(&json!({ "choices": [{ "delta": { "tool_calls": [call] } }] }))?;
/// }
/// assembler.push(&json!({ "choices": [{ "delta": {}, "finish_reason": "tool_calls" }] }))?;
///
/// let turn = assembler.finish()?;
/// assert_eq!(turn.calls().next().unwrap().arguments()["city"], "Oslo");
/// # Ok::<_, tower_toolcall_turn::TurnError>(())
/// ```
#[must_use]
pub struct Assembler {
    format: Format,
    /// The fields outside of blocks.
    message: Map<String, Value>,
    blocks: Vec<Block>,
    bytes: u64,
    end: End,
}

/// A block, item, part or call.
struct Block {
    index: Option<u64>,
    value: Value,
    /// The fragments of its arguments.
    json: String,
    done: bool,
}

impl Assembler {
    /// Makes an assembler for streams of this format.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            message: Map::new(),
            blocks: Vec::new(),
            bytes: 0,
            end: End::BrokenOff,
        }
    }

    /// Takes the next chunk.
    ///
    /// # Errors
    ///
    /// If the stream is larger than [`MAX_BYTES`], or the chunk too deep. The turn is
    /// [cut](Turn::is_cut) then, whatever comes later, and none of its calls runs.
    pub fn push(&mut self, chunk: &Value) -> Result<(), TurnError> {
        let taken = check_depth(chunk).and_then(|()| match self.format {
            Format::OpenAiChat => self.push_chat(chunk),
            Format::OpenAiResponses => self.push_responses(chunk),
            Format::Anthropic => self.push_anthropic(chunk),
            Format::Gemini => self.push_gemini(chunk),
            Format::Bedrock => self.push_bedrock(chunk),
        });
        if taken.is_err() {
            self.end = End::Holed;
        }
        taken
    }

    /// Returns the turn. If its stream broke off, the turn is [cut](Turn::is_cut), and without any
    /// [call](crate#calls-that-cannot-run) that may lack arguments.
    ///
    /// # Errors
    ///
    /// As [`Turn::read`].
    pub fn finish(mut self) -> Result<Turn, TurnError> {
        let (format, end) = (self.format, self.end);
        let mut message = std::mem::take(&mut self.message);
        let said = match format {
            Format::OpenAiChat => {
                if !self.blocks.is_empty() {
                    let calls = self.blocks.into_iter().map(Block::into_chat_call);
                    message.insert("tool_calls".into(), calls.collect());
                }
                let said = message.values().any(|value| !value.is_null());
                said.then(|| message.into()).into_iter().collect()
            }
            Format::OpenAiResponses => {
                let is_item = |b: &Block| b.done || end == End::Whole || b.text_key().is_some();
                let items = self.blocks.into_iter().filter(is_item);
                items.map(Block::into_item).collect()
            }
            Format::Anthropic | Format::Bedrock => {
                let blocks = self.blocks.into_iter();
                let content = blocks.map(|block| block.into_block(format));
                vec![json!({ "role": "assistant", "content": content.collect::<Value>() })]
            }
            Format::Gemini => {
                let parts = self.blocks.into_iter().map(|block| block.value);
                vec![json!({ "role": "model", "parts": parts.collect::<Value>() })]
            }
        };
        Turn::of(format, said, end)
    }

    fn push_chat(&mut self, chunk: &Value) -> Result<(), TurnError> {
        let is_first = |choice: &&Value| choice["index"].as_u64().unwrap_or(0) == 0;
        let choices = chunk["choices"].as_array().map(Vec::as_slice);
        let Some(choice) = choices.unwrap_or_default().iter().find(is_first) else {
            return Ok(());
        };
        if let Some(delta) = choice["delta"].as_object() {
            self.charge(&choice["delta"])?;
            for (key, value) in delta {
                match (key.as_str(), value) {
                    ("tool_calls", Value::Array(calls)) => {
                        for call in calls.iter().filter_map(Value::as_object) {
                            self.push_chat_call(call)?;
                        }
                    }
                    ("tool_calls", _) => {}
                    // Some servers say it in each chunk.
                    ("role", _) => set(&mut self.message, key, value),
                    _ => merge(&mut self.message, key, value),
                }
            }
        }
        self.ends_by(&choice["finish_reason"]);
        Ok(())
    }

    /// A known id wins over an index, and a new id on a used index is a new call: some servers
    /// number all calls 0, some not at all.
    fn push_chat_call(&mut self, delta: &Map<String, Value>) -> Result<(), TurnError> {
        let (function, is_custom) = match delta.get("custom").filter(|body| body.is_object()) {
            Some(custom) => (custom, true),
            None => (delta.get("function").unwrap_or(&Value::Null), false),
        };
        let index = delta.get("index").and_then(Value::as_u64);
        let id = text(delta.get("id"));
        let name = text(function.get("name"));
        let numbered = self.numbered(index);
        let last = self.blocks.len().checked_sub(1);
        let of = |n: &usize, key: &str| text(self.blocks[*n].value.get(key));
        let at = match (id, name) {
            (Some(id), _) => {
                let known = self.blocks.iter().rposition(|b| b.value["id"] == id);
                known.or(numbered.filter(|n| of(n, "id").is_none()))
            }
            // A fragment: of the call with its number, or else of the call that came last.
            (None, None) => numbered.or(last),
            // A call that says its name again, or one without an id.
            (None, Some(name)) => numbered.filter(|n| of(n, "name").is_none_or(|own| own == name)),
        };
        let at = match at {
            Some(at) => at,
            None => self.open(index, json!({}))?,
        };
        let block = &mut self.blocks[at];
        let Some(call) = block.value.as_object_mut() else {
            return Ok(());
        };
        for (key, value) in delta {
            if !["index", "function", "custom"].contains(&key.as_str()) && !is_blank(value) {
                set(call, key, value);
            }
        }
        if let Some(name) = name {
            // Taken to its place at the end.
            set(call, "name", &name.into());
        }
        if is_custom {
            set(call, "type", &"custom".into());
        }
        match &function[if is_custom { "input" } else { "arguments" }] {
            Value::String(fragment) => block.json.push_str(fragment),
            Value::Null => {}
            whole => block.json = whole.to_string(),
        }
        Ok(())
    }

    fn push_responses(&mut self, event: &Value) -> Result<(), TurnError> {
        let index = event["output_index"].as_u64();
        let item = &event["item"];
        let id = text(event.get("item_id")).or(text(item.get("id")));
        let known = id.and_then(|id| self.blocks.iter().rposition(|b| b.value["id"] == id));
        // An item without an id of its own is known by its number.
        let numbered = self.numbered(index).filter(|n| {
            let own = text(self.blocks[*n].value.get("id"));
            own.is_none() || id.is_none()
        });
        let at = known.or(numbered);
        match event["type"].as_str().unwrap_or_default() {
            "response.output_item.added" | "response.output_item.done" if item.is_object() => {
                self.charge(item)?;
                let done = event["type"] == "response.output_item.done";
                let at = match (at, done) {
                    (Some(at), true) => at,
                    _ => known.map_or_else(|| self.open(index, Value::Null), Ok)?,
                };
                let block = &mut self.blocks[at];
                block.value = item.clone();
                block.done = done;
                let has_text = |key: &str| text(item.get(key)).is_some();
                if block.text_key().is_some_and(has_text) {
                    block.json.clear();
                }
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.charge(&event["delta"])?;
                let at = at.or(self.blocks.len().checked_sub(1));
                if let (Some(at), Some(delta)) = (at, event["delta"].as_str()) {
                    self.blocks[at].json.push_str(delta);
                }
            }
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" => {
                let all = event.get("arguments").unwrap_or(&event["input"]);
                self.charge(all)?;
                if let (Some(at), Some(all)) = (at, all.as_str()) {
                    self.blocks[at].json = all.to_owned();
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                let output = event["response"]["output"].as_array();
                if let Some(output) = output.filter(|output| !output.is_empty()) {
                    self.charge(&event["response"]["output"])?;
                    self.blocks.clear();
                    for item in output {
                        let at = self.open(None, item.clone())?;
                        self.blocks[at].done = true;
                    }
                }
                self.ends(match End::of_response(&event["response"]) {
                    _ if event["type"] == "response.completed" => End::Whole,
                    End::Filtered => End::Filtered,
                    _ => End::Cut,
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn push_anthropic(&mut self, event: &Value) -> Result<(), TurnError> {
        let index = event["index"].as_u64();
        match event["type"].as_str().unwrap_or_default() {
            "content_block_start" if event["content_block"].is_object() => {
                self.charge(&event["content_block"])?;
                self.open(index, event["content_block"].clone())?;
            }
            "content_block_delta" => {
                let Some(delta) = event["delta"].as_object() else {
                    return Ok(());
                };
                self.charge(&event["delta"])?;
                let fragment = delta.get("partial_json").and_then(Value::as_str);
                // What a block must have for the delta to belong to it.
                let part_of = [
                    ("partial_json", "input"),
                    ("text", "text"),
                    ("citation", "text"),
                    ("thinking", "thinking"),
                    ("signature", "thinking"),
                ];
                let known = part_of.iter().find(|(key, _)| delta.contains_key(*key));
                let block = match known {
                    Some((_, has)) => self.current(index, |b| b.value.get(has).is_some()),
                    None => self.numbered(index).map(|at| &mut self.blocks[at]),
                };
                let Some(block) = block else {
                    return Ok(());
                };
                block.json.push_str(fragment.unwrap_or_default());
                let Some(value) = block.value.as_object_mut() else {
                    return Ok(());
                };
                for (key, part) in delta {
                    match key.as_str() {
                        "type" | "partial_json" => {}
                        "citation" => merge(value, "citations", &json!([part])),
                        _ => merge(value, key, part),
                    }
                }
            }
            "message_delta" => self.ends_by(&event["delta"]["stop_reason"]),
            "message_stop" => self.ends(End::Whole),
            _ => {}
        }
        Ok(())
    }

    fn push_bedrock(&mut self, event: &Value) -> Result<(), TurnError> {
        if let Some(start) = event.get("contentBlockStart") {
            let index = start["contentBlockIndex"].as_u64();
            if start["start"].is_object() {
                self.charge(&start["start"])?;
                self.open(index, start["start"].clone())?;
            }
        } else if let Some(event) = event.get("contentBlockDelta") {
            let index = event["contentBlockIndex"].as_u64();
            let delta = &event["delta"];
            self.charge(delta)?;
            if let Some(fragment) = delta["toolUse"]["input"].as_str() {
                let is_call = |block: &Block| block.value.get("toolUse").is_some();
                if let Some(block) = self.current(index, is_call) {
                    block.json.push_str(fragment);
                }
                return Ok(());
            }
            for key in ["text", "reasoningContent"] {
                let Some(part) = delta.get(key) else { continue };
                // Blocks of these kinds have no start.
                let fits = |n: &usize| self.blocks[*n].value.get(key).is_some();
                let at = match self.numbered(index).filter(fits) {
                    Some(at) => at,
                    None => self.open(index, json!({}))?,
                };
                let Some(value) = self.blocks[at].value.as_object_mut() else {
                    continue;
                };
                match key {
                    "reasoningContent" => merge_reasoning(value, part),
                    _ => merge(value, key, part),
                }
            }
        } else if let Some(stop) = event.get("messageStop") {
            self.ends(End::of(&stop["stopReason"]));
        }
        Ok(())
    }

    fn push_gemini(&mut self, chunk: &Value) -> Result<(), TurnError> {
        let candidate = &chunk["candidates"][0];
        let parts = candidate["content"]["parts"].as_array().map(Vec::as_slice);
        for part in parts.unwrap_or_default() {
            self.charge(part)?;
            let last = self.blocks.last_mut().filter(|_| is_plain_text(part));
            let last = last.filter(|block| {
                is_plain_text(&block.value) && block.value.get("thought") == part.get("thought")
            });
            match last.and_then(|block| block.value.as_object_mut()) {
                Some(value) => merge(value, "text", &part["text"]),
                None => drop(self.open(None, part.clone())?),
            }
        }
        self.ends_by(&candidate["finishReason"]);
        Ok(())
    }

    /// The last block with this number.
    fn numbered(&self, index: Option<u64>) -> Option<usize> {
        let is_it = |block: &Block| index.is_some() && block.index == index;
        self.blocks.iter().rposition(is_it)
    }

    /// The block that a fragment belongs to: that with its number, or else the last that it can
    /// belong to.
    fn current(&mut self, index: Option<u64>, fits: impl Fn(&Block) -> bool) -> Option<&mut Block> {
        let numbered = self.numbered(index).filter(|n| fits(&self.blocks[*n]));
        let at = numbered.or_else(|| self.blocks.iter().rposition(fits))?;
        self.blocks.get_mut(at)
    }

    fn open(&mut self, index: Option<u64>, value: Value) -> Result<usize, TurnError> {
        if self.blocks.len() == MAX_BLOCKS {
            return Err(TurnError::TooLarge);
        }
        self.blocks.push(Block {
            index,
            value,
            json: String::new(),
            done: false,
        });
        Ok(self.blocks.len() - 1)
    }

    /// Takes what a part adds off the bytes that are left.
    fn charge(&mut self, part: &Value) -> Result<(), TurnError> {
        self.bytes += Answer::Json(Cow::Borrowed(part)).bytes();
        match self.bytes > MAX_BYTES {
            true => Err(TurnError::TooLarge),
            false => Ok(()),
        }
    }

    fn ends_by(&mut self, reason: &Value) {
        if text(Some(reason)).is_some() {
            self.ends(End::of(reason));
        }
    }

    /// Only the first reason for which something is missing counts.
    fn ends(&mut self, end: End) {
        if matches!(self.end, End::Whole | End::BrokenOff) {
            self.end = end;
        }
    }
}

impl Block {
    fn into_chat_call(self) -> Value {
        let mut value = self.value;
        if let Some(call) = value.as_object_mut() {
            let name = call.remove("name").unwrap_or_default();
            let (of, body) = match call.get("type").is_some_and(|of| of == "custom") {
                true => ("custom", json!({ "name": name, "input": self.json })),
                false => ("function", json!({ "name": name, "arguments": self.json })),
            };
            set(call, "type", &of.into());
            call.insert(of.into(), body);
        }
        value
    }

    /// Where an item of OpenAI's responses has the text that comes in fragments, if it is a call.
    fn text_key(&self) -> Option<&'static str> {
        match self.value["type"].as_str()? {
            "function_call" => Some("arguments"),
            CUSTOM_TOOL_CALL => Some("input"),
            _ => None,
        }
    }

    fn into_item(self) -> Value {
        let key = self.text_key().filter(|_| !self.json.is_empty());
        let mut value = self.value;
        if let Some(key) = key {
            value[key] = self.json.into();
        }
        value
    }

    /// With its arguments as text, if it has any: the turn parses them.
    fn into_block(self, format: Format) -> Value {
        let mut value = self.value;
        if self.json.is_empty() {
            return value;
        }
        match format.call(&mut value) {
            Some(call) => drop(call.insert("input".into(), self.json.into())),
            // A tool of the provider's own.
            None => {
                let holder = match value.get("toolUse") {
                    Some(_) => &mut value["toolUse"],
                    None => &mut value,
                };
                if let Some(call) = holder.as_object_mut() {
                    // Parsed within the bounds of arguments.
                    let parsed = ToolCall::new("").with_json_str(&self.json);
                    let input = parsed.map(|call| call.arguments().clone());
                    call.insert("input".into(), input.unwrap_or_default().into());
                }
            }
        }
        value
    }
}

/// Shows sizes, never what was said.
impl fmt::Debug for Assembler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assembler")
            .field("format", &self.format)
            .field("blocks", &self.blocks.len())
            .field("bytes", &self.bytes)
            .field("ended", &(self.end != End::BrokenOff))
            .finish()
    }
}

fn text(value: Option<&Value>) -> Option<&str> {
    let text = value.and_then(Value::as_str);
    text.filter(|text| !text.trim().is_empty())
}

fn is_blank(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(str::is_empty)
}

/// Sets a field that is not set yet.
fn set(map: &mut Map<String, Value>, key: &str, value: &Value) {
    if map.get(key).is_none_or(is_blank) {
        map.insert(key.to_owned(), value.clone());
    }
}

/// Joins texts and lists; anything else is replaced.
fn merge(map: &mut Map<String, Value>, key: &str, part: &Value) {
    match (map.get_mut(key), part) {
        (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
        (Some(Value::Array(items)), Value::Array(more)) => items.extend(more.iter().cloned()),
        (Some(_), Value::Null) => {}
        _ => drop(map.insert(key.to_owned(), part.clone())),
    }
}

/// Text and signature come apart, and lie together in a message.
fn merge_reasoning(block: &mut Map<String, Value>, part: &Value) {
    let reasoning = block.entry("reasoningContent").or_insert_with(|| json!({}));
    let (Some(reasoning), Some(part)) = (reasoning.as_object_mut(), part.as_object()) else {
        return;
    };
    for (key, value) in part {
        if key == "redactedContent" {
            merge(reasoning, key, value);
        } else {
            let text = reasoning.entry("reasoningText").or_insert(json!({}));
            if let Some(text) = text.as_object_mut() {
                merge(text, key, value);
            }
        }
    }
}

fn is_plain_text(part: &Value) -> bool {
    let plain = |map: &Map<String, Value>| map.keys().all(|key| key == "text" || key == "thought");
    part.as_object().is_some_and(plain) && part["text"].is_string()
}
