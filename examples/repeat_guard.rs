//! An agent whose model makes the same failing call again and again, without the layer and with it.
//!
//! ```text
//! cargo run --example repeat_guard
//! ```
//!
//! The model is played by a few lines, as real ones behave: it sends what has failed again, alone
//! or in a cycle with other calls, until it has lost patience, or until what it reads says that
//! this very call will not do.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, BoxError, ErrorKind, ToolCall, ToolError, repeat_guard::RepeatGuardLayer,
};

/// How many calls the model makes for a task before it gives up.
const PATIENCE: usize = 14;

/// 60 s by default.
const WINDOW: Duration = Duration::from_millis(300);

/// What the model makes of a task: calls that it repeats, and the one that is right.
struct Task {
    wants: &'static str,
    tries: Vec<(&'static str, Value)>,
    right: (&'static str, Value),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    println!("--- without the guard");
    let without = Tools::default();
    let failed = agent(&mut without.service()).await?;

    println!("\n--- with the guard");
    let with = Tools::default();
    let guard = RepeatGuardLayer::builder().with_window(WINDOW).build()?;
    let mut guarded = ServiceBuilder::new().layer(guard).service(with.service());
    let done = agent(&mut guarded).await?;

    println!("\n                                without     with");
    let (before, after) = (without.reached(), with.reached());
    println!("calls that reached the tools    {before:>7}  {after:>7}");
    println!("tasks done, of 2                {failed:>7}  {done:>7}");
    assert!(done == 2 && failed == 0 && after < before / 2);

    println!("\n--- with it, a call that would succeed by now is not refused for good");
    let (mut model, count) = (Model::default(), json!({ "table": "orders" }));
    for _ in 0..4 {
        let _ = model.call(&mut guarded, "count", &count).await?;
    }
    with.has_orders.store(true, Relaxed);
    println!("    somebody makes the table");
    let early = model.call(&mut guarded, "count", &count).await?;
    tokio::time::sleep(WINDOW).await;
    println!("    {WINDOW:?} later");
    let late = model.call(&mut guarded, "count", &count).await?;
    assert!(early.is_err() && late.is_ok());
    Ok(())
}

/// Does both tasks in one session. How many are done?
async fn agent<S>(tools: &mut S) -> Result<u32, BoxError>
where
    S: Service<ToolCall, Response = String, Error = ToolError>,
{
    let file = json!({ "file": "main.rs" });
    let edit = |old: &str| json!({ "file": "main.rs", "old": old, "new": "fn main()" });
    let tasks = [
        Task {
            wants: "the weather in Oslo",
            tries: vec![("weather", json!({ "city": "Osloo" }))],
            right: ("weather", json!({ "city": "Oslo" })),
        },
        Task {
            wants: "a typing error mended; it reads the file again each time",
            tries: vec![("read", file), ("edit", edit("fn mian()"))],
            right: ("edit", edit("fn mian ()")),
        },
    ];
    let (mut model, mut done) = (Model::default(), 0);
    for task in tasks {
        println!("  the user wants {}", task.wants);
        for (tool, arguments) in task.tries.iter().cycle().take(PATIENCE) {
            match model.call(tools, tool, arguments).await? {
                // The model does as it is told.
                Err(text) if text.starts_with("This exact call has failed") => {
                    let (tool, arguments) = &task.right;
                    done += u32::from(model.call(tools, tool, arguments).await?.is_ok());
                    break;
                }
                _ => {}
            }
        }
    }
    Ok(done)
}

/// What the model has read.
#[derive(Default)]
struct Model(HashSet<String>);

impl Model {
    /// Makes a call. What the model reads: an answer, or the text of an error.
    async fn call<S>(
        &mut self,
        tools: &mut S,
        tool: &'static str,
        arguments: &Value,
    ) -> Result<Result<String, String>, ToolError>
    where
        S: Service<ToolCall, Response = String, Error = ToolError>,
    {
        // Whose calls are compared.
        let call = ToolCall::new(tool).with_session_id("session-1");
        let call = call.with_json(arguments.clone())?;
        println!("    {tool} {}", call.sanitized());
        let answer = tools.ready().await?.call(call).await;
        let answer = answer.map_err(|error| error.model_message());
        let (Ok(text) | Err(text)) = &answer;
        match self.0.insert(text.clone()) {
            true => println!("        {text}"),
            false => println!("        (as before)"),
        }
        Ok(answer)
    }
}

#[derive(Clone, Default)]
struct Tools {
    reached: Arc<AtomicU32>,
    has_orders: Arc<AtomicBool>,
}

impl Tools {
    fn reached(&self) -> u32 {
        self.reached.load(Relaxed)
    }

    fn service(
        &self,
    ) -> impl Service<ToolCall, Response = String, Error = ToolError> + Clone + use<> {
        let tools = self.clone();
        service_fn(move |call| {
            tools.reached.fetch_add(1, Relaxed);
            let answer = tools.answer(&call);
            async move { answer.map_err(|error| error.for_call(&call.info())) }
        })
    }

    fn answer(&self, call: &ToolCall) -> Result<String, ToolError> {
        let said = |name: &str| {
            call.arguments()
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or("")
        };
        let failed = |text: String| Err(ToolError::new(ErrorKind::Failed, text));
        match call.tool() {
            "weather" => match said("city") {
                "Oslo" => Ok("12 degrees".to_owned()),
                city => failed(format!("no city is called {city}")),
            },
            "read" => Ok("fn mian () {}".to_owned()),
            "edit" => match said("old") {
                "fn mian ()" => Ok("edited".to_owned()),
                old => failed(format!("the file has no '{old}'")),
            },
            _ if self.has_orders.load(Relaxed) => Ok("17 rows".to_owned()),
            _ => Err(AnyError::from(format!("no table '{}'", said("table"))).into()),
        }
    }
}
