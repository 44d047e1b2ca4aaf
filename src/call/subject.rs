use super::{Secret, ToolCall};

/// Longer tokens could not be in a header.
const MAX_TOKEN: usize = 16 << 10;

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
    /// Sets the token of the one for whom the call is made: a
    /// [`TokenLayer`](crate::token::TokenLayer) exchanges it for one that the tool's service takes.
    ///
    /// It is in no text, event or serialised call, and is never sent to a tool unless
    /// [that is asked for](crate::token::TokenLayer::pass_subject).
    ///
    /// [`once`](crate::once) and [`cache`](crate::cache) take the token itself for its subject: the
    /// same one with a renewed token is another, so that what is asked for again with it under
    /// `once` runs again. Where tokens are renewed meanwhile, name the subject by
    /// [`OnceBuilder::with_principal`](crate::once::OnceBuilder::with_principal).
    pub fn with_subject_token(mut self, token: impl Into<Secret>) -> Self {
        let subject = Subject(token.into());
        self.set_subject(subject.usable().map(Secret::expose));
        let mut call = self.with_secrets(subject.usable().map(Secret::expose));
        call.extensions_mut().insert(subject);
        call
    }

    /// Returns the token of the one for whom the call is made. An empty token counts as none: all
    /// callers could share it. So does one of more than 16 KiB, which fits into no header.
    pub fn subject_token(&self) -> Option<&Secret> {
        self.extensions().get::<Subject>()?.usable()
    }
}
