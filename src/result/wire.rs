//! Serde for results: redacted, and as they are.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use super::{
    metadata::Metadata,
    status::Status,
    tool_result::{About, Exposed, ToolResult},
};
use crate::{
    call::{Recorded, ToolCall, nanos},
    error::ToolError,
    event::{ms, transition::millis},
    text::{Short, limited::collect_for},
};

#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "D: Deserialize<'de>, E: Deserialize<'de> + Default"))]
struct Wire<D, E> {
    success: bool,
    status: Status,
    tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
    #[serde(
        default = "Option::default",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    data: Option<D>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<ToolError>,
    duration_ms: f64,
    attempts: u32,
    #[serde(default)]
    metadata: WireMetadata<E>,
}

#[derive(Serialize, Deserialize, Default)]
struct WireMetadata<E> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis")]
    timeout_ms: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis")]
    configured_timeout_ms: Option<Duration>,
    #[serde(default)]
    slow: bool,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis")]
    waited_ms: Option<Duration>,
    #[serde(default)]
    refused_retries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_bytes: Option<u64>,
    /// The values that the caller has added.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    extra: Option<E>,
}

/// Data that is `null` is data all the same.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

impl<D, E> Wire<D, E> {
    fn of<T>(
        result: &ToolResult<T>,
        data: Option<D>,
        extra: Option<E>,
        name: fn(&str) -> String,
    ) -> Self {
        let (call, metadata) = (result.call(), result.metadata());
        Self {
            success: result.is_success(),
            status: result.status(),
            tool: name(result.tool()),
            server: result.server().map(name),
            call_id: result.call_id().map(name),
            data,
            error: result.error().cloned(),
            duration_ms: ms(result.duration()),
            attempts: result.attempts(),
            metadata: WireMetadata {
                agent_id: call.agent_id().map(name),
                trace_id: call.trace_id().map(name),
                session_id: call.session_id().map(name),
                max_attempts: metadata.max_attempts(),
                timeout_ms: metadata.timeout(),
                configured_timeout_ms: metadata.configured_timeout(),
                slow: metadata.is_slow(),
                waited_ms: Some(metadata.waited()).filter(|d| !d.is_zero()),
                refused_retries: metadata.refused_retries(),
                output_bytes: metadata.output_bytes(),
                extra,
            },
        }
    }
}

/// Redacted, the data too: for logs and stores. See [`ToolResult::exposed`].
impl<T: Serialize> Serialize for ToolResult<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rules = self.call().rules();
        // Data that is not JSON must not lose a log its record.
        let collect = |data| collect_for(rules, data).unwrap_or_else(|_| "[not JSON]".into());
        let data = self.data().map(collect);
        let data = data.as_ref().map(|data| rules.json(data));
        let extra = self.metadata().extra.as_deref();
        let extra = extra.map(|extra| rules.object(extra));
        Wire::of(self, data, extra, |s| Short::name(s).to_string()).serialize(serializer)
    }
}

/// The data as it is; errors are redacted all the same.
impl<T: Serialize> Serialize for Exposed<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let extra = self.0.metadata().extra.as_deref();
        Wire::of(self.0, self.0.data(), extra, str::to_owned).serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ToolResult<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::<T, Map<String, Value>>::deserialize(deserializer)?;
        // The rest of the status follows from the error's kind.
        if wire.success != (wire.status == Status::Success) {
            return Err(de::Error::custom("`success` contradicts `status`"));
        }
        if wire.success != wire.error.is_none() {
            return Err(de::Error::custom("only a failure has an `error`"));
        }
        if wire.success && wire.data.is_none() {
            return Err(de::Error::missing_field("data"));
        }
        let duration = Duration::try_from_secs_f64(wire.duration_ms / 1e3)
            .map_err(|_| de::Error::custom("`duration_ms` is not a duration"))?;
        let metadata = wire.metadata;
        let or_unknown = |number: Option<u64>| number.map_or(0, |number| number.saturating_add(1));
        let mut call = ToolCall::new(wire.tool);
        call.set_names([
            wire.server,
            wire.call_id,
            metadata.agent_id,
            metadata.trace_id,
            metadata.session_id,
        ]);
        let about = About {
            call: call.info(),
            error: wire.error,
            duration,
            attempts: wire.attempts,
            metadata: Metadata {
                below: Recorded {
                    timeout: or_unknown(metadata.timeout_ms.map(nanos)),
                    configured_timeout: or_unknown(metadata.configured_timeout_ms.map(nanos)),
                    output_bytes: or_unknown(metadata.output_bytes),
                    waited_nanos: metadata.waited_ms.map_or(0, nanos),
                    max_attempts: metadata.max_attempts.unwrap_or(0),
                    refusals: metadata.refused_retries,
                    slow: metadata.slow,
                },
                extra: metadata.extra.filter(|m| !m.is_empty()).map(Box::new),
            },
        };
        let data = wire.data;
        Ok(Self { data, about })
    }
}
