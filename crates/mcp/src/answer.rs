//! MCP's results as JSON, as text for the model, and their size.

use std::{
    borrow::Cow,
    fmt,
    hash::Hasher,
    iter,
    ops::{Deref, DerefMut},
};

use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, InputRequiredResult, ResourceContents,
};
use serde::{Serialize, Serializer, ser::Error as _};
use tower_toolcall::{
    answer::{
        Kept, KnownAnswer, ModelPart, ModelText, hash_json, json_bytes, left_out_base64,
        without_data,
    },
    redact::is_hidden,
};

use super::{McpExtras, fit};
use crate::register;

/// The answer to a call of an MCP tool.
///
/// Derefs to rmcp's [`CallToolResponse`]; [`into_inner`](Self::into_inner) takes it out.
/// Serialised, it is the JSON that the server has sent.
///
/// ```
/// use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock};
/// use tower_toolcall::answer::ModelText;
/// use tower_toolcall_mcp::McpAnswer;
///
/// let result = CallToolResult::success(vec![ContentBlock::text("sunny")]);
/// let answer = McpAnswer::from(result);
/// assert_eq!(answer.model_text(), "sunny");
/// assert_eq!(serde_json::to_value(&answer).unwrap()["content"][0]["text"], "sunny");
/// assert!(matches!(answer.into_inner(), CallToolResponse::Complete(_)));
/// ```
#[derive(Clone)]
pub struct McpAnswer(CallToolResponse);

impl McpAnswer {
    /// Returns rmcp's answer.
    pub fn into_inner(self) -> CallToolResponse {
        self.0
    }

    /// Returns the result of the tool; `None` for an answer that asks for input or names a task.
    pub fn result(&self) -> Option<&CallToolResult> {
        match &self.0 {
            CallToolResponse::Complete(result) => Some(result),
            _ => None,
        }
    }

    /// Returns the result of the tool, to be changed; `None` as for [`result`](Self::result).
    pub fn result_mut(&mut self) -> Option<&mut CallToolResult> {
        match &mut self.0 {
            CallToolResponse::Complete(result) => Some(result),
            _ => None,
        }
    }
}

/// Shows the kind of the answer and its size, never what it says.
impl fmt::Debug for McpAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            CallToolResponse::Complete(_) => "Complete",
            CallToolResponse::InputRequired(_) => "InputRequired",
            CallToolResponse::Task(_) => "Task",
            _ => "unknown",
        };
        match json_bytes(self, u64::MAX) {
            Ok(bytes) => write!(f, "McpAnswer({kind}, {bytes} bytes)"),
            Err(_) => write!(f, "McpAnswer({kind})"),
        }
    }
}

impl Deref for McpAnswer {
    type Target = CallToolResponse;

    fn deref(&self) -> &CallToolResponse {
        &self.0
    }
}

impl DerefMut for McpAnswer {
    fn deref_mut(&mut self) -> &mut CallToolResponse {
        &mut self.0
    }
}

impl From<CallToolResponse> for McpAnswer {
    fn from(response: CallToolResponse) -> Self {
        register();
        Self(response)
    }
}

impl From<CallToolResult> for McpAnswer {
    fn from(result: CallToolResult) -> Self {
        CallToolResponse::from(result).into()
    }
}

impl From<InputRequiredResult> for McpAnswer {
    fn from(result: InputRequiredResult) -> Self {
        CallToolResponse::from(result).into()
    }
}

impl From<McpAnswer> for CallToolResponse {
    fn from(answer: McpAnswer) -> Self {
        answer.0
    }
}

impl Serialize for McpAnswer {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            CallToolResponse::Complete(result) => result.serialize(to),
            CallToolResponse::InputRequired(result) => result.serialize(to),
            CallToolResponse::Task(result) => result.serialize(to),
            _ => Err(S::Error::custom("a result of an unknown kind")),
        }
    }
}

impl KnownAnswer for McpAnswer {
    fn asks_for_input(&self) -> bool {
        matches!(self.0, CallToolResponse::InputRequired(_))
    }

    fn hash_input(extensions: &http::Extensions, hasher: &mut dyn Hasher) -> bool {
        let extras = extensions.get::<McpExtras>();
        extras.is_some_and(|extras| extras.hash_input(hasher))
    }

