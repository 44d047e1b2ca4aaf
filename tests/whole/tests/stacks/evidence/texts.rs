//! V1, R6: no text makes a tool run twice, and none proves that it did not run.

use std::io;

use rmcp::{
    ErrorData,
    model::ErrorCode,
    service::{RoleClient, ServiceError},
    transport::DynamicTransportError,
};
use tonic::{Code, Status};
use tower_toolcall::{BoxError, ErrorKind, Evidence, Execution, ToolError};

use super::kit::runs;

/// As tools say it: of payments, mails, bookings, builds; in the words of many runtimes.
pub(crate) const TEXTS: &str = include_str!("texts.txt");

/// What ran more than once, or claims to know something.
async fn wrong<E: Into<ToolError>>(shape: &str, error: impl Fn(&'static str) -> E) -> Vec<String> {
    let mut wrong = Vec::new();
    for text in TEXTS.lines() {
        let (runs, error) = runs(|| error(text)).await;
        let inferred = error.evidence() == Evidence::Inferred;
        if runs != 1 || error.execution() != Execution::Unknown || !inferred {
            wrong.push(format!("{shape}: {runs} runs: {text}: {error:?}"));
        }
        if error.kind() == ErrorKind::Cancelled {
            wrong.push(format!("{shape}: cancelled by nobody: {text}"));
        }
    }
    wrong
}

fn none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn io(kind: io::ErrorKind, text: &'static str) -> io::Error {
    io::Error::new(kind, text)
}

fn mcp(code: i32, text: &'static str) -> BoxError {
    ServiceError::McpError(ErrorData::new(ErrorCode(code), text, None)).into()
}

#[test]
fn the_list_is_long_and_has_no_twins() {
    let mut texts: Vec<_> = TEXTS.lines().collect();
    let len = texts.len();
    texts.sort_unstable();
    texts.dedup();
    assert!(texts.len() >= 200 && texts.len() == len);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_with_a_text_runs_once() {
    none(wrong("text", BoxError::from).await);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_with_an_io_error_runs_once() {
    for kind in [
        io::ErrorKind::Other,
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::AddrNotAvailable,
        io::ErrorKind::TimedOut,
    ] {
        none(wrong("io::Error", |text| io(kind, text)).await);
        none(wrong("boxed io::Error", |text| BoxError::from(io(kind, text))).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_gives_its_error_context_runs_once() {
    let context = |text: &'static str| anyhow::anyhow!(text).context("mailing the receipt");
    none(wrong("context", |text| BoxError::from(context(text))).await);
    let below = |text: &'static str| {
        anyhow::Error::from(io(io::ErrorKind::ConnectionRefused, "")).context(text)
    };
    none(wrong("context above a type", |text| BoxError::from(below(text))).await);
    let ours = |text: &'static str| {
        let refusal = ToolError::refusal(ErrorKind::CircuitOpen, "open");
        BoxError::from(anyhow::Error::from(refusal).context(text))
    };
    none(wrong("context above our own refusal", ours).await);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_with_an_mcp_error_runs_once() {
    for code in [-32603, -32000, -32001, -32601, -32602, -32800, 429, 503, 7] {
        let shape = format!("MCP {code}");
        none(wrong(&shape, |text| mcp(code, text)).await);
    }
    let send = |text| {
        let refused = io(io::ErrorKind::ConnectionRefused, text);
        let failed = DynamicTransportError::from_parts(
            "tcp",
            std::any::TypeId::of::<RoleClient>(),
            Box::new(refused),
        );
        BoxError::from(ServiceError::TransportSend(failed))
    };
    none(wrong("MCP transport", send).await);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_with_a_grpc_status_runs_once() {
    for code in (1..=16).map(Code::from_i32) {
        let shape = format!("{code:?}");
        none(wrong(&shape, |text| Status::new(code, text)).await);
    }
    none(
        wrong("boxed status", |text| {
            BoxError::from(Status::unavailable(text))
        })
        .await,
    );
    let refused = |text: &'static str| Status::from_error(tonic::ConnectError(text.into()).into());
    none(wrong("no connection", refused).await);
}
