//! Times: all members of a group in each round, so that a machine that is slow for a while is so
//! for all; each time in another order, so that none always has to do with what the same other one
//! has left in the caches.

use std::{
    hint::spin_loop,
    sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Handle;

use super::{
    drive::Subject,
    feed::{Feed, Random},
    tool::failures,
};

/// What is measured, and what must hold while it is.
pub struct Member {
    pub subject: Box<dyn Subject>,
    pub expects: Expects,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    Answers,
    /// The tool's, of so many runs for each call.
    ItsErrors(u64),
    /// Errors that are not the tool's.
    Errors,
    /// And the tool does not run.
    Refusals,
}

impl Member {
    /// Runs calls, and checks that they end as they should.
    pub fn run(&mut self, feed: &Feed, from: usize, calls: usize) {
        let before = failures();
        let answers = self.subject.run(feed, from, calls);
        let calls = calls as u64;
        let (answered, failed) = match self.expects {
            Expects::Answers => (calls, 0),
            Expects::ItsErrors(runs) => (0, calls * runs),
            Expects::Errors | Expects::Refusals => (0, 0),
        };
        assert_eq!(answers, answered, "calls with an answer");
        assert_eq!(failures() - before, failed, "runs of a tool that fails");
    }

    /// What happens once: names that become known, breakers that open.
    pub fn warm(&mut self, feed: &Feed) {
        self.subject.run(feed, 0, feed.len().max(200));
    }
}

#[derive(Clone, Copy)]
pub struct Plan {
    pub rounds: usize,
    /// How long a member runs in each round, about.
    pub batch: Duration,
}

/// Nanoseconds per call, by member and round. All lanes run the same member at the same time, each
/// on a thread of its own with a clone of it; the time is that of all lanes for all calls.
pub fn times(
    members: Vec<Member>,
    feed: impl Fn(usize) -> Feed + Sync,
    lanes: usize,
    runtime: &Handle,
    plan: Plan,
) -> Vec<Vec<f64>> {
    let count = members.len();
    let mut forks: Vec<Vec<Member>> = (1..lanes).map(|_| fork(&members)).collect();
    forks.push(members);
    let start = Start {
        lanes,
        arrived: AtomicUsize::new(0),
    };
    thread::scope(|scope| {
        let lanes: Vec<Lane> = forks
            .into_iter()
            .enumerate()
            .map(|(lane, members)| {
                let (feed, start) = (&feed, &start);
                let (orders, receiver) = channel();
                let (sender, spans) = channel();
                scope.spawn(move || {
                    if start.lanes > 1 {
                        pin(lane);
                    }
                    let _entered = runtime.enter();
                    serve(members, feed(lane), start, &receiver, &sender);
                });
                Lane { orders, spans }
            })
            .collect();
        let calls: Vec<usize> = (0..count)
            .map(|m| calibrate(&lanes, m, plan.batch))
            .collect();
        let mut times = vec![Vec::with_capacity(plan.rounds); count];
        for round in 0..plan.rounds {
            for member in shuffled(count, round) {
                let wall = run(&lanes, member, calls[member]);
                let sent = (calls[member] * lanes.len()) as f64;
                times[member].push(wall.as_secs_f64() * 1e9 / sent);
            }
        }
        times
    })
}

/// All of them, in an order of that round.
pub fn shuffled(count: usize, round: usize) -> Vec<usize> {
    let mut random = Random(round as u64);
    let mut keyed: Vec<_> = (0..count).map(|m| (random.unit(), m)).collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    keyed.into_iter().map(|(_, m)| m).collect()
}

fn fork(members: &[Member]) -> Vec<Member> {
    members
        .iter()
        .map(|m| Member {
            subject: m.subject.fork().expect("a service that can be shared"),
            expects: m.expects,
        })
        .collect()
}

/// Each lane keeps to a processor of its own; a scheduler may find that one does for all.
pub fn pin(lane: usize) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if !cores.is_empty() {
        core_affinity::set_for_current(cores[lane % cores.len()]);
    }
}

/// Where the lanes wait for each other, awake: to be woken takes as long as a batch.
struct Start {
    lanes: usize,
    arrived: AtomicUsize,
}

impl Start {
    fn wait(&self) {
        let before = self.arrived.fetch_add(1, SeqCst);
        let all = (before / self.lanes + 1) * self.lanes;
        let here = (0..1_u64 << 30).any(|_| {
            spin_loop();
            self.arrived.load(SeqCst) >= all
        });
        assert!(here, "another lane has failed");
    }
}

struct Lane {
    /// Which member, how many calls.
    orders: Sender<(usize, usize)>,
    spans: Receiver<(Instant, Instant)>,
}

#[allow(clippy::disallowed_methods, reason = "real time is what this is about")]
fn serve(
    mut members: Vec<Member>,
    feed: Feed,
    start: &Start,
    orders: &Receiver<(usize, usize)>,
    spans: &Sender<(Instant, Instant)>,
) {
    for member in &mut members {
        // On this thread's own cache lines.
        if let Some(fork) = member.subject.fork() {
            member.subject = fork;
        }
        member.warm(&feed);
    }
    let mut sent = vec![0; members.len()];
    while let Ok((member, calls)) = orders.recv() {
        start.wait();
        let began = Instant::now();
        members[member].run(&feed, sent[member], calls);
        sent[member] += calls;
        if spans.send((began, Instant::now())).is_err() {
            return;
        }
    }
}

/// How often a batch is tried.
const TRIES: usize = 20;

/// How long a batch takes. On a machine with other work one lane may have to wait for a processor
/// until another one is through; that tells nothing of both at once, and is done again.
fn run(lanes: &[Lane], member: usize, calls: usize) -> Duration {
    let mut shortest = Duration::MAX;
    for _ in 0..TRIES {
        let (wall, together) = once(lanes, member, calls);
        shortest = shortest.min(wall);
        if together * 10 >= wall * 9 {
            return wall;
        }
    }
    shortest
}

/// From the first start to the last end, and from the last start to the first end.
fn once(lanes: &[Lane], member: usize, calls: usize) -> (Duration, Duration) {
    for lane in lanes {
        lane.orders.send((member, calls)).expect("a lane that runs");
    }
    let spans = lanes
        .iter()
        .map(|lane| lane.spans.recv().expect("calls that end as expected"));
    let (starts, ends): (Vec<_>, Vec<_>) = spans.unzip();
    let time = |from: Option<&Instant>, to: Option<&Instant>| {
        let (from, to) = (from.expect("a lane"), to.expect("a lane"));
        to.saturating_duration_since(*from)
    };
    let wall = time(starts.iter().min(), ends.iter().max());
    let together = time(starts.iter().max(), ends.iter().min());
    (wall, together)
}

/// How many calls take about so long.
fn calibrate(lanes: &[Lane], member: usize, batch: Duration) -> usize {
    let mut calls = 16;
    loop {
        let wall = run(lanes, member, calls);
        if wall * 4 > batch || calls > 1 << 20 {
            let fits = calls as f64 * batch.as_secs_f64() / wall.as_secs_f64();
            return (fits as usize).max(1);
        }
        calls *= 2;
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The median distance from the median.
pub fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    let far: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    median(&far)
}

/// Round by round what `f` makes of two.
pub fn paired(a: &[f64], b: &[f64], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect()
}
