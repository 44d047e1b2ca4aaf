//! Jobs that outlive their calls.

use axum::{body::Body, http::Request};
use serde_json::{Map, Value};
use tower::{ServiceExt as _, service_fn};
use tower_toolcall::{ErrorKind, ToolCall, ToolError, call::JobRef, serve::Routes};
use tower_toolcall_http::Executor;

use crate::{MB, counted, small_values};

/// S-2: what is kept of a job is the text of its arguments.
#[test]
fn two_hundred_jobs_of_64_kib_take_little_more_than_their_text() {
    let mut kept = 0;
    let taken = counted(async {
        let tool = service_fn(|call: ToolCall| async move {
            let job = JobRef::new(&call, Map::new())?;
            let error = ToolError::new(ErrorKind::PollTimeout, "still running");
            Err::<Value, _>(error.with_job(job).with_detail("limit", "time"))
        });
        let routes = Executor::new(Routes::new(tool)).with_jobs().into_router();
        let body = format!(r#"{{"arguments":{}}}"#, small_values(64_000));
        for _ in 0..200 {
            let request = Request::post("/api/tools/a/execute");
            let request = request.header("content-type", "application/json");
            let request = request.body(Body::from(body.clone())).unwrap();
            let answer = routes.clone().oneshot(request).await.unwrap();
            let answer = axum::body::to_bytes(answer.into_body(), 10_000).await;
            let answer: Value = serde_json::from_slice(&answer.unwrap()).unwrap();
            kept += usize::from(answer["metadata"]["job"].is_string());
        }
    });
    assert_eq!(kept, 200);
    assert!(taken.bytes_max < 24 * MB, "{taken:?}");
}
