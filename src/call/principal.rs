//! The principal of a call, and which of its ids were verified.

use std::{fmt, sync::Arc};

use http::Extensions;

use super::{CallInfo, ToolCall, hash_of, info::Ident};
use crate::text::Short;

/// The ids of a call that were not verified, a bit each.
const SUBJECT: u8 = 1;
const AGENT: u8 = 2;
const SESSION: u8 = 4;

/// The id that names the principal of a call: the subject, else the agent, else the session.
#[derive(Clone, Copy)]
pub(crate) enum Whose<'a> {
    /// The hash of its token.
    Subject(u64),
    Agent(&'a str),
    Session(&'a str),
}

impl Whose<'_> {
    const fn bit(self) -> u8 {
        match self {
            Self::Subject(_) => SUBJECT,
            Self::Agent(_) => AGENT,
            Self::Session(_) => SESSION,
        }
    }
}

/// Shows no token: of a subject only a hash, which is another one in the next process.
impl fmt::Display for Whose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subject(hash) => write!(f, "subject #{hash:016x}"),
            Self::Agent(id) => write!(f, "agent {}", Short::name(id)),
            Self::Session(id) => write!(f, "session {}", Short::name(id)),
        }
    }
}

impl Ident {
    pub(super) fn whose(&self) -> Option<Whose<'_>> {
        let given = |id: &'_ Option<Arc<str>>| id.as_deref().is_some_and(|id| !id.is_empty());
        if self.subject != 0 {
            Some(Whose::Subject(self.subject))
        } else if given(&self.agent_id) {
            self.agent_id.as_deref().map(Whose::Agent)
        } else if given(&self.session_id) {
            self.session_id.as_deref().map(Whose::Session)
        } else {
            None
        }
    }

    pub(super) fn is_unverified(&self, whose: Whose<'_>) -> bool {
        self.unverified & whose.bit() != 0
    }

    /// The id of the agent was set anew: it is verified, unless that is said again.
    pub(super) fn set_agent(&mut self, id: Arc<str>) {
        self.agent_id = Some(id);
        self.unverified &= !AGENT;
    }

    pub(super) fn set_session(&mut self, id: Arc<str>) {
        self.session_id = Some(id);
        self.unverified &= !SESSION;
    }
}

/// The caller of a request, as a layer of the program's server has verified it: in the request's
/// extensions.
///
/// An authentication layer puts it there. Bridges take it up by
/// [`ToolCall::with_request_extensions`].
///
/// ```
/// use http::Request;
/// use tower_toolcall::{ToolCall, VerifiedCaller};
///
/// let mut request = Request::new(());
/// request.extensions_mut().insert(VerifiedCaller::new("alice"));
///
/// let call = ToolCall::new("search").with_request_extensions(request.extensions());
/// assert_eq!(call.agent_id(), Some("alice"));
/// assert!(!call.has_unverified_principal());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VerifiedCaller {
    id: Arc<str>,
    has_bearer_token: bool,
}

impl VerifiedCaller {
    /// Makes a caller by its name, which becomes the call's agent id: no token, as agent ids are
    /// shown in events.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            has_bearer_token: false,
        }
    }

    /// Says that the layer has checked the bearer token of the request as well.
    ///
    /// The subject that a bridge takes from the token is then a verified one. Default: it is [not
    /// verified](ToolCall::with_unverified_ids), because a caller who is known by other means, such
    /// as a certificate, can invent any number of tokens.
    #[must_use]
    pub fn with_bearer_token(mut self) -> Self {
        self.has_bearer_token = true;
        self
    }

    /// Returns whether the layer has checked the [bearer token](Self::with_bearer_token) as well.
    pub fn has_bearer_token(&self) -> bool {
        self.has_bearer_token
    }

    /// Returns the name.
    pub fn id(&self) -> &str {
        &self.id
    }
}

crate::text::debug_fields! { {} |this| VerifiedCaller { id: Short::name(&this.id), .. } }

impl ToolCall {
    /// Sets the agent id to that of the [`VerifiedCaller`] among the extensions of a request, if
    /// there is one.
    pub(crate) fn with_verified_caller(self, extensions: &Extensions) -> Self {
        match extensions.get() {
            Some(VerifiedCaller { id, .. }) => self.with_agent_id(Arc::clone(id)),
            None => self,
        }
    }

    /// Marks the ids that the call has now as not verified: the subject's token, the agent id and
    /// the session id.
    ///
    /// For bridges: an address of a peer, a session that any client may begin, a token that was not
    /// checked. Anybody can have any number of such ids. So in each bounded store all principals
    /// that were not verified hold at most half of the places together. They are also other
    /// principals than verified ones with the same ids. An id that is set later is a verified one.
    /// Default: ids are verified.
    ///
    /// ```
    /// use tower_toolcall::ToolCall;
    ///
    /// let call = ToolCall::new("search").with_session_id("192.0.2.7").with_unverified_ids();
    /// assert!(call.has_unverified_principal());
    /// assert!(!call.with_agent_id("alice").has_unverified_principal());
    /// ```
    pub fn with_unverified_ids(mut self) -> Self {
        self.data_mut().ident_mut().unverified = SUBJECT | AGENT | SESSION;
        self
    }

    /// Sets a session id that was not verified: the address of a connection, for example. The other
    /// ids stay as they are, verified or not.
    ///
    /// ```
    /// use tower_toolcall::ToolCall;
    ///
    /// let call = ToolCall::new("search").with_unverified_session("192.0.2.7");
    /// assert!(call.has_unverified_principal());
    /// assert!(!call.with_agent_id("alice").has_unverified_principal());
    /// ```
    pub fn with_unverified_session(mut self, id: impl Into<Arc<str>>) -> Self {
        let ident = self.data_mut().ident_mut();
        ident.set_session(id.into());
        ident.unverified |= SESSION;
        self
    }

    /// Names the subject by its token, which is kept elsewhere; `None` if there is none.
    pub(crate) fn set_subject(&mut self, token: Option<&str>) {
        let ident = self.data_mut().ident_mut();
        ident.subject = token.map_or(0, |token| hash_of(Some("subject"), Some(token)));
        ident.unverified &= !SUBJECT;
    }
}

impl CallInfo {
    /// Returns a hash that stands for the principal; `None` for a call without one. A principal
    /// that was not [verified](crate::ToolCall::with_unverified_ids) has another hash. The seed is
    /// random per process: do not store or send it.
    pub fn principal_hash(&self) -> Option<u64> {
        let whose = self.whose()?;
        let hash = match whose {
            Whose::Subject(hash) => hash,
            Whose::Agent(id) => hash_of(Some("agent"), Some(id)),
            Whose::Session(id) => hash_of(Some("session"), Some(id)),
        };
        Some(match self.ident().is_unverified(whose) {
            true => !hash,
            false => hash,
        })
    }
}
