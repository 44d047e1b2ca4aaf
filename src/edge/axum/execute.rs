//! The endpoint of an executor of HTTP tools.

use ::axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::{
    request::{self, Rejection},
    response::{of_json, shown, to_json},
    routes::Routes,
};
use crate::{
    call::ToolCall,
    edge::http_tool::{ExecutionError, ExecutionResult},
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
    let for_caller = routes.for_caller(request.headers());
    // The route has no server.
    let on_server = |call, _: &str| Ok(call);
    let call = request::read_as(request, &(), on_server, for_caller, with_arguments).await;
    let mut call = match call {
        Ok(call) => call,
        Err(rejection) => return refused(rejection.error(), rejection.status()),
    };
    let seen = call.observe();
    let info = call.info();
    let lacks_subject = routes.lacks_subject(&call);
    let begun = Instant::now();
    let answer = routes.stack.oneshot(call).await;
    let took = begun.elapsed();
    let result = match answer {
        Ok(json) => {
            let json: Value = serde_json::from_slice(&json).unwrap_or_default();
            ExecutionResult::completed(info.tool(), took, json, &seen)
        }
        Err(error) => {
            let error = shown(error.for_call(&info));
            match ExecutionResult::of_error(info.tool(), took, &error) {
                Some(result) => result,
                None => return refused(&error, super::response::status(&error, lacks_subject)),
            }
        }
    };
    match to_json(&result) {
        Ok(json) => of_json(StatusCode::OK, json),
        Err(error) => refused(&error.for_call(&info), StatusCode::BAD_GATEWAY),
    }
}

/// axum adds which method is allowed.
pub(super) async fn no_post() -> Response {
    let rejection = Rejection::no_post();
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
