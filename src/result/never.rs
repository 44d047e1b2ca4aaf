use std::{error::Error as StdError, fmt};

/// The error of a service that makes a [`ToolResult`](super::ToolResult) of each call: there is
/// none.
///
/// Unlike [`Infallible`](std::convert::Infallible) it is no [`ToolError`](crate::ToolError). If the
/// compiler says that `Never` cannot be turned into one, a layer or a bridge that looks at errors
/// stands outside a [`ToolResultLayer`](super::ToolResultLayer): take that layer away, or put it
/// outside. A layer between that boxes errors, such as tower's `load_shed`, hides it from the
/// compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "it has no value, and never will")]
pub enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl StdError for Never {}
