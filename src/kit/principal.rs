//! The principal of a call: calls of one principal may share answers.

use std::sync::Arc;

use crate::call::{ToolCall, Whose};

/// The longest principal, in bytes: a subject's token has up to 16 KiB.
pub(crate) const MAX_PRINCIPAL: usize = 20 * 1024;

/// The beginning of the text of a principal that was not verified.
const UNVERIFIED: &str = "unverified:";

type OfCall = dyn Fn(&ToolCall) -> Option<&str> + Send + Sync;

#[derive(Clone)]
pub(crate) struct PrincipalFn(pub(crate) Arc<OfCall>);

crate::text::debug_fields! { {} |_| PrincipalFn { .. } }

/// The source of a call's principal.
#[derive(Clone, Debug)]
pub(crate) enum Principal {
    /// The subject, else the agent, else the session; of a `narrow` one the session as well.
    Ids { narrow: bool },
    /// The result of a function.
    By(PrincipalFn),
    /// All calls have the same.
    Shared,
}

impl Principal {
    /// Returns the full text of the principal: two calls of one principal have the same. `None` for
    /// a call without one.
    pub(crate) fn of(&self, call: &ToolCall) -> Option<Arc<str>> {
        let given = |id: &&str| !id.is_empty();
        let narrow = match self {
            Self::Ids { narrow } => *narrow,
            Self::By(PrincipalFn(f)) => return f(call).filter(given).map(Into::into),
            Self::Shared => return Some("".into()),
        };
        let unverified = match call.has_unverified_principal() {
            true => UNVERIFIED,
            false => "",
        };
        let (kind, id) = match call.whose()? {
            Whose::Subject(_) => ("subject", call.subject_token()?.expose()),
            Whose::Agent(agent) => ("agent", agent),
            Whose::Session(session) => {
                return Some(format!("{unverified}session:{session}").into());
            }
        };
        let session = call.session_id().filter(|_| narrow).unwrap_or_default();
        Some(format!("{unverified}{kind}:{}:{id}:{session}", id.len()).into())
    }

    /// Returns whether the text is that of an unverified principal.
    pub(crate) fn is_unverified(text: &str) -> bool {
        text.starts_with(UNVERIFIED)
    }

    /// Returns whether one principal may stand for callers with different tokens or quotas.
    pub(crate) fn is_of_many(&self) -> bool {
        !matches!(self, Self::Ids { .. })
    }
}
