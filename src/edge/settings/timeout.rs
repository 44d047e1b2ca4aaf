use std::time::Duration;

use super::{Settings, names::in_section};
use crate::{config::ConfigError, timeout::TimeoutLayer};

impl Settings {
    /// The timeout layer alone, with the tools' own timeouts.
    ///
    /// # Errors
    ///
    /// If one of its settings cannot work.
    pub fn timeout_layer(&self) -> Result<TimeoutLayer, ConfigError> {
        let timeout = &self.timeout;
        let mut layer = TimeoutLayer::new(timeout.default)
            .with_slow_fraction(timeout.slow_fraction)
            .map_err(in_section("timeout"))?;
        if let Some(idle) = timeout.idle_timeout {
            let idle = layer.with_idle_timeout(idle);
            layer = idle.map_err(in_section("timeout"))?;
        }
        for (name, tool) in &self.tools {
            if let Some(timeout) = tool.timeout {
                layer = layer.with_tool(name.as_str(), timeout);
            }
        }
        Ok(layer)
    }

    /// The longest that an attempt may take, and what says so.
    pub(super) fn longest_attempt(&self) -> (String, Duration) {
        match (self.longest_timeout(), self.deadline.budget) {
            ((_, timeout), Some(budget)) if budget < timeout => ("deadline.budget".into(), budget),
            (longest, _) => longest,
        }
    }

    /// The longest timeout of any tool, and its key.
    pub(super) fn longest_timeout(&self) -> (String, Duration) {
        let own = self
            .tools
            .iter()
            .filter_map(|(name, tool)| Some((name, tool.timeout?)));
        match own.max_by_key(|(_, timeout)| *timeout) {
            Some((name, timeout)) if timeout > self.timeout.default => {
                (super::tools::key(name, "timeout"), timeout)
            }
            _ => ("timeout.default".into(), self.timeout.default),
        }
    }
}
