//! An agent of rig's calls the tools of one stack; then layers of ours go around tools that were
//! written for rig.
//!
//! ```text
//! cargo run -p example-rig
//! ```
//!
//! Nothing to start and no key: the model is rig's scripted one. The adapters are in `lib.rs`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use example_rig::{Session, dynamic_tool, from_rig, leaf};
use rig::{
    AgentBuilder,
    completion::{Message, ToolDefinition, message::UserContent},
    core::test_utils::{MockCompletionModel, MockTurn},
    message::ToolName,
    tool::{DynamicTool, Tool, ToolContext, ToolErrorKind, ToolExecutionError, tool_definition},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::ServiceBuilder;
use tower_toolcall::{
    BoxError, ErrorKind, ModelText as _, ReplaySafety, ServiceBuilderExt as _, ToolError,
    backoff::Backoff,
    circuit_breaker::{CircuitBreakerLayer, Trip},
    redact::Rules,
    retry::{RetryLayer, RetryPolicy},
    router::{Router, tool_fn},
};
use tracing_subscriber::{filter::filter_fn, fmt, prelude::*};

/// Of one attempt.
const TIMEOUT: Duration = Duration::from_millis(200);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    show_the_trace();
    a_stack_as_tools().await?;
    rig_tools_as_leaves().await?;
    errors_of_rig();
    Ok(())
}

/// Prints what happens to the calls: of a span its arguments, of an event its name, tool and code.
fn show_the_trace() {
    let fields = fmt::format::debug_fn(|to, field, value| match field.name() {
        "message" => write!(to, "{value:?}"),
        "gen_ai.tool.call.arguments" => write!(to, "arguments={value:?}"),
        name @ ("attempt" | "code" | "error" | "refused" | "to" | "tool") => {
            write!(to, " {name}={value:?}")
        }
        _ => Ok(()),
    });
    let lines = fmt::layer()
        .fmt_fields(fields)
        .without_time()
        .with_target(false)
        .with_ansi(false);
    let ours = filter_fn(|event| event.target() == tower_toolcall::event::TARGET);
    tracing_subscriber::registry()
        .with(lines.with_filter(ours))
        .init();
}

/// An agent that has the tools of a stack, and what its model reads.
async fn a_stack_as_tools() -> Result<(), BoxError> {
    println!("1  an agent of rig's calls the tools of one stack\n");
    let model = scripted_model();
    let agent = AgentBuilder::new(model.clone())
        .dynamic_tools(tools_of_a_stack()?)
        .build();
    let mut context = ToolContext::new();
    context.insert(Session("conversation 1".into()))?;
    let run = agent.prompt("Go.").tool_context(context).max_turns(20);
    let answer = run.await?;

    println!("\n   the model was offered");
    let requests = model.requests();
    for tool in requests.first().iter().flat_map(|request| &request.tools) {
        println!("   {:11} {}", tool.name.as_str(), tool.description);
    }
    println!("\n   and read");
    for message in requests.last().iter().flat_map(|r| &r.chat_history) {
        if let Message::User { content } = message {
            content.iter().for_each(show);
        }
    }
    println!("   {}", answer.output());
    Ok(())
}

/// One stack, as five tools.
fn tools_of_a_stack() -> Result<Vec<DynamicTool>, BoxError> {
    let router = Router::builder()
        .tool("weather", tool_fn(weather))
        .tool("sign_in", tool_fn(sign_in))
        .tool("dig", tool_fn(dig))
        .tool("rates", tool_fn(rates))
        .tool("find_order", tool_fn(find_order))
        .build()?;
    let breaker = CircuitBreakerLayer::builder().with_trip(Trip::consecutive_failures(2));
    let stack = ServiceBuilder::new()
        // The text for the model: rig would show a JSON string in quotes.
        .map_response(|answer: Value| answer.model_text().into_owned())
        .tool_sanitize(Rules::new().with_sensitive_key("membership")?)
        .tool_identity(router.clone())
        .tool_trace()
        .tool_repeat_guard()
        .layer(breaker.build()?)
        .tool_timeout(TIMEOUT)
        .service(router);

    let tools = [
        define("weather", "The weather in a city", &["city"])?,
        define("sign_in", "Signs a user in", &["user", "password"])?,
        define("dig", "Digs, for a long time", &[])?,
        define("rates", "The exchange rates of a currency", &["currency"])?,
        define("find_order", "Finds an order", &["order"])?,
    ];
    Ok(tools
        .map(|definition| dynamic_tool(definition, stack.clone()))
        .into())
}

