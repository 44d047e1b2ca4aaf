//! The endpoint of an executor of tools.

mod jobs;

use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State, rejection::PathRejection},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use http::{Extensions, HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use tokio::time::Instant;
use tower_toolcall::{
    ErrorKind, ToolCall, ToolError,
    flow::CallExt,
    serve::{Rejection, Routes, json},
};

use self::jobs::Jobs;
use crate::execution::{ExecutionError, ExecutionResult};

/// The endpoint of an executor of tools, `POST /api/tools/{tool}/execute`, for agents that know
/// one. It runs the calls through a stack's [`Routes`].
///
/// ```
/// use tower::service_fn;
/// use tower_toolcall::{AnyError, ToolCall, serve::Routes};
/// use tower_toolcall_http::Executor;
///
/// let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>(12) });
/// let routes = Routes::new(tool).with_bearer_subject();
/// let app = Executor::new(routes.clone()).into_router().merge(routes.into_router());
/// # let _: axum::Router = app;
/// ```
///
/// Bodies are an [`ExecutionResult`] or an [`ExecutionError`]:
///
/// ```text
/// -> POST /api/tools/order/execute       {"arguments": {"pizza": "Margherita"}}
/// <- 200  {"tool_id":"order","status":"completed","result":{"order":7},
///          "execution_time_ms":42,"upstream_status":201,"metadata":{}}
/// <- 503  {"message":"..","error_code":"circuit_open","tool_id":"order",
///          "upstream_status":null,"upstream_body":null,"is_retryable":true,
///          "execution":"not_started","details":{"retry_after_seconds":30}}
/// ```
///
/// The upstream's answer is the result, 200 also where its status is none of success (`failed`),
/// with its body as it is; so is a job that still runs when the call's time is over (`pending`).
/// All else is an error, with the status that [`to_http`](ToolError::to_http) has for it. The
/// requests are those of [`Routes`](tower_toolcall::serve#requests).
///
/// Put layers on the merged router: those around `routes.into_router()` do not cover the executor.
///
/// With [`with_jobs`](Self::with_jobs), which says how many and how long, a job that still runs has
/// an id, by which the same subject goes on waiting for it; nothing is started:
///
/// ```text
/// <- 200  {"tool_id":"deliver","status":"pending",..,"metadata":{"job":"6d1c..3f"}}
/// -> GET  /api/tools/deliver/jobs/6d1c..3f
/// <- 200  {"tool_id":"deliver","status":"completed",..}
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Executor {
    routes: Routes,
    jobs: Option<Jobs>,
}

impl Executor {
    /// Makes the endpoint for the calls of these routes.
    pub fn new(routes: Routes) -> Self {
        Self { routes, jobs: None }
    }

    /// Adds an endpoint for jobs, `GET /api/tools/{tool}/jobs/{id}`: a job that still runs gets an
    /// id. A GET goes on waiting, and starts nothing. It is answered for the same subject only, if
    /// requests have [bearer tokens](Routes::with_bearer_subject): that very token. Without these,
    /// the id is enough; it cannot be guessed. Default: it is not there.
    ///
    /// 1,000 jobs are kept, in this process, with arguments of 64 KiB at most, as JSON: 62.5 MiB in
    /// all, 6.3 MiB of one subject. If requests have bearer tokens, 100 of one subject, 100 of all
    /// callers without a token, and 500 of all subjects that were [not
    /// verified](ToolCall::with_unverified_ids); no other's job makes room for one of these. A
    /// subject's oldest job makes room for its next, and, when all places are taken, the oldest of
    /// the subject with the most makes room. Without bearer tokens the
    /// [principal](tower_toolcall::serve#requests) takes the place of the subject. A job is kept
    /// for a day at most, and for a minute from the first answer that it is completed or has
    /// failed, as that may be lost on the way; an error that only means that it could not be asked
    /// for does not count. What has had its time goes when the next job is kept or asked for.
    ///
    /// A caller that sends an invented bearer token with each call of a tool that [needs
    /// none](Routes::with_bearer_subject) counts as many subjects, and can push out the jobs of
    /// others that were not verified: check the tokens in a layer of the router, and put a
    /// [`VerifiedCaller`](tower_toolcall::VerifiedCaller::with_bearer_token) that says so into
    /// their requests.
    pub fn with_jobs(mut self) -> Self {
        self.jobs = Some(Jobs::default());
        self
    }

    /// Returns these endpoints.
    pub fn into_router(self) -> Router {
        let handler = post(execute).fallback(no_post);
        let mut router = Router::new().route("/api/tools/{tool}/execute", handler);
        if self.jobs.is_some() {
            router = router.route("/api/tools/{tool}/jobs/{id}", get(job));
        }
        router.with_state(self)
    }
}

fn rejected(rejection: Rejection) -> Response {
    let body = body_of(rejection.error());
    rejection.into_response_with(&body)
}

fn refused(error: &ToolError, status: StatusCode) -> Response {
    let answer = error.to_http_with(status, &body_of(error));
    answer.map(Body::from).into_response()
}

/// A request that is not a call has no names.
fn body_of(error: &ToolError) -> Value {
    let tool = error.tool().unwrap_or_default();
    serde_json::to_value(ExecutionError::new(tool, error)).unwrap_or_default()
}

/// The body of a request. Whatever else is in it has no meaning here.
#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

fn with_arguments(call: ToolCall, body: &str) -> Result<ToolCall, ToolError> {
    let asked: Asked<'_> = serde_json::from_str(body).map_err(|_| {
        let text = "the body is not a JSON object with `arguments`";
        ToolError::new(ErrorKind::InvalidInput, text)
    })?;
    match asked.arguments {
        Some(arguments) => call.with_json_str(arguments.get()),
        None => Ok(call.with_arguments(Map::new())),
    }
}

