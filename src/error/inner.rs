use std::{
    borrow::Cow,
    error::Error as StdError,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::StatusCode;
use serde_json::{Map, Value};

use super::{BoxError, ErrorKind, Evidence, Execution, Outage, TimeoutLimit, Words};
use crate::{
    call::{CallInfo, JobRef},
    event::{RetryRefusal, transition::OpenCause},
    redact::Rules,
};

/// The fields of a [`ToolError`](super::ToolError).
pub(super) struct Inner {
    pub(super) kind: ErrorKind,
    pub(super) execution: Execution,
    pub(super) retryable: bool,
    pub(super) evidence: Evidence,
    /// A health registry has counted it.
    pub(super) counted: bool,
    /// An earlier attempt may have run, although this one has not started.
    pub(super) ran_before: bool,
    /// Its call is marked as unsafe to run twice.
    pub(super) must_not_repeat: bool,
    pub(super) attempts: u32,
    pub(super) message: Message,
    pub(super) code: Option<Cow<'static, str>>,
    pub(super) tool: Option<Arc<str>>,
    pub(super) server: Option<Arc<str>>,
    pub(super) call_id: Option<Arc<str>>,
    pub(super) retry_after: Option<Duration>,
    /// The delay is this side's own: the server asked for none.
    pub(super) own_delay: bool,
    pub(super) elapsed: Option<Duration>,
    pub(super) status: Option<StatusCode>,
    pub(super) timeout: Option<TimeoutData>,
    pub(super) source: Source,
    /// The rules by which its texts were redacted.
    pub(super) rules: Rules,
    /// Why the circuit breaker has opened that refused the call. A detail that is made when it is
    /// read, as a breaker may refuse many calls.
    pub(super) cause: Option<OpenCause>,
    /// Why the call was not repeated. A detail that is made when it is read, because failing
    /// attempts allocate their error alone.
    pub(super) retry_refused: Option<RetryRefusal>,
    pub(super) more: Option<Box<More>>,
    /// The details with those that are made when they are read.
    pub(super) all_details: OnceLock<Box<Map<String, Value>>>,
}

/// For developers.
#[derive(Clone)]
pub(super) enum Message {
    Text(Cow<'static, str>),
    /// The text of the source, printed at the first use.
    OfSource(OnceLock<Box<str>>),
}

/// The advice for a call that a load shedder of tower's refused.
pub(crate) const NORMALIZE: &str = "set `normalize` directly outside tower's `load_shed`";

/// The error that caused one.
pub(super) enum Source {
    None,
    /// As it came in: it is not moved into an `Arc`.
    Own(BoxError),
    /// That of the error of which this one is a copy.
    Of(Arc<Inner>),
}

impl Inner {
    /// A copy of a shared error, to be changed.
    pub(super) fn copy(shared: &Arc<Self>) -> Self {
        Self {
            message: shared.message.clone(),
            code: shared.code.clone(),
            tool: shared.tool.clone(),
            server: shared.server.clone(),
            call_id: shared.call_id.clone(),
            source: match &shared.source {
                Source::None => Source::None,
                Source::Own(_) => Source::Of(Arc::clone(shared)),
                Source::Of(owner) => Source::Of(Arc::clone(owner)),
            },
            rules: shared.rules.clone(),
            more: shared.more.clone(),
            all_details: OnceLock::new(),
            ..**shared
        }
    }

    pub(super) fn source(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        match &self.source {
            Source::None => None,
            Source::Own(error) => Some(&**error),
            Source::Of(owner) => owner.source(),
        }
    }

    /// Returns whether a load shedder of another crate refused the call, and no layer says so.
    pub(super) fn is_shed(&self) -> bool {
        self.evidence == Evidence::Inferred && self.source().is_some_and(|e| super::is_refusal(e))
    }

    /// The details, not redacted.
    pub(super) fn details(&self) -> Option<&Map<String, Value>> {
        let own = self.more.as_ref().map(|more| &more.details);
        if self.cause.is_none() && self.retry_refused.is_none() {
            return own;
        }
        Some(self.all_details.get_or_init(|| {
            let mut all = Map::new();
            if let Some(cause) = self.cause {
                all.insert("opened_by".to_owned(), cause.reason.name().into());
                all.insert("failures".to_owned(), cause.failures.into());
                all.insert("calls".to_owned(), cause.calls.into());
            }
            if let Some(reason) = self.retry_refused {
                let advice = match reason {
                    RetryRefusal::NotMarkedSafe if self.is_shed() => NORMALIZE,
                    RetryRefusal::NotMarkedSafe => {
                        "if the tool may run twice, declare it by `RetryPolicy::with_replay_safety` or `ToolCall::with_replay_safety`, or trust the server's annotations"
                    }
                    _ => {
                        "the call was declared unsafe by its caller, by a rule, or by its server's annotations"
                    }
                };
                let why = format!("{}: {advice}", reason.name());
                all.insert("retry_refused".to_owned(), why.into());
            }
            all.extend(own.cloned().unwrap_or_default());
            Box::new(all)
        }))
    }

    /// Fills in the tool, the server and the call id where they are missing.
    pub(super) fn stamp(&mut self, call: &CallInfo) {
        if self.tool.is_none() {
            self.tool = Some(Arc::clone(call.shared_tool()));
        }
        if self.server.is_none() {
            self.server = call.shared_server().cloned();
        }
        if self.call_id.is_none() {
            self.call_id = call.shared_id().cloned();
        }
        self.must_not_repeat |= call.is_unsafe();
    }

    /// Makes it the refusal of this side.
    pub(super) fn refuse(&mut self) {
        self.evidence = Evidence::Refusal;
        self.execution = Execution::NotStarted;
    }

    /// Hides the secrets of the call in texts and details that are otherwise redacted where they
    /// are written or read, and then by the last rules alone.
    pub(super) fn hide_secrets(&mut self) {
        self.hide_in_code();
        self.all_details = OnceLock::new();
        let Some(more) = &mut self.more else { return };
        more.details = match serde_json::to_value(self.rules.object(&more.details)) {
            Ok(Value::Object(redacted)) => redacted,
            _ => Map::new(),
        };
        let for_model = match &mut more.for_model {
            Some(ForModel::Text(text)) => Some(text),
            _ => None,
        };
        for text in for_model.into_iter().chain(&mut more.user_message) {
            if let Cow::Owned(hidden) = self.rules.without_secrets(text) {
                *text = hidden;
            }
        }
    }

    /// Hides the secrets of the call in its code.
    pub(super) fn hide_in_code(&mut self) {
        if let Some(Cow::Owned(code)) = &mut self.code {
            *code = self.rules.without_secrets(code).into_owned();
        }
    }

    /// Makes the error prove nothing: it was met in the middle of another call.
    pub(super) fn infer(&mut self) {
        self.evidence = Evidence::Inferred;
        if let Some(more) = &mut self.more {
            more.outage = None;
        }
        if self.execution == Execution::NotStarted {
            self.execution = Execution::Unknown;
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct TimeoutData {
    pub(super) in_force: Duration,
    pub(super) configured: Duration,
    pub(super) limit: TimeoutLimit,
}

/// Fields that few errors have.
#[derive(Clone, Default)]
pub(super) struct More {
    pub(super) body: Option<String>,
    pub(super) details: Map<String, Value>,
    /// Instead of the sentences of the kind.
    pub(super) words: Option<&'static Words>,
    pub(super) user_message: Option<String>,
    pub(super) for_model: Option<ForModel>,
    pub(super) job: Option<JobRef>,
    pub(super) outage: Option<Outage>,
}

/// The text for a model that replaces the sentence of the kind. The tool's name is added when the
/// text is read, because it may change until then.
#[derive(Clone)]
pub(super) enum ForModel {
    /// A text that was set, as it is.
    Text(String),
    /// The tools that may have been meant.
    Near(Vec<String>),
    /// The reason in the sentence of the kind, where it is not the message for developers.
    #[cfg(feature = "validate")]
    Why(String),
}
