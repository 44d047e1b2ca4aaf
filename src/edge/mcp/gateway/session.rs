use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use rmcp::model::RequestId;
use tokio::task::AbortHandle;

use crate::edge::headers::is_usable_id;

/// The state of one session: a clone is another session.
pub(super) struct Session {
    /// Unique in this process.
    number: u64,
    /// Tells the client of changes. One for each session, however often a client says that it is
    /// ready.
    listener: OnceLock<AbortHandle>,
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
            .get_or_init(|| tokio::spawn(listener).abort_handle());
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

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.get() {
            listener.abort();
        }
    }
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
}
