use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// The URL of a server. It may have a password, so `Debug` shows, and a file that is written has,
/// neither a user nor what stands behind a question mark.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// Returns the whole URL.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ServerUrl {
    fn from(url: &str) -> Self {
        Self(url.to_owned())
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", ""));
        // A password may have any of these characters, unescaped by mistake.
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        let host = host.split(['?', '#']).next().unwrap_or_default();
        match host.starts_with(|c: char| c.is_alphanumeric() || "/[".contains(c)) {
            true => write!(f, "{scheme}://{host}"),
            false => f.write_str("..."),
        }
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for ServerUrl {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
