use std::{collections::HashMap, sync::Arc, time::Duration};

use tower_layer::Layer;

use super::{
    exchange::{Exchange, TokenHandle},
    service::Tokens,
    target::Target,
};
use crate::{
    call::{CallInfo, ToolCall},
    config::{ConfigError, refuse_if},
    event::{event, short},
    key::check_max,
    kit::per_tool::{PerTool, ToolNames},
};

/// How many tokens are kept.
const MAX_KEYS: usize = 10_000;

/// Layer that gives calls the token of their tool. See the [module docs](super) for an example.
///
/// The tokens live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone)]
#[must_use]
pub struct TokenLayer<X> {
    pub(super) exchange: Exchange<X>,
    pub(super) settings: Arc<Settings>,
}

type TargetOf = dyn Fn(&CallInfo) -> Option<Target> + Send + Sync;

/// The calls that a layer has a token for, and how long it is kept.
#[derive(Clone)]
pub(super) struct Settings {
    tools: PerTool<Option<Target>>,
    servers: HashMap<Box<str>, Target>,
    of_call: Option<Arc<TargetOf>>,
    pub(super) leeway: Duration,
    pub(super) default_lifetime: Duration,
    pub(super) max_lifetime: Duration,
}

impl<X> TokenLayer<X> {
    /// Makes a layer that asks this service for tokens: the `TokenEndpoint` of the crate
    /// `tower-toolcall-http` under layers of its own, or any `Service<ToolCall, Response = Token>`
    /// that reads the [`TokenRequest`](super::TokenRequest) of its calls.
    pub fn new(exchange: X) -> Self {
        Self {
            exchange: Exchange::new(exchange, MAX_KEYS),
            settings: Arc::new(Settings {
                tools: PerTool::new("token"),
                servers: HashMap::new(),
                of_call: None,
                leeway: Duration::from_secs(30),
                default_lifetime: Duration::from_secs(300),
                max_lifetime: Duration::from_secs(24 * 60 * 60),
            }),
        }
    }

    /// Sets the target of a tool's tokens: of a call with a server by its flat name
    /// (`pay__charge`), of a call without a server by its own (`charge`). So a server with its own
    /// tool `charge` does not get the token of yours.
    ///
    /// A flat name is one tool's if no server has the separator in its name; a `Router` takes no
    /// such server. Else `a__b__c` is `b__c` of `a` as well as `c` of `a__b`, and both get the
    /// token: use [`with_server`](Self::with_server) or [`targets`](Self::targets) instead.
    pub fn with_tool(self, name: impl Into<Box<str>>, target: Target) -> Self {
        self.edit(|s| s.tools.set(name.into(), Some(target)))
    }

    /// Sets the target for the tools of a server that are not named themselves.
    pub fn with_server(self, name: impl Into<Box<str>>, target: Target) -> Self {
        self.edit(|s| _ = s.servers.insert(name.into(), target))
    }

    /// Sets the target of the tokens of all other tools. `None`: they get no token, the default.
    pub fn targets(
        self,
        target: impl Fn(&CallInfo) -> Option<Target> + Send + Sync + 'static,
    ) -> Self {
        self.edit(|s| s.of_call = Some(Arc::new(target)))
    }

    /// Sends the caller's own token to this tool, as it is. The tool can then do whatever the
    /// caller may do elsewhere, which the MCP specification forbids (2025-11-25, "Token
    /// Passthrough"): for a service of your own that checks the token itself. The event
    /// `tool.token` warns of it.
    pub fn pass_subject(self, tool: impl Into<Box<str>>) -> Self {
        let tool = tool.into();
        event!(WARN TOKEN, TOOL = short(&tool), ERROR = "the caller's own token is sent to this tool");
        self.edit(|s| s.tools.set(tool, None))
    }

    /// Sets how long before its end a token is not used any more. Default 30 s; half of the token's
    /// lifetime at most.
    pub fn with_leeway(self, leeway: Duration) -> Self {
        self.edit(|s| s.leeway = leeway)
    }

    /// Sets the lifetime of a token if its provider does not report one. Default 300 s.
    pub fn with_default_lifetime(self, lifetime: Duration) -> Self {
        self.edit(|s| s.default_lifetime = lifetime)
    }

