//! The MCP server: honest tools, each with one trait.

use std::time::Duration;

use rmcp::{
    RoleServer, ServerHandler,
    handler::server::wrapper::Parameters,
    model::{
        CallToolResult, ContentBlock, ProgressNotificationParam, ServerCapabilities, ServerConfig,
    },
    schemars::{self, JsonSchema},
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use serde::Deserialize;
use tokio::time::sleep;

use crate::show::Show;

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) show: Show,
}

#[derive(Deserialize, JsonSchema)]
struct SignIn {
    user: String,
    password: String,
}

#[derive(Deserialize, JsonSchema)]
struct Weather {
    city: String,
}

#[derive(Deserialize, JsonSchema)]
struct Table {
    people: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Archive {
    /// How many years to go back.
    years: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Guests {
    rows: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Report {
    name: String,
}

fn failed(text: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

#[tool_router]
impl Server {
    #[tool(description = "Signs a user in")]
    async fn sign_in(&self, Parameters(SignIn { user, password }): Parameters<SignIn>) -> String {
        let length = password.len();
        format!("{user} is signed in (the tool got all {length} characters)")
    }

    #[tool(
        description = "The weather in a city",
        annotations(read_only_hint = true)
    )]
    async fn weather(&self, Parameters(Weather { city }): Parameters<Weather>) -> String {
        format!("{city}: 12 degrees, clear sky")
    }

    #[tool(description = "Books a table")]
    async fn book_table(&self, Parameters(Table { people }): Parameters<Table>) -> CallToolResult {
        if people > 12 {
            return failed(format!(
                "no table for {people} people; the largest is for 12"
            ));
        }
        let text = format!("a table for {people} is booked");
        CallToolResult::success(vec![ContentBlock::text(text)])
    }

    #[tool(description = "Searches the archive of letters")]
    async fn search_archive(
        &self,
        Parameters(Archive { years }): Parameters<Archive>,
        cx: RequestContext<RoleServer>,
    ) -> String {
        if years > 5 {
            tokio::select! {
                () = cx.ct.cancelled() => {
                    self.show.line("server", "search_archive", "is told to stop, and stops");
                }
                () = sleep(Duration::from_secs(60)) => {}
            }
        }
        format!("3 letters of the last {years} years")
    }

    #[tool(description = "Imports the list of guests, row by row")]
    async fn import_guests(
        &self,
        Parameters(Guests { rows }): Parameters<Guests>,
        cx: RequestContext<RoleServer>,
    ) -> String {
        for step in 1..=5 {
            sleep(Duration::from_millis(400)).await;
            if let Some(token) = cx.meta.get_progress_token() {
                let report = ProgressNotificationParam::new(token, f64::from(step));
                let _ = cx.peer.notify_progress(report).await;
            }
        }
        format!("{rows} guests are imported")
    }

    #[tool(
        description = "Opens a report: Q1, Q2, Q3 or Q4",
        annotations(read_only_hint = true)
    )]
    async fn open_report(&self, Parameters(Report { name }): Parameters<Report>) -> CallToolResult {
        match name.as_str() {
            "Q1" => CallToolResult::success(vec![ContentBlock::text("Q1: all is well")]),
            _ => failed(format!("report {name} is locked")),
        }
    }
}

#[tool_handler]
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}