    /// `_meta` is not news.
    fn hash_into(&self, hasher: &mut dyn Hasher) -> bool {
        self.result().is_some_and(|result| {
            let said = Said(&result.content);
            let said = (said, &result.structured_content, result.is_error);
            hash_json(&said, hasher)
        })
    }

    fn keep(&self, max: u64) -> Option<Kept<Self>> {
        Some(match self.result() {
            Some(result) => Kept::json(result, max),
            // rmcp cannot read every other kind again.
            None => Kept::value(self, max),
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

/// Returns the text of a result for a model.
pub(super) fn text_of(result: &CallToolResult) -> Cow<'_, str> {
    match structured_text(result) {
        None => lines_of(&result.content),
        Some(more) if result.content.is_empty() => more,
        Some(more) => format!("{}\n{more}", lines_of(&result.content)).into(),
    }
}

/// Returns the texts of content, as lines.
fn lines_of(content: &[ContentBlock]) -> Cow<'_, str> {
    let mut texts = content.iter().map(|block| part(block).into_text());
    match (texts.next(), texts.len()) {
        (None, _) => Cow::Borrowed(""),
        (Some(only), 0) => only,
        (Some(first), _) => {
            let all: Vec<_> = iter::once(first).chain(texts).collect();
            all.join("\n").into()
        }
    }
}

/// Returns the part of a block that a model reads: text, an image, or a line that names omitted
/// content.
pub(super) fn part(block: &ContentBlock) -> ModelPart<'_> {
    let file = "application/octet-stream";
    let line = |what, mime_type: Option<&str>, base64| {
        ModelPart::Text(left_out_base64(what, mime_type.unwrap_or(file), base64).into())
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
            let plain = |c| if is_hidden(c) { ' ' } else { c };
            let words = |text: &str| text.chars().take(256).map(plain).collect::<String>();
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

/// Shows the content of a result, and the structured content if no text of the content carries it,
/// with a line for data in Base64. JSON for an answer that asks for input or names a task.
impl ModelText for McpAnswer {
    fn model_text(&self) -> Cow<'_, str> {
        match self.result() {
            Some(result) => text_of(result),
            None => json(self),
        }
    }

    fn model_parts(&self) -> Vec<ModelPart<'_>> {
        let Some(result) = self.result() else {
            return vec![ModelPart::Text(json(self))];
        };
        let parts = result.content.iter().map(part);
        let more = structured_text(result).map(ModelPart::Text);
        parts.chain(more).collect()
    }
}

pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> Cow<'static, str> {
    // It came out of JSON, so it goes back into it.
    serde_json::to_string(value).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json, to_value};

    /// Whatever the answer is: as it came.
    #[test]
    fn an_answer_of_each_kind_is_written_as_it_was_sent() {
        let is_the_same = |sent: Value, answer: McpAnswer| {
            assert_eq!(to_value(answer).unwrap(), sent);
        };
        let sent = json!({ "content": [{ "type": "text", "text": "sunny" }], "isError": true });
        let answer = from_value::<CallToolResult>(sent.clone()).unwrap();
        is_the_same(sent, answer.into());
        let sent = json!({ "resultType": "input_required", "requestState": "opaque" });
        let asks = InputRequiredResult::from_request_state("opaque");
        is_the_same(sent, asks.into());
    }

    #[test]
    fn debug_shows_no_text_of_an_answer() {
        let answer = McpAnswer::from(CallToolResult::success(vec![ContentBlock::text("hunter2")]));
        assert_eq!(format!("{answer:?}"), "McpAnswer(Complete, 86 bytes)");
    }

    /// X5: each rule.
    #[test]
    fn results_become_text_for_the_model() {
        let text = |s: &str| ContentBlock::text(s);
        let read = |content| text_of(&CallToolResult::success(content)).into_owned();
        assert_eq!(read(vec![text("a"), text("b")]), "a\nb");
        assert_eq!(read(vec![]), "");
        let image = ContentBlock::image("aGk=", "image/png");
        assert_eq!(
            read(vec![text("a"), image]),
            "a\n[image left out: image/png, 2 bytes]"
        );
    }

    #[test]
    fn structured_content_stands_in_for_missing_content() {
        let mut result = CallToolResult::structured(json!({ "sum": 3 }));
        assert_eq!(text_of(&result), r#"{"sum":3}"#);
        result.content.clear();
        assert_eq!(text_of(&result), r#"{"sum":3}"#);
    }
}
