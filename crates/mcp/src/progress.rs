use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex},
};

use rmcp::{
    ClientHandler, RoleClient,
    model::{
        ElicitRequestParams, ElicitResult, ErrorData, ListRootsRequestMethod, NumberOrString,
        ProgressNotificationParam, ProgressToken,
    },
    service::{NotificationContext, RequestContext},
};
use tower_toolcall::call::{Progress, ToolCall};

use super::McpTools;
use crate::future::lock;

/// The most notifications that are kept until their token is known.
const MAX_EARLY: usize = 64;

/// The longest message of such a notification, in bytes.
const MAX_EARLY_BYTES: usize = 4 << 10;

/// Brings a server's progress notifications to the calls that they belong to.
///
/// An [`McpServer`](super::McpServer) has one for each connection. For a client handler of your
/// own:
///
/// ```
/// use rmcp::{
///     ClientHandler, RoleClient, model::ProgressNotificationParam, service::NotificationContext,
/// };
/// use tower_toolcall_mcp::McpProgress;
///
/// struct Handler {
///     progress: McpProgress, // a clone of it is for `McpService::with_progress`
/// }
///
/// impl ClientHandler for Handler {
///     async fn on_progress(
///         &self,
///         params: ProgressNotificationParam,
///         _: NotificationContext<RoleClient>,
///     ) {
///         self.progress.report(&params);
///     }
/// }
/// ```
///
/// `McpProgress` is a client handler as well.
///
/// Holds one entry per observed call in flight, and up to 64 notifications for calls that are being
/// sent. Clones share them.
#[derive(Clone, Default)]
pub struct McpProgress {
    routes: Arc<Mutex<Routes>>,
}

#[derive(Default)]
struct Routes {
    calls: HashMap<ProgressToken, Reports>,
    /// Calls that are being sent: rmcp has chosen their tokens and has not returned them yet.
    sending: usize,
    /// Notifications that came before their token was known.
    early: VecDeque<ProgressNotificationParam>,
}

impl Routes {
    /// Keeps a notification for a call that is being sent. Its token is one of rmcp's numbers.
    fn keep(&mut self, notification: &ProgressNotificationParam) {
        let length = notification.message.as_ref().map_or(0, String::len);
        let is_number = matches!(notification.progress_token.0, NumberOrString::Number(_));
        if !is_number || length > MAX_EARLY_BYTES {
            return;
        }
        // The oldest may be of a call that has ended.
        if self.early.len() == MAX_EARLY {
            self.early.pop_front();
        }
        let mut kept = notification.clone();
        kept.meta = None;
        self.early.push_back(kept);
    }

    /// Notes that a call was sent.
    fn sent(&mut self) {
        self.sending -= 1;
        if self.sending == 0 {
            self.early.clear();
        }
    }
}

impl McpProgress {
    /// Makes a handler without calls.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports to the call that the notification belongs to, if it is still in flight.
    pub fn report(&self, notification: &ProgressNotificationParam) {
        let mut routes = lock(&self.routes);
        let to = routes.calls.get(&notification.progress_token).cloned();
        if to.is_none() && routes.sending > 0 {
            routes.keep(notification);
        }
        drop(routes);
        if let Some(to) = to {
            to.report(notification);
        }
    }

    /// Expects notifications for a call that is about to be sent.
    pub(super) fn expect(&self, to: Reports) -> Route {
        lock(&self.routes).sending += 1;
        let all = self.clone();
        let token = None;
        Route { all, to, token }
    }
}

impl ClientHandler for McpProgress {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.report(&params);
    }
}

impl fmt::Debug for McpProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpProgress")
            .field("calls", &lock(&self.routes).calls.len())
            .finish()
    }
}

/// The observers of a call's progress.
#[derive(Clone)]
pub(super) struct Reports {
    idle: Option<Progress>,
    relay: Option<Relay>,
}

/// Passes a call's progress on to the client of a gateway. In the call's extensions.
#[derive(Clone)]
pub(super) struct Relay(pub(super) Arc<dyn Fn(&ProgressNotificationParam) + Send + Sync>);

impl Reports {
    /// `None` if there are no observers.
    pub(super) fn of(call: &ToolCall) -> Option<Self> {
        let (idle, relay) = (call.progress(), call.extensions().get().cloned());
        (idle.is_some() || relay.is_some()).then_some(Self { idle, relay })
    }

    fn report(&self, notification: &ProgressNotificationParam) {
        if let Some(idle) = &self.idle {
            idle.report();
        }
        if let Some(Relay(relay)) = &self.relay {
            relay(notification);
        }
    }
}

/// Passes reports of progress to a call. A server may report progress before the call's token is
/// known.
pub(super) struct Route {
    all: McpProgress,
    to: Reports,
    /// `None` while the call is being sent.
    token: Option<ProgressToken>,
}

