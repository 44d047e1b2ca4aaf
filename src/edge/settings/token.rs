//! `[token]`: what can be checked without the crate that reads it, and the secret that no file has.

use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};

use super::{Settings, TokenSettings, tools};
use crate::{
    call::Secret,
    config::{ConfigError, refuse_if},
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

impl TokenSettings {
    /// Returns the secret of the variable `TOOLCALL_TOKEN_CLIENT_SECRET`, which takes precedence
    /// over [the file](Self::client_secret_file); `None` if it is not set.
    pub fn client_secret(&self) -> Option<&Secret> {
        self.client_secret.secret.as_ref()
    }
}

impl Settings {
    /// Checks that `[token]` and the audiences of tools can work together. The crate that makes the
    /// layer, `tower-toolcall-http`, checks the rest. The file of the secret is not read.
    ///
    /// # Errors
    ///
    /// `token.client_secret`: a file has it. `tools.x.audience`, `tools.x.scopes`: one without the
    /// other, or without `token.endpoint`.
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
        Ok(())
    }
}

fn without_newline(text: &str) -> &str {
    let line = text.strip_suffix('\n').unwrap_or(text);
    line.strip_suffix('\r').unwrap_or(line)
}
