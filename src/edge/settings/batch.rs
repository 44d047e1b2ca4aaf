use std::time::Duration;

#[cfg(feature = "batch")]
use super::ParallelSettings;
use super::SequenceSettings;
#[cfg(feature = "batch")]
use crate::batch::{Parallel, Sequence};

impl SequenceSettings {
    /// The reserve, or a tenth of the budget if the reserve would leave nothing of it.
    pub(super) fn reserve_in_force(&self) -> Duration {
        match self.budget {
            Some(budget) if budget <= self.reserve => budget / 10,
            _ => self.reserve,
        }
    }

    /// A sequence with these settings: `settings.sequence.apply(Sequence::new(tools))`. A reserve
    /// that would leave nothing of the budget is a tenth of it.
    #[cfg(feature = "batch")]
    pub fn apply<S, E>(&self, sequence: Sequence<S, E>) -> Sequence<S, E> {
        let sequence = sequence.with_reserve(self.reserve_in_force());
        match self.budget {
            Some(budget) => sequence.with_budget(budget),
            None => sequence,
        }
    }
}

#[cfg(feature = "batch")]
impl ParallelSettings {
    /// A batch with these settings: `settings.parallel.apply(Parallel::new(tools))`.
    pub fn apply<S, E>(&self, mut parallel: Parallel<S, E>) -> Parallel<S, E> {
        if let Some(limit) = self.limit {
            parallel = parallel.limited_to(limit);
        }
        match self.budget {
            Some(budget) => parallel.with_budget(budget),
            None => parallel,
        }
    }
}
