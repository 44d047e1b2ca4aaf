//! HTTP endpoints as tools: a request made of templates, a tool service over any HTTP client.
//!
//! An [`HttpTool`] describes the request: method, and templates of the URL, the headers and the
//! body. [`HttpTool::client`] makes it the innermost service of a stack, which sends one request
//! for each call. The client is any `Service<http::Request<B>>`: reqwest's (`ReqwestClient`,
//! feature `reqwest`; you choose a TLS feature of reqwest), or hyper-util's, also inside
//! tower-http's layers.
//!
//! - A 2xx is `Ok`: an [`HttpAnswer`] with the body, or [the part of it](HttpTool::with_result)
//!   that is the result. It is JSON, else text.
//! - Any other status is the error that it [means](tower_toolcall::ErrorKind::from_http_status),
//!   with the delay that the headers ask for, the beginning of the body in its text, and the answer
//!   [behind it](HttpAnswer::of_error). Of its body at most 64 KiB are read, and for at most 2 s; a
//!   body that was cut ends with a mark.
//! - A request that could not be sent is `ConnectionFailed`, not started, and may be repeated.
//!   Everything later is [unknown](tower_toolcall::Execution::Unknown).
//! - Dropping the response future drops the request.
//!
//! # Example
//!
//! ```
//! use bytes::Bytes;
//! use http::{Method, Request, Response};
//! use http_body_util::Full;
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{AnyError, ToolCall, call::UpstreamToken, retry::{RetryLayer, RetryPolicy}};
//! use tower_toolcall_http::HttpTool;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AnyError> {
//! let tool = HttpTool::new(
//!     Method::POST,
//!     "https://api.pizzeria.com/shops/{{ shop }}/orders?notify={{ notify | default(true) }}",
//! )?
//! .with_header("Authorization", "Bearer {{ upstream_token }}")?
//! .with_header("X-Request-ID", "{{ request_id }}")?
//! .with_body(
//!     r#"{
//!         "pizza": "{{ pizza }}",
//!         {% if toppings is defined %}"toppings": {{ toppings }},{% endif %}
//!         "quantity": {{ quantity | default(1) }}
//!     }"#,
//! )?;
//!
//! // A client of your own. `ReqwestClient::new()?` is one.
//! let client = service_fn(|request: Request<Bytes>| async move {
//!     assert_eq!(request.uri(), "https://api.pizzeria.com/shops/no%201/orders?notify=true");
//!     assert_eq!(request.headers()["authorization"], "Bearer t0k3n");
//!     let body: serde_json::Value = serde_json::from_slice(request.body())?;
//!     assert_eq!(body, json!({ "pizza": "Quattro \"Stagioni\"", "quantity": 1 }));
//!     Ok::<_, AnyError>(Response::new(Full::<Bytes>::from(r#"{"order": 7}"#)))
//! });
//!
//! let safety = tool.replay_safety(); // of a POST unknown
//! let stack = ServiceBuilder::new()
//!     .layer(RetryLayer::new(RetryPolicy::new().with_replay_safety(move |_| safety)))
//!     .service(tool.client(client));
//!
//! let mut call = ToolCall::new("order")
//!     .with_json(json!({ "shop": "no 1", "pizza": "Quattro \"Stagioni\"" }))?;
//! call.extensions_mut().insert(UpstreamToken::new("t0k3n"));
//! let answer = stack.oneshot(call).await?;
//! assert_eq!(answer.upstream_status(), 200);
//! assert_eq!(answer.into_json(), json!({ "order": 7 }));
//! # Ok(()) }
//! ```
//!
//! hyper-util's client, without TLS:
//!
//! ```
//! use bytes::Bytes;
//! use http::Method;
//! use http_body_util::Full;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use tower_toolcall::ConfigError;
//! use tower_toolcall_http::{HttpService, HttpTool};
//!
//! # fn main() -> Result<(), ConfigError> {
//! let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
//! let service: HttpService<_, Full<Bytes>> =
//!     HttpTool::new(Method::GET, "http://127.0.0.1:8080/shops/{{ shop }}")?.client(client);
//! # Ok(()) }
//! ```
//!
//! # Order
//!
//! Innermost: retry, breaker and timeout act on single requests. The tool service has no timeout,
//! follows no redirect and repeats nothing. Hosts are literal, so the operator chooses the names;
//! the client resolves them: see reqwest's `dns_resolver`.
//!
//! # Long jobs
//!
//! An endpoint that answers with a job (`202 Accepted`, an id) is a tool inside a
//! [`PollLayer`](tower_toolcall::poll::PollLayer) with an [`HttpJob`]: the request that asks for
//! the job, the place of the state in its answer, and the states that end it. If the status alone
//! decides, use [`HttpJob::by_status`]; if a header has the URL, [`HttpJob::with_location`].
//!
//! # Cancel safety
//!
//! Dropping the response future drops the client's, which ends the request; the endpoint may have
//! begun.
//!
//! # Details
//!
//! ## Templates
//!
//! Their syntax is Jinja's, by [minijinja](https://docs.rs/minijinja), with its built-in filters,
//! tests and loops; no macros, no `include`. They are compiled when the tool is built, and a
//! mistake names the part: also a filter, test or function that does not exist, a template that
//! fails with any arguments (`{{ 1 / 0 }}`), and, in templates without statements, a body that is
//! never JSON and an invalid URL.
//!
//! - **any argument of the call, nested ones too (`order.id`)**: its value; a missing argument is
//!   an error, except in `default` and `is defined`, or [prints
//!   nothing](HttpTool::with_empty_undefined)
//! - `request_id`: the call's id; without one a UUID, the same in all parts of the request
//! - `upstream_token`: the call's [`UpstreamToken`](tower_toolcall::call::UpstreamToken); only in
//!   headers, which it makes sensitive
//! - `trace_id`, `idempotency_key`: those of the call, if it has them
//! - `uuid()`: another random UUID each time; no secret
//!
//! No argument can replace the last four variables. A value fills its place, and can
//! never add to the request's structure:
//!
//! Where a template may stand, and what its values become:
//!
//! - **scheme, host, port**: nothing: they are literal; else an error when the tool is built
//! - **segment of the path**: text, number, boolean; not empty, without `/`, `\` and control
//!   characters; percent-encoded; else `InvalidInput`, also if a whole segment is `.` or `..`
//! - **one segment of the path: `{{ id | segment }}`**: text, also with `/`; number, boolean; no
//!   `.` or `..` between slashes; percent-encoded: `a%2Fb`; else `InvalidInput`
//! - **segments of the path: `{{ file | path }}`**: text, number, boolean; split at `/`, then
//!   escaped; else `InvalidInput`
//! - **query, fields of a form**: text, number, boolean; percent-encoded; else `InvalidInput`
//! - **fragment**: nothing; else an error when the tool is built
//! - **header's value**: text, number, boolean; visible ASCII, space and tab; as it is: what `;`
//!   and `,` mean there is the template's business; else `InvalidInput`, also if the header would
//!   be empty
//! - **header's name, method**: nothing: they are literal; else an error when the tool is built
//! - **JSON, in a string**: anything but `null`; escaped; arrays and objects as JSON text; else
//!   `InvalidInput`
//! - **JSON, outside of strings**: anything; JSON: a text gets its quotes; else `InvalidInput` if
//!   the body then nests more than 127 deep
//! - **JSON, a key**: anything; escaped; else `InvalidInput` if an object has the key already
//!
//! A number that JSON does not have (`"inf" | float`) can stand nowhere. `tojson` makes JSON of
//! anything. `safe` and `escape` do nothing: places escape, whatever a template says. `urlencode`
//! does nothing in URLs and forms. Values have no methods: `{{ s | upper }}`, not `{{ s.upper()
//! }}`. A block that captures output (`{% set x %}..{% endset %}`) cannot print what it has
//! captured.
//!
//! A template may have 64 KiB, a rendering 20,000 steps (about one for each instruction, item and
//! 64 bytes of text that is made or filtered: a text of some 1 MiB goes through a filter, one of 16
//! MiB only as it is), a URL and a header 16 KiB, a body 16 MiB of values, a form 16 MiB.
//!
//! ## Keys of the operator
//!
//! A key that belongs to the operator is not part of a template: `${API_KEY}` is refused there, and
//! `{{ api_key }}` is an argument of the model's. The client adds it, to requests for the host that
//! it belongs to:
//!
//! ```
//! # #[cfg(feature = "reqwest")] {
//! use bytes::Bytes;
//! use http::{HeaderValue, Method, Request, header::AUTHORIZATION};
//! use tower::ServiceBuilder;
//! use tower_toolcall::AnyError;
//! use tower_toolcall_http::{HttpService, HttpTool, ReqwestClient};
//!
//! # fn main() -> Result<(), AnyError> {
//! # fn var(_: &str) -> Result<String, AnyError> { Ok("k3y".to_owned()) }
//! # /*
//! use std::env::var;
//! # */
//! let mut key = HeaderValue::from_str(&format!("Bearer {}", var("WEATHER_API_KEY")?))?;
//! key.set_sensitive(true);
//! let client = ServiceBuilder::new()
//!     .map_request(move |mut request: Request<Bytes>| {
//!         if request.uri().host() == Some("api.weather.com") {
//!             request.headers_mut().insert(AUTHORIZATION, key.clone());
//!         }
//!         request
//!     })
//!     .service(ReqwestClient::new()?);
//! let url = "https://api.weather.com/now?city={{ city }}";
//! let tool: HttpService<_, Bytes> = HttpTool::new(Method::GET, url)?.client(client);
//! # Ok(()) }
//! # main().unwrap() }
//! ```
//!
//! In a header for secrets (`Authorization`, `X-Api-Key`, `Cookie` and the like) a template may use
//! declared arguments only: set [the schema](HttpTool::with_input_schema) before the header.
//!
//! ## Errors
//!
//! Stamped with the call's names.
//!
//! - Arguments do not fit the [schema](HttpTool::with_input_schema): `InvalidInput`. The tool did
//!   not run.
//! - **an argument is missing, or cannot stand at its place**: `InvalidInput`, as a refusal; names
//!   it, never its value. The tool did not run.
//! - A header needs `upstream_token` and the call has none, or has a token that cannot be in a
//!   header: `TokenExchange`. The tool did not run.
//! - **the template gives no JSON, or no URL, or cannot be rendered with any arguments; reqwest
//!   cannot make the request, or has no TLS**: `Internal`, as a
//!   [refusal](tower_toolcall::ToolError::is_own_refusal). The tool did not run.
//! - **no connection, or a client that is not ready**: `ConnectionFailed`, or what its error is.
//!   The tool did not run.
//! - **the connection is lost, before or within the answer**: `ConnectionFailed`. Whether the tool
//!   ran is unknown.
//! - **3xx: a redirect is not followed, so that no token goes elsewhere**: `Failed`. Whether the
//!   tool ran is unknown.
//! - 403 with a sign of a used-up limit: `Retry-After`, `X-RateLimit-Remaining: 0`, Google's
//!   `rateLimitExceeded`: [`RateLimited`](tower_toolcall::ToolError::from_http). The tool did not
//!   run; unknown if only words say it.
//! - **other 4xx, 5xx**: [the status' kind](tower_toolcall::ErrorKind::from_http_status). Whether
//!   the tool ran follows from the kind; a 503 with `Retry-After` or `retry-after-ms` did not run
//!   it.
//! - A 2xx with more than [the limit](HttpTool::with_max_bytes), by `Content-Length` or while it is
//!   read: `Reported`. The tool ran.
//! - A 2xx with a `Content-Encoding`: nothing is decompressed here, and nothing was asked for:
//!   `Reported`. The tool ran.
//! - A 2xx with [the reason of a failure](HttpTool::with_error): `Reported`, with the answer behind
//!   it. The tool ran.
//! - A 2xx without [the result](HttpTool::with_result): `Reported`, with the answer behind it. The
//!   tool ran.
//!
//! The type of the client's error shows that no connection was made: hyper-util's with
//! `tower-toolcall`'s feature `hyper`, reqwest's with `reqwest`, others as in the table of
//! [`transport`](tower_toolcall::transport). The limit also bounds a client that decompresses by
//! itself (and removes the header), because it counts the decompressed body. When a timeout layer
//! ends a request, the tool may have run. A connect timeout of the client counts as a connection
//! that was not made. Answers to HEAD, and those with 204 or 304, have no body, whatever their
//! headers say.
//!
//! ## Tools as files
//!
//! A [`ToolManifest`] is a tool stored as JSON, with its schema and, if it has jobs, how they are
//! asked for. A folder of them, behind a router, is a list of tools for MCP clients (feature
//! `mcp`; `GatewayHandler` of `tower-toolcall-mcp` shows it):
//!
//! ```no_run
//! # #[cfg(all(feature = "reqwest", feature = "mcp"))] {
//! use std::time::Duration;
//! use bytes::Bytes;
//! use tower::ServiceBuilder;
//! use tower_toolcall::{ConfigError, ServiceBuilderExt};
//! use tower_toolcall_mcp as mcp;
//! use tower_toolcall_http::{ReqwestClient, ToolManifest};
//!
//! # fn main() -> Result<(), ConfigError> {
//! let client = ReqwestClient::new()?;
//! let mut router = mcp::router();
//! for manifest in ToolManifest::read_dir("tools")? {
//!     let tool = ServiceBuilder::new()
//!         .option_layer(manifest.poll_layer()?)
//!         .tool_circuit_breaker() // inside the jobs: for single requests
//!         .tool_timeout(Duration::from_secs(30))
//!         .tool(manifest.tool()?.client::<_, Bytes>(client.clone()));
//!     router = router.described_tool(mcp::definition(manifest.definition()), tool);
//! }
//! let router = router.build()?;
//! println!("{:?}", router.names());
//! # Ok(()) }
//! # let _ = main; }
//! ```
//!
//! A timeout outside of this router ends jobs too: give their tools a longer one there, for example
//! `tools.report.timeout` of the settings. The event `tool.inert` reports such a timeout.
//!
//! Operations of real APIs, with what their files need:
//!
//! - **GitHub, statistics, 202 until they are there**:
//!   `/repos/{{ owner }}/{{ repo }}/stats/contributors` with mode `async_poll`,
//!   `pending_statuses: [202]`, `replay_safe: true`
//! - **GitLab, a file**:
//!   `/api/v4/projects/{{ id | segment }}/repository/files/{{ file | segment }}?ref={{ ref }}` with
//!   `kept_headers: ["X-Gitlab-Size"]`, `result_field_path: "content"`
//! - **Wikipedia, a page**: `/api/rest_v1/page/summary/{{ title | segment }}` with
//!   `result_field_path: "extract"`
//! - **Notion, a query, a POST that reads**: `/v1/databases/{{ database }}/query` with
//!   `replay_safe: true`, `result_field_path: "results"`; `"filter": {{ filter }}` in the body
//! - **Google Drive, a list, 403 for a limit**: `/drive/v3/files?q={{ q }}`; a 403 with
//!   `rateLimitExceeded` is a rate limit
//! - **Jira, a search**: `/rest/api/3/search/jql?jql={{ jql }}&fields={{ fields | join(',') }}`
//!   with `result_field_path: "issues"`
//! - **Slack, a message, 200 with `ok, false`**: `/api/chat.postMessage` with
//!   `error_field_path: "error"`, `replay_safe: false`
//! - **Open-Meteo, a forecast**: `/v1/forecast?latitude={{ latitude }}&longitude={{ longitude }}`
//!   with `result_field_path: "current"`
//!
//! ## What is sent along
//!
//! `Content-Type` for a body; `Idempotency-Key`, the same over all attempts, where a [retry
//! layer](tower_toolcall::retry) may repeat the call and the method changes something;
//! `traceparent` and `tracestate` with the feature `otel`, without baggage. A header of the tool
//! takes precedence over each of them.
//!
//! ## Events
//!
//! `tool.http_request` and `tool.http_response`, DEBUG: method, URL without values in the query,
//! names of headers, status, and the first 500 characters of the body, redacted by the call's
//! rules. Nothing is formatted without a listener. The path is shown: if an API has its key there,
//! let the client add the key.
//!
//! The span `http_request`, DEBUG, is that of a request, each attempt and each poll, by
//! OpenTelemetry's conventions for HTTP clients: kind `client`, `http.request.method`,
//! `url.template` (the path of the template, without a value), `server.address`, `server.port`,
//! `http.response.status_code`, `error.type`. Its target is `tower_toolcall::http`, so that a
//! filter can have it without the events. With the feature `otel` the endpoint's part of the trace
//! is below it.
//!
//! ## Panics
//!
//! Outside a tokio runtime, or in one without the time driver, if an answer with an error status
//! has a body.

