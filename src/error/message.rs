//! Text for users and for models: one sentence for each kind, at most 200 characters, the tool's
//! name in it. "Try again" stands only where trying again helps.

use std::time::Duration;

use super::{ErrorKind, Execution, ToolError};
use crate::text::{Short, prefix};

/// The longest message, in characters.
pub(super) const MAX: usize = 200;

/// The longest name that is shown.
const MAX_NAME: usize = 64;

/// The same where others are named too: the rest belongs to those that exist.
const MAX_ASKED: usize = 40;

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
    // Whole, rounded up, at least 1: nobody may come back too early (E5).
    let up = u64::from(d.subsec_nanos() > 0);
    d.as_secs().saturating_add(up).max(1)
}

/// Whether the tool may have been reached: another tool might do what it has done already.
fn lost_midway(e: &ToolError) -> bool {
    e.execution() != Execution::NotStarted
}

/// The tool's name, redacted by the error's own rules too.
fn name_of(e: &ToolError, max: usize) -> String {
    let (head, cut) = e.0.rules.head(e.tool().unwrap_or("tool"), max);
    let dots = if cut { "..." } else { "" };
    format!("{}{dots}", Short::new(&head, max))
}

pub(super) fn for_user(e: &ToolError) -> String {
    let name = name_of(e, MAX_NAME);
    fit(match e.kind() {
        ErrorKind::Timeout => format!("The tool '{name}' took too long to answer."),
        ErrorKind::DeadlineExceeded => {
            format!("There was no time left to run the tool '{name}'.")
        }
        ErrorKind::RateLimited => match e.retry_after() {
            Some(d) => format!(
                "The tool '{name}' is limiting requests. Please try again in {} s.",
                seconds(d)
            ),
            None => format!("The tool '{name}' is limiting requests. Please try again later."),
        },
        ErrorKind::CircuitOpen => match e.retry_after() {
            Some(d) => format!(
                "The tool '{name}' is unavailable for now. Please try again in {} s.",
                seconds(d)
            ),
            None => format!("The tool '{name}' is unavailable for now. Please try again later."),
        },
        ErrorKind::Overloaded => format!("The tool '{name}' is busy. Please try again shortly."),
        ErrorKind::ConnectionFailed if e.is_unavailable() => {
            format!("The tool '{name}' is unavailable for now. Please try again later.")
        }
        ErrorKind::ConnectionFailed if lost_midway(e) => {
            format!("The connection to the tool '{name}' was lost.")
        }
        ErrorKind::ConnectionFailed => format!("The tool '{name}' could not be reached."),
        ErrorKind::Upstream => format!("The service behind the tool '{name}' failed."),
        ErrorKind::Denied => format!("Access to the tool '{name}' was denied."),
        ErrorKind::NotFound if e.status().is_some() => {
            format!("The tool '{name}' did not find what it was asked for.")
        }
        ErrorKind::NotFound => format!("The tool '{name}' is not available."),
        ErrorKind::InvalidInput => format!("The tool '{name}' could not use the given input."),
        ErrorKind::Failed | ErrorKind::Reported => format!("The tool '{name}' failed."),
        ErrorKind::Cancelled => format!("The tool '{name}' was cancelled."),
        ErrorKind::TokenExchange => format!("Signing in to the tool '{name}' failed."),
        ErrorKind::PollTimeout => format!("The job of the tool '{name}' has not finished in time."),
        ErrorKind::Panicked | ErrorKind::Internal => {
            format!("The tool '{name}' failed because of an internal error.")
        }
    })
}

/// A sentence with a reason in it, as much of it as there is room for.
fn because(before: &str, why: &str, after: &str) -> String {
    let why = why.trim_end_matches(['.', ' ']);
    // Where it is cut, three dots stand in the place of one.
    let taken = before.chars().count() + after.len() + 2;
    let why = Short::new(why, MAX.saturating_sub(taken)).to_string();
    let after = match why.ends_with("...") {
        true => after.trim_start_matches('.'),
        false => after,
    };
    format!("{before}{why}{after}")
}

