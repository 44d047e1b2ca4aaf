//! The loop that is measured.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    task::{Context, Poll, Wake, Waker},
    thread,
};

use tokio::runtime::Runtime;
use tower::Service;
use tower_toolcall::{BoxError, ToolCall};

use super::feed::Feed;

/// A service with its type erased outside of the loop, so that nothing is erased within.
pub trait Subject: Send {
    /// Sends `calls` calls, one after the other, from the `from`-th on; how many had an answer.
    fn run(&mut self, feed: &Feed, from: usize, calls: usize) -> u64;

    /// Bytes of the service and of its future.
    fn sizes(&self) -> (usize, usize);

    /// A clone for another thread; none if the service cannot be shared.
    fn fork(&self) -> Option<Box<dyn Subject>>;
}

/// A service that can be shared.
pub fn shared<S>(svc: S) -> Box<dyn Subject>
where
    S: Service<ToolCall, Response = u64> + Clone + Send + 'static,
{
    Box::new(Driven {
        svc,
        fork: Some(S::clone),
    })
}

/// A service that is not `Clone`.
pub fn unshared<S>(svc: S) -> Box<dyn Subject>
where
    S: Service<ToolCall, Response = u64> + Send + 'static,
{
    Box::new(Driven { svc, fork: None })
}

/// A service of the crate `layered`'s trait, called through that: nothing is boxed to make it one
/// of tower's.
pub fn executed<S>(svc: S) -> Box<dyn Subject>
where
    S: layered::Service<ToolCall, Out = Result<u64, BoxError>> + Clone + 'static,
{
    Box::new(Executed(svc))
}

/// A service whose calls end by a timer. They run on a runtime of their own whose clock jumps to
/// the next timer: from then on all clocks of the process are slower.
pub fn expiring<S>(svc: S) -> Box<dyn Subject>
where
    S: Service<ToolCall, Response = u64> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    Box::new(Expiring {
        svc,
        runtime: runtime.expect("a runtime"),
    })
}

struct Driven<S> {
    svc: S,
    fork: Option<fn(&S) -> S>,
}

impl<S> Subject for Driven<S>
where
    S: Service<ToolCall, Response = u64> + Send + 'static,
{
    fn run(&mut self, feed: &Feed, from: usize, calls: usize) -> u64 {
        counted_loop(&mut self.svc, feed, from, calls)
    }

    fn sizes(&self) -> (usize, usize) {
        (size_of::<S>(), size_of::<S::Future>())
    }

    fn fork(&self) -> Option<Box<dyn Subject>> {
        let fork = self.fork?;
        Some(Box::new(Self {
            svc: fork(&self.svc),
            fork: Some(fork),
        }))
    }
}

struct Executed<S>(S);

impl<S> Subject for Executed<S>
where
    S: layered::Service<ToolCall, Out = Result<u64, BoxError>> + Clone + 'static,
{
    fn run(&mut self, feed: &Feed, from: usize, calls: usize) -> u64 {
        counted_loop_executed(&self.0, feed, from, calls)
    }

    fn sizes(&self) -> (usize, usize) {
        // Made, and dropped: its type has no name.
        let future = self.0.execute(ToolCall::new("search"));
        (size_of::<S>(), size_of_val(&future))
    }

    fn fork(&self) -> Option<Box<dyn Subject>> {
        Some(Box::new(Self(self.0.clone())))
    }
}

/// The smallest executor: asks again as soon as the task is woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Woken {
    #[inline]
    fn wait(&self) {
        if !self.0.load(Acquire) {
            self.wait_long();
        }
        self.0.store(false, Relaxed);
    }

    /// For what another thread holds.
    #[cold]
    fn wait_long(&self) {
        let woken = (0..1 << 20).any(|_| {
            thread::yield_now();
            self.0.load(Acquire)
        });
        assert!(woken, "pending, and nobody wakes the task");
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Release);
    }
}

/// What is in all loops. No function, of which callgrind would have to know the name as well.
macro_rules! answers {
    ($feed:ident, $from:ident, $calls:ident, |$cx:ident, $call:ident| $response:expr) => {{
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let $cx = &mut context;
        let mut answers = 0;
        for n in $from..$from + $calls {
            let $call = $feed.call(n);
            let mut response = pin!($response);
            loop {
                match response.as_mut().poll($cx) {
                    Poll::Ready(Ok(answer)) => break answers += answer,
                    Poll::Ready(Err(_)) => break,
                    Poll::Pending => woken.wait(),
                }
            }
        }
        answers
    }};
}

/// What callgrind counts: everything from here to the return.
#[inline(never)]
fn counted_loop<S>(svc: &mut S, feed: &Feed, from: usize, calls: usize) -> u64
where
    S: Service<ToolCall, Response = u64>,
{
    answers!(feed, from, calls, |cx, call| {
        assert!(matches!(svc.poll_ready(cx), Poll::Ready(Ok(()))));
        svc.call(call)
    })
}

/// The same for a service that needs no readiness.
#[inline(never)]
fn counted_loop_executed<S>(svc: &S, feed: &Feed, from: usize, calls: usize) -> u64
where
    S: layered::Service<ToolCall, Out = Result<u64, BoxError>>,
{
    answers!(feed, from, calls, |cx, call| svc.execute(call))
}

struct Expiring<S> {
    svc: S,
    runtime: Runtime,
}

impl<S> Subject for Expiring<S>
where
    S: Service<ToolCall, Response = u64> + Send + 'static,
{
    fn run(&mut self, feed: &Feed, from: usize, calls: usize) -> u64 {
        counted_loop_on(&self.runtime, &mut self.svc, feed, from, calls)
    }

    fn sizes(&self) -> (usize, usize) {
        (size_of::<S>(), size_of::<S::Future>())
    }

    fn fork(&self) -> Option<Box<dyn Subject>> {
        None
    }
}

/// The same for callgrind. What it awaits has a name of its own: this one must be entered once.
#[inline(never)]
fn counted_loop_on<S>(runtime: &Runtime, svc: &mut S, feed: &Feed, from: usize, calls: usize) -> u64
where
    S: Service<ToolCall, Response = u64>,
{
    runtime.block_on(send(svc, feed, from, calls))
}

async fn send<S>(svc: &mut S, feed: &Feed, from: usize, calls: usize) -> u64
where
    S: Service<ToolCall, Response = u64>,
{
    let mut answers = 0;
    for n in from..from + calls {
        assert!(poll_fn(|cx| svc.poll_ready(cx)).await.is_ok());
        answers += svc.call(feed.call(n)).await.unwrap_or(0);
    }
    answers
}
