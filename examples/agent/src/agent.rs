//! The loop.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use rmcp::ServiceExt as _;
use serde_json::Value;
use tokio::time::sleep;
use tower::{Service, ServiceBuilder};
use tower_toolcall::{
    ModelText, ToolCall, ToolError,
    batch::Parallel,
    catch_panic::CatchPanicLayer,
    deadline::DeadlineLayer,
    identity::IdentityLayer,
    outcome::Classify,
    repeat_guard::RepeatGuardLayer,
    timeout::TimeoutLayer,
    trace::TraceLayer,
    validate::{Schemas, ValidateLayer},
};
use tower_toolcall_mcp::{Catalog, McpClassifier, McpHooks, McpServer};
use tower_toolcall_turn::{Format, Names, Turn};
use tracing_subscriber::{filter::filter_fn, prelude::*};

use crate::{
    dialect::{self, TASK},
    provider::{self, Provider},
    script::Script,
    server::Server,
    show::{Show, ShowTrace},
};

/// A model that has not ended by then never will.
const MAX_TURNS: usize = 12;

const FORMATS: [(&str, Format); 5] = [
    ("openai-chat", Format::OpenAiChat),
    ("openai-responses", Format::OpenAiResponses),
    ("anthropic", Format::Anthropic),
    ("gemini", Format::Gemini),
    ("bedrock", Format::Bedrock),
];

fn name(format: Format) -> &'static str {
    let named = FORMATS.iter().find(|(_, known)| *known == format);
    named.map_or("", |(name, _)| name)
}

/// Who answers.
enum Model {
    Script(Script),
    Provider(Box<Provider>),
}

impl Model {
    async fn ask(&mut self, request: Value) -> anyhow::Result<Value> {
        match self {
            Self::Script(script) => script
                .answer(&request)
                .context("the provider answers 400 Bad Request"),
            Self::Provider(provider) => provider.ask(request).await,
        }
    }
}

/// The format of this name.
pub(crate) fn format(word: &str) -> Option<Format> {
    let named = FORMATS.iter().find(|(name, _)| *name == word);
    named.map(|(_, format)| *format)
}

/// Reads the arguments of the program: which format, and whether the script is played although
/// there is a key.
fn read(words: impl Iterator<Item = String>) -> anyhow::Result<(Format, bool)> {
    let words: Vec<_> = words.collect();
    let (is_script, words) = match words.split_last() {
        Some((last, others)) if last == "script" => (true, others),
        _ => (false, &words[..]),
    };
    let format = match words {
        [] if is_script => Format::OpenAiChat,
        [] => provider::with_key().unwrap_or(Format::OpenAiChat),
        [word] => {
            let all = FORMATS.map(|(name, _)| name).join(", ");
            let unknown = || format!("'{word}' is no format; there are {all}");
            format(word).with_context(unknown)?
        }
        _ => bail!("one format, and `script` after it or nothing"),
    };
    Ok((format, is_script))
}

