use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    mem,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};
use tower_layer::Layer;
use tower_service::Service;
use tower_toolcall::{
    CallInfo, ConfigError, Execution, ToolCall, ToolError,
    flow::{self, Ends, Flow, Gate, Gated, Readiness, Ticket},
};

use super::{
    MAX_TOOLS,
    script::lock,
    step::{Step, StepFuture},
};

/// Layer that makes calls fail, at random and repeatably.
///
/// The fault of a call depends on the seed, the tool (its server and its name) and the number of
/// the call among those of this tool. So it is the same in each run, in any order of the calls of
/// different tools. Concurrent calls of one tool are numbered as they come. [`MAX_TOOLS`] tools are
/// counted separately, and all others together.
///
/// See the [module docs](crate#faults) for an example.
///
/// # Order
///
/// Innermost, directly around the tool: the outer layers see it as the tool. Each attempt is a
/// call.
///
/// # Errors
///
/// The errors of the faults, and of the tool, stamped with the call's names.
///
/// # Clone
///
/// Clones, and the services made from them, share the numbers of the calls.
#[derive(Clone, Debug)]
#[must_use]
pub struct FaultLayer {
    seed: u64,
    faults: Arc<Faults>,
    tools: Vec<(Box<str>, Arc<Faults>)>,
    /// How many calls there were, by the tool.
    calls: Arc<Mutex<HashMap<u64, u64>>>,
    injected: Arc<AtomicU64>,
}

impl FaultLayer {
    /// Makes a layer with these faults for all tools. Another seed is another run.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self {
            seed,
            faults: Arc::new(faults),
            tools: Vec::new(),
            calls: Arc::default(),
            injected: Arc::default(),
        }
    }

    /// Sets the faults of one tool, by its own name or the flat one (`server__tool`), instead of
    /// those for all.
    ///
    /// A name that no call has is not an error and has no effect; [`injected`](Self::injected)
    /// shows that.
    pub fn with_tool(mut self, name: impl Into<Box<str>>, faults: Faults) -> Self {
        let name = name.into();
        self.tools.retain(|(other, _)| *other != name);
        self.tools.push((name, Arc::new(faults)));
        self
    }

    /// Returns the number of injected faults so far, delays included.
    pub fn injected(&self) -> u64 {
        self.injected.load(Relaxed)
    }

    /// Returns the fault of this call.
    fn next(&self, call: &ToolCall) -> Option<Happens> {
        let tool = hash(call);
        let n = self.number(tool);
        let happens = self.faults_of(call).at(draw(self.seed, tool, n))?;
        self.injected.fetch_add(1, Relaxed);
        Some(happens.clone())
    }

    /// Returns the faults by the flat name, which is of one server's tool; else those by the tool's
    /// own name, which is shorter.
    fn faults_of(&self, call: &ToolCall) -> &Faults {
        let named = self.tools.iter().filter(|(name, _)| call.is_named(name));
        let own = named.max_by_key(|(name, _)| name.len());
        own.map_or(&self.faults, |(_, faults)| faults)
    }

    /// The number of a tool's call, from 0.
    fn number(&self, tool: u64) -> u64 {
        /// All tools beyond [`MAX_TOOLS`].
        const OTHERS: u64 = 0;
        let mut calls = lock(&self.calls);
        let is_counted = calls.len() < MAX_TOOLS || calls.contains_key(&tool);
        let next = calls
            .entry(if is_counted { tool } else { OTHERS })
            .or_default();
        *next += 1;
        *next - 1
    }
}

impl<S> Layer<S> for FaultLayer {
    type Service = Fault<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Fault {
            inner: Gated::new(inner, Late::default()),
            layer: self.clone(),
        }
    }
}

