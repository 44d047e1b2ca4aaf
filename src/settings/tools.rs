use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{KeyBy, Settings, duration};
use crate::{
    call::ReplaySafety,
    key::{Keys, keys::named},
    kit::per_tool::PerTool,
    text::Short,
};

/// The settings of one tool, by its name: `[tools.import]`. A setting that is missing has the value
/// for all tools.
///
/// A [resolved](crate::identity) call is looked up by its flat name (`[tools.pay__charge]`) first,
/// then by the tool's own name (`[tools.charge]`), which applies to all servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ToolSettings {
    /// The timeout of one attempt. A file may also have it in milliseconds, as `timeout_ms`.
    #[serde(with = "duration", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Only until a file is laid over settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_ms: Option<u64>,
    /// The most attempts that the retry layer makes, the first one included. With 1 it leaves the
    /// call alone; after a rate limit the rate-limit layer still sends it up to
    /// `rate_limit.attempts` times. A warning if `retry.enabled` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Declares that a call may run twice, or may not. It takes precedence over the function of
    /// [`with_replay_safety`](super::StackBuilder::with_replay_safety), and the call's own mark
    /// over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay_safe: Option<bool>,
    /// The most calls of it that run together, instead of `concurrency.max`, or if that is not set.
    /// An error where `concurrency.key` is not `tool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// The units per `quota.period`, and of a burst, instead of `quota.units` and
    /// `quota.burst`. An error without `quota.units`, and where `quota.key` is not `tool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_units: Option<u32>,
    /// The units that a call costs. Default: 1. An error without `quota.units`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_cost: Option<u32>,
    /// Checks its arguments. Default: `validate.enabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validate: Option<bool>,
    /// Changes its arguments if they only have the wrong type. `true` is a warning if they are not
    /// checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<bool>,
    /// Stops a caller that repeats a failing call of this tool. Default: `repeat_guard.enabled`,
    /// and `true` is a warning if that is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat_guard: Option<bool>,
    /// The audience of its tokens: the name by which the identity provider knows its service. An
    /// error without `token.endpoint`. For a call with a server only the flat name counts
    /// (`[tools.pay__charge]`), so that no other server gets the token by a tool of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The scopes of its tokens. An error without an `audience`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

impl ToolSettings {
    /// Makes `timeout` of `timeout_ms`, unless both are set.
    pub(super) fn with_one_timeout(mut self) -> Self {
        if self.timeout.is_none() {
            self.timeout = self.timeout_ms.take().map(Duration::from_millis);
        }
        self
    }
}

impl Settings {
    /// Returns the keys of a layer. The tools that have settings are known, as far as keys are of
    /// tools and there is room.
    pub(super) fn keys(&self, key: KeyBy, max: usize) -> Keys {
        let room = if key == KeyBy::Agent { 0 } else { max };
        let calls = self.tools.keys().flat_map(|name| named(name)).flatten();
        let keys = Keys::by(key.into()).at_most(max);
        keys.known_calls(calls.take(room))
    }

    /// The replay safety of tools, by name.
    pub(super) fn replay_safety(&self) -> PerTool<ReplaySafety> {
        let mut said = PerTool::new("retry");
        for (name, tool) in &self.tools {
            match tool.replay_safe {
                Some(true) => said.set(name.as_str().into(), ReplaySafety::Safe),
                Some(false) => said.set(name.as_str().into(), ReplaySafety::Unsafe),
                None => {}
            }
        }
        said
    }
}

/// The key of a tool's section.
pub(super) fn of(tool: &str) -> String {
    let key = key(tool, "");
    key.trim_end_matches('.').to_owned()
}

/// Returns the key of a tool's setting, as in errors and files: quoted unless the name is a plain
/// word.
pub(super) fn key(tool: &str, field: &str) -> String {
    let tool = Short::name(tool).to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match !tool.is_empty() && tool.chars().all(is_plain) {
        true => format!("tools.{tool}.{field}"),
        false => format!("tools.{tool:?}.{field}"),
    }
}
