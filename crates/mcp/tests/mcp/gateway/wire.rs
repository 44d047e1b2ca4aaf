//! What is really written to a client.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream},
    time::timeout,
};
use tower_toolcall_mcp::GatewayHandler;

use super::kit::{patient, stream};

/// A client that writes and reads lines.
pub(crate) struct Wire(BufReader<DuplexStream>);

impl Wire {
    async fn connect(handler: GatewayHandler) -> Self {
        Self::connect_as(handler, json!({})).await
    }

    /// A client with these capabilities.
    pub(crate) async fn connect_as(handler: GatewayHandler, capabilities: Value) -> Self {
        let mut wire = Self(BufReader::new(stream(handler)));
        let about = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": { "name": "wire", "version": "1" },
        });
        wire.send(json!({ "id": 0, "method": "initialize", "params": about }))
            .await;
        assert_eq!(wire.receive().await["id"], 0);
        wire.is_ready().await;
        wire
    }

    async fn is_ready(&mut self) {
        self.send(json!({ "method": "notifications/initialized" }))
            .await;
    }

    pub(crate) async fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        let line = format!("{message}\n");
        self.0.write_all(line.as_bytes()).await.unwrap();
    }

    pub(crate) async fn call(&mut self, id: u32, tool: &str) {
        let params = json!({ "name": tool, "arguments": {} });
        self.send(json!({ "id": id, "method": "tools/call", "params": params }))
            .await;
    }

    pub(crate) async fn receive(&mut self) -> Value {
        let mut line = String::new();
        let read = timeout(Duration::from_secs(60), self.0.read_line(&mut line)).await;
        assert_ne!(read.expect("a line").unwrap(), 0);
        serde_json::from_str(&line).unwrap()
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#behavior-requirements
//# Servers receiving cancellation notifications SHOULD:
//# Not send a response for the cancelled request
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio#cancellation
//# Servers SHOULD stop work on a cancelled request as soon as practical and MUST NOT send any
//# further messages for it.
/// X9: nobody waits for it.
#[tokio::test]
async fn a_cancelled_request_is_not_answered() {
    let gateway = patient().await;
    let mut wire = Wire::connect(gateway.handler.clone()).await;
    wire.call(7, "docs__hang").await;
    gateway.upstream.until_begun(1).await;
    let params = json!({ "requestId": 7 });
    wire.send(json!({ "method": "notifications/cancelled", "params": params }))
        .await;
    gateway.upstream.until_cancelled(1).await;
    wire.call(8, "docs__echo").await;
    assert_eq!(wire.receive().await["id"], 8);
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#notifications
//# The receiver MUST NOT send a response.
/// A session is told of a change once, and holds one place, however often its client says that it
/// is ready.
#[tokio::test]
async fn a_client_that_says_again_that_it_is_ready_is_told_once() {
    let gateway = patient().await;
    let mut wire = Wire::connect(gateway.handler.clone()).await;
    for _more in 0..5 {
        wire.is_ready().await;
    }
    for id in 1..4 {
        wire.call(id, "docs__echo").await;
        assert_eq!(wire.receive().await["id"], id);
    }
    gateway.handler.tools_changed();
    let told = wire.receive().await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    for id in 4..7 {
        wire.call(id, "docs__echo").await;
        assert_eq!(wire.receive().await["id"], id);
    }
}

/// Names and arguments that no call may have go no further.
#[tokio::test]
async fn a_name_that_no_tool_can_have_is_refused_at_the_door() {
    let gateway = patient().await;
    let mut wire = Wire::connect(gateway.handler.clone()).await;
    for (id, name) in [(1, String::new()), (2, "x".repeat(257)), (3, "a\nb".into())] {
        wire.call(id, &name).await;
        let answer = wire.receive().await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
    assert_eq!(gateway.upstream.begun(), 0);
}

/// 20b: a call that cannot be read is no unknown method. The second case is a name.
#[tokio::test]
async fn a_call_whose_parameters_cannot_be_read_has_invalid_params() {
    let gateway = patient().await;
    let mut wire = Wire::connect(gateway.handler.clone()).await;
    for (id, params) in [
        (1, json!({ "name": "slow", "arguments": "x" })),
        (2, json!({ "name": 7, "arguments": {} })),
        (3, json!(null)),
    ] {
        let call = json!({ "id": id, "method": "tools/call", "params": params });
        wire.send(call).await;
        let answer = wire.receive().await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    wire.send(json!({ "id": 4, "method": "tools/cull" })).await;
    assert_eq!(wire.receive().await["error"]["code"], -32601);
    assert_eq!(gateway.upstream.begun(), 0);
}

/// Changes do not pile up for a client that does not read, and it is none's burden.
#[tokio::test]
async fn a_client_that_never_reads_is_told_of_ten_thousand_changes_in_a_few_words() {
    let gateway = patient().await;
    let mut slow = Wire::connect(gateway.handler.clone()).await;
    for id in 1..=3 {
        slow.call(id, "docs__echo").await;
        assert_eq!(slow.receive().await["id"], id);
    }
    for _change in 0..10_000 {
        gateway.handler.tools_changed();
        tokio::task::yield_now().await;
    }
    timeout(Duration::from_secs(60), gateway.handler.drain())
        .await
        .unwrap();
    slow.call(4, "docs__echo").await;
    let mut told = 0;
    loop {
        let heard = slow.receive().await;
        if heard["id"] == 4 {
            break;
        }
        told += 1;
    }
    // What a pipe of 64 KiB has room for.
    assert!(told < 2000, "{told}");
    drop(slow);
}
