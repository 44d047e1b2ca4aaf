//! Text for users and for models: one sentence for each kind, at most 200 characters, the tool's
//! name in it. "Try again" is said only where it helps.

use std::time::Duration;

use super::{ErrorKind, Execution, ToolError, inner::ForModel};
use crate::text::{Short, prefix};

/// The longest message, in characters.
pub(super) const MAX: usize = 200;

/// The longest name that is shown.
const MAX_NAME: usize = 64;

/// The same where others are named too: the rest belongs to those that exist.
const MAX_ASKED: usize = 40;

/// The longest reason that another text quotes.
const MAX_REASON: usize = 100;

/// For developers.
pub(super) const NO_SUCH_TOOL: &str = "there is no tool of this name";

/// Cuts to [`MAX`], the dots included.
pub(super) fn fit(text: String) -> String {
    if prefix(&text, MAX).1 {
        return format!("{}...", prefix(&text, MAX - 3).0);
    }
    text
}

pub(super) fn seconds(d: Duration) -> u64 {
    // Whole, rounded up, at least 1: no caller comes back too early.
    let up = u64::from(d.subsec_nanos() > 0);
    d.as_secs().saturating_add(up).max(1)
}

/// The tool's name.
fn name_of(e: &ToolError, max: usize) -> String {
    shown(e, e.tool().unwrap_or("tool"), max)
}

/// The beginning of a text, redacted by the error's own rules too.
fn shown(e: &ToolError, text: &str, max: usize) -> String {
    let (head, cut) = e.0.rules.head(text, max);
    let dots = if cut { "..." } else { "" };
    format!("{}{dots}", Short::new(&head, max))
}

/// The sentence that a template makes: `{tool}` stands for the tool's name, `{wait}` for the seconds to wait, `{why}` for as much of
/// the reason as there is room for.
fn sentence(e: &ToolError, template: &str, why: &str) -> String {
    let wait = e.retry_after().map_or(0, seconds).to_string();
    let filled = |part: &str| {
        let part = part.replace("{wait}", &wait);
        part.replace("{tool}", &name_of(e, MAX_NAME))
    };
    match template.split_once("{why}") {
        Some((before, after)) => because(&filled(before), why, after),
        None => fit(filled(template)),
    }
}

/// For the user, and for the model.
#[rustfmt::skip]
fn templates(e: &ToolError) -> [&'static str; 2] {
    let knows_wait = e.retry_after().is_some();
    match e.kind() {
        ErrorKind::Timeout if e.execution() == Execution::Completed => ["The tool '{tool}' took too long to answer.",
            "Tool '{tool}' has run to its end, but too late for its answer to be passed on. Do not repeat the same call; continue without it."],
        ErrorKind::Timeout => ["The tool '{tool}' took too long to answer.",
            "Tool '{tool}' timed out and may still be running. Do not repeat the same call; ask for less, or continue without it."],
        ErrorKind::DeadlineExceeded => ["There was no time left to run the tool '{tool}'.",
            "Tool '{tool}' was not run: the time for tools is used up. Answer with what you have."],
        ErrorKind::RateLimited if knows_wait => ["The tool '{tool}' is limiting requests. Please try again in {wait} s.",
            "Tool '{tool}' is rate limited. Try again once, after {wait} s, or continue without it."],
        ErrorKind::RateLimited => ["The tool '{tool}' is limiting requests. Please try again later.",
            "Tool '{tool}' is rate limited. Continue without it, or try again once, later."],
        ErrorKind::CircuitOpen if knows_wait => ["The tool '{tool}' is unavailable for now. Please try again in {wait} s.",
            "Tool '{tool}' keeps failing and is switched off for {wait} s. Use another tool or continue without it."],
        ErrorKind::CircuitOpen => ["The tool '{tool}' is unavailable for now. Please try again later.",
            "Tool '{tool}' keeps failing and is switched off for now. Use another tool or continue without it."],
        ErrorKind::Overloaded => ["The tool '{tool}' is busy. Please try again shortly.",
            "Tool '{tool}' is busy. Try again once, later, or continue without it."],
        ErrorKind::ConnectionFailed if e.is_own_refusal() => ["The tool '{tool}' is unavailable for now. Please try again later.",
            "Tool '{tool}' is unavailable for the moment: its server does not answer. Use another tool or continue without it."],
        // It may have run: another tool might do the same again.
        ErrorKind::ConnectionFailed if e.execution() != Execution::NotStarted => ["The connection to the tool '{tool}' was lost.",
            "The connection to tool '{tool}' was lost; it may have run all the same. Do not repeat the same call; continue without it."],
        ErrorKind::ConnectionFailed => ["The tool '{tool}' could not be reached.",
            "Tool '{tool}' could not be reached. Use another tool or continue without it."],
        ErrorKind::Upstream => ["The service behind the tool '{tool}' failed.",
            "The service behind tool '{tool}' failed. Use another tool or continue without it."],
        ErrorKind::Denied => ["Access to the tool '{tool}' was denied.",
            "Access to tool '{tool}' was denied. Do not call it again; tell the user, or continue without it."],
        // The status is about what the tool looked for, not about the tool.
        ErrorKind::NotFound if e.status().is_some() => ["The tool '{tool}' did not find what it was asked for.",
            "Tool '{tool}' did not find what it was asked for. Check the arguments, or continue without it."],
        ErrorKind::NotFound => ["The tool '{tool}' is not available.",
            "Tool '{tool}' does not exist. Call only tools that you were given."],
        ErrorKind::InvalidInput => ["The tool '{tool}' could not use the given input.",
            "Tool '{tool}' refused its arguments: {why}. Correct them and call it again."],
        ErrorKind::Failed => ["The tool '{tool}' failed.",
            "Tool '{tool}' failed: {why}. Do not repeat the same call; change it or continue without it."],
        ErrorKind::Reported => ["The tool '{tool}' failed.",
            "Tool '{tool}' reported an error: {why}. Change the call or continue without it."],
        ErrorKind::Cancelled => ["The tool '{tool}' was cancelled.",
            "The call of tool '{tool}' was cancelled. Do not repeat it unless asked to."],
        ErrorKind::TokenExchange => ["Signing in to the tool '{tool}' failed.",
            "Signing in to tool '{tool}' failed. Do not call it again; tell the user, or continue without it."],
        ErrorKind::PollTimeout => ["The job of the tool '{tool}' has not finished in time.",
            "The job that tool '{tool}' started has not finished and may still run. Do not start it again; continue without it."],
        ErrorKind::Panicked | ErrorKind::Internal => ["The tool '{tool}' failed because of an internal error.",
            "Tool '{tool}' failed because of an internal error. Do not call it again; continue without it."],
    }
}

