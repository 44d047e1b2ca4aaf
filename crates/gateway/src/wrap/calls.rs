//! Calls of tools: through the stack, and to the server as they came.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use rmcp::model::ErrorData;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json, value::RawValue};
use tower::{
    Service, ServiceBuilder, ServiceExt as _, layer::layer_fn, service_fn,
    util::BoxCloneSyncService,
};
use tower_toolcall::{
    Classify as _, ConfigError, ErrorKind, Outcome, ToolCall, ToolError,
    catch_panic::CatchPanicLayer,
    outcome::{ByError, classify_fn},
    settings::{Below, Place, Settings},
    timeout::TimeoutLayer,
    tool_metrics::Metrics,
};
use tower_toolcall_mcp::{ERROR_META, recognise};

use super::{
    message::{self, Head, Id, Line},
    requests::Request,
    server::Server,
};

/// The stack around the server.
#[derive(Clone)]
pub(crate) struct Calls(BoxCloneSyncService<ToolCall, Answer, ToolError>);

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
        server: Arc<Server>,
    ) -> Result<Self, ConfigError> {
        let mut stack = settings.stack();
        if let Some(metrics) = metrics {
            stack = stack.with_metrics(metrics);
        }
        let means = classify_fn(|result: Result<&Answer, &ToolError>| match result {
            Ok(answer) if answer.is_error => Outcome::reported(),
            result => ByError.classify(result),
        });
        let leaf = service_fn(move |call| ask(Arc::clone(&server), call));
        let stack = stack
            .with_classifier(means)
            .with_layer(Place::Allowed, layer_fn(refuse_unfit))
            .build()?;
        // No limit: with it calls have a `Progress`, by which their clocks are stopped while a
        // person is asked.
        let pauses = TimeoutLayer::new(Duration::MAX).with_idle_timeout(Duration::MAX)?;
        let stack = ServiceBuilder::new()
            .layer(CatchPanicLayer::new())
            .layer(pauses)
            .layer(stack)
            .service(leaf);
        Ok(Self(BoxCloneSyncService::new(stack)))
    }

    /// The answer for the client.
    pub(crate) async fn run(&self, request: &Arc<Request>, asked: Asked) -> Line {
        let mut call = ToolCall::new(asked.name)
            .with_arguments(asked.arguments.known)
            .with_id(request.id.as_str())
            .with_session_id("stdio"); // there is one
        call.extensions_mut().insert(Arc::clone(request));
        if asked.arguments.is_unfit {
            call.extensions_mut().insert(Unfit);
        }
        answer(&request.id, self.0.clone().oneshot(call).await)
    }
}

/// The parts of a call that layers read. The server gets the whole line as it came.
#[derive(Deserialize)]
pub(crate) struct Asked {
    name: String,
    #[serde(default)]
    arguments: Arguments,
    #[serde(default, rename = "_meta", deserialize_with = "progress_token")]
    pub(crate) progress_token: Option<Id>,
}

impl Asked {
    /// `None` if no name can be read, or if the server could read another one.
    pub(crate) fn of(head: &Head<'_>) -> Option<Self> {
        message::object(head.params?.get(), &["name", "arguments"])
    }
}

/// Arguments as far as the layers can read them; others are one text.
#[derive(Default)]
struct Arguments {
    known: Map<String, Value>,
    /// They are not an object.
    is_unfit: bool,
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let arguments = <&RawValue>::deserialize(from)?.get();
        // No more values than other calls may have.
        let known = match ToolCall::new("").with_json_str(arguments) {
            Ok(call) => call.arguments().clone(),
            Err(_) => Map::from_iter([("unread".to_owned(), arguments.into())]),
        };
        let is_unfit = !arguments.starts_with(['{', 'n']);
        Ok(Self { known, is_unfit })
    }
}

/// Marks a call with arguments that are not an object.
#[derive(Clone)]
struct Unfit;

fn progress_token<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Id>, D::Error> {
    let meta = <&RawValue>::deserialize(from)?.get();
    let meta: message::Params = serde_json::from_str(meta).unwrap_or_default();
    Ok(meta.progress_token)
}

/// Refuses arguments that are not an object before they cost quota, or take the place of a probe.
fn refuse_unfit(
    inner: Below<Answer>,
) -> impl Service<ToolCall, Response = Answer, Error = ToolError, Future: Send> + Clone + Send + Sync
{
    service_fn(move |call: ToolCall| {
        let inner = inner.clone();
        async move {
            if call.extensions().get::<Unfit>().is_some() {
                let (kind, why) = (ErrorKind::InvalidInput, "the arguments are not an object");
                return Err(ToolError::refusal(kind, why));
            }
            inner.oneshot(call).await
        }
    })
}

/// The innermost service: sends a call to the server.
async fn ask(server: Arc<Server>, call: ToolCall) -> Result<Answer, ToolError> {
    let request = call.extensions().get::<Arc<Request>>();
    let request = request
        .ok_or_else(|| ToolError::new(ErrorKind::Internal, "the call is not of the client"))?;
    let answer = server.ask(request, call.progress()).await?;

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

/// The longest error of a server that is read. A longer one is a failure without a name.
const MAX_ERROR: usize = 1 << 20;

/// The server's own error: what it is to the layers, and what the client gets.
fn of_server(error: &RawValue) -> ToolError {
    let short = Some(error.get()).filter(|error| error.len() <= MAX_ERROR);
    let known = short.and_then(|error| serde_json::from_str::<ErrorData>(error).ok());
    let known = known.and_then(|error| recognise(&error));
    let unknown = || ToolError::new(ErrorKind::Failed, "the MCP server answers with an error");
    known
        .unwrap_or_else(unknown)
        .with_source(Theirs(error.to_owned()))
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

/// The answer to the client: that of the server, or a text that the model reads.
fn answer(id: &Id, result: Result<Answer, ToolError>) -> Line {
    let error = match result {
        Ok(answer) => return message::answer(id, "result", answer.result.get()),
        Err(error) => error,
    };
    if let Some(Theirs(error)) = error.source().and_then(|source| source.downcast_ref()) {
        return message::answer(id, "error", error.get());
    }
    let result = json!({
        "resultType": "complete",
        "content": [{ "type": "text", "text": error.public_model_message() }],
        "isError": true,
        "_meta": { ERROR_META: error.public_body() },
    });
    message::answer(id, "result", &result.to_string())
}
