use std::{borrow::Cow, sync::Arc, time::Duration};

use tower::ServiceExt as _;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Level;

use super::{
    annotations::{Annotate, Annotations},
    approval::{Answer, Approval, ApprovalDecision, Approve},
    asking::PolicyService,
    rules::{Decision, Rule, first_for},
};
use crate::{
    call::{CallInfo, ToolCall},
    config::{ConfigError, refuse_if},
    error::{APPROVAL_FAILED, APPROVAL_MISSING, APPROVAL_UNANSWERED, ErrorKind, ToolError, Words},
    event::{Event, InertReason, Listen, Listener, PolicyOutcome, event},
    kit::{
        inert::Inert,
        per_tool::{Name, ToolNames, Watch},
    },
    text::Short,
};

/// Layer that allows calls, denies them, or asks for approval. See the [module docs](super) for an
/// example.
#[derive(Clone, Debug)]
#[must_use]
pub struct PolicyLayer {
    pub(super) policy: Arc<Policy>,
}

/// Shared by all services of one layer value.
#[derive(Clone)]
pub(super) struct Policy {
    rules: Vec<Rule>,
    watch: Arc<Watch>,
    default: Decision,
    annotations: Vec<Arc<dyn Annotate>>,
    pub(super) approver: Option<Arc<Approve>>,
    pub(super) limit: Duration,
    listener: Listener,
    inert: Arc<Inert>,
}

impl PolicyLayer {
    /// Makes a layer without rules, which allows all calls.
    pub fn new() -> Self {
        Self {
            policy: Arc::new(Policy {
                rules: Vec::new(),
                watch: Arc::new(Watch::new("policy")),
                default: Decision::Allow,
                annotations: Vec::new(),
                approver: None,
                limit: Duration::from_secs(300),
                listener: Listener::default(),
                inert: Arc::new(Inert::new("policy")),
            }),
        }
    }

    /// Allows calls of the tools with a name that fits the [pattern](Rule):
    /// `rule(Rule::allow(tool))`.
    pub fn allow(self, tool: &str) -> Self {
        self.rule(Rule::allow(tool))
    }

    /// Denies them.
    pub fn deny(self, tool: &str) -> Self {
        self.rule(Rule::deny(tool))
    }

    /// Asks the [approver](Self::with_approver) for each of them.
    pub fn ask(self, tool: &str) -> Self {
        self.rule(Rule::ask(tool))
    }

    /// Adds a rule after the others. The first rule that matches a call decides.
    ///
    /// A rule can never decide if an earlier rule with another decision covers it, or if its
    /// pattern is empty. The event `tool.policy` warns of such a rule, and [`check`](Self::check)
    /// refuses it.
    pub fn rule(self, rule: Rule) -> Self {
        let layer = self.edit(|p| p.rules.push(rule));
        if let Err(error) = layer.policy.check_last(layer.policy.rules.len()) {
            event!(WARN POLICY, ERROR = error.to_string());
        }
        layer
    }

    /// Adds a rule that comes from a file, if it can decide.
    ///
    /// # Errors
    ///
    /// `rules`: an earlier one with another decision covers it, or its pattern is empty.
    pub fn try_rule(self, rule: Rule) -> Result<Self, ConfigError> {
        let layer = self.edit(|p| p.rules.push(rule));
        layer.policy.check_last(layer.policy.rules.len())?;
        Ok(layer)
    }

    /// Denies calls that no rule is for. Default: they are allowed.
    pub fn deny_by_default(self) -> Self {
        self.edit(|p| p.default = Decision::Deny)
    }

    /// Adds a source of the [annotations](Annotate) of tools, for rules with conditions on them.
    /// The first source that knows a tool is believed, so add only those that you trust. Default:
    /// nothing is known of any tool.
    pub fn with_annotations(self, known: impl Annotate) -> Self {
        self.edit(|p| p.annotations.push(Arc::new(known)))
    }

