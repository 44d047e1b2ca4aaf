use std::{
    future::{Future, poll_fn},
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use serde_json::Value;
use tower_service::Service;

use super::{
    Definition, IntoAnswer, RouterBuilder,
    table::{Asked, Table, Target},
};
#[cfg(feature = "validate")]
use crate::validate::{Draft, Schema, Schemas};
use crate::{
    call::{CallExt, CallInfo, Identity, Record, ReplaySafety, ToolCall},
    circuit_breaker::CircuitBreakerHandle,
    error::ToolError,
    identity::{IdentityLayer, Resolve},
    kit::limit::WaitLimit,
};

/// Brings each call to the tool of its name. See the [module docs](super) for an example.
pub struct Router<Res = Value> {
    pub(super) table: Arc<Table<Res>>,
    /// The breakers that are asked for the lists. Most routers have none, and are cloned for each
    /// call.
    pub(super) breakers: Option<Arc<Vec<CircuitBreakerHandle>>>,
}

impl Router {
    /// Builds a router of tools that answer with JSON. For other answers: [`RouterBuilder::new`].
    pub fn builder() -> RouterBuilder<Value> {
        RouterBuilder::new()
    }
}

impl<Res> Router<Res> {
    /// Returns the layer that resolves the names of calls by this router's tools, for the outside
    /// of a stack: see [`identity`](crate::identity).
    pub fn identity(&self) -> IdentityLayer
    where
        Res: 'static,
    {
        IdentityLayer::new(self.clone())
    }

    /// Returns whether a call may run twice, by the list of its server, or its own
    /// [definition](Definition::with_replay_safety); else `Unknown`. The [identity
    /// layer](Self::identity) writes it on calls; without that layer it is for
    /// [`RetryPolicy::with_replay_safety`](crate::retry::RetryPolicy::with_replay_safety).
    pub fn replay_safety(&self, call: &ToolCall) -> ReplaySafety {
        self.table.replay_safety(call)
    }

    /// Leaves tools out of the lists ([`names`](Self::names), [`definitions`](Self::definitions))
    /// while their breaker is [open](CircuitBreakerHandle::is_refusing), so that no model spends a
    /// turn on a call that is refused. Once the open period is over they are back: a tool that is
    /// in no list would never be called, and its breaker never close. Calls pass as before,
    /// and the breaker goes on refusing them. May be called for several layers: those of tools,
    /// those of servers.
    ///
    /// The breakers are asked by the names that calls have below the [identity
    /// layer](Self::identity); by those of a [key function](crate::Key::by) of other parts of a
    /// call nothing is found. Asking makes no breaker and takes no probe's place.
    ///
    /// This is a view, made when the breakers are there: routers that were cloned before have their
    /// lists as they are. A list also changes with time alone: `GatewayHandler::follow_breakers`
    /// notifies clients of it.
    ///
    /// ```
    /// use tower::{ServiceBuilder, service_fn};
    /// use tower_toolcall::{
    ///     AnyError, ToolCall, circuit_breaker::CircuitBreakerLayer, router::Router,
    /// };
    ///
    /// # fn main() -> Result<(), tower_toolcall::ConfigError> {
    /// let docs = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("found") });
    /// let router = Router::builder().server("docs", docs, ["fetch", "search"]).build()?;
    /// let breaker = CircuitBreakerLayer::new();
    /// let list = router.clone().withhold(&breaker.handle());
    /// let stack = ServiceBuilder::new().layer(router.identity()).layer(&breaker).service(router);
    ///
    /// breaker.handle().breaker(&ToolCall::new("search").with_server("docs")).force_open();
    /// assert_eq!(list.names(), ["docs__fetch"]);
    /// # let _ = stack; Ok(()) }
    /// ```
    #[must_use]
    pub fn withhold(mut self, breakers: &CircuitBreakerHandle) -> Self {
        let all = self.breakers.get_or_insert_default();
        Arc::make_mut(all).push(breakers.clone());
        self
    }

    /// Returns whether a tool is left out of the lists.
    fn is_withheld(&self, server: Option<&str>, tool: &str) -> bool {
        let Some(breakers) = &self.breakers else {
            return false;
        };
        let call = ToolCall::new(tool);
        let call = match server {
            Some(server) => call.with_server(server),
            None => call,
        };
        breakers.iter().any(|breakers| breakers.is_refusing(&call))
    }

    /// Returns the names of all tools as a caller gives them, sorted. Tools are left out if their
    /// server [refuses](RouterBuilder::with_health) calls now, if they are
    /// [withheld](Self::withhold), or if [`ToolCall::check`] refuses their flat name.
    pub fn names(&self) -> Vec<String> {
        let local = self.table.local.keys();
        let local = local.filter(|name| !self.is_withheld(None, name));
        let mut names: Vec<_> = local.map(|name| name.to_string()).collect();
        let _ = self.table.try_each_remote(|flat, server, tool| {
            if !self.is_withheld(Some(server), tool) {
                names.push(flat);
            }
            ControlFlow::Continue(())
        });
        names.sort_unstable();
        // A list may have a name twice.
        names.dedup();
        names
    }

    /// Returns the definitions of all tools that have one, under the names by which a caller gives
    /// them, sorted. Tools of servers to which calls are [refused](RouterBuilder::with_health) now
    /// are left out, and those that are [withheld](Self::withhold).
    pub fn definitions(&self) -> Vec<Definition> {
        let all = self.names();
        let defined = all.iter().filter_map(|name| self.table.definition(name));
        defined.collect()
    }

    /// Returns the definition of one tool, found without a walk. Also of a tool that is
    /// [withheld](Self::withhold): a gateway checks the headers of a call by it.
    pub fn definition(&self, name: &str) -> Option<Definition> {
        self.table.definition(name)
    }

    /// Returns the schemas of this program's tools that have a definition, also of those that are
    /// withheld, for a [`ValidateLayer`](crate::validate::ValidateLayer). One that cannot be
    /// compiled is [refused](Schemas::refused), and its tool's arguments are not checked.
    /// `McpTools::with_schemas` adds those of a server.
    #[cfg(feature = "validate")]
    pub fn schemas(&self) -> Schemas {
        let schemas = Schemas::new();
        let compiled = self.table.described.iter().map(|of| {
            let schema = Value::Object(of.schema().as_ref().clone());
            (
                of.name(),
                Schema::compile_trusted(&schema, Draft::Draft202012),
            )
        });
        schemas.replace(None, compiled);
        schemas
    }
}

impl<Res> Service<ToolCall> for Router<Res> {
    type Response = Res;
    type Error = ToolError;
    type Future = ResponseFuture<Res>;

    /// Always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let asked = Asked::of(&call);
        let target = self.table.find(&call);
        if matches!(target, Some(Target::Local(_) | Target::Listed(..))) {
            call.record(Record::set_known);
        }
        let fut = match target {
            Some(Target::Local(local)) => {
                let call = match call.is_resolved() {
                    true => call.delivered(),
                    false => call,
                };
                (local.route)(call, None)
            }
            Some(Target::Listed(server, tool) | Target::Unlisted(server, tool)) => {
                if server.is_named(&call, &tool) {
                    (server.route)(call.delivered(), None)
                } else {
                    let known_as = call.info();
                    let call = call.renamed(&server.identity(tool)).delivered();
                    (server.route)(call, Some(known_as))
                }
            }
            None => {
                let error = asked.not_found();
                Box::pin(async { Err(error) })
            }
        };
        ResponseFuture {
            fut,
            asked,
            table: Arc::clone(&self.table),
        }
    }
}

