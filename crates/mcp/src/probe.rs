use std::{borrow::Cow, future::Future};

use rmcp::{
    RoleClient,
    model::{
        ClientRequest, ErrorCode, ErrorData, JsonRpcError, JsonRpcMessage, ProtocolVersion,
        RequestId, ServerResult,
    },
    service::{
        ClientInitializeError::NoCompatibleProtocolVersion, RxJsonRpcMessage, TxJsonRpcMessage,
    },
    transport::Transport,
};
use tokio::sync::oneshot;
use tower_toolcall::{
    error::{AnyError, BoxError, ErrorKind, ToolError},
    event::shown_text,
};

use super::bounds::McpBounded;

/// How much of the list of a server's revisions an error shows, in characters.
const MAX_VERSIONS: usize = 200;

/// A transport on which a late answer to `server/discover` does no harm, and on which a server that
/// names only revisions with a handshake is connected to by `initialize`.
///
/// rmcp waits 10 s for it and then sends `initialize` on the same connection, where the next answer
/// must be that of `initialize`. Without this type a slow start, such as a download of the server,
/// loses the connection.
///
/// A server without a handshake answers `server/discover` late, and then refuses `initialize`. The
/// transport is as good as before, but rmcp drops it with this: so it is given back.
pub(super) struct Probed<T> {
    /// Until this is dropped: the transport, and where it is given back.
    transport: Option<(McpBounded<T>, oneshot::Sender<McpBounded<T>>)>,
    /// The requests `server/discover` that have no answer yet.
    probes: Vec<RequestId>,
    is_legacy: bool,
    /// One of them has a late result.
    is_discovered: bool,
    /// The server speaks a revision without a handshake, in which it sends no requests.
    is_modern: bool,
    /// The newest revision with a handshake that the server has named.
    version: Option<ProtocolVersion>,
}

impl<T> Probed<T> {
    /// Returns the receiver as well: while it waits, it gets the transport if the handshake fails
    /// with a server that has answered `server/discover`.
    pub(super) fn new(transport: McpBounded<T>) -> (Self, oneshot::Receiver<McpBounded<T>>) {
        let (give_back, given_back) = oneshot::channel();
        let probed = Self {
            transport: Some((transport, give_back)),
            probes: Vec::new(),
            is_legacy: false,
            is_discovered: false,
            is_modern: false,
            version: None,
        };
        (probed, given_back)
    }

    fn transport(&mut self) -> &mut McpBounded<T> {
        &mut self.transport.as_mut().expect("it is not dropped").0
    }

    fn note(&mut self, message: &mut TxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Request(request) = message else {
            return;
        };
        match &mut request.request {
            ClientRequest::DiscoverRequest(_) => self.probes.push(request.id.clone()),
            ClientRequest::InitializeRequest(initialize) => {
                self.is_legacy = true;
                if let Some(version) = self.version.take() {
                    initialize.params.protocol_version = version;
                }
            }
            _ => {}
        }
    }

    /// Reads an answer to `server/discover`. Returns `false` for a late answer.
    fn read(&mut self, message: &mut RxJsonRpcMessage<RoleClient>) -> bool {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        // Servers may answer with the number as a string.
        let answers = |probe: &RequestId| id.is_some_and(|id| id.to_string() == probe.to_string());
        let Some(probe) = self.probes.iter().position(answers) else {
            return true;
        };
        let id = self.probes.swap_remove(probe);
        if self.is_legacy {
            self.is_discovered |= matches!(message, JsonRpcMessage::Response(_));
            return false;
        }
        // rmcp goes on with `initialize` after this answer, as with a server that knows no
        // `server/discover`.
        let unknown = |id| {
            let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no handshake", None);
            RxJsonRpcMessage::<RoleClient>::error(error, Some(id))
        };
        let Some(supported) = supported(message) else {
            // Some servers answer a method that they do not know with an empty result.
            if matches!(message, JsonRpcMessage::Response(_)) {
                *message = unknown(id);
            }
            return true;
        };
        self.is_modern = supported.contains(&ProtocolVersion::LATEST);
        let known = ProtocolVersion::KNOWN_VERSIONS.iter().rev();
        let mut common = known.filter(|it| it.has_initialize() && supported.contains(it));
        if !self.is_modern
            && let Some(version) = common.next()
        {
            *message = unknown(id);
            self.version = Some(version.clone());
        }
        true
    }
}

/// Returns the revisions that an answer to `server/discover` names.
fn supported(message: &RxJsonRpcMessage<RoleClient>) -> Option<Vec<ProtocolVersion>> {
    match message {
        JsonRpcMessage::Response(response) => match &response.result {
            ServerResult::DiscoverResult(result) => Some(result.supported_versions.clone()),
            _ => None,
        },
        JsonRpcMessage::Error(JsonRpcError { error, .. })
            if error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION =>
        {
            serde_json::from_value(error.data.as_ref()?.get("supported")?.clone()).ok()
        }
        _ => None,
    }
}

/// Returns the error for a server that speaks other revisions alone.
pub(super) fn no_common_revision(server: Vec<ProtocolVersion>) -> BoxError {
    let list = |versions: &[ProtocolVersion]| {
        let versions: Vec<_> = versions.iter().map(ProtocolVersion::as_str).collect();
        versions.join(", ")
    };
    let client = ProtocolVersion::KNOWN_VERSIONS.to_vec();
    let message = format!(
        "the server speaks no revision of MCP that this client knows: it has {}; valid are {}",
        shown_text(&list(&server), MAX_VERSIONS),
        list(&client)
    );
    let source = NoCompatibleProtocolVersion {
        client_supported: client,
        server_supported: server,
    };
    let error = ToolError::new(ErrorKind::ConnectionFailed, message);
    error.with_source(AnyError::from(source)).into()
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
        mut message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.note(&mut message);
        self.transport().send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let mut message = self.transport().receive().await?;
            if let JsonRpcMessage::Request(request) = &message
                && self.is_modern
            {
                self.transport().closed(&request.id);
            } else if self.read(&mut message) {
                return Some(message);
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), T::Error>> + Send {
        self.transport().close()
    }
}
