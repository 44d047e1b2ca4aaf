//! Delays before the next attempt. Pure functions: the random number is an argument.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, MAX_PERIOD, period, refuse_if};

/// The longest delay that a setting may name: a year.
pub const MAX_DELAY: Duration = MAX_PERIOD;

/// A larger factor reaches every cap immediately.
const MAX_FACTOR: f64 = 1000.0;

/// Delays between attempts: growing by a factor up to a cap, with jitter.
///
/// By default 1 s, 2 s, 4 s and so on up to 30 s, each up to a quarter longer, at random.
///
/// ```
/// use std::time::Duration;
/// use tower_toolcall::backoff::{Backoff, Jitter};
///
/// # fn main() -> Result<(), tower_toolcall::ConfigError> {
/// let backoff = Backoff::exponential(Duration::from_millis(100), 2.0)?
///     .with_cap(Duration::from_secs(5))
///     .with_jitter(Jitter::None);
/// assert_eq!(backoff.delay(1, 0), Duration::from_millis(100));
/// assert_eq!(backoff.delay(3, 0), Duration::from_millis(400));
/// assert_eq!(backoff.delay(u32::MAX, 0), Duration::from_secs(5));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Backoff {
    base: Duration,
    factor: f64,
    cap: Duration,
    jitter: Jitter,
}

/// How a delay `d` is randomised, so that clients that failed together do not come back together.
///
/// With serde: `none`, `upwards`, `equal`, `full`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Jitter {
    /// Nothing.
    None,
    /// Between `d` and a quarter more: a delay is never shortened. The default.
    #[default]
    Upwards,
    /// Between half of `d` and `d`.
    Equal,
    /// Between zero and `d`; spreads best, with the shortest delays ("Exponential Backoff And
    /// Jitter", AWS Architecture Blog, 2015).
    Full,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: Duration::from_secs(1),
            factor: 2.0,
            cap: Duration::from_secs(30),
            jitter: Jitter::default(),
        }
    }
}

impl Backoff {
    /// Waits `base` before the second attempt, and `factor` times the delay before for each one
    /// after it, up to 30 s or `base`, whichever is longer.
    ///
    /// # Errors
    ///
    /// If the factor is not a number from 1 to 1,000, or the base longer than a year.
    pub fn exponential(base: Duration, factor: f64) -> Result<Self, ConfigError> {
        let reason = format!("{factor} is not a number from 1 to 1000");
        refuse_if(!(1.0..=MAX_FACTOR).contains(&factor), "factor", reason)?;
        period("base", base)?;
        let default = Self::default();
        Ok(Self {
            base,
            factor,
            cap: default.cap.max(base),
            ..default
        })
    }

    /// Waits equally long each time.
    ///
    /// # Errors
    ///
    /// If it is longer than a year.
    #[doc(alias = "constant")]
    pub fn fixed(delay: Duration) -> Result<Self, ConfigError> {
        Self::exponential(delay, 1.0)
    }

    /// Sets the longest delay before jitter. Default 30 s. A cap below the base shortens every
    /// delay to the cap.
    pub fn with_cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Sets how delays are randomised. Default: [`Jitter::Upwards`]. With [`Jitter::None`] a delay
    /// that a server asks for is not randomised either.
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The delay that a server has asked for, randomised as the others are.
    pub(crate) fn after_hint(&self, hint: Duration, random: u64) -> Duration {
        self.jitter.after_hint(hint, random)
    }

    /// Returns the delay before retry `n`, counted from 1, for a random number.
    pub fn delay(&self, n: u32, random: u64) -> Duration {
        self.jitter.apply(self.plain(n), random)
    }

    /// Returns the delay without jitter.
    fn plain(&self, n: u32) -> Duration {
        let exponent = i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX);
        let secs = self.base.as_secs_f64() * self.factor.powi(exponent);
        // Not a number: a base of zero and an infinite factor.
        if secs.is_nan() {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(secs)
            .unwrap_or(Duration::MAX)
            .min(self.cap)
    }
}

impl Jitter {
    /// [`after_hint`], or the hint itself for [`Jitter::None`].
    pub(crate) fn after_hint(self, hint: Duration, random: u64) -> Duration {
        match self {
            Self::None => hint,
            _ => after_hint(hint, random),
        }
    }

