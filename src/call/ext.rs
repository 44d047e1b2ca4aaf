use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use http::Extensions;
use tokio::time::Instant;

use super::{
    Claim, Identity, Observation, Place, ReplaySafety, ToolCall, Trust, arguments::Arguments,
    identity::Names,
};
use crate::{
    error::{ErrorKind, ToolError},
    redact::Rules,
};

/// The methods of a [`ToolCall`] for authors of layers, bridges and tool services.
///
/// | author of | uses |
/// |---|---|
/// | a tool, or code that calls tools | none of them |
/// | a layer | claims, observations, attempts, deadlines, listed values, `limit`, `on_behalf` |
/// | a bridge or a router | names, `tighten_remote`, `set_reserved`, `delivered` |
/// | a tool service that sends requests | `check_job`, `hide_secrets_of`, `copy_to_read` |
///
/// Only [`ToolCall`] implements it.
pub trait CallExt: Sealed {
    /// Claims the call, and returns whether it had been claimed before.
    ///
    /// Takes `&self`, because tower's `Policy::clone_request` sees the first attempt only so. A
    /// clone carries the claims made before it.
    fn claim(&self, claim: Claim) -> bool;

    /// Returns whether an outer layer has made this claim.
    fn is_claimed(&self, claim: Claim) -> bool;

    /// Returns a copy without this claim: for retriers such as tower's, which keep a copy of each
    /// attempt and claim it when they send it.
    fn unclaimed(&self, claim: Claim) -> Self;

    /// Observes the call: returns what the inner layers have [recorded](super::CallInfo::record),
    /// for as long as the observer keeps it.
    ///
    /// The outermost observer starts the record, and inner ones read the same record. Observing
    /// allocates only if clones of one call are sent at the same time, or if a
    /// [function](crate::middleware) observes the call before it sends it on.
    fn observe(&mut self) -> Observation;

    /// Observes the call as the layer that repeats it, at most `attempts` times: all attempts share
    /// one record, which ends with the answer of this, and one [idempotency
    /// key](ToolCall::idempotency_key). Each further one is a clone of the call after
    /// [`next_attempt`](Self::next_attempt).
    fn observe_attempts(&mut self, attempts: u32) -> Observation;

    /// Counts another attempt. For layers that repeat calls.
    fn next_attempt(&mut self);

    /// Returns a clone for reading. Never send it: sending leaves no trace, so a dropped call would
    /// count as not sent, and might run twice.
    ///
    /// [Cloning](ToolCall#impl-Clone-for-ToolCall) marks an observed call as copied; this does not.
    fn copy_to_read(&self) -> Self;

    /// Makes it a call of its own: observers of the call that it was cloned from see nothing of it.
    fn detach(&mut self);

    /// Moves the deadline to `at` unless it is earlier already: an outer deadline always wins.
    ///
    /// For deadlines that are set in this process. For those of a peer:
    /// [`tighten_remote`](Self::tighten_remote).
    fn tighten(&mut self, at: Instant);

    /// Notes that a reserve has been kept from the deadline, so that the next
    /// [`DeadlineLayer`](crate::deadline::DeadlineLayer) keeps none. For executors that set the
    /// deadlines of calls themselves.
    fn set_reserved(&mut self);

    /// Tightens the deadline to `at`, which came over a connection.
    ///
    /// A call that this deadline ends, by `trust`:
    ///
    /// - [`Untrusted`](Trust::Untrusted): does not count in circuit breakers and health registries
    ///   if the deadline was shorter than the tool's own timeout; a breaker does not choose such a
    ///   call as its probe
    /// - [`Trusted`](Trust::Trusted): has timed out, and circuit breakers count it
    ///
    /// The earliest of several deadlines decides. The
    /// [reserve](crate::deadline::DeadlineLayer::with_reserve) of inner layers is at most a tenth
    /// of the time that is left now, because a peer may wait for less than the reserve. The same
    /// limit holds for an earlier deadline that this process sets later.
    fn tighten_remote(&mut self, at: Instant, trust: Trust);

    /// Returns whether the [deadline](ToolCall::deadline) was set by a caller who is not trusted:
    /// see [`tighten_remote`](Self::tighten_remote).
    fn is_deadline_untrusted(&self) -> bool;

