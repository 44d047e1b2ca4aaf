use std::{borrow::Cow, future::Future};

use rmcp::{
    RoleClient,
    model::{ClientRequest, JsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};

/// A transport on which a late answer to `server/discover` does no harm.
///
/// rmcp waits 10 s for it and then sends `initialize` on the same connection, where the next answer
/// must be that of `initialize`. Without this type a slow start, such as a download of the server,
/// loses the connection.
pub(super) struct Probed<T> {
    transport: T,
    /// The requests `server/discover` that have no answer yet.
    probes: Vec<RequestId>,
    is_legacy: bool,
}

impl<T> Probed<T> {
    pub(super) fn new(transport: T) -> Self {
        Self {
            transport,
            probes: Vec::new(),
            is_legacy: false,
        }
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
        probe.map(|it| self.probes.swap_remove(it)).is_some() && self.is_legacy
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
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = self.transport.receive().await?;
            if !self.is_late(&message) {
                return Some(message);
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), T::Error>> + Send {
        self.transport.close()
    }
}
