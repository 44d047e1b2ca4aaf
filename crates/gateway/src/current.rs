//! The servers, their stack and the callers as they are now. A reload puts others in their place:
//! new calls go to them, and running calls end on the old ones.

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use anyhow::ensure;
use arc_swap::ArcSwap;
use futures_util::future::join_all;
use rmcp::model::Tool;
use tokio::{task::JoinSet, time::timeout};
use tower::{
    Layer as _, Service, ServiceExt as _,
    util::{BoxCloneSyncService, Oneshot},
};
use tower_toolcall::{
    ToolCall, ToolError, call::Identity, health::Health, identity::Resolve, router::Router,
    settings::Settings, tool_metrics::Metrics, validate::Schemas,
};
use tower_toolcall_mcp::{
    self as mcp, GatewayHandler, ListTools, McpAnswer, McpClassifier, McpElicitation, McpServer,
};
use tracing::warn;

use super::{
    auth::Auth,
    gateway::local_tool,
    pin::PinsFile,
    upstream::{self, Server, upstream},
};

/// How long the gateway waits for each server when it starts.
const FIRST: Duration = Duration::from_secs(10);

type Stack = BoxCloneSyncService<ToolCall, McpAnswer, ToolError>;

/// The parts that a reload replaces.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) servers: Vec<Server>,
    pub(crate) has_local_tool: bool,
    pub(crate) auth: Option<Arc<Auth>>,
    pub(crate) pins: Option<PinsFile>,
    /// Variables of the environment that hold secrets: a server has those that it names.
    pub(crate) variables: Vec<String>,
}

pub(crate) struct Current {
    pub(crate) servers: Vec<(Server, McpServer)>,
    pub(crate) router: Router<McpAnswer>,
    pub(crate) health: Health,
    pub(crate) auth: Option<Arc<Auth>>,
    stack: Stack,
    /// The tasks that keep trying to start servers, and that notify clients of changes.
    beside: Mutex<JoinSet<()>>,
}

impl Current {
    /// Builds it. A server that `before` has as it is stays connected.
    fn of(plan: Plan, before: Option<&Self>, shared: &Shared) -> anyhow::Result<Self> {
        let settings = plan.settings;
        let (mut servers, mut started) = (Vec::new(), Vec::new());
        for server in plan.servers {
            let old = before.into_iter().flat_map(|it| &it.servers);
            let mut same = old.filter(|(old, _)| *old == server);
            let connected = match same.next() {
                Some((_, same)) => same.clone(),
                None => {
                    let new = upstream(server.clone(), &plan.variables)?;
                    started.push(new.clone());
                    new
                }
            };
            servers.push((server, connected));
        }
        let mut router = mcp::router();
        if plan.has_local_tool {
            router = local_tool(router, &shared.schemas);
        }
        let health = settings.health_builder().build()?;
        for (_, server) in &servers {
            router = router.server(&**server.name(), server.clone(), server.tools().clone());
        }
        let router = router.with_health(&health).build()?;
        let layers = settings
            .stack()
            .with_classifier(McpClassifier::new())
            .with_metrics(&shared.metrics)
            .with_identity(router.clone())
            .with_schemas(&shared.schemas)
            .with_approver(McpElicitation)
            .build()?;
        let stack = layers.layer(router.clone()).map_err(Into::into);
        let pins = plan.pins.map(|file| file.read()).transpose()?;
        // Nothing fails any more.
        for server in started {
            let _ = server.with_schemas(&shared.schemas);
        }
        for (_, server) in &servers {
            server.tools().set_pins(pins.clone());
        }
        Ok(Self {
            servers,
            router,
            health,
            auth: plan.auth,
            stack: Stack::new(stack),
            beside: Mutex::default(),
        })
    }
}

/// The parts that reloads keep.
#[derive(Clone, Default)]
pub(crate) struct Shared {
    // Arguments that do not fit a tool's schema are refused, and not sent.
    schemas: Schemas,
    pub(crate) metrics: Metrics,
}

