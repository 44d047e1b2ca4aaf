use ::axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
    routing::post,
};
use http::{Extensions, HeaderMap, StatusCode};
use serde::Serialize;
use tower::{ServiceExt as _, util::BoxCloneSyncService};
use tower_layer::Layer as _;
use tower_service::Service;

use super::{
    request::{self, Rejection, Servers, of_json, shown, status, to_json},
    rpc,
};
use crate::{
    bridge::headers::{deadline_of, the_only},
    call::{CallExt, Secret, ToolCall, Trust, VerifiedCaller},
    catch_panic::CatchPanicLayer,
    config::{ConfigError, refuse_if},
    error::ToolError,
    identity::{IdentityLayer, Resolve},
};

/// A stack that answers in JSON.
pub(super) type Stack = BoxCloneSyncService<ToolCall, Vec<u8>, ToolError>;

/// Makes routers of a stack. See the [module docs](super).
#[derive(Clone)]
#[must_use]
pub struct Routes {
    pub(super) stack: Stack,
    pub(super) max_batch: usize,
    pub(super) servers: Servers,
    pub(super) deadlines: Option<Trust>,
    /// `true` if the caller's bearer token is that of the call's subject.
    bearer: bool,
}

impl Routes {
    /// Routes to a stack, or to a bare tool, that may fail.
    ///
    /// A stack with a [`ToolResultLayer`](crate::result) makes results itself, which are no answers
    /// for a client. It does not compile:
    ///
    /// ```compile_fail,E0277
    /// # use tower::{Layer, service_fn};
    /// # use tower_toolcall::{AnyError, ToolCall, serve::Routes, result::ToolResultLayer};
    /// let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>(12) });
    /// let routes = Routes::new(ToolResultLayer::new().layer(tool));
    /// ```
    pub fn new<S>(stack: S) -> Self
    where
        S: Service<ToolCall, Error: Into<ToolError>, Future: Send> + Clone + Send + Sync + 'static,
        S::Response: Serialize,
    {
        let to_json = |answer: Result<S::Response, ToolError>| to_json(&answer?);
        let stack = stack.map_err(Into::into).map_result(to_json);
        Self {
            stack: Stack::new(CatchPanicLayer::new().layer(stack)),
            max_batch: 32,
            servers: Servers::Refused,
            deadlines: None,
            bearer: false,
        }
    }

    /// Resolves the names in requests by this table of tools, a `Router` for example, before the
    /// stack: see [`identity`](crate::identity). An unknown tool or server is a 404 or -32602 with
    /// similar names, and makes no key in the stack. A table that does not know all tools leaves
    /// the caller's names. Default: no table. Then a request that names a server is refused, and
    /// names of tools are not checked.
    pub fn with_identity(mut self, tools: impl Resolve) -> Self {
        let stack = IdentityLayer::new(tools).layer(self.stack);
        self.stack = Stack::new(CatchPanicLayer::new().layer(stack));
        self.servers = Servers::Taken;
        self
    }

    /// Takes the servers that requests name without a table: their names become keys of the stack's
    /// layers. Only for callers of your own mesh that have resolved the names. A table within the
    /// stack resolves them all the same.
    pub fn trust_servers(mut self) -> Self {
        self.servers = Servers::Taken;
        self
    }

    /// Takes deadlines: a request may say how long its caller waits, by the header that
    /// [`with_request_deadline`](ToolCall::with_request_deadline) reads, which says what `trust`
    /// means. Default: none is taken.
    pub fn with_deadlines(mut self, trust: Trust) -> Self {
        self.deadlines = Some(trust);
        self
    }

    /// Takes the bearer token of a request, `Authorization: Bearer ..` (RFC 6750, section 2.1), as
    /// the [subject's](ToolCall::with_subject_token), for a
    /// [`TokenLayer`](crate::token::TokenLayer) in the stack. The identity provider checks the
    /// token, but only for tools [with a target](crate::token::TokenLayer::with_tool): for other
    /// tools it stays unchecked. A call that needs a token and has none, or one of more than 16
    /// KiB, is a 401. The subject is [not verified](ToolCall::with_unverified_ids), unless a layer
    /// of the router has checked the token and has put a
    /// [`VerifiedCaller`](crate::VerifiedCaller::with_bearer_token) that says so into the request's
    /// extensions. A [renewed token is another subject](ToolCall::with_subject_token). Default: the
    /// header is not read.
    pub fn with_bearer_subject(mut self) -> Self {
        self.bearer = true;
        self
    }

