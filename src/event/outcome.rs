use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, ToolError};

/// The end of a call, for observers: the label `outcome` of metrics, the attribute `tool.outcome`
/// of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallOutcome {
    /// The call has its answer.
    Success,
    /// The call failed, or the tool reported an error of its own.
    Error,
    /// The call was started and did not end in time.
    Timeout,
    /// The call was not started: no time was left for it.
    Skipped,
    /// The caller gave it up, or its future was dropped unfinished.
    Cancelled,
    /// The tool panicked.
    Panicked,
    /// A layer of ours refused it ([`ToolError::is_own_refusal`]): an open breaker, a cooldown, an
    /// unknown name. A refusal because no time was left is `Skipped`; because the caller had
    /// cancelled, `Cancelled`.
    Rejected,
}

impl CallOutcome {
    /// Returns the outcome of a call that ended with this error.
    pub fn of_error(error: &ToolError) -> Self {
        Self::of_failure(error.kind(), error.is_own_refusal())
    }

    pub(crate) const fn of_failure(kind: ErrorKind, is_own_refusal: bool) -> Self {
        match Self::of(kind) {
            Self::Error if is_own_refusal => Self::Rejected,
            outcome => outcome,
        }
    }

    /// Returns the outcome of a call that ended with this kind of error, and was not refused by a
    /// layer of ours.
    pub const fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::DeadlineExceeded => Self::Skipped,
            ErrorKind::Cancelled => Self::Cancelled,
            ErrorKind::Panicked => Self::Panicked,
            _ => Self::Error,
        }
    }
}

crate::text::names! {
    /// Its name as a label.
    pub(crate) CallOutcome {
        Success = "success",
        Error = "error",
        Timeout = "timeout",
        Skipped = "skipped",
        Cancelled = "cancelled",
        Panicked = "panicked",
        Rejected = "rejected",
    }
}

/// The decision of a [policy](crate::policy) about a call: the field `decision` of the event
/// `tool.policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PolicyOutcome {
    /// The call may be sent.
    Allowed,
    /// A rule denies it, or no rule allows it.
    Denied,
    /// The call needs an approval, and no approver is set.
    NoApprover,
    /// The approver is asked. One of those below follows, unless the call is given up before.
    Asked,
    /// The approver has approved it.
    Approved,
    /// The approver has denied it.
    Refused,
    /// The call was not approved in time.
    Unanswered,
    /// The approver failed, or has answered something else.
    Failed,
}

crate::text::names! {
    /// Its name in events, and in the detail `policy` of an error.
    PolicyOutcome {
        Allowed = "allowed",
        Denied = "denied",
        NoApprover = "no_approver",
        Asked = "asked",
        Approved = "approved",
        Refused = "refused",
        Unanswered = "unanswered",
        Failed = "failed",
    }
}

/// The source of a call's token: the label `outcome` of `token_exchange_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TokenOutcome {
    /// There was one.
    Hit,
    /// The identity provider has issued one.
    Exchanged,
    /// Another call had asked for it.
    Shared,
    /// The exchange failed, of this call or of the call that it waited for.
    Failed,
}

crate::text::names! {
    /// Its name as a label.
    pub(crate) TokenOutcome {
        Hit = "hit",
        Exchanged = "exchanged",
        Shared = "shared",
        Failed = "failed",
    }
}
