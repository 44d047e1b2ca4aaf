use std::{
    fmt,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use super::{
    lanes::{lanes, thread_number},
    row::{Began, Ended, Row},
};
use crate::registry::{Evict, Keep};

/// Where calls that began on one thread are in flight. A call holds it and not the row, so that threads do not
/// share the count of references; on a cache line of its own.
#[repr(align(64))]
pub(super) struct Seat {
    in_flight: AtomicU64,
    row: Arc<Row>,
}

impl Seat {
    /// Takes a place for a call: from now on the row is not forgotten.
    #[inline]
    pub(super) fn take(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// The call begins.
    #[inline]
    pub(super) fn began(&self) -> Began {
        self.row.began()
    }

    /// Where it is counted.
    pub(super) fn row(&self) -> &Row {
        &self.row
    }

    /// It has ended.
    #[inline]
    pub(super) fn ended(&self, began: Began, ended: &Ended<'_>) {
        // Counted first: in between it is in flight still, and its row stays.
        self.row.ended(began, ended);
        self.leave();
    }

    /// Gives the place back.
    #[inline]
    pub(super) fn leave(&self) {
        self.in_flight.fetch_sub(1, Release);
    }
}

/// A row, and a seat at it for each thread.
pub(super) struct Seats(Box<[Arc<Seat>]>);

impl Seats {
    pub(super) fn at(row: Row) -> Self {
        let row = Arc::new(row);
        let seat = |_| {
            Arc::new(Seat {
                in_flight: AtomicU64::new(0),
                row: Arc::clone(&row),
            })
        };
        Self((0..lanes()).map(seat).collect())
    }

    /// That of this thread.
    #[inline]
    pub(super) fn here(&self) -> &Arc<Seat> {
        // Their number is a power of two.
        &self.0[thread_number() & (self.0.len() - 1)]
    }

    pub(super) fn row(&self) -> &Arc<Row> {
        &self.0[0].row
    }

    /// How many calls are in flight.
    pub(super) fn in_flight(&self) -> u64 {
        self.0.iter().map(|seat| seat.in_flight.load(Acquire)).sum()
    }
}

impl Evict for Seats {
    fn keep(&self) -> Keep {
        // In this order: whoever is not in flight any more has said before that the row is known.
        match self.in_flight() > 0 || self.row().is_known() {
            true => Keep::Always,
            false => Keep::IfUsed,
        }
    }
}

impl fmt::Debug for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seats")
            .field("row", self.row())
            .field("in_flight", &self.in_flight())
            .finish()
    }
}
