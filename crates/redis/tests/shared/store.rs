//! A way to a store that can be cut, or slow, or lose every hint.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;
use tower_toolcall::AnyError;
use tower_toolcall_redis::{Exchange, MemoryStore, News, Store};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Good,
    /// No exchange reaches the store.
    Cut,
    /// Exchanges reach the store, and answers do not come back.
    Deaf,
    /// The answer takes so long.
    Slow(Duration),
    /// No hints.
    Mute,
    /// What is read is nonsense.
    Garbled,
    /// The store has no room for what is written.
    Full,
}

/// The way of one process.
#[derive(Clone)]
pub(crate) struct Link {
    /// Of all processes of the fleet; the number tells which one it is.
    store: Arc<Mutex<(u64, MemoryStore)>>,
    own: (u64, MemoryStore),
    way: Arc<Mutex<Way>>,
}

impl Link {
    pub(crate) fn new() -> Self {
        let own = (0, MemoryStore::new());
        Self {
            store: Arc::new(Mutex::new(own.clone())),
            own,
            way: Arc::new(Mutex::new(Way::Good)),
        }
    }

    /// Another process' way to the same store.
    pub(crate) fn another(&self) -> Self {
        Self {
            way: Arc::new(Mutex::new(Way::Good)),
            ..self.clone()
        }
    }

    pub(crate) fn is(&self, way: Way) {
        *self.way.lock().unwrap() = way;
    }

    /// The store begins again, with nothing in it.
    pub(crate) fn loses_everything(&self) {
        let mut store = self.store.lock().unwrap();
        *store = (store.0 + 1, MemoryStore::new());
    }

    fn way(&self) -> Way {
        *self.way.lock().unwrap()
    }
}

impl Store for Link {
    async fn exchange(&mut self, mut exchange: Exchange<'_>) -> Result<News, AnyError> {
        if self.way() == Way::Cut {
            return Err(super::refused().into());
        }
        // Of the store that is there now: the hints of another one come no more.
        let now = self.store.lock().unwrap().clone();
        if now.0 != self.own.0 {
            self.own = now;
        }
        if self.way() == Way::Full {
            exchange.entries = &[];
        }
        let mut news = self.own.1.exchange(exchange).await?;
        match self.way() {
            Way::Deaf => Err(super::refused().into()),
            Way::Slow(time) => {
                sleep(time).await;
                Ok(news)
            }
            Way::Garbled => {
                news.records
                    .iter_mut()
                    .for_each(|r| r.value = "nonsense".into());
                Ok(news)
            }
            _ => Ok(news),
        }
    }

    async fn changed(&mut self) {
        match self.way() {
            Way::Mute => std::future::pending().await,
            // As a connection that is refused at once.
            Way::Cut => {}
            _ => self.own.1.changed().await,
        }
    }
}