/// Stricter than the router itself: a server that it does not know does not exist.
impl<Res: 'static> Resolve for Router<Res> {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        let unknown = || {
            let asked = Asked::of(call);
            asked.with_near(asked.not_found(), &self.table)
        };
        self.table.resolve(call).map(Some).ok_or_else(unknown)
    }

    fn identities(&self) -> Option<Vec<Identity>> {
        self.table.identities()
    }
}

impl<Res> Clone for Router<Res> {
    fn clone(&self) -> Self {
        Self {
            table: Arc::clone(&self.table),
            breakers: self.breakers.clone(),
        }
    }
}

crate::text::debug_fields! {
    {Res} |this| Router<Res> {
        tools: this.table.local.len(),
        servers: this.table.servers.len(),
        ..
    }
}

/// Response future of [`Router`].
///
/// Boxed, because each route has a type of its own: the one allocation of a call.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<Res> {
    fut: Boxed<Res>,
    asked: Asked,
    table: Arc<Table<Res>>,
}

impl<Res> Future for ResponseFuture<Res> {
    type Output = Result<Res, ToolError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.fut.as_mut().poll(cx);
        polled.map_err(|error| self.asked.with_near(error, &self.table))
    }
}

crate::text::debug_fields! { {Res} |_| ResponseFuture<Res> { .. } }

pub(super) type Boxed<Res> = Pin<Box<dyn Future<Output = Result<Res, ToolError>> + Send>>;

/// A service behind a name, its type erased. Its second argument is the names that the caller used,
/// if the call has others by now.
pub(super) type Route<Res> = Box<dyn Fn(ToolCall, Option<CallInfo>) -> Boxed<Res> + Send + Sync>;

/// Returns the route to a service.
pub(super) fn route<S, Res>(service: S) -> Route<Res>
where
    S: Service<ToolCall, Error: Into<ToolError>, Future: Send> + Clone + Send + Sync + 'static,
    S::Response: IntoAnswer<Res>,
    Res: 'static,
{
    Box::new(move |call, known_as| {
        let (svc, info) = (service.clone(), call.info());
        Box::pin(async move {
            run(svc, call).await.map_err(|mut error| {
                match known_as {
                    Some(outer) => error.readdress(&info, &outer),
                    None => error.address(&info),
                }
                error
            })
        })
    })
}

/// Waits for this very instance to be ready, within the call's deadline and until its caller
/// cancels, and calls it.
async fn run<S, Res>(mut svc: S, call: ToolCall) -> Result<Res, ToolError>
where
    S: Service<ToolCall, Error: Into<ToolError>>,
    S::Response: IntoAnswer<Res>,
{
    let first = poll_fn(|cx| Poll::Ready(svc.poll_ready(cx).map_err(Into::into))).await;
    match first {
        Poll::Ready(ready) => ready?,
        Poll::Pending => {
            let mut limit = WaitLimit::of(&call);
            poll_fn(|cx| limit.poll_ready(&mut svc, cx)).await?;
        }
    }
    let response = svc.call(call);
    drop(svc);
    response.await.map_err(Into::into)?.into_answer()
}
