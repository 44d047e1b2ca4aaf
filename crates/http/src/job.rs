//! Jobs over HTTP.

use std::{borrow::Cow, sync::Arc};

use http::{HeaderName, StatusCode};
use serde_json::{Map, Value};

use super::{
    HttpTool,
    answer::{HttpAnswer, Refused},
    execution::UpstreamStatus,
    location::resolve,
    path::Path,
    template,
};
use crate::refuse_if;
use tower_toolcall::{
    ConfigError, ErrorKind, ToolCall, ToolError,
    call::JobRef,
    poll::{Job, Polled, Started},
};

/// Jobs of an HTTP API, for a [`PollLayer`](tower_toolcall::poll::PollLayer) above the tool that
/// starts them: the request that asks for a job, and what its answers mean.
///
/// The request is an [`HttpTool`] of its own. Its templates have the arguments of the call, and the
/// [values](Self::with_value) that name the job, taken out of the answer that has started it. The
/// same tool service sends it.
///
/// ```
/// use std::time::Duration;
/// use http::Method;
/// use tower::ServiceBuilder;
/// use tower_toolcall::{ConfigError, ServiceBuilderExt};
/// use tower_toolcall_http::{HttpJob, HttpTool};
///
/// # fn client() -> impl Clone + Send + Sync + tower::Service<
/// #     http::Request<bytes::Bytes>,
/// #     Response = http::Response<http_body_util::Full<bytes::Bytes>>,
/// #     Error = std::io::Error,
/// #     Future: Send,
/// # > + 'static {
/// #     tower::service_fn(|_| async { Ok(http::Response::default()) })
/// # }
/// # fn main() -> Result<(), ConfigError> {
/// let start =
///     HttpTool::new(Method::POST, "https://api.pizzeria.com/shops/{{ shop }}/deliveries")?;
/// let status = HttpTool::new(
///     Method::GET,
///     "https://api.pizzeria.com/shops/{{ shop }}/deliveries/{{ delivery }}",
/// )?;
/// let cancel =
///     HttpTool::new(Method::DELETE, "https://api.pizzeria.com/deliveries/{{ delivery }}")?;
///
/// let job = HttpJob::new(status, "$.state", ["delivered"], ["failed", "lost"])?
///     .with_value("delivery", "$.id")?
///     .with_result("$.report")?
///     .with_cancel(cancel);
///
/// let stack = ServiceBuilder::new()
///     .tool_deadline(Duration::from_secs(1800)) // of the job
///     .tool_poll(job)
///     .tool_timeout(Duration::from_secs(10)) // of each request
///     .tool(start.client::<_, bytes::Bytes>(client()));
/// # let _ = stack; Ok(()) }
/// ```
///
/// The meaning of its answers:
///
/// - **to the tool's own request: a state of a job that is over**: that job's end
/// - **to the tool's own request: without one of the values, or with a value that is not a text,
///   number or boolean**: `Reported`: the job cannot be polled
/// - **a completed state**: the result; without anything at its path the whole body
/// - **a failed state**: `Reported`, with the text at the [error's path](Self::with_error); the
///   answer is [behind it](HttpAnswer::of_error)
/// - **any other state, none, or a body that is not JSON**: the job goes on. `Retry-After` is
///   obeyed
///
/// With [`by_status`](Self::by_status) a pending status (202) says that the job goes on, and any
/// other 2xx is its result.
///
/// States are compared as text; a number or a boolean as its JSON. Case matters.
///
/// # Clone
///
/// Clones share everything.
#[derive(Clone)]
#[must_use]
pub struct HttpJob(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    status: Arc<HttpTool>,
    cancel: Option<Arc<HttpTool>>,
    values: Vec<(String, Path)>,
    /// By which header of the answer that starts a job it is asked for.
    location: Option<HeaderName>,
    /// Statuses that a job has while it runs.
    pending: Vec<StatusCode>,
    /// `None` if the status alone decides.
    state: Option<Path>,
    completed: Vec<String>,
    failed: Vec<String>,
    result: Option<Path>,
    error: Option<Path>,
}

impl HttpJob {
    /// Jobs that `status` asks for: where in its answer the state stands, as a JSONPath (RFC 9535,
    /// with or without `$`), and by which states a job is over.
    ///
    /// A variable of its URL is an argument of the call, which the caller chooses, unless it is a
    /// [value](Self::with_value) of the job. The tool that starts jobs has no
    /// [result](HttpTool::with_result) of its own: what names the job would be lost with the rest
    /// of its answer.
    ///
    /// # Errors
    ///
    /// `status`: it has a [result](HttpTool::with_result) of its own. `state`: no JSONPath.
    /// `completed`: empty, or a state is in both lists.
    pub fn new<T: Into<String>, U: Into<String>>(
        status: HttpTool,
        state: &str,
        completed: impl IntoIterator<Item = T>,
        failed: impl IntoIterator<Item = U>,
    ) -> Result<Self, ConfigError> {
        refuse_if(
            status.result.is_some(),
            "status",
            "has a result of its own: that is the job's to have",
        )?;
        let completed: Vec<String> = completed.into_iter().map(Into::into).collect();
        let failed: Vec<String> = failed.into_iter().map(Into::into).collect();
        refuse_if(completed.is_empty(), "completed", "has no state")?;
        if let Some(both) = completed.iter().find(|state| failed.contains(state)) {
            return Err(ConfigError::new(
                "completed",
                format!("`{both}` is a failed state too"),
            ));
        }
        Ok(Self(Arc::new(Inner {
            status: Arc::new(status),
            cancel: None,
            values: Vec::new(),
            location: None,
            pending: Vec::new(),
            state: Some(Path::parse("state", state)?),
            completed,
            failed,
            result: None,
            error: None,
        })))
    }

