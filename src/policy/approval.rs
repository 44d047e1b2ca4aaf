use std::{
    fmt::{self, Write as _},
    future::Future,
    pin::Pin,
    sync::Arc,
};

use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::{
    call::ToolCall,
    error::ToolError,
    redact::Redacted,
    text::{Short, is_hidden},
};

/// A call that waits for an approval: the request of an approver, any `Service<Approval, Response =
/// ApprovalDecision>`.
///
/// It is answered once, by [`approve`](Self::approve) or [`deny`](Self::deny), and the answer holds
/// for this call alone, with these arguments: the layer sends what was shown here. An approval that
/// is dropped approves nothing.
///
/// # Display
///
/// One line for a person: who wants to call what, the redacted arguments, and the rule's reason. No
/// argument and no name can rearrange what the person reads. Hidden characters are written as
/// escapes (`\u{202e}`), or as a space in names. A quote or backslash in a name has a backslash
/// before it. What is long or secret is not shown: [`is_shown_in_full`](Self::is_shown_in_full)
/// says so.
pub struct Approval {
    call: ToolCall,
    reason: Option<Arc<str>>,
    until: Option<Instant>,
    question: Question,
}

/// One question. Its clones are that question, and no other is.
#[derive(Clone, Default)]
pub(super) struct Question(Arc<()>);

/// An approver's answer: made of an [`Approval`], and of nothing else.
#[must_use = "approves nothing unless it is returned"]
pub struct ApprovalDecision {
    question: Question,
    call: ToolCall,
    denied: Option<Option<String>>,
}

/// The meaning of an `ApprovalDecision` for the waiting call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged {
    Approved,
    /// With what the model reads.
    Refused(Option<String>),
    /// The answer to another question.
    Stray,
}

impl Question {
    /// Puts it, about a call, to an approver.
    pub(super) fn about(
        &self,
        call: &ToolCall,
        reason: Option<Arc<str>>,
        until: Option<Instant>,
    ) -> Approval {
        Approval {
            call: call.copy(),
            reason,
            until,
            question: self.clone(),
        }
    }

    pub(super) fn judge(&self, verdict: ApprovalDecision, call: &ToolCall) -> Judged {
        let is_this = Arc::ptr_eq(&self.0, &verdict.question.0)
            && verdict.call.server() == call.server()
            && verdict.call.tool() == call.tool()
            && verdict.call.arguments() == call.arguments();
        match verdict.denied {
            Some(reason) => Judged::Refused(reason),
            None if is_this => Judged::Approved,
            None => Judged::Stray,
        }
    }
}

impl Approval {
    /// Approves this call.
    pub fn approve(self) -> ApprovalDecision {
        self.answer(None)
    }

    /// Denies it. The reason is for the model, redacted and cut at 80 characters; empty, none.
    pub fn deny(self, reason: impl Into<String>) -> ApprovalDecision {
        let reason = Some(reason.into()).filter(|reason| !reason.trim().is_empty());
        self.answer(Some(reason))
    }

    fn answer(self, denied: Option<Option<String>>) -> ApprovalDecision {
        ApprovalDecision {
            question: self.question,
            call: self.call,
            denied,
        }
    }

    /// Returns the tool's name.
    pub fn tool(&self) -> &str {
        self.call.tool()
    }

    /// Returns the server that has the tool.
    pub fn server(&self) -> Option<&str> {
        self.call.server()
    }

    /// Returns the id of the agent that makes the call.
    pub fn agent_id(&self) -> Option<&str> {
        self.call.agent_id()
    }

    /// Returns the caller's session id.
    pub fn session_id(&self) -> Option<&str> {
        self.call.session_id()
    }

    /// Returns why the [rule](super::Rule::because) asks.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns when the answer comes too late: at the end of the layer's time limit, or at the
    /// call's deadline.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Returns the arguments without secrets and bounded, by the [rules](ToolCall::with_rules) of
    /// the call: to be shown.
    pub fn arguments(&self) -> Redacted<'_> {
        self.call.sanitized()
    }

    /// Returns the arguments as they are sent. There may be secrets in them.
    pub fn arguments_in_full(&self) -> &Map<String, Value> {
        self.call.arguments()
    }

    /// Returns whether the displayed line shows all that is sent: no name and no
    /// [argument](Self::arguments) is secret or too long, and no name has hidden characters. If
    /// not, a person who reads only the line approves something it does not show.
    pub fn is_shown_in_full(&self) -> bool {
        let mut names = [Some(self.tool()), self.server(), self.agent_id()]
            .into_iter()
            .flatten();
        // As it is printed: the view is cut by its printed length too.
        let sent = serde_json::to_string(self.arguments_in_full());
        // A variation selector, which emoji need, is shown as it is, and not seen beside other
        // characters.
        let is_unseen = |c| matches!(c, '\u{fe00}'..='\u{fe0f}');
        names.all(|name| Short::name(name).to_string() == name && !name.contains(is_unseen))
            && sent.is_ok_and(|sent| sent == self.arguments().to_string())
    }

    /// Returns the call, to be looked at.
    pub fn call(&self) -> &ToolCall {
        &self.call
    }
}

