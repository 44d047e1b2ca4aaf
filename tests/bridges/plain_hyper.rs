//! A plain hyper server whose handler calls the stack.

use std::{convert::Infallible, time::Duration};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinSet};
use tower::ServiceExt;
use tower_toolcall::{ErrorKind, ToolCall, ToolError};

use crate::kit::{Server, Stack, Tools, stack};

/// `POST /{tool}`, with the arguments as JSON.
async fn handle(
    stack: Stack,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(match answer(stack, request).await {
        Ok(answer) => Response::builder()
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(answer.to_string()))
            .unwrap(),
        Err(error) => error.to_http().map(Full::from),
    })
}

async fn answer(stack: Stack, request: Request<Incoming>) -> Result<Value, ToolError> {
    let (head, body) = request.into_parts();
    let tool = head.uri.path().trim_start_matches('/');
    let call = ToolCall::new(tool).with_request_headers(&head.headers);
    let info = call.info();
    let invalid = |_| ToolError::new(ErrorKind::InvalidInput, "no body").for_call(&info);
    let body = Limited::new(body, 1 << 20)
        .collect()
        .await
        .map_err(invalid)?;
    let call = call.with_json_str(&String::from_utf8_lossy(&body.to_bytes()))?;
    stack
        .oneshot(call)
        .await
        .map_err(|error| error.for_call(&info))
}

async fn serve(listener: TcpListener, stack: Stack) {
    // Stopped with the server.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let stack = stack.clone();
        let service = service_fn(move |request| handle(stack.clone(), request));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

pub(crate) async fn hyper(open_for: Duration) -> Server {
    let tools = Tools::default();
    hyper_of(tools.clone(), stack(&tools, open_for)).await
}

pub(crate) async fn hyper_of(tools: Tools, stack: Stack) -> Server {
    Server::start(tools, |listener| serve(listener, stack)).await
}
