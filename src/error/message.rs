//! Text for users and for models: one text for each kind, at most 200 characters, the tool's name
//! in it. "Try again" is said only where it helps, and the text says the same as
//! [`ToolError::is_retryable`].

use std::time::Duration;

use super::{ErrorKind, Execution, ToolError, inner::ForModel};
use crate::{
    event::transition::millis,
    text::{Short, either, plain, prefix},
};

/// The longest message, in characters.
pub(super) const MAX: usize = 200;

/// The longest name that is shown.
const MAX_NAME: usize = 64;

/// The longest asked name that a text with suggestions shows: they need the rest of the room.
const MAX_ASKED: usize = 40;

/// The longest reason that another text quotes.
pub(super) const MAX_REASON: usize = 100;

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

/// The tool's name in quotes.
fn name_of(e: &ToolError, max: usize) -> String {
    quoted(e, e.tool().unwrap_or("tool"), max)
}

/// A name in quotes, or what stands for a blank one.
fn quoted(e: &ToolError, name: &str, max: usize) -> String {
    match name.chars().map(plain).all(char::is_whitespace) {
        true => "without a name".to_owned(),
        false => format!("'{}'", shown(e, name, max)),
    }
}

/// The beginning of a text, redacted by the error's own rules too.
fn shown(e: &ToolError, text: &str, max: usize) -> String {
    let (head, cut) = e.0.rules.head(text, max);
    let dots = if cut { "..." } else { "" };
    format!("{}{dots}", Short::new(&head, max))
}

/// Fills a template: `'{tool}'` is the tool's name, `{wait}` the seconds to wait, `{limit}` the
/// milliseconds of the timeout, `{ran}` whether the tool ran, `{why}` the reason, cut to fit. An
/// error of a server without a tool names the server.
fn sentence(e: &ToolError, template: &str, why: &str) -> String {
    let wait = e.retry_after_seconds().unwrap_or(0).to_string();
    let limit = e
        .timeout()
        .map(|limit| format!(" ({} ms)", millis::of(limit)));
    let limit = limit.unwrap_or_default();
    let ran = match e.execution() {
        Execution::Completed => "ran",
        _ => "may have run",
    };
    let filled = |part: &str| {
        let part = part.replace("{wait}", &wait).replace("{limit}", &limit);
        let part = part.replace("{ran}", ran);
        match e.server().filter(|_| e.tool().is_none()) {
            Some(server) => {
                let name = quoted(e, server, MAX_NAME);
                let part = part.replace("Tool '{tool}'", &format!("Server {name}"));
                part.replace("tool '{tool}'", &format!("server {name}"))
            }
            None => part.replace("'{tool}'", &name_of(e, MAX_NAME)),
        }
    };
    match template.split_once("{why}") {
        Some((before, after)) if why.is_empty() => {
            fit(filled(&format!("{}{after}", before.trim_end_matches(": "))))
        }
        Some((before, after)) => because(&filled(before), why, &filled(after)),
        None => fit(filled(template)),
    }
}

/// The sentences about one kind of error. `{tool}` and `{wait}` are filled in, `{why}` in the
/// problem alone.
pub(crate) struct Words {
    /// For the user.
    pub(crate) user: &'static str,
    /// Added for the user where the call is retryable.
    pub(crate) user_later: &'static str,
    /// For the model: the problem.
    pub(crate) problem: &'static str,
    /// The advice if the same call should not be repeated.
    pub(crate) stop: &'static str,
    /// The advice if the call is retryable.
    pub(crate) again: &'static str,
}

const LATER: &str = " Please try again later.";
const IN: &str = " Please try again in {wait} s.";
const STOP: &str = "Do not repeat the same call; continue without it.";
const GO_ON: &str = "Use another tool or continue without it.";
const ONCE_LATER: &str = "Try again once, later, or continue without it.";
/// Of a call that may have run: its caller may know more of the tool than this crate.
const IF_SAFE: &str = "Repeat it only if it may run twice, or continue without it.";
const ON: &str = "Continue without it.";

