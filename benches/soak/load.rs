//! Calls that arrive at a constant rate.

use std::{
    sync::{Arc, Mutex, Once, PoisonError},
    time::Duration,
};

use hdrhistogram::Histogram;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tower::{Service, ServiceExt};
use tower_toolcall::{ReplaySafety, ToolCall};

use crate::stack::{Answer, TOOLS, Tools};

/// Calls in flight: an arrival that finds more is not sent, and counted.
const MAX_IN_FLIGHT: u64 = 50_000;

/// What became of the calls of a period.
pub(crate) struct Taken {
    pub(crate) micros: Histogram<u64>,
    pub(crate) calls: u64,
    pub(crate) successes: u64,
    pub(crate) errors: u64,
    pub(crate) dropped: u64,
    pub(crate) refused: u64,
}

impl Taken {
    fn new() -> Self {
        let minute = 60_000_000;
        Self {
            micros: Histogram::new_with_bounds(1, minute, 3).expect("valid"),
            calls: 0,
            successes: 0,
            errors: 0,
            dropped: 0,
            refused: 0,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Load {
    rate: u64,
    state: Arc<Mutex<State>>,
}

struct State {
    taken: Taken,
    in_flight: u64,
}

enum End {
    Success,
    Error,
    Dropped,
}

impl Load {
    pub(crate) fn new(rate: u64) -> Self {
        let state = State {
            taken: Taken::new(),
            in_flight: 0,
        };
        Self {
            rate,
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn take(&self) -> Taken {
        self.with(|state| std::mem::replace(&mut state.taken, Taken::new()))
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.with(|state| state.in_flight)
    }

    /// Sends those that are due, every five milliseconds.
    pub(crate) async fn arrive(self, tools: Tools) {
        let since = Instant::now();
        let mut ticks = interval(Duration::from_millis(5));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sent = 0;
        loop {
            ticks.tick().await;
            let due = (since.elapsed().as_micros() as u64).saturating_mul(self.rate) / 1_000_000;
            while sent < due {
                let at = since + Duration::from_nanos(sent * 1_000_000_000 / self.rate);
                self.send(&tools, sent, at);
                sent += 1;
            }
        }
    }

    fn send(&self, tools: &Tools, n: u64, due: Instant) {
        let is_sent = self.with(|state| {
            let is_sent = state.in_flight < MAX_IN_FLIGHT;
            state.in_flight += u64::from(is_sent);
            state.taken.refused += u64::from(!is_sent);
            is_sent
        });
        if !is_sent {
            return;
        }
        let (load, mut tools, random) = (self.clone(), tools.clone(), mixed(n));
        tokio::spawn(async move {
            let run = async {
                let tools = tools.ready().await?;
                tools.call(call(n, random)).await
            };
            // One in a hundred hangs up.
            let ended = match random % 100 {
                7 => timeout(Duration::from_millis(random / 100 % 8), run).await,
                _ => Ok(run.await),
            };
            let end = match ended {
                Ok(Ok(answer)) => success(&answer),
                Err(_) => End::Dropped,
            };
            load.ended(due, end);
        });
    }

    fn ended(&self, due: Instant, end: End) {
        let micros = due.elapsed().as_micros() as u64;
        self.with(|state| {
            state.in_flight -= 1;
            state.taken.calls += 1;
            match end {
                End::Success => state.taken.successes += 1,
                End::Error => state.taken.errors += 1,
                End::Dropped => state.taken.dropped += 1,
            }
            state.taken.micros.saturating_record(micros.max(1));
        });
    }
}

fn success(answer: &Answer) -> End {
    match answer.is_success() {
        true => End::Success,
        false => End::Error,
    }
}

/// Splitmix64.
pub(crate) fn mixed(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) >> 1
}

fn call(n: u64, random: u64) -> ToolCall {
    let name = match random / 100 % 100 {
        0 => format!("invented{n}"),
        _ => format!("tool{}", random / 10_000 % TOOLS),
    };
    let safety = match random % 3 {
        0 => ReplaySafety::Safe,
        _ => ReplaySafety::Unknown,
    };
    let call = ToolCall::new(name)
        .with_id(n.to_string())
        .with_agent_id(format!("agent{}", random % 1_000))
        .with_replay_safety(safety);
    let call = match random % 20 {
        3 => call.with_once_key(n.to_string()),
        _ => call,
    };
    let arguments = json!({ "n": random % 50, "text": "what is asked for" });
    call.with_json(arguments).expect("an object")
}

/// How long the tool takes.
pub(crate) async fn works(random: u64) {
    match random % 4 {
        0 => {}
        1 => tokio::task::yield_now().await,
        _ => sleep(Duration::from_millis(random % 20)).await,
    }
}

/// Panics are meant here, and need not be printed.
pub(crate) fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<&str>() != Some(&"boom") {
                print(panic);
            }
        }));
    });
}