impl fmt::Display for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Visible(f);
        // A name cannot end its quotes.
        let quoted = |name| {
            let name = Short::name(name).to_string();
            name.replace('\\', r"\\").replace('\'', r"\'")
        };
        if let Some(agent) = self.agent_id() {
            write!(out, "agent '{}' wants to call ", quoted(agent))?;
        }
        write!(out, "'{}'", quoted(self.tool()))?;
        if let Some(server) = self.server() {
            write!(out, " of server '{}'", quoted(server))?;
        }
        write!(out, " with {}", self.arguments())?;
        match self.reason() {
            Some(reason) => write!(out, " ({reason})"),
            None => Ok(()),
        }
    }
}

/// Writes hidden characters as escapes.
struct Visible<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Visible<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive(is_hidden) {
            match piece.char_indices().next_back() {
                Some((at, c)) if is_hidden(c) => {
                    write!(self.0, "{}{}", &piece[..at], c.escape_unicode())?;
                }
                _ => self.0.write_str(piece)?,
            }
        }
        Ok(())
    }
}

crate::text::debug_fields! {
    /// Shows names and sizes, never a value.
    {} |_| Approval { call, until, .. }
}

crate::text::debug_fields! {
    /// Shows names and sizes, never a value.
    {} |this| ApprovalDecision { approved: this.denied.is_none(), call, .. }
}

pub(super) type Answer = Pin<Box<dyn Future<Output = Result<ApprovalDecision, ToolError>> + Send>>;

/// An approver of any type.
pub(super) type Approve = dyn Fn(Approval) -> Answer + Send + Sync;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(arguments: Value) -> ToolCall {
        ToolCall::new("delete").with_json(arguments).unwrap()
    }

    fn approval(call: &ToolCall) -> Approval {
        Question::default().about(call, None, None)
    }

    #[test]
    fn an_approval_is_for_its_question_its_tool_and_its_arguments() {
        let question = Question::default();
        let asked = call(json!({ "path": "/tmp/a" }));
        let judge = |call: &ToolCall| {
            let verdict = question.about(&asked, None, None).approve();
            question.judge(verdict, call)
        };
        assert_eq!(judge(&asked), Judged::Approved);
        assert_eq!(judge(&call(json!({ "path": "/" }))), Judged::Stray);
        assert_eq!(judge(&asked.clone().with_server("b")), Judged::Stray);
        let same = Question::default().about(&asked, None, None).approve();
        assert_eq!(question.judge(same, &asked), Judged::Stray);
    }

    #[test]
    fn a_stray_denial_denies() {
        let asked = call(json!({}));
        let verdict = approval(&asked).deny(" ");
        let judged = Question::default().judge(verdict, &asked);
        assert_eq!(judged, Judged::Refused(None));
    }

    /// A terminal obeys escape sequences, and shows text in the direction that it asks for.
    #[test]
    fn hidden_characters_are_seen() {
        let call = call(json!({ "path": "/tmp/\u{202e}\u{1b}[2K" })).with_agent_id("a\nb");
        let line = approval(&call).to_string();
        assert!(line.contains(r"\u{202e}"), "{line}");
        assert!(!line.contains(is_hidden), "{line}");
        assert!(line.starts_with("agent 'a b' wants to call 'delete' with "));
    }

    #[test]
    fn what_is_not_shown_is_told() {
        assert!(approval(&call(json!({ "path": "/tmp", "n": 1.5 }))).is_shown_in_full());
        let secret = approval(&call(json!({ "password": "rm -rf /" })));
        assert!(!secret.is_shown_in_full());
        assert_eq!(secret.arguments_in_full()["password"], "rm -rf /");
        let long = "a".repeat(10_000) + "; rm -rf /";
        assert!(!approval(&call(json!({ "command": long }))).is_shown_in_full());
        // Two tools may differ behind the part of their names that is shown, or in what cannot be
        // seen.
        let unseen = ["read\u{200b}", "read\u{34f}", "read\u{fe0f}"].map(str::to_owned);
        for name in unseen.into_iter().chain(["read_".repeat(13) + "delete"]) {
            assert!(
                !approval(&ToolCall::new(&*name)).is_shown_in_full(),
                "{name}"
            );
            let of_server = call(json!({})).with_server(&*name);
            assert!(!approval(&of_server).is_shown_in_full(), "{name}");
        }
    }

    /// The displayed line is cut by its printed length, which numbers and escapes make longer than
    /// the text.
    #[test]
    fn a_line_that_is_cut_is_not_shown_in_full() {
        let numbers = vec![u64::MAX; 900];
        let quotes = vec!["\"".repeat(190); 70];
        for long in [json!({ "rows": numbers }), json!({ "rows": quotes })] {
            let approval = approval(&call(long));
            assert!(approval.to_string().contains("[truncated]"));
            assert!(!approval.is_shown_in_full());
        }
    }

    #[test]
    fn a_name_cannot_pass_for_the_rest_of_the_line() {
        let call = ToolCall::new("read' of server 'docs' with {} ('").with_server("evil");
        let line = approval(&call).to_string();
        assert!(
            line.starts_with(r"'read\' of server \'docs\' with {} (\'' of server 'evil'"),
            "{line}"
        );
        let call = ToolCall::new(r"read\' of server \'docs").with_server("evil");
        let line = approval(&call).to_string();
        assert!(
            line.starts_with(r"'read\\\' of server \\\'docs' of server 'evil'"),
            "{line}"
        );
    }
}
