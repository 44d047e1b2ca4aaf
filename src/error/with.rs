//! Setters of errors.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::StatusCode;
use serde_json::Value;

use super::{
    AnyError, ErrorKind, Evidence, Execution, Source, ToolError, Words, inner::ForModel, message,
    safe,
};
use crate::{call::JobRef, event::RetryRefusal, text::Short};

impl ToolError {
    /// Sets another code than the kind's. One that was put together at run time is redacted and cut
    /// at 64 characters.
    #[must_use]
    pub fn with_code(self, code: impl Into<Cow<'static, str>>) -> Self {
        let code = match code.into() {
            Cow::Owned(text) => Cow::Owned(Short::name(&text).to_string()),
            literal => literal,
        };
        self.edit(|e| e.code = Some(code))
    }

    /// Sets the cause. An error's own messages are not changed by it. A
    /// [`TokenExchange`](ErrorKind::TokenExchange) is as retryable as the [`ToolError`] that caused
    /// it.
    #[must_use]
    pub fn with_source(self, source: impl Into<AnyError>) -> Self {
        let source = source.into().into_inner();
        let cause = source.downcast_ref().map(Self::is_retryable);
        // The message is that of the source until now.
        self.message();
        self.edit(|e| {
            e.source = Source::Own(source);
            if let (ErrorKind::TokenExchange, Some(retryable)) = (e.kind, cause) {
                e.retryable = retryable;
            }
        })
    }

    /// Sets the tool's name.
    #[must_use]
    pub fn with_tool(self, tool: impl Into<Arc<str>>) -> Self {
        let tool = tool.into();
        self.edit(|e| e.tool = Some(tool))
    }

    /// Sets the server's name.
    #[must_use]
    pub fn with_server(self, server: impl Into<Arc<str>>) -> Self {
        let server = server.into();
        self.edit(|e| e.server = Some(server))
    }

    /// Sets how long to wait before another attempt has a chance.
    ///
    /// An [`Upstream`](ErrorKind::Upstream) error with status 503
    /// becomes [`Execution::NotStarted`]: the server turned the request away and said when to come
    /// back. One that was [inferred](Evidence::Inferred) does not. A [`Denied`](ErrorKind::Denied)
    /// error with status 403 becomes [`RateLimited`](ErrorKind::RateLimited): servers that use 403
    /// for a limit say when it ends.
    #[must_use]
    pub fn with_retry_after(self, delay: Duration) -> Self {
        let unavailable = self.status() == Some(StatusCode::SERVICE_UNAVAILABLE);
        self.limited_if_forbidden().edit(|e| {
            e.retry_after = Some(delay);
            e.own_delay = false;
            if unavailable && e.kind == ErrorKind::Upstream && e.evidence != Evidence::Inferred {
                e.execution = Execution::NotStarted;
            }
        })
    }

    /// Takes over the delay that a peer asks for, if it does.
    #[allow(dead_code, reason = "used by features that read delays")]
    pub(crate) fn hinted(self, delay: Option<Duration>) -> Self {
        match delay {
            Some(delay) => self.with_retry_after(delay),
            None => self,
        }
    }

    /// Makes a denial by status 403 a rate limit.
    pub(super) fn limited_if_forbidden(self) -> Self {
        match (self.kind(), self.status()) {
            (ErrorKind::Denied, Some(StatusCode::FORBIDDEN)) => self.edit(|e| {
                e.kind = ErrorKind::RateLimited;
                e.retryable = true;
            }),
            _ => self,
        }
    }

    pub(crate) fn set_own_delay(&mut self, delay: Duration) {
        self.change(|e| {
            e.retry_after = Some(delay);
            e.own_delay = true;
        });
    }

    /// Returns whether a load shedder of tower's refused the call, without a layer that says so.
    pub(crate) fn is_shed(&self) -> bool {
        self.0.is_shed()
    }

    /// Says why the call was not repeated, and what would have it repeated.
    pub(crate) fn set_retry_refused(&mut self, reason: RetryRefusal) {
        if matches!(reason, RetryRefusal::NotMarkedSafe | RetryRefusal::Unsafe) {
            self.change(|e| {
                e.all_details = OnceLock::new();
                e.retry_refused = Some(reason);
            });
        }
    }

    /// Sets whether the tool ran, where more is known than the [kind](ErrorKind::execution) says.
    /// With [`Execution::NotStarted`], an [inferred](Evidence::Inferred) error becomes a reported
    /// one ([`Evidence::Reported`]): retry layers may then repeat any call.
    #[must_use]
    pub fn with_execution(self, execution: Execution) -> Self {
        self.edit(|e| {
            e.execution = execution;
            if execution == Execution::NotStarted && e.evidence == Evidence::Inferred {
                e.evidence = Evidence::Reported;
            }
        })
    }

    /// Sets [`Execution::Unknown`], because an earlier attempt may have run.
    pub(crate) fn set_execution_unknown(&mut self) {
        self.change(|e| e.execution = Execution::Unknown);
    }

    /// Sets [`Execution::NotStarted`] and keeps the evidence.
    pub(crate) fn unsent(self) -> Self {
        self.edit(|e| e.execution = Execution::NotStarted)
    }

    /// Marks the call as [unsafe](crate::ReplaySafety::Unsafe) to run twice.
    pub(crate) fn set_unsafe(&mut self) {
        self.change(|e| e.must_not_repeat = true);
    }

    /// Sets whether the same call may succeed later. Default: as the
    /// [kind](ErrorKind::is_retryable) says. An error of an unsafe call that may have run stays
    /// [not retryable](Self::is_retryable).
    #[must_use]
    pub fn with_retryable(self, retryable: bool) -> Self {
        self.edit(|e| e.retryable = retryable)
    }

    /// Sets the upstream's HTTP status.
    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        self.edit(|e| e.status = Some(status))
    }

    /// Keeps the upstream's body, redacted and cut at [`MAX_TEXT`](super::MAX_TEXT) characters.
    /// Control characters, and those that turn or hide text (bidirectional controls, zero-width
    /// characters), become spaces, here as in all texts of an error.
    #[must_use]
    pub fn with_body(self, body: &str) -> Self {
        let body = safe(&self.0.rules, body);
        self.edit_more(|m| m.body = Some(body))
    }

    /// Adds a detail. Details are redacted when they are read.
    #[must_use]
    pub fn with_detail(self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.edit_more(|m| {
            m.details.insert(key.into(), value.into());
        })
    }

    /// Says that the call has started this job, which may still run.
    #[must_use]
    pub fn with_job(self, job: JobRef) -> Self {
        self.edit_more(|m| m.job = Some(job))
    }

    /// Says in the texts for users and models that the tool ran, and that its answer could not be
    /// used. The kind stays: see [`unusable`](Self::unusable).
    #[must_use]
    pub fn with_unusable_answer(self) -> Self {
        self.with_words(&message::UNUSABLE)
    }

    /// Sets the sentences that stand instead of the kind's.
    pub(crate) fn with_words(self, words: &'static Words) -> Self {
        self.edit_more(|m| m.words = Some(words))
    }

    /// Replaces the text for users. Taken as it is; redacted and cut where the error is serialised.
    #[must_use]
    pub fn with_user_message(self, text: impl Into<String>) -> Self {
        self.edit_more(|m| m.user_message = Some(text.into()))
    }

    /// Replaces the text for models. Taken as it is; redacted and cut where the error is
    /// serialised.
    #[must_use]
    pub fn with_model_message(self, text: impl Into<String>) -> Self {
        self.edit_more(|m| m.for_model = Some(ForModel::Text(text.into())))
    }
}
