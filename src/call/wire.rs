//! Serde for what the caller wrote. Deadlines and claims belong to one process and stay in it.

use std::time::Duration;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::SerializeMap as _,
};
use serde_json::Value;

use super::{ReplaySafety, ToolCall};
use crate::event::transition::millis;

/// Writes the real arguments: for a wire or a queue, not for a log.
impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.check().map_err(serde::ser::Error::custom)?;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", self.tool())?;
        if !self.arguments().is_empty() {
            map.serialize_entry("arguments", self.arguments())?;
        }
        for (field, name) in [
            ("id", self.id()),
            ("server", self.server()),
            ("agent_id", self.agent_id()),
            ("trace_id", self.trace_id()),
            ("session_id", self.session_id()),
        ] {
            if let Some(name) = name {
                map.serialize_entry(field, name)?;
            }
        }
        if let Some(timeout) = self.timeout() {
            map.serialize_entry("timeout_ms", &millis::of(timeout))?;
        }
        if self.replay_safety() != ReplaySafety::Unknown {
            let is_safe = self.replay_safety() == ReplaySafety::Safe;
            map.serialize_entry("replay_safe", &is_safe)?;
        }
        map.end()
    }
}

#[derive(Deserialize)]
struct Wire {
    name: String,
    arguments: Option<Value>,
    id: Option<String>,
    server: Option<String>,
    agent_id: Option<String>,
    trace_id: Option<String>,
    session_id: Option<String>,
    timeout_ms: Option<u64>,
    replay_safe: Option<bool>,
}

impl<'de> Deserialize<'de> for ToolCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        let mut call = ToolCall::new(wire.name)
            .with_json(wire.arguments.unwrap_or_default())
            .map_err(D::Error::custom)?;
        call.set_names([
            wire.server,
            wire.id,
            wire.agent_id,
            wire.trace_id,
            wire.session_id,
        ]);
        call.data_mut().ident_mut().timeout = wire.timeout_ms.map(Duration::from_millis);
        call.replay = match wire.replay_safe {
            None => ReplaySafety::Unknown,
            Some(true) => ReplaySafety::Safe,
            Some(false) => ReplaySafety::Unsafe,
        };
        call.check().map_err(D::Error::custom)?;
        Ok(call)
    }
}

impl ToolCall {
    /// Sets server, id, agent, trace and session, as far as they are known.
    pub(crate) fn set_names(&mut self, names: [Option<String>; 5]) {
        let ident = self.data_mut().ident_mut();
        [
            ident.names.server,
            ident.id,
            ident.agent_id,
            ident.trace_id,
            ident.session_id,
        ] = names.map(|name| name.map(Into::into));
        ident.names.hashes = Default::default();
    }
}
