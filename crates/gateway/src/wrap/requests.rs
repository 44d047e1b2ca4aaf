//! The requests of the client, until their answers.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Poll,
};

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{
    calls::{Asked, Calls},
    message::{self, Head, INTERNAL_ERROR, INVALID_PARAMS, Id, Line},
    process::MAX_OPEN,
    queue::{Queue, kib},
    server::Server,
};

/// How many KiB of requests may be open: as much as the longest message.
const ROOM: u32 = 256 << 10;

const NO_CALL: &str = "the parameters of a call are an object, in which there is one name";
const NOT_OPENED: &str = "the id is that of another request, or there are too many";

/// The requests of the client: calls of tools go through the stack, others straight to the server.
pub(crate) struct Requests {
    calls: Calls,
    server: Arc<Server>,
    client: Queue,
    open: Mutex<HashMap<Id, Arc<Request>>>,
    room: Arc<Semaphore>,
}

/// One of them.
pub(crate) struct Request {
    pub(crate) id: Id,
    pub(crate) method: String,
    pub(crate) line: Line,
    /// By which the server reports progress of a call.
    pub(crate) progress_token: Option<Id>,
    _room: OwnedSemaphorePermit,
    /// The request was sent before.
    is_sent: AtomicBool,
    /// The client no longer waits for the answer.
    pub(crate) cancelled: CancellationToken,
    /// The line by which the client has cancelled.
    cancellation: OnceLock<Line>,
}

impl Requests {
    pub(crate) fn new(calls: Calls, server: Arc<Server>, client: Queue) -> Arc<Self> {
        Arc::new(Self {
            calls,
            server,
            client,
            open: Mutex::default(),
            room: Arc::new(Semaphore::new(ROOM as usize)),
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Id, Arc<Request>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn any(&self) -> bool {
        !self.open().is_empty()
    }

    /// Begins a request, and answers it later.
    ///
    /// # Errors
    ///
    /// The answer, if it is refused.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        id: Id,
        method: &str,
        head: &Head<'_>,
        line: &Line,
    ) -> Result<(), Line> {
        let (request, call) = self.admit(id, method, head, line)?;
        let all = Arc::clone(self);
        let mut run = Box::pin(async move { all.run(request, call).await });
        // It is sent before what the client says next: not by a task, which others may be before.
        let first = poll_fn(|context| Poll::Ready(run.as_mut().poll(context)));
        if first.await.is_pending() {
            tokio::spawn(run);
        }
        Ok(())
    }

    fn admit(
        &self,
        id: Id,
        method: &str,
        head: &Head<'_>,
        line: &Line,
    ) -> Result<(Arc<Request>, Option<Asked>), Line> {
        let no_call = || message::failure(&id, INVALID_PARAMS, NO_CALL);
        let not_opened = || message::failure(&id, INTERNAL_ERROR, NOT_OPENED);
        let call = match method {
            "tools/call" => Some(Asked::of(head).ok_or_else(no_call)?),
            _ => None,
        };
        let room = Arc::clone(&self.room).try_acquire_many_owned(kib(line, ROOM));
        let mut open = self.open();
        let room = room
            .ok()
            .filter(|_| open.len() < MAX_OPEN && !open.contains_key(&id));
        let request = Arc::new(Request {
            id: id.clone(),
            method: method.to_owned(),
            line: line.clone(),
            progress_token: call.as_ref().and_then(|call| call.progress_token.clone()),
            _room: room.ok_or_else(not_opened)?,
            is_sent: AtomicBool::new(false),
            cancelled: CancellationToken::new(),
            cancellation: OnceLock::new(),
        });
        open.insert(id, Arc::clone(&request));
        Ok((request, call))
    }

    async fn run(&self, request: Arc<Request>, call: Option<Asked>) {
        let is_answered = async {
            let answer = match call {
                Some(call) => self.calls.run(&request, call).await,
                None => match self.server.ask(&request, None).await {
                    Ok(answer) => answer,
                    Err(error) => message::failure(&request.id, INTERNAL_ERROR, error.message()),
                },
            };
            self.client.send(answer).await;
        };
        // A client that has cancelled it expects no answer, and may have reused its id.
        if let Some(()) = request.cancelled.run_until_cancelled(is_answered).await {
            self.open().remove(&request.id);
        }
    }

    /// Gives up the request that this notification is about. Returns whether it was open.
    pub(crate) fn cancel(&self, id: &Id, line: &Line) -> bool {
        let Some(request) = self.open().remove(id) else {
            return false;
        };
        let _ = request.cancellation.set(line.clone());
        request.cancelled.cancel();
        true
    }
}

impl Request {
    /// As it came; when it is sent again, under another id.
    pub(crate) fn next(&self) -> (Id, Line) {
        if !self.is_sent.swap(true, Relaxed) {
            return (self.id.clone(), self.line.clone());
        }
        let id = message::new_id();
        let line = message::under_id(&self.line, &id);
        (id, line)
    }

    /// Returns the cancellation for the server, with the client's parameters if the client has sent
    /// one.
    pub(crate) fn cancellation(&self, id: &Id) -> Line {
        let own = r#"{"reason":"the call has run out of time"}"#;
        let Some(said) = self.cancellation.get() else {
            return message::cancelled(id, own);
        };
        if *id == self.id {
            return said.clone();
        }
        let params = Head::of(said).and_then(|said| said.params);
        message::cancelled(id, params.map_or(own, RawValue::get))
    }
}