    /// Notes that a layer ends the call after this time. Of several the shortest holds. Inner
    /// circuit breakers judge by it whether a call that is dropped has timed out.
    fn limit(&mut self, timeout: Duration);

    /// Returns whether a table of tools has set the [replay safety](ToolCall::replay_safety). A
    /// listed value applies only where neither the caller nor a setting decides.
    fn is_replay_safety_listed(&self) -> bool;

    /// Returns whether a table of tools has set the [timeout](ToolCall::timeout). A setting of a
    /// layer takes precedence over a listed value.
    fn is_timeout_listed(&self) -> bool;

    /// Puts the call under its tool's identity. Everything else stays, its [record](Self::observe)
    /// too.
    ///
    /// The table's [replay safety](ToolCall::replay_safety) and [timeout](ToolCall::timeout) are
    /// written where the caller set nothing. They replace those of an outer table, except that a
    /// call which one table lists as unsafe stays unsafe. Settings of layers for this tool take
    /// precedence over both.
    ///
    /// Allocates nothing if the call has these names already and the identity has no timeout.
    /// Otherwise it allocates once if an outer observer holds the names, and once more if a clone
    /// of the call is kept: that clones the extensions deeply.
    fn resolved(self, identity: &Identity) -> Self;

    /// Replaces the call's names by those of an identity, and keeps everything else.
    ///
    /// For a bridge that maps the names which a model or a client uses. Unlike
    /// [`resolved`](Self::resolved) it does not mark the call as resolved by a table of tools, and
    /// ignores the identity's replay safety and timeout.
    ///
    /// ```
    /// use tower_toolcall::{Identity, ToolCall, flow::CallExt};
    ///
    /// let call = ToolCall::new("docs_search").with_id("call_1");
    /// let call = call.renamed(&Identity::new("docs/search"));
    /// assert_eq!((call.tool(), call.id()), ("docs/search", Some("call_1")));
    /// ```
    fn renamed(self, identity: &Identity) -> Self;

    /// Returns whether server and tool are an [identity](Identity), and not what a caller wrote.
    /// [`with_server`](ToolCall::with_server) makes them the caller's again.
    fn is_resolved(&self) -> bool;

    /// Returns the server that the call has still to reach: `None` without a server, and after
    /// [`delivered`](Self::delivered).
    fn named_server(&self) -> Option<&str>;

    /// Returns the call as the service of its server gets it: the server is reached, and an inner
    /// table of tools ignores it.
    ///
    /// For code that passes calls on to servers, as `Router` does. The service of a server may have
    /// tools and servers of its own under the same names.
    fn delivered(self) -> Self;

    /// Returns a call of another service that this one needs, for the same caller. For layers such
    /// as [`TokenLayer`](crate::token::TokenLayer).
    ///
    /// Ids, rules, cancellation and deadline are those of this call. It has a record of its own, no
    /// server, no arguments and no extensions, is attempt 1, and may run twice.
    fn on_behalf(&self, tool: impl Into<Arc<str>>) -> Self;

    /// Returns an error if the call has a job, because a call with a job starts none. For tool
    /// services that start jobs.
    ///
    /// # Errors
    ///
    /// `Internal`, as a refusal: no [`PollLayer`](crate::poll::PollLayer) has made it a question
    /// for that job.
    fn check_job(&self) -> Result<(), ToolError>;

    /// Hides the secrets of these rules, as [`with_secrets`](ToolCall::with_secrets) hides values.
    /// For a tool service that has rules with the secrets of its request already.
    fn hide_secrets_of(&mut self, rules: &Rules);
}

/// Implemented by [`ToolCall`] alone.
pub trait Sealed: Sized {}

impl Sealed for ToolCall {}

impl CallExt for ToolCall {
    #[inline]
    fn claim(&self, claim: Claim) -> bool {
        self.claims.fetch_or(claim.bit(), Relaxed) & claim.bit() != 0
    }

    #[inline]
    fn is_claimed(&self, claim: Claim) -> bool {
        self.has(claim.bit())
    }

    fn unclaimed(&self, claim: Claim) -> Self {
        let mut copy = self.clone();
        copy.withdraw(claim);
        copy
    }

