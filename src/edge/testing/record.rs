use std::{sync::Arc, time::Duration};

use crate::{call::Observation, error::ToolError};

/// What a call's record says at one moment: a copy of what its [`Observation`] gives, to be
/// compared and printed.
///
/// See the [module docs](super#events-and-the-record) for an example;
/// [`Events::run`](super::Events::run) makes one at the end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordSnapshot {
    /// [`Observation::sent`]: how many attempts were sent.
    pub sent: u32,
    /// [`Observation::attempts`]: how many were begun.
    pub attempts: u32,
    /// [`Observation::max_attempts`]
    pub max_attempts: Option<u32>,
    /// [`Observation::refusals`]: how many retries were refused.
    pub refusals: u32,
    /// [`Observation::waited`]: the time spent in backoffs and cooldowns.
    pub waited: Duration,
    /// [`Observation::is_slow`]
    pub is_slow: bool,
    /// [`Observation::is_reported`]: the answer is an error in the tool's own words.
    pub is_reported: bool,
    /// [`Observation::timeout`]: the one in force at the last attempt.
    pub timeout: Option<Duration>,
    /// [`Observation::configured_timeout`]
    pub configured_timeout: Option<Duration>,
    /// [`Observation::output_bytes`]
    pub output_bytes: Option<u64>,
    /// [`Observation::server`]: the one that the tool service has named.
    pub server: Option<Arc<str>>,
}

impl RecordSnapshot {
    /// The record of a call that runs, or has ended with an answer or with `error`.
    pub fn of(observation: &Observation, error: Option<&ToolError>) -> Self {
        Self {
            sent: observation.sent(error),
            attempts: observation.attempts(),
            max_attempts: observation.max_attempts(),
            refusals: observation.refusals(),
            waited: observation.waited(),
            is_slow: observation.is_slow(),
            is_reported: observation.is_reported(),
            timeout: observation.timeout(),
            configured_timeout: observation.configured_timeout(),
            output_bytes: observation.output_bytes(),
            server: observation.server(),
        }
    }

    /// Asserts that the function returns `true` for this record.
    ///
    /// # Panics
    ///
    /// If not. The message has the whole record.
    #[track_caller]
    pub fn assert(&self, is_so: impl FnOnce(&Self) -> bool) {
        assert!(is_so(self), "not as asserted: {self:#?}");
    }
}
