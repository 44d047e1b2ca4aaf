//! What callers and an operator do.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, advance, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tower_toolcall::{
    ReplaySafety, ToolCall, ToolResult, circuit_breaker::BreakerState, result::Never,
};

use super::{
    Random,
    leaf::{Mood, Tool},
    log::{Call, Log, What},
    stack::{BURST, Stack},
};

pub(crate) const SERVER: &str = "docs";
pub(crate) const TOOLS: [&str; 5] = ["pay", "search", "read", "ghost", "forbidden"];

/// What a caller asks for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) tool: &'static str,
    pub(crate) safety: ReplaySafety,
    pub(crate) agent: &'static str,
    pub(crate) once: Option<&'static str>,
    pub(crate) n: Option<u64>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) begun: Duration,
}

/// What is known at the end.
pub(crate) struct End {
    pub(crate) asked: Vec<Asked>,
    pub(crate) has_jumped: bool,
    pub(crate) metrics: tower_toolcall::tool_metrics::Snapshot,
}

/// Ids of calls are their numbers.
pub(crate) fn number_of(id: Option<&str>) -> Call {
    id?.parse().ok()
}

fn named(tool: &str) -> ToolCall {
    ToolCall::new(tool).with_server(SERVER)
}

struct Schedule<'a> {
    random: Random,
    log: &'a Log,
    stack: Stack,
    tool: Tool,
    asked: Vec<Asked>,
    tokens: Vec<CancellationToken>,
    tasks: Vec<Option<JoinHandle<()>>>,
    jumps: bool,
}

pub(crate) async fn run(seed: u64, log: &Log) -> End {
    let tool = Tool::new(seed, log);
    let mut random = Random::new(seed);
    let jumps = random.once_in(2);
    let mut schedule = Schedule {
        stack: Stack::new(seed, &tool, log),
        random,
        log,
        tool,
        asked: Vec::new(),
        tokens: Vec::new(),
        tasks: Vec::new(),
        jumps,
    };
    schedule.turns();
    let steps = 5 + schedule.random.below(40);
    for _ in 0..steps {
        schedule.step().await;
    }
    schedule.ends().await;
    schedule.is_whole().await;
    End {
        metrics: schedule.stack.metrics.snapshot(),
        has_jumped: jumps,
        asked: schedule.asked,
    }
}