    fn apply(self, d: Duration, random: u64) -> Duration {
        match self {
            Self::None => d,
            Self::Upwards => d.saturating_add(part(d / 4, random)),
            Self::Equal => d / 2 + part(d - d / 2, random),
            Self::Full => part(d, random),
        }
    }
}

/// Returns a delay that a server asked for, plus a random part of at most a tenth of it, and at
/// most one second: never shorter than the hint, and different for each client.
pub fn after_hint(hint: Duration, random: u64) -> Duration {
    hint.saturating_add(part((hint / 10).min(Duration::from_secs(1)), random))
}

/// Random numbers (splitmix64: Steele, Lea and Flood, 2014).
#[derive(Debug)]
pub(crate) struct Random(AtomicU64);

impl Random {
    /// Makes the sequence of a seed, equal in each run.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub(crate) fn next(&self) -> u64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(GAMMA, Relaxed).wrapping_add(GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::seeded(RandomState::new().hash_one(0))
    }
}

/// Returns a random part of `d`.
pub(crate) fn part(d: Duration, random: u64) -> Duration {
    // 53 bits, as many as an `f64` holds: from 0 to just below 1.
    let share = (random >> 11) as f64 / (1u64 << 53) as f64;
    Duration::try_from_secs_f64(d.as_secs_f64() * share)
        .unwrap_or(d)
        .min(d)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    /// R1.
    #[test]
    fn the_default_is_one_two_four_seconds_up_to_thirty() {
        let backoff = Backoff::default();
        let delays = [1, 2, 3, 4, 5, 6, 7].map(|n| backoff.delay(n, 0).as_secs());
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30]);
    }

    /// R1, trap 10: at most a quarter longer, and never shorter.
    #[test]
    fn the_default_jitter_only_adds() {
        let backoff = Backoff::default();
        assert_eq!(backoff.delay(1, 0), secs(1));
        let most = backoff.delay(1, u64::MAX);
        assert!(most > Duration::from_millis(1249) && most <= Duration::from_millis(1250));
    }

    #[test]
    fn a_base_above_the_default_cap_is_kept() {
        assert_eq!(Backoff::fixed(secs(60)).unwrap().delay(1, 0), secs(60));
    }

    #[test]
    fn what_is_no_backoff_is_refused() {
        for factor in [0.0, 0.5, -1.0, f64::NAN, f64::INFINITY] {
            let error = Backoff::exponential(secs(1), factor).unwrap_err();
            assert_eq!(error.field(), "factor");
        }
        assert_eq!(Backoff::fixed(Duration::MAX).unwrap_err().field(), "base");
    }

    #[test]
    fn a_base_of_zero_stays_zero() {
        let backoff = Backoff::exponential(Duration::ZERO, 1000.0).unwrap();
        assert_eq!(backoff.delay(u32::MAX, u64::MAX), Duration::ZERO);
    }

    fn jitters() -> impl Strategy<Value = Jitter> {
        prop_oneof![
            Just(Jitter::None),
            Just(Jitter::Upwards),
            Just(Jitter::Equal),
            Just(Jitter::Full)
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// From both sides, and no overflow for any input.
        #[test]
        fn a_delay_stays_within_its_jitter(
            base in (0u64..=31_536_000_000).prop_map(Duration::from_millis),
            factor in 1.0f64..=1000.0,
            cap in any::<u64>().prop_map(Duration::from_millis),
            n in any::<u32>(),
            random in any::<u64>(),
            jitter in jitters(),
        ) {
            let backoff = Backoff::exponential(base, factor).unwrap().with_cap(cap);
            let plain = backoff.with_jitter(Jitter::None).delay(n, random);
            let delay = backoff.with_jitter(jitter).delay(n, random);
            let (least, most) = match jitter {
                Jitter::None => (plain, plain),
                Jitter::Upwards => (plain, plain + plain / 4),
                Jitter::Equal => (plain / 2, plain),
                Jitter::Full => (Duration::ZERO, plain),
            };
            prop_assert!(plain <= cap);
            prop_assert!((least..=most).contains(&delay), "{least:?} {delay:?} {most:?}");
        }

        /// Trap 10: never shorter than the hint.
        #[test]
        fn a_hint_is_never_shortened(hint in any::<u64>(), nanos in 0u32..1_000_000_000, random in any::<u64>()) {
            let hint = Duration::new(hint, nanos);
            let delay = after_hint(hint, random);
            prop_assert!(delay >= hint);
            prop_assert!(delay - hint <= secs(1));
        }
    }
}
