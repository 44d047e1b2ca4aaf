use super::Settings;
use crate::edge::health::{Health, HealthBuilder};

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
