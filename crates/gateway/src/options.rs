//! The settings of the gateway beside those of its layers.

use super::hosts::LOOPBACK;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
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
    /// Calls whose bodies are being read count as well. Others are refused with 503, before their
    /// bodies are read. A call takes up to 13 MB beside its strings.
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
            port: 8931,
            hosts: Vec::new(),
            sessions: 1000,
            calls: 100,
            grace: 10,
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
