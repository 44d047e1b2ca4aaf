//! Methods of errors for layers and tool services: which call they are about, and the redaction
//! rules of that call.

use std::{borrow::Cow, sync::Arc, time::Duration};

use super::{
    ErrorKind, Evidence, Execution, Inner, Message, Source, TimeoutData, TimeoutLimit, ToolError,
    inner::ForModel, message, safe,
};
use crate::{
    answer::{Answer, PARSED},
    call::{CallInfo, JobRef},
    event::transition::millis,
    redact::Rules,
    text::did_you_mean,
};

/// For authors of layers and tool services.
impl ToolError {
    /// Adds the tool, the server and the call id where the error has none. The first writer wins.
    /// Its texts are redacted by the call's [rules](crate::ToolCall::with_rules), if it has any of
    /// its own.
    ///
    /// An error belongs to another call if the ids differ or, without ids, the names of the tools.
    /// For this call it is only [inferred](Evidence::Inferred), and that the other one had not
    /// started becomes [`Execution::Unknown`].
    ///
    /// If the call is marked [`Unsafe`](crate::ReplaySafety::Unsafe) and may have run, the error is
    /// [not retryable](Self::is_retryable) any more.
    #[must_use]
    pub fn for_call(mut self, call: &CallInfo) -> Self {
        self.address(call);
        self
    }

    /// Creates the error of a call that a layer has ended after the timeout `in_force`. A deadline
    /// may have made it shorter than the `configured` timeout.
    pub fn timed_out(
        call: &CallInfo,
        in_force: Duration,
        configured: Duration,
        limit: TimeoutLimit,
    ) -> Self {
        let ms = millis::of(in_force);
        let why = match limit {
            TimeoutLimit::Timeout => "",
            TimeoutLimit::Deadline | TimeoutLimit::Caller => " (limited by the deadline)",
            TimeoutLimit::Idle => " without progress",
        };
        let message = format!("Tool invocation timed out after {ms}ms{why}");
        Self::made(ErrorKind::Timeout, message.into(), |e| {
            e.timeout = Some(TimeoutData {
                in_force,
                configured,
                limit,
            });
        })
        .for_call(call)
    }

    /// Makes it a [refusal](Self::refusal) of this side: the call was not sent, and nothing is
    /// known of the tool.
    #[must_use]
    pub fn into_own_refusal(self) -> Self {
        self.edit(Inner::refuse)
    }

    /// Marks the error as read from a foreign error: it is [inferred](Evidence::Inferred), and
    /// whether the tool ran is [unknown](Execution::Unknown). For adapters that choose the kind of
    /// another system's error by its type or code.
    ///
    /// ```
    /// use tower_toolcall::{ErrorKind, Evidence, Execution, ToolError};
    ///
    /// // A server's words: its tool may have met the limit after its work, at a server of its own.
    /// let error = ToolError::new(ErrorKind::RateLimited, "slow down").into_inferred();
    /// assert_eq!(error.evidence(), Evidence::Inferred);
    /// assert_eq!(error.execution(), Execution::Unknown);
    /// ```
    #[must_use]
    pub fn into_inferred(self) -> Self {
        self.edit(|e| {
            e.infer();
            e.execution = Execution::Unknown;
        })
    }

    /// Marks that a layer has counted this failure against the tool's server, so that no outer
    /// layer counts it again.
    #[must_use]
    pub fn counted(mut self) -> Self {
        self.set_counted();
        self
    }

    /// Returns whether an inner layer has [counted](Self::counted) it.
    pub fn is_counted(&self) -> bool {
        self.0.counted
    }

    /// Sets how many attempts were made.
    #[must_use]
    pub fn with_attempts(self, attempts: u32) -> Self {
        self.edit(|e| e.attempts = attempts)
    }

    /// Sets how long the call took.
    #[must_use]
    pub fn with_elapsed(self, elapsed: Duration) -> Self {
        self.edit(|e| e.elapsed = Some(elapsed))
    }

    /// Sets [how long to wait](Self::retry_after) by this side's own reckoning: the server asked
    /// for nothing. No layer takes it for a hint of the server's.
    ///
    /// For tool services that make no new connection for a while.
    #[must_use]
    pub fn with_own_delay(mut self, delay: Duration) -> Self {
        self.set_own_delay(delay);
        self
    }

    /// Returns whether the [delay](Self::retry_after) is this side's own.
    pub fn has_own_delay(&self) -> bool {
        self.0.own_delay
    }

    /// Makes it the error of a tool that does not exist, and names others that may have been meant:
    /// the message for developers has all of them, the one for models as many as fit. Names that
    /// would be redacted are left out.
    #[must_use]
    pub fn with_near(self, mut names: Vec<String>) -> Self {
        let rules = self.0.rules.clone();
        names.retain(|name| rules.redact_text(name) == name.as_str());
        let text = match did_you_mean(&names) {
            _ if message::is_elsewhere(&self, &names) => {
                "unknown tool at this server; call it without a server".to_owned()
            }
            Some(meant) => format!("unknown tool; {meant}"),
            None => "unknown tool".to_owned(),
        };
        self.with_message(&text)
            .edit_more(|m| m.for_model = Some(ForModel::Near(names)))
    }

