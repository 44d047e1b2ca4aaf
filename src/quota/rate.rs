use std::time::Duration;

use crate::config::{ConfigError, MAX_PERIOD, positive, refuse_if};

/// The longest time in which all units come back: a hundred years.
const MAX_REFILL: u64 = 100 * MAX_PERIOD.as_nanos() as u64;

/// The shortest time between two units. It is a whole number of nanoseconds, which is then at most
/// a thousandth longer than asked for.
const MIN_INTERVAL: Duration = Duration::from_micros(1);

/// A rate of units: so many per period, and so many together.
///
/// In any span of time `t` calls are admitted for no more than `burst + units * t / period` units.
///
/// ```
/// use tower_toolcall::quota::Quota;
///
/// # fn main() -> Result<(), tower_toolcall::ConfigError> {
/// let bursty = Quota::per_minute(60)?; // 60 together, then one per second
/// let smooth = Quota::per_minute(60)?.with_burst(1)?; // one per second
/// assert_eq!((bursty.burst(), smooth.burst()), (60, 1));
/// assert!(Quota::per_minute(0).is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    units: u32,
    period: Duration,
    burst: u32,
}

impl Quota {
    /// Grants so many units per period; as many can be used together.
    ///
    /// # Errors
    ///
    /// `units`: if they are zero, or more than one per microsecond. `period`: if it is zero, or
    /// longer than a year.
    pub fn new(units: u32, period: Duration) -> Result<Self, ConfigError> {
        let reason = "it is zero: no call would be admitted";
        refuse_if(units == 0, "units", reason)?;
        positive("period", period, "it is zero: nothing would be limited")?;
        let reason = format!("{units} per {period:?} are more than one per microsecond");
        refuse_if(period / units < MIN_INTERVAL, "units", reason)?;
        Ok(Self {
            units,
            period,
            burst: units,
        })
    }

    /// Grants so many units per second.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn per_second(units: u32) -> Result<Self, ConfigError> {
        Self::new(units, Duration::from_secs(1))
    }

    /// Grants so many units per minute.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn per_minute(units: u32) -> Result<Self, ConfigError> {
        Self::new(units, Duration::from_secs(60))
    }

    /// Grants so many units per hour.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn per_hour(units: u32) -> Result<Self, ConfigError> {
        Self::new(units, Duration::from_secs(3600))
    }

    /// Grants so many units per day.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn per_day(units: u32) -> Result<Self, ConfigError> {
        Self::new(units, Duration::from_secs(24 * 3600))
    }

    /// Sets how many units can be used together, after a time without calls. Default: those of a
    /// period.
    ///
    /// # Errors
    ///
    /// `burst`: if it is zero, or so many that they take more than a hundred years to come back.
    pub fn with_burst(self, burst: u32) -> Result<Self, ConfigError> {
        refuse_if(burst == 0, "burst", "it is zero: no call would be admitted")?;
        let refill = self.interval().checked_mul(burst.into());
        let reason = format!("{burst} would take more than a hundred years to come back");
        refuse_if(refill.is_none_or(|t| t > MAX_REFILL), "burst", reason)?;
        Ok(Self { burst, ..self })
    }

    /// Returns how many units come back in a [period](Self::period).
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Returns the time in which they come back.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns how many units can be used together.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns the time between two units, in nanoseconds: rounded up, so that no more come back
    /// than were asked for.
    pub(super) fn interval(&self) -> u64 {
        // A year is far from the bound.
        let period = self.period.as_nanos() as u64;
        period.div_ceil(self.units.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(quota: Result<Quota, ConfigError>) -> String {
        quota.unwrap_err().field().to_owned()
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert_eq!(field(Quota::per_second(0)), "units");
        assert_eq!(field(Quota::per_second(1_000_001)), "units");
        assert_eq!(field(Quota::new(1, Duration::ZERO)), "period");
        assert_eq!(field(Quota::new(1, Duration::MAX)), "period");
        let daily = Quota::per_day(1).unwrap();
        assert_eq!(field(daily.with_burst(0)), "burst");
        assert_eq!(field(daily.with_burst(100 * 365 + 1)), "burst");
        assert_eq!(daily.with_burst(100 * 365).unwrap().burst(), 36_500);
        assert!(Quota::per_second(1_000_000).is_ok());
    }

    /// The largest default burst is within the bound of a set one.
    #[test]
    fn a_default_burst_can_be_set() {
        for (units, period) in [
            (u32::MAX, MAX_PERIOD),
            (1, MAX_PERIOD),
            (7, Duration::from_micros(7)),
        ] {
            let quota = Quota::new(units, period).unwrap();
            assert_eq!(quota.with_burst(units), Ok(quota));
        }
    }
}
