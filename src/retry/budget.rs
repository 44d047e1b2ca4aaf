use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    call::{CallInfo, ToolCall},
    config::{ConfigError, refuse_if},
    event::Listener,
    key::Keys,
    kit::registry::{Evict, Eviction, Registry},
    lock::lock,
};

/// Bounds the retries of the calls of a key to a share of their number, so that retries do not
/// overload a failing server.
///
/// Time is divided into windows of 10 s. In the present window and the one before it, 20 s at most,
/// there are never more retries than the larger of 20 % of the calls and 10; a call that began
/// before and is the first to ask for a retry counts as one of them. So up to five lone calls get
/// their 3 attempts, and under a full outage a server sees at most 1.2 times the calls, if they are
/// 50 and more. A retry is withdrawn before its sleep, and not given back.
///
/// Clones share the budget: as a [total budget](super::RetryPolicy::with_total_budget) of several
/// policies it bounds them together. [`with_budget`](super::RetryPolicy::with_budget) takes only
/// the ratio and the minimum, because each key has a budget of its own.
///
/// ```
/// use tower_toolcall::retry::RetryBudget;
///
/// # fn main() -> Result<(), tower_toolcall::ConfigError> {
/// let half = RetryBudget::new(0.5, 10)?;
/// # let _ = half; Ok(()) }
/// ```
#[derive(Clone)]
pub struct RetryBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Retries per million calls.
    per_million: u64,
    minimum: u32,
    /// Calls since the budget was made. Most calls write nothing else.
    calls: AtomicU64,
    windows: Mutex<Windows>,
}

const WINDOW: Duration = Duration::from_secs(10);

/// How many calls come between two reads of the clock.
const STRIDE: u64 = 32;

/// The previous window and the present one.
#[derive(Debug, Default)]
struct Windows {
    before: Window,
    /// `None` before the first call.
    present: Option<(Instant, Window)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// The number of calls when it began.
    calls: u64,
    retries: u64,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::unchecked(200_000, 10)
    }
}

impl RetryBudget {
    /// Allows `ratio` retries per call, or `minimum` retries in two windows of 10 s where that is
    /// more.
    ///
    /// # Errors
    ///
    /// If the ratio is not a number from 0 to 1,000, or if ratio (in millionths) and minimum are
    /// both zero: then no call would ever be retried, which is what a policy with one attempt is
    /// for.
    pub fn new(ratio: f64, minimum: u32) -> Result<Self, ConfigError> {
        let reason = format!("{ratio} is not a number from 0 to 1,000");
        refuse_if(!(0.0..=1000.0).contains(&ratio), "ratio", reason)?;
        // In range, and whole.
        let per_million = (ratio * 1e6).round() as u64;
        let reason = "it is zero, and so is `minimum`: no call would be retried";
        refuse_if(per_million == 0 && minimum == 0, "ratio", reason)?;
        Ok(Self::unchecked(per_million, minimum))
    }

    fn unchecked(per_million: u64, minimum: u32) -> Self {
        Self(Arc::new(Shared {
            per_million,
            minimum,
            calls: AtomicU64::new(0),
            windows: Mutex::default(),
        }))
    }

    /// Makes a budget of the same size for a key. Of the calls so far only the call that asks for a
    /// retry counts, because earlier calls were not counted by key.
    fn of_key(&self, now: Instant) -> Self {
        let own = Self::unchecked(self.0.per_million, self.0.minimum);
        own.deposit(|| now);
        own
    }

    /// Returns whether a retry was granted in the present window or the one before it.
    fn is_in_use(&self, now: Instant) -> bool {
        let (windows, _) = self.turn(now);
        let present = windows.present.map_or(0, |(_, present)| present.retries);
        present + windows.before.retries > 0
    }

    /// Counts a call. Every 32nd call, and every retry, checks whether the window is over.
    #[inline]
    pub(super) fn deposit(&self, now: impl FnOnce() -> Instant) {
        let before = self.0.calls.fetch_add(1, Relaxed);
        if before.is_multiple_of(STRIDE) {
            drop(self.turn(now()));
        }
    }

    #[cold]
    fn turn(&self, now: Instant) -> (MutexGuard<'_, Windows>, u64) {
        let shared = &*self.0;
        let mut windows = lock(&shared.windows);
        let calls = shared.calls.load(Relaxed);
        windows.turn(calls, now);
        (windows, calls)
    }

    /// Asks for a retry.
    fn withdraw(&self, now: Instant) -> bool {
        self.withdraw_if(now, || true)
    }

