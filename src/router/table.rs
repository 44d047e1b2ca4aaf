use std::{collections::HashMap, ops::ControlFlow, sync::Arc};

use super::{
    Definition, ToolList,
    list::{Tools, count},
    names,
    service::Route,
};
use crate::{
    call::{CallExt, CallInfo, Identity, MAX_NAME_BYTES, ReplaySafety, ToolCall},
    error::{ErrorKind, ToolError},
    health::{Health, named},
    nearest::Nearest,
};

/// All names and their tools.
pub(super) struct Table<Res> {
    pub(super) separator: Arc<str>,
    pub(super) local: HashMap<Arc<str>, Local<Res>>,
    pub(super) servers: HashMap<Arc<str>, Server<Res>>,
    /// The definitions of the local tools that have one, in the order of their names.
    pub(super) described: Vec<Definition>,
}

pub(super) struct Local<Res> {
    pub(super) route: Route<Res>,
    pub(super) identity: Identity,
}

pub(super) struct Server<Res> {
    name: Arc<str>,
    separator: Arc<str>,
    pub(super) route: Route<Res>,
    pub(super) tools: Arc<dyn Tools>,
    /// The identities that are known before a list is read: of tools in a fixed list, and of those
    /// with a timeout.
    pub(super) known: HashMap<Arc<str>, Identity>,
    health: Option<(Health, ToolCall)>,
}

impl<Res> Server<Res> {
    pub(super) fn new(
        name: Arc<str>,
        separator: &Arc<str>,
        route: Route<Res>,
        ToolList(tools): ToolList,
        health: Option<&Health>,
    ) -> Self {
        let health = health.map(|health| {
            let (server, tools) = (named(&name), Arc::clone(&tools));
            // The registry then shows servers that no call has reached yet.
            health.add(&server, move || count(&*tools, 2) > 1);
            (health.clone(), server)
        });
        let mut server = Self {
            name,
            separator: Arc::clone(separator),
            route,
            tools,
            known: HashMap::new(),
            health,
        };
        if server.tools.is_fixed() {
            let tools = Arc::clone(&server.tools);
            let _ = tools.try_each(&mut |tool| {
                let identity = server.identity(Arc::clone(tool));
                server.known.insert(Arc::clone(tool), identity);
                ControlFlow::Continue(())
            });
        }
        server
    }

    /// Returns whether its calls are refused now: then no list has its tools.
    fn is_away(&self) -> bool {
        let health = self.health.as_ref();
        health.is_some_and(|(health, server)| health.is_refusing(server))
    }

    /// Its tools, unless calls of them are refused now.
    pub(super) fn present(&self) -> Option<&dyn Tools> {
        (!self.is_away()).then_some(&*self.tools)
    }

    pub(super) fn identity(&self, tool: Arc<str>) -> Identity {
        let identity = Identity::new(tool).with_server(Arc::clone(&self.name));
        identity.with_separator(Arc::clone(&self.separator))
    }

    pub(super) fn is_named(&self, call: &ToolCall, tool: &str) -> bool {
        (call.tool(), call.server()) == (tool, Some(&*self.name))
    }

    pub(super) fn flat(&self, tool: &str) -> String {
        names::flat(&self.name, &self.separator, tool)
    }

    /// Returns the tool's own part of a flat name of this server.
    fn part_of<'n>(&self, name: &'n str) -> Option<&'n str> {
        let tool = name.strip_prefix(&*self.name)?;
        tool.strip_prefix(&*self.separator)
    }

    /// Returns whether a call can have the flat name of this tool: the names that a server lists
    /// are not checked before.
    pub(super) fn is_callable(&self, tool: &str) -> bool {
        let flat = self.name.len() + self.separator.len() + tool.len();
        flat <= MAX_NAME_BYTES && !tool.is_empty() && !tool.chars().any(char::is_control)
    }

    fn listed(&self, tool: &str) -> Option<Target<'_, Res>> {
        // The name may come from an untrusted caller and have any length.
        let tool = self.is_callable(tool).then(|| self.tools.find(tool))?;
        Some(Target::Listed(self, tool?))
    }

    fn unlisted(&self, tool: &str) -> Option<Target<'_, Res>> {
        let may_exist = !self.tools.is_read() && self.is_callable(tool);
        may_exist.then(|| Target::Unlisted(self, tool.into()))
    }
}