async fn execute(State(this): State<Executor>, request: Request) -> Response {
    match this.routes.read(request, with_arguments).await {
        Ok(call) => answer(this, call, None).await,
        Err(rejection) => rejected(rejection),
    }
}

/// The parameters of a job's path. Those of an outer `nest` are ignored.
#[derive(Deserialize)]
struct Named {
    tool: String,
    id: String,
}

/// Goes on waiting for a job.
async fn job(
    State(this): State<Executor>,
    path: Result<Path<Named>, PathRejection>,
    headers: HeaderMap,
    extensions: Extensions,
) -> Response {
    let Ok(Path(Named { tool, id })) = path else {
        let reason = "the path is not UTF-8";
        return rejected(Rejection::new(StatusCode::BAD_REQUEST, reason));
    };
    let id = u128::from_str_radix(&id, 16).ok();
    let for_caller = |call| this.routes.with_request(call, &headers, &extensions);
    let ask = |jobs: &Jobs| jobs.ask(&tool, id?, for_caller);
    let Some(call) = this.jobs.as_ref().and_then(ask) else {
        let error = ToolError::refusal(ErrorKind::NotFound, "you have no job with this id");
        return refused(&error, StatusCode::NOT_FOUND);
    };
    answer(this, call, id).await
}

/// Runs a call; that of a job has its id.
async fn answer(this: Executor, mut call: ToolCall, id: Option<u128>) -> Response {
    let jobs = this.jobs.map(|jobs| (jobs, call.clone()));
    let _seen = call.observe();
    let info = call.info();
    let begun = Instant::now();
    let answer = this.routes.run(call).await;
    let took = begun.elapsed();
    if let (Some((jobs, _)), Some(id), true) = (&jobs, id, is_end_of_job(&answer)) {
        jobs.end(id);
    }
    let result = match answer {
        Ok(json) => {
            let json: Value = serde_json::from_slice(&json).unwrap_or_default();
            ExecutionResult::completed(&info, took, json)
        }
        Err((status, error)) => {
            let id = match (jobs, error.job()) {
                (Some((jobs, asked)), Some(job)) if error.is_pending() => {
                    let has_subjects = this.routes.has_bearer_subject();
                    jobs.keep(&asked, job.clone(), id, has_subjects)
                }
                _ => None,
            };
            let Some(mut result) = ExecutionResult::of_error(info.tool(), took, &error) else {
                return refused(&error, status);
            };
            let job = id.map(|id| ("job".to_owned(), format!("{id:032x}").into()));
            result.metadata.extend(job);
            result
        }
    };
    let answer = json(&result);
    answer.unwrap_or_else(|error| refused(&error.for_call(&info), StatusCode::BAD_GATEWAY))
}

/// Returns whether a job is over: not if it could not be asked for.
fn is_end_of_job<T>(answer: &Result<T, (StatusCode, ToolError)>) -> bool {
    match answer {
        Ok(_) => true,
        Err((_, error)) => error.kind() == ErrorKind::Reported && error.job().is_none(),
    }
}

/// axum adds which method is allowed.
async fn no_post() -> Response {
    let reason = "the method has to be POST";
    rejected(Rejection::new(StatusCode::METHOD_NOT_ALLOWED, reason))
}
