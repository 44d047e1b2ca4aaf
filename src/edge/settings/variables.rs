//! The one table of environment variables.

use std::fmt;

use super::{Preset, Settings, value::Setting, value::Value};
use crate::config::ConfigError;

/// Variables that begin with one of these are ours: one that is not in the table is a slip.
const SECTIONS: [&str; 10] = [
    "TOOL_CIRCUIT_BREAKER_",
    "TOOL_DEADLINE_",
    "TOOL_HEALTH_",
    "TOOL_PARALLEL_",
    "TOOL_RATE_LIMIT_",
    "TOOL_RETRY_",
    "TOOL_SANITIZE_",
    "TOOL_SEQUENCE_",
    "TOOL_TIMEOUT_",
    "TOOL_TRACE_",
];

/// An environment variable and the setting that it holds. See [`VARIABLES`].
#[derive(Clone, Copy)]
pub struct Variable {
    name: &'static str,
    key: &'static str,
    help: &'static str,
    setting: fn(&mut Settings) -> &mut dyn Setting,
    /// Whether a plain number is seconds.
    seconds: bool,
}

impl Variable {
    /// Its name: `TOOL_TIMEOUT`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The setting's key in a file: `timeout.default`.
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// What it means, in a line.
    pub const fn help(&self) -> &'static str {
        self.help
    }

    /// Changes the setting. The error names the variable.
    pub(super) fn set(&self, settings: &mut Settings, text: &str) -> Result<(), ConfigError> {
        let done = match self.key {
            PRESET => Preset::parse(text).map(|preset| settings.rebase(preset)),
            _ => (self.setting)(settings).read(text, self.seconds),
        };
        done.map_err(|reason| ConfigError::new(self.name, reason))?;
        settings.explicit.insert(self.key);
        Ok(())
    }

    /// The setting, to be compared and copied.
    pub(super) fn setting<'a>(&self, settings: &'a mut Settings) -> &'a mut dyn Setting {
        (self.setting)(settings)
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variable")
            .field("name", &self.name)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// The key of what the other settings begin with.
const PRESET: &str = "preset";

/// The settings themselves, without the preset.
pub(super) fn settings() -> impl Iterator<Item = &'static Variable> {
    VARIABLES.iter().filter(|variable| variable.key != PRESET)
}

/// The place of a variable in the table.
pub(super) fn find(name: &str) -> Option<usize> {
    VARIABLES.iter().position(|variable| variable.name == name)
}

/// Whether a variable of this name would be ours.
pub(super) fn is_ours(name: &str) -> bool {
    find(name).is_some() || SECTIONS.iter().any(|section| name.starts_with(section))
}

const fn row(
    name: &'static str,
    key: &'static str,
    help: &'static str,
    setting: fn(&mut Settings) -> &mut dyn Setting,
) -> Variable {
    Variable {
        name,
        key,
        help,
        setting,
        seconds: false,
    }
}

/// A row where a plain number is seconds.
const fn seconds(row: Variable) -> Variable {
    Variable {
        seconds: true,
        ..row
    }
}

