//! The one table of environment variables.

use std::{collections::BTreeSet, iter};

use serde::{
    Deserialize,
    de::value::{Error, MapDeserializer},
};

use super::{Settings, text::Text};

/// An environment variable and the setting that it holds. See [`VARIABLES`].
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    name: &'static str,
    key: &'static str,
    help: &'static str,
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

    /// Reads its text as a file that has this key alone.
    pub(super) fn read(&self, text: &str) -> Result<Settings, Error> {
        let seconds = SECONDS.contains(&self.name);
        let value = Text { text, seconds };
        match self.key.split_once('.') {
            Some((section, key)) => {
                let keys = MapDeserializer::new(iter::once((key, value)));
                Settings::deserialize(MapDeserializer::new(iter::once((section, keys))))
            }
            None => Settings::deserialize(MapDeserializer::new(iter::once((self.key, value)))),
        }
    }
}

/// Variables that begin with one of these are ours: one that is not in the table is a typing error.
const PREFIXES: [&str; 10] = [
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

/// Where a plain number is seconds, as in MCP gateways.
const SECONDS: [&str; 3] = [
    "TOOL_TIMEOUT",
    "TOOL_CIRCUIT_BREAKER_RESET",
    "TOOL_CIRCUIT_BREAKER_WINDOW",
];

/// The key of what the other settings begin with.
pub(super) const PRESET: &str = "preset";

/// The variable of this name.
pub(super) fn find(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|variable| variable.name == name)
}

/// Whether a variable of this name would be ours.
pub(super) fn is_ours(name: &str) -> bool {
    find(name).is_some() || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Makes the table, and what has to be done for each key of it.
macro_rules! variables {
    ($($section:ident.$key:ident: $name:literal, $help:literal;)*) => {
        /// All environment variables.
        pub const VARIABLES: &[Variable] = &[
            Variable {
                name: "TOOL_PRESET",
                key: PRESET,
                help: "the preset to begin with: default, agent_library, agent_loop, gateway or http_proxy",
            },
            $(Variable {
                name: $name,
                key: concat!(stringify!($section), ".", stringify!($key)),
                help: $help,
            },)*
        ];

        impl Settings {
            /// The keys whose values differ from those of `other`.
            pub(super) fn differences(&self, other: &Self) -> BTreeSet<&'static str> {
                let mut keys = BTreeSet::new();
                $(if self.$section.$key != other.$section.$key {
                    keys.insert(concat!(stringify!($section), ".", stringify!($key)));
                })*
                keys
            }

            /// Takes the values of `other` whose keys are chosen.
            pub(super) fn copy(&mut self, other: &Self, is_chosen: impl Fn(&str) -> bool) {
                $(if is_chosen(concat!(stringify!($section), ".", stringify!($key))) {
                    self.$section.$key.clone_from(&other.$section.$key);
                })*
            }
        }
    };
}

