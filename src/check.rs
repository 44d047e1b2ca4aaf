//! A layer that looks at an answer before it is handed on.
//!
//! | at a glance | |
//! |---|---|
//! | does | refuses answers that do not pass a check |
//! | place | inside observers and `fit`, outside all layers that repeat calls |
//! | default | the check is yours; `tool_max_bytes` limits the size |
//! | the caller sees | [`Reported`](crate::ErrorKind::Reported), never retried |
//! | method | `ServiceBuilderExt::tool_check` |
//!
//! A success that does not pass the [`Check`] becomes [`Reported`](crate::ErrorKind::Reported): the
//! tool ran, and its answer cannot be used. That is never retried and says nothing to a breaker.
//! Errors pass, and a call that is dropped is not checked.
//!
//! # Order
//!
//! Inside observers (trace, metrics, result), so that they see the caller's answer; outside all
//! layers that repeat calls.
//!
//! # Example
//!
//! An answer may have 64 KiB as JSON and no more:
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ErrorKind, ToolCall, check::CheckLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let tool = service_fn(|_call: ToolCall| async {
//!     Ok::<_, AnyError>("x".repeat(1 << 20))
//! });
//! let tools = ServiceBuilder::new()
//!     .layer(CheckLayer::max_bytes(64 << 10))
//!     .service(tool);
//!
//! let error =
//!     tools.oneshot(ToolCall::new("dump")).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Reported);
//! assert_eq!(
//!     error.message(),
//!     "the answer has more than 65536 bytes"
//! );
//! # }
//! ```
//!
//! An own function; its error's text is the reason:
//!
//! ```
//! use serde_json::Value;
//! use tower_toolcall::{AnyError, check::{CheckLayer, check_fn}};
//!
//! let layer = CheckLayer::new(check_fn(|_call, answer: &Value| match answer["rows"].as_array() {
//!     Some(rows) if !rows.is_empty() => Ok(()),
//!     _ => Err(AnyError::from("no rows")),
//! }));
//! ```
//!
//! # Errors
//!
//! `Reported`, and those of the inner service, stamped with the call's names.
//!
//! # Clone
//!
//! Clones share nothing.

use std::{any::type_name, fmt};

use serde::Serialize;
use tokio::time::Instant;
use tower_layer::Layer;

use crate::{
    answer::json_bytes,
    call::{CallInfo, ToolCall},
    error::{AnyError, ToolError},
    event::emit,
    flow::{Ends, Gate, Held, Readiness, Sent, Watched},
    redact::redact_text,
    text::Bounded,
};

/// How much of a reason is printed, in bytes, before it is redacted and cut.
const MAX_REASON: usize = 16 << 10;

/// How much of a reason is printed in an event, in bytes.
const MAX_WARNING: usize = 1 << 10;

/// Says whether an answer may be handed on.
pub trait Check<Res> {
    /// Looks at an answer.
    ///
    /// # Errors
    ///
    /// Why it may not be handed on.
    fn check(&self, call: &CallInfo, answer: &Res) -> Result<(), AnyError>;
}

impl<Res, F, E> Check<Res> for F
where
    F: Fn(&CallInfo, &Res) -> Result<(), E>,
    E: Into<AnyError>,
{
    fn check(&self, call: &CallInfo, answer: &Res) -> Result<(), AnyError> {
        self(call, answer).map_err(E::into)
    }
}

/// How many bytes an answer may have, as compact JSON. One that is nested deeper than JSON parsers
/// go does not pass, or cannot be written as JSON. See [`CheckLayer::max_bytes`].
#[derive(Clone, Copy, Debug)]
pub struct MaxBytes(u64);

impl MaxBytes {
    /// Answers may have `max` bytes.
    pub fn new(max: u64) -> Self {
        Self(max)
    }
}

impl<Res: Serialize> Check<Res> for MaxBytes {
    fn check(&self, call: &CallInfo, answer: &Res) -> Result<(), AnyError> {
        match json_bytes(answer, self.0) {
            // Observers see the size of an answer that passes.
            Ok(bytes) => {
                call.record(|r| r.set_output_bytes(bytes));
                Ok(())
            }
            Err(error) if error.is_io() => {
                Err(format!("the answer has more than {} bytes", self.0).into())
            }
            Err(error) => Err(format!("the answer cannot be written as JSON: {error}").into()),
        }
    }
}

/// Emits `tool.invalid_output` at WARN with the reason, of which 1 KiB is kept, for a [`Check`]
/// that lets an answer pass with a warning. The reason is [redacted](crate::redact).
pub fn warn_of_invalid_output(call: &CallInfo, why: &dyn fmt::Display) {
    let text = Bounded::print(MAX_WARNING, why);
    let text = redact_text(&text);
    emit!(WARN INVALID_OUTPUT, call, code: None, error: &*text);
}

/// Infers the lifetimes and the error type of a closure, for [`CheckLayer::new`].
///
/// A function with another error type, for example `BoxError`, goes to [`CheckLayer::new`]
/// directly.
pub fn check_fn<Res, F>(f: F) -> F
where
    F: Fn(&CallInfo, &Res) -> Result<(), AnyError>,
{
    f
}

/// Layer that checks answers. See the [module docs](self) for an example.
#[derive(Clone, Copy)]
#[must_use]
pub struct CheckLayer<K> {
    check: K,
}

impl<K> CheckLayer<K> {
    /// Makes a layer with an own [`Check`]: a type that is one, or a closure by way of
    /// [`check_fn`].
    pub fn new(check: K) -> Self {
        Self { check }
    }
}

impl CheckLayer<MaxBytes> {
    /// Makes a layer that refuses answers of more than `max` bytes, as compact JSON.
    pub fn max_bytes(max: u64) -> Self {
        Self {
            check: MaxBytes::new(max),
        }
    }
}

impl<S, K: Clone> Layer<S> for CheckLayer<K> {
    type Service = CheckService<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        CheckService::new(inner, self.clone())
    }
}

crate::text::debug_fields! { {K} |_| CheckLayer<K> { check: format_args!("{}", type_name::<K>()) } }

/// Checks answers. See the [module docs](self) for an example.
pub type CheckService<S, K> = Watched<S, CheckLayer<K>>;

/// Response future for [`CheckService`].
pub type ResponseFuture<F, K> = Sent<F, Held<CheckLayer<K>>>;

impl<Res, K: Check<Res> + Clone> Gate<Res> for CheckLayer<K> {
    type Ticket = Held<Self>;

    #[inline]
    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Held<Self>, ToolError> {
        let (own, info) = (self.clone(), call.info());
        Ok(Held { info, own })
    }
}

impl<Res, K: Check<Res>> Ends<Res> for Held<CheckLayer<K>> {
    type Class = ();

    #[inline]
    fn ended(&mut self, result: &mut Result<Res, ToolError>, (): (), _: Option<Instant>) {
        if let Ok(answer) = result
            && let Err(why) = self.own.check.check(&self.info, answer)
        {
            let why = why.into_inner();
            let reason = Bounded::print(MAX_REASON, &why);
            *result = Err(ToolError::unusable(reason).with_source(why));
        }
    }
}
