use rmcp::model::{CallToolResponse, CallToolResult};

use crate::{
    error::ToolError,
    outcome::{ByError, Classify, Outcome},
};

/// Classifies MCP results: reads `isError` too.
///
/// A result flagged `isError` tells nothing by default: it may be the caller's mistake (E6).
/// `input_required` and `task` results are neutral and never repeated: the tool has begun to work.
///
/// ```
/// use tower_toolcall::{Outcome, mcp::McpClassifier};
///
/// // A server whose tools flag only their own failures:
/// let classifier = McpClassifier::new().with_reported(Outcome::tool_failure());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct McpClassifier {
    reported: Outcome,
}

impl Default for McpClassifier {
    fn default() -> Self {
        Self {
            reported: Outcome::reported(),
        }
    }
}

impl McpClassifier {
    /// The default classifier.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what a result flagged `isError` means for breakers and retriers. Default: nothing, as
    /// [`Outcome::reported`] says. It is no success for observers either way.
    #[must_use]
    pub fn with_reported(mut self, outcome: Outcome) -> Self {
        self.reported = outcome.with_reported(true);
        self
    }
}

impl Classify<CallToolResult> for McpClassifier {
    fn classify(&self, result: Result<&CallToolResult, &ToolError>) -> Outcome {
        match result {
            Ok(result) if result.is_error == Some(true) => self.reported,
            other => ByError.classify(other),
        }
    }
}

impl Classify<CallToolResponse> for McpClassifier {
    fn classify(&self, result: Result<&CallToolResponse, &ToolError>) -> Outcome {
        match result {
            Ok(CallToolResponse::Complete(result)) => self.classify(Ok(result)),
            Ok(_) => Outcome::neutral(),
            Err(error) => Classify::<CallToolResult>::classify(self, Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::ContentBlock;

    fn flagged() -> CallToolResponse {
        CallToolResult::error(vec![ContentBlock::text("no such city")]).into()
    }

    /// E6: a flagged result counts only if it is asked for.
    #[test]
    fn a_flagged_result_is_neutral_unless_set_otherwise() {
        let response = flagged();
        assert_eq!(
            McpClassifier::new().classify(Ok(&response)),
            Outcome::reported()
        );
        let strict = McpClassifier::new().with_reported(Outcome::tool_failure());
        let outcome = strict.classify(Ok(&response));
        assert_eq!(outcome, Outcome::tool_failure().with_reported(true));
    }

    #[test]
    fn an_unflagged_result_is_a_success() {
        let response: CallToolResponse = CallToolResult::success(vec![]).into();
        assert_eq!(
            McpClassifier::new().classify(Ok(&response)),
            Outcome::success()
        );
    }
}
