//! MCP's results as JSON, as text for the model, and their size.

use std::{
    borrow::{Borrow, Cow},
    hash::Hasher,
    iter,
};

use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, ResourceContents};
use serde::{Serialize, Serializer, ser::Error as _};

use super::fit;
use crate::{
    answer::{
        Kept, KnownAnswer, ModelPart, ModelText, NoSize, hash_json, json_bytes, left_out,
        without_data,
    },
    call::CallInfo,
    check::{Check, within},
    error::AnyError,
    text::{plain, prefix},
};

/// An MCP server's answer as the JSON that the server has sent, for code that writes answers as
/// JSON.
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt as _, service_fn};
/// use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock};
/// use tower_toolcall::{AnyError, ToolCall, mcp::McpJson};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AnyError> {
/// let tool = service_fn(|_: ToolCall| async {
///     let result = CallToolResult::success(vec![ContentBlock::text("sunny")]);
///     Ok::<_, AnyError>(CallToolResponse::from(result))
/// });
/// // For `serve::Routes`, as one.
/// let stack = ServiceBuilder::new().map_response(McpJson).service(tool);
/// let answer = stack.oneshot(ToolCall::new("weather")).await?;
/// let json = serde_json::to_value(&answer)?;
/// assert_eq!(json["content"][0]["text"], "sunny");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct McpJson<T = CallToolResponse>(pub T);

impl<T: Borrow<CallToolResponse>> Serialize for McpJson<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.borrow() {
            CallToolResponse::Complete(result) => result.serialize(to),
            CallToolResponse::InputRequired(result) => result.serialize(to),
            CallToolResponse::Task(result) => result.serialize(to),
            _ => Err(S::Error::custom("a result of an unknown kind")),
        }
    }
}

/// How many bytes an MCP result may have, as compact JSON: for a
/// [`CheckLayer`](crate::check::CheckLayer).
///
/// ```
/// use tower_toolcall::{check::CheckLayer, mcp::McpMaxBytes};
///
/// let layer = CheckLayer::new(McpMaxBytes::new(256 << 10));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct McpMaxBytes(u64);

impl McpMaxBytes {
    /// Results may have `max` bytes.
    pub fn new(max: u64) -> Self {
        Self(max)
    }
}

impl Check<CallToolResponse> for McpMaxBytes {
    fn check(&self, call: &CallInfo, response: &CallToolResponse) -> Result<(), AnyError> {
        within(call, self.0, response_bytes(response, self.0))
    }
}

impl KnownAnswer for CallToolResult {
    fn hash_into(&self, hasher: &mut dyn Hasher) -> bool {
        let said = (Said(&self.content), &self.structured_content, self.is_error);
        hash_json(&said, hasher)
    }

    fn keep(&self, max: u64) -> Option<Kept<Self>> {
        Some(Kept::json(self, max))
    }
}

impl KnownAnswer for CallToolResponse {
    fn asks_for_input(&self) -> bool {
        matches!(self, Self::InputRequired(_))
    }

    fn hash_into(&self, hasher: &mut dyn Hasher) -> bool {
        match self {
            Self::Complete(result) => result.hash_into(hasher),
            _ => false,
        }
    }

    fn keep(&self, max: u64) -> Option<Kept<Self>> {
        Some(match self {
            Self::Complete(result) => Kept::json(result, max),
            // rmcp cannot read every other kind again.
            other => Kept::value(&McpJson(other), max),
        })
    }
}

/// Content without the `_meta` and annotations of texts: ids and times are not news.
struct Said<'a>(&'a [ContentBlock]);

impl Serialize for Said<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(|block| match block {
            ContentBlock::Text(block) => Ok(&block.text),
            other => Err(other),
        }))
    }
}

/// How many bytes the result has as compact JSON, if not more than `max`.
pub(super) fn response_bytes(response: &CallToolResponse, max: u64) -> Result<u64, NoSize> {
    json_bytes(&McpJson(response), max)
}

impl ModelText for [ContentBlock] {
    fn model_text(&self) -> Cow<'_, str> {
        let mut texts = self.iter().map(|block| part(block).into_text());
        match (texts.next(), texts.len()) {
            (None, _) => Cow::Borrowed(""),
            (Some(only), 0) => only,
            (Some(first), _) => {
                let all: Vec<_> = iter::once(first).chain(texts).collect();
                all.join("\n").into()
            }
        }
    }

    fn model_parts(&self) -> Vec<ModelPart<'_>> {
        self.iter().map(part).collect()
    }
}

