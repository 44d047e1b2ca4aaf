use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::{
    ClientHandler, RoleClient,
    model::{ProgressNotificationParam, ProgressToken},
    service::NotificationContext,
};
#[cfg(feature = "mcp-server")]
use tokio::sync::watch;

use crate::call::{Progress, ToolCall};

/// Brings a server's progress notifications to the calls that they belong to.
///
/// It is an rmcp client handler. A program with a handler of its own calls
/// [`report`](Self::report) from its `on_progress`.
///
/// ```no_run
/// use rmcp::ServiceExt as _;
/// use tower_toolcall::mcp::{McpProgress, McpService};
///
/// # async fn run(transport: tokio::io::DuplexStream) -> Result<(), Box<dyn std::error::Error>> {
/// let progress = McpProgress::new();
/// let client = progress.clone().serve(transport).await?;
/// let tools = McpService::new(client.peer().clone()).with_progress(progress);
/// # Ok(()) }
/// ```
///
/// Holds one entry per call in flight whose progress somebody wants to know. Clones share them.
#[derive(Clone, Default)]
pub struct McpProgress {
    routes: Arc<Mutex<HashMap<ProgressToken, Reports>>>,
}

impl McpProgress {
    /// A handler without calls.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells the call that the notification belongs to, if it is still in flight.
    pub fn report(&self, notification: &ProgressNotificationParam) {
        let to = self.lock().get(&notification.progress_token).cloned();
        if let Some(to) = to {
            to.report(notification);
        }
    }

    /// Routes notifications with this token to a call, until the route is dropped.
    pub(super) fn route(&self, token: ProgressToken, to: Reports) -> Route {
        self.lock().insert(token.clone(), to);
        Route {
            all: self.clone(),
            token,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ProgressToken, Reports>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
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
            .field("calls", &self.lock().len())
            .finish()
    }
}

/// Who wants to know of a call's progress.
#[derive(Clone)]
pub(super) struct Reports {
    idle: Option<Progress>,
    #[cfg(feature = "mcp-server")]
    relay: Option<Relay>,
}

impl Reports {
    /// `None` if nobody does.
    pub(super) fn of(call: &ToolCall) -> Option<Self> {
        let reports = Self {
            idle: call.progress(),
            #[cfg(feature = "mcp-server")]
            relay: call.extensions().get().cloned(),
        };
        #[cfg(feature = "mcp-server")]
        let relayed = reports.relay.is_some();
        #[cfg(not(feature = "mcp-server"))]
        let relayed = false;
        (relayed || reports.idle.is_some()).then_some(reports)
    }

    fn report(&self, #[allow(unused_variables)] notification: &ProgressNotificationParam) {
        if let Some(idle) = &self.idle {
            idle.report();
        }
        #[cfg(feature = "mcp-server")]
        if let Some(relay) = &self.relay {
            relay.report(notification);
        }
    }
}

/// The newest progress of a call, for a gateway's client. In the call's extensions.
#[cfg(feature = "mcp-server")]
#[derive(Clone)]
pub(super) struct Relay(Arc<watch::Sender<Option<Report>>>);

/// What a server says of a call's progress.
#[cfg(feature = "mcp-server")]
#[derive(Clone)]
pub(super) struct Report {
    pub(super) progress: f64,
    pub(super) total: Option<f64>,
    pub(super) message: Option<String>,
}

#[cfg(feature = "mcp-server")]
impl Relay {
    pub(super) fn new() -> (Self, watch::Receiver<Option<Report>>) {
        let (newest, reports) = watch::channel(None);
        (Self(Arc::new(newest)), reports)
    }

    /// It only grows: reports may overtake each other, and another attempt begins anew.
    pub(super) fn report(&self, told: &ProgressNotificationParam) {
        self.0.send_if_modified(|newest| {
            let before = newest.as_ref().map_or(f64::NEG_INFINITY, |r| r.progress);
            let grows = told.progress > before;
            if grows {
                *newest = Some(Report {
                    progress: told.progress,
                    total: told.total,
                    message: told.message.clone(),
                });
            }
            grows
        });
    }
}

/// One call's entry; see [`McpProgress::route`].
pub(super) struct Route {
    all: McpProgress,
    token: ProgressToken,
}

impl Drop for Route {
    fn drop(&mut self) {
        self.all.lock().remove(&self.token);
    }
}
