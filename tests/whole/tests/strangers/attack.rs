//! What strangers do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use reqwest::{Client, header::CONTENT_TYPE};
use rmcp::{
    ServiceExt as _, model::CallToolRequestParams, transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::gateway::Gateway;

/// What tools say in the middle of their work, and pages to those who read them.
const TEXTS: &str = include_str!("../stacks/evidence/texts.txt");

pub(crate) struct Strangers {
    ends: Arc<AtomicBool>,
    attacks: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Strangers {
    /// Ends them, as soon as there were so many attacks.
    pub(crate) async fn end_after(self, attacks: usize) -> usize {
        while self.attacks.load(SeqCst) < attacks {
            sleep(Duration::from_millis(20)).await;
        }
        self.end().await
    }

    pub(crate) async fn end(self) -> usize {
        self.ends.store(true, SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.attacks.load(SeqCst)
    }
}

pub(crate) fn begin(gateway: &Gateway) -> Strangers {
    let (ends, attacks) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let stranger = |n| Stranger {
        base: gateway.url(""),
        client: Client::new(),
        random: 0x9e37_79b9_7f4a_7c15 ^ n,
        ends: Arc::clone(&ends),
        attacks: Arc::clone(&attacks),
    };
    let over_http = (0..6u64).map(|n| tokio::spawn(stranger(n).attacks_over_http()));
    let over_mcp = (6..8u64).map(|n| tokio::spawn(stranger(n).attacks_over_mcp()));
    Strangers {
        tasks: over_http.chain(over_mcp).collect(),
        ends: Arc::clone(&ends),
        attacks: Arc::clone(&attacks),
    }
}

struct Stranger {
    base: String,
    client: Client,
    random: u64,
    ends: Arc<AtomicBool>,
    attacks: Arc<AtomicUsize>,
}

impl Stranger {
    /// xorshift, so that a run is repeated by the next.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next() as usize % of.len()]
    }

    fn text(&mut self) -> &'static str {
        let texts: Vec<_> = TEXTS.lines().collect();
        self.pick(&texts)
    }

    /// A name of a tool, spelled and misspelled.
    fn name(&mut self) -> String {
        let n = self.next() % 1_000_000;
        match n % 6 {
            0 => format!("invented{n}"),
            1 => format!("docs__invented{n}"),
            2 => format!("invented{n}__search"),
            3 => "docs__search".to_owned(),
            4 => "echo".to_owned(),
            _ => "Search".to_owned(),
        }
    }

    async fn post(&self, path: &str, body: Value, ms: Option<u64>, patience: Duration) {
        let url = format!("{}{path}", self.base);
        let mut request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json");
        if let Some(ms) = ms {
            request = request.header("x-envoy-expected-rq-timeout-ms", ms.to_string());
        }
        // Whoever has no more patience hangs up.
        let _ = timeout(patience, request.body(body.to_string()).send()).await;
    }

    async fn attacks_over_http(mut self) {
        const LONG: Duration = Duration::from_secs(5);
        while !self.ends.load(SeqCst) {
            let (name, text, n) = (self.name(), self.text(), self.next() % 1_000_000);
            let tool = self.pick(&["search", "slow", "docs__nap", "docs__echo"]);
            let query = json!({ "query": text });
            match self.next() % 8 {
                0 => {
                    self.post(&format!("/tools/{name}/call"), query, None, LONG)
                        .await
                }
                1 => {
                    let path = format!("/servers/invented{n}/tools/{tool}/call");
                    self.post(&path, query, None, LONG).await;
                }
                2 => {
                    let one = |server: Value| {
                        let params = json!({ "name": name, "server": server, "arguments": query });
                        json!({ "jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params })
                    };
                    let server = format!("invented{n}");
                    let batch = json!([one(json!(server)), one(json!("docs")), one(Value::Null)]);
                    self.post("/rpc", batch, None, LONG).await;
                }
                // No time for a tool that takes 60 ms.
                3 => {
                    let (path, ms) = (format!("/tools/{tool}/call"), 501 + n % 40);
                    self.post(&path, query, Some(ms.min(540)), LONG).await;
                    self.post("/tools/slow/call", json!({}), Some(1 + n % 50), LONG)
                        .await;
                }
                // Hangs up.
                4 => {
                    let patience = Duration::from_millis(1 + n % 40);
                    self.post(&format!("/tools/{tool}/call"), query, None, patience)
                        .await;
                    self.post("/tools/slow/call", json!({}), None, patience)
                        .await;
                }
                5 => self.post("/tools/report/call", query, None, LONG).await,
                6 => self.post("/tools/docs__flag/call", query, None, LONG).await,
                // Wrong arguments.
                _ => {
                    let wrong = json!({ "query": { "query": [n, null] }, "other": text });
                    self.post("/tools/search/call", wrong, None, LONG).await;
                }
            }
            self.attacks.fetch_add(1, SeqCst);
            sleep(Duration::from_millis(4)).await;
        }
    }

    async fn attacks_over_mcp(mut self) {
        let transport = StreamableHttpClientTransport::from_uri(format!("{}/mcp", self.base));
        let client = ().serve(transport).await.unwrap();
        while !self.ends.load(SeqCst) {
            let invented = self.name();
            let tool = match self.next() % 4 {
                0 => invented.as_str(),
                1 => "docs__flag",
                2 => "docs__nap",
                _ => "report",
            };
            let mut params = CallToolRequestParams::new(tool.to_owned());
            params.arguments = json!({ "query": self.text() }).as_object().cloned();
            let patience = Duration::from_millis(1 + self.next() % 100);
            let _ = timeout(patience, client.peer().call_tool_once(params)).await;
            self.attacks.fetch_add(1, SeqCst);
            sleep(Duration::from_millis(4)).await;
        }
        let _ = client.cancel().await;
    }
}
