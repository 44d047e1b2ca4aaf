//! Calls for which layers could do nothing.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::snapshot::InertRow;
use crate::event::InertReason;

/// How many calls, by layer and reason: few rows, as both are named in code.
pub(super) type InertCalls = BTreeMap<(&'static str, InertReason), u64>;

/// The counters of all layers.
#[derive(Debug, Default)]
pub(super) struct Inert(Mutex<InertCalls>);

impl Inert {
    fn lock(&self) -> MutexGuard<'_, InertCalls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, layer: &'static str, reason: InertReason) {
        *self.lock().entry((layer, reason)).or_default() += 1;
    }

    pub(super) fn all(&self) -> InertCalls {
        self.lock().clone()
    }
}

pub(super) fn rows(calls: &InertCalls) -> Vec<InertRow> {
    let calls = calls.iter().filter(|(_, calls)| **calls > 0);
    let row = |(&(layer, reason), &calls): (&(&str, InertReason), &u64)| InertRow {
        layer: layer.to_owned(),
        reason: reason.name().to_owned(),
        calls,
    };
    calls.map(row).collect()
}

/// Adds rows of another process.
pub(super) fn merge(ours: &[InertRow], theirs: &[InertRow]) -> Vec<InertRow> {
    let mut merged = BTreeMap::<_, u64>::new();
    for row in ours.iter().chain(theirs) {
        let calls = merged.entry((&row.layer, &row.reason)).or_default();
        *calls = calls.saturating_add(row.calls);
    }
    let row = |((layer, reason), calls): ((&String, &String), u64)| InertRow {
        layer: layer.clone(),
        reason: reason.clone(),
        calls,
    };
    merged.into_iter().map(row).collect()
}
