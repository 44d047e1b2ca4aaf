//! A gateway that runs.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Mutex, MutexGuard, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tower_toolcall::settings::Settings;

use crate::{gateway::Gateway, upstream::Upstream};

/// One test at a time: files and child processes are counted for the whole process, and machines are small.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

pub(crate) struct Running {
    pub(crate) at: SocketAddr,
    pub(crate) upstreams: Vec<Upstream>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<std::io::Result<()>>,
}

impl Running {
    pub(crate) async fn start(settings: Settings) -> Self {
        Self::serve(Gateway::start(settings).await.unwrap()).await
    }

    pub(crate) async fn serve(gateway: Gateway) -> Self {
        let upstreams = gateway.upstreams().to_vec();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(gateway.serve(listener, async { drop(stopped.await) }));
        Self {
            at,
            upstreams,
            stop: Some(stop),
            served,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    pub(crate) fn upstream(&self, name: &str) -> &Upstream {
        let mut all = self.upstreams.iter();
        all.find(|server| server.name == name).unwrap()
    }

    /// As Ctrl-C does.
    pub(crate) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits until all is over.
    pub(crate) async fn ended(self) {
        let ended = timeout(Duration::from_secs(20), self.served).await;
        ended.expect("it does not stop").unwrap().unwrap();
    }

    pub(crate) async fn stopped(mut self) {
        self.stop();
        self.ended().await;
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
