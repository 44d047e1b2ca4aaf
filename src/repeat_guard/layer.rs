use std::{hash::RandomState, sync::Arc, time::Duration};

use tokio::time::Instant;
use tower_layer::Layer;

use super::{
    guard::{Memory, Rules},
    history::Limits,
    service::RepeatGuard,
};
use crate::{
    config::{ConfigError, refuse_if},
    event::Listener,
    key::{Key, Keys},
    kit::{
        keyed::{Classified, KeyedBuilder},
        per_tool::{PerTool, ToolNames},
        registry::Registry,
    },
    outcome::ByError,
};

/// The longest window: a call that would succeed is not refused for longer.
const MAX_WINDOW: Duration = Duration::from_secs(24 * 3600);

/// Layer that stops a caller that makes the same failing call again and again. See the [module
/// docs](super) for an example.
///
/// The histories live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone)]
#[must_use]
pub struct RepeatGuardLayer<C = ByError> {
    pub(super) rules: Arc<Rules>,
    pub(super) histories: Registry<Memory>,
    pub(super) classifier: C,
}

impl RepeatGuardLayer {
    /// Makes a layer with the default settings: a call that has failed 3 times in a row is refused
    /// for 60 s.
    pub fn new() -> Self {
        RepeatGuardBuilder::new().build_checked()
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> RepeatGuardBuilder {
        RepeatGuardBuilder::new()
    }
}

impl<C> RepeatGuardLayer<C> {
    /// Returns the names of tools that have settings of their own, and whether calls have matched
    /// them.
    pub fn tool_names(&self) -> ToolNames {
        self.rules.tools.names()
    }

    /// Returns how many calls had no principal, and were not compared. The first one is the event
    /// `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.histories.inert().calls()
    }
}

impl Default for RepeatGuardLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S, C: Clone> Layer<S> for RepeatGuardLayer<C> {
    type Service = RepeatGuard<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        RepeatGuard::new(inner, self.clone())
    }
}

crate::text::debug_fields! { {C} |_| RepeatGuardLayer<C> { rules, .. } }

/// The settings of a [`RepeatGuardLayer`].
pub type RepeatGuardBuilder<C = ByError> = KeyedBuilder<Rules, C>;

impl Classified for Rules {
    fn keys() -> Keys {
        Keys::by(Key::Session)
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            limits: Limits {
                failures: 3,
                window: Duration::from_secs(60),
            },
            ignored: Vec::new(),
            tools: PerTool::new("repeat_guard"),
            listener: Listener::default(),
            seed: RandomState::new(),
            origin: Instant::now(),
        }
    }
}

impl<C> RepeatGuardBuilder<C> {
    /// Sets how often in a row the same call has to fail before it is refused. Default 3.
    pub fn with_failures(mut self, failures: u32) -> Self {
        self.settings.limits.failures = failures;
        self
    }

    /// Sets how long a call is refused, and how close together its failures are: a call that is
    /// made so long after its last end is counted anew. Default 60 s; at most a day.
    ///
    /// After this time a call that was refused is let through once. If it fails again, it is
    /// refused for as long again.
    pub fn with_window(mut self, window: Duration) -> Self {
        self.settings.limits.window = window;
        self
    }

    /// Leaves an argument out of the comparison, of all tools: a time or an id, for example, that
    /// is another one in each call. Default: all are compared.
    pub fn with_ignored_argument(mut self, name: impl Into<Box<str>>) -> Self {
        self.settings.ignored.push(name.into());
        self
    }

    /// Sets whether calls of one tool are watched. Default: those of all tools. Exempt tools that
    /// are polled with the same arguments until they succeed: their calls are never refused, and
    /// their ends do not count.
    ///
    /// Both names of a [resolved](crate::identity) call are known: its flat name (`pay__charge`),
    /// which goes first, and the tool's own (`charge`), which holds for the tools of this name of
    /// all servers.
    pub fn with_tool(mut self, name: impl Into<Box<str>>, is_watched: bool) -> Self {
        self.settings.tools.set(name.into(), is_watched);
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// If a setting is zero, or beyond its bound. The error names it.
    pub fn build(self) -> Result<RepeatGuardLayer<C>, ConfigError> {
        let Limits { failures, window } = self.settings.limits;
        let reason = "it is zero: no call would be let through";
        refuse_if(failures == 0, "failures", reason)?;
        let reason = "it is zero: no call would be refused";
        refuse_if(window.is_zero(), "window", reason)?;
        let reason = format!("{window:?} is longer than a day");
        refuse_if(window > MAX_WINDOW, "window", reason)?;
        self.keys.check()?;
        Ok(self.build_checked())
    }

    fn build_checked(self) -> RepeatGuardLayer<C> {
        let rules = Arc::new(Rules {
            listener: self.listener.clone(),
            ..self.settings
        });
        let make = |_: &_| Memory::new(&rules);
        let (keys, overflow) = (self.keys, Memory::new(&rules));
        let histories = keys.registry("repeat_guard", self.listener, overflow, make);
        RepeatGuardLayer {
            rules,
            histories,
            classifier: self.classifier,
        }
    }
}
