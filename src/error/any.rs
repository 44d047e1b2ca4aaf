use std::fmt::{self, Write as _};

use super::{BoxError, MAX_TEXT, ToolError, recognise::MAX_BYTES, safe};
use crate::{
    redact::Rules,
    text::{Bounded, plain, redacted_head},
};

/// Any error of a tool function. `?` converts an error of any type into it, and `into()` a text.
///
/// It is [`BoxError`] for functions that return an error to a layer of this crate. Each layer asks
/// that the error converts into [`ToolError`]. Within `tokio::spawn(async move { .. })` and other
/// places that need a `Send` future, the compiler cannot prove that of a `BoxError`
/// ("implementation of `From`", or of `flow::again::Enter`, "is not general enough"). Of this type
/// it can.
///
/// It does not implement [`std::error::Error`], because then it could not convert from all types
/// that do. So `?` does not convert it into a `BoxError`, and tower's own layers that ask for one
/// (`load_shed`, `buffer`, `timeout`) go above a
/// [`NormalizeLayer`](crate::normalize::NormalizeLayer) or another layer of this crate. Do not make
/// one of an `anyhow::Error` by `?`, which loses the outermost type: functions that use `anyhow`
/// return `anyhow::Error` itself (feature `anyhow`).
///
/// The conversion into a [`ToolError`](crate::ToolError) is that of [`ToolError::from_box`].
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_toolcall::{AnyError, ErrorKind, ServiceBuilderExt, ToolCall};
///
/// async fn lines(_: ToolCall) -> Result<usize, AnyError> {
///     let text = std::fs::read_to_string("no-such-notes.txt")?;
///     match text.lines().count() {
///         0 => Err("the file is empty".into()),
///         lines => Ok(lines),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let task = tokio::spawn(async move {
///     let stack = ServiceBuilder::new().tool_catch_panic().tool(service_fn(lines));
///     stack.oneshot(ToolCall::new("lines")).await
/// });
/// let error = task.await.unwrap().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Failed);
/// # }
/// ```
pub struct AnyError(BoxError);

impl AnyError {
    /// Returns the error that it was made from.
    pub fn into_inner(self) -> BoxError {
        self.0
    }
}

impl<E: Into<BoxError>> From<E> for AnyError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl From<AnyError> for ToolError {
    fn from(error: AnyError) -> Self {
        Self::from_box(error.0)
    }
}

/// The error's text by the built-in redaction rules, at most [`MAX_TEXT`](super::MAX_TEXT)
/// characters.
impl fmt::Display for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Bounded::print(MAX_BYTES, &self.0);
        f.write_str(&safe(&Rules::default(), &text))
    }
}

/// Prints the text of `Display` with its lines, all but the first indented. A program prints the
/// error so when `main` returns it; an error in a file shows the place on separate lines.
impl fmt::Debug for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Bounded::print(MAX_BYTES, &self.0);
        let text = redacted_head(&Rules::default(), &text, MAX_TEXT);
        text.chars().try_for_each(|c| match c {
            // No line from a peer can look like a line of a log.
            '\n' => f.write_str("\n    "),
            c => f.write_char(plain(c)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_text_is_redacted_and_bounded() {
        let error = AnyError::from(format!("password=hunter2 {}", "x".repeat(1 << 20)));
        let shown = format!("{error:?}");
        assert!(shown.starts_with("password=[REDACTED] x"), "{shown}");
        assert!(shown.len() < 600, "{}", shown.len());
        assert_eq!(shown, error.to_string());
    }
}
