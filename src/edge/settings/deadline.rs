use super::{DeadlineSettings, Settings};
use crate::deadline::DeadlineLayer;

impl Settings {
    /// The deadline layer alone.
    pub fn deadline_layer(&self) -> DeadlineLayer {
        let DeadlineSettings { budget, reserve } = self.in_force().deadline;
        let layer = budget.map_or_else(DeadlineLayer::inherited, DeadlineLayer::new);
        layer.with_reserve(reserve)
    }
}
