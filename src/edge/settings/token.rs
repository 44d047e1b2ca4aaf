//! `[token]`: the layer that it makes, and the secret that no file has.

use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};

use super::{Settings, tools};
use crate::{
    call::Secret,
    config::{ConfigError, refuse_if},
};
#[cfg(feature = "token")]
use {
    super::names::in_section,
    crate::{
        circuit_breaker::{CircuitBreaker, CircuitBreakerBuilder},
        edge::token::{ClientAuth, Target, TokenEndpoint, TokenLayer, parsed_endpoint},
        key::Key,
        timeout::{Timeout, TimeoutLayer},
    },
    std::{fs, path::Path},
    tower_layer::Layer,
    zeroize::Zeroizing,
};

/// The variable that has the secret itself.
pub(super) const SECRET: &str = "TOOLCALL_TOKEN_CLIENT_SECRET";

/// How this program signs in to the identity provider, as far as a file can say it. See
/// `token::ClientAuth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TokenAuth {
    /// With a password in a header.
    #[default]
    Basic,
    /// With a password in the body.
    Post,
    /// By its id alone.
    Public,
}

/// The client's secret, which the environment has, and which a file must not have: what it says
/// there is not kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClientSecret {
    is_in_file: bool,
    secret: Option<Secret>,
}

impl ClientSecret {
    /// The text of the variable; one that is blank changes nothing.
    pub(super) fn read(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.secret = Some(without_newline(text).into());
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.is_in_file |= other.is_in_file;
        if other.secret.is_some() {
            self.secret = other.secret;
        }
    }
}

impl<'de> Deserialize<'de> for ClientSecret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(from)?;
        Ok(Self {
            is_in_file: true,
            secret: None,
        })
    }
}

impl Settings {
    /// Returns whether `[token]` and the audiences of tools can work together. The file of the
    /// secret is not read.
    pub(super) fn check_token(&self) -> Result<(), ConfigError> {
        refuse_if(
            self.token.client_secret.is_in_file,
            "token.client_secret",
            format!(
                "a secret does not stand among settings: name its file as `token.client_secret_file`, or set {SECRET}"
            ),
        )?;
        for (name, tool) in &self.tools {
            let refuse = |field, reason| Err(ConfigError::new(tools::key(name, field), reason));
            match tool.audience.as_deref() {
                Some("") => return refuse("audience", "is empty"),
                Some(_) if self.token.endpoint.is_none() => {
                    return refuse("audience", "`token.endpoint` is not set");
                }
                None if !tool.scopes.is_empty() => {
                    return refuse("scopes", "the tool has no audience");
                }
                _ => {}
            }
        }
        #[cfg(feature = "token")]
        self.make_token_layer::<(), ()>((), |_| Ok("".into()))?;
        Ok(())
    }
}

/// The service that a [`Settings::token_layer`] asks for tokens.
#[cfg(feature = "token")]
pub type TokenExchange<C, B> = CircuitBreaker<Timeout<TokenEndpoint<C, B>>>;

#[cfg(feature = "token")]
impl Settings {
    /// The layer that gives calls the tokens of their tools, over this HTTP client, which must not
    /// follow redirects: for each `[tools.x]` with an `audience`. `None` where `token.endpoint` is
    /// not set. The provider has the time that `token.timeout` says, and a circuit breaker of its
    /// own with the numbers of [`http_proxy`](CircuitBreakerBuilder::http_proxy): opened by 5
    /// failures in a row for 30 s, closed by 3 successes. To read that, or to have it in metrics:
    /// [`TokenLayer::map_exchange`].
    ///
    /// It stands at [`Place::Attempt`](super::Place::Attempt): below retries, which repeat an
    /// exchange that failed, and above the tool's own breaker and timeout, which know nothing of
    /// it:
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::Full;
    /// use tower::{service_fn, util::option_layer};
    /// use tower_toolcall::{BoxError, settings::{Place, Settings}};
    ///
    /// # fn main() -> Result<(), BoxError> {
    /// let file: Settings = toml::from_str(r#"
    ///     [token]
    ///     endpoint = "https://id.example.com/token"
    ///     client_id = "gateway"
    ///
    ///     [tools.order]
    ///     audience = "orders"
    ///     scopes = ["write"]
    /// "#)?;
    /// let settings = file.with_env_from([("TOOLCALL_TOKEN_CLIENT_SECRET", "s3cr3t")])?; // with_env()
    /// # let client = service_fn(|_: http::Request<Bytes>| async { Ok::<_, std::io::Error>(http::Response::new(Full::<Bytes>::default())) });
    /// let tokens = settings.token_layer::<_, Bytes>(client)?;
    /// let stack = settings.stack().with_layer(Place::Attempt, option_layer(tokens)).build()?;
    /// # let tool = service_fn(|_: tower_toolcall::ToolCall| async { Ok::<_, BoxError>("sent") });
    /// # let _ = tower::Layer::layer(&stack, tool); Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check) that are about `token` or the audiences of tools; and
    /// `token.client_secret_file`: it cannot be read, or is empty.
    pub fn token_layer<C, B>(
        &self,
        client: C,
    ) -> Result<Option<TokenLayer<TokenExchange<C, B>>>, ConfigError> {
        self.check_token()?;
        self.make_token_layer(client, secret_of)
    }

