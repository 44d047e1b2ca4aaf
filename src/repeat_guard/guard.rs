//! The calls that are watched, their hashes, and the use of their ends.

use std::{
    any::Any,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    history::{History, Limits, Repeated},
    layer::RepeatGuardLayer,
};
use crate::{
    answer::hash_any,
    call::{CallExt, CallInfo, Observation, ToolCall},
    error::{ErrorKind, QUOTA_IMPOSSIBLE, ToolError},
    event::{Event, InertReason, Listener},
    kit::{
        per_tool::PerTool,
        registry::{Entry, Evict, Eviction},
    },
    lock::lock,
    outcome::Outcome,
};

/// The code of a call that was refused because it has failed repeatedly.
pub const TOOL_REPEATED: &str = "TOOL_REPEATED";

/// Shared by all of a layer value.
#[derive(Clone)]
pub struct Rules {
    pub(super) limits: Limits,
    /// Arguments that are not compared.
    pub(super) ignored: Vec<Box<str>>,
    /// Set to `false` for tools that are not watched.
    pub(super) tools: PerTool<bool>,
    pub(super) listener: Listener,
    pub(super) seed: RandomState,
    pub(super) origin: Instant,
}

impl Rules {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Returns the hash that identifies a call. Callers cannot choose arguments for their hashes.
    fn fingerprint(&self, call: &ToolCall) -> u64 {
        let mut hasher = self.seed.build_hasher();
        (call.server(), call.tool()).hash(&mut hasher);
        let compared = call.arguments().iter();
        let compared = compared.filter(|(key, _)| !self.ignored.iter().any(|name| **name == **key));
        let compared = compared.map(|member| self.seed.hash_one(member));
        hasher.write_u64(compared.fold(0, u64::wrapping_add));
        hasher.finish()
    }
}

crate::text::debug_fields! { {} |_| Rules { limits, tools, .. } }

/// The value of a principal in the registry.
#[derive(Debug)]
pub(super) struct Memory {
    rules: Arc<Rules>,
    history: Mutex<History>,
}

impl Memory {
    pub(super) fn new(rules: &Arc<Rules>) -> Self {
        let (rules, history) = (Arc::clone(rules), Mutex::default());
        Self { rules, history }
    }
}

impl Evict for Memory {
    fn eviction(&self) -> Eviction {
        let (now, limits) = (self.rules.now(), self.rules.limits);
        match lock(&self.history).matters(now, limits) {
            true => Eviction::Costly,
            false => Eviction::Free,
        }
    }
}

/// A call that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    memory: Arc<Entry<Memory>>,
    call: u64,
    /// Set if the caller has made the call; not set if an outer layer sends it again.
    is_first: bool,
    below: Observation,
}

impl<C> RepeatGuardLayer<C> {
    /// Watches a call, unless its tool is exempt or it has no principal.
    pub(super) fn watch(&self, call: &mut ToolCall, info: &CallInfo) -> Option<Watched> {
        let tools = &self.rules.tools;
        let is_exempt = !tools.is_empty() && tools.get(call) == Some(&false);
        // Arguments that are too deep are never sent, and are not looked at.
        if is_exempt || call.is_too_deep() {
            return None;
        }
        let make = || Memory::new(&self.rules);
        let Some(memory) = self.histories.entry_if_keyed(info, make) else {
            let help = "set a session or agent id, or use `with_keys`";
            let (inert, reason) = (self.histories.inert(), InertReason::NoPrincipal);
            inert.pass(&self.rules.listener, info, reason, help);
            return None;
        };
        // The principals beyond the bound share one memory.
        (!memory.is_overflow()).then(|| Watched {
            memory,
            call: self.rules.fingerprint(call),
            is_first: call.attempt() == 1,
            below: call.observe(),
        })
    }
}

