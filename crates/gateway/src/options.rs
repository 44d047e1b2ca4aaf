//! The settings of the gateway beside those of its layers.

use std::{collections::HashSet, sync::Arc};

use super::{hosts::LOOPBACK, upstream::Server};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Starts an MCP server that talks over stdin and stdout, and offers its tools as NAME__TOOL
    ///
    /// It may be given several times. Quotes and backslashes in COMMAND are as in a shell, but
    /// there are no variables, pipes, patterns or comments: `files=npx -y SERVER "/my files"`. The
    /// server has the environment and the directory of the gateway. Its stderr goes to the log.
    #[arg(long = "server", value_name = "NAME=COMMAND", verbatim_doc_comment)]
    pub(crate) servers: Vec<Server>,
    /// Listens at this port of 127.0.0.1; 0 takes any free one
    #[arg(long, env = "PORT", default_value_t = Self::default().port)]
    pub(crate) port: u16,
    /// Takes requests that name these hosts in `Host` and `Origin`, beside localhost
    ///
    /// They are separated by commas. `localhost`, `127.0.0.1` and `[::1]` are always taken.
    /// Requests that name other hosts are refused with 403, because pages of foreign sites send
    /// them.
    #[arg(
        long,
        env = "GATEWAY_HOSTS",
        value_delimiter = ',',
        verbatim_doc_comment
    )]
    pub(crate) hosts: Vec<String>,
    /// Keeps at most so many sessions of MCP clients
    #[arg(long, env = "GATEWAY_SESSIONS", default_value_t = Self::default().sessions)]
    pub(crate) sessions: usize,
    /// Runs at most so many calls at a time
    ///
    /// A call counts from the beginning of its body. Further calls are refused with 503, before
    /// their bodies are read. A call takes up to 13 MB beside its strings.
    #[arg(
        long,
        env = "GATEWAY_CALLS",
        default_value_t = Self::default().calls,
        value_parser = clap::value_parser!(u32).range(1..),
        verbatim_doc_comment
    )]
    pub(crate) calls: u32,
    /// Gives calls so many seconds to end when it closes
    #[arg(long, env = "GATEWAY_GRACE", value_name = "SECONDS", default_value_t = Self::default().grace)]
    pub(crate) grace: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            port: 8931,
            hosts: Vec::new(),
            sessions: 1000,
            calls: 100,
            grace: 10,
        }
    }
}

impl Options {
    /// Returns a name that two servers have.
    pub(crate) fn name_used_twice(&self) -> Option<&Arc<str>> {
        let mut seen = HashSet::new();
        let mut names = self.servers.iter().map(|server| &server.name);
        names.find(|name| !seen.insert(*name))
    }

    /// Returns all hosts that requests may name, those of this machine first.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let hosts = self.hosts.iter().map(|host| host.trim());
        let hosts = hosts.filter(|host| !host.is_empty());
        LOOPBACK
            .into_iter()
            .chain(hosts)
            .map(str::to_owned)
            .collect()
    }
}
