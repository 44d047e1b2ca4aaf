//! One line of a capture.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};

use crate::{
    call::{CallInfo, MAX_NAME_BYTES, ToolCall},
    error::{Evidence, Execution, ToolError},
    redact::Rules,
    text::{Short, TRUNCATED},
};

/// `A`: an [`Asked`], or a reference to one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line<A> {
    pub(super) call: A,
    pub(super) end: End,
}

/// What a call asks for, redacted: by this a call is found again.
#[derive(PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    pub(super) tool: String,
    pub(super) arguments: Value,
}

/// How a call ended.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum End {
    Ok(Value),
    /// Its answer is no JSON, or larger than what is written down.
    Lost,
    Error {
        #[serde(deserialize_with = "of_any_call")]
        error: Box<ToolError>,
        evidence: Evidence,
    },
    /// Its future was dropped before it had an answer.
    #[default]
    Unfinished,
    Panicked,
}

crate::text::opaque_debug!({} End);

impl Asked {
    pub(super) fn of(call: &ToolCall) -> Self {
        let name = |name: &str| Short::new(name, MAX_NAME_BYTES).to_string();
        Self {
            server: call.server().map(name),
            tool: name(call.tool()),
            // An object of names and values can be written.
            arguments: serde_json::to_value(wide(call.rules()).object(call.arguments()))
                .unwrap_or_default(),
        }
    }

    /// As a replay has it: a number with a fraction may be another one when it was written and
    /// read.
    pub(super) fn reread(self) -> Self {
        let text = serde_json::to_string(&self).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or(self)
    }

    /// As a flat name.
    pub(super) fn name(&self) -> String {
        match &self.server {
            Some(server) => format!("{server}__{}", self.tool),
            None => self.tool.clone(),
        }
    }
}

impl End {
    pub(super) fn of<T: Serialize>(call: &CallInfo, result: Result<&T, &ToolError>) -> Self {
        match result {
            Ok(answer) => match whole(&wide(call.rules()), answer) {
                Some(answer) => Self::Ok(answer),
                None => Self::Lost,
            },
            Err(error) => Self::Error {
                error: Box::new(error.clone()),
                evidence: error.evidence(),
            },
        }
    }

    /// The error as it was: of an error that was read, nothing is believed at first.
    pub(super) fn restored(error: ToolError, evidence: Evidence) -> ToolError {
        let execution = error.execution();
        match evidence {
            Evidence::Inferred => error,
            // What is said not to have started is its author's word.
            Evidence::Word => error
                .with_execution(Execution::NotStarted)
                .with_execution(execution),
            Evidence::Refusal => error.into_own_refusal(),
        }
    }
}

/// The error without the names and the id of the captured call: it will be that of another one.
fn of_any_call<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<ToolError>, D::Error> {
    let mut error = Map::deserialize(deserializer)?;
    for name in ["tool", "server", "call_id"] {
        error.remove(name);
    }
    let error = ToolError::deserialize(Value::Object(error));
    error.map(Box::new).map_err(D::Error::custom)
}

/// The answer, redacted; `None` if it is no JSON, or a limit cuts something off.
fn whole<T: Serialize>(rules: &Rules, answer: &T) -> Option<Value> {
    /// How many places look as if something was cut there.
    fn cuts(json: &Value) -> usize {
        let text = json.to_string();
        text.matches(TRUNCATED).count() + text.matches("\"[...]\"").count()
    }
    let answer = rules.collect(answer).ok()?;
    let shown = serde_json::to_value(rules.json(&answer)).ok()?;
    (cuts(&shown) <= cuts(&answer)).then_some(shown)
}

/// The same words with the widest limits.
fn wide(rules: &Rules) -> Rules {
    let wide = rules.clone().with_max_string(1 << 16);
    wide.and_then(|rules| rules.with_max_depth(64))
        .and_then(|rules| rules.with_max_nodes(100_000))
        .and_then(|rules| rules.with_max_bytes(1 << 20))
        .unwrap_or_else(|_| rules.clone())
}
