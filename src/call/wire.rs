//! Serde for what the caller wrote. Deadlines and claims belong to one process and stay in it.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};

use super::{Given, ReplaySafety, ToolCall};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
struct Wire<'a, A> {
    #[serde(borrow)]
    name: std::borrow::Cow<'a, str>,
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    arguments: Option<A>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replay_safe: Option<bool>,
}

/// Writes the real arguments: for a wire or a queue, not for a log.
impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let owned = |s: Option<&str>| s.map(str::to_owned);
        self.check().map_err(serde::ser::Error::custom)?;
        Wire {
            name: self.tool().into(),
            arguments: Some(self.arguments()).filter(|a| !a.is_empty()),
            id: owned(self.id()),
            server: owned(self.server()),
            agent_id: owned(self.agent_id()),
            trace_id: owned(self.trace_id()),
            session_id: owned(self.session_id()),
            timeout_ms: self
                .timeout()
                .map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
            replay_safe: match self.replay_safety() {
                ReplaySafety::Unknown => None,
                other => Some(other == ReplaySafety::Safe),
            },
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ToolCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::<Value>::deserialize(deserializer)?;
        let mut call = ToolCall::new(wire.name.into_owned())
            .with_json(wire.arguments.unwrap_or_else(|| Value::Object(Map::new())))
            .map_err(D::Error::custom)?;
        call.set_names([
            wire.server,
            wire.id,
            wire.agent_id,
            wire.trace_id,
            wire.session_id,
        ]);
        call.data_mut().ident_mut().timeout = wire
            .timeout_ms
            .map(|ms| Given::by_caller(Duration::from_millis(ms)));
        call.replay = Given::by_caller(match wire.replay_safe {
            None => ReplaySafety::Unknown,
            Some(true) => ReplaySafety::Safe,
            Some(false) => ReplaySafety::Unsafe,
        });
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
