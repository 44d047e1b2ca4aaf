//! A client for rmcp's streamable HTTP transport.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use rmcp::{
    model::ClientJsonRpcMessage,
    transport::{
        common::client_side_sse::{BoxedSseResponse, ExponentialBackoff},
        streamable_http_client::{
            StreamableHttpClient, StreamableHttpClientTransport,
            StreamableHttpClientTransportConfig, StreamableHttpResponseLimits as Limits,
        },
    },
};

use tower_toolcall::redact::{Rules, is_sensitive_key};

use super::{
    http_post::{Answer, Failed, Headers, post, tidied},
    lines::MAX_VALUES,
};

/// More redirects than that are answered with the last of them.
const MAX_REDIRECTS: usize = 10;

/// Calls that run together. A limit of calls is for a layer: rmcp's own queue eats their time.
const MAX_REQUESTS: usize = 1024;

/// How often a broken stream of answers is taken up again: for a second and a half in all.
const MAX_RESUMES: usize = 4;

/// An HTTP client for rmcp's streamable HTTP transport.
///
/// Five things differ from rmcp's own client:
///
/// - **A message of many small values**, which takes 100 times its bytes once it is parsed. A
///   message with more than 200,000 values or 16 MiB becomes what [`McpLines`] makes of it: an
///   answer is an error of its call, and a notification is dropped.
/// - **An answer without the request's id.** Many servers answer a session that they do not know
///   with `id: null`. rmcp drops such an answer, and the call waits forever. Here it is the answer
///   to the request that was posted. A request that is accepted (202) without an answer fails.
/// - **A status of 404.** rmcp begins a session anew and sends the request again, below all layers.
///   Here the call fails, not started, and the next one connects.
/// - **A limit.** rmcp keeps `Retry-After` of a 429 or a 5xx only. Here a refusal has the meaning
///   of [`ToolError::from_http`](tower_toolcall::ToolError::from_http): by its status, its headers
///   and its body.
/// - **A secret that comes back.** The bearer token and other secret headers of a request are taken
///   out of all that the server answers.
///
/// [`McpServer::http`](crate::McpServer::http) has such a client. For OAuth, give it to rmcp's
/// `AuthClient`. For a transport of your own:
///
/// ```no_run
/// use rmcp::transport::{
///     StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
/// };
/// use tower_toolcall_mcp::McpHttpClient;
///
/// let config = StreamableHttpClientTransportConfig::with_uri("http://localhost:8000/mcp");
/// let transport = StreamableHttpClientTransport::with_client(McpHttpClient::default(), config);
/// # let _ = transport;
/// ```
///
/// [`McpLines`]: crate::McpLines
#[derive(Clone)]
pub struct McpHttpClient {
    pub(super) client: reqwest::Client,
    pub(super) max_values: usize,
}

impl McpHttpClient {
    /// Returns a client that sends through `client`.
    pub fn new(client: reqwest::Client) -> Self {
        crate::register();
        Self {
            client,
            max_values: MAX_VALUES,
        }
    }

    /// Sets how many values a message of a server may have. Default: 200,000, which take up to 100
    /// MB.
    #[must_use]
    pub fn with_max_values(mut self, max: usize) -> Self {
        self.max_values = max;
        self
    }
}

/// Without the client's default headers, which may have a token.
impl fmt::Debug for McpHttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpHttpClient").finish_non_exhaustive()
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
        Self::new(client.build().unwrap_or_default())
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

/// Returns rules that hide the secrets of a request. A server may repeat them, and neither callers
/// nor models know them.
pub(super) fn secrets(auth: Option<&str>, headers: &Headers) -> Rules {
    let is_secret = |name: &HeaderName, value: &HeaderValue| {
        let name = name.as_str();
        value.is_sensitive() || is_sensitive_key(name) && !name.starts_with("mcp-")
    };
    let all = headers
        .iter()
        .filter(|(name, value)| is_secret(name, value));
    all.fold(Rules::new().with_secrets(auth), |rules, (name, value)| {
        let text = value.to_str().unwrap_or_default();
        rules.with_secrets_of_header(name.as_str(), text, value.is_sensitive())
    })
}

impl StreamableHttpClient for McpHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Answer {
        let limits = Limits::default();
        self.post_message_with_response_limits(uri, message, session, auth, headers, limits)
            .await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
        limits: Limits,
    ) -> Answer {
        post(self, &uri, message, session, auth, headers, limits).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<(), Failed> {
        self.client
            .delete_session(uri, session, auth, headers)
            .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<BoxedSseResponse, Failed> {
        let max = Limits::default().max_sse_event_size;
        self.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, max)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
        max: usize,
    ) -> Result<BoxedSseResponse, Failed> {
        let (from, secrets) = (&self.client, secrets(auth.as_deref(), &headers));
        from.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, max)
            .await
            .map(|events| tidied(events, None, secrets, self.max_values))
    }
}
