use std::{sync::Arc, time::Duration};

use tower_layer::Layer;

use super::timed::Timeout;
use crate::{
    call::{CallExt, ToolCall},
    config::{ConfigError, refuse_if},
    event::{Listen, Listener},
    kit::per_tool::{PerTool, ToolNames},
};

/// Layer that bounds each call's time. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct TimeoutLayer {
    pub(super) settings: Arc<Settings>,
}

/// The part above which a call is slow, by default.
pub(super) const SLOW_FRACTION: f64 = 0.8;

/// Shared by all services of one layer value.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) default: Duration,
    tools: PerTool<Duration>,
    rule: Option<Rule>,
    pub(super) is_plain: bool,
    pub(super) slow_fraction: f64,
    pub(super) idle: Option<Duration>,
    pub(super) drain: Option<Duration>,
    pub(super) listener: Listener,
}

/// The timeout of a call, by a function of the user.
#[derive(Clone)]
struct Rule(Arc<TimeoutFn>);

type TimeoutFn = dyn Fn(&ToolCall) -> Option<Duration> + Send + Sync;

crate::text::debug_fields! { {} |_| Rule { .. } }

impl Settings {
    /// Returns the caller's own timeout, else the layer's for the tool, else a table's, else the
    /// default.
    #[inline]
    pub(super) fn timeout_of(&self, call: &ToolCall) -> Duration {
        let known = call.timeout();
        let is_own = known.is_some() && !call.is_timeout_listed();
        let set = match is_own || self.tools.is_empty() && self.rule.is_none() {
            true => known,
            false => self.of_tool(call).or(known),
        };
        set.unwrap_or(self.default)
    }

    /// Returns whether one timeout is all that calls get from the layer.
    fn is_plain(&self) -> bool {
        let is_of_tool = !self.tools.is_empty() || self.rule.is_some();
        let is_bounded = self.idle.is_some() || self.drain.is_some();
        !is_of_tool && !is_bounded && self.is_told_by_default()
    }

    /// Returns whether slow calls are reported as they are by default.
    pub(super) fn is_told_by_default(&self) -> bool {
        self.slow_fraction == SLOW_FRACTION && !self.listener.is_set()
    }

    #[inline(never)]
    fn of_tool(&self, call: &ToolCall) -> Option<Duration> {
        let ruled = self.rule.as_ref().and_then(|Rule(rule)| rule(call));
        ruled.or_else(|| self.tools.get(call).copied())
    }
}

impl Default for TimeoutLayer {
    /// 30 s.
    fn default() -> Self {
        Self::new(Duration::from_secs(30))
    }
}

impl TimeoutLayer {
    /// Makes a layer that gives each call `timeout`.
    ///
    /// [`Duration::ZERO`] lets only those calls succeed that answer without waiting;
    /// [`Duration::MAX`] means no timeout.
    pub fn new(timeout: Duration) -> Self {
        Self {
            settings: Arc::new(Settings {
                default: timeout,
                tools: PerTool::new("timeout"),
                rule: None,
                is_plain: true,
                slow_fraction: SLOW_FRACTION,
                idle: None,
                drain: None,
                listener: Listener::default(),
            }),
        }
    }

    /// Gives the calls of one tool another timeout. A timeout that the caller set beats it.
    ///
    /// Both names of a [resolved](crate::identity) call are known: its flat name (`pay__charge`),
    /// which goes first, and the tool's own (`charge`), which holds for the tools of this name of
    /// all servers.
    pub fn with_tool(self, name: impl Into<Box<str>>, timeout: Duration) -> Self {
        self.edit(|s| s.tools.set(name.into(), timeout))
    }

    /// Returns the timeout of a call in this layer, whatever its deadline leaves of it.
    pub fn timeout_of(&self, call: &ToolCall) -> Duration {
        self.settings.timeout_of(call)
    }

    /// Returns the names of tools that have settings of their own, and whether calls have matched
    /// them.
    pub fn tool_names(&self) -> ToolNames {
        self.settings.tools.names()
    }

