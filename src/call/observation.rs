use std::{
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use super::{CallInfo, Record, record::both, written};
use crate::{error::ToolError, event::Listen, redact::Rules};

/// An observer's view of a call's [`Record`]; see
/// [`CallExt::observe`](crate::flow::CallExt::observe).
///
/// Once the outermost observer has dropped its own, the figures of those below may be of a later
/// call; layers nest, so in a stack that does not happen.
#[must_use]
pub struct Observation {
    /// The call, which has the record. There until it is taken out at the end.
    call: Option<CallInfo>,
    owner: bool,
    /// The number of the first attempt that passes this observer.
    first: u16,
    /// The bit of its listener on the record.
    listener: Option<u8>,
}

impl Observation {
    #[inline]
    pub(super) fn new(call: CallInfo, owner: bool, first: u16) -> Self {
        call.observed().observed.store(true, Relaxed);
        Self {
            call: Some(call),
            owner,
            first,
            listener: None,
        }
    }

    /// Returns the call that is observed.
    #[inline]
    pub fn call(&self) -> &CallInfo {
        self.call.as_ref().expect("taken out at the end alone")
    }

    /// Takes over the redaction rules of an inner layer, unless the caller has put rules on the
    /// call. The end of the call is then shown by these rules.
    #[inline]
    pub(crate) fn adopt_rules(&mut self) {
        if self.record().has_rare.load(Relaxed)
            && let Some(rules) = self.rules_below()
            && let Some(call) = &mut self.call
        {
            call.set_rules(rules);
        }
    }

    /// Returns the rules for showing the end of the call, if inner layers have put others on it.
    pub(crate) fn rules_below(&self) -> Option<Rules> {
        Some(both(self.call().rules(), self.record().rules()?))
    }

    /// Hands the observation over. Nothing is left here.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        Self {
            call: self.call.take(),
            ..*self
        }
    }

    /// Ends the observation and takes the call out.
    #[inline]
    pub(crate) fn take_call(&mut self) -> CallInfo {
        self.end();
        self.call.take().expect("taken out here alone")
    }

    /// Puts a listener on the call. Until this observation ends, every inner layer sends it the
    /// events of this call, each event once, in addition to the layer's own listener. It does not
    /// receive [`Event::NotStarted`](crate::Event::NotStarted) of a refused name, which is the
    /// call's result. Observers nest, and each receives the events of the layers inside it.
    ///
    /// The listener is not kept alive. A circuit breaker that changes without a call, for example
    /// by its handle, reports to the last four listeners that it saw on calls. Evicted keys
    /// ([`Event::Evicted`](crate::Event::Evicted)) are reported to a layer's own listener only.
    ///
    /// An observation has one listener, a call at most four; returns whether this observation has
    /// one.
    ///
    /// ```
    /// use std::sync::{
    ///     Arc,
    ///     atomic::{AtomicU32, Ordering::Relaxed},
    /// };
    /// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
    /// use tower_toolcall::{
    ///     AnyError, Event, Listen, ReplaySafety, ToolCall, flow::CallExt, retry::RetryLayer,
    /// };
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let retries = Arc::new(AtomicU32::new(0));
    /// let count = Arc::clone(&retries);
    /// let listen: Arc<dyn Listen> = Arc::new(move |event: &Event<'_>| {
    ///     if let Event::Retry { .. } = event {
    ///         count.fetch_add(1, Relaxed);
    ///     }
    /// });
    ///
    /// let tool = service_fn(|call: ToolCall| async move {
    ///     if call.attempt() < 3 {
    ///         Err(AnyError::from("503 Service Unavailable"))
    ///     } else {
    ///         Ok("done")
    ///     }
    /// });
    /// let mut stack = ServiceBuilder::new().layer(RetryLayer::default()).service(tool);
    ///
    /// let mut call = ToolCall::new("search").with_replay_safety(ReplaySafety::Safe);
    /// let mut observation = call.observe();
    /// observation.listen(&Arc::downgrade(&listen));
    /// stack.ready().await.unwrap().call(call).await.unwrap();
    /// drop(observation);
    /// assert_eq!(retries.load(Relaxed), 2);
    /// # }
    /// ```
    #[inline]
    pub fn listen(&mut self, listen: &Weak<dyn Listen>) -> bool {
        if self.listener.is_none() {
            self.listener = self.record().listeners.add(listen);
        }
        self.listener.is_some()
    }

    #[inline]
    pub(crate) fn record(&self) -> &Record {
        self.call().observed()
    }

    /// A copy of the record's figures.
    #[inline]
    pub(crate) fn recorded(&self) -> Recorded {
        let record = self.record();
        Recorded {
            timeout: record.timeout.load(Relaxed),
            configured_timeout: record.configured.load(Relaxed),
            output_bytes: record.output_bytes.load(Relaxed),
            waited_nanos: record.waited_nanos.load(Relaxed),
            max_attempts: record.max_attempts.load(Relaxed),
            refusals: record.refusals.load(Relaxed),
            slow: record.slow.load(Relaxed),
        }
    }

    #[inline]
    fn end(&self) {
        let Some(call) = &self.call else { return };
        if let Some(bit) = self.listener {
            call.record(|record| record.listeners.remove(bit));
        }
        if self.owner {
            call.observed().end(call.recording);
        }
    }

    /// Returns how many attempts were sent, once the call has ended with `error` or with an answer,
    /// or was dropped. Only attempts that passed this observer count, and not those that an inner
    /// layer [refused](ToolError::is_own_refusal) or answered from [another call](Self::is_reused).
    /// 0 for a call that was only refused or only answered so.
    pub fn sent(&self, error: Option<&ToolError>) -> u32 {
        let is_reused = self.is_reused();
        let sent = match error {
            Some(error) => self.sent_before(error, self.attempts() - u32::from(is_reused)),
            None => self.attempts() - u32::from(is_reused || self.is_last_unsent()),
        };
        sent.saturating_sub(u32::from(self.first).saturating_sub(1))
    }

    /// A layer that repeats calls says so in the error.
    #[cold]
    fn sent_before(&self, error: &ToolError, begun: u32) -> u32 {
        let is_ours = error.tool().is_none_or(|tool| tool == self.call().tool());
        match error.attempts().filter(|_| is_ours) {
            Some(said) => said,
            None if error.is_own_refusal() || self.is_last_unsent() => begun.saturating_sub(1),
            None => begun,
        }
    }

    /// Returns whether the tool service has [reported](Record::set_reported) that the answer is an
    /// error in the tool's own words.
    #[inline]
    pub fn is_reported(&self) -> bool {
        self.record().reported.load(Relaxed)
    }

    /// Returns whether an inner layer has [noted](Record::set_known) that a tool of this name
    /// exists.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.record().known.load(Relaxed)
    }

    /// Returns whether the answer or the error is that of [another call](Record::set_reused).
    #[inline]
    pub fn is_reused(&self) -> bool {
        self.record().reused.load(Relaxed)
    }

    /// Returns the server that the tool service of the last attempt has
    /// [named](Record::set_server).
    pub fn server(&self) -> Option<Arc<str>> {
        self.record().server()
    }

    /// Attempts begun, at least 1, those before this observer included.
    #[inline]
    pub fn attempts(&self) -> u32 {
        self.record().attempts.load(Relaxed).max(1)
    }

    /// Returns the timeout in force at the last attempt; `None` without one. What a deadline leaves
    /// of it is known once the call has waited.
    pub fn timeout(&self) -> Option<Duration> {
        written(self.record().timeout.load(Relaxed)).map(Duration::from_nanos)
    }

    /// Returns the timeout as configured, before a deadline shortened it.
    pub fn configured_timeout(&self) -> Option<Duration> {
        written(self.record().configured.load(Relaxed)).map(Duration::from_nanos)
    }

    /// Returns how many attempts there may be; `None` if no layer repeats the call.
    pub fn max_attempts(&self) -> Option<u32> {
        Some(self.record().max_attempts.load(Relaxed)).filter(|n| *n > 0)
    }

    /// Asks those below for the size of the answer.
    #[inline]
    pub fn want_output_bytes(&self) {
        self.record().wants_output_bytes.store(true, Relaxed);
    }

    /// Returns the bytes of the answer as compact JSON, if the tool service or a layer has set
    /// them.
    pub fn output_bytes(&self) -> Option<u64> {
        written(self.record().output_bytes.load(Relaxed))
    }

    /// Returns whether a timeout layer found the call slow.
    #[inline]
    pub fn is_slow(&self) -> bool {
        self.record().slow.load(Relaxed)
    }

    /// Returns whether an executor has [noted](Record::set_dispatched) that the call has left its
    /// queue. No layer of this crate does: whether a call was sent is [`sent`](Self::sent).
    pub(crate) fn is_dispatched(&self) -> bool {
        self.record().dispatched.load(Relaxed)
    }

    /// Returns the time spent waiting for backoffs and cooldowns.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.record().waited_nanos.load(Relaxed))
    }

    /// Retries that were refused.
    pub fn refusals(&self) -> u32 {
        self.record().refusals.load(Relaxed)
    }
}

/// The figures of a record at one moment, in the record's own units, as few of them are ever read.
#[derive(Clone, Default)]
pub(crate) struct Recorded {
    /// One more than the number, or 0 if it was not [written], as the two below.
    pub(crate) timeout: u64,
    pub(crate) configured_timeout: u64,
    pub(crate) output_bytes: u64,
    pub(crate) waited_nanos: u64,
    /// 0 if unknown.
    pub(crate) max_attempts: u32,
    pub(crate) refusals: u32,
    pub(crate) slow: bool,
}

impl Drop for Observation {
    #[inline]
    fn drop(&mut self) {
        self.end();
    }
}

crate::text::debug_fields! {
    {} |this| Observation { call, record: this.call.as_ref().map(CallInfo::observed), .. }
}
