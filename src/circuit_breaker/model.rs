//! The state machine against a naive model of it, over random schedules.
//!
//! The model keeps every result with its time and looks at all of them each time. It knows neither
//! generations nor tickets: an admission is the number of the period in which it was given.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;

use super::{
    cell::Cell,
    rules::{BUCKETS, Kind, Rates, Rules, Span, Trip},
    snapshot::BreakerSnapshot,
    state::{Machine, Pass},
    window::{Tally, Verdict},
};
use crate::event::transition::{BreakerState as State, Transition, TransitionReason};

/// One step of a schedule.
#[derive(Clone, Debug)]
enum Step {
    /// A call that may probe, or one that may not.
    Admit(bool),
    /// The end of one of the calls in flight, picked by the number.
    End(u8, End),
    Wait(u16),
    /// A thread comes with a moment that has passed already.
    Back(u16),
    Force(State),
    /// An opening of another process, for so long.
    Adopt(u16),
    /// A failing server says when it is back.
    Announce(u16),
}

#[derive(Clone, Copy, Debug)]
enum End {
    Result(bool, bool),
    Neutral,
    /// An answer that counts only for a probe.
    Answers,
    /// Never, as far as the breaker can see.
    Hang,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = prop_oneof![
        4 => Just(End::Result(false, false)),
        6 => Just(End::Result(true, false)),
        1 => Just(End::Result(false, true)),
        1 => Just(End::Result(true, true)),
        3 => Just(End::Neutral),
        2 => Just(End::Answers),
        1 => Just(End::Hang),
    ];
    let force = prop_oneof![
        Just(State::Closed),
        Just(State::ForcedOpen),
        Just(State::ForcedClosed),
        Just(State::Disabled),
    ];
    let step = prop_oneof![
        30 => prop::bool::weighted(0.9).prop_map(Step::Admit),
        30 => (any::<u8>(), end).prop_map(|(n, end)| Step::End(n, end)),
        8 => (0u16..400).prop_map(Step::Wait),
        2 => (0u16..100).prop_map(Step::Back),
        1 => force.prop_map(Step::Force),
        2 => (0u16..400).prop_map(Step::Adopt),
        2 => (0u16..400).prop_map(Step::Announce),
    ];
    prop::collection::vec(step, 1..60)
}

fn rules() -> impl Strategy<Value = Rules> {
    let rates = |rates: Rates| {
        (1u32..6, 1u32..=10, 0u32..=10).prop_map(move |(minimum, failure, slow)| {
            let rates = rates
                .clone()
                .with_minimum_calls(minimum)
                .with_failure_rate(f64::from(failure) / 10.0);
            // Without the rate a slow call is one as any other.
            Trip::from(match slow {
                0 => rates,
                slow => rates.with_slow_call_rate(f64::from(slow) / 10.0, millis(1)),
            })
        })
    };
    let trip = prop_oneof![
        (1u32..5).prop_map(Trip::consecutive_failures),
        (1u32..5, 1u64..500).prop_map(|(n, w)| Trip::consecutive_failures_within(n, millis(w))),
        (1u32..5, 1u64..500).prop_map(|(n, w)| Trip::total_failures_within(n, millis(w))),
        (6u32..12).prop_flat_map(move |calls| rates(Rates::over_calls(calls))),
        // Buckets of whole milliseconds.
        (1u64..20).prop_flat_map(move |w| rates(Rates::over_time(millis(w * BUCKETS as u64)))),
    ];
    (
        trip,
        1u64..200,
        0u8..3,
        1u32..4,
        0u32..4,
        1u64..300,
        any::<bool>(),
    )
        .prop_map(
            |(trip, open, growth, probes, successes, lease, safe_probes)| Rules {
                trip: trip.0,
                open_for: millis(open),
                growth: 1.0 + f64::from(growth) / 2.0,
                max_open_for: millis(2 * open),
                probes,
                successes: (successes > 0).then_some(successes),
                lease: millis(lease),
                probe_wait: Duration::ZERO,
                safe_probes,
                of_servers: false,
            },
        )
}

