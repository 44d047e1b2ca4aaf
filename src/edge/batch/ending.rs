//! Answers or results: the two kinds of services that a batch calls.

use crate::{error::ToolError, result::ToolResult};

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
        // An error is the guard's own: the service has none.
        given.map_err(Err)
    }
}