#![cfg_attr(docsrs, feature(doc_cfg))]
mod answer;
mod body;
#[cfg(feature = "reqwest")]
mod client;
mod events;
mod execution;
#[cfg(feature = "axum")]
mod executor;
mod job;
mod location;
mod manifest;
#[cfg(feature = "otel")]
pub mod otel;
mod path;
mod service;
#[cfg(feature = "settings")]
mod settings;
mod template;
pub mod token;
mod tool;

use tower_toolcall::{reader::refuse_if, redact::is_hidden};

#[cfg(feature = "reqwest")]
#[cfg_attr(docsrs, doc(cfg(feature = "reqwest")))]
pub use self::client::{ReqwestClient, ReqwestFuture};
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use self::executor::Executor;
pub use self::{
    answer::{HttpAnswer, HttpClassifier},
    execution::{ExecutionError, ExecutionResult, ExecutionStatus, UpstreamStatus},
    job::HttpJob,
    manifest::ToolManifest,
    service::{HttpService, ResponseFuture},
    tool::{HttpTool, MAX_ANSWER},
};

/// Returns a character for texts: a space for a hidden one.
fn plain(c: char) -> char {
    if is_hidden(c) { ' ' } else { c }
}

#[cfg(all(doctest, feature = "reqwest"))]
#[doc = include_str!("../README.md")]
struct Readme;
