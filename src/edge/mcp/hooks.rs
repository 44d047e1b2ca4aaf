use std::borrow::Cow;

use rmcp::model::{CallToolResponse, CallToolResult};

use super::{McpClassifier, answer::AsJson, errors};
use crate::{
    answer::Answer,
    error::ToolError,
    outcome::{Classify, Outcome},
    trace::TraceHooks,
};
#[cfg(feature = "otel")]
use crate::{
    call::{CallInfo, ToolCall},
    edge::otel,
    trace::End,
};

/// Hooks that show MCP results in the spans of a [`TraceLayer`](crate::trace::TraceLayer), beyond
/// `isError`, which every observer sees. The `error.type` of a call that the server answered with a
/// protocol error is the error's code (`-32602`), as OpenTelemetry's conventions for MCP have it.
///
/// With the feature `otel` the spans have the other attributes of these conventions as well:
/// `mcp.method.name`, `mcp.protocol.version`, `jsonrpc.request.id` (of the last attempt),
/// `rpc.response.status_code`, and what `McpService::with_span_attributes` adds. The hooks of
/// [`TraceLayer::attempts`](crate::trace::TraceLayer::attempts) do the same for each attempt.
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

    /// Sets the classifier of results. Default: [`McpClassifier::new`].
    #[must_use]
    pub fn with_classifier(mut self, classifier: McpClassifier) -> Self {
        self.classifier = classifier;
        self
    }
}

/// The hooks of a type of response, whose `Answer` the function finds.
macro_rules! hooks {
    ($response:ty, $answer:ident) => {
        impl TraceHooks<$response> for McpHooks {
            fn classify(&self, result: Result<&$response, &ToolError>) -> Outcome {
                self.classifier.classify(result)
            }

            fn answer<'a>(&self, response: &'a $response) -> Option<Answer<'a>> {
                $answer(response)
            }

            fn error_type(&self, error: &ToolError) -> Option<Cow<'static, str>> {
                errors::protocol_code(error).map(|code| code.to_string().into())
            }

            #[cfg(feature = "otel")]
            fn on_start(&self, _: &ToolCall, span: &tracing::Span) {
                otel::mcp::method(span);
            }

            #[cfg(feature = "otel")]
            fn on_end(&self, call: &CallInfo, end: &End<'_, $response>, span: &tracing::Span) {
                otel::mcp::sent(call, end.error().and_then(errors::protocol_code), span);
            }
        }
    };
}

hooks!(CallToolResult, of_result);
hooks!(CallToolResponse, of_response);

fn of_result(result: &CallToolResult) -> Option<Answer<'_>> {
    match (&*result.content, &result.structured_content) {
        ([block], None) if block.as_text().is_some() => {
            block.as_text().map(|text| Answer::Text(&text.text))
        }
        _ => Answer::of(result),
    }
}

fn of_response(response: &CallToolResponse) -> Option<Answer<'_>> {
    match response {
        CallToolResponse::Complete(result) => of_result(result),
        other => Answer::of(&AsJson(other)),
    }
}
