//! What the client has asked, until it is answered.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::{
    calls::{Asked, Calls},
    message::{self, Head, INTERNAL_ERROR, INVALID_PARAMS, Id, Line},
    process::MAX_OPEN,
    queue::Queue,
    server::Server,
};

/// The requests of the client: calls of tools go through the stack, others straight to the server. Clones share them.
#[derive(Clone)]
pub(crate) struct Requests {
    calls: Calls,
    server: Server,
    client: Queue,
    open: Arc<Mutex<HashMap<Id, Request>>>,
}

/// One of them. Clones share it.
#[derive(Clone)]
pub(crate) struct Request(Arc<Said>);

struct Said {
    id: Id,
    method: String,
    line: Line,
    /// Whether it was sent before.
    is_sent: AtomicBool,
    /// The client does not wait for the answer any more.
    cancelled: CancellationToken,
    /// How it has said so.
    cancellation: OnceLock<Line>,
}

impl Requests {
    pub(crate) fn new(calls: Calls, server: Server, client: Queue) -> Self {
        Self {
            calls,
            server,
            client,
            open: Arc::default(),
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Id, Request>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn any(&self) -> bool {
        !self.open().is_empty()
    }

    /// Begins a request, and answers it later.
    pub(crate) async fn begin(&self, id: Id, method: &str, head: &Head<'_>, line: &Line) {
        match self.admit(&id, method, head, line) {
            Ok((request, call)) => {
                let all = self.clone();
                tokio::spawn(async move { all.run(request, call).await });
            }
            Err((code, why)) => self.client.send(message::failure(&id, code, &why)).await,
        }
    }

    fn admit(
        &self,
        id: &Id,
        method: &str,
        head: &Head<'_>,
        line: &Line,
    ) -> Result<(Request, Option<Asked>), (i32, String)> {
        let is_call = method == "tools/call";
        let call = is_call.then(|| Asked::of(head)).transpose();
        let call = call.map_err(|error| (INVALID_PARAMS, error.to_string()))?;
        let request = Request(Arc::new(Said {
            id: id.clone(),
            method: method.to_owned(),
            line: line.clone(),
            is_sent: AtomicBool::new(false),
            cancelled: CancellationToken::new(),
            cancellation: OnceLock::new(),
        }));
        let mut open = self.open();
        if open.len() >= MAX_OPEN || open.contains_key(id) {
            let why = "the id is that of another request, or there are too many";
            return Err((INTERNAL_ERROR, why.to_owned()));
        }
        open.insert(id.clone(), request.clone());
        Ok((request, call))
    }

    async fn run(&self, request: Request, call: Option<Asked>) {
        let answer = async {
            match call {
                Some(call) => self.calls.run(&request, call).await,
                None => match self.server.ask(&request, None).await {
                    Ok(answer) => answer,
                    Err(error) => message::failure(request.id(), INTERNAL_ERROR, error.message()),
                },
            }
        };
        // Whoever has cancelled it expects no answer.
        if let Some(answer) = request.0.cancelled.run_until_cancelled(answer).await {
            self.client.send(answer).await;
        }
        self.open().remove(request.id());
    }

    /// Gives up the request that this notification is about. Returns whether it is open.
    pub(crate) fn cancel(&self, id: &Id, line: &Line) -> bool {
        let open = self.open();
        let Some(request) = open.get(id) else {
            return false;
        };
        let _ = request.0.cancellation.set(line.clone());
        request.0.cancelled.cancel();
        true
    }
}

impl Request {
    pub(crate) fn id(&self) -> &Id {
        &self.0.id
    }

    pub(crate) fn method(&self) -> &str {
        &self.0.method
    }

    pub(crate) fn line(&self) -> &Line {
        &self.0.line
    }

    /// As it came; when it is sent again, under another id.
    pub(crate) fn next(&self, server: &Server) -> (Id, Line) {
        if self.0.is_sent.swap(true, Relaxed) {
            let id = server.new_id();
            if let Some(line) = message::under_id(self.line(), &id) {
                return (id, line);
            }
        }
        (self.id().clone(), self.line().clone())
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.cancelled.is_cancelled()
    }

    /// Tells the server that nobody waits for the answer to this id; as the client has said it, if it has.
    pub(crate) fn cancellation(&self, id: &Id) -> Line {
        let said = self.0.cancellation.get();
        let Some(said) = said.filter(|_| id == self.id()) else {
            let params = said.and_then(|said| Head::of(said)?.params);
            let own = r#"{"reason":"the call has run out of time"}"#;
            return message::cancelled(id, params.map_or(own, RawValue::get));
        };
        said.clone()
    }
}
