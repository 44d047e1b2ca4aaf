use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{KeyBy, Settings, duration};
use crate::{
    call::ReplaySafety,
    key::{Keys, keys::named},
    kit::per_tool::PerTool,
    text::Short,
};

/// The settings of one tool, by its name: `[tools.import]`. A missing setting is as for all tools.
///
/// Both names of a [resolved](crate::identity) call are known: its flat name
/// (`[tools.pay__charge]`), which goes first, and the tool's own (`[tools.charge]`), which holds
/// for the tools of this name of all servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, remote = "Self")]
#[non_exhaustive]
pub struct ToolSettings {
    /// How long one attempt may take. A file may also have it in milliseconds, as `timeout_ms`.
    #[serde(with = "duration", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Nothing, once the file is read.
    #[serde(skip_serializing)]
    timeout_ms: Option<u64>,
    /// How often the retry layer sends a call at most, the first time included. With 1 it leaves
    /// the call alone; the rate-limit layer still sends one that met a limit up to
    /// `rate_limit.attempts` times. A warning where `retry.enabled` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Whether a call may run twice. Goes before the function of
    /// [`with_replay_safety`](super::StackBuilder::with_replay_safety), not before the call's own
    /// word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay_safe: Option<bool>,
    /// How many calls of it run at a time, instead of `concurrency.max`, or where that is not set.
    /// An error where `concurrency.key` is not `tool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// The units per `quota.period`, and of a burst, instead of `quota.tokens` and
    /// `quota.burst`. An error without `quota.tokens`, and where `quota.key` is not `tool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_tokens: Option<u32>,
    /// The units that a call costs. Default: 1. An error without `quota.tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_cost: Option<u32>,
    /// Whether its arguments are checked. Default: `validate.enabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validate: Option<bool>,
    /// Whether its arguments are changed if they only have the wrong type. `true` is a warning
    /// where they are not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<bool>,
    /// Whether a caller is stopped that repeats a failing call of this tool. Default: as
    /// `repeat_guard.enabled` says, and `true` is a warning where that is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat_guard: Option<bool>,
    /// For whom its tokens have to be: the name that the identity provider knows its service by. An
    /// error without `token.endpoint`. Of a call with a server only the flat name counts
    /// (`[tools.pay__charge]`): no other server gets the token by a tool of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The scopes that they have to have. An error without an `audience`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

impl Serialize for ToolSettings {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, to)
    }
}

impl<'de> Deserialize<'de> for ToolSettings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut tool = Self::deserialize(from)?;
        if let Some(millis) = tool.timeout_ms.take() {
            if tool.timeout.is_some() {
                return Err(D::Error::custom("`timeout` is set, and `timeout_ms` too"));
            }
            tool.timeout = Some(Duration::from_millis(millis));
        }
        Ok(tool)
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

/// The key of a tool's setting, as errors name it and as a file has it: quoted where its name is no
/// plain word.
pub(super) fn key(tool: &str, field: &str) -> String {
    let tool = Short::name(tool).to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match tool.chars().all(is_plain) {
        true => format!("tools.{tool}.{field}"),
        false => format!("tools.{tool:?}.{field}"),
    }
}
