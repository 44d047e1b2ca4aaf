//! Calls of tools: through the stack, and to the server as they came.

use std::{
    collections::HashMap,
    error::Error,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rmcp::model::ErrorData;
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use tokio_util::sync::CancellationToken;
use tower::{ServiceBuilder, ServiceExt as _, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    Classify as _, ConfigError, ErrorKind, Outcome, ToolCall, ToolError,
    mcp::{self, ERROR_META},
    metrics::Metrics,
    outcome::{ByError, classify_fn},
    settings::Settings,
};

use super::{
    client::Client,
    message::{self, Head, Id, Line},
    process::{MAX_OPEN, Process, Reports},
    server::Server,
};

/// The calls of the client. Clones share them.
#[derive(Clone)]
pub(crate) struct Calls {
    stack: BoxCloneSyncService<ToolCall, Answer, ToolError>,
    client: Client,
    running: Arc<Mutex<HashMap<Id, Running>>>,
}

struct Running {
    request: Request,
    cancelled: CancellationToken,
}

/// A result of the server's, as it came.
#[derive(Clone)]
struct Answer {
    result: Arc<RawValue>,
    is_error: bool,
}

impl Calls {
    pub(crate) fn new(
        settings: &Settings,
        metrics: Option<&Metrics>,
        server: Server,
        client: Client,
    ) -> Result<Self, ConfigError> {
        let mut stack = settings.stack();
        if let Some(metrics) = metrics {
            stack = stack.with_metrics(metrics);
        }
        let means = classify_fn(|result: Result<&Answer, &ToolError>| match result {
            Ok(answer) if answer.is_error => Outcome::reported(),
            result => ByError.classify(result),
        });
        let leaf = service_fn(move |call| ask(server.clone(), call));
        let stack = ServiceBuilder::new()
            .layer(stack.with_classifier(means).build()?)
            .service(leaf);
        Ok(Self {
            stack: BoxCloneSyncService::new(stack),
            client,
            running: Arc::default(),
        })
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Id, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn any(&self) -> bool {
        !self.running().is_empty()
    }

    /// Begins a call, and answers it later.
    pub(crate) async fn begin(&self, id: Id, asked: Asked, line: Line) {
        let request = Request::new(id.clone(), asked.meta.progress_token, line);
        let mut call = ToolCall::new(asked.name)
            .with_arguments(asked.arguments)
            .with_id(id.as_str())
            .with_session_id("stdio"); // there is one
        call.extensions_mut().insert(request.clone());
        let cancelled = CancellationToken::new();
        let running = Running {
            request,
            cancelled: cancelled.clone(),
        };
        let is_refused = {
            let mut all = self.running();
            let is_refused = all.len() >= MAX_OPEN || all.contains_key(&id);
            if !is_refused {
                all.insert(id.clone(), running);
            }
            is_refused
        };
        if is_refused {
            let why = "the id is that of another request, or there are too many";
            return self.client.send(message::failure(&id, why)).await;
        }
        let calls = self.clone();
        tokio::spawn(async move {
            let run = calls.stack.clone().oneshot(call);
            let result = cancelled.run_until_cancelled(run).await;
            // Whoever has cancelled it expects no answer.
            if let Some(result) = result {
                calls.client.send(answer(&id, result)).await;
            }
            calls.running().remove(&id);
        });
        // It is sent before what the client says next.
        tokio::task::yield_now().await;
    }

    /// Returns whether it was a call. The parameters of the cancellation are the server's to read.
    pub(crate) fn cancel(&self, id: &Id, params: &str) -> bool {
        let running = self.running();
        let Some(call) = running.get(id) else {
            return false;
        };
        let _ = call.request.0.cancelled.set(params.to_owned());
        call.cancelled.cancel();
        true
    }
}

/// The parameters of `tools/call`, as far as they are looked at.
#[derive(Deserialize)]
pub(crate) struct Asked {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    #[serde(default, rename = "_meta")]
    meta: Meta,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default, rename = "progressToken")]
    progress_token: Option<Value>,
}

impl Asked {
    /// `None` if they are none.
    pub(crate) fn of(head: &Head<'_>) -> Option<Self> {
        serde_json::from_str(head.params?.get()).ok()
    }
}

/// A client's request, on its call.
#[derive(Clone)]
struct Request(Arc<Sent>);

