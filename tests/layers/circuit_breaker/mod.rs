//! The circuit breaker, seen from outside: what its requirements (C1-C10) and the traps of other
//! breakers ask of it.

mod adopted;
mod configuration;
mod handle;
mod outage;
mod probes;
mod requirements;
mod stack;
mod stress;
mod traces;
mod traps;
mod weak;
mod windows;

use std::time::Duration;

use tokio::time::advance;
use tokio_test::{assert_pending, task};
use tower::{Layer, ServiceExt, util::Oneshot};
use tower_toolcall::{
    ErrorKind, Event, ToolCall, ToolError,
    circuit_breaker::{
        Breaker, CircuitBreaker, CircuitBreakerBuilder, CircuitBreakerHandle, CircuitBreakerLayer,
        Transition,
    },
    outcome::ByError,
};
use tower_toolcall_test::{Events, Script, Step};

use crate::kit::call;

type Tool = Script<&'static str>;
type Answer = Result<&'static str, ToolError>;

fn ok() -> Step<&'static str> {
    Step::ok("answer")
}

fn fails() -> Step<&'static str> {
    Step::fail(ErrorKind::Upstream)
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
        let tool = Tool::always(ok());
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
    async fn ask(&self, does: Step<&'static str>) -> Answer {
        self.tool.set_then(does);
        self.send(call()).await
    }

    /// Whether the tool was asked; it does so.
    async fn reaches(&self, does: Step<&'static str>) -> bool {
        let before = self.tool.count();
        let _ = self.ask(does).await;
        self.tool.count() > before
    }

    async fn fails(&self, times: usize) {
        for _ in 0..times {
            assert_eq!(kind(self.ask(fails()).await), ErrorKind::Upstream);
        }
    }

    /// Starts a call that the tool does not answer.
    fn hangs(&self) -> Running {
        self.starts(Step::hang(), call())
    }

    fn starts(&self, does: Step<&'static str>, call: ToolCall) -> Running {
        self.tool.set_then(does);
        let before = self.tool.count();
        let mut running = task::spawn(self.svc.clone().oneshot(call));
        assert_pending!(running.poll());
        assert_eq!(self.tool.count(), before + 1, "the call was not admitted");
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

/// A listener for transitions, each with the id of the call that brought it about.
fn transitions() -> Events<(Transition, Option<String>)> {
    Events::pick(|event| match event {
        Event::Transition {
            transition, call, ..
        } => {
            let id = call.and_then(|call| call.id()).map(str::to_owned);
            Some(((*transition).clone(), id))
        }
        _ => None,
    })
}
