//! Names to services: local tools and those of servers behind one `Service<ToolCall>`.
//!
//! A [`Router`] is the innermost service of a stack that serves several tools. A call goes
//!
//! - to the local tool of its name;
//! - else, if its name is `{server}__{tool}`, to that server, under the tool's own name;
//! - and if it names a server of the router's by [`with_server`](crate::ToolCall::with_server), to
//!   the tool that this one has, by its own name or by the flat one. A server that the router does
//!   not know says nothing.
//!
//! The service of a server sees the tool's own name, and the server on the call. The rest of the
//! call passes unchanged, with its [record](crate::flow::CallExt::observe), so outer observers see
//! inner attempts. Errors that come back name the tool as the caller does.
//!
//! Routers nest. A server that a router has put on a call means nothing to an inner router.
//!
//! # Example
//!
//! Two local tools, one of them with a layer of its own, and a server:
//!
//! ```
//! use std::time::Duration;
//! use serde::Deserialize;
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, BoxError, ErrorKind, ToolCall,
//!     catch_panic::CatchPanicLayer,
//!     router::{Json, Router, tool_fn},
//!     timeout::TimeoutLayer,
//! };
//!
//! #[derive(Deserialize)]
//! struct Add {
//!     a: i64,
//!     b: i64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
//! let add = tool_fn(|Add { a, b }: Add| async move { Ok::<_, AnyError>(Json(a + b)) });
//! let pay = tool_fn(|(): ()| async { Ok::<_, AnyError>("paid") });
//! // Any service: an HTTP client, a queue, another router.
//! let docs = service_fn(|call: ToolCall| async move {
//!     Ok::<_, AnyError>(format!("{} of {}", call.tool(), call.server().unwrap_or("nobody")))
//! });
//!
//! let router = Router::builder()
//!     .tool("add", add)
//!     .tool(
//!         "pay",
//!         ServiceBuilder::new().layer(TimeoutLayer::new(Duration::from_secs(60))).service(pay),
//!     )
//!     .server("docs", docs, ["search", "fetch"])
//!     .build()?;
//! assert_eq!(router.names(), ["add", "docs__fetch", "docs__search", "pay"]);
//!
//! let stack = ServiceBuilder::new()
//!     .layer(router.identity())
//!     .layer(CatchPanicLayer::new())
//!     .service(router);
//! let run = |call| stack.clone().oneshot(call);
//! assert_eq!(run(ToolCall::new("add").with_json(json!({ "a": 1, "b": 2 }))?).await?, 3);
//! assert_eq!(run(ToolCall::new("docs__search")).await?, "search of docs");
//!
//! let error = run(ToolCall::new("serch")).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::NotFound);
//! assert_eq!(
//!     error.model_message(),
//!     "Tool 'serch' does not exist. Did you mean 'docs__search'?"
//! );
//! # Ok(()) }
//! ```
//!
//! With MCP servers a router answers as they do (`tower_toolcall_mcp::router`), and its lists may
//! follow them: see `McpNotifications`. What may be repeated is known from their catalogs, and
//! reaches the retry layer by the identity layer:
//!
//! ```
//! use tower_toolcall::{retry::{RetryLayer, RetryPolicy}, router::Router};
//! fn serve(router: Router) {
//!     let stack = tower::ServiceBuilder::new()
//!         .layer(router.identity())
//!         .layer(RetryLayer::new(RetryPolicy::new()))
//!         .service(router);
//! }
//! ```
//!
//! # Errors
//!
//! - A tool that does not exist: [`NotFound`](crate::ErrorKind::NotFound), not started. Its texts
//!   name up to three [similar tools](#similar-names).
//! - Arguments that do not fit a [`tool_fn`]: [`InvalidInput`](crate::ErrorKind::InvalidInput), not
//!   started.
//! - An answer that cannot be written as JSON: [`Reported`](crate::ErrorKind::Reported).
//! - A server that is [not available](#servers-that-are-not-there):
//!   [`ConnectionFailed`](crate::ErrorKind::ConnectionFailed), not started.
//! - Other errors are those of the tool and of its readiness, stamped with the call's names.
//!
//! # Cancel safety
//!
//! Dropping the response future drops the tool's, or gives its place in the queue back. One that
//! was never polled has called no service.
//!
//! # Details
//!
//! ## Order
//!
//! Innermost. Layers for all tools go around the router, inside its [identity
//! layer](Router::identity); layers for one tool, or one server, around its service:
//!
//! ```text
//! IdentityLayer > TraceLayer > DeadlineLayer > RetryLayer
//!   > CircuitBreakerLayer > CatchPanicLayer > Router
//!     pay             TimeoutLayer 60 s > tool_fn
//!     docs__*         ConcurrencyLimitLayer 4 > McpService
//! ```
//!
//! The router is always ready. Each call waits for its own route in its future, until its deadline
//! or until its caller cancels. So a route that is not ready blocks no other. As with every such
//! layer, backpressure ends here: bound the load outside.
//!
//! ## Lists that change
//!
//! A list of a server's tools may follow the server: [`Tools`], as `McpTools` of
//! `tower-toolcall-mcp` does. A call uses the current list and does not wait for a newer one. A
//! change of a list never makes two flat names collide, because [`build`](RouterBuilder::build)
//! refuses servers that could. A call that names its server by `with_server` may mean another tool
//! after a change, because a tool's own name takes precedence over a flat one.
//!
//! ## Similar names
//!
//! Local tools come before those of servers at the same distance. The search is bounded to some
//! milliseconds, so among many thousand tools it may miss one. A name is not shown if it has
//! characters other than ASCII letters, digits and `_-./:`, has more than 64, or looks like a
//! secret. If an inner router knows no such tool, the names are those of the outer router.
//!
//! ## One name for each tool
//!
//! A caller may spell a tool in several ways, and name servers that do not exist. Layers around the
//! router that keep state for each tool would keep one for each spelling.
//! [`identity`](Router::identity) is the layer that puts an end to that, outside of them: see
//! [`identity`](crate::identity). It is stricter than the router alone: a server that the router
//! does not know is [`NotFound`](crate::ErrorKind::NotFound). It also writes on the call what the
//! router knows of the tool: whether it may run twice, by the annotations of a trusted server, and
//! its [timeout](RouterBuilder::with_timeout).
//!
//! If a list that follows a server was never read, calls of that server are passed on, whatever
//! tool they name.
//!
//! A model's provider may allow less than a server: flat names of more than 64 characters, or with
//! others than letters, digits, `_` and `-`, are refused by some. [`Names`] maps them and maps them
//! back. A `GatewayHandler` lists tools under mapped names; the router itself lists them as they
//! are.
//!
//! ## Servers that are not there
//!
//! A [`Health`](crate::health::Health) registry can [watch](RouterBuilder::with_health) the
//! servers. Here it knows their names from the start; an outer layer knows them only from calls.
//! While it refuses calls to a server,
//!
//! - a call of its tools fails immediately, with
//!   [`ConnectionFailed`](crate::ErrorKind::ConnectionFailed), not started, and the time to come
//!   back; the model reads that the tool is temporarily unavailable, not that it does not exist;
//! - [`names`](Router::names), [`definitions`](Router::definitions) and the names that are
//!   suggested instead of an unknown one leave its tools out.
//!
//! They are back once the server is, and also when a call may pass as a probe: a model would never
//! call a tool that no list shows. So a list changes with time alone. To notify others of that,
//! watch [`subscribe_all`](crate::health::Health::subscribe_all) for changes, and each
//! [`probe_at`](crate::health::ServerHealth::probe_at), as `GatewayHandler::follow_health` does.
//!
//! The list of [`withhold`](Router::withhold) leaves out tools with an open circuit breaker too.
//!
//! ## Definitions
//!
//! A model needs a description and a JSON Schema of each tool. With the feature `schemars` the type
//! of a function's arguments is the schema: the router lists it, and a `ValidateLayer` (feature
//! `validate`) checks by it.
//!
#![cfg_attr(all(feature = "schemars", feature = "validate"), doc = "```")]
#![cfg_attr(
    not(all(feature = "schemars", feature = "validate")),
    doc = "```ignore"
)]
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_toolcall::{AnyError, ErrorKind, ServiceBuilderExt, ToolCall, router::Router};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Weather {
//!     /// The name of a city.
//!     city: String,
//! }
//!
//! async fn weather(args: Weather) -> Result<String, AnyError> {
//!     Ok(format!("{}: 12 degrees", args.city))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AnyError> {
//! let router = Router::builder()
//!     .typed_tool("weather", "Says how warm it is", weather)
//!     .build()?;
//!
//! let definitions = router.definitions(); // for `Format::tools` of `tower-toolcall-turn`
//! let schema = definitions[0].schema();
//! assert_eq!(schema["properties"]["city"]["description"], "The name of a city.");
//!
//! let stack = ServiceBuilder::new().tool_validate(&router.schemas()).tool(router);
//! let call = ToolCall::new("weather").with_json(json!({ "town": "Oslo" }))?;
//! let error = stack.oneshot(call).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::InvalidInput);
//! # Ok(()) }
//! ```
//!
//! ## Panics
//!
//! A panic of a tool passes: put a [`CatchPanicLayer`](crate::catch_panic::CatchPanicLayer) around
//! the router.
//!
//! ## Clone
//!
//! Clones are the same router: one reference count. Each call clones its route's service, and calls
//! that very clone once it is ready. A call of a local tool allocates once: its future. One of a
//! server's tool by its flat name allocates twice: the call's other names too. If a clone of the
//! call is kept, for example by a retry layer, it is three times: what lies around the names is
//! copied, and the extensions in it are cloned deep; the arguments never are.

mod answer;
mod builder;
mod list;
mod model_names;
mod names;
mod service;
mod table;
mod typed;

pub use self::{
    answer::{Definition, IntoAnswer, Json},
    builder::RouterBuilder,
    list::{ToolList, Tools},
    model_names::{MAX_TOOL_NAME, Names},
    service::{ResponseFuture, Router},
    typed::{ToolFn, ToolFnFuture, ToolFnWithCall, tool_fn, tool_fn_with_call},
};