    /// Sets how long a token is used at most, whatever its provider says. Default 24 h.
    ///
    /// # Errors
    ///
    /// `max_lifetime`: it is zero.
    pub fn with_max_lifetime(self, lifetime: Duration) -> Result<Self, ConfigError> {
        refuse_if(lifetime.is_zero(), "max_lifetime", "is zero")?;
        Ok(self.edit(|s| s.max_lifetime = lifetime))
    }

    /// Sets how many tokens are kept at most. Default 10,000; at most 16,777,216. Those that end
    /// first make room. What was kept before is left behind.
    ///
    /// # Errors
    ///
    /// `max_keys`: zero, or more.
    pub fn with_max_keys(mut self, max: usize) -> Result<Self, ConfigError> {
        check_max("max_keys", max)?;
        self.exchange = self.exchange.with_max_keys(max);
        Ok(self)
    }

    /// Changes the service that is asked for tokens: to add layers to a service that was made
    /// elsewhere, or to read it. The tokens stay.
    ///
    /// ```
    /// # use tower::{ServiceBuilder, service_fn};
    /// # use tower_layer::Layer;
    /// # use tower_toolcall::{ServiceBuilderExt, ToolCall, ToolError, tool_metrics::Metrics};
    /// # use tower_toolcall::token::{Token, TokenLayer};
    /// # let provider = service_fn(|_: ToolCall| async { Ok::<_, ToolError>(Token::new("t")) });
    /// # let exchange = ServiceBuilder::new().tool_circuit_breaker().service(provider);
    /// # let (tokens, metrics) = (TokenLayer::new(exchange), Metrics::new());
    /// let mut breaker = None;
    /// let tokens = tokens.map_exchange(|exchange| {
    ///     // Reads the provider's breaker, and subscribes to it.
    ///     breaker = Some(exchange.handle());
    ///     metrics.layer().layer(exchange) // as the tool `token_exchange`
    /// });
    /// # let _ = (breaker, tokens.layer(()));
    /// ```
    pub fn map_exchange<Y>(self, map: impl FnOnce(X) -> Y) -> TokenLayer<Y>
    where
        X: Clone,
    {
        TokenLayer {
            exchange: self.exchange.map(map),
            settings: self.settings,
        }
    }

    /// Returns the names of tools that have settings of their own, and whether calls have matched
    /// them.
    pub fn tool_names(&self) -> ToolNames {
        self.settings.tools.names()
    }

    /// Returns a handle that counts what became of the calls, and forgets tokens.
    pub fn handle(&self) -> TokenHandle {
        self.exchange.handle()
    }

    #[cfg(test)]
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    fn edit(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

/// The token that a call needs.
pub(super) enum Needs {
    Nothing,
    /// One for this target.
    Token(Target),
    /// The caller's own.
    Subject,
}

impl Settings {
    pub(super) fn needs(&self, call: &ToolCall) -> Needs {
        if let Some(of_tool) = self.tools.get_of_server(call) {
            return of_tool.clone().map_or(Needs::Subject, Needs::Token);
        }
        let of_server = call.server().and_then(|server| self.servers.get(server));
        let target = match (of_server, &self.of_call) {
            (Some(target), _) => Some(target.clone()),
            (None, Some(of_call)) => of_call(&call.info()),
            (None, None) => None,
        };
        target.map_or(Needs::Nothing, Needs::Token)
    }
}

impl<S: Clone, X> Layer<S> for TokenLayer<X> {
    type Service = Tokens<S, X>;

    fn layer(&self, inner: S) -> Self::Service {
        let (exchange, settings) = (self.exchange.clone(), Arc::clone(&self.settings));
        Tokens::new(inner, Self { exchange, settings })
    }
}

crate::text::debug_fields! { {X} |this| TokenLayer<X> { settings: this.settings, .. } }

crate::text::debug_fields! {
    {} |this| Settings {
        servers: this.servers.len(),
        leeway: this.leeway,
        default_lifetime: this.default_lifetime,
        max_lifetime: this.max_lifetime,
        ..
    }
}
