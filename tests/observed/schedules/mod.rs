//! Random schedules over the documented stack, against a naive model of the whole.
//!
//! A schedule is what some callers, a tool and an operator do: calls that are dropped, cancelled or
//! short of time; a tool that fails, hangs, panics, is not ready or asks to wait; breakers and
//! gates that are forced; a clock that jumps. All of it is drawn from a seed, in paused time and on
//! one thread, so that a schedule is the same in each run. What happens is written down in its
//! order ([`log`]) and judged afterwards by rules that know nothing of the crate's code
//! ([`check`]).
//!
//! | variable | is | default |
//! |---|---|---|
//! | `SCHEDULES` | how many schedules there are | 300 |
//! | `SEED` | the first one; without `SCHEDULES` the only one, whose log is printed | 0 |
//! | `THREADS` | how many run at a time | all processors |
//!
//! `SCHEDULES=1000000 cargo test --release --all-features --test observed schedules -- --nocapture`

mod check;
mod leaf;
mod log;
mod plan;
mod stack;

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Instant,
};

use log::Log;

/// Splitmix64.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Of seeds side by side the states must not follow each other.
        Self(Self(seed).below(u64::MAX))
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    /// Once in so many times.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap()
}

/// One schedule: what happened, and what is wrong with it.
fn schedule(seed: u64, seen: &Seen, is_shown: bool) {
    let (log, runtime) = (Log::default(), runtime());
    // Without a subscriber there are no spans.
    let spans = tracing_subscriber::registry();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _subscribed = tracing::subscriber::set_default(spans);
        let end = runtime.block_on(plan::run(seed, &log));
        check::whole(&log.entries(), &end);
    }));
    let entries = log.entries();
    seen.add(&entries);
    if is_shown || ended.is_err() {
        entries.iter().for_each(|entry| println!("{entry:?}"));
    }
    if let Err(panic) = ended {
        println!("SEED={seed} cargo test --all-features --test observed schedules");
        resume_unwind(panic);
    }
}

/// What has happened in all of them: a model that sees nothing finds nothing.
#[derive(Default)]
struct Seen {
    calls: AtomicU64,
    runs: AtomicU64,
    retries: AtomicU64,
    openings: AtomicU64,
    dropped: AtomicU64,
    panics: AtomicU64,
    unready: AtomicU64,
}

impl Seen {
    fn add(&self, entries: &[log::Entry]) {
        use log::{How, What};
        for entry in entries {
            let count = match &entry.what {
                What::Begun => &self.calls,
                What::Run { .. } => &self.runs,
                What::Retry => &self.retries,
                What::Breaker { to, .. } if to == "open" => &self.openings,
                What::Dropped => &self.dropped,
                What::Ended {
                    how: How::Panicked, ..
                } => &self.panics,
                What::NotReady => &self.unready,
                _ => continue,
            };
            count.fetch_add(1, Relaxed);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|n| n.parse().unwrap())
}

/// One result per call, three attempts at most, no effect twice of what may not run twice, no
/// verdict without evidence, budgets and quotas kept, and nothing is left over or stuck.
#[test]
fn random_schedules_over_the_documented_stack_keep_to_the_model() {
    crate::listening();
    leaf::silence_panics();
    let (first, only) = (number("SEED"), number("SCHEDULES"));
    let is_shown = first.is_some() && only.is_none();
    let first = first.unwrap_or(0);
    let count = only.unwrap_or(if is_shown { 1 } else { 300 });
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let threads = number("THREADS").unwrap_or(threads).min(count);
    #[allow(clippy::disallowed_methods, reason = "the time of the test itself")]
    let begun = Instant::now();
    let (next, seen) = (AtomicU64::new(0), Seen::default());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Relaxed);
                    if n >= count {
                        return;
                    }
                    let one = AssertUnwindSafe(|| schedule(first + n, &seen, is_shown));
                    if let Err(panic) = catch_unwind(one) {
                        next.store(count, Relaxed);
                        resume_unwind(panic);
                    }
                }
            });
        }
    });
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    let of = |count: &AtomicU64| count.load(Relaxed);
    println!(
        "{count} schedules from {first}, {rate:.0} per second: {} calls, {} runs of the tool, {} retries, {} openings, {} dropped calls, \
         {} panics, {} failures of readiness",
        of(&seen.calls),
        of(&seen.runs),
        of(&seen.retries),
        of(&seen.openings),
        of(&seen.dropped),
        of(&seen.panics),
        of(&seen.unready)
    );
    if count >= 1_000 {
        let all = [
            &seen.retries,
            &seen.openings,
            &seen.dropped,
            &seen.panics,
            &seen.unready,
        ];
        assert!(
            all.iter().all(|seen| of(seen) > count / 20),
            "too little happens"
        );
    }
}

/// One that fails can be looked at again.
#[test]
fn a_schedule_is_the_same_in_each_run() {
    crate::listening();
    leaf::silence_panics();
    for seed in 0..20 {
        let logs = [(); 2].map(|()| {
            let log = Log::default();
            runtime().block_on(plan::run(seed, &log));
            format!("{:?}", log.entries())
        });
        assert!(logs[0] == logs[1], "{seed}");
    }
}
