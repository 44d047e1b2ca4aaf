//! The model: what has to hold of a log, told by the log alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tower_toolcall::{ErrorKind, Execution, ReplaySafety, retry::RetryRefusal};

use super::{
    log::{Entry, How, What},
    plan::{Asked, End},
    stack::{
        AT_A_TIME, ATTEMPTS, BUDGET, BURST, FAILURES, LONGEST_COOLDOWN, MIN_RETRIES, OPEN_FOR,
        TIMEOUT, TOKEN_EVERY,
    },
};

/// Timers are set in whole milliseconds.
const TICK: Duration = Duration::from_millis(2);

pub(crate) fn whole(log: &[Entry], end: &End) {
    for (number, asked) in end.asked.iter().enumerate() {
        let own: Vec<_> = log.iter().filter(|e| e.call == Some(number)).collect();
        call(number, asked, &own, log, end);
    }
    once_keys(log, end);
    for tool in &super::plan::TOOLS {
        let of_tool: Vec<_> = log.iter().filter(|e| e.tool == *tool).collect();
        at_a_time(&of_tool);
        breaker(&of_tool, end);
        gate(&of_tool);
        quota(&of_tool, end);
        retry_budget(log, tool);
    }
    metrics(log, end);
}

/// One call.
fn call(number: usize, asked: &Asked, own: &[&Entry], log: &[Entry], end: &End) {
    let count = |is: fn(&What) -> bool| own.iter().filter(|entry| is(&entry.what)).count();
    let begun = count(|what| matches!(what, What::Begun));
    let ends = |what: &What| matches!(what, What::Answer(_) | What::Error { .. } | What::Dropped);
    let ended = count(ends);
    assert_eq!(begun, ended, "call {number} has {ended} ends");
    let Some(last) = own.iter().rfind(|entry| ends(&entry.what)) else {
        // Its task was ended before it was polled.
        return;
    };

    // At most so many attempts, one after the other.
    let mut runs = Vec::new();
    let mut running = 0;
    for entry in own {
        match &entry.what {
            What::Run { attempt, .. } => {
                assert!(running == 0, "call {number} runs twice at a time");
                assert!(*attempt <= ATTEMPTS && runs.iter().all(|(n, _)| n < attempt));
                runs.push((*attempt, false));
                running += 1;
            }
            What::Effect => runs.last_mut().expect("a run").1 = true,
            What::Ended { .. } => running -= 1,
            _ => {}
        }
    }
    assert!(running == 0 && runs.len() <= ATTEMPTS as usize);
    let effects = runs.iter().filter(|(_, has_effect)| *has_effect).count();
    if asked.safety != ReplaySafety::Safe {
        assert!(
            effects <= 1,
            "call {number} has taken effect {effects} times"
        );
    }

    // D1: a call that was never sent is no attempt, however it ended. A tool service that fails to
    // become ready for a call is asked, as one that refuses a connection is.
    let requests = count(is_request) as u32;
    for entry in own {
        if let What::Attempts(by, attempts) = entry.what {
            assert_eq!(attempts, requests, "attempts of call {number} by its {by}");
        }
    }

    // What its caller is told is true.
    let at_once = |kind| matches!(&last.what, What::Error { kind: told, .. } if *told == kind);
    match &last.what {
        What::Answer(run) => answered(number, *run, asked, log, end),
        What::Error {
            execution,
            attempts,
            ..
        } => {
            match execution {
                Execution::NotStarted => assert_eq!(effects, 0, "call {number} has run"),
                Execution::Completed => assert!(
                    effects > 0 || asked.once.is_some(),
                    "call {number} has not run"
                ),
                _ => {}
            }
            assert!(*attempts as usize >= runs.len() && *attempts <= ATTEMPTS);
        }
        _ => {}
    }
    if begun > 0 && !matches!(last.what, What::Dropped) {
        let refusal = match (asked.tool, asked.n) {
            ("ghost", _) => Some(ErrorKind::NotFound),
            (_, None) => Some(ErrorKind::InvalidInput),
            ("forbidden", _) => Some(ErrorKind::Denied),
            _ => None,
        };
        if let Some(kind) = refusal {
            assert!(runs.is_empty(), "call {number} is not to be sent");
            assert!(
                at_once(kind) || at_once(ErrorKind::InvalidInput),
                "{last:?}"
            );
        }
    }

    // It ends in time, if all timers are on time.
    if !end.has_jumped && begun > 0 {
        let first = own.iter().find(|e| matches!(e.what, What::Begun)).unwrap();
        if let Some(deadline) = asked.deadline {
            let latest = (asked.begun + deadline).max(first.at) + TICK;
            assert!(
                last.at <= latest,
                "call {number} ends {:?} late",
                last.at - latest
            );
        }
        if let Some(cancelled) = own.iter().find(|e| matches!(e.what, What::Cancelled)) {
            let latest = cancelled.at.max(first.at) + TICK;
            assert!(
                last.at <= latest,
                "call {number} ends {:?} late",
                last.at - latest
            );
        }
        let passed = own.iter().find(|e| matches!(e.what, What::PassedQuota));
        if let Some(passed) = passed {
            assert!(last.at <= passed.at + BUDGET + TICK, "call {number}");
        }
    }
}

