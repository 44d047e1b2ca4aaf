//! A stack in a hyper service: `cargo run -p example-servers --bin hyper_server`.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpListener;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_toolcall::{AnyError, BoxError, ErrorKind, ServiceBuilderExt, ToolCall, ToolError};

#[derive(Deserialize)]
struct Weather {
    city: String,
}

async fn weather(call: ToolCall) -> Result<String, AnyError> {
    let Weather { city } = call.arguments_as()?;
    match &*city {
        "Atlantis" => std::future::pending().await,
        city => Ok(format!("{city}: 12 degrees")),
    }
}

/// `POST /{tool}`, with the arguments as JSON. A client that hangs up drops the call.
///
/// The type of the body is what a browser asks for first: no page of others can call a tool.
async fn handle<S>(
    stack: S,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<String, ToolError>
where
    S: Service<ToolCall, Response = String, Error = ToolError>,
{
    let invalid = |e: BoxError| ToolError::new(ErrorKind::InvalidInput, e.to_string());
    let (head, body) = request.into_parts();
    if head
        .headers
        .get(CONTENT_TYPE)
        .is_none_or(|of| !of.as_bytes().starts_with(b"application/json"))
    {
        return Err(invalid("the body has to be application/json".into()));
    }
    let body = Limited::new(body, 1 << 20).collect().await;
    let body = body.map_err(invalid)?.to_bytes();
    let arguments = str::from_utf8(&body).map_err(|e| invalid(e.into()))?;
    // Whose the call is: what one client's arguments cause is felt by that client alone. Anybody
    // has any number of addresses; an authentication would put a `VerifiedCaller` into the
    // extensions.
    let call = ToolCall::new(head.uri.path().trim_start_matches('/'))
        .with_session_id(peer.ip().to_string())
        .with_unverified_ids()
        .with_request_extensions(&head.extensions);
    stack.oneshot(call.with_json_str(arguments)?).await
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let stack = ServiceBuilder::new()
        .tool_circuit_breaker()
        .tool_timeout(Duration::from_millis(100))
        .tool(tower::service_fn(weather));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/weather", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            // Without it an answer of two parts waits 40 ms for an acknowledgement.
            drop(stream.set_nodelay(true));
            let stack = stack.clone();
            let service = service_fn(move |request| {
                let stack = stack.clone();
                async move {
                    // Statuses, `Retry-After` and a JSON body: `ToolError::to_http`.
                    let answer = handle(stack, peer, request).await.map(Response::new);
                    let answer = answer.unwrap_or_else(|error| error.to_http());
                    Ok::<_, Infallible>(answer.map(Full::<Bytes>::from))
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });

    let client = reqwest::Client::builder().no_proxy().build()?;
    for body in [
        r#"{"city": "Oslo"}"#,
        r#"{"city": "Atlantis"}"#,
        r#"{"city"#,
    ] {
        let request = client.post(&url).header(CONTENT_TYPE, "application/json");
        let response = request.body(body).send().await?;
        println!(
            "{body}: {}\n   {}",
            response.status(),
            response.text().await?
        );
    }
    Ok(())
}
