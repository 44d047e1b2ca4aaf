use super::{SanitizeSettings, Settings, names::in_section};
use crate::{config::ConfigError, redact::Rules};

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
