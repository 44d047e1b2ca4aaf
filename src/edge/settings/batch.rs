use std::{num::NonZeroUsize, time::Duration};

use serde::{Deserialize, Serialize};

use super::duration;

/// Calls one after the other under one budget: `[sequence]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SequenceSettings {
    /// The time for all calls together. Default: none (X2).
    #[serde(with = "duration::optional")]
    pub budget: Option<Duration>,
    /// What is kept back from it for the time after the calls. Default 500 ms (T5). The deadline layer
    /// keeps its own `deadline.reserve` of what is left.
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
    /// How many calls run at a time. Default: all of them (X1).
    pub limit: Option<NonZeroUsize>,
    /// The time for all calls together. Default: none (X1).
    #[serde(with = "duration::optional")]
    pub budget: Option<Duration>,
}
