use std::time::Duration;

use serde_json::{Map, Value};

use crate::call::{Recorded, written};

/// The records of the layers inside a [`ToolResultLayer`](super::ToolResultLayer) for a call, and
/// values that the caller adds.
///
/// `Debug` shows how much the caller has added, not what.
#[derive(Clone, Default)]
pub struct Metadata {
    pub(super) below: Recorded,
    /// Boxed, as few callers add anything.
    pub(super) extra: Option<Box<Map<String, Value>>>,
}

impl Metadata {
    /// Returns how many attempts there might have been; none if no layer repeats calls.
    pub fn max_attempts(&self) -> Option<u32> {
        Some(self.below.max_attempts).filter(|n| *n > 0)
    }

    /// Returns the timeout in force at the last attempt.
    pub fn timeout(&self) -> Option<Duration> {
        written(self.below.timeout).map(Duration::from_nanos)
    }

    /// Returns the timeout as configured, before a deadline shortened it.
    pub fn configured_timeout(&self) -> Option<Duration> {
        written(self.below.configured_timeout).map(Duration::from_nanos)
    }

    /// Returns whether the call took more than its fraction of the timeout.
    pub fn is_slow(&self) -> bool {
        self.below.slow
    }

    /// Returns the time spent waiting for backoffs and cooldowns.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.below.waited_nanos)
    }

    /// Retries that were refused.
    pub fn refused_retries(&self) -> u32 {
        self.below.refusals
    }

    /// Returns how many bytes the answer has as JSON, if the tool or a layer has
    /// [said](crate::Record::set_output_bytes).
    pub fn output_bytes(&self) -> Option<u64> {
        written(self.below.output_bytes)
    }

    /// Returns the value that the caller has added under this key.
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
        max_attempts: this.max_attempts(),
        timeout: this.timeout(),
        configured_timeout: this.configured_timeout(),
        slow: this.is_slow(),
        waited: this.waited(),
        refused_retries: this.refused_retries(),
        output_bytes: this.output_bytes(),
        extra: format_args!("{} keys", this.extra.as_ref().map_or(0, |extra| extra.len())),
    }
}
