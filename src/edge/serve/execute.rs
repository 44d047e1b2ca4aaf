//! The endpoint of an executor of tools.

use std::{sync::Arc, time::Duration};

use ::axum::{
    body::Body,
    extract::{RawPathParams, Request, State, rejection::RawPathParamsRejection},
    response::{IntoResponse as _, Response},
};
use http::{Extensions, HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use tokio::time::Instant;

use super::{
    jobs::Jobs,
    request::{self, Rejection, of_json, to_json},
    routes::Routes,
};
use crate::{
    call::{CallInfo, ToolCall},
    error::{ErrorKind, ToolError},
};

/// Bodies of the answers of an executor's endpoint, for [`Routes::with_execute`].
///
/// The `Execution` of the crate `tower-toolcall-http` has those of an executor of HTTP tools.
pub trait Envelope: Send + Sync + 'static {
    /// Returns the body of a success: the tool's answer as JSON, and how long the call took, with
    /// all waits and attempts. The call's [record](CallInfo::record) has what its tool service left
    /// there.
    fn completed(&self, call: &CallInfo, took: Duration, answer: Value) -> Value;

    /// Returns the body of an error that is a result, which is sent with the status 200, for
    /// example of a call whose [job still runs](ToolError::is_pending); then `job` is the id by
    /// which it is asked for, if jobs are kept. `None`: the error is refused. Return a body for
    /// each error that is pending: its job is kept before this is called.
    fn failed(
        &self,
        call: &CallInfo,
        took: Duration,
        error: &ToolError,
        job: Option<&str>,
    ) -> Option<Value>;

    /// Returns the body of any other error, which is sent with the status of
    /// [`to_http`](ToolError::to_http). A request that is not a call has no names.
    fn refused(&self, error: &ToolError) -> Value;
}

/// Routes with the endpoint of an executor.
#[derive(Clone)]
pub(super) struct Executor {
    pub(super) routes: Routes,
    pub(super) envelope: Arc<dyn Envelope>,
}

impl Executor {
    fn rejected(&self, rejection: &Rejection) -> Response {
        rejection.log();
        self.refused(rejection.error(), rejection.status())
    }

    fn refused(&self, error: &ToolError, status: StatusCode) -> Response {
        let body = self.envelope.refused(error);
        let answer = error.to_http_with(status, &body);
        answer.map(Body::from).into_response()
    }
}

/// The body of a request. Whatever else is in it has no meaning here.
#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

fn with_arguments(call: ToolCall, body: &str) -> Result<ToolCall, ToolError> {
    let asked: Asked<'_> = serde_json::from_str(body).map_err(|_| {
        let text = "the body is no JSON object with `arguments`";
        ToolError::new(ErrorKind::InvalidInput, text)
    })?;
    match asked.arguments {
        Some(arguments) => call.with_json_str(arguments.get()),
        None => Ok(call.with_arguments(Map::new())),
    }
}

pub(super) async fn execute(State(this): State<Executor>, request: Request) -> Response {
    let for_caller = this
        .routes
        .for_caller(request.headers(), request.extensions());
    // The route has no server.
    let on_server = |call, _: &str| Ok(call);
    let call = request::read(request, &(), on_server, for_caller, with_arguments).await;
    match call {
        Ok(call) => answer(this, call, None).await,
        Err(rejection) => this.rejected(&rejection),
    }
}

/// Goes on waiting for a job.
pub(super) async fn job(
    State(this): State<Executor>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    headers: HeaderMap,
    extensions: Extensions,
) -> Response {
    let params = match request::params(params) {
        Ok(params) => params,
        Err(rejection) => return this.rejected(&rejection),
    };
    let param = |name| request::param(&params, name).unwrap_or_default();
    let id = u128::from_str_radix(param("id"), 16).ok();
    let for_caller = this.routes.for_caller(&headers, &extensions);
    let for_caller = |call: ToolCall| {
        let call = call.with_request_headers(&headers);
        for_caller(call.with_request_extensions(&extensions))
    };
    let ask = |jobs: &Jobs| jobs.ask(param("tool"), id?, for_caller);
    let Some(call) = this.routes.jobs.as_ref().and_then(ask) else {
        let error = ToolError::refusal(ErrorKind::NotFound, "there is no such job of yours");
        return this.refused(&error, StatusCode::NOT_FOUND);
    };
    answer(this, call, id).await
}

/// Runs a call; that of a job has its id.
async fn answer(this: Executor, mut call: ToolCall, id: Option<u128>) -> Response {
    let routes = &this.routes;
    let jobs = routes.jobs.clone().map(|jobs| (jobs, call.clone()));
    let _seen = call.observe();
    let info = call.info();
    let (has_subjects, lacks_subject) = (routes.has_subjects(), routes.lacks_subject(&call));
    let begun = Instant::now();
    let answer = routes.run(call).await;
    let took = begun.elapsed();
    if let (Some((jobs, _)), Some(id), true) = (&jobs, id, is_end_of_job(&answer)) {
        jobs.end(id);
    }
    let body = match answer {
        Ok(json) => {
            let json: Value = serde_json::from_slice(&json).unwrap_or_default();
            this.envelope.completed(&info, took, json)
        }
        Err(error) => {
            let id = match (jobs, error.job()) {
                (Some((jobs, asked)), Some(job)) if error.is_pending() => {
                    jobs.keep(&asked, job.clone(), id, has_subjects)
                }
                _ => None,
            };
            let id = id.map(|id| format!("{id:032x}"));
            match this.envelope.failed(&info, took, &error, id.as_deref()) {
                Some(body) => body,
                None => return this.refused(&error, request::status(&error, lacks_subject)),
            }
        }
    };
    match to_json(&body) {
        Ok(json) => of_json(StatusCode::OK, json),
        Err(error) => this.refused(&error.for_call(&info), StatusCode::BAD_GATEWAY),
    }
}

/// Returns whether a job is over: not if it could not be asked for.
fn is_end_of_job<T>(answer: &Result<T, ToolError>) -> bool {
    match answer {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::Reported && error.job().is_none(),
    }
}

/// axum adds which method is allowed.
pub(super) async fn no_post(State(this): State<Executor>) -> Response {
    this.rejected(&Rejection::no_post())
}
