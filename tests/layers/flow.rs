//! What layers of other authors may rely on.

use std::{
    future::pending,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready_err, task};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, CallInfo, ErrorKind, ToolCall, ToolError,
    flow::{Abandoned, CallExt, Ends, Gate, Gated, Readiness, Step, Ticket, Times},
    poll::PollLayer,
    rate_limit::RateLimitBackoffLayer,
    retry::RetryLayer,
};

/// What a layer of another author does in its methods.
#[derive(Clone, Copy, Default)]
struct Does {
    waits: bool,
    has_turns: bool,
    answers: bool,
    panics_while_pending: bool,
    refuses_answers: bool,
}

#[derive(Clone, Default)]
struct Foreign {
    does: Does,
    reports: Arc<Mutex<Vec<&'static str>>>,
}

struct Part {
    info: CallInfo,
    layer: Foreign,
}

impl<Res: Default> Gate<Res> for Foreign {
    type Ticket = Part;

    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Part, ToolError> {
        let (info, layer) = (call.info(), self.clone());
        Ok(Part { info, layer })
    }
}

impl Ticket for Part {
    type Times = Times;

    fn info(&self) -> &CallInfo {
        &self.info
    }

    fn dropped(&mut self, _: Abandoned) {
        self.layer.reports.lock().unwrap().push("dropped");
    }

    fn panicked(&mut self) {
        self.layer.reports.lock().unwrap().push("panicked");
    }
}

impl<Res: Default> Ends<Res> for Part {
    type Class = ();

    fn admit(&mut self, _: &mut ToolCall) -> Result<Step, ToolError> {
        Ok(if self.layer.does.waits {
            Step::Wait
        } else {
            Step::Go
        })
    }

    fn poll_turn(
        &mut self,
        call: &mut ToolCall,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Res>, ToolError>> {
        match self.layer.does.has_turns {
            true => Poll::Ready(Ok(self.layer.does.answers.then(Res::default))),
            false => Ends::<Res>::poll_turn(&mut call.info(), call, cx),
        }
    }

    fn not_ready(&mut self, _: &ToolCall, _: ToolError) -> ToolError {
        ToolError::new(ErrorKind::Upstream, "replaced")
    }

    fn poll_pending(&mut self, _: &mut Context<'_>) -> Poll<ToolError> {
        assert!(!self.layer.does.panics_while_pending, "boom");
        Poll::Pending
    }

    fn ended(&mut self, result: &mut Result<Res, ToolError>, (): (), _: Option<Instant>) {
        if self.layer.does.refuses_answers {
            *result = Err(ToolError::new(ErrorKind::Upstream, "replaced"));
        }
    }
}

fn waits(has_turns: bool) -> impl Service<ToolCall, Response = &'static str, Error = ToolError> {
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>("answer") });
    let does = Does {
        waits: true,
        has_turns,
        ..Does::default()
    };
    let layer = Foreign {
        does,
        ..Foreign::default()
    };
    Gated::new(tool, layer)
}

/// A turn that is ready and changes nothing does not occupy the thread, and ends at the deadline.
#[tokio::test(start_paused = true)]
async fn call_that_is_never_admitted_ends_at_its_deadline() {
    let call = ToolCall::new("search").with_deadline(Instant::now() + Duration::from_secs(1));
    let mut response = task::spawn(waits(true).oneshot(call));
    assert_pending!(response.poll());
    assert!(response.is_woken());
    tokio::time::advance(Duration::from_secs(1)).await;
    let error = assert_ready_err!(response.poll());
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
}

/// S14: a layer that lets calls wait and has no turns fails loudly.
#[tokio::test]
async fn call_that_waits_in_a_layer_without_turns_fails() {
    let mut response = task::spawn(waits(false).oneshot(ToolCall::new("search")));
    let error = assert_ready_err!(response.poll());
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert_eq!(error.tool(), Some("search"));
}

/// A panic while a call is pending is the call's, as one in its future is.
#[tokio::test]
async fn panic_of_a_layer_while_a_call_is_pending_is_reported_as_one() {
    let does = Does {
        panics_while_pending: true,
        ..Does::default()
    };
    let layer = Foreign {
        does,
        ..Foreign::default()
    };
    let tool = service_fn(|_: ToolCall| pending::<Result<(), BoxError>>());
    let mut response =
        task::spawn(Gated::new(tool, layer.clone()).oneshot(ToolCall::new("search")));
    assert!(catch_unwind(AssertUnwindSafe(|| response.poll())).is_err());
    drop(response);
    assert_eq!(*layer.reports.lock().unwrap(), ["panicked"]);
}

/// An error that a layer puts in the place of a failed readiness has the names of the call, whether
/// the failure was met when the layer was polled or by the call itself.
#[tokio::test]
async fn replaced_error_of_a_service_that_is_not_ready_names_the_call() {
    for polls_before in [true, false] {
        let (mock, mut handle) = tower_test::mock::pair::<ToolCall, ()>();
        handle.send_error(BoxError::from("connection refused"));
        let mut stack = Gated::new(mock, Foreign::default());
        if polls_before {
            stack.ready().await.unwrap();
        }
        let error = stack.call(ToolCall::new("search")).await.unwrap_err();
        assert_eq!(error.message(), "replaced");
        assert_eq!(error.tool(), Some("search"));
    }
}

/// An error that a layer puts in the place of an answer has the names of the call.
#[tokio::test]
async fn error_in_the_place_of_an_answer_names_the_call() {
    let does = Does {
        refuses_answers: true,
        ..Does::default()
    };
    let layer = Foreign {
        does,
        ..Foreign::default()
    };
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) });
    let stack = Gated::new(tool, layer);
    let error = stack.oneshot(ToolCall::new("search")).await.unwrap_err();
    assert_eq!(error.message(), "replaced");
    assert_eq!(error.tool(), Some("search"));
}

/// D1: an attempt that a layer answers instead of its turn was not sent, but the one before.
#[tokio::test]
async fn call_that_gets_its_answer_while_it_waits_is_not_an_attempt() {
    let does = Does {
        waits: true,
        has_turns: true,
        answers: true,
        ..Does::default()
    };
    let layer = Foreign {
        does,
        ..Foreign::default()
    };
    let tool = service_fn(|_: ToolCall| pending::<Result<(), BoxError>>());
    for is_reused in [false, true] {
        let mut call = ToolCall::new("search");
        let observation = call.observe();
        call.record(|record| {
            record.begin_attempt(2);
            if is_reused {
                record.set_reused();
            }
        });
        let stack = Gated::new(tool, layer.clone());
        stack.oneshot(call).await.unwrap();
        assert_eq!(observation.sent(None), 1, "{is_reused}");
    }
}

/// The services of layers that repeat calls share a type, but each shows its settings.
#[test]
fn service_of_a_layer_that_repeats_calls_shows_its_settings() {
    let retry = format!("{:?}", RetryLayer::default().layer(()));
    let limit = format!("{:?}", RateLimitBackoffLayer::new().layer(()));
    let poll = format!("{:?}", PollLayer::new(()).layer(()));
    for (debug, setting) in [
        (retry, "RetryPolicy"),
        (limit, "max_wait"),
        (poll, "interval"),
    ] {
        assert!(
            debug.contains(setting) && debug.ends_with("inner: () }"),
            "{debug}"
        );
    }
}
