use std::{
    hash::RandomState,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;
use tower_layer::Layer;

use super::{
    guard::{Memory, Rules},
    history::Limits,
    service::RepeatGuard,
};
use crate::{
    config::{ConfigError, refuse_if},
    error::ToolError,
    event::{Listen, Listener},
    key::{Key, Keys},
    kit::{
        per_tool::{PerTool, ToolNames},
        registry::Registry,
    },
    outcome::{ByError, Outcome},
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
    /// A layer with the default settings: a call that has failed 3 times in a row is refused for 60
    /// s.
    pub fn new() -> Self {
        RepeatGuardBuilder::new().build_checked()
    }

    /// A builder with the default settings.
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
#[derive(Clone)]
#[must_use]
pub struct RepeatGuardBuilder<C = ByError> {
    rules: Rules,
    keys: Keys,
    classifier: C,
}

impl Default for RepeatGuardBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl RepeatGuardBuilder {
    /// The default settings; see [`RepeatGuardLayer::new`].
    pub fn new() -> Self {
        Self {
            rules: Rules {
                limits: Limits {
                    failures: 3,
                    window: Duration::from_secs(60),
                },
                ignored: Vec::new(),
                tools: PerTool::new("repeat_guard"),
                listener: Listener::default(),
                seed: RandomState::new(),
                origin: Instant::now(),
            },
            keys: Keys::by(Key::Session),
            classifier: ByError,
        }
    }
}

impl<C> RepeatGuardBuilder<C> {
    /// Sets how often in a row the same call has to fail before it is refused. Default 3.
    pub fn with_failures(mut self, failures: u32) -> Self {
        self.rules.limits.failures = failures;
        self
    }

    /// Sets how long a call is refused, and how close together its failures are: a call that is
    /// made so long after its last end is counted anew. Default 60 s; at most a day.
    ///
    /// After this time a call that was refused is let through once. If it fails again, it is
    /// refused for as long again.
    pub fn with_window(mut self, window: Duration) -> Self {
        self.rules.limits.window = window;
        self
    }

    /// Sets which calls are compared with each other, how many keys are kept, and which are known.
    /// See [`Keys`]. Default: those of one [session](Key::Session), else of one agent; 10,000 are
    /// kept.
    ///
    /// A call for which a [function](Key::by) picks an empty text is not watched. The function has
    /// to pick what callers cannot choose, or can choose for themselves only.
    pub fn with_keys(mut self, keys: impl Into<Keys>) -> Self {
        self.keys.set(keys);
        self
    }

    /// Leaves an argument out of the comparison, of all tools: a time or an id, for example, that
    /// is another one in each call. Default: all are compared.
    pub fn with_ignored_argument(mut self, name: impl Into<Box<str>>) -> Self {
        self.rules.ignored.push(name.into());
        self
    }

    /// Sets whether calls of one tool are watched. Default: those of all tools. For tools that are
    /// asked until they say yes, for example: calls that are not watched are never refused, and how
    /// they end counts for nothing.
    ///
    /// Both names of a [resolved](crate::identity) call are known: its flat name (`pay__charge`),
    /// which goes first, and the tool's own (`charge`), which holds for the tools of this name of
    /// all servers.
    pub fn with_tool(mut self, name: impl Into<Box<str>>, is_watched: bool) -> Self {
        self.rules.tools.set(name.into(), is_watched);
        self
    }

    /// Sets the listener for calls that succeed again and again, and for evictions. Default: none.
    /// The events are emitted through `tracing` in any case.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.rules.listener = Listener::new(listen);
        self
    }

    /// Sets the classifier of answers: it tells those that are errors in the tool's own words
    /// (MCP's `isError`) from successes. Errors are judged by their kind. Default: [`ByError`]. It
    /// is cloned for each call: put large parts in an [`Arc`].
    pub fn with_classifier<D>(self, classifier: D) -> RepeatGuardBuilder<D> {
        RepeatGuardBuilder {
            rules: self.rules,
            keys: self.keys,
            classifier,
        }
    }

    /// Sets a closure as the classifier; its argument types are inferred.
    pub fn classify_fn<Res, F>(self, classify: F) -> RepeatGuardBuilder<F>
    where
        F: Fn(Result<&Res, &ToolError>) -> Outcome,
    {
        self.with_classifier(classify)
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// If a setting is zero, or beyond its bound. The error names it.
    pub fn build(self) -> Result<RepeatGuardLayer<C>, ConfigError> {
        let Limits { failures, window } = self.rules.limits;
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
        let (keys, rules) = (self.keys, Arc::new(self.rules));
        let make = |_: &_| Memory::new(&rules, Some(Mutex::default()));
        let (overflow, listener) = (Memory::new(&rules, None), rules.listener.clone());
        let histories = keys.registry("repeat_guard", listener, overflow, make);
        RepeatGuardLayer {
            rules,
            histories,
            classifier: self.classifier,
        }
    }
}

crate::text::debug_fields! { {C} |_| RepeatGuardBuilder<C> { rules, keys, .. } }