impl Watched {
    /// Lets the call through, which is about to be sent, or refuses it. Changes nothing unless it
    /// `is_sent`: else it waits first.
    pub(super) fn admit(&self, is_sent: bool) -> Result<(), ToolError> {
        let admitted =
            self.ask(|history, now, limits| history.admit(self.call, now, limits, is_sent));
        let admitted = admitted.unwrap_or(Ok(()));
        admitted.map_err(refused)
    }

    /// Asks the history of a call that is not sent again by a layer.
    fn ask<T>(
        &self,
        ask: impl FnOnce(&mut History, &dyn Fn() -> Duration, Limits) -> T,
    ) -> Option<T> {
        let Memory { rules, history } = self.memory.value();
        let ask = || ask(&mut lock(history), &|| rules.now(), rules.limits);
        self.is_first.then(ask)
    }

    /// The call has its answer: what the classifier says of that.
    pub(super) fn answered<Res: Any>(&self, info: &CallInfo, answer: &Res, outcome: &Outcome) {
        match outcome.failure_of_answer() {
            None => self.succeeded(info, answer),
            // What it says is not known here: all answers that are errors are the same.
            Some((kind, _)) if counts(kind) => self.failed(&kind, || None),
            Some(_) => {}
        }
    }

    fn succeeded(&self, info: &CallInfo, answer: &dyn Any) {
        let memory = self.memory.value();
        let rules = &memory.rules;
        let mut hasher = rules.seed.build_hasher();
        // 0 if its type is not known.
        let answer = match hash_any(answer, &mut hasher) {
            true => hasher.finish().max(1),
            false => 0,
        };
        let now = rules.now();
        let times = lock(&memory.history).succeeded(self.call, answer, now, rules.limits);
        if let Some(times) = times {
            let event = Event::Repeated { call: info, times };
            rules.listener.tell(&event);
        }
    }

    /// The call has failed.
    #[cold]
    pub(super) fn erred(&self, error: &ToolError) {
        if self.is_first && counts(error.kind()) && !is_passing(error) {
            self.failed(&(error.kind(), error.message()), || error.reason());
        }
    }

    /// A failure that `once` or `cache` gives again is not another one.
    fn failed(&self, error: &impl Hash, why: impl FnOnce() -> Option<Box<str>>) {
        if self.below.is_reused() {
            return;
        }
        let error = self.memory.value().rules.seed.hash_one(error);
        self.ask(|history, now, limits| history.failed(self.call, error, now(), limits, why));
    }
}

/// Returns whether a failure of this kind is due to what was called: sent again, it would fail
/// again.
fn counts(kind: ErrorKind) -> bool {
    use ErrorKind::{Denied, Failed, InvalidInput, NotFound, Reported};
    matches!(kind, InvalidInput | NotFound | Denied | Failed | Reported)
}

/// Returns whether the same call may get another answer from the layer that refused it: from a
/// layer that is full or has closed, but not from a layer that has judged the call itself. An inner
/// guard has already counted the calls that it refuses. A quota reports each time that it can never
/// grant a call.
fn is_passing(error: &ToolError) -> bool {
    use ErrorKind::{Denied, InvalidInput, NotFound};
    let judged = matches!(error.kind(), InvalidInput | NotFound | Denied);
    error.is_own_refusal() && !judged || matches!(error.code(), TOOL_REPEATED | QUOTA_IMPOSSIBLE)
}

fn refused(why: Repeated) -> ToolError {
    let Repeated { times, wait, why } = why;
    let times_in_a_row = match times {
        1 => "once".to_owned(),
        times => format!("{times} times in a row"),
    };
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let stop = if why.ends_with("...") { "" } else { "." };
    let text = format!(
        "This exact call has failed {times_in_a_row}{why}{stop} Change its arguments or do something else."
    );
    let message = "the same call has failed again and again";
    ToolError::not_admitted(ErrorKind::InvalidInput, message, wait, None)
        .with_code(TOOL_REPEATED)
        .with_detail("failures", times)
        .with_model_message(text)
}
