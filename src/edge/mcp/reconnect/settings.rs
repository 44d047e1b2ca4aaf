use std::time::Duration;

use super::McpReconnect;
use crate::{
    config::{ConfigError, refuse_if},
    kit::backoff::Backoff,
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) backoff: Backoff,
    /// That of a server that has never answered a call.
    pub(super) start_backoff: Backoff,
    pub(super) connect_timeout: Duration,
    /// `None`: only the call that begins the attempt waits for it.
    pub(super) max_wait: Option<Duration>,
    pub(super) ping: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        // As each delay is 1 % longer, it is about 1 % of the outage.
        let growing = |factor| Backoff::exponential(Duration::from_millis(250), factor);
        Self {
            backoff: growing(1.01).unwrap_or_default(),
            start_backoff: growing(2.0).unwrap_or_default(),
            connect_timeout: Duration::from_secs(10),
            max_wait: Some(Duration::from_secs(5)),
            ping: None,
        }
    }
}

impl McpReconnect {
    /// Sets how long there is no attempt after one that failed. Default: 250 ms, 1 % longer each
    /// time up to 30 s, each a quarter longer at most, at random. So it is about 1 % of the time
    /// that the server has been away. Until the server has answered its first call, the default
    /// doubles each time. No more than an hour.
    #[must_use]
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self.settings.start_backoff = backoff;
        self
    }

    /// Sets how long an attempt may take. Default: 10 s.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        let reason = "it is zero: no attempt could succeed";
        refuse_if(timeout.is_zero(), "connect_timeout", reason)?;
        self.settings.connect_timeout = timeout;
        Ok(self)
    }

    /// Sets a timeout that is not zero, and may be longer.
    pub(in crate::edge::mcp) fn with_long_connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// The settings for a server over HTTP, whose end no connection shows.
    #[cfg(feature = "mcp-http")]
    pub(in crate::edge::mcp) fn with_http_settings(mut self) -> Self {
        self.settings.ping = Some(Duration::from_secs(5));
        self
    }

    /// Sets how long a call waits for a connection, if its deadline leaves it as much. Default: 5
    /// s.
    #[must_use]
    pub fn with_max_wait(mut self, max: Duration) -> Self {
        self.settings.max_wait = Some(max);
        self
    }

    /// Calls do not wait for a connection: while an attempt goes on, they fail at once. Only the
    /// call that begins it waits for its end, within its own deadline.
    #[must_use]
    pub fn with_fail_fast(mut self) -> Self {
        self.settings.max_wait = None;
        self
    }

    /// Asks the server for a sign of life (MCP's `ping`) when a call is dropped before its answer
    /// has come, for example by a timeout above. If nothing comes back within `limit`, the
    /// connection is lost. Default: no pings.
    ///
    /// Over HTTP use it with any `limit`: see [Over HTTP](Self#over-http). To a child process it is
    /// a question of what you want: one that works on something for longer than `limit`, and
    /// answers no one meanwhile, is ended in the middle of it.
    ///
    /// # Errors
    ///
    /// If the limit is zero.
    pub fn with_ping(mut self, limit: Duration) -> Result<Self, ConfigError> {
        let reason = "it is zero: no server could answer";
        refuse_if(limit.is_zero(), "ping", reason)?;
        self.settings.ping = Some(limit);
        Ok(self)
    }
}
