//! Functions with typed arguments as tools.

use std::{
    future::Future,
    marker::PhantomData,
    task::{Context, Poll},
};

use serde::de::DeserializeOwned;
use tower_service::Service;

use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    flow::Sent,
};

/// Makes a tool of a function of typed arguments.
///
/// The arguments are those of [`ToolCall::arguments_as`]: if they do not fit, the call fails with
/// [`InvalidInput`](crate::ErrorKind::InvalidInput), and the function does not run.
///
/// ```
/// use serde::Deserialize;
/// use serde_json::json;
/// use tower::ServiceExt as _;
/// use tower_toolcall::{BoxError, ErrorKind, ToolCall, ToolError, router::tool_fn};
///
/// #[derive(Deserialize)]
/// struct Weather {
///     city: String,
///     days: u8,
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// let forecast = tool_fn(|args: Weather| async move {
///     if args.days > 14 {
///         let why = "`days` must be 14 at most";
///         return Err(ToolError::new(ErrorKind::InvalidInput, why));
///     }
///     Ok(format!("{} days of rain in {}", args.days, args.city))
/// });
///
/// for (days, why) in [
///     (json!("three"), "`days`: expected u8, not a string"),
///     (json!(99), "`days` must be 14 at most"),
/// ] {
///     let arguments = json!({ "city": "Oslo", "days": days });
///     let call = ToolCall::new("forecast").with_json(arguments)?;
///     let error = forecast.clone().oneshot(call).await.unwrap_err();
///     assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidInput, why));
/// }
/// # Ok(()) }
/// ```
pub fn tool_fn<A, F, Fut, R, E>(f: F) -> ToolFn<F, (A,)>
where
    A: DeserializeOwned,
    F: Fn(A) -> Fut,
    Fut: Future<Output = Result<R, E>>,
{
    ToolFn {
        f,
        arguments: PhantomData,
    }
}

/// Makes a tool of a function that also takes the call: for its id, its deadline, its
/// [progress](ToolCall::progress).
///
/// ```
/// use tower_toolcall::{AnyError, ToolCall, router::tool_fn_with_call};
///
/// let whoami = tool_fn_with_call(|call: ToolCall, (): ()| async move {
///     Ok::<_, AnyError>(call.agent_id().unwrap_or("nobody").to_owned())
/// });
/// ```
pub fn tool_fn_with_call<A, F, Fut, R, E>(f: F) -> ToolFnWithCall<F, A>
where
    A: DeserializeOwned,
    F: Fn(ToolCall, A) -> Fut,
    Fut: Future<Output = Result<R, E>>,
{
    ToolFn {
        f,
        arguments: PhantomData,
    }
}

/// The service that [`tool_fn`] makes, and [`tool_fn_with_call`]. Always ready.
pub struct ToolFn<F, A> {
    f: F,
    arguments: PhantomData<fn() -> A>,
}

/// The service that [`tool_fn_with_call`] makes.
pub type ToolFnWithCall<F, A> = ToolFn<F, (ToolCall, A)>;

/// The parts of a call that a function takes.
trait Arguments<F> {
    type Own: DeserializeOwned;
    type Future;

    fn run(f: &F, call: ToolCall, arguments: Self::Own) -> Self::Future;
}

impl<F: Fn(A) -> Fut, A: DeserializeOwned, Fut> Arguments<F> for (A,) {
    type Own = A;
    type Future = Fut;

    fn run(f: &F, call: ToolCall, arguments: A) -> Fut {
        drop(call);
        f(arguments)
    }
}

impl<F: Fn(ToolCall, A) -> Fut, A: DeserializeOwned, Fut> Arguments<F> for (ToolCall, A) {
    type Own = A;
    type Future = Fut;

    fn run(f: &F, call: ToolCall, arguments: A) -> Fut {
        f(call, arguments)
    }
}

impl<F, A, Fut, R, E> Service<ToolCall> for ToolFn<F, A>
where
    A: Arguments<F, Future = Fut>,
    Fut: Future<Output = Result<R, E>>,
    E: Into<ToolError>,
{
    type Response = R;
    type Error = ToolError;
    type Future = ToolFnFuture<Fut>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let info = call.info();
        match call.arguments_as() {
            Ok(arguments) => Sent::new(A::run(&self.f, call, arguments), info),
            Err(error) => Sent::refused(error, call),
        }
    }
}

impl<F: Clone, A> Clone for ToolFn<F, A> {
    fn clone(&self) -> Self {
        let (f, arguments) = (self.f.clone(), PhantomData);
        Self { f, arguments }
    }
}

crate::text::debug_fields! { {F, A} |_| ToolFn<F, A> { .. } }

/// Response future of [`ToolFn`] and [`ToolFnWithCall`].
pub type ToolFnFuture<F> = Sent<F, CallInfo>;
