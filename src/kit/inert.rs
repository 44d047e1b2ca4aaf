//! Calls for which a layer can do nothing.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::{
    call::CallInfo,
    event::{Event, InertReason, Listener},
};

/// Counts the calls of one layer value for which it could do nothing, and reports the first one.
#[derive(Debug)]
pub(crate) struct Inert {
    layer: &'static str,
    calls: AtomicU64,
    /// The reasons that were reported, a bit each.
    reported: AtomicU8,
}

const _: () = assert!(InertReason::ALL.len() <= u8::BITS as usize);

impl Inert {
    pub(crate) const fn new(layer: &'static str) -> Self {
        Self {
            layer,
            calls: AtomicU64::new(0),
            reported: AtomicU8::new(0),
        }
    }

    /// Returns the number of calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// Counts a call. The first one for a reason is emitted, with `help`: what the user can do.
    #[cold]
    pub(crate) fn pass(
        &self,
        listener: &Listener,
        call: &CallInfo,
        reason: InertReason,
        help: &'static str,
    ) {
        self.calls.fetch_add(1, Relaxed);
        let bit = 1 << reason as u8;
        let is_new = self.reported.load(Relaxed) & bit == 0;
        let is_first = is_new && self.reported.fetch_or(bit, Relaxed) & bit == 0;
        listener.tell(&Event::Inert {
            call,
            layer: self.layer,
            reason,
            help,
            is_first,
        });
    }
}