/// Of an answer that this side cannot use: it is not known whether the tool changes something.
pub(crate) const UNUSABLE: Words = Words {
    user: "The tool '{tool}' {ran}, but its answer could not be used.",
    user_later: "",
    problem: "Tool '{tool}' {ran}; its answer is unusable: {why}.",
    stop: "Do not repeat it if it changes something.",
    again: IF_SAFE,
};

#[rustfmt::skip]
const fn w(user: &'static str, user_later: &'static str, problem: &'static str, stop: &'static str, again: &'static str) -> Words {
    Words { user, user_later, problem, stop, again }
}

#[rustfmt::skip]
fn words(e: &ToolError) -> Words {
    if let Some(words) = e.more().and_then(|more| more.words) {
        return Words { ..*words };
    }
    let knows_wait = e.retry_after().is_some();
    let not_started = e.execution() == Execution::NotStarted;
    match e.kind() {
        // It may have run, and must not run twice: another tool might do the same again.
        ErrorKind::Upstream | ErrorKind::RateLimited | ErrorKind::Overloaded | ErrorKind::CircuitOpen if e.0.must_not_repeat && !not_started =>
            w("The tool '{tool}' {ran}, but failed.", "", "Tool '{tool}' {ran}, but failed: {why}.", STOP, STOP),
        ErrorKind::Timeout if e.execution() == Execution::Completed => w("The tool '{tool}' took too long to answer{limit}.", "",
            "Tool '{tool}' has run to its end, but too late for its answer to be passed on.", STOP, IF_SAFE),
        ErrorKind::Timeout if not_started => w("The tool '{tool}' took too long to answer{limit}.", "",
            "Tool '{tool}' was not run: it could not be started in time.", ON, ONCE_LATER),
        ErrorKind::Timeout => w("The tool '{tool}' took too long to answer{limit}.", "", "Tool '{tool}' timed out and may still be running.",
            "Do not repeat the same call; ask for less, or continue without it.",
            "Ask for less, or continue without it; repeat it only if it may run twice."),
        ErrorKind::DeadlineExceeded => w("There was no time left to run the tool '{tool}'.", "",
            "Tool '{tool}' was not run: the time for tools is used up.", "Answer with what you have.", "Answer with what you have."),
        ErrorKind::RateLimited if knows_wait => w("The tool '{tool}' is limiting requests.", IN,
            "Tool '{tool}' is rate limited.", STOP, "Try again once, after {wait} s, or continue without it."),
        ErrorKind::RateLimited => w("The tool '{tool}' is limiting requests.", LATER,
            "Tool '{tool}' is rate limited.", STOP, "Continue without it, or try again once, later."),
        ErrorKind::CircuitOpen if knows_wait => w("The tool '{tool}' is unavailable for now.", IN,
            "Tool '{tool}' keeps failing and is switched off for {wait} s.", GO_ON, GO_ON),
        ErrorKind::CircuitOpen => w("The tool '{tool}' is unavailable for now.", LATER,
            "Tool '{tool}' keeps failing and is switched off for now.", GO_ON, GO_ON),
        ErrorKind::Overloaded => w("The tool '{tool}' is busy.", " Please try again shortly.",
            "Tool '{tool}' is busy.", STOP, ONCE_LATER),
        ErrorKind::ConnectionFailed if e.is_own_refusal() => w("The tool '{tool}' is unavailable for now.", LATER,
            "Tool '{tool}' is unavailable for the moment: its server does not answer.", GO_ON, GO_ON),
        ErrorKind::ConnectionFailed if !not_started => w("The connection to the tool '{tool}' was lost.", "",
            "The connection to tool '{tool}' was lost; it {ran} all the same.", STOP, IF_SAFE),
        ErrorKind::ConnectionFailed => w("The tool '{tool}' could not be reached.", "", "Tool '{tool}' could not be reached.", GO_ON, GO_ON),
        ErrorKind::Upstream if not_started => w("The service behind the tool '{tool}' failed.", "", "The service behind tool '{tool}' failed: {why}.", GO_ON, GO_ON),
        ErrorKind::Upstream => w("The service behind the tool '{tool}' failed.", "", "The service behind tool '{tool}' failed: {why}.",
            "It {ran}. Do not repeat the same call; continue without it.",
            "It {ran}: repeat it only if it may run twice, or continue without it."),
        ErrorKind::Denied => w("Access to the tool '{tool}' was denied.", "", "Access to tool '{tool}' was denied.",
            "Do not call it again; tell the user, or continue without it.", "Tell the user, or continue without it."),
        // The status is about what the tool looked for, not about the tool.
        ErrorKind::NotFound if e.status().is_some() => w("The tool '{tool}' did not find what it was asked for.", "",
            "Tool '{tool}' did not find what it was asked for: {why}.", "Check the arguments, or continue without it.", "Check the arguments, or continue without it."),
        ErrorKind::NotFound => w("The tool '{tool}' is not available.", "",
            "Tool '{tool}' does not exist.", "Call only tools that you were given.", "Call only tools that you were given."),
        ErrorKind::InvalidInput => w("The tool '{tool}' could not use the given input.", "",
            "Tool '{tool}' refused its arguments: {why}.", "Correct them and call it again.", "Correct them and call it again."),
        ErrorKind::Failed => w("The tool '{tool}' failed.", "", "Tool '{tool}' failed: {why}.",
            "Do not repeat the same call; change it or continue without it.", "Change the call or continue without it."),
        ErrorKind::Reported => w("The tool '{tool}' failed.", "", "Tool '{tool}' reported an error: {why}.",
            "Change the call or continue without it.", "Change the call or continue without it."),
        ErrorKind::Cancelled => w("The tool '{tool}' was cancelled.", "", "The call of tool '{tool}' was cancelled.",
            "Do not repeat it unless asked to.", "Repeat it only if asked to."),
        ErrorKind::TokenExchange => w("Signing in to the tool '{tool}' failed.", "", "Signing in to tool '{tool}' failed.",
            "Do not call it again; tell the user, or continue without it.", "Tell the user, or continue without it."),
        ErrorKind::PollTimeout => w("The job of the tool '{tool}' has not finished in time.", "",
            "The job that tool '{tool}' started has not finished and may still run.", "Do not start it again; continue without it.", IF_SAFE),
        ErrorKind::Panicked | ErrorKind::Internal => w("The tool '{tool}' failed because of an internal error.", "",
            "Tool '{tool}' failed because of an internal error.", "Do not call it again; continue without it.", ON),
    }
}

