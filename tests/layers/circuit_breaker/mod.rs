//! The circuit breaker, seen from outside: what its requirements (C1-C10) and the traps of other breakers
//! ask of it.

mod configuration;
mod handle;
mod published_behaviours;
mod requirements;
mod stack;
mod traps;
mod windows;

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{advance, sleep};
use tokio_test::{assert_pending, task};
use tower::{Layer, Service, ServiceExt, util::Oneshot};
use tower_toolcall::{
    ErrorKind, Event, ToolCall, ToolError,
    circuit_breaker::{
        Breaker, CircuitBreaker, CircuitBreakerBuilder, CircuitBreakerHandle, CircuitBreakerLayer,
        Transition,
    },
    outcome::ByError,
};

use crate::kit::call;

/// What a tool does with a call.
#[derive(Clone, Copy, Debug)]
enum Act {
    Succeeds,
    Fails(ErrorKind),
    /// After so long.
    SucceedsIn(Duration),
    FailsIn(Duration, ErrorKind),
    Hangs,
    Panics,
    PanicsInCall,
}

const FAILS: Act = Act::Fails(ErrorKind::Upstream);

/// A tool that does as it is told, and counts its calls.
#[derive(Clone, Debug)]
struct Tool {
    act: Arc<Mutex<Act>>,
    calls: Arc<AtomicUsize>,
}

type Answer = Result<&'static str, ToolError>;

impl Tool {
    fn new(act: Act) -> Self {
        Self {
            act: Arc::new(Mutex::new(act)),
            calls: Arc::default(),
        }
    }

    /// From the next call on.
    fn does(&self, act: Act) {
        *self.act.lock().unwrap() = act;
    }

    fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }
}

impl Service<ToolCall> for Tool {
    type Response = &'static str;
    type Error = ToolError;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ToolCall) -> Self::Future {
        self.calls.fetch_add(1, SeqCst);
        let act = *self.act.lock().unwrap();
        assert!(!matches!(act, Act::PanicsInCall), "the tool panics");
        Box::pin(async move {
            match act {
                Act::Succeeds => Ok("answer"),
                Act::Fails(kind) => Err(ToolError::new(kind, "told to fail")),
                Act::SucceedsIn(d) => {
                    sleep(d).await;
                    Ok("answer")
                }
                Act::FailsIn(d, kind) => {
                    sleep(d).await;
                    Err(ToolError::new(kind, "told to fail"))
                }
                Act::Hangs => pending().await,
                Act::Panics | Act::PanicsInCall => panic!("the tool panics"),
            }
        })
    }
}

/// A breaker around a tool.
struct Rig {
    tool: Tool,
    svc: CircuitBreaker<Tool, ByError>,
    handle: CircuitBreakerHandle,
}

type Running = task::Spawn<Oneshot<CircuitBreaker<Tool, ByError>, ToolCall>>;

impl Rig {
    fn new(builder: CircuitBreakerBuilder) -> Self {
        let tool = Tool::new(Act::Succeeds);
        let layer = builder.build().unwrap();
        Self {
            svc: layer.layer(tool.clone()),
            handle: layer.handle(),
            tool,
        }
    }

    async fn send(&self, call: ToolCall) -> Answer {
        self.svc.clone().oneshot(call).await
    }

    /// Makes the usual call, and the tool does so.
    async fn ask(&self, act: Act) -> Answer {
        self.tool.does(act);
        self.send(call()).await
    }

    /// Whether the tool was asked; it does so.
    async fn reaches(&self, act: Act) -> bool {
        let before = self.tool.calls();
        let _ = self.ask(act).await;
        self.tool.calls() > before
    }

    async fn fails(&self, times: usize) {
        for _ in 0..times {
            assert_eq!(kind(self.ask(FAILS).await), ErrorKind::Upstream);
        }
    }

    /// Starts a call that the tool does not answer.
    fn hangs(&self) -> Running {
        self.starts(Act::Hangs, call())
    }

    fn starts(&self, act: Act, call: ToolCall) -> Running {
        self.tool.does(act);
        let before = self.tool.calls();
        let mut running = task::spawn(self.svc.clone().oneshot(call));
        assert_pending!(running.poll());
        assert_eq!(self.tool.calls(), before + 1, "the call was not admitted");
        running
    }

    /// Opens the breaker and lets its period pass: the next call is a probe.
    async fn half_opens(&self) {
        self.fails(5).await;
        assert!(self.breaker().is_open());
        advance(secs(60)).await;
    }

    fn breaker(&self) -> Breaker {
        self.handle.breaker(&call())
    }
}

fn default_rig() -> Rig {
    Rig::new(CircuitBreakerLayer::builder())
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn tool(name: &str) -> ToolCall {
    ToolCall::new(name).with_server("docs")
}

#[track_caller]
fn kind(answer: Answer) -> ErrorKind {
    answer.unwrap_err().kind()
}

/// Transitions that a listener has heard of.
type Heard = Arc<Mutex<Vec<(Transition, Option<String>)>>>;

/// A listener that keeps what it hears, with the id of the call that brought it about.
fn hears(heard: &Heard) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
    let heard = heard.clone();
    move |event: &Event<'_>| {
        if let Event::Transition {
            transition, call, ..
        } = event
        {
            let id = call.and_then(|call| call.id()).map(str::to_owned);
            heard.lock().unwrap().push(((*transition).clone(), id));
        }
    }
}