    /// Sets the service that is [asked](Approval) for approvals: a person at a terminal, a chat, a
    /// ticket. Default: none, and calls that need an approval are refused.
    ///
    /// Its future is dropped with its call, and when the call's deadline, its token or the [time
    /// limit](Self::with_approval_timeout) ends the wait: then it should withdraw its question. If
    /// it fails, or answers too late, the call is not sent. The code [`APPROVAL_MISSING`] on its
    /// error means that it cannot ask for approval of this call; [`APPROVAL_UNANSWERED`] means that
    /// it has no answer yet. The clones of the service are asked concurrently.
    pub fn with_approver<A>(self, approver: A) -> Self
    where
        A: Service<Approval, Response = ApprovalDecision> + Clone + Send + Sync + 'static,
        A::Error: Into<ToolError>,
        A::Future: Send,
    {
        let approver = approver.map_err(Into::into);
        let ask = move |approval| -> Answer { Box::pin(approver.clone().oneshot(approval)) };
        self.edit(|p| p.approver = Some(Arc::new(ask)))
    }

    /// Sets how long a call waits for its approval at most. Default: 5 minutes. [`Duration::MAX`]:
    /// as long as the call's own deadline allows.
    ///
    /// # Errors
    ///
    /// `approval_timeout`: it is zero.
    pub fn with_approval_timeout(self, limit: Duration) -> Result<Self, ConfigError> {
        refuse_if(limit.is_zero(), "approval_timeout", "is zero")?;
        Ok(self.edit(|p| p.limit = limit))
    }

    /// Sets the listener for [decisions](Event::Policy). Default: none.
    pub fn with_listener(self, listen: impl Listen + 'static) -> Self {
        self.edit(|p| p.listener = Listener::new(listen))
    }

    /// Returns the patterns of the rules, and whether calls have matched them.
    pub fn tool_names(&self) -> ToolNames {
        self.policy.watch.names(self.policy.names())
    }

    /// Checks the policy as a whole.
    ///
    /// # Errors
    ///
    /// `rules`: a rule can never decide, because an earlier one with another decision covers it or
    /// its pattern is empty. `approver`: a rule asks for approvals, and there is none to
    /// give them.
    pub fn check(&self) -> Result<(), ConfigError> {
        let asks = |rule: &Rule| rule.decision() == Decision::Ask;
        let in_vain = self.policy.approver.is_none() && self.policy.rules.iter().any(asks);
        refuse_if(in_vain, "approver", "is not set, and a rule asks for it")?;
        (1..=self.policy.rules.len()).try_for_each(|n| self.policy.check_last(n))
    }

    /// Returns how many calls were allowed without an agent id, although a rule denies calls of
    /// agents or asks before them. The first one is the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.policy.inert.calls()
    }

    fn edit(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(Arc::make_mut(&mut self.policy));
        self
    }
}

impl Default for PolicyLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for PolicyLayer {
    type Service = PolicyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PolicyService::new(inner, self.clone())
    }
}

impl Policy {
    /// Returns the approver and the rule of a call that has to be approved.
    pub(super) fn rule_on(
        &self,
        call: &ToolCall,
        info: &CallInfo,
    ) -> Result<Option<(&Arc<Approve>, &Rule)>, ToolError> {
        self.watch.count(self.names());
        let rule = first_for(&self.rules, call, || self.annotations(call));
        let decision = rule.map_or(self.default, Rule::decision);
        let (outcome, why) = match (decision, rule, &self.approver) {
            (Decision::Allow, ..) => {
                let lacks_agent = call.agent_id().is_none_or(str::is_empty);
                if lacks_agent && self.rules.iter().any(Rule::holds_back_agents) {
                    let help = "set an agent id on calls, or add a rule for all calls";
                    let reason = InertReason::NoAgent;
                    self.inert.pass(&self.listener, info, reason, help);
                }
                if self.listener.hears(Level::DEBUG) {
                    self.tell(info, PolicyOutcome::Allowed, rule, None);
                }
                return Ok(None);
            }
            (Decision::Ask, Some(rule), Some(approver)) => return Ok(Some((approver, rule))),
            (Decision::Ask, ..) => {
                let why = "the call needs an approval, and no approver is set";
                (PolicyOutcome::NoApprover, why)
            }
            (Decision::Deny, Some(_), _) => (PolicyOutcome::Denied, "the policy denies the call"),
            (Decision::Deny, None, _) => {
                let why = "no rule of the policy allows the call";
                (PolicyOutcome::Denied, why)
            }
        };
        let error = match rule.and_then(Rule::reason) {
            Some(reason) => not_approved(format!("{why}: {reason}"), outcome),
            None => not_approved(why, outcome),
        };
        Err(self.refuse(info, outcome, rule, error))
    }

