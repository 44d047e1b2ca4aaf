use std::{
    fmt::{self, Debug},
    future::poll_fn,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tokio::time::Instant;
use tower_service::Service;
use tower_toolcall::{Event, Listen, Observation, ToolCall, ToolError, flow::CallExt};

use super::{MAX_EVENTS, script::lock};

/// How much of an event is printed, in characters.
const MAX_LINE: usize = 1 << 10;

/// A listener that records events: their names, or what [`pick`](Self::pick) takes from them.
///
/// See the [module docs](super#events-and-the-record) for an example. It receives the events of the
/// calls that it [runs](Self::run) or [observes](Self::observe), from every layer that they pass,
/// without wiring. As the listener of a layer (`with_listener(events.clone())`) it receives those
/// of all calls there. An event that reaches it on both ways is recorded once.
///
/// # Limits
///
/// The first [`MAX_EVENTS`] that are picked are recorded, and the first as many of all events are
/// printed, up to 1,024 characters each. The rest is counted: an [`assert`](Self::assert) fails if
/// something that was picked is not recorded.
///
/// # Clone
///
/// Clones share what was recorded.
pub struct Events<T = &'static str> {
    shared: Arc<Shared<T>>,
}

type Pick<T> = dyn Fn(&Event<'_>) -> Option<T> + Send + Sync;

struct Shared<T> {
    pick: Box<Pick<T>>,
    since: Instant,
    heard: Mutex<Heard<T>>,
}

struct Heard<T> {
    picked: Vec<T>,
    /// How many were picked and not recorded.
    lost: u64,
    log: Vec<Logged>,
    /// How many events there were.
    count: u64,
}

struct Logged {
    at: Duration,
    name: Option<&'static str>,
    /// The event, printed; names and durations, never arguments.
    text: String,
}

impl Events {
    /// Records the [name](Event::name) of each event that is emitted. A retry and a retry that was
    /// refused have one name: [`pick`](Self::pick) distinguishes them.
    pub fn new() -> Self {
        Self::pick(|event| event.name())
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + 'static> Events<T> {
    /// Records what the function takes from an event. With `None` the event is left out, but
    /// printed when an [`assert`](Self::assert) fails.
    ///
    /// ```
    /// use tower_toolcall::Event;
    /// use tower_toolcall_test::Events;
    ///
    /// let delays = Events::pick(|event| match event {
    ///     Event::Retry { delay, .. } => Some(*delay),
    ///     _ => None,
    /// });
    ///
    /// // With the reason of a `tool.retry_refused`.
    /// let retries = Events::pick(|event| match event {
    ///     Event::Retry { attempt, .. } => Some(format!("after attempt {attempt}")),
    ///     Event::RetryRefused { reason, .. } => Some(format!("refused: {reason:?}")),
    ///     _ => None,
    /// });
    /// ```
    pub fn pick(pick: impl Fn(&Event<'_>) -> Option<T> + Send + Sync + 'static) -> Self {
        let shared = Shared {
            pick: Box::new(pick),
            since: Instant::now(),
            heard: Mutex::new(Heard {
                picked: Vec::new(),
                lost: 0,
                log: Vec::new(),
                count: 0,
            }),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Sends a call through a stack and records its events. Returns its result, and its record at
    /// the end. Dropping the future drops the call.
    pub async fn run<S>(
        &self,
        mut stack: S,
        mut call: ToolCall,
    ) -> (Result<S::Response, ToolError>, RecordSnapshot)
    where
        S: Service<ToolCall, Error: Into<ToolError>>,
    {
        let observation = self.observe(&mut call);
        let result = match poll_fn(|cx| stack.poll_ready(cx)).await {
            Ok(()) => stack.call(call).await,
            Err(error) => Err(error),
        };
        let result = result.map_err(Into::into);
        let record = RecordSnapshot::of(&observation, result.as_ref().err());
        (result, record)
    }

    /// Observes a call, and records its events as long as the observation exists: all but its end,
    /// which is in its result.
    ///
    /// # Panics
    ///
    /// If the call has four listeners already, which is the limit.
    #[track_caller]
    pub fn observe(&self, call: &mut ToolCall) -> Observation {
        let mut observation = call.observe();
        let listen: Weak<dyn Listen> = Arc::downgrade(&self.shared) as _;
        let is_heard = observation.listen(&listen);
        assert!(is_heard, "the call has four listeners already");
        observation
    }

    /// Returns what was recorded so far, and clears the recording.
    pub fn take(&self) -> Vec<T> {
        let mut heard = lock(&self.shared.heard);
        heard.log.clear();
        (heard.count, heard.lost) = (0, 0);
        std::mem::take(&mut heard.picked)
    }

    /// Returns the names of all events, also of those that [`pick`](Self::pick) left out.
    pub fn names(&self) -> Vec<&'static str> {
        let heard = lock(&self.shared.heard);
        heard.log.iter().filter_map(|event| event.name).collect()
    }

    /// Asserts that exactly this was recorded, in this order.
    ///
    /// # Panics
    ///
    /// If not, or if there were more than [`MAX_EVENTS`]. The message has what was recorded
    /// instead, and the events with their times.
    #[track_caller]
    pub fn assert<const N: usize>(&self, expected: [T; N])
    where
        T: PartialEq + Debug,
    {
        let heard = lock(&self.shared.heard);
        let (is_so, lost) = (heard.picked == expected, heard.lost);
        drop(heard);
        assert!(lost == 0, "{lost} more were not recorded\n{self:?}");
        assert!(is_so, "expected {expected:#?}\n{self:?}");
    }
}

impl<T: Send> Listen for Shared<T> {
    fn on(&self, event: &Event<'_>) {
        // The user's code runs outside the lock.
        let picked = (self.pick)(event);
        let logged = Logged {
            at: self.since.elapsed(),
            name: event.name(),
            text: format!("{event:?}").chars().take(MAX_LINE).collect(),
        };
        let mut heard = lock(&self.heard);
        heard.count += 1;
        if heard.log.len() < MAX_EVENTS {
            heard.log.push(logged);
        }
        match picked {
            Some(picked) if heard.picked.len() < MAX_EVENTS => heard.picked.push(picked),
            Some(_) => heard.lost += 1,
            None => {}
        }
    }
}

impl<T: Send> Listen for Events<T> {
    fn on(&self, event: &Event<'_>) {
        self.shared.on(event);
    }

    fn includes(&self, other: &Weak<dyn Listen>) -> bool {
        self.shared.includes(other)
    }
}

impl<T> Clone for Events<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// Prints the recorded values, and a line for each event.
impl<T: Debug> Debug for Events<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heard = lock(&self.shared.heard);
        writeln!(f, "recorded {:#?}", heard.picked)?;
        writeln!(f, "of {} events:", heard.count)?;
        for Logged { at, name, text } in &heard.log {
            writeln!(f, "  +{at:?} {}: {text}", name.unwrap_or("not emitted"))?;
        }
        Ok(())
    }
}

/// A copy of a call's record at one moment, as its [`Observation`] gives it, for comparing and
/// printing.
///
/// See the [module docs](super#events-and-the-record) for an example;
/// [`Events::run`](super::Events::run) makes one at the end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordSnapshot {
    /// [`Observation::sent`]: how many attempts were sent.
    pub sent: u32,
    /// [`Observation::attempts`]: how many were begun.
    pub attempts: u32,
    /// [`Observation::max_attempts`]
    pub max_attempts: Option<u32>,
    /// [`Observation::refusals`]: how many retries were refused.
    pub refusals: u32,
    /// [`Observation::waited`]: the time spent in backoffs and cooldowns.
    pub waited: Duration,
    /// [`Observation::is_slow`]
    pub is_slow: bool,
    /// [`Observation::is_reported`]: the answer is an error in the tool's own words.
    pub is_reported: bool,
    /// [`Observation::timeout`]: the one in force at the last attempt.
    pub timeout: Option<Duration>,
    /// [`Observation::configured_timeout`]
    pub configured_timeout: Option<Duration>,
    /// [`Observation::output_bytes`]
    pub output_bytes: Option<u64>,
    /// [`Observation::server`]: the server that the tool service has named.
    pub server: Option<Arc<str>>,
}

impl RecordSnapshot {
    /// Returns the record of a call that runs, or has ended with an answer or with `error`.
    pub fn of(observation: &Observation, error: Option<&ToolError>) -> Self {
        Self {
            sent: observation.sent(error),
            attempts: observation.attempts(),
            max_attempts: observation.max_attempts(),
            refusals: observation.refusals(),
            waited: observation.waited(),
            is_slow: observation.is_slow(),
            is_reported: observation.is_reported(),
            timeout: observation.timeout(),
            configured_timeout: observation.configured_timeout(),
            output_bytes: observation.output_bytes(),
            server: observation.server(),
        }
    }

    /// Asserts that the function returns `true` for this record.
    ///
    /// # Panics
    ///
    /// If not. The message has the whole record.
    #[track_caller]
    pub fn assert(&self, is_so: impl FnOnce(&Self) -> bool) {
        assert!(is_so(self), "not as asserted: {self:#?}");
    }
}
