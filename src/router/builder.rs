use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use tower_layer::Layer;
use tower_service::Service;

use super::{
    Definition, IntoAnswer, Router, ToolList, names,
    service::{Route, route},
    table::{Local, Server, Table},
};
use crate::{
    call::{Identity, ToolCall},
    config::ConfigError,
    error::ToolError,
    health::Health,
};

/// Builds a [`Router`]. See the [module docs](super) for an example.
#[must_use]
pub struct RouterBuilder<Res> {
    separator: String,
    local: Vec<(Arc<str>, Route<Res>)>,
    servers: Vec<(Arc<str>, MakeServer<Res>)>,
    timeouts: Vec<(String, Duration)>,
    health: Option<Health>,
    described: Vec<Definition>,
}

/// Makes a server. Its route needs the separator and the registry that watches it.
type MakeServer<Res> =
    Box<dyn FnOnce(Arc<str>, &Arc<str>, Option<&Health>) -> Server<Res> + Send + Sync>;

impl<Res: 'static> RouterBuilder<Res> {
    /// Makes an empty router of tools that answer with `Res`.
    pub fn new() -> Self {
        Self {
            separator: "__".to_owned(),
            local: Vec::new(),
            servers: Vec::new(),
            timeouts: Vec::new(),
            described: Vec::new(),
            health: None,
        }
    }

    /// Sets what stands between server and tool in a flat name. Default: `__`.
    pub fn with_separator(mut self, separator: impl Into<String>) -> Self {
        self.separator = separator.into();
        self
    }

    /// Adds a tool of this program: any service, for example a [`tool_fn`](super::tool_fn), with or
    /// without layers. The [retry policy](crate::retry::RetryPolicy::with_replay_safety) says by
    /// its name whether it may run twice.
    pub fn tool<S>(mut self, name: impl Into<Arc<str>>, service: S) -> Self
    where
        S: Service<ToolCall, Error: Into<ToolError>, Future: Send> + Clone + Send + Sync + 'static,
        S::Response: IntoAnswer<Res>,
    {
        self.local.push((name.into(), route(service)));
        self
    }

    /// Adds a tool of this program under the name of its definition, which [`Router::definitions`]
    /// lists. Its [replay safety](Definition::with_replay_safety) is that of the tool's calls.
    pub fn described_tool<S>(mut self, definition: Definition, service: S) -> Self
    where
        S: Service<ToolCall, Error: Into<ToolError>, Future: Send> + Clone + Send + Sync + 'static,
        S::Response: IntoAnswer<Res>,
    {
        let name = Arc::from(definition.name());
        self.described.push(definition);
        self.tool(name, service)
    }

    /// Adds a function of this program, with a definition that has the schema of its argument's
    /// type.
    ///
    /// It is [`described_tool`](Self::described_tool) with [`Definition::of`] and
    /// [`tool_fn`](super::tool_fn); see the [module docs](super#definitions) for an example. Use
    /// these three to put layers outside of the function.
    #[cfg(feature = "schemars")]
    pub fn typed_tool<A, F, Fut, R, E>(
        self,
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        f: F,
    ) -> Self
    where
        A: schemars::JsonSchema + serde::de::DeserializeOwned + 'static,
        F: Fn(A) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send,
        R: IntoAnswer<Res>,
        E: Into<ToolError>,
    {
        self.described_tool(Definition::of::<A>(name, description), super::tool_fn(f))
    }

    /// Adds a server's tools, each as `{server}__{tool}`. The service sees their own names, and the
    /// server on the call.
    pub fn server<S>(
        mut self,
        name: impl Into<Arc<str>>,
        service: S,
        tools: impl Into<ToolList>,
    ) -> Self
    where
        S: Service<ToolCall, Error: Into<ToolError>, Future: Send> + Clone + Send + Sync + 'static,
        S::Response: IntoAnswer<Res>,
    {
        let tools = tools.into();
        let server: MakeServer<Res> = Box::new(|name, separator, health| {
            let route = match health {
                Some(health) => route(health.layer().layer(service)),
                None => route(service),
            };
            Server::new(name, separator, route, tools, health)
        });
        self.servers.push((name.into(), server));
        self
    }

    /// Sets the timeout of one tool, by the name that a caller gives it: `pay`, `docs__search`. The
    /// [identity layer](Router::identity) writes it on the calls that have none. A timeout layer's
    /// own value for the tool takes precedence. Default: none.
    pub fn with_timeout(mut self, name: impl Into<String>, timeout: Duration) -> Self {
        self.timeouts.push((name.into(), timeout));
        self
    }

    /// Watches the servers, under the names that they have here. The registry's
    /// [layer](Health::layer) is the outer one of each server's service, so that of a call that an
    /// inner layer repeats the last attempt counts. An outer timeout layer drops hanging calls: the
    /// registry [distinguishes them from cancelled calls](crate::health) by their duration.
    ///
    /// While the registry [refuses](crate::health::HealthBuilder::with_refusal) calls to a server,
    /// no list has its tools; see the [module docs](super#servers-that-are-not-there). The registry
    /// knows the servers before their first call. Default: none.
    ///
    /// Routers may share a registry if they call each server by the same name.
    pub fn with_health(mut self, health: &Health) -> Self {
        self.health = Some(health.clone());
        self
    }

    /// Builds the router.
    ///
    /// # Errors
    ///
    /// A name that is empty, is used twice or is ambiguous; a [timeout](Self::with_timeout) for a
    /// name that no tool can have; a definition with a schema that is not of an object. The error
    /// names it. No later change of a list of tools can make names collide.
    pub fn build(self) -> Result<Router<Res>, ConfigError> {
        let separator = Arc::<str>::from(self.separator);
        names::check_separator(&separator)?;
        for (server, _) in &self.servers {
            names::check_server(server, &separator)?;
        }
        let health = self.health.as_ref();
        let servers = self.servers.into_iter().map(|(name, make)| {
            let server = make(Arc::clone(&name), &separator, health);
            (name, server)
        });
        let servers = unique("server", servers)?;
        for (tool, _) in &self.local {
            names::check_usable("tool", tool)?;
            let server = names::split(tool, &separator).map(|(server, _)| server);
            if server.is_some_and(|server| servers.contains_key(server)) {
                let reason = "begins like the names of a server's tools";
                return Err(names::of("tool", tool, reason));
            }
        }
        let local = self.local.into_iter().map(|(name, route)| {
            let identity = Identity::new(Arc::clone(&name));
            (name, Local { route, identity })
        });
        let mut local = unique("tool", local)?;
        let mut described = self.described;
        described.sort_by(|a, b| a.name().cmp(b.name()));
        for definition in &described {
            definition.check()?;
            if let Some(Local { identity, .. }) = local.get_mut(definition.name()) {
                *identity = identity
                    .clone()
                    .with_replay_safety(definition.replay_safety());
            }
        }
        let mut table = Table {
            local,
            described,
            separator,
            servers,
        };
        for (name, timeout) in self.timeouts {
            table.set_timeout(&name, timeout)?;
        }
        let table = Arc::new(table);
        Ok(Router {
            table,
            breakers: None,
        })
    }
}