    /// Creates jobs that are pending as long as answers have the status 202, or
    /// [others](Self::with_pending). Any other 2xx is the result. `status` may be the request that
    /// starts the job, sent again: GitHub's statistics are such jobs.
    ///
    /// # Errors
    ///
    /// `status`: it has a [result](HttpTool::with_result) of its own.
    pub fn by_status(status: HttpTool) -> Result<Self, ConfigError> {
        let none: [String; 0] = [];
        let job = Self::new(status, "$.status", ["completed"], none)?;
        let job = job.with_pending([StatusCode::ACCEPTED]);
        Ok(job.edit(|job| job.state = None))
    }

    /// Sets the statuses of a pending job, in answers to the tool's own request too. Default: none.
    /// A status outside 2xx remains an error.
    pub fn with_pending(self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.edit(|job| job.pending = statuses.into_iter().collect())
    }

    /// Takes the URL that is asked for out of a header of the answer that starts the job, as
    /// `Location`, instead of out of the template of `status`. A relative one is resolved against
    /// the URL of the request that has started the job (RFC 9110, section 10.2.2). One that has not
    /// the scheme, host and port of `status` is an error: it would be sent the token of the tool.
    /// The tool that starts the job [keeps](HttpTool::with_kept_header) the header.
    pub fn with_location(self, header: HeaderName) -> Self {
        self.edit(|job| job.location = Some(header))
    }

    /// Takes a value out of the answer that starts a job, for the templates of `status` and
    /// `cancel`: a text, a number or a boolean. It takes precedence over an argument of the same
    /// name.
    ///
    /// # Errors
    ///
    /// The name, if it is a variable of templates or comes twice, or the path is not a JSONPath.
    pub fn with_value(self, name: &str, path: &str) -> Result<Self, ConfigError> {
        let path = Path::parse("value", path).map_err(|e| e.with_field(name.to_owned()))?;
        let refuse = |reason: &'static str| Err(ConfigError::new(name.to_owned(), reason));
        if template::is_ours(name) {
            return refuse("is a variable of all templates");
        }
        if self.0.names(name) {
            return refuse("comes twice");
        }
        Ok(self.edit(|job| job.values.push((name.to_owned(), path))))
    }

    /// Sets where in the answer of a completed job its result stands. Default: it is the whole
    /// body.
    ///
    /// # Errors
    ///
    /// `result`: no JSONPath.
    pub fn with_result(self, path: &str) -> Result<Self, ConfigError> {
        let path = Path::parse("result", path)?;
        Ok(self.edit(|job| job.result = Some(path)))
    }

    /// Sets where in the answer of a failed job the reason stands. Default: no reason.
    ///
    /// # Errors
    ///
    /// `error`: no JSONPath.
    pub fn with_error(self, path: &str) -> Result<Self, ConfigError> {
        let path = Path::parse("error", path)?;
        Ok(self.edit(|job| job.error = Some(path)))
    }

    /// Sets the request that ends a job when no call waits for it any more. Default: none.
    pub fn with_cancel(self, cancel: HttpTool) -> Self {
        self.edit(|job| job.cancel = Some(Arc::new(cancel)))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    fn ask(&self, tool: &Arc<HttpTool>, call: &ToolCall, job: &JobRef) -> ToolCall {
        let mut ask = call.follow_up();
        ask.extensions_mut().insert(Asked {
            kind: Arc::clone(&self.0),
            tool: Arc::clone(tool),
            job: job.clone(),
        });
        ask
    }
}

impl std::fmt::Debug for HttpJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpJob")
            .field("status", &self.0.status)
            .field("state", &self.0.state)
            .finish_non_exhaustive()
    }
}

impl Job<HttpAnswer> for HttpJob {
    fn started(
        &self,
        call: &ToolCall,
        answer: HttpAnswer,
    ) -> Result<Started<HttpAnswer>, ToolError> {
        let kind = &self.0;
        match kind.end(answer) {
            End::Completed(answer) => Ok(Started::Done(answer)),
            End::Failed(error) => Err(error),
            End::None(answer, _) => match kind.values(&answer) {
                Ok(values) => {
                    let job = JobRef::new(call, values);
                    let job = job.map_err(|e| e.with_source(Refused::new(answer.clone())))?;
                    Ok(Started::Running(job, answer.retry_after))
                }
                Err(text) => Err(ToolError::unusable(text).with_source(Refused::new(answer))),
            },
        }
    }

