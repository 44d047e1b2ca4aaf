//! An agent's tool calls through a stack of layers to a real MCP server in this process.
//!
//! ```text
//! cargo run --features full --example agent
//! ```
//!
//! Each call is shown with what its trace says, how it ended, and what the model would read.

use std::{
    fmt::{self, Write as _},
    io::IsTerminal,
    time::Duration,
};

use rmcp::{
    RoleServer, ServerHandler, ServiceExt as _,
    handler::server::wrapper::Parameters,
    model::{
        CallToolResponse, CallToolResult, ContentBlock, ProgressNotificationParam,
        ServerCapabilities, ServerConfig,
    },
    schemars::{self, JsonSchema},
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::{ServiceBuilder, ServiceExt as _};
use tower_toolcall::{
    ModelText as _, ToolCall, ToolError,
    catch_panic::CatchPanicLayer,
    deadline::DeadlineLayer,
    mcp::{McpHooks, McpProgress, McpService},
    timeout::TimeoutLayer,
    trace::TraceLayer,
};
use tracing_subscriber::{layer::Context, prelude::*, registry::LookupSpan};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let style = Style::detect();
    tracing_subscriber::registry()
        .with(
            ShowTrace { style }.with_filter(tracing_subscriber::filter::filter_fn(|m| {
                m.target() == tower_toolcall::event::TARGET
            })),
        )
        .init();

    // A real MCP server, over a pipe. `McpProgress` brings its progress reports to the calls.
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move { anyhow::Ok(Server { style }.serve(theirs).await?.waiting().await?) });
    let progress = McpProgress::new();
    let client = progress.clone().serve(ours).await?;

    // The stack: read it from the outside in.
    let tools = ServiceBuilder::new()
        .layer(TraceLayer::new().with_hooks(McpHooks::new()))
        .layer(DeadlineLayer::new(Duration::from_secs(10)))
        .layer(
            TimeoutLayer::new(Duration::from_secs(1))
                .with_tool("import_rows", Duration::from_secs(5))
                .with_idle_timeout(Duration::from_millis(800))?,
        )
        .layer(CatchPanicLayer::new())
        .service(
            McpService::new(client.peer().clone())
                .with_server("demo")
                .with_progress(progress),
        );

    println!("An agent calls the tools of an MCP server through");
    println!(
        "  TraceLayer > DeadlineLayer 10 s > TimeoutLayer 1 s (800 ms without progress) > CatchPanicLayer > McpService"
    );

    let spent = ToolCall::new("weather").with_deadline(Instant::now());
    let calls = [
        ("a fast tool", call("weather", json!({ "city": "Oslo" }))?),
        (
            "a password among the arguments",
            call("sign_in", json!({ "user": "ada", "password": "hunter2" }))?,
        ),
        (
            "a tool that reports its own failure",
            call("book_table", json!({ "people": 40 }))?,
        ),
        (
            "a tool that is slow and reports nothing: the server is told to stop",
            call("dig", json!({}))?,
        ),
        (
            "a tool that takes 2 s but reports progress",
            call("import_rows", json!({ "rows": 500 }))?,
        ),
        ("a tool that does not exist", call("wether", json!({}))?),
        (
            "wrong arguments",
            call("weather", json!({ "town": "Oslo" }))?,
        ),
        ("no time left for another call", spent),
    ];
    for (n, (what, call)) in calls.into_iter().enumerate() {
        println!("\n{}", style.bold(&format!("{}  {what}", n + 1)));
        // Arguments are shown through the redacting view, here as everywhere.
        println!("   call    {} {}", call.tool(), call.sanitized());
        let start = Instant::now();
        let result = tools.clone().oneshot(call).await;
        show(style, &result, start.elapsed());
        // Let the server's last words about a cancelled call come before the next one.
        sleep(Duration::from_millis(20)).await;
    }
    client.cancel().await?;
    Ok(())
}

fn call(tool: &str, arguments: Value) -> Result<ToolCall, ToolError> {
    ToolCall::new(tool).with_json(arguments)
}

/// Prints how a call ended, and what the model reads.
fn show(style: Style, result: &Result<CallToolResponse, ToolError>, took: Duration) {
    let ms = took.as_millis();
    let (outcome, text) = match result {
        Ok(CallToolResponse::Complete(result)) if result.is_error == Some(true) => (
            style.yellow(&format!("the tool reports an error, after {ms} ms")),
            result.model_text(),
        ),
        Ok(response) => (
            style.green(&format!("ok after {ms} ms")),
            response.model_text(),
        ),
        Err(error) => (
            style.red(&format!("{} after {ms} ms", error.code())),
            error.model_message().into(),
        ),
    };
    println!("   result  {outcome}");
    println!("   model   {text}");
}

