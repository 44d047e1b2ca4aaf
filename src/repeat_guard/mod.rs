//! A layer that refuses calls that a model repeats although they keep failing.
//!
//! | at a glance | |
//! |---|---|
//! | does | refuses a call that has failed repeatedly in the same way |
//! | place | inside observers, outside `validate` |
//! | default | 3 failures in a row; refused for a minute |
//! | the caller sees | `InvalidInput`, `TOOL_REPEATED`: the last error in short, and advice |
//! | method | `ServiceBuilderExt::tool_repeat_guard` |
//!
//! A call that has failed three times in a row with the same error is not sent again for a minute:
//! the model reads *This exact call has failed 3 times in a row: no such city: Osloo. Change its
//! arguments or do something else.*
//!
//! # Example
//!
//! ```
//! use serde::Deserialize;
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ErrorKind, ToolCall,
//!     repeat_guard::{RepeatGuardLayer, TOOL_REPEATED},
//! };
//!
//! #[derive(Deserialize)]
//! struct Weather {
//!     city: String,
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), AnyError> {
//! let tool = service_fn(|call: ToolCall| async move {
//!     let Weather { city } = call.arguments_as()?;
//!     match &*city {
//!         "Oslo" => Ok("12 degrees"),
//!         _ => Err(AnyError::from("no such city")),
//!     }
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(RepeatGuardLayer::new())
//!     .service(tool);
//! let weather = |city| {
//!     ToolCall::new("weather")
//!         .with_session_id("s1")
//!         .with_json(json!({ "city": city }))
//! };
//!
//! for _ in 0..3 {
//!     let error = stack
//!         .clone()
//!         .oneshot(weather("Osloo")?)
//!         .await
//!         .unwrap_err();
//!     assert_eq!(error.kind(), ErrorKind::Failed);
//! }
//! let error = stack
//!     .clone()
//!     .oneshot(weather("Osloo")?)
//!     .await
//!     .unwrap_err();
//! assert_eq!(
//!     (error.kind(), error.code()),
//!     (ErrorKind::InvalidInput, TOOL_REPEATED)
//! );
//! assert_eq!(
//!     error.model_message(),
//!     "This exact call has failed 3 times in a row: no such city. \
//!      Change its arguments or do something else."
//! );
//! // Other arguments, and other sessions, are not affected.
//! assert_eq!(
//!     stack.oneshot(weather("Oslo")?).await?,
//!     "12 degrees"
//! );
//! # Ok(()) }
//! ```
//!
//! Other settings:
//!
//! ```
//! use std::time::Duration;
//! use tower_toolcall::{Key, repeat_guard::RepeatGuardLayer};
//!
//! # fn main() -> Result<(), tower_toolcall::ConfigError> {
//! let layer = RepeatGuardLayer::builder()
//!     .with_failures(5)
//!     .with_window(Duration::from_secs(600))
//!     .with_ignored_argument("request_id") // another one in each call
//!     .with_tool("job_status", false) // asked again and again until it is done
//!     .with_keys(Key::by(|call| call.agent_id().unwrap_or(""))) // whatever the session
//!     .build()?;
//! # let _ = layer; Ok(()) }
//! ```
//!
//! `cargo run --example repeat_guard` shows a model that loops, with the layer and without.
//!
//! # Errors
//!
//! [`InvalidInput`](crate::ErrorKind::InvalidInput) with the code [`TOOL_REPEATED`], not started, a
//! refusal of this side: no layer repeats it or counts it against the tool. `retry_after` is the
//! time after which the call is let through, the detail `failures` how often it has failed. The
//! text for the model quotes up to 100 characters of the last error's, redacted. Errors of the
//! inner service pass, stamped with the call's names.
//!
//! # Cancel safety
//!
//! Nothing is lost or leaked when the future is dropped. If the dropped call was the one let
//! through after the window, the next call is let through after another window.
//!
//! # Details
//!
//! What happens to a call:
//!
//! - **It fails**: its tool and arguments are remembered for its caller, as a hash, with a hash of
//!   the error. Only failures that are due to what was called count: those of the kinds
//!   `InvalidInput`, `NotFound`, `Denied`, `Failed` and `Reported`, and answers that the
//!   [classifier](RepeatGuardBuilder::with_classifier) takes for one of these; it is asked about
//!   answers alone. Timeouts, rate limits, lost connections, 5xx and refusals of a layer that is
//!   full or has closed (a breaker, a limit, a deadline) count neither way: the same call may well
//!   succeed later. A refusal because of the call itself does count: wrong arguments (`validate`),
//!   an unknown name (a router), a tool that is denied (`policy`).
//! - **It succeeds**: its failures are forgotten. A success is news if the call's last end or
//!   answer was another one, or is not remembered. Then all other calls of the caller are counted
//!   anew: an edit between two runs of the same tests may have changed what the tests say. A
//!   success without news changes nothing for others, so a loop of several calls (read, edit, read,
//!   edit) is found as well. A call that succeeds as often in a row with the same answer, with
//!   nothing new in between, is the event `tool.repeated` and passes.
//! - **Answers are compared by a hash**: text, JSON, and [known](crate::answer::KnownAnswer) types,
//!   such as those of MCP and HTTP tools. Answers of other types all count as equal. So do answers
//!   with an equal beginning: the first 16 KiB are compared, and the length of a text. Of MCP's
//!   results the content, the structured content and `isError` are compared, `_meta` is not; of
//!   answers over HTTP the status and the body, headers are not. An answer with a clock or a new id
//!   in it is news each time: exempt such a tool by [`with_tool`](RepeatGuardBuilder::with_tool).
//! - **It fails with another error, or with other arguments**: this is counted by itself. Errors
//!   are compared by kind and message; answers that the classifier takes for errors by kind alone,
//!   because their text is not known here. If such answers of a tool make progress, exempt it
//!   ([`with_tool`](RepeatGuardBuilder::with_tool)).
//! - **Its future is dropped, or panics**: this counts neither way.
//!
//! A call passes again after the window ([`with_window`](RepeatGuardBuilder::with_window)): once,
//! and if it fails again it is refused for as long again. So a call that would now succeed is never
//! refused for longer than that, whatever is sent meanwhile: a refusal does not extend it.
//!
//! ## Whose calls
//!
//! Calls are compared with those of the same principal: the call's session id, else its agent id
//! ([`Key::Session`](crate::Key::Session)). A call without both is not watched: the first one is
//! the event `tool.inert`, and [`RepeatGuardLayer::inert`] counts them. Both are set by code
//! ([`ToolCall::with_session_id`](crate::ToolCall::with_session_id)). Where callers choose them,
//! let them be theirs alone, or choose [another key](RepeatGuardBuilder::with_keys): a caller that
//! can use another's id can have that one's calls refused. Conversations that share an agent id
//! count as one conversation. A call for which the function of a [key](crate::Key::by) picks an
//! empty text is not watched. That function has to pick what callers cannot choose.
//!
//! ## Order
//!
//! Inside trace and metrics, which see the refusal; outside `validate`, so that arguments are
//! compared as the model wrote them, and wrong ones that it sends again are refused here. Outside
//! all that repeats calls. If an outer layer repeats a call ([`attempt`](crate::ToolCall::attempt)
//! is more than 1), the guard neither refuses it nor counts it as the caller's, unless it succeeds.
//! A retrier that does not count attempts looks like the caller. Inside an [identity
//! layer](crate::identity), so that a tool has one name.
//!
//! It is always ready: a refusal comes immediately, even while the inner service is not ready, and
//! gives back what was reserved there. A call that had to wait for readiness is judged again when
//! it is about to run.
//!
//! ## Bounds
//!
//! Of each principal the last 8 different calls are remembered, in about 700 bytes and up to 100
//! characters of the last error for each refused call; so cycles of up to 8 calls are found.
//! Arguments are not kept, only a hash with a random seed of the layer, so that callers cannot
//! choose arguments for a hash. Another call has the hash of one of these 8 once in 10¹⁸ times.
//!
//! At most 10,000 principals are kept ([`Keys`](crate::Keys)), those without a recent failure are
//! evicted first, and an evicted principal is counted anew. If all places are taken, calls of new
//! principals are not watched. Calls with arguments that are nested too deeply to be sent
//! ([`MAX_DEPTH`](crate::MAX_DEPTH)) are not watched either.
//!
//! ## Clone
//!
//! All services made from one layer value, or from its clones, share the histories. Readiness is
//! not shared: a clone starts unpolled.
//!
//! ## Cost
//!
//! A call without a principal costs next to nothing. Else its arguments are hashed, and the
//! principal's mutex is taken twice for a moment; the clock is read once, and once more for a call
//! that is remembered. Of an answer up to 16 KiB are hashed. A success allocates nothing, unless
//! its principal is new or its answer has more JSON than is hashed. An error's text is printed, to
//! be compared.

mod guard;
mod history;
mod layer;
mod service;

pub use self::{
    guard::TOOL_REPEATED,
    layer::{RepeatGuardBuilder, RepeatGuardLayer},
    service::{RepeatGuard, ResponseFuture},
};
pub use crate::kit::keyed::KeyedBuilder;