/// An answer is that of a run which has answered: of the call itself, or of one that asked for the
/// same.
fn answered(number: usize, run: u64, asked: &Asked, log: &[Entry], end: &End) {
    let is_end = |e: &&Entry| matches!(&e.what, What::Ended { run: of, .. } if *of == run);
    let ended = log.iter().find(is_end).expect("the run of an answer");
    let What::Ended { how, .. } = &ended.what else {
        unreachable!()
    };
    assert!(
        matches!(how, How::Answered | How::Reported),
        "{number}: {how:?}"
    );
    let of = ended.call.expect("a call");
    if of != number {
        let other = &end.asked[of];
        assert_eq!(other.tool, asked.tool);
        assert_eq!(other.agent, asked.agent);
        assert_eq!(other.n, asked.n);
        let same_key = asked.once.is_some() && other.once == asked.once;
        assert!(
            same_key || asked.tool == "read",
            "{number} has the answer of {of}"
        );
    }
}

/// Of all calls with one key of one caller: one effect, if none of them may run twice.
fn once_keys(log: &[Entry], end: &End) {
    let mut effects = BTreeMap::<_, usize>::new();
    for entry in log {
        let (Some(number), What::Effect) = (entry.call, &entry.what) else {
            continue;
        };
        let asked = &end.asked[number];
        if let Some(key) = asked.once {
            *effects.entry((asked.agent, key)).or_default() += 1;
        }
    }
    for ((agent, key), count) in effects {
        let mut with_key = end
            .asked
            .iter()
            .filter(|a| (a.agent, a.once) == (agent, Some(key)));
        if with_key.all(|asked| asked.safety != ReplaySafety::Safe) {
            assert!(
                count <= 1,
                "{key} of {agent} has taken effect {count} times"
            );
        }
    }
}

/// No more runs of a tool than its limit.
fn at_a_time(of_tool: &[&Entry]) {
    let mut running = BTreeSet::new();
    for entry in of_tool {
        match &entry.what {
            What::Run { run, .. } => {
                running.insert(*run);
                assert!(
                    running.len() <= AT_A_TIME,
                    "{entry:?}: {} run",
                    running.len()
                );
            }
            What::Ended { run, .. } => {
                running.remove(run);
            }
            _ => {}
        }
    }
}

/// What a run says of its tool.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Success,
    Failure,
    Neutral,
}

fn verdict(how: &How, ran: &Running, now: Duration) -> Verdict {
    use ErrorKind as Kind;
    match how {
        How::Answered | How::Reported => Verdict::Success,
        How::Panicked => Verdict::Failure,
        How::TurnedAway(_) => Verdict::Neutral,
        How::Failed(kind) => match kind {
            Kind::Upstream | Kind::Timeout | Kind::ConnectionFailed | Kind::Failed => {
                Verdict::Failure
            }
            _ => Verdict::Neutral,
        },
        // By the layer whose time was up; or by its caller, or a layer above for its caller.
        How::Dropped => {
            let took = now - ran.since;
            let is_over = ran.until.is_some_and(|until| until <= now) && !took.is_zero();
            match took >= ran.timeout || is_over {
                true => Verdict::Failure,
                false => Verdict::Neutral,
            }
        }
    }
}

struct Running {
    since: Duration,
    /// After so long it is a timeout.
    timeout: Duration,
    until: Option<Duration>,
    period: u32,
}

