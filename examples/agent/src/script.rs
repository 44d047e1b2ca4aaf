//! A model that is played by a few lines: it knows what it wants, and what it does next depends on
//! what it reads.
//!
//! It takes the request that a provider would get, refuses what a provider would refuse, and
//! answers in the provider's form.

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tower_toolcall_turn::Format;

use crate::dialect::{self, Call};

/// A call that is made again until its result says `until`.
struct Try {
    tool: &'static str,
    /// JSON, but for one model that breaks off.
    arguments: &'static str,
    until: &'static str,
}

const fn call(tool: &'static str, arguments: &'static str, until: &'static str) -> Try {
    Try {
        tool,
        arguments,
        until,
    }
}

/// What it wants, each with the mistakes that it makes first. All at once, but for the report,
/// which it wants when the rest is done.
const GOALS: [&[Try]; 6] = [
    &[
        call(
            "sign_in",
            r#"{"login":"ada","password":"hunter2"}"#,
            r#""user" is a required"#,
        ),
        call(
            "sign_in",
            r#"{"user":"ada","password":"hunter2"}"#,
            "signed in",
        ),
    ],
    &[
        call("wether", r#"{"city":"Oslo"}"#, "does not exist"),
        call("weather", r#"{"city":"Oslo"}"#, "12 degrees"),
    ],
    &[
        call("book_table", r#"{"people":40}"#, "the largest is for 12"),
        call("book_table", r#"{"people":12}"#, "is booked"),
    ],
    &[
        call("search_archive", r#"{"years":50}"#, "may still be running"),
        call("search_archive", r#"{"years":5}"#, "3 letters"),
    ],
    &[call("import_guests", r#"{"rows":500}"#, "are imported")],
    &[
        // Too early, and it breaks off.
        call("open_report", r#"{"name":"Q3"#, "JSON"),
        // Stubborn: the words of the tool are not enough.
        call(
            "open_report",
            r#"{"name":"Q3"}"#,
            "This exact call has failed",
        ),
        call("open_report", r#"{"name":"Q1"}"#, "all is well"),
    ],
];

const REPORT: usize = GOALS.len() - 1;

pub(crate) struct Script {
    format: Format,
    /// How far it is with each goal.
    at: [usize; GOALS.len()],
    /// The conversation as the provider knows it.
    seen: Vec<Value>,
    /// The last calls, and whose they are.
    open: Vec<(usize, Call)>,
    calls: usize,
    has_paused: bool,
}

impl Script {
    pub(crate) fn new(format: Format) -> Self {
        // Where arguments are objects, they cannot be broken off.
        let skips =
            |goal: &&[Try]| !dialect::has_text_arguments(format) && !is_json(goal[0].arguments);
        Self {
            format,
            at: GOALS.each_ref().map(|goal| usize::from(skips(goal))),
            seen: Vec::new(),
            open: Vec::new(),
            calls: 0,
            has_paused: false,
        }
    }

    /// Takes a request as the provider does, and answers it.
    ///
    /// # Errors
    ///
    /// What a provider answers with status 400.
    pub(crate) fn answer(&mut self, request: &Value) -> anyhow::Result<Value> {
        let conversation = self.conversation(request)?;
        let new = &conversation[self.seen.len()..];
        // A paused turn goes back as it is, and nothing follows it.
        let goes_on = self.has_paused && new.is_empty();
        let results = match goes_on {
            true => Vec::new(),
            false => dialect::results(self.format, new)?,
        };
        let ids: Vec<_> = self.open.iter().map(|(_, call)| &call.id).collect();
        let answered: Vec<_> = results.iter().map(|(id, _)| id).collect();
        ensure!(
            self.seen.is_empty() || ids == answered,
            "the calls are {ids:?}, and the results of {answered:?}"
        );
        for ((goal, call), (_, text)) in self.open.drain(..).zip(&results) {
            let tried = GOALS[goal].get(self.at[goal]);
            let goes_on = tried.is_some_and(|tried| text.contains(tried.until));
            // A model that reads the results of others would go astray.
            ensure!(goes_on || call.tool == "open_report", "misread: {text}");
            self.at[goal] += usize::from(goes_on);
        }
        let is_done = |goal: usize| self.at[goal] == GOALS[goal].len();
        let is_ready = self.at[REPORT] == 0 || (0..REPORT).all(is_done);
        for (goal, at) in self.at.into_iter().enumerate() {
            let Some(next) = GOALS[goal].get(at).filter(|_| is_ready || goal != REPORT) else {
                continue;
            };
            self.calls += 1;
            let call = Call {
                id: dialect::id(self.format, self.calls, next.tool),
                tool: next.tool,
                arguments: next.arguments,
            };
            self.open.push((goal, call));
        }
        let calls: Vec<_> = self.open.iter().map(|(_, call)| call).collect();
        let (response, said) = match calls.is_empty() {
            false => dialect::say_calls(self.format, &calls),
            true if self.format == Format::Anthropic && !self.has_paused => {
                self.has_paused = true;
                let (mut response, said) = dialect::say_text(self.format, "Let me sum up.");
                response["stop_reason"] = "pause_turn".into();
                (response, said)
            }
            true => dialect::say_text(
                self.format,
                "It is 12 degrees in Oslo, a table for 12 is booked, and 500 guests are imported. \
                 There are 3 letters of the last 5 years. Q3 is locked; in Q1 all is well.",
            ),
        };
        self.seen = conversation;
        self.seen.extend(said);
        Ok(response)
    }

    /// The messages of the request, which must begin with all that was said before, unchanged.
    fn conversation(&self, request: &Value) -> anyhow::Result<Vec<Value>> {
        let key = dialect::messages_key(self.format);
        let messages = request[key].as_array().context("no messages")?;
        ensure!(
            messages.starts_with(&self.seen),
            "what was said has changed"
        );
        let tools = dialect::tool_names(self.format, request);
        for goal in GOALS {
            let tool = goal[goal.len() - 1].tool;
            if !tools.contains(&tool) {
                bail!("'{tool}' is not among the tools: {tools:?}");
            }
        }
        Ok(messages.clone())
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok()
}
