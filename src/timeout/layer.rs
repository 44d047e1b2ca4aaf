use std::{sync::Arc, time::Duration};

use tower_layer::Layer;

use super::service::Timeout;
use crate::{
    call::ToolCall,
    config::ConfigError,
    event::{Listen, Listener},
    per_tool::PerTool,
};

/// Layer that bounds each call's time. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct TimeoutLayer {
    settings: Arc<Settings>,
}

/// Shared by all services of one layer value.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    default: Duration,
    tools: PerTool<Duration>,
    pub(super) slow_fraction: f64,
    pub(super) idle: Option<Duration>,
    pub(super) listener: Listener,
}

impl Settings {
    /// The caller's own timeout, else its tool's, else what a table knows, else the default.
    #[inline]
    pub(super) fn timeout_of(&self, call: &ToolCall) -> Duration {
        let known = call.timeout();
        let is_own = known.is_some() && !call.is_timeout_listed();
        let set = match is_own || self.tools.is_empty() {
            true => known,
            false => self.tools.get(call).copied().or(known),
        };
        set.unwrap_or(self.default)
    }
}

impl Default for TimeoutLayer {
    /// 30 s (T1).
    fn default() -> Self {
        Self::new(Duration::from_secs(30))
    }
}

impl TimeoutLayer {
    /// A layer that gives each call `timeout`.
    ///
    /// [`Duration::ZERO`] lets only those calls succeed that answer without waiting;
    /// [`Duration::MAX`] means no timeout.
    pub fn new(timeout: Duration) -> Self {
        Self {
            settings: Arc::new(Settings {
                default: timeout,
                tools: PerTool::default(),
                slow_fraction: 0.8,
                idle: None,
                listener: Listener::default(),
            }),
        }
    }

    /// Gives the calls of one tool another timeout. A timeout that the caller set beats it.
    ///
    /// Both names of a [resolved](crate::identity) call are known: its flat name (`pay__charge`), which goes first, and the tool's own
    /// (`charge`), which holds for the tools of this name of all servers.
    pub fn with_tool(self, name: impl Into<Box<str>>, timeout: Duration) -> Self {
        self.edit(|s| s.tools.set(name.into(), timeout))
    }

    /// Sets the part of its timeout above which a call is reported as slow. Default 0.8 (T6).
    ///
    /// # Errors
    ///
    /// If the fraction is not above 0 and at most 1. With 1 only a call is slow whose answer came so late
    /// that the timer would have ended it.
    pub fn with_slow_fraction(self, fraction: f64) -> Result<Self, ConfigError> {
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(ConfigError::new(
                "slow_fraction",
                format!("{fraction} is not above 0 and at most 1"),
            ));
        }
        Ok(self.edit(|s| s.slow_fraction = fraction))
    }

    /// Ends a call as well when it has reported no progress for `idle`.
    ///
    /// Every [report](crate::Progress::report) starts the idle time anew; the timeout itself stays a
    /// hard limit on the whole call (T8). An idle time above the timeout never matters. In this mode
    /// each call allocates, for the progress that it shares with the tool.
    ///
    /// # Errors
    ///
    /// If `idle` is zero: no tool could report so fast.
    pub fn with_idle_timeout(self, idle: Duration) -> Result<Self, ConfigError> {
        if idle.is_zero() {
            return Err(ConfigError::new("idle_timeout", "it is zero"));
        }
        Ok(self.edit(|s| s.idle = Some(idle)))
    }

    /// Sets who hears of slow calls. Default: nobody; the `tool.slow` event is emitted either way.
    pub fn with_listener(self, listen: impl Listen + 'static) -> Self {
        self.edit(|s| s.listener = Listener::new(listen))
    }

    fn edit(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Timeout::new(inner, Arc::clone(&self.settings))
    }
}