    /// A function that gives calls what their request says of them beside its body: its deadline,
    /// which counts from now, and the token of its caller, if these are taken.
    pub(super) fn for_caller(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> impl Fn(ToolCall) -> ToolCall + use<> {
        let trust = self.deadlines;
        let taken = trust.and_then(|trust| Some((deadline_of(headers)?, trust)));
        let subject = self.bearer.then(|| bearer_of(headers)).flatten();
        let is_verified = extensions
            .get()
            .is_some_and(VerifiedCaller::has_bearer_token);
        move |mut call| {
            if let Some((at, trust)) = taken {
                call.tighten_remote(at, trust);
            }
            if let Some(subject) = &subject {
                call = call.with_subject_token(subject.clone());
                if !is_verified {
                    call = call.with_unverified_ids();
                }
            }
            call
        }
    }

    /// Reads the call out of a request, as the [plain endpoints](super#requests) do. For an
    /// endpoint of your own: its path has the parameter `{tool}`, and may have `{server}`.
    /// `with_arguments` sets the arguments from the body, a JSON text.
    ///
    /// # Errors
    ///
    /// If the request is not a call, or `with_arguments` fails.
    pub async fn read<F>(&self, request: Request, with_arguments: F) -> Result<ToolCall, Rejection>
    where
        F: FnOnce(ToolCall, &str) -> Result<ToolCall, ToolError> + Send,
    {
        let on_server = |call, server: &str| self.servers.put_on(call, server);
        let for_caller = self.for_caller(request.headers(), request.extensions());
        request::read(request, &(), on_server, for_caller, with_arguments).await
    }

    /// Gives a call what a request says beside its body: its ids, its caller, and if these are
    /// taken its deadline and the token of its subject. [`read`](Self::read) does so.
    pub fn with_request(
        &self,
        call: ToolCall,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> ToolCall {
        let call = call.with_request_headers(headers);
        let for_caller = self.for_caller(headers, extensions);
        for_caller(call.with_request_extensions(extensions))
    }

    /// Runs a call through the stack. Returns the answer as JSON.
    ///
    /// # Errors
    ///
    /// The error of the stack and the status of the answer. The user message may be shown to the
    /// caller. The status is 401 if the call was denied because its caller has sent no
    /// [token](Self::with_bearer_subject).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the call.
    pub async fn run(&self, call: ToolCall) -> Result<Vec<u8>, (StatusCode, ToolError)> {
        let info = call.info();
        let lacks_subject = self.bearer && call.subject_token().is_none();
        let answer = self.stack.clone().oneshot(call).await;
        answer.map_err(|error| {
            let error = shown(error.for_call(&info));
            (status(&error, lacks_subject), error)
        })
    }

    /// Returns whether the tokens of subjects are [taken](Self::with_bearer_subject).
    pub fn has_bearer_subject(&self) -> bool {
        self.bearer
    }

    /// Sets how many requests a JSON-RPC batch may have. Default 32. They all run concurrently. A
    /// limit in the stack holds for all batches together.
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

    /// Returns the plain endpoints alone: `/tools/{tool}/call` and
    /// `/servers/{server}/tools/{tool}/call`.
    pub fn plain(&self) -> Router {
        Router::new()
            .route("/tools/{tool}/call", post(call).fallback(no_post))
            .route(
                "/servers/{server}/tools/{tool}/call",
                post(call).fallback(no_post),
            )
            .with_state(self.clone())
    }

    /// Returns the JSON-RPC endpoint alone: `/rpc`.
    pub fn rpc(&self) -> Router {
        Router::new()
            .route("/rpc", post(rpc::answer).fallback(rpc::no_post))
            .with_state(self.clone())
    }

    /// Returns all endpoints.
    pub fn into_router(self) -> Router {
        self.plain().merge(self.rpc())
    }
}

async fn call(State(routes): State<Routes>, request: Request) -> Response {
    let call = match routes.read(request, ToolCall::with_json_str).await {
        Ok(call) => call,
        Err(rejection) => return rejection.into_response(),
    };
    match routes.run(call).await {
        Ok(json) => of_json(StatusCode::OK, json),
        Err((status, error)) => error.to_http_as(status).map(Body::from),
    }
}

/// The token of `Authorization: Bearer`, if there is one.
fn bearer_of(headers: &HeaderMap) -> Option<Secret> {
    let value = the_only(headers, http::header::AUTHORIZATION)?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let is_bearer = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
    is_bearer.then(|| token.into())
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
