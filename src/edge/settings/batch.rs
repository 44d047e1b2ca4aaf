use std::{num::NonZeroUsize, time::Duration};

use serde::{Deserialize, Serialize};

use super::duration;
#[cfg(feature = "batch")]
use crate::batch::{Parallel, Sequence};

/// Calls one after the other under one budget: `[sequence]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SequenceSettings {
    /// The time for all calls together. Default: none.
    #[serde(with = "duration::optional")]
    pub budget: Option<Duration>,
    /// What is kept back from it for the time after the calls. Default 500 ms. It is kept once: the deadline
    /// layer of the stack does not keep its own besides.
    #[serde(with = "duration")]
    pub reserve: Duration,
}

impl Default for SequenceSettings {
    fn default() -> Self {
        Self {
            budget: None,
            reserve: Duration::from_millis(500),
        }
    }
}

/// Calls at the same time: `[parallel]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ParallelSettings {
    /// How many calls run at a time. Default: all of them.
    pub limit: Option<NonZeroUsize>,
    /// The time for all calls together. Default: none.
    #[serde(with = "duration::optional")]
    pub budget: Option<Duration>,
}

impl SequenceSettings {
    /// What leaves something of the budget.
    pub(super) fn reserve_in_force(&self) -> Duration {
        match self.budget {
            Some(budget) if budget <= self.reserve => budget / 10,
            _ => self.reserve,
        }
    }

    /// A sequence with these settings: `settings.sequence.apply(Sequence::new(tools))`. A reserve that would leave nothing of
    /// the budget is a tenth of it.
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
