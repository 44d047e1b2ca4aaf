use std::time::Duration;

use tower_layer::Layer;

use super::{Health, HealthService};
use crate::{
    circuit_breaker::{CircuitBreakerBuilder, period},
    config::{ConfigError, refuse_if},
    event::{Listen, Listener},
    key::check_max,
};

/// Layer that records in a [`Health`] registry how calls end. See the [module docs](super) for an
/// example.
#[derive(Clone, Debug)]
#[must_use]
pub struct HealthLayer(pub(super) Health);

impl<S> Layer<S> for HealthLayer {
    type Service = HealthService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        HealthService::new(inner, self.0.clone())
    }
}

/// The settings of a [`Health`] registry.
#[derive(Clone, Debug)]
#[must_use]
pub struct HealthBuilder {
    threshold: u32,
    probe_period: Duration,
    refuses: bool,
    max_servers: usize,
    listener: Listener,
}

impl Default for HealthBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl HealthBuilder {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self {
            threshold: 3,
            probe_period: Duration::from_secs(30),
            refuses: false,
            max_servers: 1000,
            listener: Listener::default(),
        }
    }

    /// Sets after how many timeouts or connection failures in a row a server is unavailable.
    /// Default: 3.
    pub fn with_threshold(mut self, failures: u32) -> Self {
        self.threshold = failures;
        self
    }

    /// Sets whether calls to an unavailable server are refused, except probes, if there is
    /// [evidence](super#refusing-calls) against the server and not only against one of its tools.
    /// Default: no.
    pub fn with_refusal(mut self, refuses: bool) -> Self {
        self.refuses = refuses;
        self
    }

    /// Sets how long calls are refused before one is let through as a probe. Default: 30 s. At most
    /// a [year](crate::circuit_breaker::MAX_PERIOD).
    pub fn with_probe_period(mut self, period: Duration) -> Self {
        self.probe_period = period;
        self
    }

    /// Sets how many servers are kept. Default: 1,000.
    pub fn with_max_servers(mut self, max: usize) -> Self {
        self.max_servers = max;
        self
    }

    /// Sets the listener for changes of availability and for evictions of servers. Default: none.
    /// The events are emitted through `tracing` in any case.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.listener = Listener::new(listen);
        self
    }

    /// Builds the registry.
    ///
    /// # Errors
    ///
    /// If the threshold or the period is zero, the period is longer than a year, or the number of
    /// servers is zero or more than 2^24.
    pub fn build(self) -> Result<Health, ConfigError> {
        let reason = "it is zero: every server would be unavailable";
        refuse_if(self.threshold == 0, "threshold", reason)?;
        let reason = "it is zero: every call would be a probe";
        refuse_if(self.probe_period.is_zero(), "probe_period", reason)?;
        period("probe_period", self.probe_period)?;
        check_max("max_servers", self.max_servers)?;
        Ok(self.build_checked())
    }

    pub(super) fn build_checked(self) -> Health {
        let breakers = CircuitBreakerBuilder::of_servers(
            self.threshold,
            self.probe_period,
            self.max_servers,
            self.listener,
        );
        Health::with(breakers, self.refuses)
    }
}