/// Whether the run that ends at this entry was dropped by its caller, or for one who has cancelled.
fn is_given_up(of_tool: &[&Entry], i: usize) -> bool {
    let mut later = of_tool[i + 1..].iter();
    let next = later.find(|entry| {
        let is_between = matches!(entry.what, What::Breaker { .. } | What::Attempts(..));
        entry.call == of_tool[i].call && !is_between
    });
    next.is_some_and(|next| match next.what {
        What::Error { kind, .. } => kind == ErrorKind::Cancelled,
        ref what => matches!(what, What::Dropped),
    })
}

/// A breaker opens after so many failures in a row, no sooner and no later; while it is open
/// nothing runs, and while it is half-open one probe does.
fn breaker(of_tool: &[&Entry], end: &End) {
    let (mut state, mut period, mut since) = ("closed".to_owned(), 0, Duration::ZERO);
    let (mut failures, mut vain) = (0, 0);
    let mut last_probe = None;
    let mut running = BTreeMap::<u64, Running>::new();
    let mut judged = None;
    for (i, entry) in of_tool.iter().enumerate() {
        match &entry.what {
            What::Run { run, until, .. } => {
                let is_probe = state == "half_open";
                let others = running
                    .values()
                    .any(|r| r.period == period && entry.at < r.since + OPEN_FOR);
                let may = match &*state {
                    "closed" | "forced_closed" | "disabled" => true,
                    "half_open" => !others || vain >= 5,
                    _ => false,
                };
                assert!(may, "{entry:?}: the breaker is {state}");
                let asked = &end.asked[entry.call.expect("a call")];
                let ran = Running {
                    since: entry.at,
                    timeout: asked.timeout.unwrap_or(TIMEOUT),
                    until: *until,
                    period,
                };
                running.insert(*run, ran);
                if is_probe {
                    last_probe = Some(*run);
                }
            }
            What::Ended { run, how } => {
                let mut ran = running.remove(run).expect("a run");
                if is_given_up(of_tool, i) {
                    ran.timeout = TIMEOUT;
                }
                if ran.period != period || matches!(&*state, "disabled" | "forced_closed") {
                    continue;
                }
                match (&*state, verdict(how, &ran, entry.at)) {
                    ("closed", Verdict::Failure) => failures += 1,
                    ("closed", Verdict::Success) => failures = 0,
                    ("half_open", Verdict::Neutral) if last_probe == Some(*run) => vain += 1,
                    _ => {}
                }
            }
            // What runs says nothing of it any more. Of one that was not closed there is a
            // transition as well.
            What::Reset if state == "closed" => {
                failures = 0;
                period += 1;
            }
            // A failure as any other. The breaker has heard of it a moment before.
            What::Unready if judged == Some(i) => {}
            What::Unready => failures += u32::from(state == "closed"),
            What::Breaker { from, to, reason } => {
                assert_eq!(*from, state, "{entry:?}");
                let unready = |next: &&&Entry| matches!(next.what, What::Unready);
                if let Some(next) = of_tool.get(i + 1).filter(unready)
                    && next.call == entry.call
                    && next.at == entry.at
                {
                    judged = Some(i + 1);
                    failures += u32::from(state == "closed");
                }
                match &**reason {
                    "consecutive_failures" => assert!(
                        failures == FAILURES && state == "closed",
                        "{entry:?}: {failures} failures"
                    ),
                    "period_elapsed" => assert!(
                        entry.at + TICK >= since + OPEN_FOR && to == "half_open",
                        "{entry:?}: open since {since:?}"
                    ),
                    "probes_succeeded" | "probe_failed" => assert_eq!(state, "half_open"),
                    "forced" => {}
                    other => panic!("{other}"),
                }
                (state, since, failures, vain) = (to.clone(), entry.at, 0, 0);
                period += 1;
                last_probe = None;
            }
            What::Error {
                kind: ErrorKind::CircuitOpen,
                ..
            } => {
                assert!(
                    matches!(&*state, "open" | "half_open" | "forced_open"),
                    "{entry:?}: the breaker is {state}"
                );
            }
            _ => {
                assert!(
                    state != "closed" || failures < FAILURES,
                    "{entry:?}: closed after {failures} failures"
                );
            }
        }
    }
}