    /// Asks for a retry, and then `others`. It is counted if both grant it.
    fn withdraw_if(&self, now: Instant, others: impl FnOnce() -> bool) -> bool {
        let shared = &*self.0;
        let (mut windows, calls) = self.turn(now);
        let Windows { before, present } = &mut *windows;
        let Some((_, present)) = present else {
            return false;
        };
        let retries = before.retries + present.retries;
        let calls = u128::from(calls.saturating_sub(before.calls));
        // A thousand times the calls at most: it fits.
        let allowed = (calls * u128::from(shared.per_million) / 1_000_000) as u64;
        let granted = retries < allowed.max(shared.minimum.into()) && others();
        present.retries += u64::from(granted);
        granted
    }
}

/// A budget for each key, and one for all of them together.
#[derive(Clone)]
pub(super) struct Budgets {
    /// The size of the budget of each key. It counts nothing itself.
    each: RetryBudget,
    pub(super) total: Option<RetryBudget>,
    keys: Keys,
    of_keys: Registry<KeyBudget>,
    /// Set once a retry was asked for: before that no call of a key has to be counted.
    is_used: Arc<AtomicBool>,
}

#[derive(Debug)]
struct KeyBudget(RetryBudget);

impl Evict for KeyBudget {
    fn eviction(&self) -> Eviction {
        match self.0.is_in_use(Instant::now()) {
            true => Eviction::Costly,
            false => Eviction::Free,
        }
    }
}

impl Budgets {
    pub(super) fn new(each: RetryBudget, keys: Keys) -> Self {
        let unused = || KeyBudget(each.of_key(Instant::now()));
        Self {
            of_keys: keys.registry("retry", Listener::default(), unused(), |_| unused()),
            keys,
            each,
            total: None,
            is_used: Arc::default(),
        }
    }

    /// Budgets that nothing has used, of another size or for other keys.
    pub(super) fn unused(&self, each: Option<RetryBudget>, more: Keys) -> Self {
        let each = each.unwrap_or_else(|| self.each.clone());
        let mut keys = self.keys.clone();
        keys.set(more);
        Self {
            total: self.total.clone(),
            ..Self::new(each, keys)
        }
    }

    pub(super) fn deposit(&self, call: &ToolCall) {
        if let Some(total) = &self.total {
            total.deposit(Instant::now);
        }
        if self.is_used.load(Relaxed)
            && let Some(entry) = self.of_keys.peek(&call.info())
        {
            entry.value().0.deposit(Instant::now);
        }
    }

    /// Asks for a retry.
    pub(super) fn withdraw(&self, call: &CallInfo, now: Instant) -> bool {
        self.is_used.store(true, Relaxed);
        let make = || KeyBudget(self.each.of_key(now));
        let entry = self.of_keys.entry(call, make);
        let total = || self.total.as_ref().is_none_or(|total| total.withdraw(now));
        entry.value().0.withdraw_if(now, total)
    }
}

crate::text::debug_fields! { {} |_| Budgets { each, total, .. } }

impl Windows {
    /// Begins a new window when the present one is over.
    fn turn(&mut self, calls: u64, now: Instant) {
        // The times of the calls before are unknown (there were few): they do not count, except
        // the present one.
        let fresh = Window {
            calls: calls.saturating_sub(1),
            retries: 0,
        };
        match self.present {
            Some((since, _)) if now.saturating_duration_since(since) < WINDOW => {}
            // It begins where the other ended, however late the clock is read. The calls since then
            // are not known apart: they count for the window that has ended, so that no call counts
            // for longer than two windows.
            Some((since, ended)) if now.saturating_duration_since(since) < 2 * WINDOW => {
                self.before = ended;
                self.present = Some((since + WINDOW, Window { calls, retries: 0 }));
            }
            Some(_) | None => {
                self.before = fresh;
                self.present = Some((now, fresh));
            }
        }
    }
}

