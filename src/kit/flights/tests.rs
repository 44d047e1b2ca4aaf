use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use tokio::time::{sleep, timeout};

use super::*;
use crate::error::ErrorKind;

impl FlightKey for String {}

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct Keys {
    flights: Arc<Flights<String, String>>,
    made: Arc<AtomicU32>,
}

/// What making a value comes to, after a second.
#[derive(Clone, Copy)]
enum End {
    Fresh(Duration),
    Fails,
    FailsAlone,
}

impl Keys {
    fn new(most: usize) -> Self {
        Self {
            flights: Arc::new(Flights::new(most)),
            made: Arc::default(),
        }
    }

    async fn get(&self, key: &str, end: End) -> (Result<String, ErrorKind>, Source) {
        let made = || async {
            let n = self.made.fetch_add(1, SeqCst) + 1;
            sleep(SECOND).await;
            let failed = |is_shared| Failed {
                error: ToolError::new(ErrorKind::TokenExchange, "no"),
                is_shared,
            };
            let until = match end {
                End::Fresh(time) => Some(Instant::now() + time),
                End::Fails => return Err(failed(true)),
                End::FailsAlone => return Err(failed(false)),
            };
            let value = format!("{key}{n}");
            Ok(Made { value, until })
        };
        let (result, source) = self.flights.get_or_make(&key.to_owned(), made).await;
        (result.map_err(|e| e.kind()), source)
    }

    fn spawn(&self, end: End) -> tokio::task::JoinHandle<(Result<String, ErrorKind>, Source)> {
        let keys = self.clone();
        tokio::spawn(async move { keys.get("a", end).await })
    }

    fn made(&self) -> u32 {
        self.made.load(SeqCst)
    }

    fn known(&self, key: &str) -> Option<String> {
        self.flights.get(&key.to_owned())
    }
}

const FRESH: End = End::Fresh(Duration::from_secs(60));

#[tokio::test(start_paused = true)]
async fn who_waits_through_a_failure_that_was_not_his_finds_the_value_after_it() {
    let keys = Keys::new(10);
    assert!(keys.get("a", End::Fails).await.0.is_err());
    let many: Vec<_> = (0..10).map(|_| keys.spawn(FRESH)).collect();
    for one in many {
        assert_eq!(one.await.unwrap().0.unwrap(), "a2");
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_keys_is_bounded_and_those_stale_first_go_first() {
    let keys = Keys::new(16);
    for n in 0..16 {
        let end = End::Fresh(SECOND * (1000 + n));
        keys.get(&format!("k{n}"), end).await.0.unwrap();
    }
    keys.get("new", FRESH).await.0.unwrap();
    assert!(keys.known("k0").is_none() && keys.known("k15").is_some());
    assert!(keys.known("new").is_some() && keys.flights.len() <= 16);
    for n in 0..1000 {
        let _ = keys.get(&format!("x{n}"), End::Fails).await;
    }
    assert!(keys.flights.len() <= 16);
    // What fails takes the place of what has failed.
    assert!(keys.known("k15").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_key_beyond_the_bound_is_served_and_not_kept() {
    let keys = Keys::new(1);
    let first = keys.spawn(FRESH);
    tokio::task::yield_now().await;
    assert!(keys.get("b", FRESH).await.0.is_ok());
    assert!(first.await.unwrap().0.is_ok());
    assert_eq!(
        (keys.known("b"), keys.known("a")),
        (None, Some("a1".into()))
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_stale_is_forgotten_when_others_come() {
    let keys = Keys::new(10_000);
    for n in 0..100 {
        keys.get(&format!("k{n}"), End::Fresh(SECOND))
            .await
            .0
            .unwrap();
    }
    sleep(SWEEP).await;
    for n in 0..100 {
        keys.get(&format!("x{n}"), FRESH).await.0.unwrap();
    }
    assert!(keys.flights.len() <= 116, "{}", keys.flights.len());
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_making_leaves_the_key_to_the_next() {
    let keys = Keys::new(10);
    let flights = Arc::clone(&keys.flights);
    let panics = tokio::spawn(async move {
        let make = || async { panic!("no") };
        let _ = flights.get_or_make(&"a".to_owned(), make).await;
    });
    assert!(panics.await.is_err());
    assert!(keys.get("a", FRESH).await.0.is_ok());
}

/// Keys of strangers, for which nothing can be made.
#[tokio::test(start_paused = true)]
async fn a_failure_leaves_no_key_behind() {
    let keys = Keys::new(10_000);
    for n in 0..100 {
        let end = [End::Fails, End::FailsAlone][n % 2];
        assert!(keys.get(&format!("k{n}"), end).await.0.is_err());
        let dropped = timeout(SECOND / 2, keys.get("dropped", FRESH)).await;
        assert!(dropped.is_err() && keys.flights.len() == 0);
    }
    // The last of those who share one takes the key away.
    let many: Vec<_> = (0..100).map(|_| keys.spawn(End::Fails)).collect();
    for one in many {
        assert!(one.await.unwrap().0.is_err());
    }
    assert_eq!((keys.flights.len(), keys.made()), (0, 201));
}

#[tokio::test(start_paused = true)]
async fn a_failure_takes_away_what_is_stale_and_nothing_that_is_used() {
    let keys = Keys::new(10_000);
    keys.get("a", End::Fresh(SECOND)).await.0.unwrap();
    sleep(SECOND).await;
    let (failed, waits) = (keys.spawn(End::FailsAlone), keys.spawn(FRESH));
    assert!(failed.await.unwrap().0.is_err());
    assert_eq!(
        (waits.await.unwrap().0.unwrap(), keys.made()),
        ("a3".into(), 3)
    );
    assert_eq!(keys.known("a").as_deref(), Some("a3"));
    sleep(60 * SECOND).await;
    assert!(keys.get("a", End::Fails).await.0.is_err());
    assert_eq!(keys.flights.len(), 0);
}

/// A value whose drop uses the store, as that of somebody's answer may.
#[derive(Clone)]
struct Looks(Arc<Flights<String, Looks>>);

impl Drop for Looks {
    fn drop(&mut self) {
        assert!(self.0.table.try_lock().is_ok());
    }
}

/// What is kept may be large, and has a drop of its own.
#[tokio::test(start_paused = true)]
async fn nothing_is_dropped_under_a_lock() {
    let flights = Arc::new(Flights::shared_out(
        Units::new(2, 2),
        Units::new(0, 0),
        true,
    ));
    let keep = |key: &str, time: Duration| {
        let mut flight = flights.enter(key.to_owned()).unwrap();
        assert!(flight.try_turn());
        flight.end(Some((Looks(flights.clone()), Instant::now() + time)));
        flight
    };
    // Turned out, alone and by a sweep.
    for key in ["a", "b", "c"] {
        keep(key, SECOND);
    }
    tokio::time::advance(2 * SECOND).await;
    keep("d", SECOND);
    // Made again.
    tokio::time::advance(2 * SECOND).await;
    keep("d", SECOND);
    // Forgotten, also while it is in use; and stale as soon as it is made.
    flights.forget_keys(|_| true);
    let used = keep("e", SECOND);
    flights.forget_keys(|_| true);
    drop(used);
    keep("f", Duration::ZERO);
    assert_eq!(flights.len(), 0);
}
