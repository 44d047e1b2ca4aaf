use super::{nearest::Nearest, table::Table};
use crate::{
    call::{CallInfo, ToolCall},
    error::{ErrorKind, ToolError},
};

/// What a caller asked for, kept while others look for it.
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

    /// The error of a call of a tool that is not there.
    pub(super) fn is_not_in<Res>(&self, table: &Table<Res>) -> ToolError {
        let error = ToolError::refusal(ErrorKind::NotFound, "").about(&self.call);
        error.with_near(self.near(table))
    }

    /// What a router below says of it, in names that the caller can call; any other error as it is.
    pub(super) fn retold<Res>(&self, error: ToolError, table: &Table<Res>) -> ToolError {
        match error.kind() {
            ErrorKind::NotFound if error.is_own_refusal() => error.with_near(self.near(table)),
            _ => error,
        }
    }

    fn near<Res>(&self, table: &Table<Res>) -> Vec<String> {
        let name = self.call.tool();
        let server = self.call.server().filter(|_| self.names_server);
        let asked = table.asked(server, name);
        let mut nearest = Nearest::to(&asked, table.bare(&asked));
        // It was missed for the server that the caller named.
        let is_nowhere = server.is_some_and(|server| !table.servers.contains_key(server));
        if (is_nowhere || asked != name) && table.has(name) {
            nearest.is(name);
        }
        table.search(&mut nearest);
        nearest.into_names()
    }
}
