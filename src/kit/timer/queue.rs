//! Wakers and the moments for which they wait. No clock, no lock.

use std::{mem, task::Waker};

use tokio::time::Instant;

/// The waiters, the earliest first: a binary heap. Its entries and seats refer to each other, so
/// that a waiter can be removed from the middle.
///
/// Times that come in order, as those of calls with the same timeout do, cost one comparison each.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: Vec<Entry>,
    seats: Vec<State>,
    free: Option<u32>,
    taken: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Instant,
    seat: u32,
}

#[derive(Debug)]
enum State {
    Free { next: Option<u32> },
    Waiting { place: u32, waker: Waker },
    Rung,
    Adrift,
}

/// A waiter's place. It is taken until it is [left](Queue::leave).
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat(u32);

/// The state of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Waiting,
    /// The moment has come.
    Rung,
    /// The runtime is gone, and will not wake it.
    Adrift,
}

/// How many empty seats are kept.
const KEPT: usize = 1024;

impl Queue {
    /// Returns the earliest moment of a waiter.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|entry| entry.at)
    }

    /// Adds a waiter for a moment.
    #[inline]
    pub(super) fn enter(&mut self, at: Instant, waker: Waker) -> Seat {
        self.taken += 1;
        let seat = match self.free {
            Some(seat) => seat,
            None => self.add(),
        };
        let place = self.push(Entry { at, seat });
        let waiting = State::Waiting { place, waker };
        if let State::Free { next } = mem::replace(&mut self.seats[seat as usize], waiting) {
            self.free = next;
        }
        if place > 0 {
            self.rise(place as usize);
        }
        Seat(seat)
    }

    #[cold]
    fn add(&mut self) -> u32 {
        self.seats.push(State::Free { next: None });
        index(self.seats.len() - 1)
    }

    #[inline]
    fn push(&mut self, entry: Entry) -> u32 {
        self.heap.push(entry);
        index(self.heap.len() - 1)
    }

    /// Returns the state of a waiter. If it still waits, `waker` replaces its waker, which is
    /// returned if it was another.
    #[inline]
    pub(super) fn look(&mut self, Seat(seat): Seat, waker: &Waker) -> (Seen, Option<Waker>) {
        match &mut self.seats[seat as usize] {
            State::Waiting { waker: known, .. } if known.will_wake(waker) => (Seen::Waiting, None),
            State::Waiting { waker: known, .. } => {
                let before = mem::replace(known, waker.clone());
                (Seen::Waiting, Some(before))
            }
            State::Rung => (Seen::Rung, None),
            State::Adrift => (Seen::Adrift, None),
            State::Free { .. } => unreachable!("the seat was left"),
        }
    }

    /// Gives up a seat. Returns the waker, if it was still waiting.
    #[inline]
    pub(super) fn leave(&mut self, Seat(seat): Seat) -> Option<Waker> {
        let left = State::Free { next: self.free };
        let before = mem::replace(&mut self.seats[seat as usize], left);
        self.free = Some(seat);
        self.taken -= 1;
        let waker = match before {
            State::Waiting { place, waker } => {
                self.take_out(place as usize);
                Some(waker)
            }
            _ => None,
        };
        // Gives back the memory of a burst.
        if self.taken == 0 && self.seats.len() > KEPT {
            *self = Self::default();
        }
        waker
    }

    /// Removes the waiters for `now` or an earlier moment.
    pub(super) fn ring(&mut self, now: Instant, rung: &mut Vec<Waker>) {
        while self.next().is_some_and(|at| at <= now) {
            rung.extend(self.end(State::Rung));
        }
    }

    /// Removes all waiters.
    pub(super) fn set_adrift(&mut self, adrift: &mut Vec<Waker>) {
        while !self.heap.is_empty() {
            adrift.extend(self.end(State::Adrift));
        }
    }

    /// Ends the wait of the first entry of the heap.
    fn end(&mut self, how: State) -> Option<Waker> {
        let entry = self.take_out(0);
        match mem::replace(&mut self.seats[entry.seat as usize], how) {
            State::Waiting { waker, .. } => Some(waker),
            _ => None,
        }
    }

    #[inline]
    fn take_out(&mut self, place: usize) -> Entry {
        let entry = self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.settle(place);
        }
        entry
    }

    /// Moves an entry that came from the end of the heap to where it belongs.
    #[inline(never)]
    fn settle(&mut self, place: usize) {
        if place == 0 || !self.rise(place) {
            self.sink(place);
        }
    }

    /// Moves an entry up to where it belongs. Returns whether it moved.
    #[inline(never)]
    fn rise(&mut self, from: usize) -> bool {
        let mut place = from;
        while place > 0 && self.heap[place].at < self.heap[(place - 1) / 2].at {
            self.heap.swap(place, (place - 1) / 2);
            self.tell(place);
            place = (place - 1) / 2;
        }
        if place != from {
            self.tell(place);
        }
        place != from
    }

    /// Moves an entry down to where it belongs.
    fn sink(&mut self, mut place: usize) {
        loop {
            let children = 2 * place + 1..self.heap.len().min(2 * place + 3);
            let Some(least) = children.min_by_key(|&child| self.heap[child].at) else {
                break;
            };
            if self.heap[place].at <= self.heap[least].at {
                break;
            }
            self.heap.swap(place, least);
            self.tell(place);
            place = least;
        }
        self.tell(place);
    }

    /// Updates the place of an entry in its seat.
    #[inline]
    fn tell(&mut self, place: usize) {
        let seat = self.heap[place].seat;
        if let State::Waiting { place: known, .. } = &mut self.seats[seat as usize] {
            *known = index(place);
        }
    }
}

