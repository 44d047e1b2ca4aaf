//! A stack behind HTTP and JSON-RPC 2.0, with [axum](https://docs.rs/axum).
//!
//! [`Routes`] makes a router of any stack with answers that can be serialised:
//!
//! - `POST /tools/{tool}/call` takes the arguments, a JSON object, and answers with the tool's
//!   answer as JSON; an error with its status
//! - `POST /servers/{server}/tools/{tool}/call` takes the same, of this server's tool, and answers
//!   with the same
//! - `POST /rpc` takes JSON-RPC 2.0, `tools/call`, and answers with 200 and a JSON-RPC answer,
//!   errors too; 204 for notifications
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use axum::serve::ListenerExt as _;
//! use serde_json::json;
//! use tower::{ServiceBuilder, service_fn};
//! use tower_toolcall::{AnyError, ServiceBuilderExt, ToolCall, serve::Routes};
//!
//! let tool = service_fn(|call: ToolCall| async move {
//!     Ok::<_, AnyError>(json!({ "city": call.arguments().get("city"), "degrees": 12 }))
//! });
//! let stack = ServiceBuilder::new()
//!     .tool_circuit_breaker()
//!     .tool_timeout(Duration::from_secs(10))
//!     .service(tool);
//!
//! let app: axum::Router = Routes::new(stack).into_router();
//! // With the peers' addresses: what one client's arguments cause is felt by that client alone.
//! let app = app.into_make_service_with_connect_info::<std::net::SocketAddr>();
//! # let _ = async {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! // Without it an answer of two parts waits 40 ms for an acknowledgement.
//! let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
//! axum::serve(listener, app).await
//! # };
//! ```
//!
//! A handler of your own:
//!
//! ```
//! use axum::{Json, Router, extract::State, routing::post};
//! use serde_json::Value;
//! use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};
//! use tower_toolcall::{ToolCall, ToolError};
//!
//! type Stack = BoxCloneSyncService<ToolCall, Value, ToolError>;
//!
//! async fn call(State(stack): State<Stack>, call: ToolCall) -> Result<Json<Value>, ToolError> {
//!     let call = call.with_server("docs");
//!     let info = call.info();
//!     stack.oneshot(call).await.map(Json).map_err(|error| error.for_call(&info))
//! }
//!
//! let stack = Stack::new(service_fn(|_: ToolCall| async { Ok(Value::Null) }));
//! let app: Router = Router::new().route("/docs/{tool}", post(call)).with_state(stack);
//! ```
//!
//! # Errors
//!
//! Every error becomes an answer. A panic is a 500, also in a stack without a
//! [`CatchPanicLayer`](crate::catch_panic). That layer still belongs innermost, so that the other
//! layers see the error.
//!
//! # Requests
//!
//! The body is JSON, at most axum's limit, which is 2 MB unless
//! [`DefaultBodyLimit`](https://docs.rs/axum/latest/axum/extract/struct.DefaultBodyLimit.html) sets
//! another; the arguments have at most [`MAX_DEPTH`](crate::MAX_DEPTH) levels. The body has at most
//! [`MAX_VALUES`](crate::MAX_VALUES) values, over all calls of a batch; they are counted before
//! they are parsed. The names of tool and server have at most
//! [`MAX_NAME_BYTES`](crate::MAX_NAME_BYTES). An empty body means no arguments.
//! `content-type: application/json` is required even then, because a browser lets no page of
//! another site send it without a preflight request. [`with_request_headers`] lists the headers
//! that are read; a deadline is read only [if configured](Routes::with_deadlines). An invalid
//! request is a [`Rejection`]: 400, 413 or 415, with the same body as an error. So is any other
//! method than `POST`, with 405.
//!
//! This module does not authenticate callers: add a layer to the router for that. Such a layer can
//! also remove ids that callers must not choose. Nor does it limit the time of a head or a body, as
//! `axum::serve` does not: the program `toolcall-gateway` has such limits.
//!
//! The principal of a call comes from its request's
//! [extensions](crate::ToolCall::with_request_extensions): the
//! [`VerifiedCaller`](crate::VerifiedCaller) that an authentication layer has put there, else the
//! address of the peer, which is [not verified](crate::ToolCall::with_unverified_ids). Serve
//! `app.into_make_service_with_connect_info::<SocketAddr>()`; otherwise the address is missing, and
//! [weak failures](crate::circuit_breaker#weak-failures) of one caller count for all.
//!
//! # Details
//!
//! ## Names
//!
//! Requests name tools and servers. With [`Routes::with_identity`] and a table of tools (a
//! `Router`, for example), names are resolved before the stack, in any spelling. Unknown names are
//! refused, with similar names as suggestions. So layers have one key for each tool, and none for
//! names that callers invent.
//!
//! Without a table, a request that names a server is refused with 404 or -32602. Peers of your own
//! mesh, which have resolved the names, may be [trusted](Routes::trust_servers).
//!
//! ```
//! use tower::{ServiceBuilder, service_fn};
//! use tower_toolcall::{
//!     AnyError, BoxError, ServiceBuilderExt, ToolCall, serve::Routes, router::Router,
//! };
//!
//! # fn main() -> Result<(), BoxError> {
//! let docs = service_fn(|call: ToolCall| async move {
//!     Ok::<_, AnyError>(call.tool().to_owned())
//! });
//! let router = Router::builder().server("docs", docs, ["search"]).build()?;
//! let stack = ServiceBuilder::new().tool_circuit_breaker().service(router.clone());
//!
//! // POST /servers/docs/tools/search/call and POST /tools/docs__search/call are one tool.
//! let app: axum::Router = Routes::new(stack).with_identity(router).into_router();
//! # let _ = app; Ok(()) }
//! ```
//!
//! For handlers of your own, a [`ToolCall`](crate::ToolCall) is an extractor, and a
//! [`ToolError`](crate::ToolError) or a [`ToolResult`](crate::ToolResult) is a response.
//!
//! When a client disconnects, its call is dropped: the tool is cancelled, as by a timeout. Over
//! HTTP/1 hyper notices this only if the client has sent nothing after its request. Otherwise the
//! stack's timeout or deadline ends the call.
//!
//! ## Hosts and origins
//!
//! Web pages in a local browser can reach a server on a user's machine or in a private network: a
//! name of the page's own site is made to resolve to the server (DNS rebinding). So refuse names
//! that are not the server's, on all routes:
//!
//! ```
//! use axum::{
//!     body::Body,
//!     extract::Request,
//!     http::{StatusCode, Uri, header::{HOST, ORIGIN}},
//!     middleware::{Next, from_fn},
//!     response::Response,
//! };
//! use tower::{ServiceExt, service_fn};
//! use tower_toolcall::{AnyError, BoxError, ToolCall, serve::Routes};
//!
//! const HOSTS: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "tools.example.com"];
//!
//! async fn own_hosts_only(request: Request, next: Next) -> Result<Response, StatusCode> {
//!     let is_ours = |host: &str| HOSTS.iter().any(|own| own.eq_ignore_ascii_case(host));
//!     let (asked, headers) = (request.uri().host(), request.headers());
//!     let named = headers.get_all(HOST).iter().chain(headers.get_all(ORIGIN));
//!     let all_ours = named.map(|value| Uri::try_from(value.as_bytes())).all(|value| {
//!         value.is_ok_and(|value| value.host().is_some_and(is_ours))
//!     });
//!     // HTTP/2 has the host in the URI.
//!     let has_host = asked.is_some() || headers.contains_key(HOST);
//!     match has_host && asked.is_none_or(is_ours) && all_ours {
//!         true => Ok(next.run(request).await),
//!         false => Err(StatusCode::FORBIDDEN),
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("done") });
//! let app = Routes::new(tool).into_router().layer(from_fn(own_hosts_only));
//!
//! for (host, status) in [("localhost:8080", 200), ("evil.example", 403)] {
//!     let request = Request::post("/tools/search/call")
//!         .header("host", host)
//!         .header("content-type", "application/json");
//!     let answer = app.clone().oneshot(request.body(Body::empty())?).await?;
//!     assert_eq!(answer.status(), status);
//! }
//! # Ok(()) }
//! ```
//!
//! rmcp's streamable HTTP server has the same by its configuration.
//!
//! ## Answers
//!
//! A success is 200 with the tool's own answer; so is an error in the tool's own words, for example
//! MCP's `isError`. An error of the stack is written by [`to_http`](crate::ToolError::to_http). An
//! answer that is not JSON, or has more than [`MAX_DEPTH`](crate::MAX_DEPTH) levels, is an error of
//! the kind [`Reported`](crate::ErrorKind::Reported), because the tool did run.
//!
//! Bodies have the message for users, which does not describe wrong arguments. If the callers are
//! agents, send the model's message. Make this the outermost layer of the stack:
//!
//! ```
//! use tower::{ServiceBuilder, service_fn};
//! use tower_toolcall::{AnyError, ServiceBuilderExt, ToolCall, ToolError, serve::Routes};
//!
//! let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>(12) });
//! let stack = ServiceBuilder::new()
//!     .map_err(|error: ToolError| {
//!         let text = error.public_model_message();
//!         error.with_user_message(text)
//!     })
//!     .tool_catch_panic()
//!     .service(tool);
//! # let _ = Routes::new(stack);
//! ```
//!
//! `retryable` and `execution` in a body are for programs; a model reads the message. A call marked
//! unsafe that may have run is not retryable. For other calls the kind decides, and a repeated call
//! may run twice if its execution is `unknown`.
//!
//! A [`Rejection`] never reaches the stack, so none of its layers sees it. The figures of
//! [`metrics`](crate::tool_metrics) as a route:
//!
//! ```
//! use axum::{Router, http::header::CONTENT_TYPE, routing::get};
//! use tower_toolcall::tool_metrics::Metrics;
//!
//! let metrics = Metrics::new();
//! let page = move || async move {
//!     ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.prometheus())
//! };
//! let app: Router = Router::new().route("/metrics", get(page));
//! ```
//!
//! ## JSON-RPC
//!
//! ```text
//! -> {"jsonrpc":"2.0","id":7,"method":"tools/call",
//!        "params":{"name":"search","server":"docs","arguments":{"q":"tower"}}}
//! <- {"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Circuit breaker open",
//!        "data":{"code":"CIRCUIT_OPEN","tool_id":"search","server":"docs",
//!            "retryable":true,"execution":"not_started","retry_after_seconds":42}}}
//! ```
//!
//! - `params` are `name`, and if need be `arguments`, [`server`](#names) and MCP's `_meta`, of
//!   which the trace context is read (feature `otel`).
//! - A batch of at most [32](Routes::with_max_batch) requests runs side by side, as
//!   [`Parallel`](crate::batch::Parallel) runs it, and is answered in one array, in its own order.
//! - A request without an id is a notification: the tool runs, and no answer is sent.
//! - The id is echoed as it was written. As text it is the call's id, if it has at most 128 visible
//!   characters and no other call of the batch has it.
//! - `-32700`: no JSON. `-32600`: no request, an empty or too long batch. `-32601`: another method.
//!   `-32602`: wrong params. The rest comes from [`to_json_rpc`](crate::ToolError::to_json_rpc).
//! - A body that is too large or says that it is not JSON is not read: 413 and 415, with a JSON-RPC
//!   error, as has 405.
//!
//! The route is for JSON-RPC gateways. It is not an MCP server: to MCP's peers its codes -32000 and
//! -32001 mean something else.
//!
//! ## Endpoints of your own
//!
//! A handler [reads](Routes::read) a call, [runs](Routes::run) it, and answers with a body of its
//! own: [`json`], [`ToolError::to_http_with`](crate::ToolError::to_http_with),
//! [`Rejection::into_response_with`]. `Executor` of the crate `tower-toolcall-http` is the endpoint
//! of an executor of HTTP tools.
//!
//! ## Clone
//!
//! Each request runs in a clone of the stack. The clones share the state of the layers, over all
//! routes.
//!
//! [`with_request_headers`]: crate::ToolCall::with_request_headers

mod request;
mod routes;
mod rpc;

pub(super) use self::request::address;
pub use self::{
    request::{Rejection, json},
    routes::Routes,
};
