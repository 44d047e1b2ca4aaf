//! The tool: it does what the seed says, and writes down what was done to it.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, Once},
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::StatusCode;
use tokio::time::{Sleep, sleep};
use tower::Service;
use tower_toolcall::{BoxError, ErrorKind, Execution, ToolCall, ToolError};

use super::{
    Random,
    log::{Call, How, Log, What},
    plan::number_of,
};

/// How many instances may be ready at a time, and not called: what a layer holds while it waits is
/// missing to others.
const PLACES: usize = 3;

pub(crate) const NOT_READY: &str = "the tool is not ready";

/// How well the tool is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mood {
    Well,
    Mixed,
    Broken,
    Busy,
}

#[derive(Clone)]
pub(crate) struct Tool(Arc<World>);

struct World {
    log: Log,
    state: Mutex<State>,
}

struct State {
    random: Random,
    mood: Mood,
    runs: u64,
    alive: usize,
    reserved: usize,
    waiting: Vec<Waker>,
}

impl Tool {
    pub(crate) fn new(seed: u64, log: &Log) -> Self {
        Self(Arc::new(World {
            log: log.clone(),
            state: Mutex::new(State {
                random: Random::new(seed ^ 0x7001),
                mood: Mood::Mixed,
                runs: 0,
                alive: 0,
                reserved: 0,
                waiting: Vec::new(),
            }),
        }))
    }

    pub(crate) fn instance(&self) -> Instance {
        Instance {
            tool: self.clone(),
            readiness: Readiness::Unknown,
        }
    }

    pub(crate) fn is(&self, mood: Mood) {
        self.0.state.lock().unwrap().mood = mood;
    }

    /// Runs that have not ended, and places that are held.
    pub(crate) fn left(&self) -> (usize, usize) {
        let state = self.0.state.lock().unwrap();
        (state.alive, state.reserved)
    }
}

enum Readiness {
    Unknown,
    /// After some time.
    Later(Pin<Box<Sleep>>),
    Ready,
    Failed,
}

pub(crate) struct Instance {
    tool: Tool,
    readiness: Readiness,
}

impl Clone for Instance {
    fn clone(&self) -> Self {
        self.tool.instance()
    }
}

impl Instance {
    fn release(&mut self) {
        if let Readiness::Ready = self.readiness {
            let mut state = self.tool.0.state.lock().unwrap();
            state.reserved -= 1;
            state.waiting.drain(..).for_each(Waker::wake);
        }
        self.readiness = Readiness::Unknown;
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.release();
    }
}

impl Service<ToolCall> for Instance {
    type Response = u64;
    type Error = ToolError;
    type Future = Run;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        loop {
            match &mut self.readiness {
                Readiness::Ready => return Poll::Ready(Ok(())),
                Readiness::Failed => panic!("polled after it failed"),
                Readiness::Later(later) => {
                    std::task::ready!(later.as_mut().poll(cx));
                    self.readiness = Readiness::Unknown;
                }
                Readiness::Unknown => {}
            }
            let mut state = self.tool.0.state.lock().unwrap();
            let may_fail = state.mood != Mood::Well;
            if may_fail && state.random.once_in(30) {
                drop(state);
                self.readiness = Readiness::Failed;
                self.tool.0.log.add(None, "", What::NotReady);
                let error = ToolError::new(ErrorKind::ConnectionFailed, NOT_READY);
                return Poll::Ready(Err(error.with_execution(Execution::NotStarted)));
            }
            if may_fail && state.random.once_in(10) {
                let ms = state.random.below(3_000);
                self.readiness = Readiness::Later(Box::pin(sleep(Duration::from_millis(ms))));
                continue;
            }
            if state.reserved == PLACES {
                state.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
            state.reserved += 1;
            self.readiness = Readiness::Ready;
        }
    }

    fn call(&mut self, call: ToolCall) -> Run {
        assert!(
            matches!(self.readiness, Readiness::Ready),
            "called without being ready"
        );
        self.release();
        let world = Arc::clone(&self.tool.0);
        let number = number_of(call.id());
        let (run, script) = {
            let mut state = world.state.lock().unwrap();
            state.runs += 1;
            (state.runs, state.script())
        };
        let name = call.tool().to_owned();
        let what = What::Run {
            run,
            attempt: call.attempt(),
            until: call.deadline().map(|until| world.log.at(until)),
        };
        world.log.add(number, &name, what);
        if let Ending::PanicsInCall = script.ending {
            let how = How::Panicked;
            world.log.add(number, &name, What::Ended { run, how });
            panic!("boom");
        }
        world.state.lock().unwrap().alive += 1;
        Run {
            world,
            number,
            call: Some(call),
            name,
            run,
            script,
            sleep: None,
            has_acted: false,
            how: None,
        }
    }
}

