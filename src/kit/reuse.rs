//! The part of a call in a layer that may answer it with the answer of another call.
//!
//! A layer enters a call at a key ([`Flight`]) and decides what to keep ([`Reuse`]). The call waits
//! for its turn, or for the answer, without a reservation of the inner service.

use std::{
    any::{Any, TypeId},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    fingerprint::{Fingerprint, Seed},
    flights::{Flight, FlightKey, Flights, Source, Turn},
    principal::Principal,
    share::Units,
};
use crate::{
    answer::{Answer, Form, Text, form_of},
    call::{CallInfo, MAX_NAME_BYTES, ToolCall},
    config::{ConfigError, positive, refuse_if},
    error::ToolError,
    event::{Event, Listener},
    flow::{Abandoned, Ends, PollTurn, Step, Ticket, Times},
    key::check_max,
};

/// Decides what to keep of the end of a call at its key.
pub(crate) trait Reuse<Res, K: FlightKey, V: Clone> {
    /// Returns the result that a call has of another call's end.
    fn give(
        &self,
        end: Result<V, ToolError>,
        source: Source,
        info: &CallInfo,
    ) -> Result<Res, ToolError>;

    /// The call is sent now.
    fn begin(&self, flight: &mut Flight<K, V>);

    /// The call was sent and has ended.
    fn end(&self, flight: &mut Flight<K, V>, result: &Result<Res, ToolError>);

    /// Returns the error of a call after its wait for another one failed.
    fn waited(&self, error: ToolError) -> ToolError {
        error
    }
}

/// The tool and the arguments of a call.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    server: Option<Arc<str>>,
    tool: Arc<str>,
    arguments: Fingerprint,
    /// The hash of the answers to the tool's questions, if the layer compares them.
    pub(crate) input: Option<u64>,
    /// The type of the answer: services of several types may share a layer.
    answer: TypeId,
}

impl Request {
    pub(crate) fn new(call: &ToolCall, info: &CallInfo, seed: &Seed, answer: TypeId) -> Self {
        Self {
            server: info.shared_server().cloned(),
            tool: Arc::clone(info.shared_tool()),
            arguments: seed.fingerprint(call.arguments()),
            input: None,
            answer,
        }
    }
}

/// Returns whether the names of a call are too long to be kept with an answer.
pub(crate) fn has_long_names(call: &CallInfo) -> bool {
    call.tool().len() + call.server().map_or(0, str::len) > 2 * MAX_NAME_BYTES
}

/// Tells the observers of a call that it has another one's answer.
pub(crate) fn tell(info: &CallInfo, layer: &'static str) {
    info.record(|record| record.set_reused());
    Listener::default().tell(&Event::Reused { call: info, layer });
}

/// A call that may be at a key. Without one it passes.
pub struct Reused<K: FlightKey, V: Clone, R> {
    pub(crate) info: CallInfo,
    pub(crate) at: Option<(Flight<K, V>, R)>,
}

crate::text::debug_fields! { {K: FlightKey, V: Clone, R} |_| Reused<K, V, R> { .. } }

impl<K: FlightKey, V: Clone, R> Ticket for Reused<K, V, R> {
    type Times = Times;

    fn info(&self) -> &CallInfo {
        &self.info
    }

    /// A call that was never sent leaves nothing behind.
    fn dropped(&mut self, _: Abandoned) {
        if let Some((flight, _)) = &mut self.at
            && self.info.is_lost_unsent()
        {
            flight.end_unmade();
        }
    }
}

impl<Res, K, V, R> Ends<Res> for Reused<K, V, R>
where
    K: FlightKey,
    V: Clone,
    R: Reuse<Res, K, V>,
{
    type Class = ();

    /// Reserves nothing while another call runs.
    fn arrive(&mut self) -> Step {
        let at = self.at.as_mut();
        match at.is_none_or(|(flight, _)| flight.try_turn()) {
            true => Step::Go,
            false => Step::Wait,
        }
    }

    fn poll_turn(&mut self, _: &mut ToolCall, cx: &mut Context<'_>) -> PollTurn<Res> {
        let (flight, reuse) = self.at.as_mut().expect("a call that waits is at a key");
        Poll::Ready(match ready!(flight.poll_turn(cx)) {
            Turn::Mine => Ok(None),
            Turn::Landed(end, source) => reuse.give(end, source, &self.info).map(Some),
        })
    }

    fn gave_up(&mut self, error: ToolError, waited: Step) -> ToolError {
        match &self.at {
            Some((_, reuse)) if waited == Step::Wait => reuse.waited(error),
            _ => error,
        }
    }

    #[inline]
    fn admit(&mut self, _: &mut ToolCall) -> Result<Step, ToolError> {
        if let Some((flight, reuse)) = &mut self.at {
            reuse.begin(flight);
        }
        Ok(Step::Go)
    }

    #[inline]
    fn ended(&mut self, result: &mut Result<Res, ToolError>, (): (), _: Option<Instant>) {
        if let Some((flight, reuse)) = &mut self.at {
            reuse.end(flight, result);
        }
    }
}