/// The tool that a call is for.
pub(super) enum Target<'a, Res> {
    Local(&'a Local<Res>),
    Listed(&'a Server<Res>, Arc<str>),
    /// The server's list was not read yet: whether it has this tool is not known.
    Unlisted(&'a Server<Res>, Arc<str>),
}

impl<Res> Target<'_, Res> {
    fn identity(self) -> Identity {
        match self {
            Self::Local(local) => local.identity.clone(),
            Self::Listed(server, tool) => {
                let replay = server.tools.replay_safety(&tool);
                let known = server.known.get(&tool).cloned();
                let identity = known.unwrap_or_else(|| server.identity(tool));
                identity.with_replay_safety(replay)
            }
            Self::Unlisted(server, tool) => Self::Listed(server, tool).identity().unlisted(),
        }
    }
}

impl<Res> Table<Res> {
    /// Returns the tool of the router's server that the call names; otherwise the tool's name
    /// decides.
    pub(super) fn find(&self, call: &ToolCall) -> Option<Target<'_, Res>> {
        let (name, is_resolved) = (call.tool(), call.is_resolved());
        match call.named_server().map(|server| self.servers.get(server)) {
            Some(Some(server)) => {
                // A resolved call has the tool's own name, even if that looks like a flat one.
                let part = server.part_of(name).filter(|_| !is_resolved);
                let found = server.listed(name).or_else(|| server.listed(part?));
                found.or_else(|| server.unlisted(part.unwrap_or(name)))
            }
            Some(None) if is_resolved => None,
            _ => self.by_name(name).or_else(|| {
                let (server, tool) = self.split(name).filter(|_| !is_resolved)?;
                server.unlisted(tool)
            }),
        }
    }

    /// Returns the identity of the tool that the call is for, if tool and server exist.
    pub(super) fn resolve(&self, call: &ToolCall) -> Option<Identity> {
        let is_server = |server| self.servers.contains_key(server);
        let found = call.named_server().is_none_or(is_server);
        found.then(|| self.find(call))?.map(Target::identity)
    }

    /// Returns all tools, if each server's list was read.
    pub(super) fn identities(&self) -> Option<Vec<Identity>> {
        let locals = self.local.values().map(|local| local.identity.clone());
        let mut all: Vec<_> = locals.collect();
        for server in self.servers.values() {
            if !server.tools.is_read() {
                return None;
            }
            let _ = server.tools.try_each(&mut |tool| {
                all.push(server.identity(Arc::clone(tool)));
                ControlFlow::Continue(())
            });
        }
        Some(all)
    }

    pub(super) fn replay_safety(&self, call: &ToolCall) -> ReplaySafety {
        let identity = self.find(call).map(Target::identity);
        identity.map_or(ReplaySafety::Unknown, |identity| identity.replay_safety())
    }

    /// Server and tool of a flat name.
    pub(super) fn split<'n>(&self, name: &'n str) -> Option<(&Server<Res>, &'n str)> {
        let (server, tool) = names::split(name, &self.separator)?;
        Some((self.servers.get(server)?, tool))
    }

    fn by_name(&self, name: &str) -> Option<Target<'_, Res>> {
        if let Some(local) = self.local.get(name) {
            return Some(Target::Local(local));
        }
        let (server, tool) = self.split(name)?;
        server.listed(tool)
    }

    pub(super) fn definition(&self, name: &str) -> Option<Definition> {
        let (server, tool) = match self.by_name(name)? {
            Target::Local(_) => {
                let place = self.described.binary_search_by(|of| of.name().cmp(name));
                return Some(self.described[place.ok()?].clone());
            }
            Target::Listed(server, tool) | Target::Unlisted(server, tool) => (server, tool),
        };
        let tools = server.present()?;
        let definition = tools.definition(&tool)?;
        let definition = definition.with_replay_safety(tools.replay_safety(&tool));
        Some(definition.renamed(name.to_owned()))
    }

    /// Calls `f` with the flat name, the server and the own name of each server's tool that can be
    /// called, until it breaks.
    pub(super) fn try_each_remote(
        &self,
        mut f: impl FnMut(String, &str, &str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.servers.values().try_for_each(|server| {
            let Some(tools) = server.present() else {
                return ControlFlow::Continue(());
            };
            tools.try_each(&mut |tool| match server.is_callable(tool) {
                true => f(server.flat(tool), &server.name, tool),
                false => ControlFlow::Continue(()),
            })
        })
    }

    /// Offers the tools, the local ones first, and those of the very name asked for before all
    /// others, until the search is exhausted.
    pub(super) fn search(&self, nearest: &mut Nearest<'_>) -> ControlFlow<()> {
        let mut locals = self.local.keys();
        locals.try_for_each(|name| nearest.offer_local(name))?;
        let bare = nearest.bare();
        for server in self.servers.values() {
            match server.listed(bare) {
                Some(_) if !server.is_away() => nearest.offer(&server.flat(bare), bare)?,
                _ => nearest.skip()?,
            }
        }
        self.try_each_remote(|flat, _, bare| nearest.offer(&flat, bare))
    }

    /// Returns whether a call of this name alone finds a tool, at a server that is there.
    pub(super) fn has(&self, name: &str) -> bool {
        match self.by_name(name) {
            Some(Target::Listed(server, _)) => !server.is_away(),
            found => found.is_some(),
        }
    }

    /// Returns the flat name of the tool that the caller of an unknown tool may have meant.
    pub(super) fn asked(&self, server: Option<&str>, name: &str) -> String {
        match server.and_then(|server| self.servers.get(server)) {
            Some(server) if server.part_of(name).is_none() => server.flat(name),
            _ => name.to_owned(),
        }
    }
}

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

    /// Returns the error of a call of a tool that does not exist.
    pub(super) fn not_found(&self) -> ToolError {
        ToolError::refusal(ErrorKind::NotFound, "").for_call(&self.call)
    }

    /// Returns the error with names that the caller can call, if it is a router's refusal of a
    /// name: ours, or that of one below.
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