/// The stack, the list and the names of the current servers.
#[derive(Clone)]
pub(crate) struct Live {
    current: Arc<ArcSwap<Current>>,
    shared: Shared,
    closing: Arc<AtomicBool>,
}

impl Live {
    pub(crate) fn new(plan: Plan) -> anyhow::Result<Self> {
        let shared = Shared::default();
        let current = Current::of(plan, None, &shared)?;
        Ok(Self {
            current: Arc::new(ArcSwap::from_pointee(current)),
            shared,
            closing: Arc::default(),
        })
    }

    /// Ends the tasks beside the calls. No reload begins others.
    pub(crate) fn close(&self) {
        self.closing.store(true, SeqCst);
        self.now().stop();
    }

    pub(crate) fn now(&self) -> Arc<Current> {
        self.current.load_full()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Connects to all servers, for a time, and goes on with those that are not there. The clients
    /// of `handler` are notified of changes.
    pub(crate) async fn connect(&self, handler: &GatewayHandler) {
        let now = self.now();
        self.follow(handler, &now.servers);
        let first = now.servers.iter();
        let first = first.map(|(_, it)| timeout(FIRST, it.connect()));
        let connected = join_all(first).await;
        for ((_, server), connected) in now.servers.iter().zip(connected) {
            match connected {
                Ok(Ok(_)) => continue,
                Ok(Err(error)) => warn!("{} is not there yet: {error}", server.name()),
                Err(_) => warn!("{} is not there yet", server.name()),
            }
            now.beside().spawn(upstream::connect(server.clone()));
        }
    }

    fn follow(&self, handler: &GatewayHandler, new: &[(Server, McpServer)]) {
        for (_, server) in new {
            handler.follow(server.tools());
        }
        let now = self.now();
        now.beside().spawn(handler.follow_health(&now.health));
    }

    /// Replaces the servers, the stack and the callers. New servers are connected to beside it.
    pub(crate) fn reload(&self, plan: Plan, handler: &GatewayHandler) -> anyhow::Result<()> {
        let before = self.now();
        ensure!(!self.closing.load(SeqCst), "the gateway closes");
        ensure!(
            plan.auth.is_some() || before.auth.is_none(),
            "[auth] is missing: only a restart takes requests without a token"
        );
        let current = Arc::new(Current::of(plan, Some(&before), &self.shared)?);
        let is_new = |(server, _): &&(Server, McpServer)| {
            before.servers.iter().all(|(old, _)| old != server)
        };
        let new: Vec<_> = current.servers.iter().filter(is_new).cloned().collect();
        self.current.store(Arc::clone(&current));
        before.stop();
        self.follow(handler, &new);
        for (_, server) in &current.servers {
            current.beside().spawn(upstream::connect(server.clone()));
        }
        for (gone, _) in &before.servers {
            if current
                .servers
                .iter()
                .all(|(server, _)| server.name != gone.name)
            {
                self.shared.schemas.remove_server(Some(&gone.name));
            }
        }
        handler.tools_changed();
        Ok(())
    }
}

impl Current {
    fn beside(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the tasks beside the calls.
    fn stop(&self) {
        drop(mem::take(&mut *self.beside()));
    }
}

impl Service<ToolCall> for Live {
    type Response = McpAnswer;
    type Error = ToolError;
    type Future = Oneshot<Stack, ToolCall>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        self.current.load().stack.clone().oneshot(call)
    }
}

impl ListTools for Live {
    fn list(&self) -> Vec<Tool> {
        self.current.load().router.list()
    }

    fn find(&self, name: &str) -> Option<Tool> {
        self.current.load().router.find(name)
    }

    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        Resolve::resolve(&self.current.load().router, call)
    }
}

impl Resolve for Live {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        Resolve::resolve(&self.current.load().router, call)
    }
}
