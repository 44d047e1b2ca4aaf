//! MCP's results as text for the model.

use std::borrow::Cow;

use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock};
use serde::Serialize;

use super::json::AsJson;
use crate::answer::ModelText;

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

/// The content; without any, the structured content.
impl ModelText for CallToolResult {
    fn model_text(&self) -> Cow<'_, str> {
        match &self.structured_content {
            Some(structured) if self.content.is_empty() => structured.model_text(),
            _ => self.content.model_text(),
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

fn json<T: Serialize + ?Sized>(value: &T) -> Cow<'static, str> {
    // It came out of JSON, so it goes back into it.
    serde_json::to_string(value).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