impl<Res> Table<Res> {
    fn set_timeout(&mut self, name: &str, timeout: Duration) -> Result<(), ConfigError> {
        let unknown = || names::of("timeout", name, "is the name of no tool");
        if let Some(local) = self.local.get_mut(name) {
            local.identity = local.identity.clone().with_timeout(timeout);
            return Ok(());
        }
        let Some((server, tool)) = names::split(name, &self.separator) else {
            return Err(unknown());
        };
        let server = self.servers.get_mut(server).ok_or_else(unknown)?;
        if server.tools.is_fixed() && server.tools.find(tool).is_none() {
            return Err(unknown());
        }
        let tool = Arc::<str>::from(tool);
        let known = server.known.remove(&tool);
        let identity = known.unwrap_or_else(|| server.identity(Arc::clone(&tool)));
        server.known.insert(tool, identity.with_timeout(timeout));
        Ok(())
    }
}

fn unique<T>(
    field: &'static str,
    named: impl ExactSizeIterator<Item = (Arc<str>, T)>,
) -> Result<HashMap<Arc<str>, T>, ConfigError> {
    let mut map = HashMap::with_capacity(named.len());
    for (name, value) in named {
        match map.entry(name) {
            Entry::Vacant(free) => free.insert(value),
            Entry::Occupied(taken) => return Err(names::of(field, taken.key(), "is there twice")),
        };
    }
    Ok(map)
}

impl<Res: 'static> Default for RouterBuilder<Res> {
    fn default() -> Self {
        Self::new()
    }
}

crate::text::debug_fields! {
    {Res} |this| RouterBuilder<Res> { tools: this.local.len(), servers: this.servers.len(), .. }
}
