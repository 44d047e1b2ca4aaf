//! C8: the events of a store. In a process of their own: other threads without a subscriber would
//! take part in what tracing remembers of an event.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::sleep;
use tower_toolcall::{AnyError, circuit_breaker::CircuitBreakerLayer};
use tower_toolcall_redis::{Exchange, MemoryStore, News, SharedState, Store};

/// What a subscriber has written.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A store that can go away.
struct Unsteady(MemoryStore, Arc<AtomicBool>);

impl Store for Unsteady {
    async fn exchange(&mut self, exchange: Exchange<'_>) -> Result<News, AnyError> {
        match self.1.load(Relaxed) {
            true => Err("no way to redis://user:hunter2@store".into()),
            false => self.0.exchange(exchange).await,
        }
    }

    async fn changed(&mut self) {
        self.0.changed().await;
    }
}

/// C8: each change is told once, and without the password of the store.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_is_an_event_and_so_is_its_return() {
    let written = Written::default();
    let to = written.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false);
    let subscriber = subscriber.with_writer(move || to.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let is_down = Arc::new(AtomicBool::new(false));
    let store = Unsteady(MemoryStore::new(), Arc::clone(&is_down));
    let layer = CircuitBreakerLayer::new();
    let shared = SharedState::new(store).breakers("tools", &layer.handle());
    tokio::spawn(shared.unwrap().run());
    sleep(Duration::from_secs(1)).await;
    is_down.store(true, Relaxed);
    sleep(Duration::from_secs(5)).await;
    is_down.store(false, Relaxed);
    sleep(Duration::from_secs(2)).await;
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let lines = text.lines().filter(|line| line.contains("tool.store"));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 3, "{text}");
    let has = |line: &str, parts: [&str; 2]| parts.iter().all(|part| line.contains(part));
    assert!(has(lines[0], ["INFO", "to=\"up\""]), "{text}");
    assert!(
        has(lines[1], ["WARN", "to=\"down\" error=\"no way"]),
        "{text}"
    );
    assert!(has(lines[2], ["INFO", "to=\"up\""]), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}
