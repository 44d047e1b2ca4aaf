use std::{collections::HashMap, ops::ControlFlow, sync::Arc};

use super::{ToolList, names, nearest::Nearest, route::Route};
#[cfg(feature = "mcp")]
use crate::edge::mcp::Catalog;
use crate::{
    call::{CallInfo, Identity, MAX_NAME_BYTES, ReplaySafety, ToolCall},
    edge::health::{Health, named},
};

pub(super) type BoxRoute<Res> = Box<dyn Route<Res>>;

/// All names, and what is behind them.
pub(super) struct Table<Res> {
    pub(super) separator: Arc<str>,
    pub(super) local: HashMap<Arc<str>, Local<Res>>,
    pub(super) servers: HashMap<Arc<str>, Server<Res>>,
    /// Of local tools, as far as they have one.
    #[cfg(feature = "mcp")]
    pub(super) definitions: Catalog,
}

pub(super) struct Local<Res> {
    pub(super) route: BoxRoute<Res>,
    pub(super) identity: Identity,
}

pub(super) struct Server<Res> {
    pub(super) route: BoxRoute<Res>,
    pub(super) tools: ToolList,
    /// What is known before a list is read: of tools in a fixed list, and of those with a timeout.
    pub(super) known: HashMap<Arc<str>, Identity>,
    pub(super) watched: Option<Watched>,
}

/// Who knows whether a server is there, and what to ask for.
pub(super) struct Watched {
    health: Health,
    server: CallInfo,
}

impl Watched {
    pub(super) fn new(health: &Health, server: &str, tools: &ToolList) -> Self {
        let watched = Self {
            health: health.clone(),
            server: named(server),
        };
        // Whoever looks at the registry sees the servers of which no call has told yet.
        let tools = tools.clone();
        watched.health.add(&watched.server, move || tools.len() > 1);
        watched
    }
}

impl<Res> Server<Res> {
    /// Whether its calls are refused now: then no list has its tools.
    pub(super) fn is_away(&self) -> bool {
        let watched = self.watched.as_ref();
        watched.is_some_and(|w| w.health.is_refusing(&w.server))
    }

    /// Its tools, as far as calls may have them.
    pub(super) fn present(&self) -> Option<&ToolList> {
        (!self.is_away()).then_some(&self.tools)
    }
}

/// The identity of a server's tool.
pub(super) fn identity(server: &Arc<str>, separator: &Arc<str>, tool: Arc<str>) -> Identity {
    let identity = Identity::new(tool).with_server(Arc::clone(server));
    identity.with_separator(Arc::clone(separator))
}

/// Whom a call is for.
pub(super) enum Target<'a, Res> {
    Local(&'a Local<Res>),
    Server {
        there: &'a Server<Res>,
        server: &'a Arc<str>,
        tool: Arc<str>,
        /// False if nobody can tell whether there is such a tool: the list was not read yet.
        is_listed: bool,
    },
}

