//! An upstream that does as it is told.

use std::{
    collections::HashMap,
    future::pending,
    net::SocketAddr,
    panic::resume_unwind,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::post,
};
use serde_json::json;
use tokio::{net::TcpListener, task::AbortHandle, time::sleep};

/// What it answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does {
    Answers,
    /// After so many milliseconds.
    AnswersIn(u64),
    /// MCP's `isError`.
    Reports,
    /// A status, with so many seconds in `Retry-After`.
    Says(u16, Option<u64>),
    SaysNonsense,
    /// It closes the connection.
    HangsUp,
    Hangs,
}

#[derive(Default)]
struct Tool {
    /// What it does first, and then always.
    first: Vec<Does>,
    then: Option<Does>,
    requests: usize,
}

type Tools = Arc<Mutex<HashMap<String, Tool>>>;

pub(crate) struct Upstream {
    pub(crate) at: SocketAddr,
    tools: Tools,
    serving: AbortHandle,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let tools = Tools::default();
        let app = Router::new()
            .route("/{tool}", post(answer))
            .with_state(Arc::clone(&tools));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            at,
            tools,
            serving: serving.abort_handle(),
        }
    }

    /// From now on it does this, and its requests are counted anew.
    pub(crate) fn does(&self, tool: &str, then: Does) {
        self.does_first(tool, &[], then);
    }

    pub(crate) fn does_first(&self, tool: &str, first: &[Does], then: Does) {
        let tool_ = Tool {
            first: first.to_vec(),
            then: Some(then),
            requests: 0,
        };
        self.tools.lock().unwrap().insert(tool.into(), tool_);
    }

    pub(crate) fn requests(&self, tool: &str) -> usize {
        self.tools.lock().unwrap()[tool].requests
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(State(tools): State<Tools>, Path(tool): Path<String>) -> Response {
    let does = {
        let mut tools = tools.lock().unwrap();
        let tool = tools.entry(tool).or_default();
        tool.requests += 1;
        let first = tool.first.get(tool.requests - 1).copied();
        first.or(tool.then).unwrap_or(Does::Answers)
    };
    let result = |is_error| {
        let content = [json!({ "type": "text", "text": "twelve degrees" })];
        json!({ "content": content, "isError": is_error }).to_string()
    };
    match does {
        Does::Answers => result(false).into_response(),
        Does::AnswersIn(millis) => {
            sleep(Duration::from_millis(millis)).await;
            result(false).into_response()
        }
        Does::Reports => result(true).into_response(),
        Does::Says(status, retry_after) => {
            let mut response = StatusCode::from_u16(status).unwrap().into_response();
            if let Some(seconds) = retry_after {
                let headers = response.headers_mut();
                headers.insert("retry-after", seconds.into());
            }
            response
        }
        Does::SaysNonsense => "<html>".into_response(),
        // As a panic, but nobody prints a backtrace while the caller's clock runs.
        Does::HangsUp => resume_unwind(Box::new("the connection is closed")),
        Does::Hangs => pending().await,
    }
}
