use rmcp::model::{CallToolResponse, CallToolResult};

use super::McpClassifier;
use crate::{
    answer::Answer,
    error::ToolError,
    outcome::{Classify, Outcome},
    trace::TraceHooks,
};

/// What a [`TraceLayer`](crate::trace::TraceLayer) has to know of MCP results: which of them are
/// errors in the tool's own words, and what they say.
///
/// ```
/// use tower_toolcall::{mcp::McpHooks, trace::TraceLayer};
///
/// let layer = TraceLayer::new().with_hooks(McpHooks::new()).with_output(true);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct McpHooks {
    classifier: McpClassifier,
}

impl McpHooks {
    /// The default hooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets who classifies results. Default: [`McpClassifier::new`].
    #[must_use]
    pub fn with_classifier(mut self, classifier: McpClassifier) -> Self {
        self.classifier = classifier;
        self
    }
}

impl TraceHooks<CallToolResult> for McpHooks {
    fn classify(&self, result: Result<&CallToolResult, &ToolError>) -> Outcome {
        self.classifier.classify(result)
    }

    fn answer<'a>(&self, result: &'a CallToolResult) -> Option<Answer<'a>> {
        match (&*result.content, &result.structured_content) {
            ([block], None) if block.as_text().is_some() => {
                block.as_text().map(|text| Answer::Text(&text.text))
            }
            _ => Answer::of(result),
        }
    }
}

impl TraceHooks<CallToolResponse> for McpHooks {
    fn classify(&self, result: Result<&CallToolResponse, &ToolError>) -> Outcome {
        self.classifier.classify(result)
    }

    fn answer<'a>(&self, response: &'a CallToolResponse) -> Option<Answer<'a>> {
        match response {
            CallToolResponse::Complete(result) => self.answer(result),
            CallToolResponse::InputRequired(result) => Answer::of(result),
            CallToolResponse::Task(result) => Answer::of(result),
            _ => None,
        }
    }
}
