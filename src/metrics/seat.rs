use std::{fmt, sync::Arc};

use super::row::Row;
use crate::kit::{
    lane::{Kept, Spread},
    registry::{Evict, Keep},
};

/// A call in flight: it is counted by nothing but this reference on the row of its tool, which stays as long.
pub(super) type Seat = Arc<Kept<Row>>;

/// A row, and who is in flight at it.
pub(super) struct Seats(Spread<Row>);

impl Seats {
    pub(super) fn at(row: Row) -> Self {
        Self(Spread::new(row))
    }

    /// One more.
    #[inline]
    pub(super) fn take(&self) -> Seat {
        self.0.keep()
    }

    pub(super) fn row(&self) -> &Spread<Row> {
        &self.0
    }

    /// How many calls are in flight.
    pub(super) fn in_flight(&self) -> u64 {
        // Whoever has let go of a seat has counted its call before.
        self.0.references() as u64
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
