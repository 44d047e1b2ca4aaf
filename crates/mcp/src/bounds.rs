//! Bounds of what a peer makes this program hold.

use std::{
    borrow::Cow,
    collections::HashSet,
    fmt,
    future::Future,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use rmcp::{
    model::{CancelledNotification, JsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage},
    transport::Transport,
};
use tokio_util::sync::CancellationToken;

use super::{events, lines::MAX_VALUES};

/// The most requests of a peer that wait for their answers, by default.
const MAX_REQUESTS: usize = 1000;

/// The most bytes of the id of a request.
const MAX_ID: usize = 256;

/// The bounds of an [`McpServer`](super::McpServer), shared by its clones and connections.
#[derive(Clone, Debug)]
pub(super) struct Limits(Arc<(AtomicUsize, AtomicUsize)>);

impl Limits {
    pub(super) fn values(&self) -> usize {
        self.0.0.load(Relaxed)
    }

    pub(super) fn set_values(&self, max: usize) {
        self.0.0.store(max, Relaxed);
    }

    pub(super) fn requests(&self) -> usize {
        self.0.1.load(Relaxed)
    }

    pub(super) fn set_requests(&self, max: usize) {
        self.0.1.store(max, Relaxed);
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self(Arc::new((MAX_VALUES.into(), MAX_REQUESTS.into())))
    }
}

/// The cause of a connection that was given up.
#[derive(Clone, Default)]
pub(super) struct GivenUp(Arc<OnceLock<String>>, CancellationToken);

impl GivenUp {
    /// Returns why it was given up, if it was.
    pub(super) fn why(&self) -> Option<&str> {
        self.0.get().map(|why| &**why)
    }
}

/// A transport of rmcp's that bounds the requests of its peer.
///
/// rmcp makes a task for each request of its peer, and one for each answer. A peer that sends
/// requests and reads no answer makes this program hold all of them: 900 MB within a minute. Beyond
/// the bound, 1,000 requests without a written answer, the connection is given up. An id of more
/// than 256 bytes, or that of a request without an answer, ends it too. The event
/// `tool.message_dropped` says why, and so do the errors of calls on the connection of an
/// [`McpServer`](super::McpServer), which has such a transport.
///
/// For a server over stdio:
///
/// ```no_run
/// use rmcp::{ServiceExt as _, transport::async_rw::AsyncRwTransport};
/// use tower_toolcall_mcp::{McpBounded, McpLines};
/// # use tower_toolcall::BoxError;
///
/// # async fn serve(gateway: impl rmcp::ServerHandler) -> Result<(), BoxError> {
/// let stdin = McpLines::new(tokio::io::stdin());
/// let stdio = AsyncRwTransport::new(stdin, tokio::io::stdout());
/// gateway.serve(McpBounded::new(stdio)).await?.waiting().await?;
/// # Ok(()) }
/// ```
///
/// It bounds the number of messages alone. [`McpLines`](super::McpLines) and `McpHttpClient`
/// (feature `http`) bound their bytes and values.
pub struct McpBounded<T> {
    transport: T,
    max_requests: usize,
    /// The requests without an answer.
    open: HashSet<RequestId>,
    /// Each answer that is being written has a clone.
    writing: Arc<()>,
    given_up: GivenUp,
}

impl<T> McpBounded<T> {
    /// Bounds the requests that come by `transport`.
    pub fn new(transport: T) -> Self {
        Self {
            transport,
            max_requests: MAX_REQUESTS,
            open: HashSet::new(),
            writing: Arc::default(),
            given_up: GivenUp::default(),
        }
    }

    /// Sets how many requests of the peer may wait for their answers. Default: 1,000.
    #[must_use]
    pub fn with_max_requests(mut self, max: usize) -> Self {
        self.max_requests = max;
        self
    }

    pub(super) fn given_up(&self) -> GivenUp {
        self.given_up.clone()
    }

    /// Takes note of a request. Returns `false` if the connection is given up for it.
    fn opened(&mut self, id: &RequestId) -> bool {
        let max = self.max_requests;
        let has = if matches!(id, RequestId::String(id) if id.len() > MAX_ID) {
            format!("a request with an id of more than {MAX_ID} bytes")
        } else if !self.open.insert(id.clone()) {
            "two requests without an answer with the same id".to_owned()
        } else if self.open.len() + Arc::strong_count(&self.writing) - 1 > max {
            format!("more than {max} requests without an answer")
        } else {
            return true;
        };
        let why = format!("the connection is given up: its peer has {has}");
        events::message_dropped(&why);
        let _ = self.given_up.0.set(why);
        self.given_up.1.cancel();
        false
    }

    /// Takes note that a request needs no answer any more.
    pub(super) fn closed(&mut self, id: &RequestId) {
        self.open.remove(id);
    }
}

impl<R: ServiceRole, T: Transport<R>> Transport<R> for McpBounded<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        message: TxJsonRpcMessage<R>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        let writing = answered.map(|id| {
            self.closed(id);
            Arc::clone(&self.writing)
        });
        let (sent, given_up) = (self.transport.send(message), self.given_up.1.clone());
        async move {
            let _writing = writing;
            // What waits to be written to the peer would keep rmcp from closing the transport.
            let sent = given_up.run_until_cancelled_owned(sent).await;
            sent.unwrap_or(Ok(()))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<R>> {
        if self.given_up.why().is_some() {
            return None;
        }
        let message = self.transport.receive().await?;
        match &message {
            JsonRpcMessage::Request(request) if !self.opened(&request.id) => return None,
            JsonRpcMessage::Notification(it) if !self.open.is_empty() => {
                let cancelled = it.notification.clone().try_into();
                if let Ok(CancelledNotification { params, .. }) = cancelled
                    && let Some(id) = &params.request_id
                {
                    self.closed(id);
                }
            }
            _ => {}
        }
        Some(message)
    }

    fn close(&mut self) -> impl Future<Output = Result<(), T::Error>> + Send {
        self.transport.close()
    }
}

impl<T> fmt::Debug for McpBounded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpBounded")
            .field("max_requests", &self.max_requests)
            .field("requests", &self.open.len())
            .finish_non_exhaustive()
    }
}
