use std::{future::Future, mem, sync::Arc};

use tokio::{sync::watch, task::coop::unconstrained};

use super::first::first;
use crate::{
    call::CallInfo,
    error::{ErrorKind, Execution, ToolError},
    text::Short,
};

/// The code of the errors of calls that a closing server does not run, or not to their end.
const SERVER_CLOSING: &str = "SERVER_CLOSING";

/// Counts the calls that run, and ends them. Clones share the count.
#[derive(Clone, Default)]
pub(super) struct Drain(Arc<watch::Sender<State>>);

#[derive(Default)]
struct State {
    running: usize,
    phase: Phase,
    /// The tools of the calls that were cut short.
    cut: Vec<String>,
}

#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
enum Phase {
    #[default]
    Open,
    /// No call begins.
    Closed,
    /// No call goes on.
    Cut,
}

impl Drain {
    pub(super) fn running(&self) -> usize {
        self.0.borrow().running
    }

    /// Runs a call, unless no call begins any more, and as long as calls go on.
    pub(super) async fn run<T>(
        &self,
        info: &CallInfo,
        call: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        let running = self.enter().ok_or_else(refused)?;
        let cut = unconstrained(self.reached(Phase::Cut));
        first(call, cut).await.unwrap_or_else(|()| {
            running.note_cut(name(info));
            Err(cut_short(info.tool()))
        })
    }

    /// Counts one more call until the guard is dropped; `None` if no call begins any more.
    fn enter(&self) -> Option<Running<'_>> {
        let mut entered = false;
        // No one waits for the count to rise.
        self.0.send_if_modified(|state| {
            entered = state.phase == Phase::Open;
            state.running += usize::from(entered);
            false
        });
        entered.then(|| Running(self))
    }

    pub(super) fn close(&self) {
        self.advance(Phase::Closed);
    }

    pub(super) async fn closed(&self) {
        self.reached(Phase::Closed).await;
    }

    /// For after [`close`](Self::close): calls that end before wake no one.
    pub(super) async fn drained(&self) {
        self.until(|state| state.running == 0).await;
    }

    /// Cuts short what runs, and waits until nothing does. The tools of the calls, in order, each
    /// once more for each call.
    pub(super) async fn cut_short(&self) -> Vec<String> {
        self.advance(Phase::Cut);
        self.drained().await;
        let mut tools = Vec::new();
        self.0.send_if_modified(|state| {
            tools = mem::take(&mut state.cut);
            false
        });
        tools.sort();
        tools
    }

    fn advance(&self, to: Phase) {
        self.0.send_if_modified(|state| {
            let advances = state.phase < to;
            if advances {
                state.phase = to;
            }
            advances
        });
    }

    async fn reached(&self, phase: Phase) {
        self.until(|state| state.phase >= phase).await;
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        // The sender is here, so it cannot fail.
        let _ = self.0.subscribe().wait_for(|state| is_so(state)).await;
    }
}

/// The tool's name, as lists have it, whichever way the call has come.
fn name(call: &CallInfo) -> String {
    match call.server() {
        Some(server) => format!("{server}__{}", call.tool()),
        None => call.tool().to_owned(),
    }
}

/// The error of a call that is not begun.
fn refused() -> ToolError {
    ToolError::refusal(ErrorKind::Overloaded, "the server is closing").with_code(SERVER_CLOSING)
}

/// The error of a call that ran.
fn cut_short(tool: &str) -> ToolError {
    let text = format!(
        "The call of tool '{}' was cut short, as the server is closing; it may have run all the same. Do not repeat the same call.",
        Short::name(tool)
    );
    ToolError::new(
        ErrorKind::Overloaded,
        "the server is closing: the call was cut short",
    )
    .with_code(SERVER_CLOSING)
    .with_execution(Execution::Unknown)
    .with_retryable(false)
    .with_model_message(text.as_str())
    .with_user_message(text)
}

/// One of those that run.
struct Running<'a>(&'a Drain);

impl Running<'_> {
    fn note_cut(&self, tool: String) {
        self.0.0.send_if_modified(|state| {
            state.cut.push(tool);
            false
        });
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.0.send_if_modified(|state| {
            state.running -= 1;
            state.phase > Phase::Open && state.running == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        task::Poll,
        time::Duration,
    };

    use tokio::time::timeout;

    use super::*;
    use crate::ToolCall;

    fn info(tool: &str) -> CallInfo {
        ToolCall::new(tool).info()
    }

    #[tokio::test]
    async fn it_is_drained_when_the_last_one_ends() {
        let drain = Drain::default();
        let (a, b) = (drain.enter().unwrap(), drain.enter().unwrap());
        drain.close();
        assert!(drain.enter().is_none());
        let mut drained = tokio_test::task::spawn(drain.drained());
        assert!(drained.poll().is_pending());
        drop(a);
        assert!(!drained.is_woken());
        drop(b);
        assert!(drained.is_woken());
        assert!(drained.poll().is_ready());
        assert_eq!(drain.running(), 0);
    }

    /// Thousands of streams may wait for the end, and calls come and go.
    #[tokio::test]
    async fn nobody_is_woken_by_calls_before_it_closes() {
        let drain = Drain::default();
        let mut closed = tokio_test::task::spawn(drain.closed());
        assert!(closed.poll().is_pending());
        drop(drain.enter());
        assert!(!closed.is_woken());
        drain.close();
        assert!(closed.is_woken());
        assert!(closed.poll().is_ready());
    }

    #[tokio::test]
    async fn an_answer_that_is_there_is_not_cut_short() {
        let drain = Drain::default();
        let go = tokio::sync::Notify::new();
        let call = async {
            go.notified().await;
            Ok(7)
        };
        let a = info("a");
        let mut call = tokio_test::task::spawn(drain.run(&a, call));
        assert!(call.poll().is_pending());
        go.notify_one();
        drain.advance(Phase::Cut);
        assert!(matches!(call.poll(), Poll::Ready(Ok(7))));
        drop(call);
        assert!(drain.cut_short().await.is_empty());
    }

    /// Also of a call that never waits, and so uses up all the time that its task has.
    #[tokio::test]
    async fn what_is_cut_short_is_named_once() {
        let drain = Drain::default();
        let (a, b) = (info("a"), info("b"));
        let busy = async {
            loop {
                tokio::task::consume_budget().await;
            }
        };
        let calls = async {
            tokio::join!(
                drain.run::<()>(&b, pending()),
                drain.run::<()>(&a, busy),
                drain.run::<()>(&b, pending()),
                drain.run(&a, ready(Ok(7))),
            )
        };
        let cut = async {
            while drain.running() != 3 {
                tokio::task::yield_now().await;
            }
            drain.cut_short().await
        };
        let (calls, cut) = timeout(Duration::from_secs(10), async { tokio::join!(calls, cut) })
            .await
            .unwrap();
        assert_eq!(cut, ["a", "b", "b"]);
        for error in [calls.0, calls.1, calls.2].map(Result::unwrap_err) {
            assert_eq!(error.execution(), Execution::Unknown);
            assert!(!error.is_retryable() && error.model_message().chars().count() <= 200);
        }
        assert_eq!(calls.3.unwrap(), 7);
        assert!(drain.cut_short().await.is_empty());
        let late = drain.run(&a, ready(Ok(7))).await.unwrap_err();
        assert_eq!(
            (late.execution(), late.is_own_refusal()),
            (Execution::NotStarted, true)
        );
    }
}
