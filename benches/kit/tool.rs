//! The tool under all layers: it does one thing, and next to nothing.

use std::{
    future::{self, Future},
    hint::black_box,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::{Context, Poll},
};

use tower::Service;
use tower_toolcall::{BoxError, ErrorKind, ToolCall, ToolError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Answers at its first poll.
    Answer,
    /// Is pending once, wakes its task, and answers then, as every real tool does.
    Wait,
    /// Fails for good, with an error of which nothing is known but its text.
    Fail,
    /// The same with an error of ours.
    Deny,
    /// Cannot be reached.
    Disconnect,
    /// Is told that it calls too often.
    Limit,
    Panic,
}

/// What [`Does::Panic`] panics with, so that a hook can keep quiet about it.
pub const PANIC: &str = "the tool panics";

/// How often a tool has run that does not answer.
static FAILURES: AtomicU64 = AtomicU64::new(0);

pub fn failures() -> u64 {
    FAILURES.load(Relaxed)
}

#[derive(Clone, Copy)]
pub struct Tool(pub Does);

pub struct Answer(Does);

impl Future for Answer {
    type Output = Result<u64, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0 {
            Does::Answer => Poll::Ready(Ok(1)),
            Does::Wait => {
                self.0 = Does::Answer;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            does => fails(does),
        }
    }
}

#[cold]
fn fails(does: Does) -> Poll<Result<u64, BoxError>> {
    FAILURES.fetch_add(1, Relaxed);
    match does {
        Does::Fail => Poll::Ready(Err("no such page".into())),
        Does::Deny => Poll::Ready(Err(ToolError::new(ErrorKind::Denied, "401").into())),
        Does::Disconnect => Poll::Ready(Err(
            ToolError::new(ErrorKind::ConnectionFailed, "gone").into()
        )),
        Does::Limit => Poll::Ready(Err(ToolError::new(ErrorKind::RateLimited, "429").into())),
        Does::Panic => std::panic::panic_any(PANIC),
        Does::Answer | Does::Wait => Poll::Pending,
    }
}

impl Service<ToolCall> for Tool {
    type Response = u64;
    type Error = BoxError;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Answer {
        black_box(call);
        Answer(self.0)
    }
}

/// For layers of the crate `layered`'s trait.
impl layered::Service<ToolCall> for Tool {
    type Out = Result<u64, BoxError>;

    fn execute(&self, call: ToolCall) -> impl Future<Output = Self::Out> + Send {
        { *self }.call(call)
    }
}

/// The same for layers that stand in a stack: a type of its own, so that a layer that is measured alone is
/// compiled for that alone, and not shared, which costs calls that are not inlined.
#[derive(Clone, Copy)]
pub struct Deep(pub Tool);

impl Service<ToolCall> for Deep {
    type Response = u64;
    type Error = BoxError;
    type Future = Answer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, call: ToolCall) -> Answer {
        self.0.call(call)
    }
}

impl layered::Service<ToolCall> for Deep {
    type Out = Result<u64, BoxError>;

    fn execute(&self, call: ToolCall) -> impl Future<Output = Self::Out> + Send {
        layered::Service::execute(&self.0, call)
    }
}

/// Never answers. A type of its own for the same reason.
#[derive(Clone, Copy)]
pub struct Stalled;

impl Service<ToolCall> for Stalled {
    type Response = u64;
    type Error = BoxError;
    type Future = future::Pending<Result<u64, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ToolCall) -> Self::Future {
        future::pending()
    }
}
