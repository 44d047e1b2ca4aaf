//! A layer that answers repeated calls of named tools from memory.
//!
//! | at a glance | |
//! |---|---|
//! | does | keeps answers of named tools for each principal |
//! | place | inside policy, outside retry, rate limit and breaker |
//! | default | no tool is named; 1,000 answers, 64 MiB |
//! | the caller sees | an answer from before |
//! | method | `ServiceBuilderExt::tool_cache` |
//!
//! Agents ask for the same page, file or row repeatedly. This layer keeps the answers of tools that
//! only read, for a configured time.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ToolCall, cache::CacheLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AnyError> {
//! let tool = service_fn(|_: ToolCall| async {
//!     Ok::<_, AnyError>("12 degrees")
//! });
//! let cache =
//!     CacheLayer::new(Duration::from_secs(60), ["weather"])?;
//! let handle = cache.handle();
//! let stack =
//!     ServiceBuilder::new().layer(cache).service(tool);
//!
//! for _ in 0..3 {
//!     let call = ToolCall::new("weather")
//!         .with_session_id("s1")
//!         .with_json(json!({ "city": "Oslo" }))?;
//!     assert_eq!(
//!         stack.clone().oneshot(call).await?,
//!         "12 degrees"
//!     );
//! }
//! assert_eq!(
//!     (handle.counts().hits, handle.counts().misses),
//!     (2, 1)
//! );
//! handle.forget("weather"); // it has changed
//! assert!(handle.is_empty());
//! # Ok(()) }
//! ```
//!
//! # Errors
//!
//! None of its own. Errors of the inner service pass, stamped with the call's names; a shared error
//! is stamped with those of the call that gets it. If its deadline or token ends a call's wait for
//! another call, the error is `DeadlineExceeded` or `Cancelled`, not started. Each call that gets
//! the answer or the error of another one is an event: `tool.reused`.
//!
//! # Cancel safety
//!
//! Nothing is lost or leaked when the future is dropped: the next call that waits for its answer is
//! sent instead.
//!
//! # Details
//!
//! What happens to a call of a tool that is named:
//!
//! - **There is an answer** to the same tool and arguments, for the same principal, that is not
//!   stale: the call gets it, and nothing is sent.
//! - **The same call runs**: this one waits for it, within its own deadline and its caller's token,
//!   and gets its answer, or its failure. If that one is dropped, or ends by its own deadline,
//!   timeout or token, the next one is sent. Where the operator has said who shares answers, all
//!   calls that wait are then sent together; also after a failure that does not
//!   [count](crate::ErrorKind::count) against the tool, as that may be about a caller's own rights,
//!   or quota.
//! - **Neither**: it is sent, and its answer is kept if it is a success.
//!
//! No failure is kept, and no answer that is an error by the
//! [classifier](CacheBuilder::with_classifier) or as reported by the tool service: the calls that
//! wait for it share it, and later calls are sent. An answer that asks for input (MCP), or that is
//! too large, is for its own call alone.
//!
//! ## Which tools
//!
//! Those that are named, by the flat name (`docs__search`) if their calls have a server. By naming
//! a tool the operator declares that it only reads, and that an answer may be as old as its `ttl`.
//! Answers of other tools are not kept, even if their calls are marked safe. A named tool's call
//! passes the cache if it is marked [unsafe](crate::ReplaySafety::Unsafe), if it [waits for a
//! job](crate::ToolCall::with_job), if it answers a question of its tool (MCP's `inputResponses`
//! or `requestState`), or if its arguments are nested too deeply to be sent.
//!
//! `ttlMs` of MCP's SEP-2549 is about lists and resources, and is not read.
//!
//! ## Whose answers
//!
//! Answers are those of a principal: the subject (the token of `ToolCall::with_subject_token`),
//! else the agent id; and in either case of the session, if the call has one, because an agent may
//! work for many people, and a session may have a state. No principal gets another one's answer.
//! Without any of the three nothing is kept, unless the layer is [`shared`](CacheBuilder::shared):
//! for tools that answer everyone alike. A [function](CacheBuilder::with_principal) may name the
//! principal of a call instead. It must include all else that a tool looks at, such as values in
//! the call's extensions.
//!
//! The first call of a named tool that has no principal, or is marked unsafe, is the event
//! `tool.inert`; [`CacheHandle::inert`] counts them.
//!
//! Principals and tools are compared in full, arguments by a keyed hash of 128 bits that is the
//! same whatever the order of their members.
//!
//! ## Order
//!
//! Inside policy, so that only allowed calls get an answer. Outside all that waits, counts or
//! repeats (quota, deadline, retry, breaker), because a kept answer needs none of it. Inside trace
//! and metrics, which see that nothing was [sent](crate::Observation::is_reused). Of this layer and
//! [`once`](crate::once) either may be the outer one.
//!
//! It is always ready: a call that has its answer does not need the inner service, and a waiting
//! call holds nothing there.
//!
//! ## Bounds
//!
//! At most 1,000 answers ([`with_max_keys`](CacheBuilder::with_max_keys)), and of one principal at
//! most an eighth of that, so that no principal can turn out the answers of all others. Beyond that
//! the eighth that is stale first is forgotten, of all or of the principal. If all places are those
//! of running calls, a call is sent and nothing is kept. Of answers above 64 KiB as JSON
//! ([`with_max_answer`](CacheBuilder::with_max_answer)) nothing is kept, nor if server and tool
//! have more than 512 bytes.
//!
//! The answers have at most 64 MiB together ([`with_max_bytes`](CacheBuilder::with_max_bytes)). One
//! principal has an eighth, 8 MiB, and all together that were [not
//! verified](crate::ToolCall::with_unverified_ids) have half. JSON values and results of MCP are
//! kept as JSON text, because its length is its memory. They are parsed when they are given: 100
//! answers of 60 KB take 6 MB, not the 400 MB that they can take parsed. A [known
//! type](crate::answer::KnownAnswer) of another crate says how it is kept. Answers of other types
//! are kept as they are. The size of the [usual types](crate::Answer::of_usual) is known, that of
//! others is set by [`with_size`](CacheBuilder::with_size); else an answer counts 64 KiB.
//!
//! ## Clone
//!
//! All services made from one layer value, or from its clones, share the answers. Readiness is not
//! shared: a clone starts unpolled.
//!
//! ## Cost
//!
//! A call of a tool that is not named, or without a principal, allocates nothing. Else its
//! arguments are hashed twice, its key is put together, and one mutex is taken for a moment at its
//! beginning and its end; the answer is cloned, or written as JSON and parsed.

mod handle;
mod layer;
mod service;

pub use self::{
    handle::{CacheCounts, CacheHandle},
    layer::{CacheBuilder, CacheLayer, CacheRules},
    service::{Cache, ResponseFuture},
};
pub use crate::kit::store::StoreBuilder;
