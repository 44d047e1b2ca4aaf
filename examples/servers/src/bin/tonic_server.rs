//! A stack in a method of a gRPC service: `cargo run -p example-servers --bin tonic_server`.
//!
//! The service is written by hand, as `tonic-build` would make it, so that no compiler of protocols
//! is needed.

use std::{convert::Infallible, time::Duration};

use http::uri::PathAndQuery;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status, client, server,
    transport::{Channel, Endpoint, Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{AnyError, BoxError, ServiceBuilderExt, ToolCall, ToolError, Trust};

#[derive(Deserialize)]
struct Search {
    query: String,
}

/// The method: `?` makes a status of an error, with its code, its delay and its details.
async fn search<S>(stack: S, request: Request<String>) -> Result<Response<String>, Status>
where
    S: Service<ToolCall, Response = String, Error = ToolError>,
{
    let metadata = request.metadata();
    // What one client's arguments cause is felt by that client alone.
    let peer = request.remote_addr().map(|peer| peer.ip().to_string());
    let call = ToolCall::new("search")
        .with_session_id(peer.unwrap_or_default())
        .with_unverified_ids()
        .with_request_extensions(request.extensions())
        .with_grpc_metadata(metadata)
        .with_grpc_deadline(metadata, Trust::Untrusted)
        .with_json_str(request.get_ref())?;
    Ok(Response::new(stack.oneshot(call).await?))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let stack = ServiceBuilder::new()
        .tool_circuit_breaker()
        .tool_timeout(Duration::from_millis(100))
        .tool(service_fn(|call: ToolCall| async move {
            let Search { query } = call.arguments_as()?;
            match &*query {
                "slow" => std::future::pending().await,
                query => Ok::<_, AnyError>(format!("3 pages about {query}")),
            }
        }));
    let service = service_fn(move |request: http::Request<tonic::body::Body>| {
        let stack = stack.clone();
        async move {
            let method = service_fn(move |request| search(stack.clone(), request));
            let mut grpc = server::Grpc::new(ProstCodec::<String, String>::default());
            Ok::<_, Infallible>(grpc.unary(method, request).await)
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let endpoint = Endpoint::try_from(format!("http://{}", listener.local_addr()?))?;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tokio::spawn(Server::builder().serve_with_incoming(service, incoming));

    let channel = endpoint.connect().await?;
    for query in ["tower", "slow"] {
        match ask(channel.clone(), json!({ "query": query }).to_string()).await {
            Ok(answer) => println!("{query}: {answer}"),
            Err(status) => println!("{query}: {:?}: {}", status.code(), status.message()),
        }
    }
    Ok(())
}

/// As a generated client does it.
async fn ask(channel: Channel, arguments: String) -> Result<String, Status> {
    let mut grpc = client::Grpc::new(channel);
    grpc.ready()
        .await
        .map_err(|e| Status::from_error(e.into()))?;
    let path = PathAndQuery::from_static("/docs.v1.Docs/Search");
    let codec = ProstCodec::<String, String>::default();
    Ok(grpc
        .unary(Request::new(arguments), path, codec)
        .await?
        .into_inner())
}