    fn names(&self) -> impl Iterator<Item = &Arc<Name>> {
        self.rules.iter().map(Rule::name)
    }

    fn annotations(&self, call: &ToolCall) -> Annotations {
        let known = self.annotations.iter().find_map(|a| a.annotations(call));
        known.unwrap_or_default()
    }

    /// Tells of a refusal.
    pub(super) fn refuse(
        &self,
        call: &CallInfo,
        outcome: PolicyOutcome,
        rule: Option<&Rule>,
        error: ToolError,
    ) -> ToolError {
        let error = error.for_call(call);
        self.tell(call, outcome, rule, Some(&error));
        error
    }

    pub(super) fn tell(
        &self,
        call: &CallInfo,
        outcome: PolicyOutcome,
        rule: Option<&Rule>,
        error: Option<&ToolError>,
    ) {
        self.listener.tell(&Event::Policy {
            call,
            outcome,
            rule: rule.map(Rule::tool),
            error,
        });
    }

    /// Returns whether the `n`th rule, from 1, can decide.
    fn check_last(&self, n: usize) -> Result<(), ConfigError> {
        let Some((last, earlier)) = self.rules.get(..n).and_then(<[Rule]>::split_last) else {
            return Ok(());
        };
        let reason = "a pattern is empty: no tool has such a name";
        refuse_if(last.tool().is_empty(), "rules", reason)?;
        let first = earlier.iter().find(|rule| rule.covers(last));
        // What is said twice does no harm.
        let Some(first) = first.filter(|first| first.decision() != last.decision()) else {
            return Ok(());
        };
        let said = |rule: &Rule| format!("`{} {}`", rule.decision(), Short::name(rule.tool()));
        let (last, first) = (said(last), said(first));
        let reason = format!("{last} can never decide: {first} comes first and covers it");
        Err(ConfigError::new("rules", reason))
    }
}

/// A refusal, with the outcome as the detail `policy`. Only what was denied is
/// [`ErrorKind::Denied`].
pub(super) fn not_approved(why: impl Into<Cow<'static, str>>, outcome: PolicyOutcome) -> ToolError {
    let own = match outcome {
        PolicyOutcome::Unanswered => Some((APPROVAL_UNANSWERED, &UNANSWERED)),
        PolicyOutcome::Failed => Some((APPROVAL_FAILED, &FAILED)),
        PolicyOutcome::NoApprover => Some((APPROVAL_MISSING, &MISSING)),
        _ => None,
    };
    let kind = match outcome {
        PolicyOutcome::Unanswered | PolicyOutcome::Failed => ErrorKind::Overloaded,
        PolicyOutcome::NoApprover => ErrorKind::Internal,
        _ => ErrorKind::Denied,
    };
    let error = ToolError::refusal(kind, why).with_detail("policy", outcome.name());
    match own {
        Some((code, words)) => error.with_code(code).with_words(words),
        None => error,
    }
}

const LATER: &str = "Call it again later, or continue without it.";
const ON: &str = "Continue without it, or tell the user.";

static UNANSWERED: Words = Words {
    user: "The call of the tool '{tool}' was not approved in time.",
    user_later: " Please try again later.",
    problem: "Tool '{tool}' needs an approval, and the request for it is not answered yet.",
    stop: ON,
    again: LATER,
};

static FAILED: Words = Words {
    user: "The approval of the call of the tool '{tool}' could not be asked for.",
    user_later: " Please try again later.",
    problem: "Tool '{tool}' needs an approval, and asking for it has failed.",
    stop: ON,
    again: LATER,
};

static MISSING: Words = Words {
    user: "The tool '{tool}' needs an approval, and no approver is available.",
    user_later: "",
    problem: "Tool '{tool}' needs an approval, and no approver is available.",
    stop: ON,
    again: LATER,
};

crate::text::debug_fields! {
    {} |this| Policy {
        rules, default,
        approver: this.approver.is_some(),
        approval_timeout: this.limit,
        listener, ..
    }
}
