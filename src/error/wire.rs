//! Serde for errors: all fields except the source.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{ErrorKind, Evidence, Execution, TimeoutData, TimeoutLimit, ToolError};
use crate::{event::transition::millis, redact::Rules, text::Short};

/// All texts are redacted and bounded.
impl Serialize for ToolError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = |s: &str| json!(Short::name(s).to_string());
        let safe = |text: String| json!(super::safe(&self.0.rules, &text));
        let ms = |d: Duration| json!(millis::of(d));
        let fields = [
            ("kind", Some(json!(self.kind()))),
            ("code", Some(self.code().into())),
            ("message", Some(self.message().into())),
            ("user_message", Some(safe(self.user_message()))),
            ("model_message", Some(safe(self.model_message()))),
            ("execution", Some(json!(self.execution()))),
            ("retryable", Some(self.is_retryable().into())),
            // Follows from the kind; for readers.
            ("recoverable", Some(self.is_recoverable().into())),
            ("tool", self.tool().map(name)),
            ("server", self.server().map(name)),
            ("call_id", self.call_id().map(name)),
            ("retry_after_ms", self.retry_after().map(ms)),
            ("attempts", self.attempts().map(Value::from)),
            ("elapsed_ms", self.elapsed().map(ms)),
            ("timeout_ms", self.timeout().map(ms)),
            ("configured_timeout_ms", self.configured_timeout().map(ms)),
            ("timeout_limit", self.timeout_limit().map(|l| json!(l))),
            ("status", self.status().map(|s| s.as_u16().into())),
            ("body", self.body().map(Value::from)),
            ("details", self.details().map(|details| json!(details))),
        ];
        let known = fields.into_iter().filter(|(_, value)| value.is_some());
        serializer.collect_map(known.collect::<Vec<_>>())
    }
}

#[derive(Deserialize)]
struct Wire {
    #[serde(deserialize_with = "or_unknown")]
    kind: Option<ErrorKind>,
    code: String,
    message: String,
    user_message: String,
    model_message: String,
    #[serde(deserialize_with = "or_unknown")]
    execution: Option<Execution>,
    retryable: bool,
    tool: Option<Arc<str>>,
    server: Option<Arc<str>>,
    call_id: Option<Arc<str>>,
    retry_after_ms: Option<u64>,
    attempts: Option<u32>,
    elapsed_ms: Option<u64>,
    timeout_ms: Option<u64>,
    configured_timeout_ms: Option<u64>,
    #[serde(default, deserialize_with = "or_unknown")]
    timeout_limit: Option<TimeoutLimit>,
    status: Option<u16>,
    body: Option<String>,
    details: Option<Map<String, Value>>,
}

/// Reads a name; `None` if only a newer peer knows it.
fn or_unknown<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: DeserializeOwned,
    D: Deserializer<'de>,
{
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

/// Reads an error that a peer wrote. Every text is redacted and cut again. The error is
/// [inferred](Evidence::Inferred), so no layer trusts its claim that the tool did not run. For a
/// peer that you trust, set [`ToolError::with_execution`].
impl<'de> Deserialize<'de> for ToolError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        let safe = |text: &str| super::safe(&Rules::default(), text);
        // The code says more of a kind that is not known here.
        let kind = wire.kind.unwrap_or(ErrorKind::Failed);
        let mut error = Self::new(kind, wire.message)
            .with_retryable(wire.retryable)
            .with_attempts(wire.attempts.unwrap_or_default());
        if wire.code != kind.code() {
            error = error.with_code(wire.code);
        }
        if let Some(body) = wire.body {
            error = error.with_body(&body);
        }
        for (key, value) in wire.details.unwrap_or_default() {
            error = error.with_detail(key, value);
        }
        error = error.edit(|e| {
            // The writer of the JSON may have written anything.
            (e.evidence, e.execution) = (
                Evidence::Inferred,
                wire.execution.unwrap_or(Execution::Unknown),
            );
            (e.tool, e.server, e.call_id) = (wire.tool, wire.server, wire.call_id);
            e.status = wire.status.and_then(|s| StatusCode::from_u16(s).ok());
            e.retry_after = wire.retry_after_ms.map(Duration::from_millis);
            e.elapsed = wire.elapsed_ms.map(Duration::from_millis);
            let configured = wire.configured_timeout_ms.map(Duration::from_millis);
            e.timeout = wire
                .timeout_ms
                .map(Duration::from_millis)
                .map(|in_force| TimeoutData {
                    in_force,
                    configured: configured.unwrap_or(in_force),
                    limit: wire.timeout_limit.unwrap_or(TimeoutLimit::Timeout),
                });
        });
        if wire.user_message != error.user_message() {
            error = error.with_user_message(safe(&wire.user_message));
        }
        if wire.model_message != error.model_message() {
            error = error.with_model_message(safe(&wire.model_message));
        }
        Ok(error)
    }
}