    /// Sets a function that says what timeout a call's tool has; `None` leaves it to
    /// [`with_tool`](Self::with_tool) and the default. For timeouts that change while the program
    /// runs, in a database for example. A timeout that the caller set beats it.
    ///
    /// Called for each attempt of a call without a timeout of its caller's, when the attempt is
    /// sent. It must be quick and must not block: keep its values in memory, and update them
    /// elsewhere. Inside a layer that [resolves](crate::identity) names it gets the resolved ones.
    /// A deadline shortens its timeout as any other.
    ///
    /// ```
    /// use std::{
    ///     collections::HashMap,
    ///     sync::{Arc, RwLock},
    ///     time::Duration,
    /// };
    /// use tower_toolcall::timeout::TimeoutLayer;
    ///
    /// let timeouts =
    ///     Arc::new(RwLock::new(HashMap::from([("import".to_owned(), Duration::from_secs(600))])));
    /// let current = Arc::clone(&timeouts);
    /// let layer = TimeoutLayer::default()
    ///     .with_timeout_fn(move |call| current.read().ok()?.get(call.tool()).copied());
    ///
    /// // Whenever the database changes:
    /// timeouts.write().unwrap().insert("search".into(), Duration::from_secs(5));
    /// # let _ = layer;
    /// ```
    ///
    /// # Panics
    ///
    /// A panic of the function is not caught here, nor by a
    /// [`CatchPanicLayer`](crate::catch_panic::CatchPanicLayer) below: the call panics. Circuit
    /// breakers above count it as a failure.
    pub fn with_timeout_fn(
        self,
        timeout: impl Fn(&ToolCall) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.edit(|s| s.rule = Some(Rule(Arc::new(timeout))))
    }

    /// Sets the part of its timeout above which a call is reported as slow. Default 0.8.
    ///
    /// # Errors
    ///
    /// If the fraction is not above 0 and at most 1. With 1 a call is slow only if its answer came
    /// so late that the timer would have ended it.
    pub fn with_slow_fraction(self, fraction: f64) -> Result<Self, ConfigError> {
        let reason = format!("{fraction} is not above 0 and at most 1");
        refuse_if(
            !(fraction > 0.0 && fraction <= 1.0),
            "slow_fraction",
            reason,
        )?;
        Ok(self.edit(|s| s.slow_fraction = fraction))
    }

    /// Ends a call as well when it has reported no progress for `idle`.
    ///
    /// The idle time runs from the start of every call, also of a tool that reports nothing. Every
    /// [report](crate::Progress::report) starts it anew; the timeout itself stays a hard limit on
    /// the whole call. An idle time above the timeout never matters. In this mode
    /// each call allocates, for the progress that it shares with the tool.
    ///
    /// # Errors
    ///
    /// If `idle` is zero: no tool could report so fast.
    pub fn with_idle_timeout(self, idle: Duration) -> Result<Self, ConfigError> {
        let reason = "it is zero";
        refuse_if(idle.is_zero(), "idle_timeout", reason)?;
        Ok(self.edit(|s| s.idle = Some(idle)))
    }

    /// Cancels the call's token when the time is up, and waits at most this long for the tool,
    /// instead of dropping its future immediately. Default: no wait. Each call then allocates, for
    /// its own token. See the [module docs](super#a-tool-that-is-told-to-stop).
    ///
    /// # Errors
    ///
    /// If it is zero or longer than an hour.
    pub fn with_drain(self, time: Duration) -> Result<Self, ConfigError> {
        let time = crate::kit::drain::check(time)?;
        Ok(self.edit(|s| s.drain = Some(time)))
    }

    /// Sets the listener for slow calls. Default: none. The `tool.slow` event is emitted through
    /// `tracing` in any case.
    pub fn with_listener(self, listen: impl Listen + 'static) -> Self {
        self.edit(|s| s.listener = Listener::new(listen))
    }

    fn edit(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        change(settings);
        settings.is_plain = settings.is_plain();
        self
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Timeout::new(inner, self.clone())
    }
}