variables! {
    timeout.default: "TOOL_TIMEOUT", "how long one attempt may take; a plain number is seconds";
    timeout.idle_timeout: "TOOL_IDLE_TIMEOUT", "how long a tool may go without reporting progress";
    timeout.slow_fraction: "TOOL_SLOW_FRACTION",
        "the part of its timeout above which a call is reported as slow";
    deadline.budget: "TOOL_DEADLINE_BUDGET",
        "how long a whole call may take, with all attempts and waits";
    deadline.reserve: "TOOL_DEADLINE_RESERVE",
        "what is kept back from a deadline that a call brings along";
    retry.enabled: "TOOL_RETRY_ENABLED", "whether calls are sent again";
    retry.attempts: "TOOL_RETRY_ATTEMPTS",
        "how often a call is sent at most, the first time included";
    retry.base: "TOOL_RETRY_BASE", "the delay before the second attempt";
    retry.factor: "TOOL_RETRY_FACTOR", "how much longer each further delay is";
    retry.cap: "TOOL_RETRY_CAP", "what no delay exceeds, before jitter";
    retry.jitter: "TOOL_RETRY_JITTER", "what chance does to a delay: none, upwards, equal or full";
    retry.budget_ratio: "TOOL_RETRY_BUDGET_RATIO",
        "how many retries there may be per call, over all calls";
    retry.budget_minimum: "TOOL_RETRY_BUDGET_MINIMUM",
        "how many retries there may be in 20 s in any case";
    retry.assume_replay_safe: "TOOL_RETRY_ASSUME_REPLAY_SAFE",
        "whether every tool may run twice of which nobody says otherwise";
    rate_limit.enabled: "TOOL_RATE_LIMIT_ENABLED",
        "whether all calls of a key wait after a rate limit";
    rate_limit.default_cooldown: "TOOL_RATE_LIMIT_DEFAULT_COOLDOWN",
        "how long to wait after a rate limit without a hint";
    rate_limit.max_wait: "TOOL_RATE_LIMIT_MAX_WAIT", "the longest wait, whatever a server asks for";
    rate_limit.max_cooldown: "TOOL_RATE_LIMIT_MAX_COOLDOWN",
        "the longest cooldown that calls share, whatever a server asks for";
    rate_limit.text_limits: "TOOL_RATE_LIMIT_TEXT_LIMITS",
        "whether a limit known by an error's text alone holds other calls back";
    rate_limit.attempts: "TOOL_RATE_LIMIT_ATTEMPTS",
        "how often a limited call is sent at most, where no retry layer repeats it";
    rate_limit.fail_fast: "TOOL_RATE_LIMIT_FAIL_FAST",
        "whether calls of a cooling key are refused at once";
    rate_limit.key: "TOOL_RATE_LIMIT_KEY", "which calls share a limit: tool, tool_name or server";
    rate_limit.max_keys: "TOOL_RATE_LIMIT_MAX_KEYS", "how many keys are kept";
    health.enabled: "TOOL_HEALTH_ENABLED", "whether a registry learns which servers are there";
    health.threshold: "TOOL_HEALTH_THRESHOLD",
        "how many timeouts or connection failures in a row make a server unavailable";
    health.refusal: "TOOL_HEALTH_REFUSAL",
        "whether calls to such a server are refused, but for probes";
    health.probe_period: "TOOL_HEALTH_PROBE_PERIOD",
        "how long it is unavailable before a call is let through as a probe";
    health.max_servers: "TOOL_HEALTH_MAX_SERVERS", "how many servers are kept";
    circuit_breaker.enabled: "TOOL_CIRCUIT_BREAKER_ENABLED",
        "whether a broken tool is no longer called";
    circuit_breaker.threshold: "TOOL_CIRCUIT_BREAKER_THRESHOLD",
        "how many failures in a row open a breaker";
    circuit_breaker.window: "TOOL_CIRCUIT_BREAKER_WINDOW",
        "how close together they are; a plain number is seconds";
    circuit_breaker.success_resets: "TOOL_CIRCUIT_BREAKER_SUCCESS_RESETS",
        "whether a success resets the count of failures";
    circuit_breaker.open_for: "TOOL_CIRCUIT_BREAKER_RESET",
        "how long a breaker stays open; a plain number is seconds";
    circuit_breaker.probes: "TOOL_CIRCUIT_BREAKER_PROBES", "how many probes may run at a time";
    circuit_breaker.successes: "TOOL_CIRCUIT_BREAKER_SUCCESSES",
        "how many successful probes close it; none: as many as may run";
    circuit_breaker.failure_rate: "TOOL_CIRCUIT_BREAKER_FAILURE_RATE",
        "the share of failures that opens it, in the place of the threshold";
    circuit_breaker.slow_call_rate: "TOOL_CIRCUIT_BREAKER_SLOW_CALL_RATE",
        "the share of slow calls that opens it, in the place of the threshold";
    circuit_breaker.slow_call: "TOOL_CIRCUIT_BREAKER_SLOW_CALL",
        "from when on a call is slow, for that rate";
    circuit_breaker.minimum_calls: "TOOL_CIRCUIT_BREAKER_MINIMUM_CALLS",
        "how many calls a rate needs to mean anything; none: 10";
    circuit_breaker.window_calls: "TOOL_CIRCUIT_BREAKER_WINDOW_CALLS",
        "how many calls the rates are of, in the place of the window";
    circuit_breaker.key: "TOOL_CIRCUIT_BREAKER_KEY",
        "which calls share a breaker: tool, tool_name or server";
    circuit_breaker.max_keys: "TOOL_CIRCUIT_BREAKER_MAX_KEYS", "how many breakers are kept";
    circuit_breaker.reported_failures: "TOOL_CIRCUIT_BREAKER_REPORTED_FAILURES",
        "whether answers that are errors in the tool's own words (isError) count";
    sequence.budget: "TOOL_SEQUENCE_BUDGET", "the time for calls one after the other, all together";
    sequence.reserve: "TOOL_SEQUENCE_RESERVE", "what is kept back from it for the time after them";
    parallel.limit: "TOOL_PARALLEL_LIMIT", "how many calls of a batch run at a time; none: all";
    parallel.budget: "TOOL_PARALLEL_BUDGET", "the time for calls at the same time, all together";
    sanitize.max_string: "TOOL_SANITIZE_MAX_STRING", "longer strings are cut, in characters";
    sanitize.max_depth: "TOOL_SANITIZE_MAX_DEPTH", "deeper levels are not shown";
    sanitize.max_nodes: "TOOL_SANITIZE_MAX_NODES", "after so many values the rest is not shown";
    sanitize.sensitive_keys: "TOOL_SANITIZE_SENSITIVE_KEYS",
        "more parts of keys whose values are secrets, separated by commas";
    sanitize.harmless_keys: "TOOL_SANITIZE_HARMLESS_KEYS",
        "more words in keys that mean no secret, separated by commas";
    trace.arguments: "TOOL_TRACE_ARGUMENTS",
        "whether the redacted arguments stand in the span of a call";
    trace.output: "TOOL_TRACE_OUTPUT", "whether the redacted answer stands in it";
    trace.attempts: "TOOL_TRACE_ATTEMPTS", "whether each attempt has a span of its own inside it";
}
