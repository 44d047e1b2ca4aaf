//! Whose a call is: who may have another one's answer.

use std::{fmt, sync::Arc};

use crate::{call::ToolCall, foreign};

/// The longest principal, in bytes: a subject's token has up to 16 KiB.
pub(crate) const MAX_PRINCIPAL: usize = 20 * 1024;

type PrincipalFn = dyn Fn(&ToolCall) -> Option<&str> + Send + Sync;

/// By what the principal of a call is known.
#[derive(Clone)]
pub(crate) enum Principal {
    /// The subject, else the agent, else the session; of a `narrow` one the session as well.
    Ids { narrow: bool },
    /// What the function says.
    By(Arc<PrincipalFn>),
    /// All calls have the same.
    Shared,
}

impl Principal {
    /// The principal in full: equal texts are the same one. `None` for a call without one.
    pub(crate) fn of(&self, call: &ToolCall) -> Option<Arc<str>> {
        let given = |id: &&str| !id.is_empty();
        let narrow = match self {
            Self::Ids { narrow } => *narrow,
            Self::By(principal) => return principal(call).filter(given).map(Into::into),
            Self::Shared => return Some("".into()),
        };
        let session = call.session_id().filter(given);
        let agent = call.agent_id().filter(given);
        let subject = foreign::subject(call).filter(given);
        let (kind, id) = match (subject, agent) {
            (Some(subject), _) => ("subject", subject),
            (None, Some(agent)) => ("agent", agent),
            (None, None) => return session.map(|session| format!("session:{session}").into()),
        };
        let session = session.filter(|_| narrow).unwrap_or_default();
        Some(format!("{kind}:{}:{id}:{session}", id.len()).into())
    }

    /// Whether one principal may stand for callers with different tokens or quotas.
    pub(crate) fn is_of_many(&self) -> bool {
        !matches!(self, Self::Ids { .. })
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ids { .. } => "Ids",
            Self::By(_) => "By(..)",
            Self::Shared => "Shared",
        })
    }
}
