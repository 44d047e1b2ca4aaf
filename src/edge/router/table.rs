use std::{collections::HashMap, sync::Arc};

use super::{ToolList, names, route::Route};
use crate::call::{ReplaySafety, ToolCall};

pub(super) type BoxRoute<Res> = Box<dyn Route<Res>>;

/// All names, and what is behind them.
pub(super) struct Table<Res> {
    pub(super) separator: Box<str>,
    pub(super) local: HashMap<Arc<str>, BoxRoute<Res>>,
    pub(super) servers: HashMap<Arc<str>, Server<Res>>,
}

pub(super) struct Server<Res> {
    pub(super) route: BoxRoute<Res>,
    pub(super) tools: ToolList,
}

/// Whom a call is for.
pub(super) enum Target<'a, Res> {
    Local(&'a dyn Route<Res>),
    Server {
        route: &'a dyn Route<Res>,
        tools: &'a ToolList,
        server: &'a Arc<str>,
        tool: Arc<str>,
    },
}

impl<Res> Table<Res> {
    /// A server of ours that the call names; else the name of the tool decides.
    pub(super) fn find(&self, call: &ToolCall) -> Option<Target<'_, Res>> {
        let name = call.tool();
        match call.named_server() {
            Some(server) if self.servers.contains_key(server) => self
                .at(server, name)
                .or_else(|| self.at(server, self.part_of(server, name)?)),
            _ => self.by_name(name),
        }
    }

    fn by_name(&self, name: &str) -> Option<Target<'_, Res>> {
        if let Some(route) = self.local.get(name) {
            return Some(Target::Local(&**route));
        }
        let (server, tool) = names::split(name, &self.separator)?;
        self.at(server, tool)
    }

    fn at(&self, server: &str, tool: &str) -> Option<Target<'_, Res>> {
        let (server, there) = self.servers.get_key_value(server)?;
        Some(Target::Server {
            tool: there.tools.find(tool)?,
            route: &*there.route,
            tools: &there.tools,
            server,
        })
    }

    /// The tool's own part of a flat name of this server.
    fn part_of<'n>(&self, server: &str, name: &'n str) -> Option<&'n str> {
        let (own, tool) = names::split(name, &self.separator)?;
        (own == server).then_some(tool)
    }

    pub(super) fn replay_safety(&self, call: &ToolCall) -> ReplaySafety {
        match self.find(call) {
            Some(Target::Server { tools, tool, .. }) => tools.replay_safety(&tool),
            _ => ReplaySafety::Unknown,
        }
    }

    /// Shows each tool: its flat name, and its own part of it.
    pub(super) fn for_each(&self, mut f: impl FnMut(&str, &str)) {
        self.local.keys().for_each(|name| f(name, name));
        let mut flat = String::new();
        for (server, there) in &self.servers {
            flat.clear();
            flat.push_str(server);
            flat.push_str(&self.separator);
            let start = flat.len();
            there.tools.for_each(|tool| {
                flat.truncate(start);
                flat.push_str(tool);
                f(&flat, tool);
            });
        }
    }

    /// What the caller of a tool that is not there may have meant, as a flat name.
    pub(super) fn asked(&self, call: &ToolCall) -> String {
        match call.named_server() {
            Some(server)
                if self.servers.contains_key(server)
                    && self.part_of(server, call.tool()).is_none() =>
            {
                names::flat(server, &self.separator, call.tool())
            }
            _ => call.tool().to_owned(),
        }
    }
}
