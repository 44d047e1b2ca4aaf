//! Tasks that share a service, on a runtime with two workers: how much they are in each other's
//! way.

use std::{
    future::poll_fn,
    hint::spin_loop,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::runtime::{Builder, Runtime};
use tower::Service;
use tower_toolcall::ToolCall;

use super::{
    feed::Feed,
    rounds::{median, paired, pin, shuffled},
};

pub const WORKERS: usize = 2;
pub const TASKS: usize = 8;

/// A service with its type erased outside of the tasks.
pub trait Sharable {
    /// A task that sends calls through a clone, one after the other; when it began and when it
    /// ended.
    fn task(&self, start: Arc<Start>, feed: Arc<Feed>, calls: usize) -> Task;
}

type Task = Pin<Box<dyn Future<Output = (Instant, Instant)> + Send>>;

impl<S> Sharable for S
where
    S: Service<ToolCall, Response = u64, Error: Send, Future: Send> + Clone + Send + 'static,
{
    fn task(&self, start: Arc<Start>, feed: Arc<Feed>, calls: usize) -> Task {
        Box::pin(send(self.clone(), start, feed, calls))
    }
}

/// Where the first tasks wait for each other: to wake a worker takes long. They do not give way to
/// other tasks, so that each of them has a worker.
pub struct Start {
    /// As many as there are workers for.
    missing: AtomicIsize,
}

impl Start {
    fn wait(&self) {
        self.missing.fetch_sub(1, Relaxed);
        // Not for ever: on a machine with other work there may be only one worker.
        for _ in 0..1 << 20 {
            if self.missing.load(Relaxed) <= 0 {
                return;
            }
            spin_loop();
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "real time is what this is about")]
async fn send<S>(mut svc: S, start: Arc<Start>, feed: Arc<Feed>, calls: usize) -> (Instant, Instant)
where
    S: Service<ToolCall, Response = u64>,
{
    start.wait();
    let began = Instant::now();
    let mut answers = 0;
    for n in 0..calls {
        assert!(poll_fn(|cx| svc.poll_ready(cx)).await.is_ok());
        answers += svc.call(feed.call(n)).await.unwrap_or(0);
    }
    assert_eq!(answers, calls as u64, "calls with an answer");
    (began, Instant::now())
}

pub struct Member {
    pub service: Box<dyn Sharable>,
    /// One for each task.
    pub feeds: Vec<Arc<Feed>>,
}

/// Medians of what a call took, in nanoseconds of the wall's clock by the calls of all tasks.
pub struct Times {
    pub one: f64,
    pub all: f64,
    /// The median of the rounds' ratios.
    pub scaling: f64,
}

pub fn runtime() -> Runtime {
    let started = AtomicUsize::new(0);
    Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .on_thread_start(move || pin(started.fetch_add(1, Relaxed)))
        .enable_time()
        .build()
        .expect("a runtime")
}

/// By member. All take their turn in each round, alone and with all tasks.
pub fn times(runtime: &Runtime, members: &[Member], rounds: usize, batch: Duration) -> Vec<Times> {
    let calls: Vec<usize> = members
        .iter()
        .map(|member| calibrate(runtime, member, batch))
        .collect();
    let mut times = vec![(Vec::new(), Vec::new()); members.len()];
    for round in 0..rounds {
        for m in shuffled(members.len(), round) {
            times[m].0.push(run(runtime, &members[m], 1, calls[m]));
            times[m].1.push(run(runtime, &members[m], TASKS, calls[m]));
        }
    }
    let of_rounds = |(one, all): (Vec<f64>, Vec<f64>)| Times {
        one: median(&one),
        all: median(&all),
        scaling: median(&paired(&all, &one, |all, one| all / one)),
    };
    times.into_iter().map(of_rounds).collect()
}

/// How many calls of one task take about so long. Before that all names become known.
fn calibrate(runtime: &Runtime, member: &Member, batch: Duration) -> usize {
    run(runtime, member, TASKS, 200 * TASKS);
    let mut calls = 1000;
    loop {
        let wall = run(runtime, member, 1, calls) * calls as f64 / 1e9;
        if wall * 4.0 > batch.as_secs_f64() {
            let fits = calls as f64 * batch.as_secs_f64() / wall;
            return (fits as usize).max(TASKS);
        }
        calls *= 2;
    }
}

/// Nanoseconds per call when so many tasks share them, from the first one's beginning to the last
/// one's end.
fn run(runtime: &Runtime, member: &Member, tasks: usize, calls: usize) -> f64 {
    let each = calls / tasks;
    let start = Arc::new(Start {
        missing: AtomicIsize::new(tasks.min(WORKERS) as isize),
    });
    let tasks: Vec<_> = member.feeds[..tasks]
        .iter()
        .map(|feed| {
            let (start, feed) = (Arc::clone(&start), Arc::clone(feed));
            runtime.spawn(member.service.task(start, feed, each))
        })
        .collect();
    let sent = (each * tasks.len()) as f64;
    let spans = tasks
        .into_iter()
        .map(|task| runtime.block_on(task).expect("calls that end as expected"));
    let (began, ended): (Vec<_>, Vec<_>) = spans.unzip();
    let wall = ended.into_iter().max().zip(began.into_iter().min());
    let wall = wall.map(|(end, start)| end.saturating_duration_since(start));
    wall.expect("a task").as_secs_f64() * 1e9 / sent
}
