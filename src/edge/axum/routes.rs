use ::axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
    routing::post,
};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use tower::{ServiceExt as _, util::BoxCloneSyncService};
use tower_layer::Layer as _;
use tower_service::Service;

use super::{
    request::{self, Rejection, Servers},
    response::{of_json, shown, to_json},
    rpc,
};
use crate::{
    call::{ToolCall, Trust},
    catch_panic::CatchPanicLayer,
    config::{ConfigError, refuse_if},
    edge::headers::deadline_of,
    error::ToolError,
    identity::{IdentityLayer, Resolve},
};

/// A stack whose answers are JSON already.
pub(super) type Stack = BoxCloneSyncService<ToolCall, Vec<u8>, ToolError>;

/// Makes routers of a stack. See the [module docs](super).
#[derive(Clone)]
#[must_use]
pub struct Routes {
    pub(super) stack: Stack,
    pub(super) max_batch: usize,
    pub(super) servers: Servers,
    pub(super) deadlines: Option<Trust>,
}

impl Routes {
    /// Routes to a stack, or to a bare tool, that may fail.
    ///
    /// A stack with a [`ToolResultLayer`](crate::result) makes results itself, which are no answers for a client. It does not compile:
    ///
    /// ```compile_fail,E0277
    /// # use tower::{Layer, service_fn};
    /// # use tower_toolcall::{AnyError, ToolCall, axum::Routes, result::ToolResultLayer};
    /// let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>(12) });
    /// let routes = Routes::new(ToolResultLayer::new().layer(tool));
    /// ```
    pub fn new<S>(stack: S) -> Self
    where
        S: Service<ToolCall> + Clone + Send + Sync + 'static,
        S::Response: Serialize,
        S::Error: Into<ToolError>,
        S::Future: Send,
    {
        let to_json = |answer: Result<S::Response, ToolError>| to_json(&answer?);
        let stack = stack.map_err(Into::into).map_result(to_json);
        Self {
            stack: Stack::new(CatchPanicLayer::new().layer(stack)),
            max_batch: 32,
            servers: Servers::Refused,
            deadlines: None,
        }
    }

    /// Resolves the names in requests by this table of tools, a `Router` (feature `router`) for example, before the stack: see
    /// [`identity`](crate::identity). A tool, or a server, that does not exist is a 404 or -32602, which names what is near, and makes no
    /// key in the stack. A table that cannot tell leaves the caller's words. Default: no table. Then a request that names a
    /// server is refused, and the names of tools are the callers'.
    pub fn with_identity(mut self, tools: impl Resolve) -> Self {
        let stack = IdentityLayer::new(tools).layer(self.stack);
        self.stack = Stack::new(CatchPanicLayer::new().layer(stack));
        self.servers = Servers::Taken;
        self
    }

    /// Takes the servers that requests name without a table: their names become keys of the stack's layers. For callers of an own mesh only, who
    /// have resolved them. A table within the stack resolves them all the same.
    pub fn trust_servers(mut self) -> Self {
        self.servers = Servers::Taken;
        self
    }

    /// Takes deadlines: a request may say how long its caller waits, by the header that
    /// [`with_request_deadline`](ToolCall::with_request_deadline) reads, which says what `trust` means. Default: none is taken.
    pub fn with_deadlines(mut self, trust: Trust) -> Self {
        self.deadlines = Some(trust);
        self
    }

    /// A function that gives calls the deadline of their request, which arrives now, if deadlines are taken.
    pub(super) fn timed(&self, headers: &HeaderMap) -> impl Fn(ToolCall) -> ToolCall + use<> {
        let taken = self
            .deadlines
            .and_then(|trust| Some((deadline_of(headers)?, trust)));
        move |mut call| {
            if let Some((at, trust)) = taken {
                call.tighten_from_wire(at, trust);
            }
            call
        }
    }

    /// Sets how many requests a JSON-RPC batch may have. Default 32. They all run at once: a limit below, in the
    /// stack, holds for all batches together.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub fn with_max_batch(mut self, requests: usize) -> Result<Self, ConfigError> {
        let reason = "it is zero: no batch would ever run";
        refuse_if(requests == 0, "max_batch", reason)?;
        self.max_batch = requests;
        Ok(self)
    }

    /// The plain endpoints alone: `/tools/{tool}/call` and `/servers/{server}/tools/{tool}/call`.
    pub fn plain(&self) -> Router {
        Router::new()
            .route("/tools/{tool}/call", post(call).fallback(no_post))
            .route(
                "/servers/{server}/tools/{tool}/call",
                post(call).fallback(no_post),
            )
            .with_state(self.clone())
    }

    /// The JSON-RPC endpoint alone: `/rpc`.
    pub fn rpc(&self) -> Router {
        Router::new()
            .route("/rpc", post(rpc::answer).fallback(rpc::no_post))
            .with_state(self.clone())
    }

    /// All of them.
    pub fn into_router(self) -> Router {
        self.plain().merge(self.rpc())
    }
}

async fn call(State(routes): State<Routes>, request: Request) -> Response {
    let on_server = |call, server: &str| routes.servers.put_on(call, server);
    let timed = routes.timed(request.headers());
    let call = match request::read(request, &(), on_server, timed).await {
        Ok(call) => call,
        Err(rejection) => return rejection.into_response(),
    };
    let info = call.info();
    match routes.stack.oneshot(call).await {
        Ok(json) => of_json(StatusCode::OK, json),
        Err(error) => shown(error.for_call(&info)).into_response(),
    }
}

/// axum adds which method is allowed.
async fn no_post() -> Rejection {
    Rejection::no_post()
}

crate::text::debug_fields! {
    {} |this| Routes {
        max_batch: this.max_batch,
        servers: this.servers,
        deadlines: this.deadlines,
        ..
    }
}
