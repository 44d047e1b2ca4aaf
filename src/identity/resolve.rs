use std::sync::Arc;

use crate::{
    call::{Identity, ToolCall},
    error::ToolError,
};

/// A table that knows the tools. See the [module docs](super) for an example.
pub trait Resolve: Send + Sync + 'static {
    /// The identity of the tool that the call names. `None` if the table cannot tell: the call goes on under the caller's names.
    ///
    /// It is asked with each call, and should be quick. The server to look for is the call's
    /// [`named_server`](ToolCall::named_server): one that a router above has written says nothing here.
    ///
    /// # Errors
    ///
    /// The refusal of a call whose tool, or server, does not exist: usually
    /// [`NotFound`](crate::ErrorKind::NotFound). The layer makes it a [refusal](ToolError::refusal) and stamps the call's names.
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError>;
}

impl<T: Resolve + ?Sized> Resolve for Arc<T> {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        (**self).resolve(call)
    }
}
