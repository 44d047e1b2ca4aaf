//! The arguments of a call as a type of the program.

mod access;
mod mismatch;
mod node;

use serde::Deserialize;
use serde_json::Value;

use self::{mismatch::Mismatch, node::Node};
use super::ToolCall;
use crate::error::ToolError;

impl ToolCall {
    /// Reads the arguments as a type of the program, without a copy of them.
    ///
    /// A call without arguments fits each type that can be read from `{}` or from `null`, so `()`
    /// and `Option<T>` too. Texts may be borrowed: `&str`, `Cow<str>`.
    ///
    /// ```
    /// use serde::Deserialize;
    /// use serde_json::json;
    /// use tower_toolcall::{ErrorKind, ToolCall};
    ///
    /// #[derive(Deserialize)]
    /// struct Weather {
    ///     city: String,
    ///     days: u8,
    /// }
    ///
    /// let call = ToolCall::new("weather").with_json(json!({ "city": "Oslo", "days": 3 }))?;
    /// let Weather { city, days } = call.arguments_as()?;
    /// assert_eq!((&*city, days), ("Oslo", 3));
    ///
    /// let call = ToolCall::new("weather").with_json(json!({ "city": "Oslo", "days": "three" }))?;
    /// let error = call.arguments_as::<Weather>().err().unwrap();
    /// assert_eq!(error.kind(), ErrorKind::InvalidInput);
    /// assert_eq!(
    ///     error.model_message(),
    ///     "Tool 'weather' refused its arguments: `days`: expected u8, not a string. \
    /// Correct them and call it again."
    /// );
    /// # Ok::<_, tower_toolcall::ToolError>(())
    /// ```
    ///
    /// A validation of your own is an error of the same kind:
    /// `ToolError::new(ErrorKind::InvalidInput, "`days` must be 14 at most")`.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), not started, if the arguments do not fit
    /// the type, or are nested too deeply. No breaker counts it. The error names the field and the
    /// expected type, so that a model can correct itself, and never a value of the caller's.
    ///
    /// Of a type's own `Deserialize` it shows names, types and the lengths of tuples. Texts of its
    /// own (`custom`, `expecting`, those of a `TryFrom`) may contain a value, so the error says
    /// only that the value does not fit. In the path, keys of maps and of flattened fields are `*`.
    pub fn arguments_as<'de, T: Deserialize<'de>>(&'de self) -> Result<T, ToolError> {
        // Reading arguments that are nested too deeply would overflow the stack.
        self.check()?;
        T::deserialize(Node(self.arguments_value())).or_else(|mismatch| {
            if self.arguments().is_empty() {
                let null = T::deserialize(Node(&Value::Null));
                return null.map_err(|_| refused(self, &mismatch));
            }
            Err(refused(self, &mismatch))
        })
    }
}

fn refused(call: &ToolCall, mismatch: &Mismatch) -> ToolError {
    let text = match mismatch.place() {
        Some(place) => format!("`{place}`: {mismatch}"),
        None => mismatch.to_string(),
    };
    call.invalid(text)
}
