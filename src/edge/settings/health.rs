use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Settings, duration};
use crate::edge::health::{Health, HealthBuilder};

/// Which servers are there: `[health]`. See [`Health`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct HealthSettings {
    /// Whether the layer is there. Default: no. Around a router whose tools are called by flat names it would know no
    /// server: leave it off, and give the [registry](super::StackLayer::health) to the router.
    pub enabled: bool,
    /// How many timeouts or connection failures in a row make a server unavailable. Default 3.
    pub threshold: u32,
    /// Whether calls to an unavailable server are refused, except probes, if there is
    /// [evidence](crate::health#refusing-calls) against the server and not only against one of its tools. Default: no.
    pub refusal: bool,
    /// How long calls are refused before one is let through as a probe. Default 30 s.
    #[serde(with = "duration")]
    pub probe_period: Duration,
    /// How many servers are kept. Default 1,000.
    pub max_servers: usize,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            threshold: 3,
            refusal: false,
            probe_period: Duration::from_secs(30),
            max_servers: 1000,
        }
    }
}

impl Settings {
    /// The health registry alone, to be completed and built, whether its layer is enabled or not.
    pub fn health_builder(&self) -> HealthBuilder {
        let health = &self.health;
        Health::builder()
            .with_threshold(health.threshold)
            .with_refusal(health.refusal)
            .with_probe_period(health.probe_period)
            .with_max_servers(health.max_servers)
    }
}
