//! Serde for errors: all fields except the source.

use std::time::Duration;

use http::StatusCode;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, IntoDeserializer as _, value::StringDeserializer},
};
use serde_json::{Map, Value};

use super::{ErrorKind, Evidence, Execution, TimeoutData, TimeoutLimit, ToolError};
use crate::{event::transition::millis, redact::Rules};

#[derive(Serialize, Deserialize)]
struct Wire<D> {
    #[serde(deserialize_with = "known_kind")]
    kind: ErrorKind,
    code: String,
    message: String,
    user_message: String,
    model_message: String,
    execution: Execution,
    retryable: bool,
    /// Follows from the kind; for readers.
    #[serde(default)]
    recoverable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis")]
    retry_after_ms: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis")]
    elapsed_ms: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis")]
    timeout_ms: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis")]
    configured_timeout_ms: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_limit: Option<TimeoutLimit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    details: Option<D>,
}

fn none<D>() -> Option<D> {
    None
}

/// A kind that only a newer peer knows becomes [`ErrorKind::Failed`]; the code is kept.
fn known_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ErrorKind, D::Error> {
    let name = String::deserialize(deserializer)?;
    let name: StringDeserializer<de::value::Error> = name.into_deserializer();
    Ok(ErrorKind::deserialize(name).unwrap_or(ErrorKind::Failed))
}

/// All texts are redacted and bounded.
impl Serialize for ToolError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = |s: Option<&str>| s.map(|s| crate::text::Short::name(s).to_string());
        let safe = |text: String| super::safe(&self.0.rules, &text);
        Wire {
            kind: self.kind(),
            code: self.code().to_owned(),
            message: self.message().to_owned(),
            user_message: safe(self.user_message()),
            model_message: safe(self.model_message()),
            execution: self.execution(),
            retryable: self.is_retryable(),
            recoverable: self.is_recoverable(),
            tool: name(self.tool()),
            server: name(self.server()),
            call_id: name(self.call_id()),
            retry_after_ms: self.retry_after(),
            attempts: self.attempts(),
            elapsed_ms: self.elapsed(),
            timeout_ms: self.timeout(),
            configured_timeout_ms: self.configured_timeout(),
            timeout_limit: self.timeout_limit(),
            status: self.status().map(|s| s.as_u16()),
            body: self.body().map(str::to_owned),
            details: self.details(),
        }
        .serialize(serializer)
    }
}

/// What a peer wrote: every text is redacted and cut again, and it is
/// [inferred](Evidence::Inferred), so that no layer acts on its word that the tool did not run. For
/// a peer of your own, say so yourself: [`ToolError::with_execution`].
impl<'de> Deserialize<'de> for ToolError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::<Map<String, Value>>::deserialize(deserializer)?;
        let safe = |text: &str| super::safe(&Rules::default(), text);
        let mut error = Self::new(wire.kind, wire.message)
            .with_retryable(wire.retryable)
            .with_attempts(wire.attempts.unwrap_or_default());
        if wire.code != wire.kind.code() {
            error = error.with_code(wire.code);
        }
        if let Some(status) = wire.status.and_then(|s| StatusCode::from_u16(s).ok()) {
            error = error.with_status(status);
        }
        if let Some(body) = wire.body {
            error = error.with_body(&body);
        }
        for (key, value) in wire.details.unwrap_or_default() {
            error = error.with_detail(key, value);
        }
        error = error.edit(|e| {
            // The writer of the JSON may have written anything.
            (e.evidence, e.execution) = (Evidence::Inferred, wire.execution);
            e.tool = wire.tool.map(Into::into);
            e.server = wire.server.map(Into::into);
            e.call_id = wire.call_id.map(Into::into);
            e.retry_after = wire.retry_after_ms;
            e.elapsed = wire.elapsed_ms;
            e.timeout = wire.timeout_ms.map(|in_force| TimeoutData {
                in_force,
                configured: wire.configured_timeout_ms.unwrap_or(in_force),
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