/// What a run of the tool does.
#[derive(Clone, Copy, Debug)]
struct Script {
    takes: Duration,
    /// How often it is polled in vain before.
    yields: u64,
    ending: Ending,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Answers,
    Reports,
    Hangs,
    PanicsInCall,
    Panics,
    PanicsInDrop,
    /// A status of its server's, or an own word.
    Status(u16),
    /// The same, with a time to come back: it was turned away.
    StatusLater(u16, Duration),
    /// Words of the tool, from the middle of its work.
    Says(&'static str),
    Unreachable,
    Refuses(ErrorKind),
}

impl State {
    fn script(&mut self) -> Script {
        use Ending::*;
        let random = &mut self.random;
        let ms = match random.below(10) {
            0..=3 => 0,
            4..=6 => random.below(50),
            7 | 8 => random.below(3_000),
            _ => random.below(12_000),
        };
        let later =
            Duration::from_millis([0, 500, 5_000, 30_000, 400_000][random.below(5) as usize]);
        let broken = [
            Status(503),
            Status(500),
            Status(503),
            Says("503 Service Unavailable"),
            Says("connection reset by peer"),
            Says("the disk is full"),
            Unreachable,
            Hangs,
            Panics,
            PanicsInCall,
            PanicsInDrop,
            StatusLater(503, later),
        ];
        let busy = [
            StatusLater(429, later),
            StatusLater(429, later),
            Says("429 Too Many Requests, retry after 2 s"),
            Answers,
        ];
        let other = [
            Refuses(ErrorKind::NotFound),
            Refuses(ErrorKind::InvalidInput),
            Refuses(ErrorKind::Denied),
            Reports,
            Says("no such city"),
        ];
        let ending = match (self.mood, random.below(10)) {
            (Mood::Well, _) => Answers,
            (Mood::Broken, 0..=8) => random.pick(&broken),
            (Mood::Busy, 0..=6) => random.pick(&busy),
            (Mood::Mixed, 0 | 1) => random.pick(&broken),
            (Mood::Mixed, 2) => random.pick(&busy),
            (Mood::Mixed, 3) => random.pick(&other),
            _ => Answers,
        };
        Script {
            takes: Duration::from_millis(if self.mood == Mood::Well { 0 } else { ms }),
            yields: random.below(3),
            ending,
        }
    }
}

pub(crate) struct Run {
    world: Arc<World>,
    number: Call,
    call: Option<ToolCall>,
    name: String,
    run: u64,
    script: Script,
    sleep: Option<Pin<Box<Sleep>>>,
    has_acted: bool,
    how: Option<How>,
}

impl Run {
    fn write(&self, what: What) {
        self.world.log.add(self.number, &self.name, what);
    }

    /// Whether it has an effect: all but what was turned away.
    fn acts(&self) -> bool {
        use Ending::*;
        !matches!(
            self.script.ending,
            StatusLater(..) | Unreachable | Refuses(_) | PanicsInCall
        )
    }
}

impl Future for Run {
    type Output = Result<u64, ToolError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(self.how.is_none(), "polled after completion");
        let this = &mut *self;
        if this.acts() && !this.has_acted {
            this.has_acted = true;
            this.write(What::Effect);
        }
        if this.script.yields > 0 {
            this.script.yields -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let takes = this.script.takes;
        if !takes.is_zero() {
            let sleep = this.sleep.get_or_insert_with(|| Box::pin(sleep(takes)));
            std::task::ready!(sleep.as_mut().poll(cx));
        }
        let status = |status| StatusCode::from_u16(status).unwrap();
        let (how, result) = match this.script.ending {
            Ending::Answers => (How::Answered, Ok(this.run)),
            Ending::Reports => {
                let call = this.call.take().unwrap();
                call.info().record(|record| record.set_reported(true));
                (How::Reported, Ok(this.run))
            }
            Ending::Hangs => return Poll::Pending,
            Ending::Panics | Ending::PanicsInCall => {
                this.how = Some(How::Panicked);
                panic!("boom")
            }
            // The answer stands.
            Ending::PanicsInDrop => (How::Answered, Ok(this.run)),
            Ending::Status(code) => {
                let error = ToolError::from_status(status(code), "failed");
                (How::Failed(error.kind()), Err(error))
            }
            Ending::StatusLater(code, later) => {
                let error = ToolError::from_status(status(code), "later").with_retry_after(later);
                match code {
                    429 => (How::TurnedAway(later), Err(error)),
                    _ => (How::Failed(error.kind()), Err(error)),
                }
            }
            Ending::Says(text) => {
                let error = ToolError::from_box(BoxError::from(text));
                (How::Failed(error.kind()), Err(error))
            }
            Ending::Unreachable => {
                let error = ToolError::new(ErrorKind::ConnectionFailed, "refused");
                let error = error.with_execution(Execution::NotStarted);
                (How::Failed(error.kind()), Err(error))
            }
            Ending::Refuses(kind) => (How::Failed(kind), Err(ToolError::new(kind, "no"))),
        };
        this.how = Some(how);
        Poll::Ready(result)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let how = self.how.take().unwrap_or(How::Dropped);
        let bursts = matches!(self.script.ending, Ending::PanicsInDrop) && how == How::Answered;
        self.write(What::Ended { run: self.run, how });
        self.world.state.lock().unwrap().alive -= 1;
        if bursts && !std::thread::panicking() {
            panic!("boom");
        }
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