/// Arguments that did not fit, and why.
fn refused(e: &ToolError, why: &str) -> String {
    let name = name_of(e, MAX_NAME);
    let why = why.strip_prefix("invalid arguments: ").unwrap_or(why);
    because(
        &format!("Tool '{name}' refused its arguments: "),
        why,
        ". Correct them and call it again.",
    )
}

/// A tool that is not there, and as many names of others as there is room for: half a name is of no use.
pub(super) fn near(e: &ToolError, names: &[String]) -> String {
    let name = name_of(e, MAX_ASKED);
    let mut names = names;
    loop {
        let text = match names {
            [] => return for_model(e),
            [one] => format!("Tool '{name}' does not exist. Did you mean '{one}'?"),
            [some @ .., last] => format!(
                "Tool '{name}' does not exist. Did you mean '{}' or '{last}'?",
                some.join("', '")
            ),
        };
        if !prefix(&text, MAX).1 {
            return text;
        }
        names = &names[..names.len() - 1];
    }
}

pub(super) fn for_model(e: &ToolError) -> String {
    let name = name_of(e, MAX_NAME);
    fit(match e.kind() {
        ErrorKind::Timeout => format!(
            "Tool '{name}' timed out and may still be running. Do not repeat the same call; ask for less, or continue without it."
        ),
        ErrorKind::DeadlineExceeded => format!(
            "Tool '{name}' was not run: the time for tools is used up. Answer with what you have."
        ),
        ErrorKind::RateLimited => match e.retry_after() {
            Some(d) => format!(
                "Tool '{name}' is rate limited. Try again once, after {} s, or continue without it.",
                seconds(d)
            ),
            None => {
                format!(
                    "Tool '{name}' is rate limited. Continue without it, or try again once, later."
                )
            }
        },
        ErrorKind::CircuitOpen => match e.retry_after() {
            Some(d) => format!(
                "Tool '{name}' keeps failing and is switched off for {} s. Use another tool or continue without it.",
                seconds(d)
            ),
            None => format!(
                "Tool '{name}' keeps failing and is switched off for now. Use another tool or continue without it."
            ),
        },
        ErrorKind::Overloaded => {
            format!("Tool '{name}' is busy. Try again once, later, or continue without it.")
        }
        ErrorKind::ConnectionFailed if e.is_unavailable() => format!(
            "Tool '{name}' is unavailable for the moment: its server does not answer. Use another tool or continue without it."
        ),
        ErrorKind::ConnectionFailed if lost_midway(e) => format!(
            "The connection to tool '{name}' was lost; it may have run all the same. Do not repeat the same call; continue without it."
        ),
        ErrorKind::ConnectionFailed => {
            format!("Tool '{name}' could not be reached. Use another tool or continue without it.")
        }
        ErrorKind::Upstream => format!(
            "The service behind tool '{name}' failed. Use another tool or continue without it."
        ),
        ErrorKind::Denied => format!(
            "Access to tool '{name}' was denied. Do not call it again; tell the user, or continue without it."
        ),
        // A status tells of what the tool looked for, not of the tool.
        ErrorKind::NotFound if e.status().is_some() => format!(
            "Tool '{name}' did not find what it was asked for. Check the arguments, or continue without it."
        ),
        ErrorKind::NotFound => {
            format!("Tool '{name}' does not exist. Call only tools that you were given.")
        }
        ErrorKind::InvalidInput => refused(e, e.message()),
        ErrorKind::Failed => because(
            &format!("Tool '{name}' failed: "),
            e.message(),
            ". Do not repeat the same call; change it or continue without it.",
        ),
        ErrorKind::Reported => because(
            &format!("Tool '{name}' reported an error: "),
            e.message(),
            ". Change the call or continue without it.",
        ),
        ErrorKind::Cancelled => {
            format!("The call of tool '{name}' was cancelled. Do not repeat it unless asked to.")
        }
        ErrorKind::TokenExchange => format!(
            "Signing in to tool '{name}' failed. Do not call it again; tell the user, or continue without it."
        ),
        ErrorKind::PollTimeout => format!(
            "The job that tool '{name}' started has not finished and may still run. Do not start it again; continue without it."
        ),
        ErrorKind::Panicked | ErrorKind::Internal => format!(
            "Tool '{name}' failed because of an internal error. Do not call it again; continue without it."
        ),
    })
}
