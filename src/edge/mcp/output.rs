use rmcp::model::CallToolResponse;

use crate::{
    call::CallInfo,
    check::Check,
    error::AnyError,
    event::emit,
    text::Bounded,
    validate::{Misfits, Schemas},
};

/// How much of what is wrong is told in an event, in bytes.
const MAX_TEXT: usize = 1 << 10;

/// The effect of an answer that does not fit its tool's output schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnMisfit {
    /// The answer is not checked.
    Off,
    /// The answer is returned, with the event `tool.misfit`. The default.
    #[default]
    Warn,
    /// The answer becomes an error of the kind [`Reported`](crate::ErrorKind::Reported).
    Report,
}

/// The `structuredContent` of answers against the `outputSchema` of their tools: for a
/// [`CheckLayer`](crate::check::CheckLayer).
///
/// Answers with `isError` are not looked at: they have no structured content to be right. An answer
/// that lacks the structured content of which its tool has a schema is worth a warning
/// (`tool.misfit`) at the most.
///
/// ```
/// use tower_toolcall::{
///     check::CheckLayer,
///     mcp::{Catalog, McpOutput, McpTools, OnMisfit},
///     validate::Schemas,
/// };
///
/// let outputs = Schemas::new();
/// let tools = McpTools::new(Catalog::default()).with_output_schemas(&outputs);
/// let layer = CheckLayer::new(McpOutput::new(&outputs).with_misfit(OnMisfit::Report));
/// # let _ = (tools, layer);
/// ```
#[derive(Clone, Debug)]
pub struct McpOutput {
    schemas: Schemas,
    misfit: OnMisfit,
}

impl McpOutput {
    /// A check with these output schemas, also those that come later.
    pub fn new(schemas: &Schemas) -> Self {
        Self {
            schemas: schemas.clone(),
            misfit: OnMisfit::default(),
        }
    }

    /// Sets what becomes of an answer that does not fit. Default: [`OnMisfit::Warn`].
    #[must_use]
    pub fn with_misfit(mut self, misfit: OnMisfit) -> Self {
        self.misfit = misfit;
        self
    }
}

/// Why an answer does not fit.
enum Wrong {
    Missing,
    Misfits(Misfits),
}

impl Check<CallToolResponse> for McpOutput {
    fn check(&self, call: &CallInfo, answer: &CallToolResponse) -> Result<(), AnyError> {
        let CallToolResponse::Complete(result) = answer else {
            return Ok(());
        };
        if self.misfit == OnMisfit::Off || result.is_error == Some(true) {
            return Ok(());
        }
        let wrong = self.schemas.of(call, |schema| {
            let schema = schema.as_ref().ok()?;
            let Some(content) = &result.structured_content else {
                return Some(Wrong::Missing);
            };
            let misfits = schema.misfits(content);
            (!misfits.is_empty()).then_some(Wrong::Misfits(misfits))
        });
        let (text, report) = match wrong.flatten() {
            None => return Ok(()),
            Some(Wrong::Missing) => ("the structured content is missing".to_owned(), false),
            Some(Wrong::Misfits(misfits)) => {
                let text = format!("the structured content does not fit: {misfits}");
                (text, self.misfit == OnMisfit::Report)
            }
        };
        if report {
            return Err(text.into());
        }
        let text = Bounded::print(MAX_TEXT, &text);
        emit!(WARN MISFIT, call, code: None, error: text.as_str());
        Ok(())
    }
}
