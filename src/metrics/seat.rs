use std::{
    fmt,
    sync::{
        Arc,
        atomic::{Ordering::Acquire, fence},
    },
};

use super::row::Row;
use crate::{
    lane::{here, lanes},
    registry::{Evict, Keep},
};

/// Where calls that began on one thread are in flight: those that hold it, so that no count but that of its references is
/// kept. A call holds it and not the row, so that threads do not share that count; on a cache line of its own.
#[repr(align(64))]
pub(super) struct Seat {
    row: Arc<Row>,
}

impl Seat {
    /// Where the call is counted. It is in flight until the seat is dropped, so that the row stays until then.
    #[inline]
    pub(super) fn row(&self) -> &Row {
        &self.row
    }
}

/// A row, and a seat at it for each thread.
pub(super) struct Seats(Box<[Arc<Seat>]>);

impl Seats {
    pub(super) fn at(row: Row) -> Self {
        let row = Arc::new(row);
        let seat = |_| {
            let row = Arc::clone(&row);
            Arc::new(Seat { row })
        };
        Self((0..lanes()).map(seat).collect())
    }

    /// That of this thread.
    #[inline]
    pub(super) fn here(&self) -> &Arc<Seat> {
        here(&self.0)
    }

    pub(super) fn row(&self) -> &Arc<Row> {
        &self.0[0].row
    }

    /// How many calls are in flight.
    pub(super) fn in_flight(&self) -> u64 {
        // One of each is ours.
        let calls = self.0.iter().map(|seat| Arc::strong_count(seat) - 1);
        let calls = calls.sum::<usize>() as u64;
        // Whoever has let go of a seat has counted its call before.
        fence(Acquire);
        calls
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
