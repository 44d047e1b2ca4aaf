//! A gateway that runs.

use std::{fs, net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    runtime::Handle,
    sync::{
        RwLock, RwLockReadGuard, RwLockWriteGuard,
        mpsc::{UnboundedSender, unbounded_channel},
    },
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tower_toolcall::settings::Settings;
use tower_toolcall_mcp::McpServer;

use crate::{current::Plan, gateway::Gateway, options::Options, upstream::Server};

/// The longest wait for anything. It only ends a test that hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

static TESTS: RwLock<()> = RwLock::const_new(());

/// No other test at a time: files, memory and child processes are counted for the whole process.
pub(crate) async fn alone() -> RwLockWriteGuard<'static, ()> {
    TESTS.write().await
}

/// Beside other tests that count nothing.
pub(crate) async fn beside() -> RwLockReadGuard<'static, ()> {
    TESTS.read().await
}

/// The program without a configuration.
pub(crate) async fn demo(settings: Settings) -> Gateway {
    of_servers(settings, Server::installed().unwrap()).await
}

/// The program with the local tool and these servers.
pub(crate) async fn of_servers(settings: Settings, servers: Vec<Server>) -> Gateway {
    let plan = Plan {
        settings,
        servers,
        has_local_tool: true,
        ..Plan::default()
    };
    Gateway::start(Options::default(), plan).await.unwrap()
}

pub(crate) struct Running {
    pub(crate) at: SocketAddr,
    pub(crate) upstreams: Vec<McpServer>,
    signals: UnboundedSender<()>,
    served: JoinHandle<anyhow::Result<Vec<String>>>,
}

impl Running {
    pub(crate) async fn start(settings: Settings) -> Self {
        Self::serve(demo(settings).await).await
    }

    /// With all its servers there: on a busy machine some need long to start.
    pub(crate) async fn serve(gateway: Gateway) -> Self {
        let running = Self::with_any(gateway).await;
        let since = Instant::now();
        let is_there = |server: &McpServer| server.connection().is_connected();
        while !running.upstreams.iter().all(is_there) {
            assert!(since.elapsed() < 5 * LIMIT, "a server does not start");
            sleep(Duration::from_millis(20)).await;
        }
        running
    }

    /// With those servers that are there.
    pub(crate) async fn with_any(gateway: Gateway) -> Self {
        let upstreams = gateway.upstreams();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (signals, received) = unbounded_channel();
        let served = tokio::spawn(gateway.serve(listener, received));
        Self {
            at,
            upstreams,
            signals,
            served,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    pub(crate) fn upstream(&self, name: &str) -> &McpServer {
        let mut all = self.upstreams.iter();
        all.find(|server| **server.name() == *name).unwrap()
    }

    /// As Ctrl-C does.
    pub(crate) fn stop(&self) {
        self.signals.send(()).unwrap();
    }

    /// Waits until all is over; the tools of the calls that were cut short.
    pub(crate) async fn ended(self) -> Vec<String> {
        let ended = timeout(LIMIT, self.served).await;
        ended.expect("it does not stop").unwrap().unwrap()
    }

    pub(crate) async fn stopped(self) {
        self.stop();
        assert!(self.ended().await.is_empty());
    }
}

/// Asks for a call by JSON-RPC, and returns the whole answer.
pub(crate) async fn rpc(
    client: &reqwest::Client,
    url: &str,
    id: u64,
    tool: &str,
    arguments: &Value,
) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let request = client.post(url).header("content-type", "application/json");
    let request = request.body(body.to_string());
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
}

/// What must not grow.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) tasks: usize,
    pub(crate) resident_kib: u64,
    /// The state of each child process.
    pub(crate) children: Vec<char>,
    /// Open files and sockets.
    pub(crate) files: usize,
}

pub(crate) fn in_use() -> Use {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let own = std::process::id().to_string();
    // `pid (name) state parent ...`, where the name may be anything.
    let child = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let (state, parent) = (fields.next()?, fields.next()?);
        (parent == own).then(|| state.chars().next())?
    };
    Use {
        tasks: Handle::current().metrics().num_alive_tasks(),
        resident_kib: resident
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap(),
        children: fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(child)
            .collect(),
        files: fs::read_dir("/proc/self/fd").unwrap().count(),
    }
}