/// An answer of any type.
pub(crate) type AnyAnswer = Arc<dyn Any + Send + Sync>;

/// Returns a copy of a kept answer. `None` if it is of another type.
pub(crate) fn copy_of<Res: Clone + 'static>(kept: &AnyAnswer) -> Option<Res> {
    match kept.downcast_ref() {
        Some(text) => Text::read(text),
        None => kept.downcast_ref().cloned(),
    }
}

type SizeFn = dyn Fn(&dyn Any) -> Option<u64> + Send + Sync;

/// The largest answer that is kept, and how large an answer is.
#[derive(Clone)]
pub(crate) struct Size {
    pub(crate) max: u64,
    of: Arc<SizeFn>,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            max: MAX_ANSWER,
            of: Arc::new(|_| None),
        }
    }
}

impl Size {
    pub(crate) fn measure<Res: 'static>(
        &mut self,
        of: impl Fn(&Res) -> u64 + Send + Sync + 'static,
    ) {
        self.of = Arc::new(move |answer| answer.downcast_ref().map(&of));
    }

    /// Returns a copy of the answer, if it is small enough to be kept, and its bytes. One of
    /// unknown size has as many as may be.
    pub(crate) fn keep<Res: Clone + Send + Sync + 'static>(
        &self,
        answer: &Res,
    ) -> Option<(AnyAnswer, u64)> {
        let form = form_of(answer, self.max);
        let usual = || match &form {
            Some(form) => form.bytes(),
            None => Some(Answer::of_usual(answer).map_or(self.max, |answer| answer.bytes())),
        };
        let bytes = (self.of)(answer).or_else(usual)?;
        (bytes <= self.max).then(|| match form {
            Some(Form::Text(text)) => (Arc::new(text) as AnyAnswer, bytes),
            _ => (Arc::new(answer.clone()) as AnyAnswer, bytes),
        })
    }
}

/// The settings of where answers are kept: for whom, how many, and how large.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) principal: Principal,
    pub(crate) max_keys: usize,
    pub(crate) max_bytes: u64,
    /// `None`: the default, or a principal's share of the bytes if that is less.
    pub(crate) max_answer: Option<u64>,
    pub(crate) size: Size,
}

/// How many bytes answers that are kept have together by default.
const MAX_BYTES: u64 = 64 << 20;

/// How many bytes an answer that is kept has at most by default.
const MAX_ANSWER: u64 = 64 << 10;

crate::text::debug_fields! {
    {} |this| Store { max_keys, max_answer: this.max_answer(), max_bytes, principal, .. }
}

impl Store {
    pub(crate) fn new(principal: Principal, max_keys: usize) -> Self {
        Self {
            principal,
            max_keys,
            max_bytes: MAX_BYTES,
            max_answer: None,
            size: Size::default(),
        }
    }

    /// Refuses what cannot work, and settles how large an answer may be. `if_zero` is what would
    /// happen with a time of zero.
    pub(crate) fn check(
        &mut self,
        times: impl IntoIterator<Item = Duration>,
        if_zero: &str,
    ) -> Result<(), ConfigError> {
        for time in times {
            positive("ttl", time, format!("it is zero: {if_zero}"))?;
        }
        check_max("max_keys", self.max_keys)?;
        self.size.max = self.max_answer();
        let (max, share) = (self.size.max, self.share(self.max_bytes));
        let reason =
            format!("{max} is more than the {share} bytes that a principal has of `max_bytes`");
        refuse_if(max > share, "max_answer", reason)
    }

    fn max_answer(&self) -> u64 {
        let most = || MAX_ANSWER.min(self.share(self.max_bytes));
        self.max_answer.unwrap_or_else(most)
    }

    /// Returns the share of a principal: an eighth, if there are several.
    fn share(&self, most: u64) -> u64 {
        match self.principal {
            Principal::Shared => most,
            _ => most.div_ceil(8),
        }
    }

    /// Returns the empty store.
    pub(crate) fn flights<K: FlightKey, V: Clone>(&self, evicts: bool) -> Arc<Flights<K, V>> {
        let units = |most| Units::new(most, self.share(most));
        let (keys, bytes) = (units(self.max_keys as u64), units(self.max_bytes));
        Arc::new(Flights::shared_out(keys, bytes, evicts))
    }
}
