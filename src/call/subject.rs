use super::{Secret, ToolCall};

/// Longer tokens could not be in a header.
const MAX_TOKEN: usize = 16 << 10;

/// The caller's own token, if it is usable: an extension that no other crate can read but by
/// [`ToolCall::subject_token`].
#[derive(Clone)]
struct Subject(Option<Secret>);

impl ToolCall {
    /// Sets the access token of the user for whom the call is made. A
    /// [`TokenLayer`](crate::token::TokenLayer) exchanges it for a token that the tool's service
    /// accepts.
    ///
    /// It is in no text, event or serialised call, and is never sent to a tool unless
    /// [that is asked for](crate::token::TokenLayer::pass_subject).
    ///
    /// [`once`](crate::once) and [`cache`](crate::cache) use the token itself as the subject. The
    /// same user with a renewed token is another subject, so a repeated call runs again under
    /// `once`. If tokens are renewed between calls, name the subject by
    /// [`OnceBuilder::with_principal`](crate::once::OnceBuilder::with_principal).
    pub fn with_subject_token(mut self, token: impl Into<Secret>) -> Self {
        let is_usable = |token: &Secret| (1..=MAX_TOKEN).contains(&token.expose().len());
        let usable = Some(token.into()).filter(is_usable);
        self.set_subject(usable.as_ref().map(Secret::expose));
        let mut call = self.with_secrets(usable.as_ref().map(Secret::expose));
        call.extensions_mut().insert(Subject(usable));
        call
    }

    /// Returns the token of the one for whom the call is made. An empty token counts as none: all
    /// callers could share it. So does one of more than 16 KiB, which fits into no header.
    pub fn subject_token(&self) -> Option<&Secret> {
        self.extensions().get::<Subject>()?.0.as_ref()
    }
}