/// Returns the part of a block that a model reads: text, an image, or a line that says what is left
/// out.
pub(super) fn part(block: &ContentBlock) -> ModelPart<'_> {
    let file = "application/octet-stream";
    let line = |what, mime_type: Option<&str>, base64| {
        ModelPart::Text(left_out(what, mime_type.unwrap_or(file), base64).into())
    };
    if let Some((mime_type, base64)) = image(block) {
        return ModelPart::Image { mime_type, base64 };
    }
    match block {
        ContentBlock::Text(block) => ModelPart::Text((&*block.text).into()),
        ContentBlock::Audio(audio) => line("audio", Some(&audio.mime_type), &audio.data),
        ContentBlock::Resource(block) => match &block.resource {
            ResourceContents::TextResourceContents { text, .. } => ModelPart::Text(text.into()),
            ResourceContents::BlobResourceContents {
                mime_type, blob, ..
            } => line("resource", mime_type.as_deref(), blob),
            _ => ModelPart::Text("[resource left out]".into()),
        },
        ContentBlock::ResourceLink(link) => {
            let words = |text: &str| prefix(text, 256).0.chars().map(plain).collect::<String>();
            let (name, uri) = (words(&link.name), words(&link.uri));
            let mime_type = words(link.mime_type.as_deref().unwrap_or(file));
            let size = link.size.map(|size| format!(", {size} bytes"));
            let size = size.unwrap_or_default();
            let text = format!("[link to a resource: {name}, {mime_type}{size}, {uri}]");
            ModelPart::Text(text.into())
        }
        _ => ModelPart::Text("[content of an unknown type left out]".into()),
    }
}

/// The media type and the Base64 of an image, or of a resource that is one.
pub(super) fn image(block: &ContentBlock) -> Option<(&str, &str)> {
    match block {
        ContentBlock::Image(image) => Some((&image.mime_type, &image.data)),
        ContentBlock::Resource(block) => match &block.resource {
            ResourceContents::BlobResourceContents {
                mime_type: Some(mime_type),
                blob,
                ..
            } if mime_type.starts_with("image/") => Some((mime_type, blob)),
            _ => None,
        },
        _ => None,
    }
}

/// The content, and the structured content if no text of the content carries it, with a line for
/// data in Base64.
impl ModelText for CallToolResult {
    fn model_text(&self) -> Cow<'_, str> {
        match structured_text(self) {
            None => self.content.model_text(),
            Some(more) if self.content.is_empty() => more,
            Some(more) => format!("{}\n{more}", self.content.model_text()).into(),
        }
    }

    fn model_parts(&self) -> Vec<ModelPart<'_>> {
        let mut parts = self.content.model_parts();
        parts.extend(structured_text(self).map(ModelPart::Text));
        parts
    }
}

/// The structured content as a text, unless the content carries it.
fn structured_text(result: &CallToolResult) -> Option<Cow<'_, str>> {
    let structured = result.structured_content.as_ref();
    let structured = structured.filter(|json| !json.is_null())?;
    if fit::carries(&result.content, structured) {
        return None;
    }
    Some(match without_data(structured) {
        Some(lines) => lines.model_text().into_owned().into(),
        None => structured.model_text(),
    })
}

/// A complete result's text; JSON for a result that asks for input or names a task.
impl ModelText for CallToolResponse {
    fn model_text(&self) -> Cow<'_, str> {
        match self {
            Self::Complete(result) => result.model_text(),
            other => json(&McpJson(other)),
        }
    }

    fn model_parts(&self) -> Vec<ModelPart<'_>> {
        match self {
            Self::Complete(result) => result.model_parts(),
            other => vec![ModelPart::Text(other.model_text())],
        }
    }
}

pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> Cow<'static, str> {
    // It came out of JSON, so it goes back into it.
    serde_json::to_string(value).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::InputRequiredResult;
    use serde_json::{Value, from_value, json, to_value};

    /// Whatever the answer is: as it came.
    #[test]
    fn an_answer_of_each_kind_is_written_as_it_was_sent() {
        let is_the_same = |sent: Value, answer: CallToolResponse| {
            assert_eq!(to_value(McpJson(answer)).unwrap(), sent);
        };
        let sent = json!({ "content": [{ "type": "text", "text": "sunny" }], "isError": true });
        let answer = CallToolResponse::Complete(from_value(sent.clone()).unwrap());
        is_the_same(sent, answer);
        let sent = json!({ "resultType": "input_required", "requestState": "opaque" });
        let asks = InputRequiredResult::from_request_state("opaque");
        is_the_same(sent, CallToolResponse::InputRequired(asks));
    }

    /// X5: each rule.
    #[test]
    fn results_become_text_for_the_model() {
        let text = |s: &str| ContentBlock::text(s);
        assert_eq!([text("a"), text("b")].model_text(), "a\nb");
        assert_eq!(CallToolResult::success(vec![]).model_text(), "");
        let image = ContentBlock::image("aGk=", "image/png");
        let read = [text("a"), image].model_text().into_owned();
        assert_eq!(read, "a\n[image left out: image/png, 2 bytes]");
    }

    #[test]
    fn structured_content_stands_in_for_missing_content() {
        let mut result = CallToolResult::structured(json!({ "sum": 3 }));
        assert_eq!(result.model_text(), r#"{"sum":3}"#);
        result.content.clear();
        assert_eq!(result.model_text(), r#"{"sum":3}"#);
    }
}
