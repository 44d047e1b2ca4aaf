//! What the process of its own does: all that it is told stands in its environment.

use std::{
    env, fs,
    io::{self, Read as _},
    process,
    sync::Arc,
    time::SystemTime,
};

use axum::{Json, Router, extract::State, routing};
use rmcp::model::CallToolResult;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::{Layer as _, service_fn};
use tower_toolcall::{
    BoxError, ToolCall, ToolError, circuit_breaker::CircuitBreakerHandle, hint, serve::Routes,
    settings::Settings, transport::transport,
};
use tower_toolcall_mcp::{self as mcp, McpAnswer, McpClassifier};

/// The variables beside those of settings.
pub(crate) const FILE: &str = "PRESETS_FILE";
pub(crate) const UPSTREAM: &str = "PRESETS_UPSTREAM";

/// The tools of the server `docs`.
pub(crate) const TOOLS: [&str; 12] = [
    "search", "import", "other", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8",
];

/// Prints where it listens, or what is wrong with the settings.
#[tokio::test]
#[ignore = "the process of its own that the other tests start"]
async fn serve() {
    let Ok(upstream) = env::var(UPSTREAM) else {
        return;
    };
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        process::exit(0);
    });
    match settings() {
        Ok(settings) => run(settings, upstream).await,
        Err(error) => println!("refused: {error}"),
    }
}

fn settings() -> Result<Settings, BoxError> {
    let file = match env::var(FILE) {
        Ok(path) => fs::read_to_string(path)?,
        Err(_) => String::new(),
    };
    let settings = toml::from_str::<Settings>(&file)?.with_env()?;
    settings.check()?;
    Ok(settings)
}

/// A client of the upstream, as a gateway to HTTP tools has one.
async fn leaf(
    client: reqwest::Client,
    upstream: Arc<str>,
    call: ToolCall,
) -> Result<McpAnswer, BoxError> {
    let request = client.post(format!("http://{upstream}/{}", call.tool()));
    let body = Value::Object(call.arguments().clone()).to_string();
    let answer = request.body(body).send().await?;
    let status = answer.status();
    if !status.is_success() {
        let error = ToolError::from_status(status, format!("the upstream says {status}"));
        let hint = hint::from_headers(answer.headers(), SystemTime::UNIX_EPOCH);
        return Err(match hint.and_then(|hint| hint.delay) {
            Some(delay) => error.with_retry_after(delay).into(),
            None => error.into(),
        });
    }
    let result: CallToolResult = serde_json::from_slice(&answer.bytes().await?)?;
    Ok(result.into())
}

#[derive(Clone)]
struct State_ {
    settings: Settings,
    breakers: CircuitBreakerHandle,
}

async fn run(settings: Settings, upstream: String) {
    let (client, upstream) = (reqwest::Client::new(), Arc::<str>::from(upstream));
    let leaf = service_fn(move |call| leaf(client.clone(), Arc::clone(&upstream), call));
    let tools = mcp::router().server("docs", transport(leaf), TOOLS);
    let tools = tools.build().unwrap();
    let stack = settings
        .stack()
        .with_classifier(McpClassifier::new())
        .with_identity(tools.clone())
        .build()
        .unwrap();
    let state = State_ {
        settings,
        breakers: stack.circuit_breaker(),
    };
    let routes = Routes::new(stack.layer(tools.clone()));
    let app = Router::new()
        .route("/settings", routing::get(in_force))
        .route("/breakers", routing::get(breakers))
        .with_state(state)
        .merge(routes.with_identity(tools).into_router());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("listening at {}", listener.local_addr().unwrap());
    axum::serve(listener, app).await.unwrap();
}

async fn in_force(State(state): State<State_>) -> Json<Value> {
    let all = state.settings.clone();
    Json(json!({
        "preset": json!(all)["preset"],
        "timeout": all.timeout,
        "deadline": all.deadline,
        "retry": all.retry,
        "rate_limit": all.rate_limit,
        "circuit_breaker": all.circuit_breaker,
        "sequence": all.sequence,
        "parallel": all.parallel,
    }))
}

async fn breakers(State(state): State<State_>) -> Json<Value> {
    let all = state.breakers.snapshot().into_iter();
    let called = all.filter(|breaker| breaker.server.is_some());
    let named = called.map(|breaker| {
        let tool = breaker.tool.unwrap_or_else(|| "all".into());
        (tool.to_string(), json!(breaker.state))
    });
    Json(named.collect())
}
