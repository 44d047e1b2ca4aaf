//! The endpoint of an executor of HTTP tools.

use ::axum::{
    body::Body,
    extract::{RawPathParams, Request, State, rejection::RawPathParamsRejection},
    response::{IntoResponse as _, Response},
};
use http::{Extensions, HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::{
    jobs::Jobs,
    request::{self, Rejection, of_json, shown, to_json},
    routes::Routes,
};
use crate::{
    call::ToolCall,
    edge::http_tool::{ExecutionError, ExecutionResult, ExecutionStatus},
    error::{ErrorKind, ToolError},
};

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

pub(super) async fn execute(State(routes): State<Routes>, request: Request) -> Response {
    let for_caller = routes.for_caller(request.headers(), request.extensions());
    // The route has no server.
    let on_server = |call, _: &str| Ok(call);
    let call = request::read(request, &(), on_server, for_caller, with_arguments).await;
    match call {
        Ok(call) => answer(routes, call, None).await,
        Err(rejection) => rejected(&rejection),
    }
}

/// Goes on waiting for a job.
pub(super) async fn job(
    State(routes): State<Routes>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    headers: HeaderMap,
    extensions: Extensions,
) -> Response {
    let params = match request::params(params) {
        Ok(params) => params,
        Err(rejection) => return rejected(&rejection),
    };
    let param = |name| request::param(&params, name).unwrap_or_default();
    let id = u128::from_str_radix(param("id"), 16).ok();
    let for_caller = routes.for_caller(&headers, &extensions);
    let for_caller = |call: ToolCall| {
        let call = call.with_request_headers(&headers);
        for_caller(call.with_request_extensions(&extensions))
    };
    let ask = |jobs: &Jobs| jobs.ask(param("tool"), id?, for_caller);
    let Some(call) = routes.jobs.as_ref().and_then(ask) else {
        let error = ToolError::refusal(ErrorKind::NotFound, "there is no such job of yours");
        return refused(&error, StatusCode::NOT_FOUND);
    };
    answer(routes, call, id).await
}

/// Runs a call; that of a job has its id.
async fn answer(routes: Routes, mut call: ToolCall, id: Option<u128>) -> Response {
    let jobs = routes.jobs.clone().map(|jobs| (jobs, call.clone()));
    let seen = call.observe();
    let info = call.info();
    let (has_subjects, lacks_subject) = (routes.has_subjects(), routes.lacks_subject(&call));
    let begun = Instant::now();
    let answer = routes.stack.oneshot(call).await;
    let took = begun.elapsed();
    if let (Some((jobs, _)), Some(id), true) = (&jobs, id, is_end_of_job(&answer)) {
        jobs.end(id);
    }
    let result = match answer {
        Ok(json) => {
            let json: Value = serde_json::from_slice(&json).unwrap_or_default();
            ExecutionResult::completed(info.tool(), took, json, &seen)
        }
        Err(error) => {
            let error = shown(error.for_call(&info));
            let Some(mut result) = ExecutionResult::of_error(info.tool(), took, &error) else {
                return refused(&error, request::status(&error, lacks_subject));
            };
            let is_pending = result.status == ExecutionStatus::Pending;
            if let (true, Some((jobs, asked)), Some(job)) = (is_pending, jobs, error.job()) {
                let id = jobs.keep(&asked, job.clone(), id, has_subjects);
                let id = id.map(|id| ("job".to_owned(), format!("{id:032x}").into()));
                result.metadata.extend(id);
            }
            result
        }
    };
    match to_json(&result) {
        Ok(json) => of_json(StatusCode::OK, json),
        Err(error) => refused(&error.for_call(&info), StatusCode::BAD_GATEWAY),
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
pub(super) async fn no_post() -> Response {
    rejected(&Rejection::no_post())
}

fn rejected(rejection: &Rejection) -> Response {
    rejection.log();
    refused(rejection.error(), rejection.status())
}

fn refused(error: &ToolError, status: StatusCode) -> Response {
    let body = ExecutionError::new(error.tool().unwrap_or_default(), error);
    let body = serde_json::to_value(&body).unwrap_or_default();
    error
        .to_http_with(status, &body)
        .map(Body::from)
        .into_response()
}
