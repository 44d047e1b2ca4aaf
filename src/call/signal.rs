use std::ops::{BitOr, BitOrAssign};

/// A kind of event that a layer can report of the calls that pass it.
///
/// Layers [announce](crate::Record::announce) it on the record of each call, so that an observer
/// above can distinguish "none happened" (a series at 0) from "no layer reports it" (no series).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// Failed attempts are repeated, or not: [`Event::Retry`](crate::Event::Retry) and
    /// [`Event::RetryRefused`](crate::Event::RetryRefused).
    Retries,
    /// Rate limits are seen: [`Event::RateLimited`](crate::Event::RateLimited).
    RateLimits,
    /// A circuit breaker may refuse the call: [`Event::Breaker`](crate::Event::Breaker) and
    /// [`Event::Transition`](crate::Event::Transition).
    Breakers,
    /// Slow calls are found: [`Event::Slow`](crate::Event::Slow).
    SlowCalls,
    /// Calls are answered without being sent: [`Event::Reused`](crate::Event::Reused).
    Reuse,
}

impl Signal {
    /// Every signal.
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 5] = [
        Self::Retries,
        Self::RateLimits,
        Self::Breakers,
        Self::SlowCalls,
        Self::Reuse,
    ];
}

/// A set of [`Signal`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signals(u8);

impl Signals {
    /// Returns whether this one is in it.
    #[inline]
    pub const fn has(self, signal: Signal) -> bool {
        self.0 & (1 << signal as u8) != 0
    }

    #[inline]
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

impl From<Signal> for Signals {
    #[inline]
    fn from(signal: Signal) -> Self {
        Self(1 << signal as u8)
    }
}

impl BitOr for Signals {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Signals {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}