impl<Res> Table<Res> {
    /// A server of ours that the call names; else the name of the tool decides.
    pub(super) fn find(&self, call: &ToolCall) -> Option<Target<'_, Res>> {
        let name = call.tool();
        match call.named_server() {
            Some(server) if self.servers.contains_key(server) => {
                // A resolved call has the tool's own name, whatever it looks like.
                let part = self.part_of(server, name).filter(|_| !call.is_resolved());
                let found = self.at(server, name).or_else(|| self.at(server, part?));
                found.or_else(|| self.unlisted(server, part.unwrap_or(name)))
            }
            // Of a server that is not here.
            Some(_) if call.is_resolved() => None,
            _ => self.by_name(name).or_else(|| {
                let flat = (!call.is_resolved()).then_some(name)?;
                let (server, tool) = names::split(flat, &self.separator)?;
                self.unlisted(server, tool)
            }),
        }
    }

    /// Whom the call is for, of tools that exist at servers that exist.
    pub(super) fn resolve(&self, call: &ToolCall) -> Option<Identity> {
        let is_server = |server| self.servers.contains_key(server);
        if !call.named_server().is_none_or(is_server) {
            return None;
        }
        Some(match self.find(call)? {
            Target::Local(local) => local
                .identity
                .clone()
                .with_replay_safety(self.replay_safety(call)),
            Target::Server {
                there,
                server,
                tool,
                is_listed,
            } => {
                let replay = there.tools.replay_safety(&tool);
                let known = there.known.get(&tool).cloned();
                let identity = known.unwrap_or_else(|| self.identity(server, tool));
                let identity = identity.with_replay_safety(replay);
                match is_listed {
                    true => identity,
                    false => identity.unlisted(),
                }
            }
        })
    }

    fn identity(&self, server: &Arc<str>, tool: Arc<str>) -> Identity {
        identity(server, &self.separator, tool)
    }

    fn by_name(&self, name: &str) -> Option<Target<'_, Res>> {
        if let Some(local) = self.local.get(name) {
            return Some(Target::Local(local));
        }
        let (server, tool) = names::split(name, &self.separator)?;
        self.at(server, tool)
    }

    #[cfg(feature = "mcp")]
    pub(super) fn definition(&self, name: &str) -> Option<rmcp::model::Tool> {
        match self.by_name(name)? {
            Target::Local(_) => self.definitions.get(name).cloned(),
            Target::Server { there, tool, .. } => {
                let tools = there.present()?;
                let mut definition = tools.catalog()?.get(&tool).cloned()?;
                definition.name = name.to_owned().into();
                Some(definition)
            }
        }
    }

    fn at(&self, server: &str, tool: &str) -> Option<Target<'_, Res>> {
        let (server, there) = self.servers.get_key_value(server)?;
        if !self.is_callable(server, tool) {
            return None;
        }
        Some(Target::Server {
            tool: there.tools.find(tool)?,
            there,
            server,
            is_listed: true,
        })
    }

    /// A tool of a server whose list was not read yet: it may have it.
    fn unlisted(&self, server: &str, tool: &str) -> Option<Target<'_, Res>> {
        let (server, there) = self.servers.get_key_value(server)?;
        if there.tools.is_read() || !self.is_callable(server, tool) {
            return None;
        }
        Some(Target::Server {
            tool: tool.into(),
            there,
            server,
            is_listed: false,
        })
    }

    /// Whether a call can have the flat name of a server's tool: what a server lists is not checked before.
    pub(super) fn is_callable(&self, server: &str, tool: &str) -> bool {
        let flat = server.len() + self.separator.len() + tool.len();
        flat <= MAX_NAME_BYTES && !tool.is_empty() && !tool.chars().any(char::is_control)
    }

    /// The tool's own part of a flat name of this server.
    fn part_of<'n>(&self, server: &str, name: &'n str) -> Option<&'n str> {
        let (own, tool) = names::split(name, &self.separator)?;
        (own == server).then_some(tool)
    }

    pub(super) fn replay_safety(&self, call: &ToolCall) -> ReplaySafety {
        match self.find(call) {
            Some(Target::Server { there, tool, .. }) => there.tools.replay_safety(&tool),
            #[cfg(feature = "mcp")]
            Some(Target::Local(_)) => self.definitions.replay_safety(call.tool()),
            _ => ReplaySafety::Unknown,
        }
    }

    /// Shows each tool that can be called: its flat name.
    pub(super) fn for_each(&self, mut f: impl FnMut(&str)) {
        self.local.keys().for_each(|name| f(name));
        let _ = self.try_for_each_remote(|flat, _| {
            f(flat);
            ControlFlow::Continue(())
        });
    }

    fn try_for_each_remote(
        &self,
        mut f: impl FnMut(&str, &str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut flat = String::new();
        for (server, there) in &self.servers {
            let Some(tools) = there.present() else {
                continue;
            };
            flat.clear();
            flat.push_str(server);
            flat.push_str(&self.separator);
            let start = flat.len();
            tools.try_for_each(|tool| {
                if !self.is_callable(server, tool) {
                    return ControlFlow::Continue(());
                }
                flat.truncate(start);
                flat.push_str(tool);
                f(&flat, tool)
            })?;
        }
        ControlFlow::Continue(())
    }

    /// Offers the tools, the local ones first, and those of the very name asked for before all others, until the
    /// searcher has had enough.
    pub(super) fn search(&self, nearest: &mut Nearest<'_>) {
        let _: ControlFlow<()> = (|| {
            let mut locals = self.local.keys();
            locals.try_for_each(|name| nearest.offer_local(name))?;
            let bare = nearest.bare().to_owned();
            self.servers
                .iter()
                .try_for_each(|(server, there)| match self.at(server, &bare) {
                    Some(_) if !there.is_away() => {
                        let flat = names::flat(server, &self.separator, &bare);
                        nearest.offer(&flat, &bare)
                    }
                    _ => nearest.skip(),
                })?;
            self.try_for_each_remote(|flat, bare| nearest.offer(flat, bare))
        })();
    }

    /// Whether a call of this name alone finds a tool, at a server that is there.
    pub(super) fn has(&self, name: &str) -> bool {
        match self.by_name(name) {
            Some(Target::Server { there, .. }) => !there.is_away(),
            found => found.is_some(),
        }
    }

    /// What the caller of a tool that is not there may have meant, as a flat name.
    pub(super) fn asked(&self, server: Option<&str>, name: &str) -> String {
        match server {
            Some(server)
                if self.servers.contains_key(server) && self.part_of(server, name).is_none() =>
            {
                names::flat(server, &self.separator, name)
            }
            _ => name.to_owned(),
        }
    }

    /// The tool's own part of a flat name, or the whole.
    pub(super) fn bare<'n>(&self, flat: &'n str) -> &'n str {
        names::split(flat, &self.separator).map_or(flat, |(_, tool)| tool)
    }
}
