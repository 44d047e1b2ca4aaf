//! A layer that runs a repeated call once: no second payment, no second mail.
//!
//! | at a glance | |
//! |---|---|
//! | does | answers a repeated call from the first one |
//! | place | inside `validate` and policy, outside all layers that wait or repeat |
//! | default | equal arguments for 10 minutes, equal keys for 24 hours |
//! | the caller sees | the first answer, or a refusal if the outcome is unknown |
//! | method | `ServiceBuilderExt::tool_once` |
//!
//! After a timeout an agent repeats its call, under a new call id, and cannot know whether the
//! first call has run. Inside this layer it gets the first call's answer.
//!
//! # Example
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU32, Ordering::Relaxed}};
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     ErrorKind, ToolCall, ToolError,
//!     once::{OnceLayer, TOOL_KEY_REUSED},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ToolError> {
//! let charged = Arc::new(AtomicU32::new(0));
//! let count = charged.clone();
//! let pay = service_fn(move |_: ToolCall| {
//!     let receipt = count.fetch_add(1, Relaxed) + 1;
//!     async move { Ok::<_, ToolError>(receipt) }
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(OnceLayer::new())
//!     .service(pay);
//! let call = |id, euros| ToolCall::new("pay")
//!     .with_session_id("chat 17")
//!     .with_id(id)
//!     .with_json(json!({ "euros": euros }));
//!
//! // The model asks again, and for something else.
//! assert_eq!(stack.clone().oneshot(call("c1", 20)?).await?, 1);
//! assert_eq!(stack.clone().oneshot(call("c2", 20)?).await?, 1);
//! assert_eq!(stack.clone().oneshot(call("c3", 30)?).await?, 2);
//!
//! // If the program knows what is paid, it gives a key.
//! let order = |euros| {
//!     let call = call("c4", euros)?;
//!     Ok::<_, ToolError>(call.with_once_key("order 17"))
//! };
//! assert_eq!(stack.clone().oneshot(order(5)?).await?, 3);
//! let error = stack.oneshot(order(6)?).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::InvalidInput);
//! assert_eq!(error.code(), TOOL_KEY_REUSED);
//! assert_eq!(charged.load(Relaxed), 3);
//! # Ok(()) }
//! ```
//!
//! `cargo run --example once` shows an agent that pays twice without the layer.
//!
//! # Errors
//!
//! All of these are refusals of this side: no layer repeats them or counts them against the tool.
//!
//! - `InvalidInput` with the code [`TOOL_KEY_REUSED`], not started: the key is in use for another
//!   tool or other arguments.
//! - `Failed` with the code [`TOOL_OUTCOME_UNKNOWN`], execution unknown: the first call may have
//!   run. The detail `first` is its code. The error has its [job](crate::ToolError::job).
//! - `Failed` with the code [`TOOL_ALREADY_DONE`], completed: the first call has run, and its
//!   answer was too large or was evicted.
//! - `Overloaded`, not started: all places for keys are taken.
//! - `InvalidInput`, not started: the key has more than 1 KiB, the principal more than 20 KiB, or
//!   server and tool more than 512 bytes.
//! - `DeadlineExceeded` or `Cancelled`, execution unknown: the deadline or the token ended the wait
//!   for the first call.
//!
//! Errors of the inner service pass, stamped with the call's names; an error that is given again is
//! stamped with those of the call that gets it.
//!
//! # Cancel safety
//!
//! A call that is dropped while a layer of this crate holds it back (a limit, a cooldown, a quota,
//! an approval, a service that is not ready, a wait after a 429) was not sent: its key is free. A
//! call that is dropped, or panics, later may have run. So may a call that was cloned on its way,
//! because the clone may have been sent. A tool service that passes its own call on to another
//! stack therefore sends a clone.
//!
//! # Details
//!
//! An answer of MCP that asks for input is not kept: the call is made again with the input. Each
//! call that gets the end of another one is an event: `tool.reused`.
//!
//! **Declare tools that only read [safe](crate::ReplaySafety::Safe)**: a status that is asked for
//! again with equal arguments is else ten minutes old.
//!
//! ```
//! use tower_toolcall::{ReplaySafety, ToolCall};
//!
//! let call = ToolCall::new("order_status");
//! let call = match call.tool() {
//!     "order_status" => call.with_replay_safety(ReplaySafety::Safe),
//!     _ => call,
//! };
//! # let _ = call;
//! ```
//!
//! The layer stands outside of retry and does not see what a retry policy declares:
//! [`RetryPolicy::with_replay_safety`](crate::retry::RetryPolicy::with_replay_safety) and
//! `assume_replay_safe` do not count here.
//!
//! In a loop over a model's turns the same stands in `Turn::map_calls` of `tower-toolcall-turn`; in
//! a file of settings it is `replay_safe = true` under `[tools.order_status]`; an identity layer
//! takes it from the annotations of a trusted server.
//!
//! The line that [`trace`](crate::trace) writes for a call that was answered from memory has
//! `reused=true`. The event `tool.reused`, at DEBUG, has the layer.
//!
//! A call repeats another one if principal, server, tool and arguments are equal, and at most ten
//! minutes have passed since the other one ended
//! ([`with_repeat_within`](OnceBuilder::with_repeat_within)). It also does if its caller gives both
//! the same [key](crate::ToolCall::with_once_key). The end of the first call decides about it:
//!
//! - **The first call still runs.** The second one waits for it, within its own deadline and its
//!   caller's token, and gets its answer.
//! - **It has an answer**: a success, or an error in the tool's own words (MCP's `isError`). The
//!   second one gets the same answer.
//! - **It has failed, and the tool says so**: with an error of the tool's own
//!   ([`Execution::Completed`](crate::Execution::Completed), or of the kinds `Failed`, `Reported`,
//!   `InvalidInput`, `NotFound`, `Denied`). The second one gets the same error. Without a key, its
//!   text for the model says that the call was not made again.
//! - **It has not started**: it was refused on this side, or the tool service reports that, such
//!   as `ToolError::new(ErrorKind::NotFound, ..)` or the status 404 of an `HttpTool`. The second
//!   one runs.
//! - **It may have run**: it timed out, was dropped while it ran, panicked, lost its connection, or
//!   got a 5xx. The second one is refused with the code [`TOOL_OUTCOME_UNKNOWN`], unless its tool
//!   is [safe](crate::ReplaySafety::Safe) to run twice.
//! - **It has the same key, and another tool or other arguments.** The second one is refused with
//!   the code [`TOOL_KEY_REUSED`].
//!
//! An error that was only [inferred](crate::Evidence::Inferred), an `io::Error` that is `NotFound`
//! for example, does not show that nothing was done: the tool may have met it after its work. A
//! tool says so by a [`ToolError`](crate::ToolError) of its own.
//!
//! These are the rules of Stripe's API (v1) and of the IETF's draft for HTTP (*The Idempotency-Key
//! HTTP Header Field*, `draft-ietf-httpapi-idempotency-key-header`): the answer of the first
//! request is repeated, errors included, and a key that comes with another request is an error. Two
//! rules differ. Stripe repeats a 5xx, which does not show an agent whether anything has happened.
//! The draft answers a request with 409 while the first one still runs; here it waits.
//!
//! ## Keys
//!
//! A caller's key takes precedence over equal arguments. Use it when the program knows the effect:
//! the number of an order, for example. Two equal calls that are both meant, in one turn too, need
//! two keys:
//!
//! ```
//! use tower_toolcall::ToolCall;
//!
//! let stamp = |n: u32| ToolCall::new("buy_stamp").with_once_key(format!("stamp {n} of order 17"));
//! # let _ = stamp(1);
//! ```
//!
//! The id that a provider gives a call is not a key: most providers give a repeated call a new one,
//! some give all calls the same, some count from 0 in each turn.
//!
//! These calls pass as if the layer were not there:
//!
//! - calls without a key that are known to be [safe](crate::ReplaySafety::Safe), because a tool
//!   that only reads may have another answer by now;
//! - calls that [go on waiting for a job](crate::ToolCall::with_job), because they start nothing;
//! - calls with arguments that are nested too deeply to be sent.
//!
//! Calls are compared with those of their principal: the subject (the token of
//! `ToolCall::with_subject_token`), else the agent id, else the session id. A
//! `Turn` of `tower-toolcall-turn` sets them: `with_session_id`, `with_agent_id`. **Calls without a
//! principal are compared with each other**. The first of them is the event `tool.inert`, at WARN,
//! and [`OnceLayer::inert`] counts them. In a program of a single user that is right: say so with
//! [`shared`](OnceBuilder::shared).
//!
//! **A renewed token of a subject is another subject: a call that is repeated with it runs again.**
//! A token is not read, because it was not verified here, and the ids beside it are claims of its
//! bearer. If tokens are renewed between two attempts, name the principal by
//! [`with_principal`](OnceBuilder::with_principal): for example by an
//! [extension](crate::ToolCall::extensions) with the user of a token that you have verified.
//!
//! Principals, keys and tools are compared in full, arguments by a keyed hash of 128 bits that does
//! not depend on the order of their members. A caller who could make two arguments of one hash
//! would only deceive themselves.
//!
//! ## How long
//!
//! From the end of the first call on: 24 hours for calls with a key
//! ([`with_ttl`](OnceBuilder::with_ttl)), and no key is forgotten before; ten minutes for calls
//! without ([`with_repeat_within`](OnceBuilder::with_repeat_within)). **It is kept in memory
//! only**: a restart forgets all calls, those that run included, and another process knows none of
//! them. What must not happen twice across restarts needs a tool that knows keys itself: see
//! [`ToolCall::idempotency_key`](crate::ToolCall::idempotency_key).
//!
//! ## Order
//!
//! Outside all that repeats or holds back a call (quota, deadline, poll, retry, rate limit): its
//! attempts are one run. Inside `validate`, so that arguments are compared as they are sent; inside
//! policy, so that a call that is not allowed gets no answer; inside trace and metrics, which see
//! that nothing was [sent](crate::Observation::is_reused). If an outer layer sends a call again, it
//! is the same call: it gets the same answer, or runs if it has not started.
//!
//! It is always ready: a call that has its answer does not need the inner service, and a waiting
//! call holds nothing there.
//!
//! ## Bounds
//!
//! At most 10,000 keys ([`with_max_keys`](OnceBuilder::with_max_keys)), those of running calls
//! included, and of one principal at most an eighth of that, so that no principal can use up the
//! store for all others. Beyond that calls with new keys are refused, until keys are free: within a
//! second of that. As many calls without a key are kept beside them. Beyond that the oldest are
//! forgotten, of the principal or of all: no call is refused for want of room, and a call that was
//! forgotten runs again. Whoever can be as many principals as he likes, by tokens, agent ids or
//! sessions that he invents, can use up the store: check callers before, or name a principal that
//! they cannot choose.
//!
//! Answers of more than 64 KiB as JSON ([`with_max_answer`](OnceBuilder::with_max_answer)) are not
//! kept: that the call has run is. All answers and errors of calls with keys have at most 64 MiB
//! ([`with_max_bytes`](OnceBuilder::with_max_bytes)), and as many those of calls without. One
//! principal has an eighth, 8 MiB, and all together that were [not
//! verified](crate::ToolCall::with_unverified_ids) have half. Beyond that the oldest answers go,
//! and it is kept that their calls have run. A key takes at most 1.5 KiB beside its answer, and a
//! principal its text once.
//!
//! JSON values and results of MCP are kept as JSON text, because its length is its memory. They are
//! parsed when they are given: 100 answers of 60 KB take 6 MB, not the 400 MB that they can take
//! parsed. A [known type](crate::answer::KnownAnswer) of another crate says how it is kept. Answers
//! of other types are kept as they are. The size of the [usual types](crate::Answer::of_usual) is
//! known, that of others is set by [`with_size`](OnceBuilder::with_size); else an answer counts 64
//! KiB. The [source](std::error::Error::source) of an error is not kept: a caller who gets the
//! error again has its text.
//!
//! ## Clone
//!
//! All services made from one layer value, or from its clones, share the keys, also those with
//! answers of different types. Readiness is not shared: a clone starts unpolled.
//!
//! ## Cost
//!
//! A call that passes allocates nothing. Else its arguments are hashed twice, its key is put
//! together, and one mutex is taken for a moment at its beginning and its end; its answer is
//! cloned, or written as JSON and parsed. One that waits for another allocates its place in the
//! queue.

mod key;
mod layer;
mod service;

pub use self::{
    layer::{OnceBuilder, OnceLayer, OnceRules},
    service::{Once, ResponseFuture, TOOL_ALREADY_DONE, TOOL_KEY_REUSED, TOOL_OUTCOME_UNKNOWN},
};
pub use crate::kit::store::StoreBuilder;