/// A number from 0 to just below 1.
fn draw(seed: u64, tool: u64, n: u64) -> f64 {
    let random = mixed(mixed(seed ^ tool).wrapping_add(n));
    // 53 bits, as many as an `f64` holds.
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// The first number of splitmix64 with this seed (Steele, Lea and Flood, 2014).
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a of server and name: the keyed layers' own hash is another one in each run.
fn hash(call: &ToolCall) -> u64 {
    let server = call.server().unwrap_or_default().bytes();
    // No byte of UTF-8.
    let parts = server.chain([0xff]).chain(call.tool().bytes());
    parts.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Which faults the calls of a tool meet, and how often; all other calls pass. See
/// [`FaultLayer`](super::FaultLayer).
///
/// A rate is the share of the calls that meet the fault, 0 to 1; all of them together are 1 at the
/// most, as a call meets one fault or none. Each method may be called several times, with different
/// steps.
///
/// ```
/// use std::time::Duration;
/// use tower_toolcall_test::{Faults, Step};
///
/// let faults = Faults::new()
///     .with_fault(0.1, Step::status(429).with_retry_after(Duration::from_secs(1)))?
///     .with_fault(0.01, Step::hang())?
///     .with_lost_answer(0.05, Step::status(502))?
///     .with_delay(0.2, Duration::from_secs(3))?;
/// assert!(faults.with_fault(0.65, Step::hang()).is_err());
/// # Ok::<_, tower_toolcall::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Faults(Vec<(f64, Happens)>);

/// The fault of a call.
#[derive(Clone, Debug)]
enum Happens {
    /// The tool is not called.
    Instead(Step<Infallible>),
    /// The tool is called, and its answer is lost.
    Afterwards(Step<Infallible>),
    /// The tool is called later.
    Delay(Duration),
}

impl Faults {
    /// Makes a set without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces a call by this step: **the tool is not called**. The error decides whether outer
    /// layers know that: with a 429 they do, with a 502, a panic or a hang they do not.
    ///
    /// # Errors
    ///
    /// If the rate is not 0 to 1, or all rates together are more than 1.
    pub fn with_fault(self, rate: f64, step: Step<Infallible>) -> Result<Self, ConfigError> {
        self.with("fault", rate, Happens::Instead(step))
    }

    /// Runs this step after a call: **the tool runs to its end**, its answer is dropped, and the
    /// caller gets this instead. Test layers that repeat calls with it. If the error of the step
    /// says that the tool did not run, as a 429 does, whether it ran becomes
    /// [unknown](tower_toolcall::Execution::Unknown).
    ///
    /// # Errors
    ///
    /// As of [`with_fault`](Self::with_fault).
    pub fn with_lost_answer(self, rate: f64, step: Step<Infallible>) -> Result<Self, ConfigError> {
        // The tool was called before.
        let in_call = false;
        let step = Step { in_call, ..step };
        self.with("lost_answer", rate, Happens::Afterwards(step))
    }

    /// Lets a call reach the tool so much later. Its answer is the tool's. The delay ends early
    /// with the call's deadline or its cancellation: the tool is not called then.
    ///
    /// # Errors
    ///
    /// As of [`with_fault`](Self::with_fault).
    pub fn with_delay(self, rate: f64, delay: Duration) -> Result<Self, ConfigError> {
        self.with("delay", rate, Happens::Delay(delay))
    }

    fn with(mut self, field: &'static str, rate: f64, what: Happens) -> Result<Self, ConfigError> {
        if !(0.0..=1.0).contains(&rate) {
            return Err(ConfigError::new(field, "its rate is not 0 to 1"));
        }
        self.0.push((rate, what));
        let sum: f64 = self.0.iter().map(|(rate, _)| rate).sum();
        // Ten tenths are a little more than one.
        match sum > 1.0 + 1e-9 {
            true => Err(ConfigError::new(
                field,
                "the rates are more than 1 together",
            )),
            false => Ok(self),
        }
    }

    /// Returns the fault of a call that has drawn this number, from 0 to just below 1.
    fn at(&self, drawn: f64) -> Option<&Happens> {
        let mut below = 0.0;
        self.0.iter().find_map(|(rate, what)| {
            below += rate;
            (drawn < below).then_some(what)
        })
    }
}

/// Makes calls fail, at random and repeatably. See [`FaultLayer`].
#[derive(Clone, Debug)]
pub struct Fault<S> {
    inner: Gated<S, Late>,
    layer: FaultLayer,
}

impl<S> Fault<S> {
    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        self.inner.get_ref()
    }

    /// Takes the inner service out.
    pub fn into_inner(self) -> S {
        self.inner.into_inner()
    }

    /// Takes the polled instance, for a call with a delay or a lost answer.
    fn late(&mut self, late: Late) -> Gated<S, Late>
    where
        S: Clone,
    {
        let fresh = self.inner.clone();
        Gated::new(mem::replace(&mut self.inner, fresh).into_inner(), late)
    }
}

impl<S> Service<ToolCall> for Fault<S>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = FaultFuture<S, S::Future>;

    /// Always ready.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let (info, mut late) = (call.info(), Late::default());
        let has_run = Arc::clone(&late.has_run);
        let (mut sent, mut step) = (None, None);
        match self.layer.next(&call) {
            None => sent = Some(self.inner.call(call)),
            Some(Happens::Delay(delay)) => {
                late.delay = Some(delay);
                sent = Some(self.late(late).call(call));
            }
            Some(Happens::Afterwards(fault)) => {
                step = Some(StepFuture::new(fault, Arc::new(call.clone()), None));
                sent = Some(self.late(late).call(call));
            }
            Some(Happens::Instead(fault)) => {
                // Nothing stays reserved for it.
                self.inner = self.inner.clone();
                step = Some(StepFuture::new(fault, Arc::new(call), None));
            }
        }
        FaultFuture {
            sent,
            step,
            has_run,
            info,
        }
    }
}

