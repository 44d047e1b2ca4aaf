//! Answers or results: the two kinds of services that a batch calls.

use crate::{
    error::{ErrorKind, ToolError},
    result::ToolResult,
};

/// The service gives answers and errors, and the batch makes results of them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Answers;

/// The service gives results.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Results;

/// How a batch has a result of what its service gives.
pub trait Ending<Res> {
    /// What the result has.
    type Data;

    /// The result, or else what one is made of.
    #[doc(hidden)]
    fn sort(given: Result<Res, ToolError>) -> Given<Self::Data>;
}

type Given<T> = Result<ToolResult<T>, Result<T, ToolError>>;

impl<Res> Ending<Res> for Answers {
    type Data = Res;

    fn sort(given: Result<Res, ToolError>) -> Given<Res> {
        Err(given)
    }
}

impl<T> Ending<ToolResult<T>> for Results {
    type Data = T;

    fn sort(given: Result<ToolResult<T>, ToolError>) -> Given<T> {
        given.map_err(|error| {
            // It is the guard's own: the service has none. The redaction rules that hold below are not known here.
            Err(match error.kind() {
                ErrorKind::Panicked => ToolError::new(ErrorKind::Panicked, "the tool panicked"),
                _ => error,
            })
        })
    }
}
