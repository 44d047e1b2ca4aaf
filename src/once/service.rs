use std::{any::TypeId, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    key::Key,
    layer::{OnceLayer, Rules},
};
use crate::{
    answer::{asks_for_input, input_of},
    call::{CallExt, CallInfo, Observation, ReplaySafety, ToolCall},
    error::{ErrorKind, Execution, ToolError},
    event::{InertReason, Listener},
    flow::{Flow, Gate, Gated, Readiness},
    kit::{
        flights::{Flight, NoPlace, Source},
        principal::MAX_PRINCIPAL,
        reuse::{self, AnyAnswer, Request, Reuse, Reused},
        share,
    },
};

/// The code of a refusal: the key is in use for another tool or other arguments.
pub const TOOL_KEY_REUSED: &str = "TOOL_KEY_REUSED";

/// The code of a refusal: the first call with this key may have run.
pub const TOOL_OUTCOME_UNKNOWN: &str = "TOOL_OUTCOME_UNKNOWN";

/// The code of a refusal: the first call with this key has run, and its answer was not kept, for
/// want of room.
pub const TOOL_ALREADY_DONE: &str = "TOOL_ALREADY_DONE";

/// The longest key, in bytes.
const MAX_ID: usize = 1024;

/// Runs a repeated call once. See the [module docs](super) for an example.
pub type Once<S> = Gated<S, OnceLayer>;

/// Response future for [`Once`].
pub type ResponseFuture<S, F> = Flow<S, F, Reused<Key, Kept, InOnce>>;

impl<Res: Clone + Send + Sync + 'static> Gate<Res> for OnceLayer {
    type Ticket = Reused<Key, Kept, InOnce>;

    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Self::Ticket, ToolError> {
        let at = enter(&self.rules, call, TypeId::of::<Res>())?;
        let info = call.info();
        Ok(Reused { info, at })
    }
}

/// The kept end of a call that was sent.
#[derive(Clone)]
pub enum Kept {
    /// Set if the tool service has reported it as the tool's own error.
    Answer(AnyAnswer, bool),
    /// The end is too large, or all room was taken.
    NoRoom,
    Failed(ToolError),
    /// The call may have run, and ended with this error; or was dropped, or panicked.
    Unknown(Option<ToolError>),
}

impl Kept {
    /// Returns the smaller value to keep when all room is taken.
    fn rest(&self) -> Self {
        match self {
            Self::Unknown(_) => Self::Unknown(None),
            _ => Self::NoRoom,
        }
    }
}

/// A call with a key.
pub struct InOnce {
    rules: Arc<Rules>,
    ttl: Duration,
    /// Set if the caller has set no key.
    is_by_arguments: bool,
    replay: ReplaySafety,
    below: Observation,
}

crate::text::debug_fields! { {} |_| InOnce { .. } }
crate::text::debug_fields! { {} |_| Kept { .. } }

/// The flight of a call, and the call in it.
type Entered = (Flight<Key, Kept>, InOnce);

/// Returns the call at its key. `None`: it passes, as it starts nothing, may run twice, or has no
/// key to be compared by.
fn enter(
    rules: &Arc<Rules>,
    call: &mut ToolCall,
    answer: TypeId,
) -> Result<Option<Entered>, ToolError> {
    let id = call.once_key().map(Box::<str>::from);
    let is_compared = || !rules.within.is_zero() && call.replay_safety() != ReplaySafety::Safe;
    // Arguments that are too deep are never sent; and a call that waits for a job starts nothing.
    let starts = !call.is_too_deep() && call.job().is_none();
    if !starts || id.is_none() && !is_compared() {
        return Ok(None);
    }
    let info = call.info();
    let owner = rules.store.principal.of(call).unwrap_or_else(|| {
        let help = "set a session or agent id on calls, or `shared()` for all";
        let (listener, reason) = (Listener::default(), InertReason::NoPrincipal);
        rules.inert.pass(&listener, &info, reason, help);
        Arc::default()
    });
    let is_long = id.as_ref().is_some_and(|id| id.len() > MAX_ID) || owner.len() > MAX_PRINCIPAL;
    if is_long || reuse::has_long_names(&info) {
        let text = "the key, the principal or the names of the call are too long";
        return Err(ToolError::refusal(ErrorKind::InvalidInput, text));
    }
    let (flights, ttl) = match id {
        Some(_) => (&rules.keyed, rules.ttl),
        None => (&rules.repeats, rules.within),
    };
    let mut request = Request::new(call, &info, &rules.seed, answer);
    let is_by_arguments = id.is_none();
    if is_by_arguments {
        // With a key of its own, a call and its continuation after a question have one.
        request.input = input_of(call.extensions(), rules.seed.hasher());
    }
    let key = Key { owner, id, request };
    let flight = flights.enter(key).map_err(no_place)?;
    let reuse = InOnce {
        rules: Arc::clone(rules),
        ttl,
        is_by_arguments,
        replay: call.replay_safety(),
        below: call.observe(),
    };
    Ok(Some((flight, reuse)))
}

