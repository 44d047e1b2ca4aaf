//! The parts that layers share: the end of a wait, state by key, values by key, shares, time.
//!
//! The terms that a reader of one layer needs:
//!
//! - `Prepared`, `Readiness`: an inner service, and whether it was ready when last polled. A call
//!   runs on the instance that was polled.
//! - `WaitLimit`: bounds the waits of a call by its deadline and its caller's cancellation, and
//!   marks it as held meanwhile (`call::Hold`).
//! - `flow`: `Watched`, `Sent`, `Held`: the service of a layer that only observes the ends of
//!   calls, its future, and a ticket for state that a layer holds for a call; the rest of
//!   `flow` is public.
//! - `inner::poll`: polls an inner future and drops it with its answer.
//! - `inner::call_in_place`: calls the inner service and builds the future around the inner
//!   future, which is made in its place.
//! - `InFlight`, `Beginning`: reports exactly once how a call ended: with a result, a panic, or
//!   dropped.
//! - `Registry`, `Entry`, `Evict`: the bounded map of keys, its entries, and which may be evicted.
//!   A key is *known* if a call with it has succeeded, or if it was declared.
//! - `Timer`: ready at a moment; costs nothing before its first poll.
//! - `Caller`: the caller's cancellation token, watched.
//! - `PerTool`: settings by a tool's name.
//! - `Audience`: the listeners that a breaker or another long-lived value has seen.
//! - `Flights`, `Flight`, `Reuse`: values by key, each made by one caller at a time; a call at its
//!   key; and what a layer keeps of its end.
//! - `Attempts`, `Resend`, `Template`: the attempts at a call; a call that may be sent again; the
//!   service that makes them.
//! - `lane`: `here`, `Spread`: per-thread shards; references without contention between
//!   threads.

pub(crate) mod attempts;
pub mod backoff;
pub(crate) mod cold;
pub(crate) mod converted;
pub(crate) mod drain;
pub(crate) mod fingerprint;
pub(crate) mod flights;
pub(crate) mod glob;
pub(crate) mod inert;
pub(crate) mod inner;
pub(crate) mod keyed;
pub(crate) mod lagged;
pub(crate) mod lane;
pub(crate) mod limit;
pub(crate) mod per_tool;
pub(crate) mod principal;
pub(crate) mod registry;
pub(crate) mod reuse;
pub(crate) mod share;
pub(crate) mod store;
pub(crate) mod timer;
