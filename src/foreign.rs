//! The core's questions about types of other crates. Each edge that is compiled in answers for its own: this is the one list of
//! them.

use std::error::Error as StdError;

use tracing::Span;

use crate::{
    call::ToolCall,
    error::{BoxError, ToolError},
};

/// Recognises an error as a leaf that is a transport met it on its own wire; `None` if no edge knows its type.
pub(crate) fn cause(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    const KNOWN: &[fn(&(dyn StdError + 'static)) -> Option<ToolError>] = &[
        #[cfg(feature = "tower")]
        crate::edge::tower::cause,
        #[cfg(feature = "hyper")]
        crate::edge::hyper::cause,
        #[cfg(any(feature = "hyper", feature = "tonic"))]
        crate::edge::h2::cause,
        #[cfg(feature = "http-client")]
        crate::edge::reqwest::cause,
        #[cfg(feature = "mcp")]
        crate::edge::mcp::on_wire,
        #[cfg(feature = "tonic")]
        crate::edge::tonic::on_wire,
    ];
    KNOWN.iter().find_map(|known| known(error))
}

/// Whether an error wraps another and adds nothing.
pub(crate) fn is_transparent(error: &(dyn StdError + 'static)) -> bool {
    const KNOWN: &[fn(&(dyn StdError + 'static)) -> bool] = &[
        #[cfg(feature = "tower")]
        crate::edge::tower::is_transparent,
        #[cfg(feature = "tonic")]
        crate::edge::tonic::is_transparent,
    ];
    KNOWN.iter().any(|known| known(error))
}

/// A text that was made of an error, without the address in it: that may be a secret as a whole.
pub(crate) fn without_address(text: String, error: &(dyn StdError + 'static)) -> String {
    const KNOWN: &[fn(String, &(dyn StdError + 'static)) -> String] = &[
        #[cfg(feature = "http-client")]
        crate::edge::reqwest::without_address,
        #[cfg(feature = "mcp-http")]
        crate::edge::mcp::without_address,
    ];
    KNOWN.iter().fold(text, |text, known| known(text, error))
}

/// Whether a layer of another crate refused the call.
pub(crate) fn is_refusal(error: &BoxError) -> bool {
    const KNOWN: &[fn(&BoxError) -> bool] = &[
        #[cfg(feature = "tower")]
        crate::edge::tower::is_refusal,
    ];
    KNOWN.iter().any(|known| known(error))
}

/// Whether a layer of another crate exports the span. The span is new, and was not entered yet.
pub(crate) fn is_exported(span: &Span) -> bool {
    const KNOWN: &[fn(&Span) -> bool] = &[
        #[cfg(feature = "otel")]
        crate::edge::otel::is_exported,
    ];
    KNOWN.iter().any(|known| known(span))
}

/// Whether the sampler of another crate drops a span.
pub(crate) fn is_sampled_out(span: &Span) -> bool {
    const KNOWN: &[fn(&Span) -> bool] = &[
        #[cfg(feature = "otel")]
        crate::edge::otel::is_sampled_out,
    ];
    KNOWN.iter().any(|known| known(span))
}

/// The token of the one for whom a call is made.
pub(crate) fn subject(call: &ToolCall) -> Option<&str> {
    const KNOWN: &[fn(&ToolCall) -> Option<&str>] = &[
        #[cfg(feature = "token")]
        |call| call.subject_token().map(crate::edge::token::Secret::expose),
    ];
    KNOWN.iter().find_map(|known| known(call))
}
