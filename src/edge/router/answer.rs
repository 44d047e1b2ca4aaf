use serde::Serialize;
use serde_json::Value;

use crate::error::ToolError;

/// Converts a tool's answer to that of a router of `Res`.
///
/// Everything is its own answer. A router of [`Value`]s also takes strings, `()` and [`Json`]; with
/// the feature `mcp` a router of rmcp's `CallToolResponse`s takes `CallToolResult`s, strings (as
/// text), `()` (nothing), and [`Value`]s and [`Json`] (as structured content, and as text; `null`
/// is nothing).
pub trait IntoAnswer<Res> {
    /// The answer.
    ///
    /// # Errors
    ///
    /// [`Reported`](crate::ErrorKind::Reported): the tool has run; its answer cannot be written.
    fn into_answer(self) -> Result<Res, ToolError>;
}

/// An answer that is written as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize> Json<T> {
    fn into_value(self) -> Result<Value, ToolError> {
        serde_json::to_value(self.0).map_err(|error| {
            let message = format!("the tool's answer cannot be written as JSON: {error}");
            ToolError::unusable(message)
        })
    }
}

impl<T> IntoAnswer<T> for T {
    fn into_answer(self) -> Result<T, ToolError> {
        Ok(self)
    }
}

/// Converts each of these types to an answer.
macro_rules! answers {
    ($answer:ty { $($from:ty: |$own:pat_param| $into:expr;)* }) => {$(
        impl IntoAnswer<$answer> for $from {
            fn into_answer(self) -> Result<$answer, ToolError> {
                let $own = self;
                Ok($into)
            }
        }
    )*};
}

answers!(Value {
    String: |text| text.into();
    &'static str: |text| text.into();
    (): |()| Value::Null;
});

impl<T: Serialize> IntoAnswer<Value> for Json<T> {
    fn into_answer(self) -> Result<Value, ToolError> {
        self.into_value()
    }
}

#[cfg(feature = "mcp")]
mod mcp {
    use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock};

    use super::*;
    use crate::answer::ModelText as _;

    fn text(text: impl Into<String>) -> CallToolResponse {
        CallToolResult::success(vec![ContentBlock::text(text)]).into()
    }

    /// With a text that a model reads: a string has no quotes there.
    fn structured(value: Value) -> CallToolResponse {
        if value.is_null() {
            return CallToolResult::success(Vec::new()).into();
        }
        let text = ContentBlock::text(value.model_text());
        let mut result = CallToolResult::structured(value);
        result.content = vec![text];
        result.into()
    }

    answers!(CallToolResponse {
        CallToolResult: |result| result.into();
        String: |own| text(own);
        &'static str: |own| text(own);
        (): |()| CallToolResult::success(Vec::new()).into();
        Value: |value| structured(value);
    });

    impl<T: Serialize> IntoAnswer<CallToolResponse> for Json<T> {
        fn into_answer(self) -> Result<CallToolResponse, ToolError> {
            self.into_value()?.into_answer()
        }
    }
}
