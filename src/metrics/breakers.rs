//! The circuit breakers that calls have met.

use std::collections::BTreeMap;

use super::labels::Labels;
use crate::event::{BreakerState, Transition};

/// One breaker, or the openings of all breakers beyond the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Breaker {
    /// `None` for all breakers beyond the bound together.
    pub(super) state: Option<BreakerState>,
    pub(super) openings: u64,
    generation: u32,
}

impl Breaker {
    /// Takes over the state that was reported, `from` another one if that was reported too.
    fn set(&mut self, from: Option<BreakerState>, to: BreakerState, generation: u32) {
        // Two threads may report in the wrong order. A breaker that was forgotten while it was
        // closed begins to count its states anew.
        let newer = generation.wrapping_sub(self.generation) as i32 > 0;
        if self.state.is_some_and(|known| newer || from == Some(known)) {
            (self.state, self.generation) = (Some(to), generation);
        }
    }
}

/// All circuit breakers, by the labels of their keys.
pub(super) type Breakers = BTreeMap<Labels, Breaker>;

/// Changes the row of a breaker, which begins in `state` if it is new. There are at most `max` rows
/// and that of all other breakers. Returns the labels of the row, and its state if that is known.
fn change(
    breakers: &mut Breakers,
    max: usize,
    labels: Labels,
    (state, generation): (BreakerState, u32),
    change: impl FnOnce(&mut Breaker),
) -> (Labels, Option<BreakerState>) {
    let fits = breakers.len() < max || breakers.contains_key(&labels);
    let labels = if fits { labels } else { Labels::other() };
    let breaker = breakers.entry(labels.clone()).or_insert(Breaker {
        state: fits.then_some(state),
        openings: 0,
        generation,
    });
    change(breaker);
    (labels, breaker.state)
}

/// Records a breaker's change of state.
pub(super) fn changed(
    breakers: &mut Breakers,
    max: usize,
    labels: Labels,
    t: &Transition,
) -> (Labels, Option<BreakerState>) {
    let before = (t.from, t.generation.wrapping_sub(1));
    change(breakers, max, labels, before, |breaker| {
        breaker.openings += u64::from(t.to == BreakerState::Open);
        breaker.set(Some(t.from), t.to, t.generation);
    })
}

/// Records the state of a breaker that calls have met.
pub(super) fn met(
    breakers: &mut Breakers,
    max: usize,
    labels: Labels,
    (state, generation): (BreakerState, u32),
) -> (Labels, Option<BreakerState>) {
    change(breakers, max, labels, (state, generation), |breaker| {
        breaker.set(None, state, generation);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{
        BreakerState::{Closed, HalfOpen, Open},
        TransitionReason,
    };

    fn of(generation: u32, from: BreakerState, to: BreakerState) -> Transition {
        Transition {
            server: None,
            tool: Some("t".into()),
            from,
            to,
            reason: TransitionReason::Forced,
            generation,
            calls: 0,
            failures: 0,
            slow_calls: 0,
            open_for: None,
        }
    }

    fn told(changes: &[Transition]) -> (Option<BreakerState>, u64) {
        let mut all = Breakers::new();
        for change in changes {
            changed(&mut all, 10, Labels::new(None, "t"), change);
        }
        let told = all.values().next().expect("one breaker");
        (told.state, told.openings)
    }

    #[test]
    fn what_is_told_late_counts_and_decides_nothing() {
        let opened = of(1, Closed, Open);
        let half = of(2, Open, HalfOpen);
        let closed = of(3, HalfOpen, Closed);
        let in_order = told(&[opened.clone(), half.clone(), closed.clone()]);
        assert_eq!(in_order, (Some(Closed), 1));
        assert_eq!(told(&[opened.clone(), closed, half.clone()]), in_order);
        assert_eq!(told(&[half, opened]), (Some(HalfOpen), 1));
    }

    #[test]
    fn a_breaker_that_was_forgotten_begins_anew() {
        let first = [of(7, Closed, Open), of(9, HalfOpen, Closed)];
        let again = of(1, Closed, Open);
        assert_eq!(told(&[&first[..], &[again]].concat()), (Some(Open), 2));
    }

    #[test]
    fn beyond_the_bound_only_openings_are_counted() {
        let mut all = Breakers::new();
        for n in 0..100 {
            let labels = Labels::new(None, &format!("t{n}"));
            changed(&mut all, 2, labels, &of(1, Closed, Open));
        }
        assert_eq!(all.len(), 3);
        let other = &all[&Labels::other()];
        assert_eq!((other.state, other.openings), (None, 98));
    }
}