    #[inline]
    fn observe(&mut self) -> Observation {
        let is_new = self.start_recording();
        Observation::new(self.info(), is_new, self.attempt)
    }

    fn observe_attempts(&mut self, attempts: u32) -> Observation {
        let is_new = self.begin_repeated(attempts);
        Observation::new(self.info(), is_new, self.attempt)
    }

    fn next_attempt(&mut self) {
        self.begin_attempt(self.attempt().saturating_add(1));
    }

    fn copy_to_read(&self) -> Self {
        self.copy()
    }

    fn detach(&mut self) {
        self.recording = 0;
    }

    #[inline]
    fn tighten(&mut self, at: Instant) {
        if self.deadline.is_none_or(|outer| at < outer) {
            self.set_deadline(at);
        }
    }

    fn set_reserved(&mut self) {
        self.is_reserved = true;
    }

    fn tighten_remote(&mut self, at: Instant, trust: Trust) {
        if self.deadline.is_none_or(|outer| at < outer) {
            let left = at.saturating_duration_since(Instant::now());
            self.data_mut().max_reserve = left / 10;
            self.set_deadline(at);
            self.deadline_trust = trust;
        }
    }

    #[inline]
    fn is_deadline_untrusted(&self) -> bool {
        self.deadline_trust == Trust::Untrusted
    }

    #[inline]
    fn limit(&mut self, timeout: Duration) {
        const MAX_SECS: u64 = u32::MAX as u64 / 1000 - 1;
        let secs = timeout.as_secs().min(MAX_SECS) as u32;
        let ms = (secs * 1000 + timeout.subsec_millis()).max(1);
        // None is 0, which is not less.
        self.limit_ms = self.limit_ms.wrapping_sub(1).min(ms - 1) + 1;
        self.share_limit();
    }

    fn is_replay_safety_listed(&self) -> bool {
        self.is_replay_listed
    }

    fn is_timeout_listed(&self) -> bool {
        self.data.ident.is_timeout_listed
    }

    fn resolved(mut self, identity: &Identity) -> Self {
        self = self.renamed(identity);
        self.place = Place::Resolved;
        let is_open = self.replay == ReplaySafety::Unknown
            || self.is_replay_listed && self.replay == ReplaySafety::Safe;
        if is_open && identity.replay != ReplaySafety::Unknown {
            (self.replay, self.is_replay_listed) = (identity.replay, true);
        }
        let ident = &self.data.ident;
        let is_open = ident.timeout.is_none() || ident.is_timeout_listed;
        if is_open && identity.timeout.is_some() && identity.timeout != ident.timeout {
            let ident = self.data_mut().ident_mut();
            (ident.timeout, ident.is_timeout_listed) = (identity.timeout, true);
        }
        self
    }

    fn renamed(mut self, identity: &Identity) -> Self {
        // Made for the first call of the identity, and kept there.
        identity.names.tool_hash();
        if self.has_names_of(identity) {
            self.data.ident.names.hashes.adopt(&identity.names.hashes);
            return self;
        }
        if self.server() != identity.server() {
            self.withdraw(Claim::Health);
        }
        self.data_mut().ident_mut().names = identity.names.clone();
        self
    }

    fn is_resolved(&self) -> bool {
        self.place == Place::Resolved
    }

    fn named_server(&self) -> Option<&str> {
        self.server().filter(|_| self.place != Place::Delivered)
    }

    fn delivered(mut self) -> Self {
        self.place = Place::Delivered;
        self
    }

    fn on_behalf(&self, tool: impl Into<Arc<str>>) -> Self {
        // No copy of this call: the tool does not get it.
        let mut call = self.copy().following();
        call.place = Place::Asked;
        let data = call.data_mut();
        data.arguments = Arguments::default();
        data.extensions = Extensions::new();
        data.progress = None;
        let ident = data.ident_mut();
        ident.names = Names::new(tool.into());
        call
    }

    fn check_job(&self) -> Result<(), ToolError> {
        let text = "the call has a job, and no layer asks for it";
        match self.data.job {
            Some(_) => Err(ToolError::refusal(ErrorKind::Internal, text)),
            None => Ok(()),
        }
    }

    fn hide_secrets_of(&mut self, rules: &Rules) {
        self.set_rules(self.rules().clone().with_secrets_of(rules));
    }
}