    fn ask(&self, call: &ToolCall, job: &JobRef) -> ToolCall {
        self.ask(&self.0.status, call, job)
    }

    fn read(&self, call: &ToolCall, answer: HttpAnswer) -> Result<Polled<HttpAnswer>, ToolError> {
        let info = call.info();
        info.record(|r| r.insert_extension(UpstreamStatus(answer.status)));
        answer.tell(&info);
        match self.0.end(answer) {
            End::Completed(answer) => Ok(Polled::Done(answer)),
            End::Failed(error) => Err(error),
            End::None(answer, state) => Ok(Polled::Running {
                after: answer.retry_after,
                note: Some(match state {
                    Some(state) => Cow::Owned(format!("its state is `{state}`")),
                    None => match &self.0.state {
                        Some(path) => Cow::Owned(format!("no state at `{path}`")),
                        None => Cow::Borrowed("its status says that it goes on"),
                    },
                }),
            }),
        }
    }

    fn cancel(&self, call: &ToolCall, job: &JobRef) -> Option<ToolCall> {
        let cancel = self.0.cancel.as_ref()?;
        Some(self.ask(cancel, call, job))
    }
}

/// The end of a job, if it has ended.
enum End {
    Completed(HttpAnswer),
    Failed(ToolError),
    /// Not ended, or unknown. With the state.
    None(HttpAnswer, Option<String>),
}

impl Inner {
    fn end(&self, mut answer: HttpAnswer) -> End {
        let json = match answer.json() {
            _ if self.pending.contains(&answer.status) => return End::None(answer, None),
            None if self.state.is_none() => return End::Completed(answer),
            None => return End::None(answer, None),
            Some(json) => json,
        };
        let state = match &self.state {
            Some(path) => path.first(json).and_then(word),
            None => Some(self.completed[0].clone()),
        };
        let Some(state) = state else {
            return End::None(answer, None);
        };
        if self.completed.contains(&state) {
            let result = self.result.as_ref();
            if let Some(result) = result.and_then(|path| path.first(json)).cloned() {
                answer.body = result;
            }
            return End::Completed(answer);
        }
        if self.failed.contains(&state) {
            let why = self.error.as_ref().and_then(|path| path.first(json));
            let text = match why {
                Some(Value::String(why)) => format!("the job has failed: {why}"),
                Some(why) => format!("the job has failed: {why}"),
                None => format!("the job has failed: its state is `{state}`"),
            };
            return End::Failed(reported(text, answer));
        }
        End::None(answer, Some(state))
    }

    fn names(&self, name: &str) -> bool {
        self.values.iter().any(|(known, _)| known == name)
    }

    /// The values that name the job, out of the answer that has started it.
    fn values(&self, answer: &HttpAnswer) -> Result<Map<String, Value>, String> {
        let found = self.values.iter().map(|(name, path)| {
            match answer.json().and_then(|json| path.first(json)) {
                Some(value) if word(value).is_some() => Ok((name.clone(), value.clone())),
                Some(_) => Err(format!("the answer has no plain value at `{path}`")),
                None => Err(format!("the answer has nothing at `{path}`")),
            }
        });
        let mut found: Map<_, _> = found.collect::<Result<_, _>>()?;
        if let Some(name) = &self.location {
            let url = answer.headers.get(name).and_then(|v| v.to_str().ok());
            let path = url.zip(answer.url.as_ref());
            let path = path.and_then(|(url, base)| resolve(url, base, &self.status.origin));
            let Some(path) = path else {
                return Err(format!("the answer has no `{name}` on the host of the job"));
            };
            found.insert(name.as_str().to_owned(), path.into());
        }
        Ok(found)
    }
}

/// Returns whether a text behind a host is a path: `@evil.example/` would name another host.
fn is_path(text: &&str) -> bool {
    text.starts_with('/')
}

/// A text, number or boolean as text.
pub(super) fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn reported(text: String, answer: HttpAnswer) -> ToolError {
    ToolError::new(ErrorKind::Reported, text).with_source(Refused::new(answer))
}

/// The request of a call, instead of the tool of its service.
#[derive(Clone)]
pub(super) struct Asked {
    kind: Arc<Inner>,
    pub(super) tool: Arc<HttpTool>,
    job: JobRef,
}

impl Asked {
    pub(super) fn of(call: &ToolCall) -> Option<&Self> {
        call.extensions().get()
    }

    /// The path, with its query, that the job is asked for by: empty if the job has none.
    pub(super) fn location(&self) -> Option<&str> {
        let name = self.kind.location.as_ref()?;
        let is_status = Arc::ptr_eq(&self.tool, &self.kind.status);
        let value = || self.job.values().get(name.as_str())?.as_str();
        is_status.then(|| value().filter(is_path).unwrap_or_default())
    }

    /// The value of a variable that only the job may give: `None` for a variable of the call's.
    pub(super) fn value(&self, name: &str) -> Option<Option<&Value>> {
        let is_of_job = self.kind.names(name);
        is_of_job.then(|| self.job.values().get(name))
    }
}
