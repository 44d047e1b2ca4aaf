use std::{
    future::{Future, pending},
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use rmcp::{
    model::{ProgressNotificationParam, ProgressToken, RequestId},
    service::{Peer, RoleServer},
};
use tokio::{sync::watch, time::sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::{future::first, progress::Relay};

/// The state of one session: a clone is another session.
pub(super) struct Session {
    /// Unique in this process.
    number: u64,
    /// Tells the client of changes. One for each session, however often a client says that it is
    /// ready.
    listener: OnceLock<AbortOnDropHandle<()>>,
}

impl Session {
    /// Its id in this process. The client's own is a secret of its connection.
    pub(super) fn id(&self) -> String {
        format!("s{}", self.number)
    }

    /// An id for a call, for logs. A client's own ids begin anew in each session; a number and its
    /// text are two.
    pub(super) fn call_id(&self, request: &RequestId) -> String {
        let number = self.number;
        let id = match request {
            RequestId::Number(id) => format!("s{number}-{id}"),
            RequestId::String(id) if id.is_empty() => String::new(),
            RequestId::String(id) => format!("s{number}:{id}"),
        };
        match is_usable_id(&id) {
            true => id,
            false => format!("s{number}-s{}", next()),
        }
    }

    /// Runs this as long as the session lives, if nothing does yet.
    pub(super) fn listen(&self, listener: impl Future<Output = ()> + Send + 'static) {
        self.listener
            .get_or_init(|| AbortOnDropHandle::new(tokio::spawn(listener)));
    }
}

/// A number that nothing else in this process has.
fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

impl Default for Session {
    fn default() -> Self {
        Self {
            number: next(),
            listener: OnceLock::new(),
        }
    }
}

impl Clone for Session {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The shortest time between two messages: progress is for showing that something moves, not for
/// all of it.
const GAP: Duration = Duration::from_millis(100);

/// The newest progress of a call, on its way to the client.
pub(super) struct Relayed {
    newest: watch::Receiver<Option<ProgressNotificationParam>>,
    peer: Peer<RoleServer>,
    token: ProgressToken,
}

impl Relayed {
    pub(super) fn to(peer: Peer<RoleServer>, token: ProgressToken) -> (Relay, Self) {
        let (sender, newest) = watch::channel(None);
        let relayed = Self {
            newest,
            peer,
            token,
        };
        let relay = move |report: &ProgressNotificationParam| keep_newest(&sender, report);
        (Relay(Arc::new(relay)), relayed)
    }

    /// Runs the call, and sends the client the newest progress; nothing after the answer.
    pub(super) async fn during<T>(mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        loop {
            let mut message = match first(call.as_mut(), self.next()).await {
                Ok(answer) => return answer,
                Err(message) => message,
            };
            message.progress_token = self.token.clone();
            // Its members are for the gateway alone.
            message.meta = None;
            let mut sending = pin!(self.peer.notify_progress(message));
            // A client that is gone is noticed by others.
            if let Ok(answer) = first(call.as_mut(), sending.as_mut()).await {
                // Left in the queue, the message might be overtaken by the answer.
                let _ = sending.await;
                return answer;
            }
            if let Ok(answer) = first(call.as_mut(), sleep(GAP)).await {
                return answer;
            }
        }
    }

    async fn next(&mut self) -> ProgressNotificationParam {
        while self.newest.changed().await.is_ok() {
            if let Some(report) = self.newest.borrow_and_update().clone() {
                return report;
            }
        }
        pending().await
    }
}

/// Progress only grows: reports may overtake each other, and another attempt begins anew.
fn keep_newest(
    newest: &watch::Sender<Option<ProgressNotificationParam>>,
    report: &ProgressNotificationParam,
) {
    newest.send_if_modified(|newest| {
        let before = newest.as_ref().map_or(f64::NEG_INFINITY, |r| r.progress);
        let grows = report.progress > before;
        if grows {
            *newest = Some(report.clone());
        }
        grows
    });
}

/// Returns whether an id of a client's is taken up, as those of HTTP requests are: 1 to 128 visible
/// characters.
pub(super) fn is_usable_id(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_two_sessions_have_different_ids() {
        let (a, b) = (Session::default(), Session::default());
        assert_ne!(
            a.call_id(&RequestId::Number(1)),
            b.call_id(&RequestId::Number(1))
        );
        assert_ne!(
            a.call_id(&RequestId::Number(1)),
            a.clone().call_id(&RequestId::Number(1))
        );
    }

    #[test]
    fn calls_of_a_session_have_different_ids() {
        let session = Session::default();
        let text = |s: &str| session.call_id(&RequestId::String(s.into()));
        assert_ne!(text("5"), session.call_id(&RequestId::Number(5)));
        for unusable in ["two words\n", "", &"x".repeat(200)] {
            let (a, b) = (text(unusable), text(unusable));
            assert!(is_usable_id(&a), "{a}");
            assert_ne!(a, b);
        }
        let long = text(&"x".repeat(128));
        assert!(is_usable_id(&long), "{long}");
    }

    use crate::GatewayHandler;
    use rmcp::{ServiceExt as _, model::CallToolResult};
    use serde_json::{Value, json};
    use std::{future::poll_fn, task::Poll};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tower::service_fn;
    use tower_toolcall::{call::ToolCall, error::ToolError};

    /// The specification: none after the answer. rmcp has two queues for them. The metadata of the
    /// server's own notification is not the client's.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn progress_that_is_on_its_way_comes_before_the_answer() {
        let stack = service_fn(|call: ToolCall| async move {
            let relay: &Relay = call.extensions().get().unwrap();
            let theirs =
                json!({ "progressToken": 0, "progress": 1.0, "_meta": { "of": "theirs" } });
            relay.0(&serde_json::from_value(theirs).unwrap());
            // The message is on its way, and there is an answer before any other task has had a
            // turn.
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
            let mut has_progress = id == 0;
            loop {
                line.clear();
                wire.read_line(&mut line).await.unwrap();
                let heard: Value = serde_json::from_str(&line).unwrap();
                if heard["id"] == id {
                    break;
                }
                assert_eq!(heard["params"]["progressToken"], id);
                assert_eq!(heard["params"]["_meta"], Value::Null);
                has_progress = true;
            }
            assert!(has_progress, "{id}");
        }
    }
}
