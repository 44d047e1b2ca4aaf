//! Manifests as they are written.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use http::Method;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

use super::ToolManifest;
use tower_toolcall::{ConfigError, reader::Reader};

/// The methods of tools.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::HEAD,
    Method::OPTIONS,
];

impl<'de> Deserialize<'de> for ToolManifest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let file = File::deserialize(Reader::new(from))?;
        let passes_subject = false;
        Ok(Self {
            file,
            passes_subject,
        })
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) input_schema: Option<Value>,
    pub(super) source_path: Option<String>,
    pub(super) execution_profile: Profile,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    pub(super) mode: Option<Mode>,
    pub(super) method: Option<String>,
    pub(super) url_template: String,
    pub(super) headers_template: Option<Headers>,
    pub(super) body_template: Option<String>,
    pub(super) required_audience: Option<String>,
    pub(super) required_scopes: Option<Vec<String>>,
    pub(super) kept_headers: Option<Vec<String>>,
    pub(super) result_field_path: Option<String>,
    pub(super) error_field_path: Option<String>,
    pub(super) replay_safe: Option<bool>,
    pub(super) poll_config: Option<PollConfig>,
    pub(super) source_path: Option<String>,
}

/// Shows no template: one may have a key in it.
impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("mode", &self.mode)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) enum Mode {
    #[serde(
        rename = "sync_http",
        alias = "SYNC_HTTP",
        alias = "sync",
        alias = "SYNC"
    )]
    Sync,
    #[serde(rename = "async_poll", alias = "ASYNC_POLL")]
    Poll,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Headers {
    Text(String),
    Fields(Fields),
    Other(IgnoredAny),
}

/// The fields of a JSON object in their order, also those that come twice.
#[derive(Clone)]
pub(super) struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visit;

        impl<'de> Visitor<'de> for Visit {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_map(Visit)
    }
}

impl Fields {
    /// Returns the texts. No name may come twice, as `key` compares names.
    pub(super) fn into_texts(
        self,
        key: impl Fn(&str) -> String,
    ) -> Result<Vec<(String, String)>, String> {
        let mut names = BTreeSet::new();
        let texts = self.0.into_iter().map(|(name, value)| match value {
            Value::String(_) if !names.insert(key(&name)) => Err(format!("`{name}` comes twice")),
            Value::String(text) => Ok((name, text)),
            _ => Err(format!("`{name}` is not a string")),
        });
        texts.collect()
    }
}

/// An object of texts, in which no name comes twice.
fn each_once<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let fields: Option<Fields> = Option::deserialize(from)?;
    let texts = fields.map(|fields| fields.into_texts(str::to_owned));
    let texts = texts.transpose().map_err(D::Error::custom)?;
    Ok(texts.map(BTreeMap::from_iter))
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PollConfig {
    pub(super) status_url_template: Option<String>,
    pub(super) status_url_header: Option<String>,
    pub(super) pending_statuses: Option<Vec<u16>>,
    pub(super) status_field_path: Option<String>,
    pub(super) result_field_path: Option<String>,
    pub(super) error_field_path: Option<String>,
    #[serde(default, deserialize_with = "each_once")]
    pub(super) job_values: Option<BTreeMap<String, String>>,
    pub(super) completed_values: Option<Vec<Value>>,
    pub(super) failed_values: Option<Vec<Value>>,
    #[serde(alias = "initial_interval_seconds", alias = "poll_interval_seconds")]
    pub(super) interval_seconds: Option<f64>,
    pub(super) backoff_multiplier: Option<f64>,
    pub(super) max_interval_seconds: Option<f64>,
    #[serde(alias = "max_poll_attempts")]
    pub(super) max_attempts: Option<u32>,
}

impl Profile {
    pub(super) fn mode(&self) -> Mode {
        self.mode.unwrap_or(Mode::Sync)
    }

    pub(super) fn method(&self) -> &str {
        self.method.as_deref().unwrap_or("POST")
    }

    pub(super) fn known_method(&self) -> Result<Method, ConfigError> {
        let name = self.method();
        let is_it = |method: &&Method| method.as_str().eq_ignore_ascii_case(name);
        METHODS.iter().find(is_it).cloned().ok_or_else(|| {
            let known = METHODS.each_ref().map(Method::as_str).join("`, `");
            ConfigError::new("method", format!("`{name}` is none of `{known}`"))
        })
    }
}
