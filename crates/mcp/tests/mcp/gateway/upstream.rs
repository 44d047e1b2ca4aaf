//! A server with one tool for each way a call can go, and what it has seen.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode,
        ErrorData, InputRequiredResult, ListToolsResult, MetaObject, PaginatedRequestParams,
        ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
    },
    service::{Peer, RequestContext},
};
use serde_json::{Map, Value, json};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

#[derive(Clone)]
pub(crate) struct Upstream {
    /// What calls have brought along.
    metas: Arc<Mutex<Vec<Map<String, Value>>>>,
    pub(crate) tools: Arc<Mutex<Vec<&'static str>>>,
    peers: Arc<Mutex<Vec<Peer<RoleServer>>>>,
    begun: Count,
    cancelled: Count,
    /// Lets one `wait` go on.
    pub(crate) go: Arc<Notify>,
}

/// A number that can be waited for.
#[derive(Clone, Default)]
struct Count(Arc<(AtomicUsize, Notify)>);

impl Count {
    fn add(&self) {
        self.0.0.fetch_add(1, SeqCst);
        self.0.1.notify_waiters();
    }

    async fn until(&self, n: usize) {
        let reached = async {
            loop {
                let more = self.0.1.notified();
                if self.0.0.load(SeqCst) >= n {
                    return;
                }
                more.await;
            }
        };
        let in_time = timeout(Duration::from_secs(60), reached).await;
        in_time.unwrap_or_else(|_| panic!("{} of {n}", self.0.0.load(SeqCst)));
    }
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            metas: Arc::default(),
            tools: Arc::new(Mutex::new(TOOLS.to_vec())),
            peers: Arc::default(),
            begun: Count::default(),
            cancelled: Count::default(),
            go: Arc::default(),
        }
    }
}

const TOOLS: &[&str] = &[
    "ask",
    "broken",
    "coded",
    "echo",
    "flagged",
    "flood",
    "hang",
    "invalid",
    "mixed",
    "pause",
    "steps",
    "structured",
    "wait",
];

impl Upstream {
    /// Calls that were begun.
    pub(crate) fn begun(&self) -> usize {
        self.begun.0.0.load(SeqCst)
    }

    pub(crate) async fn until_begun(&self, n: usize) {
        self.begun.until(n).await;
    }

    /// Calls that have learned that nobody waits for them any more.
    pub(crate) fn cancelled(&self) -> usize {
        self.cancelled.0.0.load(SeqCst)
    }

    pub(crate) async fn until_cancelled(&self, n: usize) {
        self.cancelled.until(n).await;
    }

    /// The `_meta` of the last call.
    pub(crate) fn meta(&self) -> Map<String, Value> {
        self.metas.lock().unwrap().last().unwrap().clone()
    }

    /// Has other tools from now on, and says so.
    pub(crate) async fn change(&self, tools: &[&'static str]) {
        *self.tools.lock().unwrap() = tools.to_vec();
        let peers = self.peers.lock().unwrap().clone();
        for peer in peers {
            peer.notify_tool_list_changed().await.unwrap();
        }
    }

    async fn run(
        &self,
        params: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = |s: &str| Ok(CallToolResult::success(vec![ContentBlock::text(s)]).into());
        match &*params.name {
            "echo" => text(&Value::from(params.arguments.unwrap_or_default()).to_string()),
            "structured" => Ok(CallToolResult::structured(json!({ "sum": [3, null] })).into()),
            "mixed" => {
                let blocks = vec![
                    ContentBlock::text("a\u{0}§"),
                    ContentBlock::image("aGk=", "image/png"),
                ];
                let mut result = CallToolResult::success(blocks);
                let mut meta = MetaObject::default();
                meta.0
                    .insert("com.example/n".into(), json!({ "deep": [1.5] }));
                result.meta = Some(meta);
                Ok(result.into())
            }
            "flagged" => Ok(CallToolResult::error(vec![ContentBlock::text("no such city")]).into()),
            "hang" => {
                cx.ct.cancelled().await;
                self.cancelled.add();
                text("cancelled")
            }
            "pause" => {
                sleep(Duration::from_millis(30)).await;
                text("rested")
            }
            "wait" => {
                self.go.notified().await;
                text(&Value::from(params.arguments.unwrap_or_default()).to_string())
            }
            "steps" => {
                let token = cx.meta.get_progress_token().expect("a progress token");
                for step in [1.0, 3.0, 2.0, 4.0] {
                    let told = ProgressNotificationParam::new(token.clone(), step)
                        .with_total(4.0)
                        .with_message("at work");
                    let _ = cx.peer.notify_progress(told).await;
                    sleep(Duration::from_millis(250)).await;
                }
                text("done")
            }
            "flood" => {
                let token = cx.meta.get_progress_token().expect("a progress token");
                for step in 1..=10_000 {
                    let told = ProgressNotificationParam::new(token.clone(), step.into());
                    let _ = cx.peer.notify_progress(told).await;
                }
                text("done")
            }
            "ask" => match params.request_state.as_deref() {
                Some("§state") => text(&json!(params.input_responses).to_string()),
                _ => Ok(CallToolResponse::InputRequired(
                    InputRequiredResult::from_request_state("§state"),
                )),
            },
            "invalid" => Err(ErrorData::invalid_params("missing field `city`", None)),
            "coded" => Err(ErrorData::new(
                ErrorCode(4711),
                "out of paper",
                Some(json!({ "tray": 2 })),
            )),
            "mismatch" => Err(ErrorData::new(ErrorCode(-32022), "who are you", None)),
            "broken" => Err(ErrorData::internal_error("the database is on fire", None)),
            _ => Err(ErrorData::invalid_params("tool not found", None)),
        }
    }
}

impl ServerHandler for Upstream {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder().enable_tools();
        ServerConfig::new(can.enable_tool_list_changed().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        cx: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.peers.lock().unwrap().push(cx.peer);
        let tools = self.tools.lock().unwrap().clone();
        let tools = tools.into_iter();
        let tools = tools.map(|name| Tool::new(name, "A tool.", Arc::default()));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.metas.lock().unwrap().push(cx.meta.0.0.clone());
        self.begun.add();
        self.run(params, cx).await
    }
}