/// Sends calls to the tool: all calls without a fault, or one call with a fault.
#[derive(Clone, Debug, Default)]
struct Late {
    delay: Option<Duration>,
    /// Set when the tool's future has ended.
    has_run: Arc<AtomicBool>,
}

impl<Res> Gate<Res> for Late {
    type Ticket = Passing;

    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Passing, ToolError> {
        Ok(Passing(call.info(), self.clone(), None))
    }
}

/// A call that reaches the tool. Its timer is made at the first poll, as it needs a runtime.
#[derive(Debug)]
struct Passing(CallInfo, Late, Option<Pin<Box<Sleep>>>);

impl Ticket for Passing {
    type Times = ();

    fn info(&self) -> &CallInfo {
        &self.0
    }
}

impl<Res> Ends<Res> for Passing {
    type Class = ();

    fn arrive(&mut self) -> flow::Step {
        match self.1.delay {
            Some(_) => flow::Step::Wait,
            None => flow::Step::Go,
        }
    }

    fn poll_turn(
        &mut self,
        _: &mut ToolCall,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Res>, ToolError>> {
        let delay = self.1.delay.unwrap_or_default();
        let sleep = self.2.get_or_insert_with(|| Box::pin(sleep(delay)));
        sleep.as_mut().poll(cx).map(|()| Ok(None))
    }

    fn ended(&mut self, _: &mut Result<Res, ToolError>, (): (), _: Option<Instant>) {
        self.1.has_run.store(true, Relaxed);
    }
}

pin_project! {
    /// Response future for [`Fault`](super::Fault).
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct FaultFuture<S, F> {
        // On its way to the tool, or there.
        #[pin]
        sent: Option<Flow<S, F, Passing>>,
        // Instead of the call, or after it ran.
        #[pin]
        step: Option<StepFuture<Infallible>>,
        has_run: Arc<AtomicBool>,
        info: CallInfo,
    }
}

impl<S> Future for FaultFuture<S, S::Future>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    type Output = Result<S::Response, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(sent) = this.sent.as_mut().as_pin_mut() {
            let result = ready!(sent.poll(cx));
            this.sent.set(None);
            if this.step.is_none() || !this.has_run.load(Relaxed) {
                return Poll::Ready(result);
            }
        }
        let step = this.step.as_pin_mut().expect("polled after completion");
        let Err(error) = ready!(step.poll(cx));
        let denies = this.has_run.load(Relaxed) && error.execution() == Execution::NotStarted;
        let error = error.for_call(this.info);
        Poll::Ready(Err(match denies {
            true => error.into_inferred(),
            false => error,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(seed: u64) -> FaultLayer {
        let faults = Faults::new().with_fault(0.5, Step::hang()).unwrap();
        FaultLayer::new(seed, faults)
    }

    fn struck(layer: &FaultLayer, tool: &str) -> Vec<bool> {
        let call = ToolCall::new(tool);
        (0..64).map(|_| layer.next(&call).is_some()).collect()
    }

    #[test]
    fn a_seed_is_a_run() {
        assert_eq!(struck(&layer(1), "a"), struck(&layer(1), "a"));
        assert_ne!(struck(&layer(1), "a"), struck(&layer(2), "a"));
        assert_ne!(struck(&layer(1), "a"), struck(&layer(1), "b"));
    }

    /// A change of these numbers changes the runs of users.
    #[test]
    fn the_draw_is_the_same_in_each_version() {
        let seen: String = struck(&layer(7), "search")[..16]
            .iter()
            .map(|struck| if *struck { 'x' } else { '.' })
            .collect();
        assert_eq!(seen, ".x.......xx.x.x.");
    }

    #[test]
    fn calls_of_other_tools_in_between_change_nothing() {
        let (alone, mixed) = (layer(3), layer(3));
        let alone = struck(&alone, "a");
        let mixed: Vec<_> = (0..64)
            .map(|n| {
                for _ in 0..n % 3 {
                    mixed.next(&ToolCall::new("b"));
                }
                mixed.next(&ToolCall::new("a")).is_some()
            })
            .collect();
        assert_eq!(alone, mixed);
    }

    #[test]
    fn the_rate_is_kept() {
        let layer = layer(4);
        let struck = (0..10_000).filter(|_| layer.next(&ToolCall::new("a")).is_some());
        let struck = struck.count();
        assert!((4_800..5_200).contains(&struck), "{struck}");
        assert_eq!(layer.injected(), struck as u64);
    }

    #[test]
    fn the_tools_that_are_counted_are_bounded() {
        let layer = layer(5);
        for n in 0..2 * MAX_TOOLS {
            layer.next(&ToolCall::new(format!("tool_{n}")));
        }
        assert_eq!(lock(&layer.calls).len(), MAX_TOOLS + 1);
    }

    use proptest::prelude::*;

    fn hang() -> Step<Infallible> {
        Step::hang()
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for rate in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let error = Faults::new().with_fault(rate, hang()).unwrap_err();
            assert_eq!(error.field(), "fault", "{rate}");
        }
        let whole = Faults::new().with_fault(0.6, hang()).unwrap();
        let more = whole.with_delay(0.5, Duration::ZERO).unwrap_err();
        assert_eq!(
            more.to_string(),
            "invalid `delay`: the rates are more than 1 together"
        );
    }

    #[test]
    fn ten_tenths_are_one() {
        let tenths = (0..10).try_fold(Faults::new(), |faults, _| faults.with_fault(0.1, hang()));
        assert!(tenths.unwrap().at(0.999_999).is_some());
    }

    proptest! {
        /// Each fault has its share of the numbers that can be drawn, and the rest passes.
        #[test]
        fn a_number_meets_the_fault_that_has_it(drawn in 0.0..1.0) {
            let faults = Faults::new().with_fault(0.25, hang()).unwrap();
            let faults = faults.with_delay(0.5, Duration::ZERO).unwrap();
            match faults.at(drawn) {
                Some(Happens::Instead(_)) => prop_assert!(drawn < 0.25),
                Some(Happens::Delay(_)) => prop_assert!((0.25..0.75).contains(&drawn)),
                _ => prop_assert!(drawn >= 0.75),
            }
        }
    }
}