/// A model that behaves as real ones do: it repeats what fails.
fn scripted_model() -> MockCompletionModel {
    let secrets = json!({ "user": "ada", "password": "hunter2", "membership": "M-123" });
    let calls = [
        ("weather", json!({ "city": "Oslo" })),
        ("sign_in", secrets),
        ("dig", json!({})),
        ("rates", json!({ "currency": "NOK" })),
        ("rates", json!({ "currency": "SEK" })),
        ("rates", json!({ "currency": "DKK" })),
        ("find_order", json!({ "order": "17" })),
        ("find_order", json!({ "order": "17" })),
        ("find_order", json!({ "order": "17" })),
        ("find_order", json!({ "order": "17" })),
    ];
    let calls = calls.into_iter().enumerate();
    let turns = calls.map(|(n, (tool, args))| MockTurn::tool_call(format!("call_{n}"), tool, args));
    MockCompletionModel::from_turns(turns.chain([MockTurn::text("That is all.")]))
}

/// Prints what the model reads of a call.
fn show(part: &UserContent) {
    if let UserContent::ToolResult(result) = part {
        let end = if result.is_error { "error" } else { "ok" };
        let text: String = result.content.iter().filter_map(|c| c.as_text()).collect();
        println!("   {:11} {end:5}  {text}", result.name.as_str());
    }
}

#[derive(Deserialize)]
struct Weather {
    city: String,
}

async fn weather(Weather { city }: Weather) -> Result<String, BoxError> {
    Ok(format!("{city}: 12 degrees, clear sky"))
}

#[derive(Deserialize)]
struct SignIn {
    user: String,
    password: String,
}

async fn sign_in(SignIn { user, password }: SignIn) -> Result<String, BoxError> {
    let length = password.len();
    Ok(format!("{user} is signed in, by {length} characters"))
}

async fn dig((): ()) -> Result<String, BoxError> {
    sleep(TIMEOUT * 10).await;
    Ok("dug".to_owned())
}

#[derive(Deserialize)]
struct Rates {
    currency: String,
}

async fn rates(Rates { currency }: Rates) -> Result<String, ToolError> {
    let message = format!("no answer about {currency} from postgres://ledger:hunter2@db/rates");
    Err(ToolError::new(ErrorKind::ConnectionFailed, message))
}

#[derive(Deserialize)]
struct Order {
    order: String,
}

async fn find_order(Order { order }: Order) -> Result<String, ToolError> {
    let message = format!("there is no order {order}; ids are like A-17");
    Err(ToolError::new(ErrorKind::Reported, message))
}

fn define(name: &str, description: &str, fields: &[&str]) -> Result<ToolDefinition, BoxError> {
    Ok(ToolDefinition {
        name: ToolName::new(name)?,
        description: description.to_owned(),
        parameters: schema(fields),
    })
}

/// An object of texts.
fn schema(fields: &[&str]) -> Value {
    let text = || json!({ "type": "string" });
    let properties: Value = fields.iter().map(|field| (*field, text())).collect();
    json!({ "type": "object", "properties": properties, "required": fields })
}

