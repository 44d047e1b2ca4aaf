//! A layer that resolves the names of calls: one tool has one identity, however callers spell it.
//!
//! | at a glance | |
//! |---|---|
//! | does | resolves names by a table of tools |
//! | place | inside `result` and `sanitize`, outside all that looks at names |
//! | default | the table is yours |
//! | the caller sees | [`NotFound`](crate::ErrorKind::NotFound) for an unknown tool, not started |
//! | method | `ServiceBuilderExt::tool_identity` |
//!
//! `charge` of the server `pay`, `pay__charge` of the server `pay`, and `pay__charge` alone are one
//! tool. Layers that keep state for each tool (a circuit breaker, a cooldown, a row of metrics)
//! know tools by the names on the call. So names are resolved outside of them, by a table that
//! knows the tools: the `Router` of the stack, a list of an MCP server's tools, or anything that
//! implements [`Resolve`].
//!
//! - Inside the layer [`ToolCall::server`](crate::ToolCall::server) and
//!   [`ToolCall::tool`](crate::ToolCall::tool) are the server and the tool's own name. Tools of the
//!   program itself have no server.
//! - A tool or a server that does not exist is refused here:
//!   [`NotFound`](crate::ErrorKind::NotFound), not started (a router and the list of an MCP server
//!   suggest near names). It makes no key, no cooldown and no row, and the inner service is not
//!   called.
//! - If the caller has not set them, the layer writes the tool's replay safety and timeout from the
//!   table on the call.
//! - Errors that come back, and their texts, name the tool as the caller did; errors of other calls
//!   stay as they are.
//! - A call that is [resolved](crate::flow::CallExt::is_resolved) already passes unchanged, so the
//!   layer may stand in a stack twice, and at a bridge as well.
//! - If the list of a known server was never read, its calls pass, under [one
//!   key](crate::Identity::unlisted) whatever tool they name.
//!
//! `GatewayHandler` of `tower-toolcall-mcp` puts it around its stack by itself, axum's `Routes` do
//! with `Routes::with_identity`.
//!
//! # Order
//!
//! Inside the result layer and the redaction rules, outside of all that looks at names: traces,
//! metrics, whatever has a key. A layer that stands outside of it has the caller's words for keys.
//!
//! # Example
//!
#![cfg_attr(feature = "tower", doc = "```")]
#![cfg_attr(not(feature = "tower"), doc = "```ignore")]
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, BoxError, ErrorKind, ServiceBuilderExt, ToolCall, router::Router,
//!     timeout::TimeoutLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
//! let pay = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("charged") });
//! let router = Router::builder().server("pay", pay, ["charge", "refund"]).build()?;
//!
//! let stack = ServiceBuilder::new()
//!     .tool_identity(router.clone())
//!     .tool_circuit_breaker() // one breaker for each tool, however it is called
//!     .layer(TimeoutLayer::default().with_tool("pay__charge", Duration::from_secs(60)))
//!     .service(router);
//!
//! for call in [
//!     ToolCall::new("pay__charge"),
//!     ToolCall::new("charge").with_server("pay"),
//!     ToolCall::new("pay__charge").with_server("pay"),
//! ] {
//!     assert_eq!(stack.clone().oneshot(call).await?, "charged");
//! }
//!
//! let invented = ToolCall::new("charge").with_server("anything");
//! let error = stack.oneshot(invented).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::NotFound);
//! let told = error.model_message();
//! assert_eq!(told, "Tool 'charge' does not exist. Did you mean 'pay__charge'?");
//! # Ok(()) }
//! ```
//!
//! Your own table:
//!
//! ```
//! use tower_toolcall::{
//!     ErrorKind, Identity, ToolCall, ToolError,
//!     flow::CallExt,
//!     identity::{IdentityLayer, Resolve},
//! };
//!
//! struct Aliases;
//!
//! impl Resolve for Aliases {
//!     fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
//!         match (call.named_server(), call.tool()) {
//!             (None, "search" | "find" | "lookup") => Ok(Some(Identity::new("search"))),
//!             _ => {
//!                 Err(ToolError::refusal(ErrorKind::NotFound, "no tool has this name"))
//!             }
//!         }
//!     }
//! }
//!
//! let layer = IdentityLayer::new(Aliases);
//! # let _ = layer;
//! ```
//!
//! # Errors
//!
//! The table's refusal. Else those of the inner service, stamped with the caller's names.
//!
//! # Cancel safety
//!
//! Dropping the response future drops the inner one.
//!
//! # Details
//!
//! ## Readiness
//!
//! That of the inner service. A refused call gives the reservation back immediately: a clone
//! replaces the inner service.
//!
//! ## Clone
//!
//! Clones share the table and the listener, and with them the metrics that count refused names.
//!
//! ## Cost
//!
//! A call that has its identity's names allocates nothing. If it uses a flat name or an alias, its
//! names are copied: one allocation. If a clone of the call is kept, there is a second one, and its
//! extensions are cloned. Arguments are never copied. A timeout that the table knows is written to
//! the call, which costs the same.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

