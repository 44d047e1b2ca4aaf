use std::{sync::Arc, time::Duration};

use tower_layer::Layer;

use super::poller::Polling;
use crate::{
    config::{ConfigError, refuse_if},
    kit::{
        backoff::{Backoff, Jitter},
        inert::Inert,
    },
};

/// Layer that waits for the jobs that calls start. See the [module docs](super) for an example.
#[derive(Clone)]
#[must_use]
pub struct PollLayer<J> {
    pub(super) job: J,
    pub(super) limits: Limits,
    pub(super) inert: Arc<Inert>,
}

crate::text::debug_fields!({J} |_| PollLayer<J> { limits, .. });

/// How often and how long a job is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) interval: Backoff,
    pub(super) polls: u32,
    pub(super) budget: Option<Duration>,
    pub(super) cancels: bool,
}

impl<J> PollLayer<J> {
    /// Makes a layer for jobs of this kind.
    pub fn new(job: J) -> Self {
        let second = Duration::from_secs(1);
        let interval = Backoff::exponential(second, 1.5).unwrap_or_default();
        let limits = Limits {
            interval: interval.with_jitter(Jitter::None),
            polls: 60,
            budget: None,
            cancels: true,
        };
        let inert = Arc::new(Inert::new("poll"));
        Self { job, limits, inert }
    }

    /// Sets the time before each poll; its jitter is left out. Default: 1 s, half as long again
    /// each time, 30 s at most: 60 polls in about 27 minutes.
    ///
    /// # Errors
    ///
    /// `interval`: it is zero.
    pub fn with_interval(mut self, interval: Backoff) -> Result<Self, ConfigError> {
        let interval = interval.with_jitter(Jitter::None);
        let is_zero = interval.delay(1, 0).is_zero();
        refuse_if(is_zero, "interval", "is zero")?;
        self.limits.interval = interval;
        Ok(self)
    }

    /// Sets how often a call asks for its job. Default: 60.
    ///
    /// # Errors
    ///
    /// `polls`: 0.
    pub fn with_polls(mut self, polls: u32) -> Result<Self, ConfigError> {
        refuse_if(polls == 0, "polls", "is not above 0")?;
        self.limits.polls = polls;
        Ok(self)
    }

    /// Sets how long a call waits for its job, from its beginning. Default: as long as its deadline
    /// and the polls allow.
    ///
    /// # Errors
    ///
    /// `budget`: it is zero.
    pub fn with_budget(mut self, budget: Duration) -> Result<Self, ConfigError> {
        refuse_if(budget.is_zero(), "budget", "is zero")?;
        self.limits.budget = Some(budget);
        Ok(self)
    }

    /// Returns the number of calls with a job that an outer timeout ends too early: see
    /// [order](super#order). The first one is the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.inert.calls()
    }

    /// Leaves jobs running after their callers have gone. Default: they are
    /// [cancelled](super::Job::cancel), if that is possible.
    pub fn without_cancel(mut self) -> Self {
        self.limits.cancels = false;
        self
    }
}

impl<S: Clone, J: Clone> Layer<S> for PollLayer<J> {
    type Service = Polling<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        Polling::new(inner, self.clone())
    }
}
