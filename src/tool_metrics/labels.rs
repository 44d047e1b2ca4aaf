use std::{fmt, sync::Arc};

use crate::{call::CallInfo, text::Short};

/// The label of all names without a row.
pub const OTHER: &str = "_other";

/// A server and a tool as labels: at most 67 characters each, redacted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels {
    server: Option<Arc<str>>,
    tool: Arc<str>,
}

impl Labels {
    pub(super) fn new(server: Option<&str>, tool: &str) -> Self {
        let label = |name: &str| Short::name(name).to_string().into();
        Self {
            // An empty one and none are the same label.
            server: server.filter(|server| !server.is_empty()).map(label),
            tool: label(tool),
        }
    }

    pub(super) fn of(call: &CallInfo) -> Self {
        Self::new(call.server(), call.listed_tool().unwrap_or(OTHER))
    }

    pub(super) fn other() -> Self {
        Self::new(None, OTHER)
    }

    /// Returns the server, if the calls have one.
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Returns the tool; empty for a circuit breaker of a whole server.
    pub fn tool(&self) -> &str {
        &self.tool
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.server(), self.tool()) {
            (Some(server), "") => write!(f, "{server}/*"),
            (Some(server), tool) => write!(f, "{server}/{tool}"),
            (None, tool) => f.write_str(tool),
        }
    }
}
