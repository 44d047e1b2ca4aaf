use std::{
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use tokio::time::Instant;

use super::{
    approval::{Answer, ApprovalDecision, Approve, Judged, Question},
    layer::{Policy, PolicyLayer, not_approved},
    rules::Rule,
};
use crate::{
    call::{CallInfo, ToolCall},
    error::{APPROVAL_MISSING, APPROVAL_UNANSWERED, ToolError},
    event::PolicyOutcome,
    flow::{Ends, Flow, Gate, Gated, Held, PollTurn, Readiness, Step},
    kit::{cold::Cold, limit, timer::Timer},
    text::Short,
};

/// Allows calls, denies them, or asks for approval. See the [module docs](super) for an example.
pub type PolicyService<S> = Gated<S, PolicyLayer>;

/// Response future for [`PolicyService`].
pub type ResponseFuture<S, F> = Flow<S, F, Permit>;

impl<Res> Gate<Res> for PolicyLayer {
    type Ticket = Permit;

    #[inline]
    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Permit, ToolError> {
        let info = call.info();
        match self.policy.rule_on(call, &info)? {
            None => Ok(Held {
                info,
                own: Wait::default(),
            }),
            Some((approver, rule)) => {
                may_ask(call, ready)?;
                Ok(Permit::asked(call, info, &**approver, rule, &self.policy))
            }
        }
    }
}

/// Nobody is asked for a call that cannot be sent. Of arguments that are nested too deeply an
/// approver might not even be able to print, or compare, a copy.
#[cold]
fn may_ask(call: &ToolCall, ready: &Readiness) -> Result<(), ToolError> {
    if let Readiness::Failed(error) = ready {
        return Err(error.clone());
    }
    call.check().map_err(ToolError::into_own_refusal)?;
    limit::check(call)
}

/// How much of a person's reason the model reads, and of the tool's name beside it, in characters:
/// 200 in all.
const MAX_REASON: usize = 80;
const MAX_NAME: usize = 40;

/// A call that is allowed, or waits for its approval.
type Permit = Held<Wait>;

/// The wait for an approval, if the call has one.
#[derive(Default)]
pub struct Wait(Cold<Box<Asking>>);

crate::text::debug_fields! { {} |_| Wait { .. } }

/// An approval that is waited for, on a limit of its own.
struct Asking {
    // In a mutex, because it need not be `Sync`; it is never locked. `None` once it has ended.
    answer: Mutex<Option<Answer>>,
    question: Question,
    rule: Rule,
    policy: Arc<Policy>,
    is_told: bool,
    timer: Timer,
    until: Option<Instant>,
}

impl Permit {
    fn asked(
        call: &ToolCall,
        info: CallInfo,
        approver: &Approve,
        rule: &Rule,
        policy: &Arc<Policy>,
    ) -> Self {
        let question = Question::default();
        let until = Instant::now().checked_add(policy.limit);
        let seen = until.into_iter().chain(call.deadline()).min();
        let approval = question.about(call, rule.reason.clone(), seen);
        Self {
            info,
            own: Wait(Cold::new(Asking {
                answer: Mutex::new(Some(approver(approval))),
                question,
                rule: rule.clone(),
                policy: Arc::clone(policy),
                is_told: false,
                timer: Timer::default(),
                until,
            })),
        }
    }
}

impl<Res> Ends<Res> for Permit {
    type Class = ();

    /// Reserves nothing while the approver thinks.
    #[inline]
    fn arrive(&mut self) -> Step {
        match *self.own.0.0 {
            Some(_) => Step::Wait,
            None => Step::Go,
        }
    }

    fn poll_turn(&mut self, call: &mut ToolCall, cx: &mut Context<'_>) -> PollTurn<Res> {
        if let Some(asking) = &mut *self.own.0.0 {
            ready!(asking.poll(call, &self.info, cx))?;
            // The approver's future is dropped before the call is sent.
            self.own = Wait::default();
        }
        Poll::Ready(Ok(None))
    }
}

impl Asking {
    /// Ready once the call is approved, or with its refusal.
    fn poll(
        &mut self,
        call: &ToolCall,
        info: &CallInfo,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ToolError>> {
        if !self.is_told {
            self.is_told = true;
            self.policy
                .tell(info, PolicyOutcome::Asked, Some(&self.rule), None);
        }
        let slot = self.answer.get_mut();
        let slot = slot.unwrap_or_else(PoisonError::into_inner);
        let answer = slot.as_mut().expect("polled after completion");
        let refused = match answer.as_mut().poll(cx) {
            Poll::Ready(result) => {
                let is_late = self.until.is_some_and(|at| at < Instant::now());
                judge(result, &self.question, call, is_late)
            }
            Poll::Pending => {
                ready!(self.timer.poll(cx, || self.until));
                Some(unanswered())
            }
        };
        *slot = None;
        Poll::Ready(match refused {
            None => {
                self.policy
                    .tell(info, PolicyOutcome::Approved, Some(&self.rule), None);
                Ok(())
            }
            Some((outcome, error)) => {
                Err(self.policy.refuse(info, outcome, Some(&self.rule), error))
            }
        })
    }
}

type Refusal = (PolicyOutcome, ToolError);

/// Returns why the call is not sent after this answer; `None`: it is.
fn judge(
    answer: Result<ApprovalDecision, ToolError>,
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

/// Returns the refusal of a person. The model reads the `reason`.
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
