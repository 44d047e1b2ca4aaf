//! `[token]` of settings.

use std::{fs, path::Path};

use tower_layer::Layer;
use tower_toolcall::{
    ConfigError, Key,
    circuit_breaker::CircuitBreaker,
    settings::{Settings, TokenAuth},
    timeout::{Timeout, TimeoutLayer},
    token::{Secret, TokenLayer},
};
use zeroize::Zeroizing;

use super::{ClientAuth, TokenEndpoint};

/// The service that the layer of [`layer_from_settings`] asks for tokens.
pub type TokenExchange<C, B> = CircuitBreaker<Timeout<TokenEndpoint<C, B>>>;

/// Returns the layer that gives calls the tokens of their tools, over this HTTP client, which must
/// not follow redirects: for each `[tools.x]` with an `audience`. `None` where `token.endpoint` is
/// not set. The provider has the time that `token.timeout` says, and a circuit breaker of its own
/// with the numbers of [`http_proxy`](Settings::http_proxy): opened by 5 failures in a row for
/// 30 s, closed by 3 successes. To read that, or to have it in metrics:
/// [`TokenLayer::map_exchange`].
///
/// Add it at [`Place::Attempt`](tower_toolcall::settings::Place::Attempt): below retries, which
/// repeat an exchange that failed, and above the tool's own breaker and timeout, which know nothing
/// of it:
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use tower::{service_fn, util::option_layer};
/// use tower_toolcall::{BoxError, settings::{Place, Settings}};
/// use tower_toolcall_http::token::layer_from_settings;
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
/// # let client = service_fn(|_: http::Request<Bytes>| async {
/// #     Ok::<_, std::io::Error>(http::Response::new(Full::<Bytes>::default()))
/// # });
/// let tokens = layer_from_settings::<_, Bytes>(&settings, client)?;
/// let stack = settings.stack().with_layer(Place::Attempt, option_layer(tokens)).build()?;
/// # let tool = service_fn(|_: tower_toolcall::ToolCall| async { Ok::<_, BoxError>("sent") });
/// # let _ = tower::Layer::layer(&stack, tool); Ok(()) }
/// ```
///
/// # Errors
///
/// Those of [`check`](Settings::check_token) that are about `token` or the audiences of tools; and
/// `token.client_secret_file`: it cannot be read, or is empty.
pub fn layer_from_settings<C, B>(
    settings: &Settings,
    client: C,
) -> Result<Option<TokenLayer<TokenExchange<C, B>>>, ConfigError> {
    settings.check_token()?;
    let in_section = |error| settings.name_error("token", error);
    let token = &settings.token;
    let Some(url) = &token.endpoint else {
        return Ok(None);
    };
    let id = token.client_id.as_deref().unwrap_or_default();
    let auth = match token.auth {
        TokenAuth::Basic => ClientAuth::basic(id, client_secret(settings)?),
        TokenAuth::Post => ClientAuth::post(id, client_secret(settings)?),
        TokenAuth::Public => ClientAuth::public(id),
        other => {
            let reason = format!("{other:?} is not known to this version of the crate");
            return Err(in_section(ConfigError::new("auth", reason)));
        }
    };
    let endpoint = TokenEndpoint::new(url, auth, client).map_err(in_section)?;
    let timeout = TimeoutLayer::new(token.timeout).layer(endpoint);
    let breaker = Settings::http_proxy().circuit_breaker_builder()?;
    let layer = settings.token_layer(breaker.with_keys(Key::Tool).build()?.layer(timeout));
    layer.map(Some).map_err(in_section)
}

fn client_secret(settings: &Settings) -> Result<Secret, ConfigError> {
    let token = &settings.token;
    if let Some(secret) = token.client_secret() {
        return Ok(secret.clone());
    }
    // The check has found one of both.
    let file = token.client_secret_file.as_deref().unwrap_or(Path::new(""));
    secret_of(file).map_err(|error| settings.name_error("token", error))
}

/// The secret of a file. The error has no path: it may be the secret itself, set by mistake.
fn secret_of(file: &Path) -> Result<Secret, ConfigError> {
    let refuse = |reason| ConfigError::new("client_secret_file", reason);
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