crate::text::debug_fields! {
    {} |this| RetryBudget { ratio: this.0.per_million as f64 / 1e6, minimum: this.0.minimum, .. }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn call(budget: &RetryBudget, now: Instant) {
        budget.deposit(|| now);
    }

    /// R7: lone calls have their 3 attempts.
    #[test]
    fn lone_calls_may_be_retried_twice_each() {
        let (budget, mut now) = (RetryBudget::default(), Instant::now());
        for _ in 0..20 {
            call(&budget, now);
            assert!(budget.withdraw(now) && budget.withdraw(now + secs(1)));
            now += secs(8);
        }
    }

    /// However far the time between two reads of the clock has come.
    #[test]
    fn a_steady_load_is_granted_its_share() {
        for phase in 0..32 {
            let (budget, mut now) = (RetryBudget::default(), Instant::now());
            for _ in 0..1000 + phase {
                call(&budget, now);
                now += Duration::from_millis(50);
            }
            // At least those of one window of 10 s, without the calls between two reads of the
            // clock; at most those of two.
            let granted = (0..1000).filter(|_| budget.withdraw(now)).count();
            assert!((33..=80).contains(&granted), "{granted} after {phase}");
        }
    }

    #[test]
    fn the_ratio_is_exact() {
        let budget = RetryBudget::new(0.29, 0).unwrap();
        let now = Instant::now();
        (0..100).for_each(|_| call(&budget, now));
        assert_eq!((0..100).filter(|_| budget.withdraw(now)).count(), 29);
    }

    /// R7: exactly a fifth of the calls.
    #[test]
    fn of_a_thousand_failing_calls_two_hundred_are_retried() {
        let (budget, now) = (RetryBudget::default(), Instant::now());
        let granted = (0..1000).filter(|_| {
            call(&budget, now);
            budget.withdraw(now)
        });
        assert_eq!(granted.count(), 200);
    }

    #[test]
    fn calls_that_are_made_at_once_all_count() {
        let (budget, now) = (RetryBudget::default(), Instant::now());
        (0..200).for_each(|_| call(&budget, now));
        assert_eq!((0..200).filter(|_| budget.withdraw(now)).count(), 40);
    }

    #[test]
    fn what_a_quiet_hour_has_saved_is_gone() {
        let (budget, now) = (RetryBudget::default(), Instant::now());
        (0..1_000).for_each(|_| call(&budget, now));
        let later = now + secs(3600);
        call(&budget, later);
        assert_eq!((0..100).filter(|_| budget.withdraw(later)).count(), 10);
    }

    /// W10: calls older than two windows do not count, however late the clock is read.
    #[test]
    fn calls_older_than_two_windows_are_not_counted() {
        let (budget, now) = (RetryBudget::new(0.5, 1).unwrap(), Instant::now());
        (0..100).for_each(|_| call(&budget, now));
        assert!(budget.withdraw(now + Duration::from_millis(19_900)));
        let later = now + Duration::from_millis(29_800);
        assert_eq!((0..100).filter(|_| budget.withdraw(later)).count(), 0);
        let later = now + Duration::from_millis(39_900);
        assert_eq!((0..100).filter(|_| budget.withdraw(later)).count(), 1);
    }

    #[test]
    fn a_lone_call_each_minute_is_retried_each_time() {
        let (budget, start) = (RetryBudget::default(), Instant::now());
        for minute in 0..10 {
            let now = start + secs(60 * minute);
            call(&budget, now);
            assert!(budget.withdraw(now) && budget.withdraw(now));
        }
    }

    #[test]
    fn clones_share_it() {
        let (budget, now) = (RetryBudget::default(), Instant::now());
        call(&budget.clone(), now);
        assert!((0..10).all(|_| budget.clone().withdraw(now)));
        assert!(!budget.withdraw(now));
    }

    #[test]
    fn what_is_no_budget_is_refused() {
        for (ratio, minimum) in [
            (-0.1, 1),
            (f64::NAN, 1),
            (f64::INFINITY, 1),
            (0.0, 0),
            (1e-9, 0),
        ] {
            assert_eq!(
                RetryBudget::new(ratio, minimum).unwrap_err().field(),
                "ratio"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Every call fails and asks for up to two retries. Within any window's time there are no
        /// more retries than a fifth of the calls of two windows, or ten.
        #[test]
        fn a_full_outage_is_bounded(gaps in prop::collection::vec(0u64..3_000, 1..300)) {
            let budget = RetryBudget::default();
            let (mut calls, mut retries, mut now) = (Vec::new(), Vec::new(), Instant::now());
            for gap in gaps {
                now += Duration::from_millis(gap);
                calls.push(now);
                call(&budget, now);
                for _ in 0..2 {
                    if budget.withdraw(now) {
                        retries.push(now);
                    }
                }
                let within = |all: &[Instant], time| {
                    all.iter().filter(|at| now - **at < time).count()
                };
                let most = (within(&calls, secs(20)) / 5).max(10);
                prop_assert!(within(&retries, secs(10)) <= most);
            }
        }
    }
}