impl Route {
    /// Takes notifications with this token to the call, until the route is dropped.
    pub(super) fn take(&mut self, token: ProgressToken) {
        // Those that came first are reported first.
        loop {
            let mut routes = lock(&self.all.routes);
            let is_of_call = |early: &ProgressNotificationParam| early.progress_token == token;
            let Some(first) = routes.early.iter().position(is_of_call) else {
                routes.calls.insert(token.clone(), self.to.clone());
                routes.sent();
                break;
            };
            let early = routes.early.remove(first);
            drop(routes);
            early.iter().for_each(|early| self.to.report(early));
        }
        self.token = Some(token);
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        let mut routes = lock(&self.all.routes);
        match &self.token {
            Some(token) => drop(routes.calls.remove(token)),
            None => routes.sent(),
        }
    }
}

/// Listens to a server: brings its progress notifications to the calls that they belong to, and
/// keeps the list of its tools current.
///
/// This is rmcp's client handler for a connection of your own, as
/// [`McpReconnect`](super::McpReconnect) makes it. An [`McpServer`](super::McpServer) has one for
/// each of its connections:
///
/// ```no_run
/// use tower_toolcall::BoxError;
/// use tower_toolcall_mcp::{self as mcp, McpServer};
///
/// # async fn run() -> Result<(), BoxError> {
/// let docs = McpServer::command("docs", "npx", ["-y", "docs-server"]);
/// docs.connect().await?; // from now on the list follows the server
///
/// let router = mcp::router().server("docs", docs.clone(), docs.tools().clone()).build()?;
/// # Ok(()) }
/// ```
///
/// A program with a handler of its own calls [`McpProgress::report`] from its `on_progress`, and
/// [`McpTools::changed`] from its `on_tool_list_changed`.
///
/// One per connection. Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct McpNotifications {
    progress: McpProgress,
    tools: McpTools,
}

impl McpNotifications {
    /// Makes a listener with a list of no tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the list to keep current.
    #[must_use]
    pub fn with_tools(mut self, tools: McpTools) -> Self {
        self.tools = tools;
        self
    }

    /// Returns the progress, for [`McpService::with_progress`](super::McpService::with_progress).
    pub fn progress(&self) -> &McpProgress {
        &self.progress
    }

    /// Returns the server's tools.
    pub fn tools(&self) -> &McpTools {
        &self.tools
    }
}

impl ClientHandler for McpNotifications {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress.report(&params);
    }

    // No capability is declared: a server that asks all the same has no caller's answer.
    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let text = "this client has declared no mode of elicitation";
        Err(ErrorData::invalid_params(text, None))
    }

    #[expect(deprecated, reason = "servers may still ask for roots")]
    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListRootsRequestMethod>())
    }

    // rmcp runs each notification in a task of its own, so this may ask the server that it is from.
    async fn on_tool_list_changed(&self, context: NotificationContext<RoleClient>) {
        self.tools.changed(&context.peer).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: i64) -> ProgressToken {
        ProgressToken(NumberOrString::Number(n))
    }

    fn reports() -> (Reports, Arc<Mutex<Vec<f64>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&seen);
        let relay = move |n: &ProgressNotificationParam| lock(&to).push(n.progress);
        let relay = Some(Relay(Arc::new(relay)));
        (Reports { idle: None, relay }, seen)
    }

    /// A quick server reports progress while rmcp's send of the request has not returned.
    #[test]
    fn progress_before_the_token_is_known_reaches_the_call() {
        let (all, (to, seen)) = (McpProgress::new(), reports());
        let mut call = all.expect(to);
        all.report(&ProgressNotificationParam::new(token(1), 0.25));
        all.report(&ProgressNotificationParam::new(token(2), 0.5));
        call.take(token(1));
        all.report(&ProgressNotificationParam::new(token(1), 0.75));
        assert_eq!(*lock(&seen), [0.25, 0.75]);
        assert_eq!(lock(&all.routes).early.len(), 0, "all calls are sent");
    }

    #[test]
    fn early_progress_is_bounded_and_kept_for_calls_only() {
        let (all, (to, _)) = (McpProgress::new(), reports());
        let early = ProgressNotificationParam::new(token(1), 0.25);
        all.report(&early);
        assert_eq!(lock(&all.routes).early.len(), 0);
        let call = all.expect(to);
        all.report(&early.clone().with_message("x".repeat(MAX_EARLY_BYTES + 1)));
        let named = ProgressToken(NumberOrString::String("x".repeat(1 << 20).into()));
        all.report(&ProgressNotificationParam::new(named, 0.5));
        assert_eq!(lock(&all.routes).early.len(), 0);
        (0..100).for_each(|_| all.report(&early));
        assert_eq!(lock(&all.routes).early.len(), MAX_EARLY);
        drop(call);
        assert_eq!(lock(&all.routes).early.len(), 0);
    }
}
