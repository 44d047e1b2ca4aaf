use std::sync::Arc;

use crate::call::ToolCall;

/// The effects of a tool by its definition, as in MCP's hints. `None`: it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Annotations {
    /// The tool changes nothing.
    pub read_only: Option<bool>,
    /// The tool may lose data.
    pub destructive: Option<bool>,
}

impl Annotations {
    /// Sets whether the tool changes nothing. Default: not known.
    #[must_use]
    pub fn with_read_only(mut self, read_only: bool) -> Self {
        self.read_only = Some(read_only);
        self
    }
}

/// A source of the annotations of tools: the `Catalog` of an MCP server with trusted annotations,
/// or a function of your own.
///
/// It is asked with the names on the call, which are as reliable as the component that resolved
/// them. It is quick, and must not block.
///
/// ```
/// use tower_toolcall::{ToolCall, policy::{Annotations, PolicyLayer, Rule}};
///
/// let layer = PolicyLayer::new()
///     .with_annotations(|call: &ToolCall| match (call.server(), call.tool()) {
///         (None, "search") => Some(Annotations::default().with_read_only(true)),
///         _ => None,
///     })
///     .rule(Rule::allow("*").read_only())
///     .deny_by_default();
/// # let _ = layer;
/// ```
pub trait Annotate: Send + Sync + 'static {
    /// Returns the annotations of the call's tool; `None` if the tool is not known here, or its
    /// server is not trusted.
    fn annotations(&self, call: &ToolCall) -> Option<Annotations>;
}

impl<F> Annotate for F
where
    F: Fn(&ToolCall) -> Option<Annotations> + Send + Sync + 'static,
{
    fn annotations(&self, call: &ToolCall) -> Option<Annotations> {
        self(call)
    }
}

impl<T: Annotate + ?Sized> Annotate for Arc<T> {
    fn annotations(&self, call: &ToolCall) -> Option<Annotations> {
        (**self).annotations(call)
    }
}