struct Sent {
    id: Id,
    line: Line,
    progress_token: Option<Id>,
    /// Whether it was sent before.
    is_sent: AtomicBool,
    /// The parameters with which the client has cancelled it.
    cancelled: OnceLock<String>,
}

impl Request {
    fn new(id: Id, progress_token: Option<Value>, line: Line) -> Self {
        Self(Arc::new(Sent {
            id,
            line,
            progress_token: progress_token.map(|token| token.to_string()),
            is_sent: AtomicBool::new(false),
            cancelled: OnceLock::new(),
        }))
    }

    /// As it came; when it is sent again, under another id.
    fn next(&self, server: &Server) -> (Id, Line) {
        let Sent { id, line, .. } = &*self.0;
        if self.0.is_sent.swap(true, Relaxed) {
            let id = server.new_id();
            if let Some(line) = message::under_id(line, &id) {
                return (id, line);
            }
        }
        (id.clone(), line.clone())
    }
}

/// The leaf: sends a call to the server.
async fn ask(server: Server, call: ToolCall) -> Result<Answer, ToolError> {
    let request = call.extensions().get::<Request>().cloned();
    let request = request
        .ok_or_else(|| ToolError::new(ErrorKind::Internal, "the call is not of the client"))?;
    let process = server.live().await?;
    let (id, line) = request.next(&server);
    let progress = call.progress().map(|to| Reports {
        to,
        token: request.0.progress_token.clone(),
    });
    let _given_up = GivenUp {
        server: &server,
        process: &process,
        request: &request,
        id: &id,
    };
    let answer = process.ask(id.clone(), line, progress).await;
    let answer = answer.map_err(|why| server.unanswered(&why, &process))?;
    server.answered();

    let none = || ToolError::new(ErrorKind::Reported, "the MCP server's answer has no result");
    let head = Head::of(&answer).ok_or_else(none)?;
    if let Some(error) = head.error {
        return Err(of_server(error));
    }
    let result = head.result.ok_or_else(none)?;
    let is_error = serde_json::from_str::<Flag>(result.get()).is_ok_and(|flag| flag.is_error);
    call.record(|record| {
        record.set_reported(is_error);
        record.set_output_bytes(result.get().len() as u64);
    });
    Ok(Answer {
        result: result.to_owned().into(),
        is_error,
    })
}

#[derive(Deserialize)]
struct Flag {
    #[serde(default, rename = "isError")]
    is_error: bool,
}

/// A request on its way. Dropped before its answer has come, the server is told.
struct GivenUp<'a> {
    server: &'a Server,
    process: &'a Arc<Process>,
    request: &'a Request,
    id: &'a Id,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if self.process.forget(self.id).is_none() {
            return;
        }
        let by_client = self.request.0.cancelled.get();
        let own = r#"{"reason":"the call has run out of time"}"#;
        let said = by_client.map_or(own, String::as_str);
        self.process.try_send(message::cancelled(self.id, said));
        if by_client.is_none() {
            self.server.check(self.process);
        }
    }
}

/// The server's own error: what it is to the layers, and what the client gets.
fn of_server(error: &RawValue) -> ToolError {
    let known = serde_json::from_str::<ErrorData>(error.get()).ok();
    let known = known.and_then(|error| mcp::recognise(&error));
    let error = Theirs(error.to_owned());
    known
        .unwrap_or_else(|| {
            ToolError::new(ErrorKind::Failed, "the MCP server answers with an error")
        })
        .with_source(error)
}

struct Theirs(Box<RawValue>);

impl fmt::Debug for Theirs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Theirs(..)")
    }
}

impl fmt::Display for Theirs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an error of the MCP server's")
    }
}

impl Error for Theirs {}

/// What the client gets: what the server said, or in place of it a text that the model reads.
fn answer(id: &Id, result: Result<Answer, ToolError>) -> Line {
    let error = match result {
        Ok(answer) => return message::result(id, answer.result.get()),
        Err(error) => error,
    };
    if let Some(Theirs(error)) = error.source().and_then(|source| source.downcast_ref()) {
        return message::error(id, error.get());
    }
    let result = json!({
        "content": [{ "type": "text", "text": error.public_model_message() }],
        "isError": true,
        "_meta": { ERROR_META: error.public_body() },
    });
    message::result(id, &result.to_string())
}
