//! The tools of a third party's MCP server, a child process, through the whole stack.
//!
//! ```text
//! tests/run --no-run                            # installs the server under target/; needs Node.js
//! cargo run -p tower-toolcall-mcp --example mcp_stdio
//! cargo run -p tower-toolcall-mcp --example mcp_stdio -- \
//!     npx -y @modelcontextprotocol/server-everything
//! ```
//!
//! The server is npm's `@modelcontextprotocol/server-everything`; arguments are the command line of
//! another copy of it.
//!
//! Each call is shown with the events of the layers, what goes over the wire beside question and
//! answer, how it ended, and what the model and the user would read. At last the server is killed
//! in mid-call.

use std::{
    env, fmt, io,
    path::Path,
    process::{ExitStatus, Stdio},
};

use anyhow::Context as _;
use rmcp::{
    RoleClient,
    model::ProtocolVersion,
    service::{
        ClientLifecycleMode, ClientServiceExt as _, RunningService, RxJsonRpcMessage,
        TxJsonRpcMessage,
    },
    transport::{Transport, async_rw::AsyncRwTransport},
};
use serde_json::{Value, json};
use tokio::{
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Duration, Instant, sleep, timeout},
};
use tower::{ServiceBuilder, ServiceExt as _, util::BoxCloneSyncService};
use tower_toolcall::{
    ConfigError, ModelText as _, ToolCall, ToolError,
    backoff::Backoff,
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
    trace::TraceLayer,
};
use tower_toolcall_mcp::{McpAnswer, McpClassifier, McpHooks, McpProgress, McpService};
use tracing_subscriber::{
    filter::filter_fn,
    fmt::{FmtContext, FormatEvent, FormatFields, format},
    prelude::*,
    registry::LookupSpan,
};

/// The tool of `server-everything` that takes its time and reports progress.
pub(crate) const LONG: &str = "trigger-long-running-operation";

/// The tools of one server, behind all layers.
pub(crate) type Tools = BoxCloneSyncService<ToolCall, McpAnswer, ToolError>;

/// The stack: read it from the outside in.
///
/// The breaker comes from outside, because its handle tells of its state.
pub(crate) fn stack(
    server: McpService,
    breaker: CircuitBreakerLayer<McpClassifier>,
) -> Result<Tools, ConfigError> {
    let retry = RetryPolicy::new()
        .with_backoff(Backoff::exponential(Duration::from_millis(100), 2.0)?)
        .with_classifier(McpClassifier::new());
    let timeout = TimeoutLayer::new(Duration::from_secs(2))
        .with_tool(LONG, Duration::from_secs(5))
        .with_idle_timeout(Duration::from_secs(1))?;
    Ok(BoxCloneSyncService::new(
        ServiceBuilder::new()
            .layer(TraceLayer::new().with_hooks(McpHooks::new()))
            .layer(DeadlineLayer::new(Duration::from_secs(10)))
            .layer(RetryLayer::new(retry))
            .layer(breaker)
            .layer(timeout)
            .layer(CatchPanicLayer::new())
            .service(server),
    ))
}

/// A breaker for each tool, that an answer flagged `isError` neither opens nor closes.
fn breaker() -> Result<CircuitBreakerLayer<McpClassifier>, ConfigError> {
    CircuitBreakerLayer::builder()
        .with_classifier(McpClassifier::new())
        .build()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    show_events();
    let mut server = Server::start(command()?, show_wire).await?;
    let tools = stack(server.tools(), breaker()?)?;

    println!("Tools of a server in a child process, through");
    println!("  TraceLayer > DeadlineLayer 10 s > RetryLayer 3 attempts > CircuitBreakerLayer");
    println!(
        "  > TimeoutLayer 2 s (the long one 5 s), or 1 s without progress > CatchPanicLayer > McpService"
    );
    println!("Nobody vouches for these tools: what may have run is not sent again.");

    title("echo");
    run(&tools, call("echo", json!({ "message": "hello" }))?).await;

    title("structured content");
    let chicago = json!({ "location": "Chicago" });
    run(&tools, call("get-structured-content", chicago)?).await;

    title("an operation of 2 s that reports progress, with 1 s of patience");
    run(&tools, long(2, 4)?).await;

    title("an operation that reports nothing: the server is told that nobody waits");
    run(&tools, long(10, 1)?).await;

    title("the connection is as good as before");
    run(&tools, call("echo", json!({ "message": "still here" }))?).await;

    title("a tool that does not exist");
    run(&tools, call("ecko", json!({ "message": "hello" }))?).await;

    title("bad arguments");
    run(&tools, call("echo", json!({ "massage": "hello" }))?).await;

    title("the server is killed in mid-call: the call may have run");
    let kill = async {
        sleep(Duration::from_millis(600)).await;
        println!("   server  is killed");
        server.kill().await
    };
    let (killed, ()) = tokio::join!(kill, run(&tools, long(4, 16)?));
    killed?;

    title("calls to a dead server surely do not run: they are sent again, until the breaker opens");
    for message in ["is anybody", "out there", "?"] {
        run(&tools, call("echo", json!({ "message": message }))?).await;
    }

    println!("\nThe server has ended: {}", server.stop().await?);
    Ok(())
}

fn call(tool: &str, arguments: Value) -> Result<ToolCall, ToolError> {
    ToolCall::new(tool).with_json(arguments)
}

/// A call that takes `seconds`, and reports progress in so many steps.
fn long(seconds: u32, steps: u32) -> Result<ToolCall, ToolError> {
    call(LONG, json!({ "duration": seconds, "steps": steps }))
}

