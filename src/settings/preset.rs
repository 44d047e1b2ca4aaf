use std::{str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use super::{KeyBy, Settings, text::Text};
use crate::{config::ConfigError, reader::Reader};

const fn secs(secs: u64) -> Option<Duration> {
    Some(Duration::from_secs(secs))
}

/// Settings for five kinds of systems. See the [table](super#presets).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Preset {
    /// This crate's own: 30 s for each call.
    #[default]
    Default,
    /// A library that runs tools one after the other. See [`Settings::agent_library`].
    AgentLibrary,
    /// A loop that repeats what fails. See [`Settings::agent_loop`].
    AgentLoop,
    /// A gateway to MCP servers. See [`Settings::gateway`].
    Gateway,
    /// A proxy for HTTP tools. See [`Settings::http_proxy`].
    HttpProxy,
}

crate::text::names! {
    /// As it is written: `agent_library`.
    pub Preset {
        Default = "default",
        AgentLibrary = "agent_library",
        AgentLoop = "agent_loop",
        Gateway = "gateway",
        HttpProxy = "http_proxy",
    }
}

impl FromStr for Preset {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let preset = Self::deserialize(Reader::without_keys(Text::new(name)));
        preset.map_err(|e| ConfigError::new("preset", e.to_string()))
    }
}

impl Settings {
    /// Returns the settings of a preset.
    pub fn preset(preset: Preset) -> Self {
        match preset {
            Preset::Default => Self::default(),
            Preset::AgentLibrary => Self::agent_library(),
            Preset::AgentLoop => Self::agent_loop(),
            Preset::Gateway => Self::gateway(),
            Preset::HttpProxy => Self::http_proxy(),
        }
    }

    /// The defaults, from which a preset is made: it sets what differs.
    fn begun(preset: Preset) -> Self {
        Self {
            preset,
            ..Self::default()
        }
    }

    /// Returns the preset of an agent library: 5 s for each call, 30 s for a sequence of them and
    /// 60 s for a batch, 500 ms in reserve, slow from 80 % on. No circuit breaker: each call of a
    /// sequence is made. No retries: a call that met a rate limit alone is sent again, by the
    /// rate-limit layer.
    ///
    /// The cooldown is 10 s and not 30: what does not end within the sequence's budget would never
    /// be waited for.
    pub fn agent_library() -> Self {
        let mut settings = Self::begun(Preset::AgentLibrary);
        settings.timeout.default = Duration::from_secs(5);
        settings.sequence.budget = secs(30);
        settings.parallel.budget = secs(60);
        settings.retry.attempts = 1;
        settings.rate_limit.default_cooldown = Duration::from_secs(10);
        settings.circuit_breaker.enabled = false;
        settings
    }

    /// Returns the preset of an agent loop: 30 s for each call, 3 attempts, 30 s of cooldown. A
    /// rate limit known by an error's text alone holds other calls back as well. No circuit
    /// breaker.
    ///
    /// No preset assumes that a tool may run twice. A call that may have run is sent again only if
    /// its tool is known or declared safe. If all your tools only read, say so in one line:
    ///
    /// ```
    /// use tower_toolcall::settings::Settings;
    ///
    /// let mut settings = Settings::agent_loop();
    /// settings.retry.assume_replay_safe = true; // payments are made twice, too
    /// ```
    pub fn agent_loop() -> Self {
        let mut settings = Self::begun(Preset::AgentLoop);
        settings.rate_limit.text_limits = true;
        settings.circuit_breaker.enabled = false;
        settings
    }

    /// Returns the preset of an MCP gateway: a call is made once, and answered within 60 s,
    /// whatever its server does; a breaker opens after 5 failures in a row within 300 s, for 60 s.
    ///
    /// Nothing is retried or waited out here, because the gateway's clients do so themselves.
    /// During a rate limit calls of the tool are refused immediately, with the remaining time.
    pub fn gateway() -> Self {
        let mut settings = Self::begun(Preset::Gateway);
        settings.timeout.default = Duration::from_secs(60);
        settings.answers_once();
        settings.circuit_breaker.window = secs(300);
        settings
    }

    /// Returns the preset of an HTTP tool proxy: a call is made once, and answered within 30 s; a
    /// breaker per server opens after 5 failures in a row, for 30 s, and closes after 3 successful
    /// probes; a tool without a server has a breaker of its own. Rate limits as in
    /// [`gateway`](Self::gateway). Wrong arguments are `Argument validation failed: a: ..; b: ..`,
    /// where they are checked. The timeout bounds a job as well, if the tool waits for it inside of
    /// the stack: give that tool a `tools.x.timeout` of its own.
    pub fn http_proxy() -> Self {
        let mut settings = Self::begun(Preset::HttpProxy);
        settings.answers_once();
        settings.circuit_breaker.open_for = Duration::from_secs(30);
        settings.circuit_breaker.probes = 3;
        settings.validate.heading = Some("Argument validation failed".into());
        settings.circuit_breaker.key = KeyBy::Server;
        settings
    }

    /// A call is sent once and waits for no rate limit: its timeout bounds all of it. A deadline as
    /// long as the timeout would do so too, and end jobs that outlive single requests.
    fn answers_once(&mut self) {
        self.retry.attempts = 1;
        self.rate_limit.fail_fast = true;
    }
}
