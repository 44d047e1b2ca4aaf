//! The JSON-RPC 2.0 endpoint.

mod answer;
mod request;

use ::axum::{
    body::Bytes,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::StatusCode;
use serde_json::Value;

use self::{
    answer::{Answers, INVALID_REQUEST, refusal},
    request::{Asked, Id, Message},
};
use super::{
    request::{Rejection, json_body},
    response::{of_json, shown},
    routes::Routes,
};
use crate::{ToolCall, batch::Parallel, edge::log_refusal, result::ToolResult};

pub(super) async fn answer(State(routes): State<Routes>, request: Request) -> Response {
    let headers = request.headers().clone();
    let extensions = request.extensions().clone();
    let for_caller = routes.for_caller(&headers, &extensions);
    let answers = match json_body(request, &()).await {
        Ok(body) => {
            run(
                &routes,
                |asked| {
                    let call = asked.with_headers(&headers);
                    for_caller(call.with_request_extensions(&extensions))
                },
                body,
            )
            .await
        }
        Err(rejection) => return of_rejection(&rejection),
    };
    match answers.into_json() {
        Some(json) => of_json(StatusCode::OK, json),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

/// axum adds which method is allowed.
pub(super) async fn no_post() -> Response {
    of_rejection(&Rejection::no_post())
}

/// The response to a body that was not read.
fn of_rejection(rejection: &Rejection) -> Response {
    log_refusal(rejection.error());
    let error = refusal(INVALID_REQUEST, rejection.error().message());
    let answer = Answers::of_unknown(&error).into_json();
    of_json(rejection.status(), answer.unwrap_or_default())
}

async fn run(routes: &Routes, to_call: impl Fn(Asked) -> ToolCall, body: Bytes) -> Answers {
    let message = match Message::read(&body, routes.max_batch) {
        Ok(message) => message,
        Err(error) => return Answers::of_unknown(&error),
    };
    let mut calls = Vec::new();
    let mut call = |asked: Asked| calls.push(to_call(asked));
    let entries = message
        .entries(routes.servers)
        .map(|entry| (entry.id, entry.asked.map(&mut call)));
    let entries: Vec<_> = entries.collect();
    let results = Parallel::new(routes.stack.clone()).run(calls).await;
    answered(message.answers(), entries, results)
}

/// To each its own: there is a result for each call, in their order.
fn answered(
    mut answers: Answers,
    entries: Vec<(Id<'_>, Result<(), Value>)>,
    results: Vec<ToolResult<Vec<u8>>>,
) -> Answers {
    let mut results = results.into_iter().map(ToolResult::into_result);
    for (id, called) in entries {
        let result = called.map(|()| results.next().expect("each call has a result"));
        match result {
            Ok(Ok(json)) => answers.succeed(id, &json),
            Ok(Err(error)) => answers.refuse(id, &shown(error).to_json_rpc()),
            Err(error) => answers.refuse(id, &error),
        }
    }
    answers
}
