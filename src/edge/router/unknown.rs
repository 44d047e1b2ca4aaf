use super::{names, table::Table};
use crate::{
    call::{CallInfo, ToolCall},
    edge::nearest::Nearest,
    error::{ErrorKind, ToolError},
};

/// The names that a caller asked for, kept while the call runs.
pub(super) struct Asked {
    call: CallInfo,
    names_server: bool,
}

impl Asked {
    pub(super) fn of(call: &ToolCall) -> Self {
        Self {
            call: call.info(),
            names_server: call.named_server().is_some(),
        }
    }

    /// The error of a call of a tool that does not exist.
    pub(super) fn not_found(&self) -> ToolError {
        ToolError::refusal(ErrorKind::NotFound, "").for_call(&self.call)
    }

    /// The error with names that the caller can call, if it is a router's refusal of a name: ours,
    /// or that of one below.
    pub(super) fn with_near<Res>(&self, error: ToolError, table: &Table<Res>) -> ToolError {
        match error.kind() {
            ErrorKind::NotFound if error.is_own_refusal() => error.with_near(self.near(table)),
            _ => error,
        }
    }

    fn near<Res>(&self, table: &Table<Res>) -> Vec<String> {
        let name = self.call.tool();
        let server = self.call.server().filter(|_| self.names_server);
        let asked = table.asked(server, name);
        let bare = names::split(&asked, &table.separator).map_or(&*asked, |(_, tool)| tool);
        let mut nearest = Nearest::to(&asked, bare);
        // It was missed for the server that the caller named.
        let is_nowhere = server.is_some_and(|server| !table.servers.contains_key(server));
        if (is_nowhere || asked != name) && table.has(name) {
            nearest.is(name);
        }
        let _ = table.search(&mut nearest);
        nearest.into_names()
    }
}
