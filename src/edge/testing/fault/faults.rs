use std::{convert::Infallible, time::Duration};

use crate::{
    config::{ConfigError, refuse_if},
    edge::testing::step::Step,
};

/// Which faults the calls of a tool meet, and how often; all other calls pass. See
/// [`FaultLayer`](super::FaultLayer).
///
/// A rate is the share of the calls that meet the fault, 0 to 1; all of them together are 1 at the
/// most, as a call meets one fault or none. Each method may be called several times, with different
/// steps.
///
/// ```
/// use std::time::Duration;
/// use tower_toolcall::testing::{Faults, Step};
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

/// What happens to a call.
#[derive(Clone, Debug)]
pub(super) enum Happens {
    /// The tool is not called.
    Instead(Step<Infallible>),
    /// The tool is called, and its answer is lost.
    Afterwards(Step<Infallible>),
    /// The tool is called later.
    Delay(Duration),
}

impl Faults {
    /// No faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets this happen instead of a call: **the tool is not called**. Whether the layers above
    /// know that is up to the error: of a 429 they do, of a 502, a panic or a hang they do not.
    ///
    /// # Errors
    ///
    /// If the rate is not 0 to 1, or all rates together are more than 1.
    pub fn with_fault(self, rate: f64, step: Step<Infallible>) -> Result<Self, ConfigError> {
        self.with("fault", rate, Happens::Instead(step))
    }

    /// Lets this happen after a call: **the tool runs to its end**, whatever its answer is, and the
    /// caller gets this instead. It is what a layer that repeats calls has to be tested with. If
    /// the error of the step says that the tool did not run, as a 429 does, whether it ran becomes
    /// [unknown](crate::Execution::Unknown).
    ///
    /// # Errors
    ///
    /// As of [`with_fault`](Self::with_fault).
    pub fn with_lost_answer(self, rate: f64, step: Step<Infallible>) -> Result<Self, ConfigError> {
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
        let is_rate = (0.0..=1.0).contains(&rate);
        refuse_if(!is_rate, field, "its rate is not 0 to 1")?;
        self.0.push((rate, what));
        let sum: f64 = self.0.iter().map(|(rate, _)| rate).sum();
        // Ten tenths are a little more than one.
        let reason = "the rates are more than 1 together";
        refuse_if(sum > 1.0 + 1e-9, field, reason)?;
        Ok(self)
    }

    /// What happens to a call that has drawn this number, from 0 to just below 1.
    pub(super) fn at(&self, drawn: f64) -> Option<&Happens> {
        let mut below = 0.0;
        self.0.iter().find_map(|(rate, what)| {
            below += rate;
            (drawn < below).then_some(what)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
