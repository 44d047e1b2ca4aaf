use std::time::Duration;

use serde_json::{Map, Value};

use crate::call::Observation;

/// What the layers below a [`ToolResultLayer`](super::ToolResultLayer) did for a call,
/// and values that the caller adds.
///
/// `Debug` shows how much the caller has added, not what.
#[derive(Clone, Default)]
pub struct Metadata {
    pub(super) max_attempts: Option<u32>,
    pub(super) timeout: Option<Duration>,
    pub(super) configured_timeout: Option<Duration>,
    pub(super) slow: bool,
    pub(super) waited: Duration,
    pub(super) refused_retries: u32,
    pub(super) output_bytes: Option<u64>,
    /// Boxed, as few callers add anything.
    pub(super) extra: Option<Box<Map<String, Value>>>,
}

impl Metadata {
    pub(super) fn of(below: &Observation) -> Self {
        Self {
            max_attempts: below.max_attempts(),
            timeout: below.timeout(),
            configured_timeout: below.configured_timeout(),
            slow: below.is_slow(),
            waited: below.waited(),
            refused_retries: below.refusals(),
            output_bytes: below.output_bytes(),
            extra: None,
        }
    }

    /// How many attempts there might have been; none if no layer repeats calls.
    pub fn max_attempts(&self) -> Option<u32> {
        self.max_attempts
    }

    /// The timeout in force at the last attempt.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The same as configured, before a deadline shortened it.
    pub fn configured_timeout(&self) -> Option<Duration> {
        self.configured_timeout
    }

    /// Returns whether the call took more than its fraction of the timeout.
    pub fn is_slow(&self) -> bool {
        self.slow
    }

    /// Time spent waiting for backoffs and cooldowns.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Retries that were refused.
    pub fn refused_retries(&self) -> u32 {
        self.refused_retries
    }

    /// How many bytes the answer has as JSON, if the tool or a layer has
    /// [said](crate::Record::set_output_bytes).
    pub fn output_bytes(&self) -> Option<u64> {
        self.output_bytes
    }

    /// The value that the caller has added under this key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.extra.as_ref()?.get(key)
    }

    /// Adds to it. Returns what stood there.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.extra
            .get_or_insert_default()
            .insert(key.into(), value.into())
    }
}

crate::text::debug_fields! {
    {} |this| Metadata {
        max_attempts, timeout, configured_timeout, slow, waited, refused_retries, output_bytes,
        extra: format_args!("{} keys", this.extra.as_ref().map_or(0, |extra| extra.len())),
    }
}
