//! A layer that puts redaction rules on the calls that pass.
//!
//! | at a glance | |
//! |---|---|
//! | does | redacts what people and log stores read |
//! | place | outermost |
//! | default | your rules add to the built-in ones |
//! | the caller sees | the real answer; redacted errors |
//! | method | `ServiceBuilderExt::tool_sanitize` |
//!
//! The tool gets the real arguments; what people and log stores read is redacted by the call's
//! [`Rules`]: the arguments in spans ([`ToolCall::sanitized`]), the answer where it is shown, the
//! message, body and details of errors, and a [`ToolResult`](crate::ToolResult) that is serialised.
//! Without this layer the built-in rules hold; with it, yours, which add to them.
//!
//! Names (of tools, servers, calls, sessions) are redacted by the built-in rules in any case.
//!
//! Success, failure and readiness pass unchanged.
//!
//! # Order
//!
//! Outermost: outside every layer that observes calls. It does not take back what an outer layer
//! has printed; a result that is made outside is shown by these rules. Of two such layers the inner
//! one's rules hold inside it.
//!
//! # Example
//!
//! ```
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, BoxError, ToolCall, redact::Rules,
//!     sanitize::SanitizeLayer, trace::TraceLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
//! let rules = Rules::new()
//!     .with_sensitive_key("iban")?
//!     .with_secret_prefix("acme_live_", 8)?;
//! let tool = service_fn(|call: ToolCall| async move {
//!     assert_eq!(
//!         call.arguments()["iban"],
//!         "DE02120300000000202051"
//!     ); // the real one
//!     assert_eq!(
//!         call.sanitized().to_string(),
//!         r#"{"iban":"[REDACTED]"}"#
//!     );
//!     Err::<(), _>(AnyError::from(
//!         "acme_live_0123456789 is no key of ours",
//!     ))
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(SanitizeLayer::new(rules))
//!     .layer(TraceLayer::new())
//!     .service(tool);
//!
//! let call = ToolCall::new("pay").with_json(
//!     json!({ "iban": "DE02120300000000202051" }),
//! )?;
//! let error = stack.oneshot(call).await.unwrap_err();
//! assert_eq!(error.message(), "[REDACTED] is no key of ours");
//! # Ok(()) }
//! ```
//!
//! # Errors
//!
//! Those of the inner service, unchanged. Any of our other inner layers redacts them by the call's
//! rules as they pass; around a bare tool only the built-in rules hold for the errors that the tool
//! makes itself.
//!
//! # Cancel safety
//!
//! The response future is the inner one.
//!
//! # Clone
//!
//! Clones share the rules.

use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::{call::ToolCall, redact::Rules};

/// Layer that puts redaction rules on calls. See the [module docs](self) for an example.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct SanitizeLayer {
    rules: Rules,
}

impl SanitizeLayer {
    /// Makes a layer with these rules; [`Rules::new`] are the built-in ones.
    ///
    /// Nothing is allocated for a call of which the caller keeps no clone.
    pub fn new(rules: Rules) -> Self {
        Self { rules }
    }
}

impl<S> Layer<S> for SanitizeLayer {
    type Service = Sanitize<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Sanitize {
            inner,
            rules: self.rules.clone(),
        }
    }
}

/// Puts redaction rules on calls. See the [module docs](self) for an example.
#[derive(Clone, Debug)]
pub struct Sanitize<S> {
    inner: S,
    rules: Rules,
}

crate::kit::inner::accessors!({S} Sanitize<S>, inner);

impl<S: Service<ToolCall>> Service<ToolCall> for Sanitize<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut call: ToolCall) -> S::Future {
        call.put_rules(&self.rules);
        self.inner.call(call)
    }
}
