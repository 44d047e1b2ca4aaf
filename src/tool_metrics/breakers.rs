//! The circuit breakers that calls have met.

use std::collections::BTreeMap;

use super::labels::Labels;
use crate::event::BreakerState;

/// One breaker, or the openings of all breakers beyond the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Breaker {
    /// `None` for all breakers beyond the bound together.
    pub(super) state: Option<BreakerState>,
    pub(super) openings: u64,
    generation: u32,
}

/// All circuit breakers, by the labels of their keys.
pub(super) type Breakers = BTreeMap<Labels, Breaker>;

/// Records the state of a breaker that calls have met, or its change `from` another one. There are
/// at most `max` rows and that of all other breakers. Returns the labels of the row, its state if
/// that is known, and whether it has opened.
pub(super) fn seen(
    breakers: &mut Breakers,
    max: usize,
    labels: Labels,
    from: Option<BreakerState>,
    (state, generation): (BreakerState, u32),
) -> (Labels, Option<BreakerState>, bool) {
    let opened = from.is_some() && state == BreakerState::Open;
    let fits = breakers.len() < max || breakers.contains_key(&labels);
    let labels = if fits { labels } else { Labels::other() };
    let breaker = breakers.entry(labels.clone()).or_insert(Breaker {
        state: fits.then_some(from.unwrap_or(state)),
        openings: 0,
        generation: generation.wrapping_sub(from.is_some().into()),
    });
    breaker.openings += u64::from(opened);
    // Two threads may report in the wrong order. A breaker that was forgotten while it was closed
    // begins to count its states anew.
    let newer = generation.wrapping_sub(breaker.generation) as i32 > 0;
    if breaker
        .state
        .is_some_and(|known| newer || from == Some(known))
    {
        (breaker.state, breaker.generation) = (Some(state), generation);
    }
    (labels, breaker.state, opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use BreakerState::{Closed, HalfOpen, Open};

    type Change = (u32, BreakerState, BreakerState);

    fn told(changes: &[Change]) -> (Option<BreakerState>, u64) {
        let mut all = Breakers::new();
        for (n, from, to) in changes {
            let labels = Labels::new(None, "t");
            seen(&mut all, 10, labels, Some(*from), (*to, *n));
        }
        let told = all.values().next().expect("one breaker");
        (told.state, told.openings)
    }

    #[test]
    fn what_is_told_late_counts_and_decides_nothing() {
        let opened = (1, Closed, Open);
        let half = (2, Open, HalfOpen);
        let closed = (3, HalfOpen, Closed);
        let in_order = told(&[opened, half, closed]);
        assert_eq!(in_order, (Some(Closed), 1));
        assert_eq!(told(&[opened, closed, half]), in_order);
        assert_eq!(told(&[half, opened]), (Some(HalfOpen), 1));
    }

    #[test]
    fn a_breaker_that_was_forgotten_begins_anew() {
        let first = [(7, Closed, Open), (9, HalfOpen, Closed)];
        let again = (1, Closed, Open);
        assert_eq!(told(&[&first[..], &[again]].concat()), (Some(Open), 2));
    }

    #[test]
    fn beyond_the_bound_only_openings_are_counted() {
        let mut all = Breakers::new();
        for n in 0..100 {
            let labels = Labels::new(None, &format!("t{n}"));
            seen(&mut all, 2, labels, Some(Closed), (Open, 1));
        }
        assert_eq!(all.len(), 3);
        let other = &all[&Labels::other()];
        assert_eq!((other.state, other.openings), (None, 98));
    }
}