#[doc(inline)]
pub use crate::call::Identity;
#[doc(inline)]
pub use crate::kit::per_tool::ToolNames;
use crate::{
    call::{CallExt, CallInfo, Record, ToolCall},
    error::ToolError,
    event::{Audience, Event, Listen, Listener},
    flow::{Ends, Held, Sent},
};

/// A table that knows the tools. See the [module docs](self) for an example.
pub trait Resolve: Send + Sync + 'static {
    /// Returns the identity of the tool that the call names. `None` if the table does not know: the
    /// call goes on under the caller's names.
    ///
    /// Called for each call, so it should be quick. The server to look for is the call's
    /// [`named_server`](crate::flow::CallExt::named_server): ignore the server that an outer router
    /// has written.
    ///
    /// # Errors
    ///
    /// The refusal of a call if its tool or server does not exist: usually
    /// [`NotFound`](crate::ErrorKind::NotFound). The layer makes it a [refusal](ToolError::refusal)
    /// and stamps the call's names.
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError>;

    /// Returns all tools, if the table has all of them now. Settings that name others are then
    /// refused. Default: `None`.
    fn identities(&self) -> Option<Vec<Identity>> {
        None
    }
}

impl<T: Resolve + ?Sized> Resolve for Arc<T> {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        (**self).resolve(call)
    }

    fn identities(&self) -> Option<Vec<Identity>> {
        (**self).identities()
    }
}

/// Layer that resolves the names of calls. See the [module docs](self) for an example.
#[derive(Clone)]
#[must_use]
pub struct IdentityLayer {
    shared: Arc<Shared>,
}

#[derive(Clone)]
struct Shared {
    tools: Arc<dyn Resolve>,
    listener: Listener,
    /// The observers below, which see no call that is refused here.
    audience: Arc<Audience>,
}

impl Shared {
    /// A call of a tool that does not exist.
    #[cold]
    fn refuse(&self, call: &CallInfo, error: ToolError) -> ToolError {
        let error = error.into_own_refusal().for_call(call);
        let event = Event::not_started(call, error.kind()).with_error(&error);
        self.listener.tell_with(Some(&self.audience), false, &event);
        error
    }
}

impl IdentityLayer {
    /// Makes a layer that asks this table.
    pub fn new(tools: impl Resolve) -> Self {
        Self {
            shared: Arc::new(Shared {
                tools: Arc::new(tools),
                listener: Listener::default(),
                audience: Arc::default(),
            }),
        }
    }

    /// Returns all tools of the table, if it has all of them now.
    pub fn identities(&self) -> Option<Vec<Identity>> {
        self.shared.tools.identities()
    }

    /// Sets the listener for calls that are refused ([`Event::NotStarted`]). Default: none; the
    /// `tool.rejected` event is emitted either way, and metrics below count such calls once another
    /// call has passed.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        Arc::make_mut(&mut self.shared).listener = Listener::new(listen);
        self
    }
}

impl<S> Layer<S> for IdentityLayer {
    type Service = IdentityService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdentityService {
            inner,
            shared: Arc::clone(&self.shared),
        }
    }
}

crate::text::debug_fields! { {} |_| IdentityLayer { .. } }

/// Resolves the names of calls. See the [module docs](self) for an example.
#[derive(Clone)]
pub struct IdentityService<S> {
    inner: S,
    shared: Arc<Shared>,
}

crate::kit::inner::accessors!({S} IdentityService<S>, inner);

impl<S> Service<ToolCall> for IdentityService<S>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let identity = match call.is_resolved() {
            true => Ok(None),
            false => self.shared.tools.resolve(&call),
        };
        let (call, spelled) = match identity {
            Ok(None) => (call, None),
            Ok(Some(identity)) if call.has_names_of(&identity) => {
                if call.info().listed_tool().is_some() {
                    call.record(Record::set_known);
                }
                (call.resolved(&identity), None)
            }
            Ok(Some(identity)) => {
                let spelled = call.info();
                (call.resolved(&identity), Some(spelled))
            }
            Err(error) => {
                // Gives back the reservation of the ready instance.
                self.inner = self.inner.clone();
                let error = self.shared.refuse(&call.info(), error);
                return Sent::refused(error, call);
            }
        };
        let info = call.info();
        let fut = self.inner.call(call);
        self.shared.audience.learn(&info);
        let own = Spelled(spelled);
        Sent::new(fut, Held { info, own })
    }
}

crate::text::debug_fields! { {S: std::fmt::Debug} |_| IdentityService<S> { inner, .. } }

/// Response future for [`IdentityService`].
pub type ResponseFuture<F> = Sent<F, Held<Spelled>>;

/// The caller's names of a call, if they are others than those of its identity.
#[derive(Debug)]
pub struct Spelled(Option<CallInfo>);

impl<Res> Ends<Res> for Held<Spelled> {
    type Class = ();

    fn ended(&mut self, result: &mut Result<Res, ToolError>, (): (), _: Option<Instant>) {
        if let (Err(error), Some(spelled)) = (result, &self.own.0) {
            error.readdress(&self.info, spelled);
        }
    }
}
