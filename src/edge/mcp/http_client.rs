//! A client for rmcp's streamable HTTP transport.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::redirect::Policy;
use rmcp::{
    model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::{
        common::client_side_sse::{BoxedSseResponse, ExponentialBackoff},
        streamable_http_client::{
            HttpStatusError, StreamableHttpClient, StreamableHttpClientTransport,
            StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
            StreamableHttpResponseLimits,
        },
    },
};

/// More redirects than that are answered with the last of them.
const MAX_REDIRECTS: usize = 10;

/// Calls that run together. A limit of calls is for a layer: rmcp's own queue eats their time.
const MAX_REQUESTS: usize = 1024;

/// How often a broken stream of answers is taken up again: for a second and a half in all.
const MAX_RESUMES: usize = 4;

/// An HTTP client for rmcp's streamable HTTP transport.
///
/// rmcp's own client leaves two things to its transport:
///
/// - **An answer without the request's id.** Many servers answer a session that they do not know
///   with `id: null`. rmcp drops such an answer, and the call waits forever. Here it is the answer
///   to the request that was posted.
/// - **A status of 404.** rmcp begins a session anew and sends the request again, below all layers.
///   Here the call fails, not started, and the next one connects.
///
/// [`McpServer::http`](crate::mcp::McpServer::http) has such a client. For a transport of your own:
///
/// ```no_run
/// use rmcp::transport::{
///     StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
/// };
/// use tower_toolcall::mcp::McpHttpClient;
///
/// let config = StreamableHttpClientTransportConfig::with_uri("http://localhost:8000/mcp");
/// let transport = StreamableHttpClientTransport::with_client(McpHttpClient::default(), config);
/// # let _ = transport;
/// ```
#[derive(Clone, Debug)]
pub struct McpHttpClient<C = reqwest::Client>(C);

impl<C> McpHttpClient<C> {
    /// Returns a client that sends through `client`: reqwest's, or rmcp's `AuthClient` around one.
    pub fn new(client: C) -> Self {
        Self(client)
    }
}

/// A client of reqwest's with rmcp's settings: no idle connections, and redirects with the status
/// 307 or 308 within the same origin.
impl Default for McpHttpClient {
    fn default() -> Self {
        let redirects = Policy::custom(|hop| {
            let first = hop.previous().first().map(|url| url.origin());
            let is_kept = matches!(hop.status().as_u16(), 307 | 308)
                && first == Some(hop.url().origin())
                && hop.previous().len() <= MAX_REDIRECTS;
            if is_kept { hop.follow() } else { hop.stop() }
        });
        let client = reqwest::Client::builder()
            .pool_max_idle_per_host(0)
            .redirect(redirects);
        Self(client.build().unwrap_or_default())
    }
}

/// A transport with settings for a server that may be restarted.
pub(super) fn transport(
    client: McpHttpClient,
    config: &StreamableHttpClientTransportConfig,
) -> StreamableHttpClientTransport<McpHttpClient> {
    let mut resumes = ExponentialBackoff::default();
    resumes.max_times = Some(MAX_RESUMES);
    resumes.base_duration = Duration::from_millis(100);
    let mut config = config.clone().max_concurrent_requests(MAX_REQUESTS);
    config.retry_config = Arc::new(resumes);
    StreamableHttpClientTransport::with_client(client, config)
}

type Headers = HashMap<HeaderName, HeaderValue>;
type Answer<E> = Result<StreamableHttpPostResponse, StreamableHttpError<E>>;

/// The answer to the request of this id: HTTP has no other one on the same exchange.
fn answer<E>(id: Option<RequestId>, answer: Answer<E>) -> Answer<E>
where
    E: std::error::Error + Send + Sync + 'static,
{
    use StreamableHttpPostResponse::Json;
    match (answer, id) {
        (Ok(Json(ServerJsonRpcMessage::Error(mut error), session)), Some(id)) => {
            error.id = Some(id);
            Ok(Json(ServerJsonRpcMessage::Error(error), session))
        }
        (Ok(Json(ServerJsonRpcMessage::Response(mut response), session)), Some(id)) => {
            response.id = id;
            Ok(Json(ServerJsonRpcMessage::Response(response), session))
        }
        (Err(StreamableHttpError::SessionExpired), _) => {
            Err(HttpStatusError::new(StatusCode::NOT_FOUND.as_u16(), None).into())
        }
        (answer, _) => answer,
    }
}

fn id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    }
}

impl<C: StreamableHttpClient> StreamableHttpClient for McpHttpClient<C> {
    type Error = C::Error;

    fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> impl Future<Output = Answer<C::Error>> + Send + '_ {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, auth, headers, limits)
    }

    fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> impl Future<Output = Answer<C::Error>> + Send + '_ {
        let (id, to) = (id(&message), &self.0);
        let sent =
            to.post_message_with_response_limits(uri, message, session, auth, headers, limits);
        async move { answer(id, sent.await) }
    }

    fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: Headers,
    ) -> impl Future<Output = Result<(), StreamableHttpError<C::Error>>> + Send + '_ {
        self.0.delete_session(uri, session, auth, headers)
    }

    fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> impl Future<Output = Result<BoxedSseResponse, StreamableHttpError<C::Error>>> + Send + '_
    {
        self.0.get_stream(uri, session, last_event, auth, headers)
    }

    fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
        max: usize,
    ) -> impl Future<Output = Result<BoxedSseResponse, StreamableHttpError<C::Error>>> + Send + '_
    {
        let from = &self.0;
        from.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, max)
    }
}
