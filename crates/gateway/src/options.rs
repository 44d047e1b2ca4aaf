//! What is set beside the layers.

use std::{env, time::Duration};

use anyhow::Context as _;

use super::hosts::LOOPBACK;

#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The hosts that requests may name in `Host` and `Origin`.
    pub(crate) hosts: Vec<String>,
    /// How many sessions of MCP clients there are at most.
    pub(crate) sessions: usize,
    /// How many calls there are at most at a time, with those whose bodies are being read.
    pub(crate) calls: usize,
    /// How long calls have to end when the gateway stops.
    pub(crate) grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hosts: LOOPBACK.map(str::to_owned).into(),
            sessions: 1000,
            calls: 100,
            grace: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// As the variables `GATEWAY_HOSTS`, `GATEWAY_SESSIONS`, `GATEWAY_CALLS` and `GATEWAY_GRACE` have them.
    pub(crate) fn from_env() -> anyhow::Result<Self> {
        let mut options = Self::default();
        if let Ok(hosts) = env::var("GATEWAY_HOSTS") {
            let hosts = hosts.split(',').map(str::trim).filter(|h| !h.is_empty());
            options.hosts.extend(hosts.map(str::to_owned));
        }
        if let Ok(sessions) = env::var("GATEWAY_SESSIONS") {
            options.sessions = sessions.parse().context("GATEWAY_SESSIONS")?;
        }
        if let Ok(calls) = env::var("GATEWAY_CALLS") {
            options.calls = calls.parse().context("GATEWAY_CALLS")?;
        }
        if let Ok(seconds) = env::var("GATEWAY_GRACE") {
            let seconds = seconds.parse().context("GATEWAY_GRACE is in seconds")?;
            options.grace = Duration::from_secs(seconds);
        }
        Ok(options)
    }
}
