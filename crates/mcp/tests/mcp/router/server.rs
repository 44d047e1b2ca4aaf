//! A real rmcp server whose tools come and go.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use rmcp::{
    Peer, RoleClient, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
        ToolAnnotations,
    },
    service::{RequestContext, RunningService},
};
use tokio::time::sleep;
use tower_toolcall_mcp::{Catalog, McpNotifications, McpService, McpTools};

#[derive(Clone, Default)]
pub(crate) struct Server {
    tools: Arc<Mutex<BTreeSet<String>>>,
    /// How often the first page was asked for.
    pub(crate) listed: Arc<AtomicUsize>,
    /// How many askers there are at once, and were at most.
    asking: Arc<Mutex<(usize, usize)>>,
    pub(crate) calls: Arc<AtomicUsize>,
    /// How long listing takes, in milliseconds; what is listed is what there is at its start.
    pub(crate) slow: Arc<AtomicUsize>,
    pub(crate) refuses: Arc<AtomicBool>,
    /// How often it tells of a change when it is asked.
    pub(crate) tells: Arc<AtomicUsize>,
    /// What it lists in the place of its tools, page by page.
    pub(crate) pages: Arc<Mutex<Vec<ListToolsResult>>>,
}

impl Server {
    pub(crate) fn with(tools: &[&str]) -> Self {
        let server = Self::default();
        tools.iter().for_each(|tool| server.add(tool));
        server
    }

    pub(crate) fn add(&self, tool: &str) {
        self.tools.lock().unwrap().insert(tool.to_owned());
    }

    pub(crate) fn remove(&self, tool: &str) {
        self.tools.lock().unwrap().remove(tool);
    }

    pub(crate) fn most_askers(&self) -> usize {
        self.asking.lock().unwrap().1
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder().enable_tools();
        ServerConfig::new(can.enable_tool_list_changed().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.listed.fetch_add(1, SeqCst);
        if self.tells.load(SeqCst) > 0 {
            self.tells.fetch_sub(1, SeqCst);
            context.peer.notify_tool_list_changed().await.unwrap();
        }
        if let Some(page) = self.pages.lock().unwrap().pop() {
            return Ok(page);
        }
        let names = self.tools.lock().unwrap().clone();
        {
            let mut asking = self.asking.lock().unwrap();
            asking.0 += 1;
            asking.1 = asking.1.max(asking.0);
        }
        sleep(Duration::from_millis(self.slow.load(SeqCst) as u64)).await;
        self.asking.lock().unwrap().0 -= 1;
        if self.refuses.load(SeqCst) {
            let text = "no list today: password=hunter2";
            return Err(ErrorData::internal_error(text, None));
        }
        let tools = names.into_iter().map(tool).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let nth = self.calls.fetch_add(1, SeqCst);
        if !self.tools.lock().unwrap().contains(&*call.name) {
            return Err(ErrorData::invalid_params("tool not found", None));
        }
        match &*call.name {
            "flaky_read" | "flaky_pay" if nth == 0 => {
                Err(ErrorData::internal_error("on fire", None))
            }
            "hang" => std::future::pending().await,
            name => {
                let text = ContentBlock::text(format!("{name} done"));
                Ok(CallToolResult::success(vec![text]).into())
            }
        }
    }
}

/// What its name ends with says whether it only reads.
fn tool(name: String) -> Tool {
    let annotations = ToolAnnotations::new();
    let annotations = match name.ends_with("read") {
        true => annotations.read_only(true),
        false => annotations.destructive(true),
    };
    let mut tool = Tool::new(name, "a tool", Arc::default());
    tool.annotations = Some(annotations);
    tool
}

/// Both ends of a connection, and the list that follows the server.
pub(crate) struct Connection {
    pub(crate) server: RunningService<RoleServer, Server>,
    pub(crate) client: RunningService<RoleClient, McpNotifications>,
    pub(crate) tools: McpTools,
}

impl Connection {
    /// Connected, and listed once. The server is trusted.
    pub(crate) async fn to(server: Server) -> Self {
        let settings = Catalog::default().trust_annotations(true);
        let tools = McpTools::new(settings.with_server("docs"));
        let connection = Self::sharing(server, tools).await;
        let listed = connection.tools.refresh(connection.peer()).await;
        listed.unwrap();
        connection
    }

    /// Connected, with the list of another one.
    pub(crate) async fn sharing(server: Server, tools: McpTools) -> Self {
        let listens = McpNotifications::new().with_tools(tools);
        let (theirs, ours) = tokio::io::duplex(64 * 1024);
        let (server, client) = tokio::join!(server.serve(theirs), listens.clone().serve(ours));
        Self {
            server: server.unwrap(),
            client: client.unwrap(),
            tools: listens.tools().clone(),
        }
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.client.peer()
    }

    pub(crate) fn service(&self) -> McpService {
        McpService::new(self.peer().clone())
    }

    /// The server says that its tools have changed; and time for all that follows.
    pub(crate) async fn changed(&self) {
        self.announce().await;
        settle().await;
    }

    pub(crate) async fn announce(&self) {
        let said = self.server.peer().notify_tool_list_changed().await;
        said.unwrap();
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let catalog = self.tools.catalog();
        let mut names: Vec<_> = catalog.tools().map(|tool| tool.name.to_string()).collect();
        names.sort_unstable();
        names
    }
}

/// A page of a list.
pub(crate) fn page(tools: Vec<Tool>, next: Option<&str>) -> ListToolsResult {
    let mut page = ListToolsResult::with_all_items(tools);
    page.next_cursor = next.map(str::to_owned);
    page
}

/// Time for everything that is under way: it is paused.
pub(crate) async fn settle() {
    sleep(Duration::from_secs(60)).await;
}
