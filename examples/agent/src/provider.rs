//! A real provider, or a server that speaks as one, over HTTP.

use std::{env, fmt, time::Duration};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Request, Response,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tower_toolcall_turn::Format;

use crate::show;

/// A model may think for minutes.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The most bytes of a response.
const MAX_BYTES: usize = 16 << 20;

/// The variable with a provider's key, its address, and a model.
fn defaults(format: Format) -> (&'static str, String, &'static str) {
    match format {
        Format::OpenAiChat | Format::OpenAiResponses => (
            "OPENAI_API_KEY",
            "https://api.openai.com".into(),
            "gpt-5.6-luna",
        ),
        Format::Anthropic => (
            "ANTHROPIC_API_KEY",
            "https://api.anthropic.com".into(),
            "claude-sonnet-5",
        ),
        Format::Gemini => {
            let url = "https://generativelanguage.googleapis.com".into();
            ("GEMINI_API_KEY", url, "gemini-3.8-flash")
        }
        _ => {
            let region = variable("AWS_REGION").unwrap_or_else(|| "us-east-1".into());
            let url = format!("https://bedrock-runtime.{region}.amazonaws.com");
            ("AWS_BEARER_TOKEN_BEDROCK", url, "anthropic.claude-sonnet-5")
        }
    }
}

/// A blank variable is none.
fn variable(name: &str) -> Option<String> {
    let value = env::var(name).ok()?;
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

/// The format of the first provider that there is a key for.
pub(crate) fn with_key() -> Option<Format> {
    let mut formats = [
        Format::OpenAiChat,
        Format::Anthropic,
        Format::Gemini,
        Format::Bedrock,
    ]
    .into_iter();
    formats.find(|format| variable(defaults(*format).0).is_some())
}

pub(crate) struct Provider {
    format: Format,
    url: String,
    model: String,
    key: Option<String>,
    client: Http,
}

enum Http {
    /// Of a server nearby: needs no root certificates.
    Plain(Client<HttpConnector, Full<Bytes>>),
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

impl Http {
    fn new(url: &str) -> anyhow::Result<Self> {
        let builder = Client::builder(TokioExecutor::new());
        if url.starts_with("http://") {
            return Ok(Self::Plain(builder.build(HttpConnector::new())));
        }
        let connector = HttpsConnectorBuilder::new().with_native_roots();
        let connector = connector.context("the machine has no root certificates")?;
        let connector = connector.https_only().enable_http1().build();
        Ok(Self::Tls(builder.build(connector)))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        Ok(match self {
            Self::Plain(client) => client.request(request).await?,
            Self::Tls(client) => client.request(request).await?,
        })
    }
}

impl Provider {
    /// The provider of this format, if the environment has its key, or names a server that needs
    /// none.
    pub(crate) fn from_env(format: Format) -> anyhow::Result<Option<Self>> {
        let (key, url, model) = defaults(format);
        let (key, own_url) = (variable(key), variable("AGENT_URL"));
        if key.is_none() && own_url.is_none() {
            return Ok(None);
        }
        let base = own_url.unwrap_or(url);
        let model = variable("AGENT_MODEL").unwrap_or_else(|| model.to_owned());
        let path = match format {
            Format::OpenAiChat => "/v1/chat/completions".to_owned(),
            Format::OpenAiResponses => "/v1/responses".to_owned(),
            Format::Anthropic => "/v1/messages".to_owned(),
            Format::Gemini => format!("/v1beta/models/{model}:generateContent"),
            _ => format!("/model/{model}/converse"),
        };
        Ok(Some(Self {
            format,
            url: format!("{}{path}", base.trim_end_matches('/')),
            model,
            key,
            client: Http::new(&base)?,
        }))
    }

    /// Sends a request, and returns the response of the model.
    ///
    /// # Errors
    ///
    /// What the provider says if it refuses the request.
    pub(crate) async fn ask(&self, mut request: Value) -> anyhow::Result<Value> {
        match self.format {
            // The model is in the path.
            Format::Gemini | Format::Bedrock => {}
            _ => request["model"] = self.model.as_str().into(),
        }
        if self.format == Format::Anthropic {
            request["max_tokens"] = json!(4096);
        }
        let body = Full::new(Bytes::from(request.to_string()));
        let mut request = Request::post(&self.url).header(CONTENT_TYPE, "application/json");
        if self.format == Format::Anthropic {
            request = request.header("anthropic-version", "2023-06-01");
        }
        if let Some((name, value)) = self.authorization()? {
            request = request.header(name, value);
        }
        let request = request.body(body).context("AGENT_URL or AGENT_MODEL")?;
        let exchange = async {
            let response = self.client.send(request).await;
            let response = response.with_context(|| format!("{self} cannot be reached"))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_BYTES).collect();
            let body = body.await.map_err(anyhow::Error::from_boxed);
            let body = body.with_context(|| format!("the response of {self} breaks off"))?;
            anyhow::Ok((status, body.to_bytes()))
        };
        let exchange = timeout(TIMEOUT, exchange).await;
        let (status, body) = exchange.context("no response in 5 minutes")??;
        let json = serde_json::from_slice::<Value>(&body).ok();
        // Some answer 200 with an error in it.
        match (json, status.is_success()) {
            (Some(json), true) if json["error"].is_null() => Ok(json),
            (json, _) => {
                let text = String::from_utf8_lossy(&body);
                let reason = json.as_ref().and_then(reason).unwrap_or(&text);
                bail!("{self} answers {status}: {}", self.shown(reason))
            }
        }
    }

    fn authorization(&self) -> anyhow::Result<Option<(HeaderName, HeaderValue)>> {
        let Some(key) = &self.key else {
            return Ok(None);
        };
        let (name, value) = match self.format {
            Format::Anthropic => (HeaderName::from_static("x-api-key"), key.clone()),
            Format::Gemini => (HeaderName::from_static("x-goog-api-key"), key.clone()),
            _ => (AUTHORIZATION, format!("Bearer {key}")),
        };
        let mut value = HeaderValue::try_from(value).context("the key is not one")?;
        value.set_sensitive(true);
        Ok(Some((name, value)))
    }

    /// As much of a text as a person reads, without the key, which some servers repeat.
    fn shown(&self, text: &str) -> String {
        let text = match &self.key {
            Some(key) => text.replace(key, "[REDACTED]"),
            None => text.to_owned(),
        };
        show::plain(&text).chars().take(500).collect()
    }
}

/// Where it is, and which model.
impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.url.split('/').nth(2).unwrap_or_default();
        // Credentials in an address stay there.
        let host = host.rsplit('@').next().unwrap_or_default();
        write!(f, "{} at {host}", self.model)
    }
}

/// The provider's own words about what is wrong.
fn reason(json: &Value) -> Option<&str> {
    let places = ["/error/message", "/message", "/error"];
    places.iter().find_map(|at| json.pointer(at)?.as_str())
}
