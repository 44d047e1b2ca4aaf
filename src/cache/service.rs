use std::{
    any::TypeId,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

use super::layer::{CacheLayer, Rules};
use crate::{
    answer::{asks_for_input, input_of},
    call::{CallExt, CallInfo, Observation, ReplaySafety, ToolCall},
    error::{ErrorKind, ToolError},
    event::InertReason,
    flow::{Flow, Gate, Gated, Readiness},
    kit::{
        flights::{Flight, FlightKey, Source, is_for_one},
        principal::MAX_PRINCIPAL,
        reuse::{self, AnyAnswer, Request, Reuse, Reused},
    },
    outcome::{ByError, Classify, Count},
};

/// Answers repeated calls from memory. See the [module docs](super) for an example.
pub type Cache<S, C = ByError> = Gated<S, CacheLayer<C>>;

/// Response future for [`Cache`].
pub type ResponseFuture<S, F, C> = Flow<S, F, Reused<Key, AnyAnswer, InCache<C>>>;

impl<Res, C> Gate<Res> for CacheLayer<C>
where
    Res: Clone + Send + Sync + 'static,
    C: Classify<Res> + Clone,
{
    type Ticket = Reused<Key, AnyAnswer, InCache<C>>;

    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Self::Ticket, ToolError> {
        let at = self.enter(call, TypeId::of::<Res>());
        let info = call.info();
        Ok(Reused { info, at })
    }
}

/// A call and its owner.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    owner: Arc<str>,
    /// As the layer names the tool.
    name: Arc<str>,
    request: Request,
}

crate::text::debug_fields! { {} |_| Key { .. } }

impl Key {
    pub(super) fn is_of(&self, name: &str) -> bool {
        &*self.name == name
    }
}

impl FlightKey for Key {
    fn owner(&self) -> Option<&Arc<str>> {
        Some(&self.owner)
    }

    fn share_owner(&mut self, owner: Arc<str>) {
        self.owner = owner;
    }
}

/// A call with an answer that may be kept.
pub struct InCache<C> {
    rules: Arc<Rules>,
    classifier: C,
    below: Observation,
    ttl: Duration,
    deadline: Option<Instant>,
    /// The call has a timeout that others may not have.
    has_timeout: bool,
}

crate::text::debug_fields! { {C} |_| InCache<C> { .. } }

impl<C: Clone> CacheLayer<C> {
    /// Returns the call at its key, if its answer may be kept.
    fn enter(
        &self,
        call: &mut ToolCall,
        answer: TypeId,
    ) -> Option<(Flight<Key, AnyAnswer>, InCache<C>)> {
        let rules = &self.rules;
        let tool = rules.tools.get_of_server(call)?;
        // Arguments that are too deep are never sent, and are not looked at; and who waits for a
        // job wants no other.
        if call.is_too_deep() || call.job().is_some() {
            return None;
        }
        let info = call.info();
        if call.replay_safety() == ReplaySafety::Unsafe {
            let help = "leave the tool out of the cache, or set it as safe";
            rules.pass(&info, InertReason::MarkedUnsafe, help);
            return None;
        }
        let Some(owner) = rules.store.principal.of(call) else {
            let help = "set a session or agent id on calls, or `shared()` for all";
            rules.pass(&info, InertReason::NoPrincipal, help);
            return None;
        };
        if owner.len() > MAX_PRINCIPAL || reuse::has_long_names(&info) {
            return None;
        }
        // An answer to a question is for the call that was asked.
        if input_of(call.extensions(), rules.seed.hasher()).is_some() {
            return None;
        }
        let request = Request::new(call, &info, &rules.seed, answer);
        let key = Key {
            owner,
            name: Arc::clone(&tool.name),
            request,
        };
        // What is fresh makes room.
        let mut flight = rules.flights.enter(key).ok()?;
        if rules.store.principal.is_of_many() {
            // No call waits for a row of calls of other callers that all end for themselves.
            flight.leave_behind(None);
        }
        let reuse = InCache {
            rules: Arc::clone(rules),
            classifier: self.classifier.clone(),
            below: call.observe(),
            ttl: tool.ttl,
            deadline: call.deadline(),
            has_timeout: call.timeout().is_some(),
        };
        Some((flight, reuse))
    }
}

impl<Res, C> Reuse<Res, Key, AnyAnswer> for InCache<C>
where
    Res: Clone + Send + Sync + 'static,
    C: Classify<Res>,
{
    fn give(
        &self,
        end: Result<AnyAnswer, ToolError>,
        source: Source,
        info: &CallInfo,
    ) -> Result<Res, ToolError> {
        let count = match source {
            Source::Kept => &self.rules.hits,
            _ => &self.rules.shared,
        };
        count.fetch_add(1, Relaxed);
        reuse::tell(info, "cache");
        let answer = reuse::copy_of::<Res>(&end?);
        Ok(answer.expect("the type is part of the key"))
    }

    fn begin(&self, _: &mut Flight<Key, AnyAnswer>) {
        self.rules.misses.fetch_add(1, Relaxed);
    }

    fn end(&self, flight: &mut Flight<Key, AnyAnswer>, result: &Result<Res, ToolError>) {
        match result {
            Ok(answer) => {
                let outcome = self.classifier.classify(Ok(answer));
                let is_neutral = self.below.is_reported() || outcome.count() == Count::Neutral;
                let is_success = outcome.is_success() && !self.below.is_reported();
                let is_for_all = is_success || !(is_neutral && self.is_of_many());
                let size = &self.rules.store.size;
                let is_copied = is_for_all && !asks_for_input(answer);
                let kept = is_copied.then(|| size.keep(answer)).flatten();
                let kept = kept.filter(|(_, bytes)| flight.reserve(*bytes, |_| None));
                match kept {
                    Some((answer, _)) if !is_success => flight.fail(Ok(answer)),
                    // What is not kept is this call's alone: the others are sent, and do not wait
                    // for each other.
                    kept => flight.end(kept.map(|(answer, _)| (answer, Instant::now() + self.ttl))),
                }
            }
            // As if it was dropped.
            Err(error) if self.is_own(error) => {}
            Err(error) => flight.fail(Err(error.clone().unnamed())),
        }
    }
}

impl<C> InCache<C> {
    /// Returns whether callers that may have other rights get the same answers.
    fn is_of_many(&self) -> bool {
        self.rules.store.principal.is_of_many()
    }

    /// Returns whether the call has failed by its own properties, which says nothing to others.
    /// Callers that are not distinguished may have other tokens and quotas.
    fn is_own(&self, error: &ToolError) -> bool {
        is_for_one(error)
            || self.is_of_many() && error.kind().count() == Count::Neutral
            || self.has_timeout && error.kind() == ErrorKind::Timeout
            || self.deadline.is_some_and(|at| at <= Instant::now())
    }
}