    fn make_token_layer<C, B>(
        &self,
        client: C,
        read: impl FnOnce(&Path) -> Result<Secret, ConfigError>,
    ) -> Result<Option<TokenLayer<TokenExchange<C, B>>>, ConfigError> {
        let token = &self.token;
        let Some(url) = &token.endpoint else {
            return Ok(None);
        };
        parsed_endpoint(url).map_err(in_section("token"))?;
        let id = token.client_id.as_deref();
        let id = id.ok_or_else(|| ConfigError::new("token.client_id", "is not set"))?;
        let auth = match token.auth {
            TokenAuth::Basic => ClientAuth::basic(id, self.client_secret(read)?),
            TokenAuth::Post => ClientAuth::post(id, self.client_secret(read)?),
            TokenAuth::Public => {
                let is_set = token.client_secret_file.is_some();
                let reason = "`token.auth` is `public`, so it means nothing";
                refuse_if(is_set, "token.client_secret_file", reason)?;
                ClientAuth::public(id)
            }
        };
        let endpoint = TokenEndpoint::new(url, auth, client).map_err(in_section("token"))?;
        let timeout = TimeoutLayer::new(token.timeout).layer(endpoint);
        let breaker = CircuitBreakerBuilder::http_proxy().with_keys(Key::Tool);
        let mut layer = TokenLayer::new(breaker.build()?.layer(timeout))
            .with_leeway(token.leeway)
            .with_default_lifetime(token.default_lifetime)
            .with_max_lifetime(token.max_lifetime)
            .and_then(|layer| layer.with_max_keys(token.max_keys))
            .map_err(in_section("token"))?;
        for (name, tool) in &self.tools {
            if let Some(audience) = &tool.audience {
                let scopes = tool.scopes.iter();
                let target = scopes.fold(Target::audience(audience), |t, s| t.with_scope(s));
                layer = layer.with_tool(name.as_str(), target);
            }
        }
        Ok(Some(layer))
    }

    fn client_secret(
        &self,
        read: impl FnOnce(&Path) -> Result<Secret, ConfigError>,
    ) -> Result<Secret, ConfigError> {
        let token = &self.token;
        if let Some(secret) = &token.client_secret.secret {
            return Ok(secret.clone());
        }
        let reason = || format!("is not set, and neither is {SECRET}");
        let missing = || ConfigError::new("token.client_secret_file", reason());
        read(token.client_secret_file.as_deref().ok_or_else(missing)?)
    }
}

/// The secret of a file. The error has no path: it may be the secret itself, set by mistake.
#[cfg(feature = "token")]
fn secret_of(file: &Path) -> Result<Secret, ConfigError> {
    let refuse = |reason| ConfigError::new("token.client_secret_file", reason);
    let text = fs::read_to_string(file);
    let text = text.map_err(|error| refuse(format!("cannot be read: {}", error.kind())))?;
    let text = Zeroizing::new(text);
    match without_newline(&text) {
        "" => Err(refuse("is empty".to_owned())),
        secret => Ok(secret.into()),
    }
}

fn without_newline(text: &str) -> &str {
    let line = text.strip_suffix('\n').unwrap_or(text);
    line.strip_suffix('\r').unwrap_or(line)
}
