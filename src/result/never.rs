use std::{error::Error as StdError, fmt};

/// The error of a service that makes a [`ToolResult`](super::ToolResult) of each call: there is
/// none.
///
/// Unlike [`Infallible`](std::convert::Infallible) it does not convert into a
/// [`ToolError`](crate::ToolError). If the compiler says so, a layer or a bridge that looks at
/// errors is outside a [`ToolResultLayer`](super::ToolResultLayer): remove that layer, or make it
/// the outer one. A layer between that boxes errors, such as tower's `load_shed`, hides the mistake
/// from the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "it has no value, and never will")]
pub enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl StdError for Never {}
