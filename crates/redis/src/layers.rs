//! The layers with shared states.

use std::time::Duration;

use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream, SelectAll},
};

use tower_toolcall::{
    Key,
    circuit_breaker::{Breaker, CircuitBreakerHandle, Transition},
    rate_limit::{OwnCooldown, RateLimitHandle},
};

use super::key::{decode, encode};

/// The state of a layer, under the name that it has in all processes.
pub(super) struct Layer {
    pub(super) name: String,
    pub(super) state: State,
}

pub(super) enum State {
    Breakers(CircuitBreakerHandle),
    Gates(RateLimitHandle),
}

impl State {
    pub(super) fn key(&self) -> &Key {
        match self {
            Self::Breakers(handle) => handle.key(),
            Self::Gates(handle) => handle.key(),
        }
    }
}

/// News of a layer of this process.
pub(super) enum Learnt {
    /// A breaker, by the text of its key.
    Turned(Option<String>, Transition),
    Cooled(OwnCooldown),
    /// There was more than could be kept.
    Missed,
}

/// The news of all layers, with their numbers.
pub(super) type All = SelectAll<BoxStream<'static, (usize, Learnt)>>;

/// All of them.
pub(super) struct Layers(pub(super) Vec<Layer>);

impl Layers {
    pub(super) fn subscribe(&self) -> All {
        let of_layer = |(n, layer): (usize, &Layer)| match &layer.state {
            State::Breakers(handle) => {
                stream::unfold(handle.subscribe(), move |mut all| async move {
                    let next = all.next_of_key().await?;
                    let learnt = next.map_or(Learnt::Missed, |(key, t)| Learnt::Turned(key, t));
                    Some(((n, learnt), all))
                })
                .boxed()
            }
            State::Gates(handle) => stream::unfold(handle.subscribe(), move |mut all| async move {
                let next = all.next().await?;
                Some(((n, next.map_or(Learnt::Missed, Learnt::Cooled)), all))
            })
            .boxed(),
        };
        stream::select_all(self.0.iter().enumerate().map(of_layer))
    }

    /// A layer's key, as all processes read it.
    pub(super) fn key(&self, layer: usize, text: Option<&str>) -> Option<String> {
        encode(&self.0[layer].name, text?)
    }

    /// The breaker of a key, if there is one.
    pub(super) fn breaker(&self, layer: usize, text: &str) -> Option<Breaker> {
        match &self.0[layer].state {
            State::Breakers(handle) => handle.find_text(text),
            State::Gates(_) => None,
        }
    }

    /// Calls `work` with the breaker of a key, which it makes if `makes` is set. Returns false if
    /// no layer with breakers has this name, or the key has no place.
    pub(super) fn with_breaker(&self, key: &str, makes: bool, work: impl Fn(&Breaker)) -> bool {
        let Some((State::Breakers(handle), text)) = self.find(key) else {
            return false;
        };
        let breaker = match makes {
            true => handle.breaker_of_text(text),
            false => handle.find_text(text),
        };
        breaker.iter().for_each(work);
        breaker.is_some() || !makes
    }

    /// Gives a gate the rest of a cooldown, and whether a limit was met. `None` if a person has
    /// ended the cooldown.
    pub(super) fn with_gate(&self, key: &str, cooldown: Option<(Duration, bool)>) -> bool {
        match (self.find(key), cooldown) {
            (Some((State::Gates(handle), text)), Some((remaining, is_met))) => {
                handle.adopt(text, remaining, is_met)
            }
            (Some((State::Gates(handle), text)), None) => {
                handle.adopt_end(text);
                true
            }
            _ => false,
        }
    }

    pub(super) fn find<'k>(&self, key: &'k str) -> Option<(&State, &'k str)> {
        let (name, text) = decode(key)?;
        let layer = self.0.iter().find(|layer| layer.name == name)?;
        Some((&layer.state, text))
    }

    /// The rate limits are those of so many processes.
    pub(super) fn share_limits(&self, processes: usize) {
        for layer in &self.0 {
            if let State::Gates(handle) = &layer.state {
                handle.share_with(processes);
            }
        }
    }
}

/// The process goes on alone.
impl Drop for Layers {
    fn drop(&mut self) {
        self.share_limits(1);
    }
}
