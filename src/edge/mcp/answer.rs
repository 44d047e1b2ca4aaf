//! MCP's results as JSON, as text for the model, and their size.

use std::any::Any;

use std::borrow::Cow;

use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock};
use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::Value;

use super::fit;
use crate::{
    answer::{ModelText, NoSize, json_bytes},
    call::CallInfo,
    check::{Check, within},
    error::AnyError,
    foreign::{self, Json, PARSED},
};

/// An MCP server's answer as the JSON that the server has sent, for code that writes answers as JSON.
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
/// // For `axum::Routes`, as one.
/// let stack = ServiceBuilder::new().map_response(McpJson).service(tool);
/// let answer = stack.oneshot(ToolCall::new("weather")).await?;
/// let json = serde_json::to_value(&answer)?;
/// assert_eq!(json["content"][0]["text"], "sunny");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct McpJson(pub CallToolResponse);

impl Serialize for McpJson {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        AsJson(&self.0).serialize(to)
    }
}

/// The same of a borrowed answer.
pub(super) struct AsJson<'a>(pub(super) &'a CallToolResponse);

impl Serialize for AsJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
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

/// A result as it is kept: see `foreign`.
pub(crate) fn json_of(answer: &dyn Any, max: u64) -> Option<Json> {
    let result = match answer.downcast_ref() {
        Some(CallToolResponse::Complete(result)) => result,
        // rmcp cannot read every other kind again.
        Some(other) => {
            let bytes = response_bytes(other, max).ok();
            return Some(Json::Parsed(
                bytes.map(|bytes| bytes.saturating_mul(PARSED)),
            ));
        }
        None => answer.downcast_ref::<CallToolResult>()?,
    };
    Some(foreign::same_json(result, max))
}

pub(crate) fn asks(answer: &dyn Any) -> bool {
    matches!(
        answer.downcast_ref(),
        Some(CallToolResponse::InputRequired(_))
    )
}

pub(crate) fn parse_into(place: &mut dyn Any, json: &str) {
    foreign::parse_into::<CallToolResult>(place, json);
    if let Some(place) = place.downcast_mut::<Option<CallToolResponse>>() {
        let result = serde_json::from_str::<CallToolResult>(json).ok();
        *place = result.map(CallToolResponse::Complete);
    }
}

/// How many bytes the result has as compact JSON, if not more than `max`.
pub(super) fn response_bytes(response: &CallToolResponse, max: u64) -> Result<u64, NoSize> {
    json_bytes(&AsJson(response), max)
}

impl ModelText for [ContentBlock] {
    fn model_text(&self) -> Cow<'_, str> {
        let texts: Option<Vec<&str>> = self
            .iter()
            .map(|block| block.as_text().map(|t| t.text.as_str()))
            .collect();
        match texts.as_deref() {
            Some([text]) => Cow::Borrowed(text),
            Some(texts) => texts.join("\n").into(),
            None => json(self),
        }
    }
}

/// The content, and the structured content if no text of the content carries it.
impl ModelText for CallToolResult {
    fn model_text(&self) -> Cow<'_, str> {
        let more = match &self.structured_content {
            None | Some(Value::Null) => return self.content.model_text(),
            Some(structured) if self.content.is_empty() => return structured.model_text(),
            Some(structured) => structured,
        };
        match fit::carries(&self.content, more) {
            true => self.content.model_text(),
            false => format!("{}\n{}", self.content.model_text(), more.model_text()).into(),
        }
    }
}

/// A complete result's text; JSON for a result that asks for input or names a task.
impl ModelText for CallToolResponse {
    fn model_text(&self) -> Cow<'_, str> {
        match self {
            Self::Complete(result) => result.model_text(),
            other => json(&AsJson(other)),
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
        assert_eq!(
            serde_json::from_str::<Value>(&[text("a"), image].model_text()).unwrap(),
            json!([
                { "type": "text", "text": "a" },
                { "type": "image", "data": "aGk=", "mimeType": "image/png" },
            ])
        );
    }

    #[test]
    fn structured_content_stands_in_for_missing_content() {
        let mut result = CallToolResult::structured(json!({ "sum": 3 }));
        assert_eq!(result.model_text(), r#"{"sum":3}"#);
        result.content.clear();
        assert_eq!(result.model_text(), r#"{"sum":3}"#);
    }
}
