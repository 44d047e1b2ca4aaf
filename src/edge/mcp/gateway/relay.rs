use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    task::Poll,
    time::Duration,
};

use rmcp::{
    model::{ProgressNotificationParam, ProgressToken},
    service::{Peer, RoleServer},
};
use tokio::{sync::watch, time::sleep};

use crate::edge::mcp::progress::{Relay, Report};

/// What passes at least between two messages: who asks for progress wants to see something move, not all of it.
const GAP: Duration = Duration::from_millis(100);

/// The way of a call's progress to the client.
pub(super) struct Relayed {
    reports: watch::Receiver<Option<Report>>,
    peer: Peer<RoleServer>,
    token: ProgressToken,
}

impl Relayed {
    pub(super) fn to(peer: Peer<RoleServer>, token: ProgressToken) -> (Relay, Self) {
        let (relay, reports) = Relay::new();
        let relayed = Self {
            reports,
            peer,
            token,
        };
        (relay, relayed)
    }

    /// Runs the call, and tells the client what is the newest; nothing after the answer.
    pub(super) async fn during<T>(self, call: impl Future<Output = T>) -> T {
        let sending = AtomicBool::new(false);
        let mut call = pin!(call);
        let mut tell = pin!(self.tell(&sending));
        let answer = poll_fn(|cx| {
            let polled = call.as_mut().poll(cx);
            if polled.is_pending() {
                // It never ends.
                let _ = tell.as_mut().poll(cx);
            }
            polled
        });
        let answer = answer.await;
        // What is on its way would overtake nothing, but might be overtaken by the answer.
        let sent = poll_fn(|cx| {
            if sending.load(Relaxed) {
                let _ = tell.as_mut().poll(cx);
            }
            match sending.load(Relaxed) {
                true => Poll::Pending,
                false => Poll::Ready(()),
            }
        });
        sent.await;
        answer
    }

    async fn tell(mut self, sending: &AtomicBool) {
        loop {
            if self.reports.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let Some(report) = self.reports.borrow_and_update().clone() else {
                continue;
            };
            let mut params = ProgressNotificationParam::new(self.token.clone(), report.progress);
            params.total = report.total;
            params.message = report.message;
            sending.store(true, Relaxed);
            // A client that is gone is noticed by others.
            let _ = self.peer.notify_progress(params).await;
            sending.store(false, Relaxed);
            sleep(GAP).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::{
        ServiceExt as _,
        model::{CallToolResult, ProgressNotificationParam},
    };
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tower::service_fn;

    use super::*;
    use crate::{call::ToolCall, edge::mcp::GatewayHandler, error::ToolError};

    /// The specification: none after the answer. rmcp has two queues for them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn progress_that_is_on_its_way_comes_before_the_answer() {
        let stack = service_fn(|call: ToolCall| async move {
            let relay: &Relay = call.extensions().get().unwrap();
            let anything = ProgressToken(rmcp::model::NumberOrString::Number(0));
            relay.report(&ProgressNotificationParam::new(anything, 1.0));
            // The client is told, and there is an answer before anybody else has had a turn.
            let mut first = true;
            poll_fn(|cx| match std::mem::take(&mut first) {
                true => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                false => Poll::Ready(()),
            })
            .await;
            Ok::<_, ToolError>(CallToolResult::success(Vec::new()).into())
        });
        let (theirs, ours) = tokio::io::duplex(1 << 20);
        let handler = GatewayHandler::new(stack, Vec::new);
        tokio::spawn(async { handler.serve(theirs).await.unwrap().waiting().await });
        let mut wire = BufReader::new(ours);
        let about = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "wire", "version": "1" },
        });
        let mut messages = vec![json!({ "id": 0, "method": "initialize", "params": about })];
        for id in 1..=500 {
            let params = json!({ "name": "any", "_meta": { "progressToken": id } });
            messages.push(json!({ "id": id, "method": "tools/call", "params": params }));
        }
        let mut line = String::new();
        for mut message in messages {
            message["jsonrpc"] = "2.0".into();
            wire.write_all(format!("{message}\n").as_bytes())
                .await
                .unwrap();
            let id = message["id"].clone();
            let mut told = id == 0;
            loop {
                line.clear();
                wire.read_line(&mut line).await.unwrap();
                let heard: Value = serde_json::from_str(&line).unwrap();
                if heard["id"] == id {
                    break;
                }
                assert_eq!(heard["params"]["progressToken"], id);
                told = true;
            }
            assert!(told, "{id}");
        }
    }
}