/// Returns an index as a `u32`, so that a timer is small: fewer than 2^32 calls wait on one thread.
#[inline]
fn index(i: usize) -> u32 {
    u32::try_from(i).expect("fewer calls wait than that")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use proptest::prelude::*;

    use super::*;

    fn waker() -> Waker {
        Waker::noop().clone()
    }

    fn ring(queue: &mut Queue, now: Instant) -> usize {
        let mut rung = Vec::new();
        queue.ring(now, &mut rung);
        rung.len()
    }

    #[test]
    fn waiters_are_rung_at_their_moment_and_not_before() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let seats = [3, 1, 2].map(|s| queue.enter(now + Duration::from_secs(s), waker()));
        assert_eq!(ring(&mut queue, now + Duration::from_secs(2)), 2);
        let seen = seats.map(|s| queue.look(s, Waker::noop()).0);
        assert_eq!(seen, [Seen::Waiting, Seen::Rung, Seen::Rung]);
        assert_eq!(queue.next(), Some(now + Duration::from_secs(3)));
    }

    #[test]
    fn those_set_adrift_are_not_rung() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let seat = queue.enter(now, waker());
        let mut adrift = Vec::new();
        queue.set_adrift(&mut adrift);
        assert_eq!((adrift.len(), queue.next()), (1, None));
        assert_eq!(queue.look(seat, Waker::noop()).0, Seen::Adrift);
    }

    #[test]
    fn a_seat_that_was_left_is_used_again() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for _ in 0..3 {
            let seats = [(); 2].map(|()| queue.enter(now, waker()));
            assert_eq!(ring(&mut queue, now), 2);
            for seat in seats {
                assert!(queue.leave(seat).is_none());
            }
        }
        assert_eq!(queue.seats.len(), 2);
    }

    #[test]
    fn the_memory_of_a_burst_is_given_back() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let seats: Vec<_> = (0..2 * KEPT).map(|_| queue.enter(now, waker())).collect();
        for seat in seats {
            assert!(queue.leave(seat).is_some());
        }
        assert_eq!((queue.heap.capacity(), queue.seats.capacity()), (0, 0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Enter(u64),
        Leave(prop::sample::Index),
        Ring(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..40_u64).prop_map(Step::Enter),
            2 => any::<prop::sample::Index>().prop_map(Step::Leave),
            1 => (0..40_u64).prop_map(Step::Ring),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Against a map, whatever comes in whichever order.
        #[test]
        fn it_does_what_a_sorted_list_would(steps in steps()) {
            let (mut queue, start) = (Queue::default(), Instant::now());
            let mut seats: Vec<(Seat, u64)> = Vec::new();
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Enter(at) => {
                        let seat = queue.enter(start + Duration::from_millis(at), waker());
                        prop_assert!(model.insert(seat.0, at).is_none());
                        seats.push((seat, at));
                    }
                    Step::Leave(which) if !seats.is_empty() => {
                        let (seat, _) = seats.swap_remove(which.index(seats.len()));
                        let waited = model.remove(&seat.0).is_some();
                        prop_assert_eq!(queue.leave(seat).is_some(), waited);
                    }
                    Step::Leave(_) => {}
                    Step::Ring(now) => {
                        let due = model.values().filter(|&&at| at <= now).count();
                        prop_assert_eq!(ring(&mut queue, start + Duration::from_millis(now)), due);
                        model.retain(|_, &mut at| at > now);
                    }
                }
                let earliest = model.values().min().map(|&at| start + Duration::from_millis(at));
                prop_assert_eq!(queue.next(), earliest);
                for (seat, _) in &seats {
                    let expected = match model.contains_key(&seat.0) {
                        true => Seen::Waiting,
                        false => Seen::Rung,
                    };
                    prop_assert_eq!(queue.look(*seat, Waker::noop()).0, expected);
                }
            }
        }
    }
}