/// The MCP server: honest tools, each with one trait.
#[derive(Clone, Debug)]
struct Server {
    style: Style,
}

#[derive(Deserialize, JsonSchema)]
struct Weather {
    city: String,
}

#[derive(Deserialize, JsonSchema)]
struct SignIn {
    user: String,
    password: String,
}

#[derive(Deserialize, JsonSchema)]
struct Table {
    people: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Rows {
    rows: u32,
}

#[tool_router]
impl Server {
    #[tool(
        description = "The weather in a city",
        annotations(read_only_hint = true)
    )]
    async fn weather(&self, Parameters(Weather { city }): Parameters<Weather>) -> String {
        format!("{city}: 12 degrees, clear sky")
    }

    #[tool(description = "Signs a user in")]
    async fn sign_in(&self, Parameters(SignIn { user, password }): Parameters<SignIn>) -> String {
        format!(
            "{user} is signed in (the tool got all {} characters)",
            password.len()
        )
    }

    #[tool(description = "Books a table")]
    async fn book_table(&self, Parameters(Table { people }): Parameters<Table>) -> CallToolResult {
        let text = format!("no table for {people} people; the largest is for 12");
        CallToolResult::error(vec![ContentBlock::text(text)])
    }

    #[tool(description = "Digs for a minute, unless told to stop")]
    async fn dig(&self, cx: RequestContext<RoleServer>) -> String {
        tokio::select! {
            () = cx.ct.cancelled() => {
                let told = self.style.dim("the server is told to stop, and stops");
                println!("   server  {told}");
            }
            () = sleep(Duration::from_secs(60)) => {}
        }
        "dug".to_owned()
    }

    #[tool(description = "Imports rows and reports progress")]
    async fn import_rows(
        &self,
        Parameters(Rows { rows }): Parameters<Rows>,
        cx: RequestContext<RoleServer>,
    ) -> String {
        for step in 1..=5 {
            sleep(Duration::from_millis(400)).await;
            if let Some(token) = cx.meta.get_progress_token() {
                let report = ProgressNotificationParam::new(token, f64::from(step));
                let _ = cx.peer.notify_progress(report).await;
            }
        }
        format!("{rows} rows imported")
    }
}

#[tool_handler]
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

/// Prints the events of a call as they come, and its span when it is closed.
struct ShowTrace {
    style: Style,
}

#[derive(Default)]
struct Fields(String);

impl tracing::field::Visit for Fields {
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        const SAID_ALREADY: &[&str] = &[
            "tool",
            "gen_ai.operation.name",
            "gen_ai.tool.name",
            "gen_ai.tool.type",
            "otel.kind",
            "otel.status_description",
        ];
        if SAID_ALREADY.contains(&field.name()) {
            return;
        }
        let _ = match field.name() {
            "message" | "otel.name" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for ShowTrace {
    fn on_new_span(
        &self,
        attrs: &tracing::span::Attributes<'_>,
        id: &tracing::Id,
        cx: Context<'_, S>,
    ) {
        let mut fields = Fields::default();
        attrs.record(&mut fields);
        if let Some(span) = cx.span(id) {
            span.extensions_mut().insert(fields);
        }
    }
    fn on_record(&self, id: &tracing::Id, values: &tracing::span::Record<'_>, cx: Context<'_, S>) {
        if let Some(span) = cx.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        // `message` comes last in the event and first on the line.
        println!(
            "   event   {}",
            self.style
                .dim(&format!("{:5} {}", event.metadata().level(), fields.0))
        );
    }
    fn on_close(&self, id: tracing::Id, cx: Context<'_, S>) {
        let Some(span) = cx.span(&id) else { return };
        if let Some(Fields(fields)) = span.extensions().get::<Fields>() {
            println!("   span    {}", self.style.dim(fields.trim()));
        }
    }
}

/// Colour on a terminal only, and not where `NO_COLOR` is set.
#[derive(Clone, Copy, Debug)]
struct Style {
    colour: bool,
}

impl Style {
    fn detect() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self {
            colour: std::io::stdout().is_terminal() && !no_color,
        }
    }
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }
    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }
    fn red(self, text: &str) -> String {
        self.paint("31", text)
    }
    fn green(self, text: &str) -> String {
        self.paint("32", text)
    }
    fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }
}
