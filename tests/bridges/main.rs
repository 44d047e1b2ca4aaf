//! The stack in real servers, over real connections: axum's, hyper's and tonic's (X9, N2).
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod extract;
mod grpc;
mod http;
mod identity;
mod kit;
mod names;
mod peer;
mod plain_hyper;
mod replay;
mod rpc;
mod scenarios;
mod status;
mod system_d;
