//! The tool under all layers: it does one thing, and next to nothing.

use std::{
    future::{self, Future},
    hint::black_box,
    io,
    mem::MaybeUninit,
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
    /// The same with an error of which nothing is known but its type.
    Refuse,
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

/// Its futures are of `N` bytes and a few: those of real tools, which hold a request and a
/// connection, are of 1 to 4 KiB.
#[derive(Clone, Copy)]
pub struct Tool<const N: usize = 0>(pub Does);

pub struct Answer<const N: usize = 0> {
    does: Does,
    /// Written by nobody before the first poll, as what an `async fn` holds across its awaits.
    held: MaybeUninit<[u8; N]>,
}

impl<const N: usize> Future for Answer<N> {
    type Output = Result<u64, BoxError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        black_box(&mut self.held);
        match self.does {
            Does::Answer => Poll::Ready(Ok(1)),
            Does::Wait => {
                self.does = Does::Answer;
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
        Does::Refuse => Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionRefused).into())),
        Does::Limit => Poll::Ready(Err(ToolError::new(ErrorKind::RateLimited, "429").into())),
        Does::Panic => std::panic::panic_any(PANIC),
        Does::Answer | Does::Wait => Poll::Pending,
    }
}

impl<const N: usize> Service<ToolCall> for Tool<N> {
    type Response = u64;
    type Error = BoxError;
    type Future = Answer<N>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, call: ToolCall) -> Answer<N> {
        drop(black_box(call));
        Answer {
            does: self.0,
            held: MaybeUninit::uninit(),
        }
    }
}

/// For layers of the crate `layered`'s trait.
impl<const N: usize> layered::Service<ToolCall> for Tool<N> {
    type Out = Result<u64, BoxError>;

    fn execute(&self, call: ToolCall) -> impl Future<Output = Self::Out> + Send {
        { *self }.call(call)
    }
}

/// The same for layers that stand in a stack: a type of its own, so that a layer that is measured
/// alone is compiled for that alone, and not shared, which costs calls that are not inlined.
#[derive(Clone, Copy)]
pub struct Deep<const N: usize = 0>(pub Tool<N>);

impl<const N: usize> Service<ToolCall> for Deep<N> {
    type Response = u64;
    type Error = BoxError;
    type Future = Answer<N>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, call: ToolCall) -> Answer<N> {
        self.0.call(call)
    }
}

impl<const N: usize> layered::Service<ToolCall> for Deep<N> {
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