impl<Res: Clone + Send + Sync + 'static> Reuse<Res, Key, Kept> for InOnce {
    fn give(
        &self,
        end: Result<Kept, ToolError>,
        _: Source,
        info: &CallInfo,
    ) -> Result<Res, ToolError> {
        Err(match end {
            Ok(Kept::Answer(answer, is_reported)) => {
                info.record(|record| record.set_reported(is_reported));
                reuse::tell(info, "once");
                let answer = reuse::copy_of::<Res>(&answer);
                return Ok(answer.expect("the type is part of the request"));
            }
            Ok(Kept::Failed(error)) | Err(error) => {
                reuse::tell(info, "once");
                let error = error.for_call(info);
                match self.is_by_arguments {
                    true => not_run_again(error),
                    false => error,
                }
            }
            Ok(Kept::NoRoom) => already_done(),
            Ok(Kept::Unknown(first)) => unknown(first.as_ref()),
        })
    }

    fn begin(&self, flight: &mut Flight<Key, Kept>) {
        if self.replay != ReplaySafety::Safe {
            let left = (Kept::Unknown(None), self.ttl);
            flight.leave_behind(Some(left));
        }
    }

    fn end(&self, flight: &mut Flight<Key, Kept>, result: &Result<Res, ToolError>) {
        let (bytes, kept) = match result {
            Ok(answer) if asks_for_input(answer) => return flight.end_unmade(),
            Ok(answer) => match self.rules.store.size.keep(answer) {
                Some((answer, bytes)) => (bytes, Kept::Answer(answer, self.below.is_reported())),
                None => (0, Kept::NoRoom),
            },
            Err(error) if is_definite(error) => {
                let error = error.clone().unnamed().without_source();
                (error.kept_bytes(), Kept::Failed(error))
            }
            Err(error) if self.may_run_again(error) => return flight.end_unmade(),
            Err(error) => {
                let error = error.clone().unnamed().without_source();
                (error.kept_bytes(), Kept::Unknown(Some(error)))
            }
        };
        let kept = match flight.reserve(bytes, |kept| Some(kept.rest())) {
            true => kept,
            false => kept.rest(),
        };
        flight.end(Some((kept, Instant::now() + self.ttl)));
    }

    fn waited(&self, error: ToolError) -> ToolError {
        let text = "ended while it waited for the call that has its key, and may run";
        ToolError::refusal(error.kind(), text).with_execution(Execution::Unknown)
    }
}

impl InOnce {
    /// Returns whether the tool surely did not run, or may run twice.
    fn may_run_again(&self, error: &ToolError) -> bool {
        let is_unsent = error.is_surely_not_started(self.replay) && !error.is_after_ambiguous();
        is_unsent || self.replay == ReplaySafety::Safe
    }
}

/// Returns whether the tool has ended with this error, and would have the same to say again: what
/// is merely recognised by its text included.
fn is_definite(error: &ToolError) -> bool {
    use ErrorKind::{Denied, Failed, InvalidInput, NotFound, Reported};
    let kind = error.kind();
    match error.execution() {
        Execution::NotStarted => false,
        Execution::Completed => true,
        Execution::Unknown => matches!(kind, Failed | Reported | InvalidInput | NotFound | Denied),
    }
}

#[cold]
fn no_place(why: NoPlace) -> ToolError {
    match why {
        NoPlace::Other => {
            let text =
                "the key of this call is that of another one, with another tool or other arguments";
            ToolError::refusal(ErrorKind::InvalidInput, text)
                .with_code(TOOL_KEY_REUSED)
                .with_model_message(
                    "This call has the key of another one with other arguments, and was not made. Give it a key of its own.",
                )
        }
        NoPlace::NoRoom(why) => {
            let of = match why {
                share::NoRoom::Full => "",
                share::NoRoom::Unverified => " of a principal that was not verified",
                share::NoRoom::Share => " of this principal",
            };
            let text = format!("all places for keys{of} are taken until the first one expires");
            ToolError::refusal(ErrorKind::Overloaded, text)
        }
    }
}

fn already_done() -> ToolError {
    let text = "the call was made before, and its answer was not kept";
    ToolError::refusal(ErrorKind::Failed, text)
        .with_execution(Execution::Completed)
        .with_code(TOOL_ALREADY_DONE)
        .with_model_message(
            "This very call was made before and has run; its answer was not kept. Do not repeat it.",
        )
}

/// Returns the error of an equal call. Without a key its caller does not know that this one has not
/// run.
fn not_run_again(error: ToolError) -> ToolError {
    let text = error.model_message();
    error
        .with_detail("reused", "once")
        .with_model_message(format!(
            "{text} This is the end of an equal call that was made before: it was not made again."
        ))
}

fn unknown(first: Option<&ToolError>) -> ToolError {
    let text = "the call was made before, and may have run";
    let refusal = ToolError::refusal(ErrorKind::Failed, text)
        .with_execution(Execution::Unknown)
        .with_code(TOOL_OUTCOME_UNKNOWN)
        .with_detail("first", first.map_or("DROPPED", ToolError::code))
        .with_model_message(
            "This very call was made before, and it is not known whether it took effect. Do not repeat it: find out first.",
        );
    match first.and_then(ToolError::job) {
        Some(job) => refusal.with_job(job.clone()),
        None => refusal,
    }
}