/// All environment variables, in the order in which they are applied.
pub const VARIABLES: &[Variable] = &[
    row(
        "TOOL_PRESET",
        PRESET,
        "the preset to begin with: default, agent_library, agent_loop, gateway or http_proxy",
        |s| &mut s.preset,
    ),
    seconds(row(
        "TOOL_TIMEOUT",
        "timeout.default",
        "how long one attempt may take; a plain number is seconds",
        |s| &mut s.timeout.default,
    )),
    row(
        "TOOL_IDLE_TIMEOUT",
        "timeout.idle",
        "how long a tool may go without reporting progress",
        |s| &mut s.timeout.idle,
    ),
    row(
        "TOOL_SLOW_FRACTION",
        "timeout.slow_fraction",
        "the part of its timeout above which a call is reported as slow",
        |s| &mut s.timeout.slow_fraction,
    ),
    row(
        "TOOL_DEADLINE_BUDGET",
        "deadline.budget",
        "how long a whole call may take, with all attempts and waits",
        |s| &mut s.deadline.budget,
    ),
    row(
        "TOOL_DEADLINE_RESERVE",
        "deadline.reserve",
        "what is kept back from a deadline that a call brings along",
        |s| &mut s.deadline.reserve,
    ),
    row(
        "TOOL_RETRY_ENABLED",
        "retry.enabled",
        "whether calls are sent again",
        |s| &mut s.retry.enabled,
    ),
    row(
        "TOOL_RETRY_ATTEMPTS",
        "retry.attempts",
        "how often a call is sent at most, the first time included",
        |s| &mut s.retry.attempts,
    ),
    row(
        "TOOL_RETRY_BASE",
        "retry.base",
        "the delay before the second attempt",
        |s| &mut s.retry.base,
    ),
    row(
        "TOOL_RETRY_FACTOR",
        "retry.factor",
        "how much longer each further delay is",
        |s| &mut s.retry.factor,
    ),
    row(
        "TOOL_RETRY_CAP",
        "retry.cap",
        "what no delay exceeds, before jitter",
        |s| &mut s.retry.cap,
    ),
    row(
        "TOOL_RETRY_JITTER",
        "retry.jitter",
        "what chance does to a delay: none, upwards, equal or full",
        |s| &mut s.retry.jitter,
    ),
    row(
        "TOOL_RETRY_BUDGET_RATIO",
        "retry.budget_ratio",
        "how many retries there may be per call, over all calls",
        |s| &mut s.retry.budget_ratio,
    ),
    row(
        "TOOL_RETRY_BUDGET_MINIMUM",
        "retry.budget_minimum",
        "how many retries there may be in 20 s in any case",
        |s| &mut s.retry.budget_minimum,
    ),
    row(
        "TOOL_RETRY_ASSUME_REPLAY_SAFE",
        "retry.assume_replay_safe",
        "whether every tool may run twice of which nobody says otherwise",
        |s| &mut s.retry.assume_replay_safe,
    ),
    row(
        "TOOL_RATE_LIMIT_ENABLED",
        "rate_limit.enabled",
        "whether all calls of a key wait after a rate limit",
        |s| &mut s.rate_limit.enabled,
    ),
    row(
        "TOOL_RATE_LIMIT_COOLDOWN",
        "rate_limit.cooldown",
        "how long to wait after a rate limit without a hint",
        |s| &mut s.rate_limit.cooldown,
    ),
    row(
        "TOOL_RATE_LIMIT_MAX_WAIT",
        "rate_limit.max_wait",
        "the longest wait, whatever a server asks for",
        |s| &mut s.rate_limit.max_wait,
    ),
    row(
        "TOOL_RATE_LIMIT_MAX_COOLDOWN",
        "rate_limit.max_cooldown",
        "the longest cooldown that calls share, whatever a server asks for",
        |s| &mut s.rate_limit.max_cooldown,
    ),
    row(
        "TOOL_RATE_LIMIT_TEXT_LIMITS",
        "rate_limit.text_limits",
        "whether a limit known by an error's text alone holds other calls back",
        |s| &mut s.rate_limit.text_limits,
    ),
    row(
        "TOOL_RATE_LIMIT_ATTEMPTS",
        "rate_limit.attempts",
        "how often a limited call is sent at most, where no retry layer repeats it",
        |s| &mut s.rate_limit.attempts,
    ),
    row(
        "TOOL_RATE_LIMIT_FAIL_FAST",
        "rate_limit.fail_fast",
        "whether calls of a cooling key are refused at once",
        |s| &mut s.rate_limit.fail_fast,
    ),
    row(
        "TOOL_RATE_LIMIT_KEY",
        "rate_limit.key",
        "which calls share a limit: tool, tool_name or server",
        |s| &mut s.rate_limit.key,
    ),
    row(
        "TOOL_RATE_LIMIT_MAX_KEYS",
        "rate_limit.max_keys",
        "how many keys are kept",
        |s| &mut s.rate_limit.max_keys,
    ),
    row(
        "TOOL_HEALTH_ENABLED",
        "health.enabled",
        "whether a registry learns which servers are there",
        |s| &mut s.health.enabled,
    ),
    row(
        "TOOL_HEALTH_THRESHOLD",
        "health.threshold",
        "how many timeouts or connection failures in a row make a server unavailable",
        |s| &mut s.health.threshold,
    ),
    row(
        "TOOL_HEALTH_REFUSAL",
        "health.refusal",
        "whether calls to such a server are refused, but for probes",
        |s| &mut s.health.refusal,
    ),
    row(
        "TOOL_HEALTH_PROBE_PERIOD",
        "health.probe_period",
        "how long it is unavailable before a call is let through as a probe",
        |s| &mut s.health.probe_period,
    ),
    row(
        "TOOL_HEALTH_MAX_SERVERS",
        "health.max_servers",
        "how many servers are kept",
        |s| &mut s.health.max_servers,
    ),
    row(
        "TOOL_CIRCUIT_BREAKER_ENABLED",
        "circuit_breaker.enabled",
        "whether a broken tool is no longer called",
        |s| &mut s.circuit_breaker.enabled,
    ),
    row(
        "TOOL_CIRCUIT_BREAKER_THRESHOLD",
        "circuit_breaker.threshold",
        "how many failures in a row open a breaker",
        |s| &mut s.circuit_breaker.threshold,
    ),
    seconds(row(
        "TOOL_CIRCUIT_BREAKER_WINDOW",
        "circuit_breaker.window",
        "how close together they are; a plain number is seconds",
        |s| &mut s.circuit_breaker.window,
    )),
    row(
        "TOOL_CIRCUIT_BREAKER_SUCCESS_RESETS",
        "circuit_breaker.success_resets",
        "whether a success resets the count of failures",
        |s| &mut s.circuit_breaker.success_resets,
    ),
    seconds(row(
        "TOOL_CIRCUIT_BREAKER_RESET",
        "circuit_breaker.reset",
        "how long a breaker stays open; a plain number is seconds",
        |s| &mut s.circuit_breaker.reset,
    )),
    row(
        "TOOL_CIRCUIT_BREAKER_PROBES",
        "circuit_breaker.probes",
        "how many probes may run at a time",
        |s| &mut s.circuit_breaker.probes,
    ),
    row(
        "TOOL_CIRCUIT_BREAKER_SUCCESSES",
        "circuit_breaker.successes",
        "how many successful probes close it; none: as many as may run",
        |s| &mut s.circuit_breaker.successes,
    ),
    row(
        "TOOL_CIRCUIT_BREAKER_FAILURE_RATE",
        "circuit_breaker.failure_rate",
        "the share of failures that opens it, in the place of the threshold",
        |s| &mut s.circuit_breaker.failure_rate,
    ),
    row(
        "TOOL_CIRCUIT_BREAKER_SLOW_CALL_RATE",
        "circuit_breaker.slow_call_rate",
        "the share of slow calls that opens it, in the place of the threshold",
        |s| &mut s.circuit_breaker.slow_call_rate,
    ),
    row(
        "TOOL_CIRCUIT_BREAKER_SLOW_CALL",
        "circuit_breaker.slow_call",
        "from when on a call is slow, for that rate",
        |s| &mut s.circuit_breaker.slow_call,
    ),
    row(
        "TOOL_CIRCUIT_BREAKER_MINIMUM_CALLS",
        "circuit_breaker.minimum_calls",
        "how many calls a rate needs to mean anything; none: 10",
        |s| &mut s.circuit_breaker.minimum_calls,
    ),
    row(
        "TOOL_CIRCUIT_BREAKER_WINDOW_CALLS",
        "circuit_breaker.window_calls",
        "how many calls the rates are of, in the place of the window",
        |s| &mut s.circuit_breaker.window_calls,
    ),
    row(
        "TOOL_CIRCUIT_BREAKER_KEY",
        "circuit_breaker.key",
        "which calls share a breaker: tool, tool_name or server",
        |s| &mut s.circuit_breaker.key,
    ),
    row(
        "TOOL_CIRCUIT_BREAKER_MAX_KEYS",
        "circuit_breaker.max_keys",
        "how many breakers are kept",
        |s| &mut s.circuit_breaker.max_keys,
    ),
    row(
        "TOOL_CIRCUIT_BREAKER_REPORTED_FAILURES",
        "circuit_breaker.reported_failures",
        "whether answers that are errors in the tool's own words (isError) count",
        |s| &mut s.circuit_breaker.reported_failures,
    ),
    row(
        "TOOL_SEQUENCE_BUDGET",
        "sequence.budget",
        "the time for calls one after the other, all together",
        |s| &mut s.sequence.budget,
    ),
    row(
        "TOOL_SEQUENCE_RESERVE",
        "sequence.reserve",
        "what is kept back from it for the time after them",
        |s| &mut s.sequence.reserve,
    ),
    row(
        "TOOL_PARALLEL_LIMIT",
        "parallel.limit",
        "how many calls of a batch run at a time; none: all",
        |s| &mut s.parallel.limit,
    ),
    row(
        "TOOL_PARALLEL_BUDGET",
        "parallel.budget",
        "the time for calls at the same time, all together",
        |s| &mut s.parallel.budget,
    ),
    row(
        "TOOL_SANITIZE_MAX_STRING",
        "sanitize.max_string",
        "longer strings are cut, in characters",
        |s| &mut s.sanitize.max_string,
    ),
    row(
        "TOOL_SANITIZE_MAX_DEPTH",
        "sanitize.max_depth",
        "deeper levels are not shown",
        |s| &mut s.sanitize.max_depth,
    ),
    row(
        "TOOL_SANITIZE_MAX_NODES",
        "sanitize.max_nodes",
        "after so many values the rest is not shown",
        |s| &mut s.sanitize.max_nodes,
    ),
    row(
        "TOOL_SANITIZE_SENSITIVE_KEYS",
        "sanitize.sensitive_keys",
        "more parts of keys whose values are secrets, separated by commas",
        |s| &mut s.sanitize.sensitive_keys,
    ),
    row(
        "TOOL_SANITIZE_HARMLESS_KEYS",
        "sanitize.harmless_keys",
        "more words in keys that mean no secret, separated by commas",
        |s| &mut s.sanitize.harmless_keys,
    ),
    row(
        "TOOL_TRACE_ARGUMENTS",
        "trace.arguments",
        "whether the redacted arguments stand in the span of a call",
        |s| &mut s.trace.arguments,
    ),
    row(
        "TOOL_TRACE_OUTPUT",
        "trace.output",
        "whether the redacted answer stands in it",
        |s| &mut s.trace.output,
    ),
    row(
        "TOOL_TRACE_ATTEMPTS",
        "trace.attempts",
        "whether each attempt has a span of its own inside it",
        |s| &mut s.trace.attempts,
    ),
];
