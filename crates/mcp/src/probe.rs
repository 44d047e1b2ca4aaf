use std::{borrow::Cow, future::Future};

use rmcp::{
    RoleClient,
    model::{ClientRequest, JsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::oneshot;

/// A transport on which a late answer to `server/discover` does no harm.
///
/// rmcp waits 10 s for it and then sends `initialize` on the same connection, where the next answer
/// must be that of `initialize`. Without this type a slow start, such as a download of the server,
/// loses the connection.
///
/// A server without a handshake answers `server/discover` late, and then refuses `initialize`. The
/// transport is as good as before, but rmcp drops it with this: so it is given back.
pub(super) struct Probed<T> {
    /// Until this is dropped: the transport, and where it is given back.
    transport: Option<(T, oneshot::Sender<T>)>,
    /// The requests `server/discover` that have no answer yet.
    probes: Vec<RequestId>,
    is_legacy: bool,
    /// One of them has a late result.
    is_discovered: bool,
}

impl<T> Probed<T> {
    /// Returns the receiver as well: while it waits, it gets the transport if the handshake fails
    /// with a server that has answered `server/discover`.
    pub(super) fn new(transport: T) -> (Self, oneshot::Receiver<T>) {
        let (give_back, given_back) = oneshot::channel();
        let probed = Self {
            transport: Some((transport, give_back)),
            probes: Vec::new(),
            is_legacy: false,
            is_discovered: false,
        };
        (probed, given_back)
    }

    fn transport(&mut self) -> &mut T {
        &mut self.transport.as_mut().expect("it is not dropped").0
    }

    fn note(&mut self, message: &TxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Request(request) = message else {
            return;
        };
        match request.request {
            ClientRequest::DiscoverRequest(_) => self.probes.push(request.id.clone()),
            ClientRequest::InitializeRequest(_) => self.is_legacy = true,
            _ => {}
        }
    }

    fn is_late(&mut self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        // Servers may answer with the number as a string.
        let answers = |probe: &RequestId| id.is_some_and(|id| id.to_string() == probe.to_string());
        let probe = self.probes.iter().position(answers);
        let is_late = probe.map(|it| self.probes.swap_remove(it)).is_some() && self.is_legacy;
        self.is_discovered |= is_late && matches!(message, JsonRpcMessage::Response(_));
        is_late
    }
}

impl<T> Drop for Probed<T> {
    fn drop(&mut self) {
        if self.is_discovered
            && let Some((transport, give_back)) = self.transport.take()
        {
            drop(give_back.send(transport));
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Probed<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.note(&message);
        self.transport().send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = self.transport().receive().await?;
            if !self.is_late(&message) {
                return Some(message);
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), T::Error>> + Send {
        self.transport().close()
    }
}
