//! The settings of the gateway beside those of its layers.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use super::{hosts::LOOPBACK, upstream::Server};

/// The options of the command line. What they do not set is the file's, or a default.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Given {
    /// Takes servers, callers and settings from a TOML file
    ///
    /// `gateway.toml` in the folder of this program's source has every key. Options of the command
    /// line and variables take precedence. SIGHUP reads the file again: servers, callers, settings
    /// and pins change, and running calls end on the old ones. A wrong file changes nothing.
    #[arg(
        long,
        env = "GATEWAY_CONFIG",
        value_name = "FILE",
        verbatim_doc_comment
    )]
    pub(crate) config: Option<PathBuf>,
    /// Prints what would run, without secrets, and ends: with exit code 2 if something is wrong
    #[arg(long)]
    pub(crate) check: bool,
    /// Starts an MCP server that talks over stdin and stdout, and offers its tools as NAME__TOOL
    ///
    /// It may be given several times. Quotes and backslashes in COMMAND are as in a shell, but
    /// there are no variables, pipes, patterns or comments: `files=npx -y SERVER "/my files"`. The
    /// server has the environment and the directory of the gateway. Its stderr goes to the log.
    #[arg(long = "server", value_name = "NAME=COMMAND", verbatim_doc_comment)]
    pub(crate) servers: Vec<Server>,
    /// Listens at this port, by default 8931; 0 takes any free one. The address is the file's, or
    /// 127.0.0.1
    #[arg(long, env = "PORT")]
    pub(crate) port: Option<u16>,
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
    /// Keeps at most so many sessions of MCP clients, by default 1000
    #[arg(long, env = "GATEWAY_SESSIONS")]
    pub(crate) sessions: Option<usize>,
    /// Runs at most so many calls at a time, by default 100
    ///
    /// A call counts from the beginning of its body. Further calls are refused with 503, before
    /// their bodies are read. A call takes up to 13 MB beside its strings.
    #[arg(
        long,
        env = "GATEWAY_CALLS",
        value_parser = clap::value_parser!(u32).range(1..),
        verbatim_doc_comment
    )]
    pub(crate) calls: Option<u32>,
    /// Gives calls so many seconds to end when it closes, by default 10
    #[arg(long, env = "GATEWAY_GRACE", value_name = "SECONDS")]
    pub(crate) grace: Option<u64>,
    /// Writes each event as a line of text, or as a JSON object
    #[arg(long, env = "GATEWAY_LOG", value_enum, default_value_t)]
    pub(crate) log: Format,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

/// The settings that hold.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) listen: SocketAddr,
    pub(crate) hosts: Vec<String>,
    /// Whole origins of other sites.
    pub(crate) origins: Vec<String>,
    pub(crate) sessions: usize,
    pub(crate) calls: u32,
    pub(crate) grace: u64,
    /// How long the head of a request may take, and the next request of a connection.
    pub(crate) head: Duration,
    /// How long a body may take.
    pub(crate) body: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            //= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#security--endpoint
            //# When running locally, servers SHOULD bind only to localhost (127.0.0.1) rather than
            //# all network interfaces (0.0.0.0).
            listen: (Ipv4Addr::LOCALHOST, 8931).into(),
            hosts: Vec::new(),
            origins: Vec::new(),
            sessions: 1000,
            calls: 100,
            grace: 10,
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
        }
    }
}

impl Options {
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
