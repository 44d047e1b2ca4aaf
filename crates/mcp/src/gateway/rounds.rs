//! Questions that a client of 2026-07-28 answers with its next request.

use std::{
    collections::{BTreeMap, HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ElicitRequest, ElicitResult,
    ElicitationAction, ErrorData, InputRequest, InputRequests, InputRequiredResult,
    RequestStateCodec, RequestStateError, SealOptions, Task,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, from_value};
use tokio::time::Instant;
use tower_toolcall::{
    call::ToolCall,
    error::{APPROVAL_MISSING, APPROVAL_UNANSWERED, Evidence, Execution, ToolError},
    policy::{Approval, ApprovalDecision},
};

use super::{
    elicit::{self, closed, form, question, unanswered},
    tasks::hide,
};
use crate::{
    capabilities::{check, has_forms, is_lacking},
    future::lock,
};

/// The beginning of each state that a gateway has sealed.
const OURS: &str = "tower-toolcall:";

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#server-requirements-basic-workflow
//# `inputRequests` keys are server assigned identifiers and MUST be unique within the scope of the
//# request.
/// The key of a gateway's own question.
const APPROVAL: &str = "approval";

/// How long a state may be used at most.
const LONGEST: Duration = Duration::from_secs(3600);

/// Seals the states of questions, and knows which of them were used.
#[derive(Clone)]
pub(super) struct States {
    pub(super) codec: Arc<RequestStateCodec>,
    used: Arc<Used>,
}

impl States {
    pub(super) fn new(codec: RequestStateCodec) -> Self {
        Self {
            codec: Arc::new(codec),
            used: Arc::default(),
        }
    }
}

impl Default for States {
    fn default() -> Self {
        let mut key = [0; RequestStateCodec::MIN_KEY_LENGTH];
        getrandom::fill(&mut key).expect("the system has random numbers");
        Self::new(RequestStateCodec::new_unchecked(key))
    }
}

/// The content of a state of ours. Clients can read it, and cannot change it.
#[derive(Serialize, Deserialize)]
struct State {
    /// Another one for each state, because an answer holds once.
    nonce: u64,
    ttl: Duration,
    /// Seals of the questions that were answered with yes.
    approved: Vec<String>,
    /// The seal of the question that is asked.
    asked: Option<String>,
    /// The state of the tool's server.
    theirs: Option<String>,
}

/// A request of a client that can be asked only by the answer to it.
pub(super) struct Round {
    states: States,
    tool: String,
    /// The caller. No other one can use its states.
    caller: String,
    can: ClientCapabilities,
    given: Option<State>,
    said: Option<ElicitationAction>,
    /// Set once an approver has looked at the given state: `Ok` if it could be used.
    used: OnceLock<Result<(), &'static str>>,
    end: Mutex<Option<End>>,
}

/// The reason why a call was not approved.
enum End {
    CannotAsk,
    Asks {
        text: String,
        seal: String,
        ttl: Duration,
    },
    Refused(&'static str),
}

impl Round {
    /// Reads the state of a request, and leaves in it the state of the tool's server.
    pub(super) fn begin(
        states: &States,
        call: &ToolCall,
        caller: String,
        can: ClientCapabilities,
        params: &mut CallToolRequestParams,
    ) -> Result<Self, ErrorData> {
        let (mut given, mut said) = (None, None);
        let state = params.request_state.as_deref();
        if let Some(sealed) = state.and_then(|state| state.strip_prefix(OURS)) {
            let of = owner(call.tool(), &caller);
            let opened = states.codec.open_json_with(sealed, of.as_bytes());
            let state: State = opened.map_err(|error| match error {
                RequestStateError::Expired => refused("it has expired"),
                _ => refused("this server has not given it to this client"),
            })?;
            params.request_state.clone_from(&state.theirs);
            if let Some(responses) = params
                .input_responses
                .as_mut()
                .filter(|_| state.asked.is_some())
            {
                said = responses.remove(APPROVAL).map(action).transpose()?;
                params.input_responses.take_if(|rest| rest.is_empty());
            }
            given = Some(state);
        }
        Ok(Self {
            states: states.clone(),
            tool: call.tool().to_owned(),
            caller,
            can,
            given,
            said,
            used: OnceLock::new(),
            end: Mutex::default(),
        })
    }

    /// Decides on a call by the answer that came with it, or has its client asked.
    pub(super) fn decide(&self, approval: Approval) -> Result<ApprovalDecision, ToolError> {
        if !has_forms(&self.can) {
            *lock(&self.end) = Some(End::CannotAsk);
            return Err(elicit::missing());
        }
        let text = question(&approval);
        let call = approval.call();
        let about = (call.server(), call.tool(), call.arguments(), &text);
        let about = serde_json::to_vec(&about).map_err(|error| unanswered(error.to_string()))?;
        let is_this = |seal: &String| self.states.codec.open_with(seal, &about).is_ok();
        if let Some(given) = &self.given {
            let said = match (&given.asked, &self.said) {
                _ if given.approved.iter().any(is_this) => Some(&ElicitationAction::Accept),
                (Some(asked), said) if is_this(asked) => said.as_ref(),
                // One policy has found its answer, another one asks as well.
                _ if self.is_used() => None,
                _ => return Err(self.refuse("it is about another call")),
            };
            if said.is_some() {
                let used = self
                    .used
                    .get_or_init(|| self.states.used.take(&self.caller, given));
                used.map_err(|why| self.refuse(why))?;
            }
            match said {
                Some(ElicitationAction::Accept) => return Ok(approval.approve()),
                Some(ElicitationAction::Decline) => return Ok(approval.deny("")),
                Some(_) => return Err(closed()),
                None => {}
            }
        }
        let left = approval
            .until()
            .map(|at| at.saturating_duration_since(Instant::now()));
        let about = SealOptions::new().associated_data(&about);
        *lock(&self.end) = Some(End::Asks {
            text,
            seal: self.states.codec.seal_with(&[], &about),
            ttl: left
                .unwrap_or(LONGEST)
                .clamp(Duration::from_millis(1), LONGEST),
        });
        Err(unanswered(
            "the client is asked, and answers with its next request",
        ))
    }

    fn is_used(&self) -> bool {
        self.used.get() == Some(&Ok(()))
    }

    fn refuse(&self, why: &'static str) -> ToolError {
        *lock(&self.end) = Some(End::Refused(why));
        unanswered("the answer of the client's user is not valid")
    }

    /// Returns the answer to a call that was not approved for a reason of ours. A yes to a call
    /// that was approved, and was not sent, may be used once more.
    pub(super) fn answer(&self, error: &ToolError) -> Option<Result<CallToolResponse, ErrorData>> {
        if !matches!(error.code(), APPROVAL_MISSING | APPROVAL_UNANSWERED) {
            let is_yes = matches!(self.said, None | Some(ElicitationAction::Accept));
            if let Some(given) = self.given.as_ref().filter(|_| is_yes && self.is_used())
                && error.execution() == Execution::NotStarted
                && error.evidence() != Evidence::Inferred
                && error.attempts().is_none_or(|made| made < 2)
            {
                self.states.used.give_back(&self.caller, given);
            }
            return None;
        }
        Some(match lock(&self.end).take()? {
            End::CannotAsk => check(&approval(String::new()), &self.can).err().map(Err)?,
            End::Refused(why) => Err(refused(why)),
            End::Asks { text, seal, ttl } => {
                let requests = approval(text);
                let theirs = self.given.as_ref().and_then(|given| given.theirs.clone());
                let state = self.seal(Some(seal), theirs, ttl);
                Ok(InputRequiredResult::new(Some(requests), Some(state)).into())
            }
        })
    }

    /// Makes the question of a tool's server one of ours. It has our own state around that of the
    /// server, if the call was approved, or if theirs looks like ours.
    pub(super) fn relay(&self, result: &mut InputRequiredResult) -> Result<(), ErrorData> {
        if let Some(requests) = &result.input_requests {
            check(requests, &self.can)?;
        }
        let is_approved = self.is_used();
        let state = &mut result.request_state;
        if is_approved || state.as_ref().is_some_and(|state| state.starts_with(OURS)) {
            *state = Some(self.seal(None, state.take(), LONGEST));
        }
        Ok(())
    }

    /// Makes a task of a tool's server one of ours, if the client has declared tasks.
    pub(super) fn hide(&self, task: &mut Task) -> Option<()> {
        self.can.supports_tasks().then_some(())?;
        hide(task, &self.states.codec, &self.caller, &self.tool)
    }

    /// Returns whether an error of a tool's server is about capabilities that the client lacks.
    pub(super) fn lacks(&self, theirs: &ErrorData) -> bool {
        is_lacking(theirs, &self.can)
    }

    fn seal(&self, asked: Option<String>, theirs: Option<String>, ttl: Duration) -> String {
        let mut approved = Vec::new();
        if let Some(given) = self.given.as_ref().filter(|_| self.is_used()) {
            approved.clone_from(&given.approved);
            let yes = self.said == Some(ElicitationAction::Accept);
            approved.extend(given.asked.clone().filter(|_| yes));
        }
        let state = State {
            nonce: getrandom::u64().expect("the system has random numbers"),
            ttl,
            approved,
            asked,
            theirs,
        };
        let of = owner(&self.tool, &self.caller);
        let options = SealOptions::new().associated_data(of.as_bytes()).ttl(ttl);
        let sealed = self.states.codec.seal_json_with(&state, &options);
        format!("{OURS}{}", sealed.expect("numbers and strings are JSON"))
    }
}

fn owner(tool: &str, caller: &str) -> String {
    format!("{tool} {caller}")
}

fn approval(text: String) -> InputRequests {
    let request = InputRequest::Elicitation(ElicitRequest::new(form(text)));
    BTreeMap::from([(APPROVAL.to_owned(), request)])
}

fn action(said: Value) -> Result<ElicitationAction, ErrorData> {
    let said = from_value::<ElicitResult>(said).map_err(|error| {
        let text = format!("`inputResponses.{APPROVAL}` is not that of an elicitation: {error}");
        ErrorData::invalid_params(text, None)
    });
    Ok(said?.action)
}

fn refused(why: &str) -> ErrorData {
    let text = format!("the `requestState` is not valid: {why}. Make the call without it");
    ErrorData::invalid_params(text, None)
}

/// How many used states are remembered: of one caller, and of how many callers.
const MAX_USED: usize = 1000;
const MAX_CALLERS: usize = 1000;

type Callers = HashMap<u64, Vec<(Instant, u64)>>;

/// The states that were used and have not expired, by the hash of their caller.
#[derive(Default)]
struct Used {
    /// Verified callers, and others: these can make up their names.
    callers: [Mutex<Callers>; 2],
    hasher: RandomState,
}

impl Used {
    fn callers(&self, caller: &str) -> (MutexGuard<'_, Callers>, u64) {
        let is_other = caller.starts_with('[');
        let callers = lock(&self.callers[usize::from(is_other)]);
        (callers, self.hasher.hash_one(caller))
    }

    /// Notes a state as used, if it was not used before and there is room.
    fn take(&self, caller: &str, state: &State) -> Result<(), &'static str> {
        let now = Instant::now();
        let (mut callers, caller) = self.callers(caller);
        if callers.len() >= MAX_CALLERS && !callers.contains_key(&caller) {
            callers.retain(|_, used| used.iter().any(|(until, _)| *until > now));
            if callers.len() >= MAX_CALLERS {
                return Err("too many callers have given answers");
            }
        }
        let used = callers.entry(caller).or_default();
        used.retain(|(until, _)| *until > now);
        if used.iter().any(|(_, nonce)| *nonce == state.nonce) {
            return Err("it was used before");
        }
        if used.len() >= MAX_USED {
            return Err("its caller has given too many answers");
        }
        used.push((now + state.ttl, state.nonce));
        Ok(())
    }

    fn give_back(&self, caller: &str, state: &State) {
        let (mut callers, caller) = self.callers(caller);
        if let Some(used) = callers.get_mut(&caller) {
            used.retain(|(_, nonce)| *nonce != state.nonce);
        }
    }
}
