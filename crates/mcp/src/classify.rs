use std::borrow::Cow;

use rmcp::model::CallToolResult;
use tower_toolcall::{
    answer::Answer,
    error::ToolError,
    outcome::{ByError, Classify, Outcome},
    trace::TraceHooks,
};

use super::{McpAnswer, errors};
#[cfg(feature = "otel")]
use tower_toolcall::{
    call::{CallInfo, ToolCall},
    trace::End,
};

/// Classifies MCP results: reads `isError` too.
///
/// A result flagged `isError` is neutral by default: it may be the caller's mistake. It is the
/// caller's [mistake](Outcome::mistake) if its text shows that the server refused the *arguments*
/// (`-32602`, "invalid arguments", a validation error of pydantic, zod or JSON Schema). No breaker
/// counts a mistake, whatever [`with_reported`](Self::with_reported) sets; observers see it like
/// other flagged results. Only the first 2,000 bytes of the text are read.
///
/// `input_required` and `task` results are neutral and never repeated, because the tool has begun
/// to work.
///
/// ```
/// use tower_toolcall::Outcome;
/// use tower_toolcall_mcp::McpClassifier;
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
        crate::register();
        Self {
            reported: Outcome::reported(),
        }
    }
}

impl McpClassifier {
    /// Returns the default classifier.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the outcome of a result flagged `isError` for breakers and retriers. Default: neutral,
    /// [`Outcome::reported`]. Observers never count it as a success. Refused arguments stay
    /// neutral.
    #[must_use]
    pub fn with_reported(mut self, outcome: Outcome) -> Self {
        self.reported = outcome.with_reported(true);
        self
    }
}

impl Classify<McpAnswer> for McpClassifier {
    fn classify(&self, result: Result<&McpAnswer, &ToolError>) -> Outcome {
        let answer = match result {
            Ok(answer) => answer.result(),
            Err(_) => return ByError.classify(result),
        };
        match answer {
            None => Outcome::neutral(),
            Some(result) if result.is_error != Some(true) => Outcome::success(),
            Some(result) if refuses_arguments(result) => Outcome::mistake(),
            Some(_) => self.reported,
        }
    }
}

/// How much of an answer's text is looked at, in bytes.
const MAX_BYTES: usize = 2_000;

/// As the SDKs of MCP and the validators they use say it.
const REFUSALS: &[&str] = &[
    "-32602",
    "invalid argument",
    "invalid input",
    "invalid params",
    "invalid parameter",
    "invalid timezone",
    "validation error",
    "input should be a valid",
    "is a required property",
    "missing required argument",
    "missing required parameter",
    "invalid_type",
    "invalid_enum_value",
    "invalid_arguments",
];

/// Returns `true` if the text reports that the arguments were refused.
fn refuses_arguments(result: &CallToolResult) -> bool {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    let mut room = MAX_BYTES;
    texts.take(8).any(|text| {
        let ends = text.text.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.take_while(|end| *end <= room).last().unwrap_or(0);
        let head = text.text[..end].to_ascii_lowercase();
        room -= head.len();
        REFUSALS.iter().any(|words| head.contains(words))
    })
}

/// Hooks that show MCP results in the spans of a [`TraceLayer`](tower_toolcall::trace::TraceLayer),
/// beyond `isError`, which every observer sees. The `error.type` of a call that the server answered
/// with a protocol error is the error's code (`-32602`), as OpenTelemetry's conventions for MCP
/// have it.
///
/// With the feature `otel` the spans have the other attributes of these conventions as well:
/// `mcp.method.name`, `mcp.protocol.version`, `jsonrpc.request.id` (of the last attempt),
/// `rpc.response.status_code`, and what `McpService::with_span_attributes` adds. The hooks of
/// [`TraceLayer::attempts`](tower_toolcall::trace::TraceLayer::attempts) do the same for each
/// attempt.
///
/// ```
/// use tower_toolcall::trace::TraceLayer;
/// use tower_toolcall_mcp::McpHooks;
///
/// let layer = TraceLayer::new().with_hooks(McpHooks::new()).with_output(true);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct McpHooks {
    classifier: McpClassifier,
}

impl McpHooks {
    /// Returns the default hooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the classifier of results. Default: [`McpClassifier::new`].
    #[must_use]
    pub fn with_classifier(mut self, classifier: McpClassifier) -> Self {
        self.classifier = classifier;
        self
    }
}

impl TraceHooks<McpAnswer> for McpHooks {
    fn classify(&self, result: Result<&McpAnswer, &ToolError>) -> Outcome {
        self.classifier.classify(result)
    }

    fn answer<'a>(&self, answer: &'a McpAnswer) -> Option<Answer<'a>> {
        let Some(result) = answer.result() else {
            return Answer::of(answer);
        };
        match (&*result.content, &result.structured_content) {
            ([block], None) if block.as_text().is_some() => {
                block.as_text().map(|text| Answer::Text(&text.text))
            }
            _ => Answer::of(result),
        }
    }

    fn error_type(&self, error: &ToolError) -> Option<Cow<'static, str>> {
        errors::protocol_code(error).map(|code| code.to_string().into())
    }

    #[cfg(feature = "otel")]
    fn on_start(&self, _: &ToolCall, span: &tracing::Span) {
        super::otel::method(span);
    }

    #[cfg(feature = "otel")]
    fn on_end(&self, call: &CallInfo, end: &End<'_, McpAnswer>, span: &tracing::Span) {
        super::otel::sent(call, end.error().and_then(errors::protocol_code), span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::ContentBlock;

    fn flagged() -> McpAnswer {
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
        let response: McpAnswer = CallToolResult::success(vec![]).into();
        assert_eq!(
            McpClassifier::new().classify(Ok(&response)),
            Outcome::success()
        );
    }

    /// V6: the caller's mistake, whatever flagged results are set to mean.
    #[test]
    fn refused_arguments_are_neutral_and_reported_although_flagged_results_count() {
        let strict = McpClassifier::new().with_reported(Outcome::failure());
        let classify = |text: &str| {
            let result = CallToolResult::error(vec![ContentBlock::text(text)]);
            strict.classify(Ok::<&McpAnswer, _>(&result.into()))
        };
        for text in [
            "MCP error -32602: Input validation error: Invalid arguments for tool search",
            "Error executing tool search: 1 validation error for searchArguments",
            "2 validation errors for call[add]\na\n  Input should be a valid integer",
            "Input validation error: 'city' is a required property",
            "[{\"code\":\"invalid_type\",\"expected\":\"string\",\"path\":[\"city\"]}]",
            "invalid arguments: missing field `city`",
            "Error processing mcp-server-time query: Invalid timezone: 'Mars/Base'",
        ] {
            assert_eq!(classify(text), Outcome::mistake(), "{text}");
        }
        let counted = Outcome::failure().with_reported(true);
        for text in ["disk full", "HTTP 503", "", &"ä".repeat(5_000)] {
            assert_eq!(classify(text), counted, "{text}");
        }
    }
}
