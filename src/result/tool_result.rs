use std::{borrow::Cow, time::Duration};

use super::{metadata::Metadata, status::Status};
use crate::{answer::ModelText, call::CallInfo, error::ToolError, text::Short};

/// The end of a call: its answer, or its error.
///
/// `Debug` shows no data, and `Serialize` writes it redacted; see the [module docs](super).
#[derive(Clone)]
#[must_use]
pub struct ToolResult<T> {
    pub(super) data: Option<T>,
    pub(super) about: About,
}

/// All but the data.
#[derive(Clone)]
pub(super) struct About {
    pub(super) call: CallInfo,
    pub(super) error: Option<ToolError>,
    pub(super) duration: Duration,
    pub(super) attempts: u32,
    pub(super) metadata: Metadata,
}

impl<T> ToolResult<T> {
    /// Returns whether the tool answered, and not with an error of its own.
    pub fn is_success(&self) -> bool {
        self.error().is_none()
    }

    /// Returns how the call ended.
    pub fn status(&self) -> Status {
        let of = |error: &ToolError| Status::of(error.kind());
        self.error().map_or(Status::Success, of)
    }

    /// Returns whether the call timed out, or was not started because no time was left.
    pub fn ran_out_of_time(&self) -> bool {
        matches!(self.status(), Status::Timeout | Status::Skipped)
    }

    /// Returns the tool's name.
    pub fn tool(&self) -> &str {
        self.about.call.tool()
    }

    /// Returns the server that has the tool: as the call says, or else the error.
    pub fn server(&self) -> Option<&str> {
        let known = || self.error().and_then(ToolError::server);
        self.about.call.server().or_else(known)
    }

    /// Returns the call's id, if it has one.
    pub fn call_id(&self) -> Option<&str> {
        self.about.call.id()
    }

    /// Returns the call's other names: agent, trace, session.
    pub fn call(&self) -> &CallInfo {
        &self.about.call
    }

    /// Returns the tool's answer: of a success, and of an answer that is an error in the tool's own
    /// words.
    pub fn data(&self) -> Option<&T> {
        self.data.as_ref()
    }

    /// Returns the error; `None` after a success.
    pub fn error(&self) -> Option<&ToolError> {
        self.about.error.as_ref()
    }

    /// Takes the answer out.
    pub fn into_data(self) -> Option<T> {
        self.data
    }

    /// Returns the answer of a success, or else the error. A reported error loses its answer here:
    /// [`data`](Self::data) has it.
    ///
    /// # Errors
    ///
    /// The error of the call.
    pub fn into_result(self) -> Result<T, ToolError> {
        match (self.data, self.about.error) {
            (_, Some(error)) => Err(error),
            (Some(data), None) => Ok(data),
            (None, None) => unreachable!("a success has data"),
        }
    }

    /// Returns the tool's answer, even if it is a reported error, or else the error: as a stack
    /// without results returns it.
    ///
    /// # Errors
    ///
    /// The error of a call that has no answer.
    pub fn into_answer(self) -> Result<T, ToolError> {
        match self.data {
            Some(data) => Ok(data),
            None => Err(self.about.error.expect("a success has data")),
        }
    }

    /// Converts the data, and leaves the rest unchanged.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> ToolResult<U> {
        ToolResult {
            data: self.data.map(f),
            about: self.about,
        }
    }

    /// Returns how long it took, waiting and all attempts included; zero for a call that was
    /// skipped.
    pub fn duration(&self) -> Duration {
        self.about.duration
    }

    /// Returns how many attempts were sent; 0 for a call that was skipped, or only refused.
    pub fn attempts(&self) -> u32 {
        self.about.attempts
    }

    /// Returns what the inner layers did.
    pub fn metadata(&self) -> &Metadata {
        &self.about.metadata
    }

    /// Returns the metadata, to add to it.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.about.metadata
    }

    /// Returns the text for users: [`ToolError::user_message`], empty after a success.
    pub fn user_message(&self) -> String {
        self.error()
            .map_or_else(String::new, ToolError::user_message)
    }

    /// Returns the error's text for the model: [`ToolError::model_message`], empty after a success.
    /// [`model_text`](Self::model_text) is what to hand to it.
    pub fn model_message(&self) -> String {
        self.error()
            .map_or_else(String::new, ToolError::model_message)
    }

    /// Returns the text for the model as this call's result, however it ended: the tool's answer,
    /// or else the [sentence](Self::model_message) that says what went wrong and what to do next.
    ///
    /// A reported error is handed on as it is, unless it is empty. The answer's text is neither
    /// redacted nor cut.
    ///
    /// ```
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    /// use tower_toolcall::{AnyError, ToolCall, result::ToolResultLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let tools = ServiceBuilder::new().layer(ToolResultLayer::new()).service(service_fn(
    ///     |call: ToolCall| async move {
    ///         match call.tool() {
    ///             "weather" => Ok("12 degrees"),
    ///             _ => Err(AnyError::from("503 Service Unavailable")),
    ///         }
    ///     },
    /// ));
    ///
    /// let Ok(result) = tools.clone().oneshot(ToolCall::new("weather")).await;
    /// assert_eq!(result.model_text(), "12 degrees");
    ///
    /// let Ok(result) = tools.oneshot(ToolCall::new("news")).await;
    /// let text = "The service behind tool 'news' failed: 503 Service Unavailable. It may";
    /// assert!(result.model_text().starts_with(text));
    /// # }
    /// ```
    pub fn model_text(&self) -> Cow<'_, str>
    where
        T: ModelText,
    {
        let answer = self.data().map(ModelText::model_text);
        match self.error() {
            None => answer.unwrap_or_default(),
            Some(error) => answer
                .filter(|text| !text.trim().is_empty())
                .unwrap_or_else(|| error.model_message().into()),
        }
    }

    /// Returns the result with its real data, to serialise it for its receiver, not for a log.
    pub fn exposed(&self) -> Exposed<'_, T> {
        Exposed(self)
    }
}

crate::text::debug_fields! {
    /// Shows how the call ended, never the data.
    {T} |this| ToolResult<T> {
        status: this.status(),
        tool: Short::name(this.tool()),
        server: this.server().map(Short::name),
        call_id: this.call_id().map(Short::name),
        data: this.data().map(|_| format_args!("..")),
        error: this.error(),
        duration: this.duration(),
        attempts: this.attempts(),
        metadata: this.metadata(),
    }
}

/// A [`ToolResult`] that serialises the tool's real answer. See [`ToolResult::exposed`].
///
/// ```
/// # use tower::{ServiceBuilder, ServiceExt, service_fn};
/// # use tower_toolcall::{AnyError, ToolCall, result::{ToolResult, ToolResultLayer}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let tools = ServiceBuilder::new().layer(ToolResultLayer::new())
/// #     .service(service_fn(|_: ToolCall| async { Ok::<_, AnyError>("12 degrees".to_owned()) }));
/// let Ok(result) = tools.oneshot(ToolCall::new("weather")).await;
///
/// let sent = serde_json::to_string(&result.exposed()).unwrap();
/// let received: ToolResult<String> = serde_json::from_str(&sent).unwrap();
/// assert_eq!(received.data().unwrap(), "12 degrees");
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Exposed<'a, T>(pub(super) &'a ToolResult<T>);