pub(super) fn for_user(e: &ToolError) -> String {
    let [template, _] = templates(e);
    sentence(e, template, "")
}

/// A sentence with a reason in it, as much of it as there is room for.
fn because(before: &str, why: &str, after: &str) -> String {
    let why = why.trim_end_matches(['.', ' ']);
    // A cut reason ends with three dots, which replace the full stop of the sentence.
    let taken = before.chars().count() + after.len() + 2;
    let why = Short::new(why, MAX.saturating_sub(taken)).to_string();
    let after = match why.ends_with("...") {
        true => after.trim_start_matches('.'),
        false => after,
    };
    format!("{before}{why}{after}")
}

/// A tool that is not there, and as many names of others as there is room for: half a name is of no use.
pub(super) fn near(e: &ToolError, names: &[String]) -> String {
    let name = name_of(e, MAX_ASKED);
    let mut names = names;
    while let [some @ .., last] = names {
        let or = if some.is_empty() { "" } else { "' or '" };
        let meant = some.join("', '") + or + last;
        let text = format!("Tool '{name}' does not exist. Did you mean '{meant}'?");
        if !prefix(&text, MAX).1 {
            return text;
        }
        names = some;
    }
    for_model(e)
}

pub(super) fn for_model(e: &ToolError) -> String {
    because_of(e, why(e))
}

fn why(e: &ToolError) -> &str {
    let why = e.message();
    match e.kind() {
        ErrorKind::InvalidInput => why.strip_prefix("invalid arguments: ").unwrap_or(why),
        _ => why,
    }
}

/// The reason in the text for models, to be quoted in another one; `None` if it names none.
pub(super) fn reason(e: &ToolError) -> Option<Box<str>> {
    let names_it = || templates(e)[1].contains("{why}");
    let why = match e.more().and_then(|m| m.for_model.as_ref()) {
        Some(ForModel::Text(text)) => text,
        #[cfg(feature = "validate")]
        Some(ForModel::Why(why)) => why,
        None if names_it() => why(e),
        _ => return None,
    };
    let why = why.trim_end_matches(['.', ' ']);
    (!why.is_empty()).then(|| shown(e, why, MAX_REASON).into())
}

/// The sentence for the model, with this reason.
pub(super) fn because_of(e: &ToolError, why: &str) -> String {
    let [_, template] = templates(e);
    sentence(e, template, why)
}
