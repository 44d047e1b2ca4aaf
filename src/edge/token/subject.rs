use super::{Secret, Target, answer::MAX_TOKEN};
use crate::{call::ToolCall, kit::flights::FlightKey};

/// The caller's own token: an extension that no other crate can read but by
/// [`ToolCall::subject_token`].
#[derive(Clone)]
struct Subject(Secret);

impl Subject {
    fn usable(&self) -> Option<&Secret> {
        let bytes = self.0.expose().len();
        (1..=MAX_TOKEN).contains(&bytes).then_some(&self.0)
    }
}

impl ToolCall {
    /// Sets the token of the one for whom the call is made: a [`TokenLayer`](super::TokenLayer)
    /// exchanges it for one that the tool's service takes.
    ///
    /// It is in no text, event or serialised call, and is never sent to a tool unless
    /// [that is asked for](super::TokenLayer::pass_subject).
    ///
    /// [`once`](crate::once) and [`cache`](crate::cache) take the token itself for its subject: the
    /// same one with a renewed token is another, so that what is asked for again with it under
    /// `once` runs again. Where tokens are renewed meanwhile, name the subject by
    /// [`OnceBuilder::with_principal`](crate::once::OnceBuilder::with_principal).
    #[must_use]
    pub fn with_subject_token(mut self, token: impl Into<Secret>) -> Self {
        let subject = Subject(token.into());
        self.set_subject(subject.usable().map(Secret::expose));
        self.extensions_mut().insert(subject);
        self
    }

    /// The token of the one for whom the call is made. An empty one is none: it would be
    /// everybody's. So is one of more than 16 KiB, which could be in no header.
    pub fn subject_token(&self) -> Option<&Secret> {
        self.extensions().get::<Subject>()?.usable()
    }
}

/// What a call to an identity provider asks for: an extension of the calls that a
/// [`TokenLayer`](super::TokenLayer) sends to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRequest {
    subject: Secret,
    target: Target,
}

impl FlightKey for TokenRequest {}

impl TokenRequest {
    /// A token for this target, in exchange for the subject's.
    pub fn new(subject: impl Into<Secret>, target: Target) -> Self {
        let subject = subject.into();
        Self { subject, target }
    }

    /// The token to exchange.
    pub fn subject(&self) -> &Secret {
        &self.subject
    }

    /// For whom the new one has to be.
    pub fn target(&self) -> &Target {
        &self.target
    }
}
