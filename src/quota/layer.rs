use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tower_layer::Layer;

use super::{
    handle::QuotaHandle,
    limit::{KeyQuota, QuotaService, Settings},
    rate::Quota,
};
use crate::{
    call::CallInfo,
    config::{ConfigError, refuse_if},
    key::Keys,
    kit::{
        keyed::KeyedBuilder,
        per_tool::{PerTool, ToolNames},
    },
};

/// Layer that limits the calls of a key per period. See the [module docs](super) for an example.
///
/// The buckets live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone, Debug)]
#[must_use]
pub struct QuotaLayer {
    quotas: QuotaHandle,
}

impl QuotaLayer {
    /// Makes a layer that gives each tool this quota, with the default settings for the rest.
    pub fn new(quota: Quota) -> Self {
        QuotaBuilder::new(quota).build_checked()
    }

    /// Returns a builder with the default settings.
    pub fn builder(quota: Quota) -> QuotaBuilder {
        QuotaBuilder::new(quota)
    }

    /// Returns the names of tools that have settings of their own, and whether calls have matched
    /// them.
    pub fn tool_names(&self) -> ToolNames {
        let settings = &self.quotas.settings;
        settings.tools.names().and(settings.costs.names())
    }

    /// Returns a handle that reads the remaining units.
    pub fn handle(&self) -> QuotaHandle {
        self.quotas.clone()
    }
}

impl<S> Layer<S> for QuotaLayer {
    type Service = QuotaService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        QuotaService::new(inner, self.quotas.clone())
    }
}

/// The settings of a [`QuotaLayer`].
pub type QuotaBuilder = KeyedBuilder<Settings>;

impl QuotaBuilder {
    /// Returns the default settings, with this quota.
    pub fn new(quota: Quota) -> Self {
        let settings = Settings {
            quota,
            tools: PerTool::new("quota"),
            costs: PerTool::new("quota"),
            cost: None,
            waits: true,
            max_wait: Duration::from_secs(30),
            origin: Instant::now(),
        };
        Self::of(settings, Keys::default())
    }

    /// Gives this tool a quota of its own. Default: that of all tools. Needs
    /// [`Key::Tool`](crate::Key::Tool), the default: with other keys tools share their units, and
    /// can only have [costs](Self::with_tool_cost) of their own.
    ///
    /// Both names of a [resolved](crate::identity) call are known: its flat name (`pay__charge`),
    /// which goes first, and the tool's own (`charge`), which holds for the tools of this name of
    /// all servers.
    pub fn with_tool(mut self, name: impl Into<Box<str>>, quota: Quota) -> Self {
        self.settings.tools.set(name.into(), quota);
        self
    }

    /// Sets the units that a call of this tool costs, by both its names as in
    /// [`with_tool`](Self::with_tool). Default: what the function of [`with_cost`](Self::with_cost)
    /// says.
    pub fn with_tool_cost(mut self, name: impl Into<Box<str>>, cost: u32) -> Self {
        self.settings.costs.set(name.into(), cost);
        self
    }

    /// Sets the units that a call costs. Default: one. A call that costs none always passes; one
    /// that costs more than the quota's [burst](Quota::burst) never does, and is refused with the
    /// code [`QUOTA_IMPOSSIBLE`](super::QUOTA_IMPOSSIBLE).
    pub fn with_cost(mut self, cost: impl Fn(&CallInfo) -> u32 + Send + Sync + 'static) -> Self {
        self.settings.cost = Some(Arc::new(cost));
        self
    }

    /// Refuses a call immediately for which there are no units now, instead of letting it wait.
    pub fn with_fail_fast(mut self) -> Self {
        self.settings.waits = false;
        self
    }

    /// Sets the longest time that a call waits for its units. One that would have to wait longer,
    /// or beyond its deadline, is refused immediately, with the full time. Default 30 s.
    pub fn with_max_wait(mut self, max: Duration) -> Self {
        self.settings.max_wait = max;
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Those of [`Keys`]. `tool_cost`: if it is more than the [burst](Quota::burst) of every quota,
    /// so that no call of the tool would be admitted.
    pub fn build(self) -> Result<QuotaLayer, ConfigError> {
        self.keys.check()?;
        let Settings { tools, costs, .. } = &self.settings;
        self.keys.check_tools(tools)?;
        let (dearest, burst) = (costs.values().max(), self.settings.largest_burst());
        let reason = format!("it is more than the {burst} units of the largest burst");
        refuse_if(dearest > Some(&burst), "tool_cost", reason)?;
        Ok(self.build_checked())
    }

    fn build_checked(mut self) -> QuotaLayer {
        if !self.settings.waits {
            self.settings.max_wait = Duration::ZERO;
        }
        let (keys, settings) = (self.keys, Arc::new(self.settings));
        let make = |call: &_| KeyQuota::new(&settings, call);
        let overflow = KeyQuota::overflow(&settings);
        let registry = keys.registry("quota", self.listener, overflow, make);
        QuotaLayer {
            quotas: QuotaHandle { registry, settings },
        }
    }
}
