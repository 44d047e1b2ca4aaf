//! Bytes of a call that waits for its tool, with 100,000 of them in flight, and what is left when
//! all have ended.
//!
//! ```text
//! cargo bench -p benches --bench memory
//! ```
//!
//! A program of its own, because the allocator that counts takes time. Each call is a new one in a
//! task of its own. The tool drops it at once, so what a stack keeps of a call is in its figure:
//! what it names in an error, and all of it where it may have to be sent again.

#![allow(missing_docs)]

mod candidates;
mod figures;
mod kit;

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

use candidates::stacks::{self, Stack};

type Task<S> = JoinHandle<Result<u64, <S as Service<ToolCall>>::Error>>;

/// Calls in flight.
const CALLS: usize = 100_000;

const LEGEND: &str = "\
future       bytes of the stack's future, without what it holds on the heap
B, allocs    on the heap per call in flight, its task included, which tokio rounds up to 128 bytes;
             as asked for: the system's allocator adds about 8 bytes to each
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

fn main() {
    println!("{}\n{LEGEND}\n", figures::machine());
    println!(
        "{:36} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        format!("{CALLS} calls in flight"),
        "future",
        "B",
        "above",
        "allocs",
        "in all",
        "left"
    );
    // All on this thread, whose allocations are those that are counted.
    let runtime = kit::runtime(1);
    let _entered = runtime.enter();
    let bare = held(&runtime, "bare", Waits, 0.0);
    let three = stacks::three_on(Waits);
    held(&runtime, "stack of three", three, bare);
    let eight = stacks::eight_on(Waits);
    held(&runtime, "stack of eight", eight, bare);
    let documented = stacks::documented_on(Waits);
    held(&runtime, "documented stack", documented, bare);
    let tower = stacks::tower_own_on(Waits);
    held(&runtime, "  tower's own three", tower, bare);
    let three = stacks::resilience_three_on(Waits);
    held(&runtime, "  tower-resilience, three", three, bare);
    let five = stacks::resilience_five_on(Waits);
    held(&runtime, "  tower-resilience, five", five, bare);
    let seatbelt = stacks::seatbelt_three_as_towers_on(Waits);
    held(&runtime, "  seatbelt, three", seatbelt, bare);
}

/// Measures and prints; bytes per call.
fn held<S: Stack>(runtime: &Runtime, name: &str, stack: S, bare: f64) -> f64 {
    // What is made once: a breaker, a histogram that has room for such latencies, the queue of the
    // runtime.
    round(runtime, &stack);
    let (held, ended) = round(runtime, &stack);
    let per_call = |n: i64| n as f64 / CALLS as f64;
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

/// Sends calls, lets them wait all at once, and then end: what was allocated in the one part, and
/// freed in the other.
fn round<S: Stack>(runtime: &Runtime, stack: &S) -> (AllocationInfo, AllocationInfo) {
    GATE.close(CALLS);
    let mut tasks = Vec::with_capacity(CALLS);
    let held = counted(|| runtime.block_on(send(stack, &mut tasks)));
    assert_eq!(GATE.waiting().len(), CALLS, "calls in flight");
    let ended = counted(|| {
        GATE.open();
        let answers = runtime.block_on(answers::<S>(&mut tasks));
        assert_eq!(answers, CALLS as u64, "calls with an answer");
    });
    (held, ended)
}

async fn send<S: Stack>(stack: &S, tasks: &mut Vec<Task<S>>) {
    for n in 0..CALLS {
        let call = ToolCall::new("search").with_server("docs");
        let mut stack = stack.clone();
        assert!(poll_fn(|cx| stack.poll_ready(cx)).await.is_ok());
        tasks.push(spawn(stack.call(call)));
        // Few at a time, so that the runtime needs no long queue.
        if n % 32 == 0 {
            yield_now().await;
        }
    }
    for _ in 0..CALLS {
        if GATE.waiting().len() == CALLS {
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
