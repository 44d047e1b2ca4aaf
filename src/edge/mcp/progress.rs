use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::{
    ClientHandler, RoleClient,
    model::{ProgressNotificationParam, ProgressToken},
    service::NotificationContext,
};

use crate::call::{Progress, ToolCall};

/// Brings a server's progress notifications to the calls that they belong to.
///
/// An [`McpServer`](super::McpServer) has one for each connection. For a client handler of your
/// own:
///
/// ```
/// use rmcp::{
///     ClientHandler, RoleClient, model::ProgressNotificationParam, service::NotificationContext,
/// };
/// use tower_toolcall::mcp::McpProgress;
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
/// Holds one entry per call in flight whose progress is observed. Clones share them.
#[derive(Clone, Default)]
pub struct McpProgress {
    routes: Arc<Mutex<HashMap<ProgressToken, Reports>>>,
}

impl McpProgress {
    /// A handler without calls.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports to the call that the notification belongs to, if it is still in flight.
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

crate::text::debug_fields! { {} |this| McpProgress { calls: this.lock().len() } }

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