impl Schedule<'_> {
    async fn step(&mut self) {
        match self.random.below(20) {
            0..=9 => {
                // One, or a crowd.
                for _ in 0..self.random.pick(&[1, 1, 1, 2, 6]) {
                    self.begins();
                }
            }
            10 | 11 => sleep(Duration::from_millis(self.random.below(50))).await,
            12 | 13 => {
                let most = self.random.pick(&[2_000, 10_000, 70_000]);
                sleep(Duration::from_millis(self.random.below(most))).await;
            }
            14 if self.jumps => {
                let far = self.random.pick(&[1, 15, 60, 300]);
                let by = Duration::from_millis(self.random.below(1_000 * far));
                advance(by).await;
                self.log.add(None, "", What::Jumped(by));
            }
            15 => self.turns(),
            16 => self.forces(),
            17 if !self.tokens.is_empty() => {
                let call = self.random.below(self.tokens.len() as u64) as usize;
                self.log.add(Some(call), "", What::Cancelled);
                self.tokens[call].cancel();
            }
            18 if !self.tasks.is_empty() => {
                let call = self.random.below(self.tasks.len() as u64) as usize;
                if let Some(task) = &self.tasks[call] {
                    task.abort();
                }
            }
            _ => tokio::task::yield_now().await,
        }
    }

    fn turns(&mut self) {
        let moods = [
            Mood::Well,
            Mood::Mixed,
            Mood::Broken,
            Mood::Broken,
            Mood::Busy,
        ];
        self.tool.is(self.random.pick(&moods));
    }

    fn forces(&mut self) {
        let tool = self.random.pick(&TOOLS[..3]);
        let breaker = self.stack.breakers.breaker(&named(tool));
        match self.random.below(8) {
            0 => breaker.force_open(),
            1 => breaker.force_closed(),
            2 => breaker.disable(),
            3..=5 => {
                self.log.add(None, tool, What::Reset);
                breaker.reset();
            }
            6 => {
                let cooldown = Duration::from_secs(self.random.below(100));
                self.log.add(None, tool, What::Cooled(cooldown));
                self.stack.gates.cool(&named(tool), cooldown);
            }
            _ => {
                self.log.add(None, tool, What::Cleared);
                self.stack.gates.clear(&named(tool));
            }
        }
    }

    fn begins(&mut self) {
        let random = &mut self.random;
        let seldom = |random: &mut Random, n, ms: u64| {
            let is_so = random.once_in(n);
            is_so.then(|| Duration::from_millis(random.below(ms)))
        };
        let safety = [
            ReplaySafety::Safe,
            ReplaySafety::Unsafe,
            ReplaySafety::Unknown,
        ];
        let asked = Asked {
            tool: match random.below(40) {
                0 => "ghost",
                1 => "forbidden",
                2..=19 => "pay",
                20..=29 => "search",
                _ => "read",
            },
            safety: random.pick(&safety),
            agent: random.pick(&["ada", "bob"]),
            once: random.pick(&[None, None, Some("k1"), Some("k2")]),
            n: (!random.once_in(30)).then(|| random.below(3)),
            timeout: seldom(random, 5, 12_000),
            deadline: seldom(random, 4, 40_000),
            begun: self.log.at(Instant::now()),
        };
        let token = CancellationToken::new();
        let call = asked.call(self.asked.len(), &token);
        let polls = random.once_in(6).then(|| 1 + random.below(12));
        let spurious = random.below(4);
        self.begin(asked, call, token, polls, spurious);
    }

    fn begin(
        &mut self,
        asked: Asked,
        call: ToolCall,
        token: CancellationToken,
        polls: Option<u64>,
        spurious: u64,
    ) {
        let caller = Caller {
            future: Some(Box::pin(self.stack.tools.clone().oneshot(call))),
            number: self.asked.len(),
            tool: asked.tool,
            log: self.log.clone(),
            has_begun: false,
            polls,
            spurious,
        };
        self.tasks.push(Some(tokio::spawn(caller)));
        self.tokens.push(token);
        self.asked.push(asked);
    }

    /// Every call ends, and holds nothing any more.
    async fn ends(&mut self) {
        for (call, task) in self.tasks.iter_mut().enumerate() {
            let ended = timeout(Duration::from_secs(1_000), task.take().unwrap()).await;
            let ended = ended.unwrap_or_else(|_| panic!("call {call} hangs"));
            if let Err(error) = ended {
                assert!(error.is_cancelled(), "call {call}: {error}");
            }
        }
        assert_eq!(self.tool.left(), (0, 0), "runs and places that are left");
        let loads = self.stack.limits.loads();
        assert!(loads.is_empty(), "permits that are held: {loads:?}");
        assert_eq!(self.stack.metrics.snapshot().total.in_flight, 0);
    }

    /// Nothing is stuck: as soon as the tool is well, and every time is over, calls succeed at
    /// once.
    async fn is_whole(&mut self) {
        self.tool.is(Mood::Well);
        for tool in &TOOLS[..3] {
            let breaker = self.stack.breakers.breaker(&named(tool));
            let forced = [
                BreakerState::ForcedOpen,
                BreakerState::ForcedClosed,
                BreakerState::Disabled,
            ];
            if forced.contains(&breaker.state()) {
                breaker.reset();
            }
        }
        // The longest cooldown and its return, the breaker's period, the repeat guard's window, the
        // tokens of the quota.
        sleep(Duration::from_secs(600)).await;
        assert!(self.stack.gates.cooldowns().is_empty());
        for tool in &TOOLS[..3] {
            assert_eq!(
                self.stack.quotas.remaining(&named(tool)),
                BURST,
                "tokens of {tool} are lost"
            );
            for _ in 0..2 {
                let asked = Asked {
                    tool,
                    safety: ReplaySafety::Unsafe,
                    agent: "eve",
                    once: None,
                    n: Some(self.asked.len() as u64),
                    timeout: None,
                    deadline: None,
                    begun: Duration::ZERO,
                };
                let (number, token) = (self.asked.len(), CancellationToken::new());
                let call = asked.call(number, &token);
                self.begin(asked, call, token, None, 0);
                let begun = Instant::now();
                self.tasks[number].take().unwrap().await.unwrap();
                assert_eq!(begun.elapsed(), Duration::ZERO, "{tool} is held back");
                let entries = self.log.entries();
                let last = entries.iter().rfind(|entry| entry.call == Some(number));
                assert!(
                    matches!(last.unwrap().what, What::Answer(_)),
                    "{tool} is stuck: {last:?}"
                );
            }
            let state = self.stack.breakers.breaker(&named(tool)).state();
            assert_eq!(state, BreakerState::Closed, "{tool}");
        }
        assert_eq!(self.tool.left(), (0, 0));
        assert_eq!(self.stack.metrics.snapshot().total.in_flight, 0);
        assert!(self.stack.health.snapshot().len() <= 1);
        assert!(self.stack.cache.len() <= self.asked.len());
    }
}

impl Asked {
    fn call(&self, number: usize, token: &CancellationToken) -> ToolCall {
        let mut call = ToolCall::new(self.tool)
            .with_id(number.to_string())
            .with_agent_id(self.agent)
            .with_replay_safety(self.safety)
            .with_cancellation(token.clone());
        if let Some(key) = self.once {
            call = call.with_once_key(key);
        }
        if let Some(n) = self.n {
            call = call.with_json(json!({ "n": n })).unwrap();
        }
        if let Some(timeout) = self.timeout {
            call = call.with_timeout(timeout);
        }
        if let Some(deadline) = self.deadline {
            call = call.with_deadline(Instant::now() + deadline);
        }
        call
    }
}

type Answer = Result<ToolResult<u64>, Never>;

/// A caller: it may poll once too often, and drops the call after so many polls.
struct Caller {
    future: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    number: usize,
    tool: &'static str,
    log: Log,
    has_begun: bool,
    polls: Option<u64>,
    spurious: u64,
}

impl Caller {
    fn write(&self, what: What) {
        self.log.add(Some(self.number), self.tool, what);
    }
}

impl Future for Caller {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.has_begun {
            self.has_begun = true;
            self.write(What::Begun);
        }
        if self.polls == Some(0) {
            return Poll::Ready(());
        }
        self.polls = self.polls.map(|polls| polls - 1);
        let future = self.future.as_mut().expect("polled after completion");
        let Poll::Ready(Ok(result)) = future.as_mut().poll(cx) else {
            if self.spurious > 0 {
                self.spurious -= 1;
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        };
        self.write(What::Attempts("result", result.attempts()));
        if let Some(attempts) = result.error().and_then(|error| error.attempts()) {
            self.write(What::Attempts("error", attempts));
        }
        self.write(match (result.data(), result.error()) {
            (Some(run), _) => What::Answer(*run),
            (None, error) => {
                let error = error.expect("data or an error");
                What::Error {
                    kind: error.kind(),
                    code: error.code().to_owned(),
                    execution: error.execution(),
                    attempts: result.attempts(),
                }
            }
        });
        self.future = None;
        Poll::Ready(())
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            drop(future);
            if self.has_begun {
                self.write(What::Dropped);
            }
        }
    }
}
