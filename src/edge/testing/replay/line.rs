//! One line of a capture.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    call::{CallInfo, ToolCall},
    error::{Evidence, Execution, ToolError},
    redact::Rules,
    text::Short,
};

#[derive(Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) call: Asked,
    pub(super) end: End,
}

/// What a call asks for, redacted: by this a call is found again.
#[derive(PartialEq, Serialize, Deserialize)]
pub(super) struct Asked {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    pub(super) tool: String,
    pub(super) arguments: Value,
}

/// How a call ended.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    Ok(Value),
    Error {
        error: Box<ToolError>,
        evidence: Evidence,
    },
    /// Its future was dropped before it had an answer.
    Unfinished,
}

impl Asked {
    pub(super) fn of(call: &ToolCall) -> Self {
        let name = |name: &str| Short::name(name).to_string();
        Self {
            server: call.server().map(name),
            tool: name(call.tool()),
            // An object of names and values can be written.
            arguments: serde_json::to_value(wide(call.rules()).object(call.arguments()))
                .unwrap_or_default(),
        }
    }

    /// As a replay has it: a number with a fraction may be another one when it was written and read.
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
    /// Fails if the answer cannot be written as JSON.
    pub(super) fn of<T: Serialize>(
        call: &CallInfo,
        result: Result<&T, &ToolError>,
    ) -> serde_json::Result<Self> {
        Ok(match result {
            Ok(answer) => {
                let rules = wide(call.rules());
                let json = rules.collect(answer)?;
                Self::Ok(serde_json::to_value(rules.json(&json))?)
            }
            Err(error) => Self::Error {
                error: Box::new(error.clone()),
                evidence: error.evidence(),
            },
        })
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

/// The same words with the widest limits: what is cut is no answer.
fn wide(rules: &Rules) -> Rules {
    let wide = rules.clone().with_max_string(1 << 16);
    wide.and_then(|rules| rules.with_max_depth(64))
        .and_then(|rules| rules.with_max_nodes(100_000))
        .and_then(|rules| rules.with_max_bytes(1 << 20))
        .unwrap_or_else(|_| rules.clone())
}
