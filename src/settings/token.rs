//! `[token]`: its checks, and the secret that no file has.

use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};

use super::{Settings, TokenSettings, names::in_section, tools};
use crate::{
    call::Secret,
    config::{ConfigError, refuse_if},
    token::{Target, TokenLayer, endpoint_uri},
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
    /// Reads the text of the variable; a blank text changes nothing.
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

impl TokenSettings {
    /// Returns the secret of the variable `TOOLCALL_TOKEN_CLIENT_SECRET`, which takes precedence
    /// over [the file](Self::client_secret_file); `None` if it is not set.
    pub fn client_secret(&self) -> Option<&Secret> {
        self.client_secret.secret.as_ref()
    }
}

impl Settings {
    /// Checks that `[token]` can work, and the audiences of tools with it. The file of the secret
    /// is not read.
    ///
    /// # Errors
    ///
    /// `token.client_secret`: a file has it. `tools.x.audience`, `tools.x.scopes`: one without the
    /// other, or without `token.endpoint`. `token.endpoint`: as [`endpoint_uri`].
    /// `token.client_id`, `token.client_secret_file`: missing, or useless. Those of
    /// [`token_layer`](Self::token_layer).
    pub fn check_token(&self) -> Result<(), ConfigError> {
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
        self.check_endpoint().map_err(in_section("token"))
    }

    /// Checks how this program signs in to the provider, and the numbers of the layer.
    fn check_endpoint(&self) -> Result<(), ConfigError> {
        let token = &self.token;
        let Some(url) = &token.endpoint else {
            return Ok(());
        };
        endpoint_uri(url)?;
        let id = token.client_id.as_deref();
        refuse_if(id.is_none(), "client_id", "is not set")?;
        refuse_if(id == Some(""), "client_id", "is empty")?;
        let has_file = token.client_secret_file.is_some();
        match token.auth {
            TokenAuth::Public => refuse_if(
                has_file,
                "client_secret_file",
                "`token.auth` is `public`, so it means nothing",
            ),
            _ => refuse_if(
                !has_file && token.client_secret().is_none(),
                "client_secret_file",
                format!("is not set, and neither is {SECRET}"),
            ),
        }?;
        self.token_layer(()).map(drop)
    }

    /// Returns a layer with the numbers and the targets of `[token]` and `[tools]`, over a service
    /// that exchanges tokens. `tower-toolcall-http` makes that service.
    ///
    /// # Errors
    ///
    /// `max_keys`, `max_lifetime`: a number that cannot be.
    pub fn token_layer<X>(&self, exchange: X) -> Result<TokenLayer<X>, ConfigError> {
        let token = &self.token;
        let layer = TokenLayer::new(exchange)
            .with_leeway(token.leeway)
            .with_default_lifetime(token.default_lifetime)
            .with_max_lifetime(token.max_lifetime)?
            .with_max_keys(token.max_keys)?;
        let tools = self.tools.iter().filter_map(|(name, tool)| {
            let target = Target::audience(tool.audience.as_ref()?);
            Some((
                name,
                tool.scopes.iter().fold(target, |t, s| t.with_scope(s)),
            ))
        });
        Ok(tools.fold(layer, |layer, (name, target)| {
            layer.with_tool(name.as_str(), target)
        }))
    }
}

fn without_newline(text: &str) -> &str {
    let line = text.strip_suffix('\n').unwrap_or(text);
    line.strip_suffix('\r').unwrap_or(line)
}