/// Makes a call, and shows it.
async fn run(tools: &Tools, call: ToolCall) {
    // Arguments are shown through the redacting view, here as everywhere.
    println!("   call    {} {}", call.tool(), call.sanitized());
    let start = Instant::now();
    let result = tools.clone().oneshot(call).await;
    let ms = start.elapsed().as_millis();
    match result {
        Ok(answer) => {
            let result = answer.result();
            match result.and_then(|result| result.is_error) {
                Some(true) => println!("   result  the server reports an error, after {ms} ms"),
                _ => println!("   result  ok after {ms} ms"),
            }
            if let Some(structured) = result.and_then(|result| result.structured_content.as_ref()) {
                println!("   data    {structured}");
            }
            println!("   model   {}", answer.model_text());
        }
        Err(error) => {
            println!("   result  {} after {ms} ms", error.code());
            println!("   model   {}", error.model_message());
            println!("   user    {}", error.user_message());
        }
    }
}

fn title(what: &str) {
    println!("\n{what}");
}

/// The command line of the server: the program's arguments, or what `tests/run` has installed.
fn command() -> anyhow::Result<Command> {
    let mut arguments = env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        return installed();
    };
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// `server-everything` as `tests/run` installs it.
pub(crate) fn installed() -> anyhow::Result<Command> {
    const SCRIPT: &str = concat!(
        "../../target/mcp-servers/node_modules/",
        "@modelcontextprotocol/server-everything/dist/index.js"
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT);
    anyhow::ensure!(
        script.exists(),
        "the MCP server is not installed: run `tests/run --no-run` once; it puts it under target/"
    );
    let mut command = Command::new("node");
    // It greets on stderr.
    command.arg(script).arg("stdio").stderr(Stdio::null());
    Ok(command)
}

/// An MCP server in a child process, and the connection to it. Dropped, it kills the child.
pub(crate) struct Server {
    child: Child,
    client: RunningService<RoleClient, McpProgress>,
}

impl Server {
    /// Starts the child and shakes hands with it. `seen` is shown every message.
    pub(crate) async fn start(mut command: Command, seen: impl Seen) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.as_std()))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let pipes = AsyncRwTransport::new(from.context("no stdout")?, to.context("no stdin")?);
        // `McpProgress` brings the server's progress reports to the calls.
        let newest = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::LATEST],
            legacy_version: None,
        };
        let connect = McpProgress::new().serve_with_lifecycle(Wire { pipes, seen }, newest);
        let client = timeout(Duration::from_secs(10), connect)
            .await
            .context("the server does not answer")?
            .context("the server is no MCP server")?;
        Ok(Self { child, client })
    }

    /// The leaf for a stack.
    pub(crate) fn tools(&self) -> McpService {
        McpService::new(self.client.peer().clone())
            .with_server("everything")
            .with_progress(self.client.service().clone())
    }

    /// Kills the child, and nothing else: it is ours by its handle.
    pub(crate) async fn kill(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Ends the connection, which ends an honest server; kills any other.
    pub(crate) async fn stop(self) -> anyhow::Result<ExitStatus> {
        let Self { mut child, client } = self;
        client.cancel().await?;
        match timeout(Duration::from_secs(2), child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => {
                child.kill().await?;
                Ok(child.wait().await?)
            }
        }
    }
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    FromServer,
}

/// Looks at messages.
pub(crate) trait Seen: Fn(Way, &Value) + Send + 'static {}
impl<F: Fn(Way, &Value) + Send + 'static> Seen for F {}

/// A connection with an eye on it. Without one, the pair of pipes is a transport already.
struct Wire<F> {
    pipes: AsyncRwTransport<RoleClient, ChildStdout, ChildStdin>,
    seen: F,
}

impl<F: Seen> Transport<RoleClient> for Wire<F> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        (self.seen)(Way::ToServer, &json!(message));
        self.pipes.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.pipes.receive().await?;
        (self.seen)(Way::FromServer, &json!(message));
        Some(message)
    }

    async fn close(&mut self) -> io::Result<()> {
        self.pipes.close().await
    }
}

/// Prints what goes over the wire beside question and answer.
fn show_wire(_: Way, message: &Value) {
    let params = &message["params"];
    match message["method"].as_str() {
        Some("notifications/progress") => {
            let number = |name: &str| params[name].as_f64().unwrap_or_default();
            let (done, total) = (number("progress"), number("total"));
            println!("   server  reports progress: {done} of {total}");
        }
        Some("notifications/cancelled") => {
            println!("   server  is told to cancel: {}", params["reason"]);
        }
        _ => {}
    }
}

/// Prints the events of the layers, without the names that the call's line says already.
fn show_events() {
    let fields = format::debug_fn(|writer, field, value| match field.name() {
        "message" => write!(writer, "{value:?}"),
        "tool" | "server" => Ok(()),
        name => write!(writer, " {name}={value:?}"),
    });
    let events = tracing_subscriber::fmt::layer()
        .fmt_fields(fields)
        .event_format(Line)
        .with_writer(io::stdout)
        .with_filter(filter_fn(|m| m.target() == tower_toolcall::event::TARGET));
    tracing_subscriber::registry().with(events).init();
}

/// One line for an event, in the style of the others.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        cx: &FmtContext<'_, S, N>,
        mut writer: format::Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        write!(writer, "   event   {:5} ", event.metadata().level())?;
        cx.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