pub(super) fn for_user(e: &ToolError) -> String {
    let words = words(e);
    let later = e.is_retryable().then_some(words.user_later);
    let later = later.unwrap_or_default();
    sentence(e, &format!("{}{later}", words.user), "")
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

/// Returns whether there is a tool of the name, but not at the server that the call names.
pub(super) fn is_elsewhere(e: &ToolError, names: &[String]) -> bool {
    e.server().is_some() && e.tool() == names.first().map(String::as_str)
}

/// A tool that is not there, and as many names of others as there is room for: half a name is of no
/// use.
pub(super) fn near(e: &ToolError, names: &[String]) -> String {
    let name = name_of(e, MAX_ASKED);
    if is_elsewhere(e, names) {
        let server = quoted(e, e.server().unwrap_or_default(), MAX_ASKED);
        return format!("Tool {name} does not exist at server {server}. Call it without a server.");
    }
    let mut names = names;
    while let [some @ .., _] = names {
        let meant = either(names, "'");
        let text = format!("Tool {name} does not exist. Did you mean {meant}?");
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
pub(super) fn reason(e: &ToolError, max: usize) -> Option<Box<str>> {
    let names_it = || words(e).problem.contains("{why}");
    let why = match e.more().and_then(|m| m.for_model.as_ref()) {
        Some(ForModel::Text(text)) => text,
        #[cfg(feature = "validate")]
        Some(ForModel::Why(why)) => why,
        None if names_it() => why(e),
        _ => return None,
    };
    let why = why.trim_end_matches(['.', ' ']);
    (!why.is_empty()).then(|| shown(e, why, max).into())
}

/// The sentence for the model, with this reason.
pub(super) fn because_of(e: &ToolError, why: &str) -> String {
    let words = words(e);
    let next = match e.is_retryable() {
        true => words.again,
        false => words.stop,
    };
    sentence(e, &format!("{} {next}", words.problem), why)
}
