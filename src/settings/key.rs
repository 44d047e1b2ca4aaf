use serde::{Deserialize, Serialize};

use crate::key::Key;

/// Which calls share one state, as far as a file can say it. See [`Key`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeyBy {
    /// Calls of one tool of one server.
    #[default]
    Tool,
    /// Calls of one tool name, whatever the server.
    ToolName,
    /// Calls of one server; without a server, those of one tool.
    Server,
    /// Calls of one agent. Those without one share a key.
    Agent,
}

impl From<KeyBy> for Key {
    fn from(by: KeyBy) -> Self {
        match by {
            KeyBy::Tool => Self::Tool,
            KeyBy::ToolName => Self::ToolName,
            KeyBy::Server => Self::Server,
            KeyBy::Agent => Self::by(|call| call.agent_id().unwrap_or_default()),
        }
    }
}