/// The program, with its arguments.
pub(crate) async fn main(words: impl Iterator<Item = String>) -> ExitCode {
    match run(words).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(words: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let (format, is_script) = read(words)?;
    let real = match is_script {
        true => None,
        false => Provider::from_env(format)?,
    };
    let show = Show::detect();
    let ours = filter_fn(|m| m.target() == tower_toolcall::event::TARGET);
    let trace = ShowTrace(show).with_filter(ours);
    tracing_subscriber::registry().with(trace).init();

    // A real MCP server, over a pipe. One in a process of its own begins with `McpServer::command`.
    let server = McpServer::new("guests", move || async move {
        let (theirs, ours) = tokio::io::duplex(64 * 1024);
        let running =
            async move { anyhow::Ok(Server { show }.serve(theirs).await?.waiting().await?) };
        tokio::spawn(running);
        anyhow::Ok(ours)
    });
    server.connect().await?;
    let catalog = server.tools().catalog();

    // The stack: read it from the outside in.
    let repeats = RepeatGuardLayer::builder().with_classifier(McpClassifier::new());
    let stack = ServiceBuilder::new()
        .layer(IdentityLayer::new(server.clone()))
        .layer(TraceLayer::new().with_hooks(McpHooks::new()))
        .layer(repeats.with_failures(2).build()?)
        .layer(ValidateLayer::new(&Schemas::from(&*catalog)))
        .layer(DeadlineLayer::new(Duration::from_secs(10)))
        .layer(
            TimeoutLayer::new(Duration::from_secs(1))
                .with_tool("import_guests", Duration::from_secs(5))
                .with_idle_timeout(Duration::from_millis(800))?,
        )
        .layer(CatchPanicLayer::new())
        .service(server.clone());
    let tools = Parallel::new(stack).with_classifier(McpClassifier::new());

    let who = match &real {
        Some(provider) => provider.to_string(),
        None => "a script".to_owned(),
    };
    println!(
        "The model is {who}, and speaks {}. Its calls go to an MCP server through",
        name(format)
    );
    println!("Identity > Trace > RepeatGuard > Validate > Deadline 10 s");
    println!("  > Timeout 1 s, 800 ms without progress > CatchPanic > McpServer");
    show.line("user", "", TASK);
    let model = match real {
        Some(provider) => Model::Provider(Box::new(provider)),
        None => Model::Script(Script::new(format)),
    };
    converse(show, format, model, &catalog, &tools).await?;
    server.close().await;
    Ok(())
}

/// The loop: asks the model, runs its calls, and gives it their results, until it calls no more.
async fn converse<S, C>(
    show: Show,
    format: Format,
    mut model: Model,
    catalog: &Catalog,
    tools: &Parallel<S, C>,
) -> anyhow::Result<()>
where
    S: Service<ToolCall, Response: ModelText, Error: Into<ToolError>> + Clone,
    C: Classify<S::Response> + Clone,
{
    // What the model is told of the tools, in an order that does not change.
    let mut list: Vec<_> = catalog.tools().collect();
    list.sort_by(|a, b| a.name.cmp(&b.name));
    let names = Names::new(list.iter().map(|tool| &*tool.name));
    let list = format.tools(&names, list);

    let mut messages = vec![dialect::user(format, TASK)];
    let mut calls = 0;
    for n in 1..=MAX_TURNS {
        let request = dialect::request(format, &list, &messages);
        let response = model.ask(request).await?;
        // The provider has taken the results of all calls before.
        let answered = calls;
        // The repeat guard compares the calls of a session.
        let turn = Turn::read(format, &response)?
            .with_names(&names)
            .with_session_id("evening");
        let is_last = turn.is_empty() && !turn.is_cut();
        let breaks_off = turn.is_empty() && turn.is_cut();
        // A paused turn goes on when it goes back as it is.
        let is_paused = turn.is_paused();
        calls += turn.len();
        println!();
        show.head(&match turn.len() {
            0 if is_paused => format!("turn {n}: the model pauses"),
            0 if breaks_off => format!("turn {n}: the model breaks off"),
            0 => format!("turn {n}: the model ends"),
            1 => format!("turn {n}: the model makes a call"),
            calls => format!("turn {n}: the model makes {calls} calls at once"),
        });

        for call in turn.calls() {
            // Arguments are shown through the redacting view, here as everywhere.
            show.line("call", call.tool(), &call.sanitized().to_string());
        }
        for error in turn.invalid() {
            show.line("call", error.tool().unwrap_or_default(), error.message());
        }
        let results = tools.run(turn.calls()).await;
        // Let the server's last words about a cancelled call come first.
        sleep(Duration::from_millis(20)).await;
        for result in &results {
            let kind = if result.is_success() { "ok" } else { "failed" };
            show.line(kind, result.tool(), &result.model_text());
        }
        for error in turn.invalid() {
            let tool = error.tool().unwrap_or_default();
            show.line("failed", tool, &error.model_message());
        }

        let reply = turn.answer(results);
        for message in reply.said() {
            let text = dialect::said_text(message);
            if !text.trim().is_empty() {
                show.line("model", "", &text);
            }
        }
        // Few providers take a conversation that ends with the model's words.
        let goes_on = breaks_off && !is_paused && !reply.said().is_empty();
        messages.extend(reply.into_messages());
        messages.extend(goes_on.then(|| dialect::user(format, "You were cut off. Go on.")));
        if is_last {
            println!();
            show.head(&format!(
                "{n} turns, {calls} calls, {answered} ids answered; refused by the provider: 0"
            ));
            return Ok(());
        }
    }
    bail!("the model has not ended after {MAX_TURNS} turns")
}