/// While a gate is closed nothing passes.
fn gate(of_tool: &[&Entry]) {
    let mut closed = Duration::ZERO;
    for entry in of_tool {
        let at = entry.at;
        match &entry.what {
            What::Ended {
                how: How::TurnedAway(later),
                ..
            } => {
                closed = closed.max(at + (*later).min(LONGEST_COOLDOWN));
            }
            What::Cooled(cooldown) => closed = closed.max(at + *cooldown),
            What::Cleared => closed = Duration::ZERO,
            What::PassedGate => {
                assert!(
                    at + TICK >= closed,
                    "{entry:?}: the gate is closed until {closed:?}"
                );
            }
            _ => {}
        }
    }
}

/// In any span of time no more calls than the burst and what has come back.
fn quota(of_tool: &[&Entry], end: &End) {
    let passed: Vec<_> = of_tool
        .iter()
        .filter(|entry| matches!(entry.what, What::PassedQuota))
        .map(|entry| entry.at)
        .collect();
    // After a jump those whose turn has come meanwhile are sent together.
    let spans = if end.has_jumped { 1 } else { passed.len() };
    for (first, since) in passed.iter().enumerate().take(spans) {
        let since = if end.has_jumped {
            Duration::ZERO
        } else {
            *since
        };
        for (last, at) in passed.iter().enumerate().skip(first) {
            let back = (*at - since + TICK).as_secs_f64() / TOKEN_EVERY.as_secs_f64();
            let most = f64::from(BURST) + back;
            let calls = last + 1 - first;
            assert!(
                calls as f64 <= most,
                "{calls} calls from {since:?} to {at:?}"
            );
        }
    }
}

/// No more retries of a tool than its budget has, and none is refused for its sake while it has
/// some. Until a tool asks for its first retry its calls are not known apart from those of others.
fn retry_budget(log: &[Entry], tool: &str) {
    let (mut calls, mut retries) = (Vec::new(), Vec::new());
    let within = |all: &[Duration], now: Duration, secs| {
        let since = now.saturating_sub(Duration::from_secs(secs));
        all.iter().filter(|at| **at >= since).count()
    };
    for entry in log {
        let now = entry.at;
        match entry.what {
            What::PassedQuota => calls.push(now),
            What::Retry if entry.tool == tool => {
                retries.push(now);
                // And the call itself, however long ago it began.
                let most = ((within(&calls, now, 20) + 1) / 5).max(MIN_RETRIES as usize);
                let done = within(&retries, now, 10);
                assert!(done <= most, "{entry:?}: {done} retries of {most}");
            }
            What::RetryRefused(RetryRefusal::Budget) if entry.tool == tool => {
                let done = within(&retries, now, 20);
                assert!(
                    done >= MIN_RETRIES as usize,
                    "{entry:?}: after {done} retries"
                );
            }
            _ => {}
        }
    }
}

/// What is counted is what has happened.
fn metrics(log: &[Entry], end: &End) {
    let total = &end.metrics.total;
    let count = |is: &dyn Fn(&Entry) -> bool| log.iter().filter(|entry| is(entry)).count() as u64;
    let dropped = count(&|e| matches!(e.what, What::Dropped));
    // The layer that knows names stands outside, and has met the metrics with the first call that
    // it lets pass.
    let is_known = |e: &Entry| matches!(e.what, What::Begun) && e.tool != "ghost";
    let first = log.iter().position(is_known).unwrap_or(log.len());
    let begun = log[first..].iter();
    let begun = begun.filter(|e| matches!(e.what, What::Begun)).count() as u64;
    let answers = count(&|e| matches!(e.what, What::Answer(_)));
    let panicked = count(&|e| {
        matches!(
            e.what,
            What::Error {
                kind: ErrorKind::Panicked,
                ..
            }
        )
    });
    let _ = (dropped, answers);
    assert_eq!(total.calls, begun, "calls");
    assert!(total.successes <= answers);
    assert_eq!(total.panicked, panicked, "panics");
    let retries = count(&|e| matches!(e.what, What::Retry));
    assert_eq!(total.retries.unwrap_or_default(), retries, "retries");
    assert_eq!(total.attempts, count(&|e| is_request(&e.what)), "attempts");
}

fn is_request(what: &What) -> bool {
    matches!(what, What::Run { .. } | What::Unready)
}
