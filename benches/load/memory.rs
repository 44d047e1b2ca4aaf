//! What a call costs that waits for its tool, and what is left when it has ended.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use allocation_counter::{AllocationInfo, measure as counted};
use tokio::{
    runtime::Runtime,
    spawn,
    task::{JoinHandle, yield_now},
};
use tower::Service;
use tower_toolcall::{BoxError, ToolCall};

use crate::{
    candidates::stacks::{self, Stack},
    kit,
    leaf::TOOL,
};

type Task<S> = JoinHandle<Result<u64, <S as Service<ToolCall>>::Error>>;

pub(crate) const NAME: &str = "memory";

const LEGEND: &str = "\
future       bytes of the stack's future, without what it holds on the heap
B, allocs    on the heap per call in flight, each in a task of its own, all told
above        B above the bare tool's
in all       of all calls, in MB
left         bytes when all have ended, of all calls";

/// What the tools wait for.
static GATE: Gate = Gate {
    is_open: AtomicBool::new(false),
    waiting: Mutex::new(Vec::new()),
};

struct Gate {
    is_open: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) {
        self.is_open.store(true, SeqCst);
        self.waiting().drain(..).for_each(Waker::wake);
    }

    fn close(&self, room: usize) {
        self.is_open.store(false, SeqCst);
        self.waiting().reserve(room);
    }
}

/// Answers when the gate opens. What it waits with is not counted: there is room for it before.
#[derive(Clone, Copy)]
struct Waits;

struct Waiting {
    is_known: bool,
}

impl Future for Waiting {
    type Output = Result<u64, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if GATE.is_open.load(SeqCst) {
            return Poll::Ready(Ok(1));
        }
        if !self.is_known {
            self.is_known = true;
            GATE.waiting().push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Service<ToolCall> for Waits {
    type Response = u64;
    type Error = BoxError;
    type Future = Waiting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ToolCall) -> Waiting {
        Waiting { is_known: false }
    }
}

pub(crate) fn measure(calls: usize) {
    println!("\n{LEGEND}\n");
    println!(
        "{:36} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        format!("{NAME}: {calls} in flight"),
        "future",
        "B",
        "above",
        "allocs",
        "in all",
        "left"
    );
    let bare = held("bare", Waits, calls, 0.0);
    held("stack of three", stacks::three_on(Waits), calls, bare);
    held(
        "documented stack",
        stacks::documented_on(Waits),
        calls,
        bare,
    );
    held(
        "  tower's own three",
        stacks::tower_own_on(Waits),
        calls,
        bare,
    );
    held(
        "  tower-resilience, three",
        stacks::resilience_three_on(Waits),
        calls,
        bare,
    );
    held(
        "  tower-resilience, five",
        stacks::resilience_five_on(Waits),
        calls,
        bare,
    );
}

/// Measures and prints; bytes per call.
fn held<S: Stack>(name: &str, stack: S, calls: usize, bare: f64) -> f64 {
    // All on this thread, whose allocations are those that are counted.
    let runtime = kit::runtime(1);
    // What is made once: a breaker, a histogram, the queue of the runtime.
    round(&runtime, &stack, 1);
    let (held, ended) = round(&runtime, &stack, calls);
    let per_call = |n: i64| n as f64 / calls as f64;
    let bytes = per_call(held.bytes_current);
    let left = held.bytes_current + ended.bytes_current;
    println!(
        "{name:36} {:>8} {bytes:>8.0} {:>8.0} {:>8.1} {:>8.1} {left:>8}",
        size_of::<S::Future>(),
        bytes - bare,
        per_call(held.count_current),
        held.bytes_current as f64 / 1e6,
    );
    assert!(left * 100 < held.bytes_current, "memory does not return");
    bytes
}

/// Sends calls, lets them wait all at once, and then end: what was allocated in the one part, and freed in the other.
fn round<S: Stack>(runtime: &Runtime, stack: &S, calls: usize) -> (AllocationInfo, AllocationInfo) {
    GATE.close(calls);
    let mut tasks = Vec::with_capacity(calls);
    let held = counted(|| runtime.block_on(send(stack, calls, &mut tasks)));
    assert_eq!(GATE.waiting().len(), calls, "calls in flight");
    let ended = counted(|| {
        GATE.open();
        let answers = runtime.block_on(answers::<S>(&mut tasks));
        assert_eq!(answers, calls as u64, "calls with an answer");
    });
    (held, ended)
}

async fn send<S: Stack>(stack: &S, calls: usize, tasks: &mut Vec<Task<S>>) {
    let call = ToolCall::new(TOOL).with_server("docs");
    for n in 0..calls {
        let mut stack = stack.clone();
        assert!(poll_fn(|cx| stack.poll_ready(cx)).await.is_ok());
        tasks.push(spawn(stack.call(call.clone())));
        // Few at a time, so that the runtime needs no long queue.
        if n % 32 == 0 {
            yield_now().await;
        }
    }
    for _ in 0..calls {
        if GATE.waiting().len() == calls {
            return;
        }
        yield_now().await;
    }
}

async fn answers<S: Stack>(tasks: &mut Vec<Task<S>>) -> u64 {
    let mut answers = 0;
    for task in tasks.drain(..) {
        answers += task.await.expect("no panic").unwrap_or(0);
    }
    answers
}
