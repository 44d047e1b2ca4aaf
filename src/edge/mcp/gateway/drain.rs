use std::sync::Arc;

use tokio::sync::watch;

/// Counts what runs, and ends it gently. Clones share the count.
#[derive(Clone, Default)]
pub(super) struct Drain(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Default)]
struct State {
    running: usize,
    closed: bool,
}

impl Drain {
    pub(super) fn running(&self) -> usize {
        self.0.borrow().running
    }

    /// One more, until the answer is dropped; `None` if nothing is let in any more.
    pub(super) fn enter(&self) -> Option<Running<'_>> {
        let mut entered = false;
        // Nobody waits for the count to rise.
        self.0.send_if_modified(|state| {
            entered = !state.closed;
            state.running += usize::from(entered);
            false
        });
        entered.then(|| Running(self))
    }

    pub(super) fn close(&self) {
        self.0.send_modify(|state| state.closed = true);
    }

    pub(super) async fn closed(&self) {
        self.until(|state| state.closed).await;
    }

    /// For after [`close`](Self::close): nobody is told before of calls that end.
    pub(super) async fn drained(&self) {
        self.until(|state| state.running == 0).await;
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        // The sender is here, so it cannot fail.
        let _ = self.0.subscribe().wait_for(|state| is_so(state)).await;
    }
}

/// One of those that run.
pub(super) struct Running<'a>(&'a Drain);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.0.send_if_modified(|state| {
            state.running -= 1;
            state.closed && state.running == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_drained_when_the_last_one_ends() {
        let drain = Drain::default();
        let (a, b) = (drain.enter().unwrap(), drain.enter().unwrap());
        drain.close();
        assert!(drain.enter().is_none());
        let mut drained = tokio_test::task::spawn(drain.drained());
        assert!(drained.poll().is_pending());
        drop(a);
        assert!(!drained.is_woken());
        drop(b);
        assert!(drained.is_woken());
        assert!(drained.poll().is_ready());
        assert_eq!(drain.running(), 0);
    }

    /// Thousands of streams may wait for the end, and calls come and go.
    #[tokio::test]
    async fn nobody_is_woken_by_calls_before_it_closes() {
        let drain = Drain::default();
        let mut closed = tokio_test::task::spawn(drain.closed());
        assert!(closed.poll().is_pending());
        drop(drain.enter());
        assert!(!closed.is_woken());
        drain.close();
        assert!(closed.is_woken());
        assert!(closed.poll().is_ready());
    }
}