fn verdict(failure: bool, slow: bool) -> Verdict {
    Verdict {
        failure,
        slow,
        ..Verdict::SUCCESS
    }
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A model that is simple enough to be seen to be right.
struct Naive {
    state: State,
    /// Counts changes of state.
    period: u32,
    /// When the present period began.
    since: Duration,
    /// When the present open period ends.
    until: Duration,
    /// Whether the present opening is another process'.
    adopted: bool,
    /// When a failing server is back.
    announced: Duration,
    results: Vec<(Duration, Verdict)>,
    probes: Vec<(usize, Duration)>,
    /// How each probe of the present period ended, in their order: whether it had a verdict.
    verdicts: Vec<bool>,
    successes: u32,
    failed_probes: u32,
}

impl Naive {
    fn turn(&mut self, state: State, now: Duration) {
        (self.state, self.since) = (state, now);
        self.period += 1;
        self.probes.clear();
        self.verdicts.clear();
        self.successes = 0;
        if matches!(state, State::Closed | State::ForcedClosed) {
            self.results.clear();
            (self.failed_probes, self.adopted) = (0, false);
            self.announced = Duration::ZERO;
        }
    }

    fn open(&mut self, now: Duration, rules: &Rules) {
        self.turn(State::Open, now);
        self.until = self.announced.max(now + self.open_for(rules));
        self.adopted = false;
    }

    fn adopts(&mut self, until: Duration, now: Duration) {
        match self.state {
            State::Closed | State::HalfOpen => {
                self.adopted |= self.state == State::Closed;
                self.turn(State::Open, now);
                self.until = until;
            }
            _ => self.postpones(until),
        }
    }

    fn postpones(&mut self, until: Duration) {
        if self.state == State::Open {
            self.until = self.until.max(until);
        }
    }

    fn announces(&mut self, until: Duration) {
        self.announced = self.announced.max(until);
        self.postpones(self.announced);
    }

    fn open_for(&self, rules: &Rules) -> Duration {
        let mut period = rules.open_for.as_secs_f64();
        for _ in 0..self.failed_probes {
            period *= rules.growth;
        }
        Duration::from_secs_f64(period).min(rules.max_open_for.max(rules.open_for))
    }

    fn open_to_all(&self) -> bool {
        let last: Vec<_> = self.verdicts.iter().rev().take(5).collect();
        last.len() == 5 && last.into_iter().all(|decided| !decided)
    }

    fn admits(&mut self, call: usize, may_probe: bool, now: Duration, rules: &Rules) -> bool {
        let half_open_from = match self.state {
            State::Open => Some(self.until),
            State::HalfOpen if rules.safe_probes || !self.open_to_all() => Some(self.since),
            _ => None,
        };
        if let Some(from) = half_open_from
            && !may_probe
            && now >= from
            && now < from + rules.open_for
        {
            return false;
        }
        if self.state == State::Open && now >= self.until {
            self.turn(State::HalfOpen, now);
        }
        match self.state {
            State::Closed | State::ForcedClosed | State::Disabled => true,
            State::HalfOpen if self.open_to_all() => true,
            State::HalfOpen => {
                self.probes.retain(|(_, begun)| now < *begun + rules.lease);
                let running = self.probes.len() as u32;
                let needed = rules.probes.max(rules.successes());
                let admits = running < rules.probes && running + self.successes < needed;
                if admits {
                    self.probes.push((call, now));
                }
                admits
            }
            _ => false,
        }
    }

    fn ends(&mut self, call: usize, period: u32, end: End, now: Duration, rules: &Rules) {
        if period != self.period || matches!(end, End::Hang) {
            return;
        }
        let had_place = self.probes.iter().any(|(probe, _)| *probe == call);
        self.probes.retain(|(probe, _)| *probe != call);
        match end {
            End::Result(..) | End::Answers => self.verdicts.push(true),
            _ if had_place => self.verdicts.push(false),
            _ => {}
        }
        let (failure, slow) = match end {
            End::Result(failure, slow) => (failure, slow),
            End::Answers if self.state == State::HalfOpen => (false, false),
            _ => return,
        };
        match self.state {
            State::Closed | State::ForcedClosed => {
                self.results.push((now, verdict(failure, slow)));
                if !failure && !slow {
                    self.failed_probes = 0;
                }
                if self.state == State::Closed && self.trips(now, rules) {
                    self.open(now, rules);
                }
            }
            State::HalfOpen if failure || slow => {
                self.failed_probes += 1;
                self.open(now, rules);
            }
            State::HalfOpen => {
                self.successes += 1;
                if self.successes >= rules.successes() {
                    let failed_probes = self.failed_probes;
                    self.turn(State::Closed, now);
                    if matches!(end, End::Answers) {
                        self.failed_probes = failed_probes;
                    }
                }
            }
            _ => {}
        }
    }

    /// The results that the window holds `now`.
    fn window(&self, now: Duration, rules: &Rules) -> Vec<Verdict> {
        let verdicts = || self.results.iter().map(|(_, verdict)| *verdict);
        let since = |keep: &dyn Fn(Duration) -> bool| {
            let all = self.results.iter();
            all.filter(|(at, _)| keep(*at))
                .map(|(_, verdict)| *verdict)
                .collect()
        };
        match &rules.trip {
            Kind::Failures { window: None, .. } => {
                verdicts().rev().take_while(|m| m.failure).collect()
            }
            Kind::Failures {
                window: Some(window),
                in_a_row,
                ..
            } => {
                let within: Vec<Verdict> = since(&|at| now - at < *window);
                let failures = within.into_iter().rev();
                match in_a_row {
                    true => failures.take_while(|m| m.failure).collect(),
                    false => failures.filter(|m| m.failure).collect(),
                }
            }
            Kind::Rates(rates) => match rates.span {
                Span::Calls(calls) => {
                    let from = self.results.len().saturating_sub(calls as usize);
                    verdicts().skip(from).collect()
                }
                Span::Time(window) => {
                    let width = window.as_nanos() / BUCKETS as u128;
                    let bucket = |at: Duration| at.as_nanos() / width;
                    let oldest = (bucket(now) + 1).saturating_sub(BUCKETS as u128);
                    since(&|at| bucket(at) >= oldest)
                }
            },
        }
    }

    fn tally(&self, now: Duration, rules: &Rules) -> Tally {
        let mut tally = Tally::default();
        for verdict in self.window(now, rules) {
            tally.merge(verdict.into());
        }
        // More than enough are not kept.
        if let Kind::Failures {
            threshold,
            window: Some(_),
            ..
        } = rules.trip
        {
            tally.calls = tally.calls.min(threshold);
            tally.failures = tally.failures.min(threshold);
        }
        tally
    }

    fn trips(&self, now: Duration, rules: &Rules) -> bool {
        let tally = self.tally(now, rules);
        let share = |n: u32| f64::from(n) / f64::from(tally.calls);
        match &rules.trip {
            Kind::Failures { threshold, .. } => tally.failures >= *threshold,
            Kind::Rates(rates) => {
                let (failure_rate, slow_rate) = (rates.failure_rate, rates.slow_call_rate);
                tally.calls >= rates.minimum()
                    && (failure_rate.is_some_and(|r| share(tally.failures) >= r)
                        || slow_rate.is_some_and(|r| share(tally.slow) >= r))
            }
        }
    }
}

/// A breaker as its callers use it.
struct Shared(Cell, Arc<Rules>);

impl Shared {
    fn new(rules: &Rules) -> Self {
        let rules = Arc::new(rules.clone());
        Self(Cell::new(State::Closed, &rules), rules)
    }

    fn admit(
        &self,
        may_probe: bool,
        now: Duration,
    ) -> Result<(Pass, Option<Transition>), Duration> {
        if let Some(pass) = self.0.pass() {
            return Ok((pass, None));
        }
        let admitted = self.0.with(&self.1, now, |kept| kept.admit(|| may_probe));
        admitted.map_err(|refused| refused.retry_after)
    }

    fn record(&self, pass: Pass, verdict: Option<Verdict>, now: Duration) -> Option<Transition> {
        if self.0.ignores(pass, verdict) {
            return None;
        }
        self.with(now, |machine| machine.record(pass, verdict, None))
    }

    fn with<T>(&self, now: Duration, work: impl FnOnce(&mut Machine) -> T) -> T {
        self.0.with(&self.1, now, |kept| work(&mut kept.machine))
    }

    fn snapshot(&self, now: Duration) -> BreakerSnapshot {
        let seen = self.0.peek(now, |kept| kept.machine.snapshot());
        seen.unwrap_or_else(|| Machine::new(State::Closed, &self.1).snapshot())
    }
}

/// Runs a schedule through both and compares every verdict.
///
/// A snapshot makes the breaker add the successes that it had put off; so one is taken after every
/// step, or only at the end.
fn run(rules: &Rules, steps: Vec<Step>, watched: bool) -> Result<(), TestCaseError> {
    let cell = Shared::new(rules);
    let mut naive = Naive {
        state: State::Closed,
        period: 0,
        since: Duration::ZERO,
        until: Duration::ZERO,
        adopted: false,
        announced: Duration::ZERO,
        results: Vec::new(),
        probes: Vec::new(),
        verdicts: Vec::new(),
        successes: 0,
        failed_probes: 0,
    };
    let mut now = Duration::ZERO;
    let mut calls: Vec<(usize, Pass, u32)> = Vec::new();
    let mut changes: Vec<Transition> = Vec::new();
    let mut stales = 0;
    let last = steps.len() - 1;
    for (n, step) in steps.into_iter().enumerate() {
        match step {
            Step::Admit(may_probe) => {
                let admission = cell.admit(may_probe, now);
                prop_assert_eq!(admission.is_ok(), naive.admits(n, may_probe, now, rules));
                match admission {
                    Ok((pass, change)) => {
                        changes.extend(change);
                        calls.push((n, pass, naive.period));
                    }
                    Err(retry_after) => prop_assert!(!retry_after.is_zero()),
                }
            }
            Step::End(which, end) if !calls.is_empty() => {
                let which = usize::from(which) % calls.len();
                let (call, pass, period) = calls.swap_remove(which);
                // Without a rate of slow calls no call is slow.
                let end = match end {
                    End::Result(failure, slow) => {
                        End::Result(failure, slow && rules.slow_call().is_some())
                    }
                    end => end,
                };
                let verdict = match end {
                    End::Result(failure, slow) => Some(verdict(failure, slow)),
                    End::Answers => Some(Verdict::ANSWERS),
                    End::Neutral => None,
                    End::Hang => continue,
                };
                let stale = period != naive.period;
                naive.ends(call, period, end, now, rules);
                let change = cell.record(pass, verdict, now);
                prop_assert!(!(stale && change.is_some()));
                changes.extend(change);
                stales += u64::from(stale && matches!(end, End::Result(..)));
            }
            Step::End(..) => {}
            Step::Wait(ms) => now += millis(ms.into()),
            Step::Back(ms) if watched => {
                let early = now.saturating_sub(millis(ms.into()));
                let look = cell.snapshot(early);
                prop_assert_eq!(look.state, naive.state);
            }
            Step::Back(_) => {}
            Step::Force(state) => {
                if naive.state != state || state == State::Closed {
                    naive.turn(state, now);
                }
                let reason = TransitionReason::Forced;
                changes.extend(cell.with(now, |machine| machine.force(state, reason)));
            }
            Step::Adopt(ms) => {
                naive.adopts(now + millis(ms.into()), now);
                changes.extend(cell.with(now, |machine| machine.adopt(millis(ms.into()))));
            }
            Step::Announce(ms) => {
                naive.announces(now + millis(ms.into()));
                cell.with(now, |machine| machine.announced(millis(ms.into())));
            }
        }
        if !watched && n < last {
            continue;
        }
        let look = cell.snapshot(now);
        prop_assert_eq!(look.state, naive.state);
        let is_open = matches!(naive.state, State::Open | State::HalfOpen);
        prop_assert_eq!(look.adopted, naive.adopted && is_open);
        prop_assert_eq!(look.generation, naive.period);
        prop_assert_eq!(look.stale_total, stales);
        prop_assert!(look.probes <= rules.probes as usize);
        if matches!(naive.state, State::Closed | State::ForcedClosed) {
            let tally = Tally {
                calls: look.calls,
                failures: look.failures,
                slow: look.slow_calls,
            };
            prop_assert_eq!(tally, naive.tally(now, rules));
        }
        if let (State::Open, Some(retry_after)) = (naive.state, look.retry_after) {
            prop_assert_eq!(retry_after, naive.until - now);
        }
    }
    // Each change begins where the one before ended, and has a higher number.
    let (mut state, mut generation) = (State::Closed, 0);
    for change in changes {
        prop_assert_eq!(change.from, state);
        prop_assert!(change.generation > generation);
        (state, generation) = (change.to, change.generation);
    }
    Ok(())
}

/// Whatever happened, and whichever calls hang: once calls succeed, the breaker closes, also if
/// none of them should probe.
fn recovers(rules: &Rules, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let cell = Shared::new(rules);
    let mut now = Duration::ZERO;
    let mut calls = Vec::new();
    for step in steps {
        match step {
            Step::Admit(may_probe) => {
                calls.extend(cell.admit(may_probe, now).map(|(pass, _)| pass).ok());
            }
            Step::End(n, End::Result(failure, slow)) if !calls.is_empty() => {
                let pass = calls.swap_remove(usize::from(n) % calls.len());
                cell.record(pass, Some(verdict(failure, slow)), now);
            }
            Step::Wait(ms) => now += millis(ms.into()),
            // Calls that are never heard of again.
            Step::End(..) => calls.clear(),
            // Handles allow no longer ones.
            Step::Adopt(ms) => {
                let period = rules.bounded(millis(ms.into()));
                cell.with(now, |machine| machine.adopt(period));
            }
            Step::Announce(ms) => {
                let delay = rules.bounded(millis(ms.into()));
                cell.with(now, |machine| machine.announced(delay));
            }
            Step::Back(_) | Step::Force(_) => {}
        }
    }
    // It may open once more, by the failures that are in its window still.
    for _ in 0..3 * (rules.successes() + 12) {
        now += rules.max_open_for + rules.lease;
        if let Ok((pass, _)) = cell.admit(!rules.safe_probes, now) {
            cell.record(pass, Some(Verdict::SUCCESS), now);
        }
    }
    prop_assert_eq!(cell.snapshot(now).state, State::Closed);
    Ok(())
}

/// Returns the number of random rows of steps: `BREAKER_CASES`, else 500.
fn cases() -> u32 {
    let cases = std::env::var("BREAKER_CASES");
    cases.map_or(500, |cases| {
        cases.parse().expect("BREAKER_CASES is a number")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Traps 1, 2, 3, 4, 12, 16 at once. The cell, and the machine in it, as one thread sees them.
    #[test]
    fn the_same_verdicts_as_the_naive_model(
        rules in rules(),
        steps in steps(),
        watched in any::<bool>(),
    ) {
        prop_assume!(rules.check().is_ok());
        run(&rules, steps, watched)?;
    }

    #[test]
    fn never_wedged(rules in rules(), steps in steps()) {
        prop_assume!(rules.check().is_ok());
        recovers(&rules, steps)?;
    }
}
