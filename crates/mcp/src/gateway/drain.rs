use std::{
    future::Future,
    mem,
    sync::{Arc, Mutex},
};

use tokio::task::coop::unconstrained;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_toolcall::{
    call::CallInfo,
    error::{ErrorKind, Execution, ToolError},
    event::shown_name,
};

use crate::future::{first, lock};

/// The code of the errors of calls that a closing server does not run, or not to their end.
const SERVER_CLOSING: &str = "SERVER_CLOSING";

/// Counts the calls that run, and ends them. Clones share the count.
#[derive(Clone, Default)]
pub(super) struct Drain(Arc<Inner>);

#[derive(Default)]
struct Inner {
    running: TaskTracker,
    /// No call begins.
    closed: CancellationToken,
    /// No call goes on.
    cut: CancellationToken,
    /// The tools of the calls that were cut short.
    tools: Mutex<Vec<String>>,
}

impl Drain {
    pub(super) fn running(&self) -> usize {
        self.0.running.len()
    }

    /// Runs a call, unless no call begins any more, and as long as calls go on.
    pub(super) async fn run<T>(
        &self,
        info: &CallInfo,
        call: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        // Counted first: `drained` waits for every call that finds the server open.
        let _running = self.0.running.token();
        if self.0.closed.is_cancelled() {
            return Err(refused());
        }
        let cut = unconstrained(self.0.cut.cancelled());
        first(call, cut).await.unwrap_or_else(|()| {
            lock(&self.0.tools).push(name(info));
            Err(cut_short(info.tool()))
        })
    }

    pub(super) fn close(&self) {
        self.0.closed.cancel();
        self.0.running.close();
    }

    pub(super) async fn closed(&self) {
        self.0.closed.cancelled().await;
    }

    /// Waits until it is closed and no call runs.
    pub(super) async fn drained(&self) {
        self.0.running.wait().await;
    }

    /// Cuts short what runs, and waits until nothing does. The tools of the calls, in order, each
    /// once more for each call.
    pub(super) async fn cut_short(&self) -> Vec<String> {
        self.close();
        self.0.cut.cancel();
        self.drained().await;
        let mut tools = mem::take(&mut *lock(&self.0.tools));
        tools.sort();
        tools
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
        shown_name(tool)
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

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        task::Poll,
        time::Duration,
    };

    use tokio::time::timeout;

    use super::*;
    use tower_toolcall::ToolCall;

    fn info(tool: &str) -> CallInfo {
        ToolCall::new(tool).info()
    }

    #[tokio::test]
    async fn it_is_drained_when_the_last_one_ends() {
        let drain = Drain::default();
        let info = info("a");
        let run = || tokio_test::task::spawn(drain.run::<()>(&info, pending()));
        let (mut a, mut b, mut late) = (run(), run(), run());
        assert!(a.poll().is_pending() && b.poll().is_pending());
        drain.close();
        assert!(late.poll().is_ready());
        let mut drained = tokio_test::task::spawn(drain.drained());
        assert!(drained.poll().is_pending());
        drop(a);
        assert!(!drained.is_woken());
        drop(b);
        assert!(drained.is_woken());
        assert!(drained.poll().is_ready());
        assert_eq!(drain.running(), 0);
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
        drain.0.cut.cancel();
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
