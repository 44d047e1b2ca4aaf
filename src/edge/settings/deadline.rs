use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Settings, duration};
use crate::deadline::DeadlineLayer;

/// How long a whole call may take, waiting and all attempts included: `[deadline]`. See [`DeadlineLayer`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct DeadlineSettings {
    /// The time for each call. Default: none; the deadline that a call brings along is kept.
    #[serde(with = "duration::optional")]
    pub budget: Option<Duration>,
    /// What is kept back from the deadline that a call brings along. Default 500 ms; of a deadline that came over a wire at
    /// most a tenth.
    #[serde(with = "duration")]
    pub reserve: Duration,
}

impl Default for DeadlineSettings {
    fn default() -> Self {
        Self {
            budget: None,
            reserve: Duration::from_millis(500),
        }
    }
}

impl Settings {
    /// The deadline layer alone.
    pub fn deadline_layer(&self) -> DeadlineLayer {
        let DeadlineSettings { budget, reserve } = self.in_force().deadline;
        let layer = budget.map_or_else(DeadlineLayer::inherited, DeadlineLayer::new);
        layer.with_reserve(reserve)
    }
}