/// Tools that were written for rig, with layers around them. Both end with a timeout of which rig
/// says that it may be repeated.
async fn rig_tools_as_leaves() -> Result<(), BoxError> {
    println!("\n2  tools of rig's, with a retry layer around them\n");
    let backoff = Backoff::fixed(Duration::from_millis(20))?;
    // Who may run twice is known here, not from an error.
    let retry = RetryPolicy::new()
        .with_backoff(backoff)
        .with_replay_safety(|call| match call.tool() {
            Quote::NAME => ReplaySafety::Safe,
            _ => ReplaySafety::Unsafe,
        });
    let retry = RetryLayer::new(retry);

    let (quotes, charges) = (Bank::default(), Bank::default());
    for (bank, tool) in [
        (&quotes, protect(Quote(quotes.clone()), &retry)),
        (&charges, protect(Pay(charges.clone()), &retry)),
    ] {
        let answer = tool.execute(json!({ "order": "A-17" })).await;
        let (end, text) = match answer {
            Ok(output) => ("ok".to_owned(), output.render()),
            Err(error) => (error.kind().to_string(), error.model_output().render()),
        };
        let (name, runs) = (tool.name(), bank.0.load(Relaxed));
        println!("   {name}: runs: {runs}, ends with {end}, the model reads: {text}");
    }
    Ok(())
}

/// A rig tool for an agent, in a stack.
fn protect<T>(tool: T, retry: &RetryLayer) -> DynamicTool
where
    T: Tool + 'static,
{
    let definition = tool_definition(&tool);
    let stack = ServiceBuilder::new()
        .layer(retry.clone())
        .tool_circuit_breaker()
        .tool_timeout(TIMEOUT)
        .service(leaf(tool));
    dynamic_tool(definition, stack)
}

/// How often it was asked. It answers the third time.
#[derive(Clone, Default)]
struct Bank(Arc<AtomicU32>);

impl Bank {
    fn ask(&self) -> Result<(), ToolExecutionError> {
        match self.0.fetch_add(1, Relaxed) {
            0 | 1 => {
                Err(ToolExecutionError::timeout("the bank did not answer").with_retryable(true))
            }
            _ => Ok(()),
        }
    }
}

struct Quote(Bank);

impl Tool for Quote {
    const NAME: &'static str = "quote";
    type Args = Order;
    type Output = String;
    type Error = ToolExecutionError;

    fn description(&self) -> String {
        "The price of an order".to_owned()
    }

    fn parameters(&self) -> Value {
        schema(&["order"])
    }

    async fn call(&self, _: &mut ToolContext, args: Order) -> Result<String, Self::Error> {
        self.0.ask()?;
        Ok(format!("order {} costs 20 euros", args.order))
    }
}

struct Pay(Bank);

impl Tool for Pay {
    const NAME: &'static str = "pay";
    type Args = Order;
    type Output = String;
    type Error = ToolExecutionError;

    fn description(&self) -> String {
        "Pays an order".to_owned()
    }

    fn parameters(&self) -> Value {
        schema(&["order"])
    }

    async fn call(&self, _: &mut ToolContext, args: Order) -> Result<String, Self::Error> {
        self.0.ask()?;
        Ok(format!("order {} is paid", args.order))
    }
}

/// Each kind of rig's, as the layers see it.
fn errors_of_rig() {
    println!("\n3  what rig's errors are to the layers\n");
    println!("   rig                retryable    ours              retryable  did it run?");
    for kind in [
        ToolErrorKind::InvalidArgs,
        ToolErrorKind::Timeout,
        ToolErrorKind::Cancelled,
        ToolErrorKind::NotFound,
        ToolErrorKind::PermissionDenied,
        ToolErrorKind::RateLimited,
        ToolErrorKind::Provider,
        ToolErrorKind::Network,
        ToolErrorKind::Other,
    ] {
        let error = ToolExecutionError::new(kind, "");
        let says = match error.retryable() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        let ours = from_rig(error);
        let retryable = if ours.is_retryable() { "yes" } else { "no" };
        let (name, ran) = (format!("{:?}", ours.kind()), ours.execution());
        let kind = kind.as_str();
        println!("   {kind:17}  {says:9}    {name:16}  {retryable:9}  {ran:?}");
    }
}
