use serde::{Deserialize, Serialize};

use super::{Settings, names::in_section};
use crate::{
    config::ConfigError,
    redact::{MAX_DEPTH, MAX_NODES, MAX_STRING, Rules},
};

/// What is a secret, and how much of the rest is shown: `[sanitize]`. See [`Rules`].
///
/// The built-in words hold besides. A harmless word beats a sensitive one, a built-in one too: that is what the
/// list is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SanitizeSettings {
    /// Longer strings are cut, in characters. Default 200.
    pub max_string: usize,
    /// Deeper levels are not shown. Default 16.
    pub max_depth: usize,
    /// After so many values the rest is not shown. Default 1,000.
    pub max_nodes: usize,
    /// Keys are sensitive that contain one of these, beside the built-in ones. Default: none.
    pub sensitive_keys: Vec<String>,
    /// Words that are taken out of a key before it is judged, beside the built-in ones: with `idempotency_key` the key
    /// of that name is shown, and `api_key` is not. Default: none.
    pub harmless_keys: Vec<String>,
}

impl Default for SanitizeSettings {
    fn default() -> Self {
        Self {
            max_string: MAX_STRING,
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            sensitive_keys: Vec::new(),
            harmless_keys: Vec::new(),
        }
    }
}

impl Settings {
    /// The rules of redaction.
    ///
    /// # Errors
    ///
    /// If a limit is beyond its bounds, or a word is none.
    pub fn redaction_rules(&self) -> Result<Rules, ConfigError> {
        let sanitize = &self.sanitize;
        // The built-in rules cost a call nothing.
        if *sanitize == SanitizeSettings::default() {
            return Ok(Rules::new());
        }
        let named = |key| move |e: ConfigError| e.with_field(key);
        let mut rules = Rules::new()
            .with_max_string(sanitize.max_string)
            .map_err(in_section("sanitize"))?
            .with_max_depth(sanitize.max_depth)
            .map_err(in_section("sanitize"))?
            .with_max_nodes(sanitize.max_nodes)
            .map_err(in_section("sanitize"))?;
        for word in &sanitize.sensitive_keys {
            let added = rules.with_sensitive_key(word);
            rules = added.map_err(named("sanitize.sensitive_keys"))?;
        }
        for word in &sanitize.harmless_keys {
            let added = rules.with_harmless_key(word);
            rules = added.map_err(named("sanitize.harmless_keys"))?;
        }
        Ok(rules)
    }
}
