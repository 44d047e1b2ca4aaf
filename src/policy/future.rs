use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::{
    approval::{Answer, Approve, Judged, Question, Verdict},
    layer::{Policy, not_approved},
    rules::Rule,
};
use crate::{
    call::{CallInfo, ToolCall},
    error::{APPROVAL_MISSING, APPROVAL_UNANSWERED, ToolError},
    event::PolicyOutcome,
    kit::{passing::Passing, preparing::WaitLimit, timer::Timer},
    text::Short,
};

/// How much of a person's reason the model reads, and of the tool's name beside it, in characters: 200 in all.
const MAX_REASON: usize = 80;
const MAX_NAME: usize = 40;

pin_project! {
    /// Response future for [`PolicyService`](super::PolicyService).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F> {
        #[pin]
        state: State<S, F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F> {
        // Waiting for an approval.
        Asking { asking: Pin<Box<Asking<S>>> },
        // On its way to the inner service, or refused.
        Passing { #[pin] passing: Passing<S, F> },
    }
}

pin_project! {
    /// A call that waits for its approval, on a limit of its own, the call's deadline and its token.
    pub(super) struct Asking<S> {
        // In a mutex, because it need not be `Sync`; it is never locked. `None` once it has ended.
        answer: Mutex<Option<Answer>>,
        question: Question,
        // There until the wait has ended.
        sent: Option<(S, ToolCall)>,
        info: CallInfo,
        rule: Rule,
        policy: Arc<Policy>,
        is_told: bool,
        #[pin]
        limit: WaitLimit,
        timer: Timer,
        until: Option<Instant>,
    }
}

impl<S> Asking<S> {
    pub(super) fn new(
        call: ToolCall,
        svc: S,
        approver: &Arc<dyn Approve>,
        rule: &Rule,
        policy: Arc<Policy>,
    ) -> Self {
        let question = Question::default();
        let until = policy.until(Instant::now());
        let seen = until.into_iter().chain(call.deadline()).min();
        let approval = question.about(&call, rule.shared_reason(), seen);
        Self {
            answer: Mutex::new(Some(approver.ask(approval))),
            question,
            info: call.info(),
            limit: WaitLimit::of(&call),
            sent: Some((svc, call)),
            rule: rule.clone(),
            policy,
            is_told: false,
            timer: Timer::default(),
            until,
        }
    }

    /// The call, to be sent by the service beside it, once it is approved.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(S, ToolCall), ToolError>> {
        let this = self.project();
        if !*this.is_told {
            *this.is_told = true;
            this.policy
                .tell(this.info, PolicyOutcome::Asked, Some(this.rule));
        }
        let slot = this.answer.get_mut();
        let slot = slot.unwrap_or_else(PoisonError::into_inner);
        let answer = slot.as_mut().expect("polled after completion");
        let refused = match answer.as_mut().poll(cx) {
            Poll::Ready(result) => {
                let (_, call) = this.sent.as_ref().expect("there until it has ended");
                let is_late = this.until.is_some_and(|at| at < Instant::now());
                judge(result, this.question, call, is_late)
            }
            Poll::Pending => match this.limit.poll(cx) {
                Poll::Ready(why) => {
                    *slot = None;
                    return Poll::Ready(Err(why.error().for_call(this.info)));
                }
                Poll::Pending => {
                    ready!(this.timer.poll(cx, || *this.until));
                    Some(unanswered())
                }
            },
        };
        // The approver's future goes before the call is sent.
        *slot = None;
        let sent = this.sent.take().expect("there until it has ended");
        let Some((outcome, error)) = refused else {
            this.policy
                .tell(this.info, PolicyOutcome::Approved, Some(this.rule));
            return Poll::Ready(Ok(sent));
        };
        let error = this
            .policy
            .refuse(this.info, outcome, Some(this.rule), error);
        Poll::Ready(Err(error))
    }
}

type Refusal = (PolicyOutcome, ToolError);

/// Why the call is not sent after this answer; `None`: it is.
fn judge(
    answer: Result<Verdict, ToolError>,
    question: &Question,
    call: &ToolCall,
    is_late: bool,
) -> Option<Refusal> {
    let failed = |why: String| {
        let outcome = PolicyOutcome::Failed;
        Some((outcome, not_approved(why, outcome)))
    };
    let verdict = match answer {
        Ok(verdict) => verdict,
        Err(error) => {
            let outcome = match error.code() {
                APPROVAL_MISSING => PolicyOutcome::NoApprover,
                APPROVAL_UNANSWERED => PolicyOutcome::Unanswered,
                _ => return failed(format!("the approver failed: {error}")),
            };
            let why = error.message().to_owned();
            return Some((outcome, not_approved(why, outcome)));
        }
    };
    match question.judge(verdict, call) {
        Judged::Refused(reason) => Some(refused(call, reason.as_deref())),
        Judged::Stray => failed("the approver has approved another call".to_owned()),
        Judged::Approved if is_late => Some(unanswered()),
        Judged::Approved => None,
    }
}

fn unanswered() -> Refusal {
    let outcome = PolicyOutcome::Unanswered;
    let why = "the call was not approved in time";
    (outcome, not_approved(why, outcome))
}

/// The refusal of a person, whose reason the model reads.
fn refused(call: &ToolCall, reason: Option<&str>) -> Refusal {
    let outcome = PolicyOutcome::Refused;
    let Some(reason) = reason else {
        let why = "the approver has denied the call";
        return (outcome, not_approved(why, outcome));
    };
    let shown = call.rules().redact_text(reason);
    let why = Short::new(&shown, MAX_REASON).to_string();
    let why = why.trim().trim_end_matches('.');
    let tool = call.rules().redact_text(call.tool());
    let tool = Short::new(&tool, MAX_NAME);
    let text =
        format!("The call of tool '{tool}' was not approved: {why}. Do not repeat it as it is.");
    let error = not_approved(format!("the approver has denied the call: {why}"), outcome);
    (outcome, error.with_model_message(text))
}

impl<S, F> ResponseFuture<S, F> {
    pub(super) fn asking(asking: Asking<S>) -> Self {
        let asking = Box::pin(asking);
        let state = State::Asking { asking };
        Self { state }
    }
}

impl<S, F> From<Passing<S, F>> for ResponseFuture<S, F> {
    #[inline]
    fn from(passing: Passing<S, F>) -> Self {
        let state = State::Passing { passing };
        Self { state }
    }
}

impl<S> Future for ResponseFuture<S, S::Future>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
{
    type Output = Result<S::Response, ToolError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let passing = match this.state.as_mut().project() {
                StateProj::Passing { passing } => return passing.poll(cx),
                StateProj::Asking { asking } => match ready!(asking.as_mut().poll(cx)) {
                    Ok((svc, call)) => Passing::wait(svc, call),
                    Err(error) => Passing::refused(error),
                },
            };
            this.state.set(State::Passing { passing });
        }
    }
}

impl<S, F> fmt::Debug for ResponseFuture<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state: &dyn fmt::Debug = match &self.state {
            State::Asking { .. } => &format_args!("Asking"),
            State::Passing { passing } => passing,
        };
        f.debug_struct("ResponseFuture")
            .field("state", state)
            .finish_non_exhaustive()
    }
}
