use std::time::Duration;

use super::{ParallelSettings, SequenceSettings, layers::by};
use crate::batch::{Parallel, Sequence};

impl SequenceSettings {
    /// The reserve, or a tenth of the budget if the reserve would leave nothing of it.
    pub(super) fn reserve_in_force(&self) -> Duration {
        match self.budget {
            Some(budget) if budget <= self.reserve => budget / 10,
            _ => self.reserve,
        }
    }

    /// Returns a sequence with these settings: `settings.sequence.apply(Sequence::new(tools))`. A
    /// reserve that would leave nothing of the budget is a tenth of it.
    pub fn apply<S, E>(&self, sequence: Sequence<S, E>) -> Sequence<S, E> {
        let sequence = sequence.with_reserve(self.reserve_in_force());
        by(self.budget, sequence, Sequence::with_budget)
    }
}

impl ParallelSettings {
    /// Returns a batch with these settings: `settings.parallel.apply(Parallel::new(tools))`.
    pub fn apply<S, E>(&self, parallel: Parallel<S, E>) -> Parallel<S, E> {
        let parallel = by(self.limit, parallel, Parallel::limited_to);
        by(self.budget, parallel, Parallel::with_budget)
    }
}