    /// Does the same in place.
    pub(crate) fn address(&mut self, call: &CallInfo) {
        let of_another = self.is_of_another(call);
        if self.0.tool.is_some()
            && (self.0.server.is_some() || call.server().is_none())
            && (self.0.call_id.is_some() || call.id().is_none())
            && (self.0.must_not_repeat || !call.is_unsafe())
            && !of_another
            && self.is_redacted_by(call.rules())
        {
            return;
        }
        self.change(|e| {
            if of_another {
                e.infer();
            }
            e.stamp(call);
        });
        if !self.is_redacted_by(call.rules()) {
            self.redact_again(call.rules());
        }
    }

    /// Gives the error of a call that was passed on under other names (`inner`) the names that its
    /// caller knows (`outer`).
    ///
    /// What the error says of the inner call, for example that it has not started, then holds for
    /// the outer one. An error of a third call stays one.
    pub(crate) fn readdress(&mut self, inner: &CallInfo, outer: &CallInfo) {
        self.address(inner);
        let elsewhere = inner.server().is_some() && self.server() != inner.server();
        if !elsewhere && self.tool() == Some(inner.tool()) {
            self.change(|e| {
                e.tool = Some(Arc::clone(outer.shared_tool()));
                if let Some(server) = outer.shared_server() {
                    e.server = Some(Arc::clone(server));
                }
            });
        }
        self.address(outer);
    }

    /// The error of a call that was made for others, for each of these: what it says holds for them
    /// as it is.
    pub(crate) fn unnamed(self) -> Self {
        self.edit(|e| {
            (e.tool, e.server, e.call_id) = (None, None, None);
            (e.attempts, e.elapsed) = (0, None);
        })
    }

    /// Returns what can be kept for long: without the source, which may have any size, and without
    /// the secrets of its call. Their texts are printed and redacted now.
    pub(crate) fn without_source(self) -> Self {
        let printed = match &self.0.message {
            Message::Text(_) => None,
            Message::OfSource(_) => Some(self.message().to_owned()),
        };
        self.edit(|e| {
            if let Some(text) = printed {
                e.message = Message::Text(text.into());
            }
            e.source = Source::None;
            e.hide_secrets();
            e.rules = std::mem::take(&mut e.rules).forget_secrets();
        })
    }

    /// About how many bytes it takes while it is kept, without its source and its names.
    pub(crate) fn kept_bytes(&self) -> u64 {
        // The message, the body and the code have bounds of their own.
        let mut bytes = 4_096;
        if let Some(more) = &self.0.more {
            let values = more.job.as_ref().map(JobRef::values);
            for (name, value) in more.details.iter().chain(values.into_iter().flatten()) {
                let parsed = if value.is_string() { 1 } else { PARSED };
                bytes += name.len() as u64 + parsed * Answer::Json(Cow::Borrowed(value)).bytes();
            }
            if let Some(ForModel::Text(text)) = &more.for_model {
                bytes += text.len() as u64;
            }
            bytes += more.user_message.as_ref().map_or(0, String::len) as u64;
        }
        bytes
    }

    fn is_redacted_by(&self, rules: &Rules) -> bool {
        *rules == Rules::default() || self.0.rules == *rules
    }

    /// Redacts the texts again, by the rules of the caller.
    #[cold]
    fn redact_again(&mut self, rules: &Rules) {
        let again = |text: &str| safe(rules, &rules.without_cut_secret(text));
        // By the built-in rules first.
        self.message();
        self.change(|e| {
            match &mut e.message {
                Message::Text(Cow::Borrowed(_)) => {}
                Message::Text(Cow::Owned(text)) => *text = again(text),
                Message::OfSource(printed) => {
                    let text = printed.get_mut().expect("printed above");
                    *text = again(text).into();
                }
            }
            e.hide_secrets();
            if let Some(more) = &mut e.more {
                more.body = more.body.as_deref().map(again);
                match &mut more.for_model {
                    Some(ForModel::Near(names)) => {
                        names.retain(|name| rules.redact_text(name) == name.as_str());
                    }
                    #[cfg(feature = "validate")]
                    Some(ForModel::Why(why)) => *why = again(why),
                    // Set as it is, and redacted where it is written.
                    Some(ForModel::Text(_)) | None => {}
                }
            }
            e.rules = rules.clone();
            e.hide_in_code();
        });
    }

    fn is_of_another(&self, call: &CallInfo) -> bool {
        let another = match (self.call_id(), call.id()) {
            (Some(theirs), Some(own)) => theirs != own,
            _ => {
                let elsewhere =
                    matches!((self.server(), call.server()), (Some(a), Some(b)) if a != b);
                elsewhere || self.tool().is_some_and(|theirs| !call.is_named(theirs))
            }
        };
        another
            && (self.evidence() != Evidence::Inferred || self.execution() == Execution::NotStarted)
    }
}
