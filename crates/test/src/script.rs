use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use serde_json::Value;
use tokio::time::Instant;
use tower_service::Service;
use tower_toolcall::{ErrorKind, ToolCall, ToolError};

use super::{
    MAX_CALLS,
    step::{Step, StepFuture},
};

/// A tool that follows a list, one [`Step`] for each call, and records the calls that it got.
///
/// See the [module docs](super#a-scripted-tool) for an example. It is always ready, takes calls of
/// any name, and returns the errors of its steps unchanged: the outer layers add the names of the
/// call.
///
/// When the list is used up, a call fails with [`Internal`](ErrorKind::Internal), which no layer
/// repeats. [`then`](Self::then) sets another step.
///
/// For several tools make several scripts, and put them behind a router, or one
/// [`Step::of`] that looks at the name.
///
/// # Clone
///
/// Clones share the list and the counters.
#[derive(Clone)]
pub struct Script<Res = Value> {
    list: Arc<Mutex<List<Res>>>,
    tally: Arc<Mutex<Tally>>,
}

struct List<Res> {
    steps: VecDeque<Step<Res>>,
    then: Option<Step<Res>>,
}

impl<Res> Script<Res> {
    /// Makes a tool that does this, in this order.
    pub fn new(steps: impl IntoIterator<Item = Step<Res>>) -> Self {
        let list = List {
            steps: steps.into_iter().collect(),
            then: None,
        };
        Self {
            list: Arc::new(Mutex::new(list)),
            tally: Arc::default(),
        }
    }

    /// Makes a tool that does the same with each call.
    pub fn always(step: Step<Res>) -> Self {
        Self::new([]).then(step)
    }

    /// Sets the step of each call after the list is used up. Default: an error.
    #[must_use]
    pub fn then(self, step: Step<Res>) -> Self {
        self.set_then(step);
        self
    }

    /// Sets the [last step](Self::then) in the middle of a test, for the calls from now on.
    pub fn set_then(&self, step: Step<Res>) {
        lock(&self.list).then = Some(step);
    }

    /// Returns how many steps of the list are left. 0 at the end of a test means that the tool was
    /// called as often as expected.
    pub fn left(&self) -> usize {
        lock(&self.list).steps.len()
    }

    /// Returns the calls that it got, each attempt one, in the order in which they came: the first
    /// [`MAX_CALLS`](super::MAX_CALLS). They are whole: with their arguments and extensions, and
    /// what these keep alive, they are kept until the last clone of the script is dropped.
    pub fn calls(&self) -> Vec<ToolCall> {
        let tally = lock(&self.tally);
        let calls = tally.calls.iter();
        calls.map(|(call, _)| ToolCall::clone(call)).collect()
    }

    /// Returns the times at which the calls came.
    pub fn times(&self) -> Vec<Instant> {
        lock(&self.tally).calls.iter().map(|(_, at)| *at).collect()
    }

    /// Returns how many calls it got.
    pub fn count(&self) -> u64 {
        lock(&self.tally).count
    }

    /// Returns how many response futures exist. A layer drops the tool's future with its answer, so
    /// that this is 0 when no call runs.
    pub fn in_flight(&self) -> usize {
        lock(&self.tally).in_flight
    }

    /// Returns the most response futures that there were at one time.
    pub fn most_in_flight(&self) -> usize {
        lock(&self.tally).most_in_flight
    }

    /// Returns how many response futures were dropped unfinished. One that panicked is not counted.
    pub fn cancelled(&self) -> u64 {
        lock(&self.tally).cancelled
    }
}

impl<Res: Clone> Script<Res> {
    /// Records a call and gives its step: under one lock, so that calls have their steps in the
    /// order of the record.
    fn next(&self, call: &Arc<ToolCall>) -> Step<Res> {
        let mut list = lock(&self.list);
        let n = lock(&self.tally).record(call);
        match (list.steps.pop_front(), &list.then) {
            (Some(step), _) => step,
            (None, Some(step)) => step.clone(),
            (None, None) => {
                let tool = call.tool();
                let message = format!("the script has no answer for call {n} (`{tool}`)");
                Step::error(ToolError::new(ErrorKind::Internal, message))
            }
        }
    }
}

impl<Res: Clone> Service<ToolCall> for Script<Res> {
    type Response = Res;
    type Error = ToolError;
    type Future = StepFuture<Res>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        // Shared, because a clone would mark the call as copied.
        let call = Arc::new(call);
        let step = self.next(&call);
        StepFuture::new(step, call, Some(Running::begin(&self.tally)))
    }
}

/// Shows the counters, never an answer.
impl<Res> fmt::Debug for Script<Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("left", &self.left())
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

/// Locks. Nothing that is locked here can be left half-way by a panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The first [`MAX_CALLS`], and when they came.
    pub(super) calls: Vec<(Arc<ToolCall>, Instant)>,
    pub(super) count: u64,
    pub(super) in_flight: usize,
    pub(super) most_in_flight: usize,
    pub(super) cancelled: u64,
}

impl Tally {
    /// Which call it is, from 1.
    pub(super) fn record(&mut self, call: &Arc<ToolCall>) -> u64 {
        self.count += 1;
        if self.calls.len() < MAX_CALLS {
            self.calls.push((Arc::clone(call), Instant::now()));
        }
        self.count
    }
}

/// A response future, as long as it exists.
#[derive(Debug)]
pub(super) struct Running {
    tally: Arc<Mutex<Tally>>,
    has_ended: bool,
}

impl Running {
    pub(super) fn begin(tally: &Arc<Mutex<Tally>>) -> Self {
        let mut now = lock(tally);
        now.in_flight += 1;
        now.most_in_flight = now.most_in_flight.max(now.in_flight);
        drop(now);
        Self {
            tally: Arc::clone(tally),
            has_ended: false,
        }
    }

    /// The call has a result, or panics now: it is not cancelled.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut tally = lock(&self.tally);
        tally.in_flight -= 1;
        tally.cancelled += u64::from(!self.has_ended);
    }
}
