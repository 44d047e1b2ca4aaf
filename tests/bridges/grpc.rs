//! A gRPC service by hand, as `tonic-build` would make it: no protoc.

use std::{convert::Infallible, time::Duration};

use http::uri::PathAndQuery;
use serde_json::Value;
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status,
    server::Grpc,
    transport::{Channel, Endpoint, Server as GrpcServer, server::TcpIncoming},
};
use tonic_prost::ProstCodec;
use tower::{ServiceExt, service_fn};
use tower_toolcall::{ToolCall, Trust};

use crate::kit::{Server, Stack, Tools, stack};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CallRequest {
    #[prost(string, tag = "1")]
    pub(crate) tool: String,
    #[prost(string, tag = "2")]
    pub(crate) server: String,
    /// JSON.
    #[prost(string, tag = "3")]
    pub(crate) arguments: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CallResponse {
    /// JSON.
    #[prost(string, tag = "1")]
    pub(crate) answer: String,
}

async fn method(
    stack: Stack,
    request: Request<CallRequest>,
) -> Result<Response<CallResponse>, Status> {
    let (metadata, _, message) = request.into_parts();
    let mut call = ToolCall::new(message.tool)
        .with_grpc_metadata(&metadata)
        .with_grpc_deadline(&metadata, Trust::Untrusted);
    if !message.server.is_empty() {
        call = call.with_server(message.server);
    }
    let call = call.with_json_str(&message.arguments)?;
    let info = call.info();
    let answer = stack
        .oneshot(call)
        .await
        .map_err(|error| error.for_call(&info))?;
    Ok(Response::new(CallResponse {
        answer: answer.to_string(),
    }))
}

async fn serve(listener: TcpListener, stack: Stack) {
    let service = service_fn(move |request: http::Request<tonic::body::Body>| {
        let stack = stack.clone();
        async move {
            let mut grpc = Grpc::new(ProstCodec::<CallResponse, CallRequest>::default());
            let method = service_fn(move |request| method(stack.clone(), request));
            Ok::<_, Infallible>(grpc.unary(method, request).await)
        }
    });
    let incoming = TcpIncoming::from(listener);
    GrpcServer::builder()
        .serve_with_incoming(service, incoming)
        .await
        .unwrap();
}

pub(crate) async fn grpc(open_for: Duration) -> Server {
    let tools = Tools::default();
    grpc_of(tools.clone(), stack(&tools, open_for)).await
}

pub(crate) async fn grpc_of(tools: Tools, stack: Stack) -> Server {
    Server::start(tools, |listener| serve(listener, stack)).await
}

pub(crate) async fn connect(server: &Server) -> Channel {
    Endpoint::try_from(server.url(""))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

pub(crate) async fn call(channel: Channel, request: Request<CallRequest>) -> Result<Value, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client
        .ready()
        .await
        .map_err(|e| Status::from_error(e.into()))?;
    let path = PathAndQuery::from_static("/tools.v1.Tools/Call");
    let codec = ProstCodec::<CallRequest, CallResponse>::default();
    let response = client.unary(request, path, codec).await?;
    Ok(serde_json::from_str(&response.into_inner().answer).unwrap())
}

pub(crate) fn request(tool: &str, arguments: &str) -> Request<CallRequest> {
    Request::new(CallRequest {
        tool: tool.to_owned(),
        server: String::new(),
        arguments: arguments.to_owned(),
    })
}
