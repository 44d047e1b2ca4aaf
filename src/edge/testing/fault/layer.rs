use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tower_layer::Layer;

use super::{
    Fault,
    faults::{Faults, Happens},
};
use crate::{
    call::ToolCall,
    edge::testing::{MAX_TOOLS, tally::lock},
    kit::{backoff::Random, per_tool::PerTool},
};

/// Layer that makes calls fail, at random and repeatably.
///
/// What happens to a call is decided by the seed, the tool (its server and its name) and the number
/// of the call among those of this tool: the same in each run, however the calls of different tools
/// come in between. Calls of one tool that run at the same time are numbered as they come.
/// [`MAX_TOOLS`] are counted one by one, and all further ones together.
///
/// See the [module docs](crate::testing#faults) for an example.
///
/// # Order
///
/// Innermost, directly around the tool: for the layers above it is the tool. Each attempt is a
/// call.
///
/// # Errors
///
/// Those of the faults, and of the tool, stamped with the call's names.
///
/// # Clone
///
/// Clones, and the services made from them, share the numbers of the calls.
#[derive(Clone, Debug)]
#[must_use]
pub struct FaultLayer {
    seed: u64,
    faults: Arc<Faults>,
    tools: PerTool<Arc<Faults>>,
    counted: Arc<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// How many calls there were, by the tool.
    calls: Mutex<HashMap<u64, u64>>,
    injected: AtomicU64,
}

impl FaultLayer {
    /// A layer with these faults for all tools. Another seed is another run.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self {
            seed,
            faults: Arc::new(faults),
            tools: PerTool::new("fault"),
            counted: Arc::default(),
        }
    }

    /// Sets the faults of one tool, by its own name or the flat one (`server__tool`), instead of
    /// those for all.
    pub fn with_tool(mut self, name: impl Into<Box<str>>, faults: Faults) -> Self {
        self.tools.set(name.into(), Arc::new(faults));
        self
    }

    /// How many faults were injected so far, delays included.
    pub fn injected(&self) -> u64 {
        self.counted.injected.load(Relaxed)
    }

    /// What happens to this call.
    pub(super) fn next(&self, call: &ToolCall) -> Option<Happens> {
        let tool = hash(call);
        let n = self.counted.next(tool);
        let faults = self.tools.get(call).unwrap_or(&self.faults);
        let happens = faults.at(draw(self.seed, tool, n))?;
        self.counted.injected.fetch_add(1, Relaxed);
        Some(happens.clone())
    }
}

impl Counted {
    /// The number of a tool's call, from 0.
    fn next(&self, tool: u64) -> u64 {
        /// All tools beyond [`MAX_TOOLS`].
        const OTHERS: u64 = 0;
        let mut calls = lock(&self.calls);
        let is_counted = calls.len() < MAX_TOOLS || calls.contains_key(&tool);
        let n = calls.entry(if is_counted { tool } else { OTHERS });
        let n = n.or_default();
        *n += 1;
        *n - 1
    }
}

impl<S> Layer<S> for FaultLayer {
    type Service = Fault<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Fault::new(inner, self.clone())
    }
}

/// A number from 0 to just below 1.
fn draw(seed: u64, tool: u64, n: u64) -> f64 {
    let of_tool = Random::seeded(seed ^ tool).next();
    let random = Random::seeded(of_tool.wrapping_add(n)).next();
    // 53 bits, as many as an `f64` holds.
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// FNV-1a of server and name: the keyed layers' own hash is another one in each run.
fn hash(call: &ToolCall) -> u64 {
    let server = call.server().unwrap_or_default().bytes();
    // No byte of UTF-8.
    let parts = server.chain([0xff]).chain(call.tool().bytes());
    parts.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Step;

    fn layer(seed: u64) -> FaultLayer {
        let faults = Faults::new().with_fault(0.5, Step::hang()).unwrap();
        FaultLayer::new(seed, faults)
    }

    fn struck(layer: &FaultLayer, tool: &str) -> Vec<bool> {
        let call = ToolCall::new(tool);
        (0..64).map(|_| layer.next(&call).is_some()).collect()
    }

    #[test]
    fn a_seed_is_a_run() {
        assert_eq!(struck(&layer(1), "a"), struck(&layer(1), "a"));
        assert_ne!(struck(&layer(1), "a"), struck(&layer(2), "a"));
        assert_ne!(struck(&layer(1), "a"), struck(&layer(1), "b"));
    }

    /// A change of these numbers changes the runs of users.
    #[test]
    fn the_draw_is_the_same_in_each_version() {
        let seen: String = struck(&layer(7), "search")[..16]
            .iter()
            .map(|struck| if *struck { 'x' } else { '.' })
            .collect();
        assert_eq!(seen, ".x.......xx.x.x.");
    }

    #[test]
    fn calls_of_other_tools_in_between_change_nothing() {
        let (alone, mixed) = (layer(3), layer(3));
        let alone = struck(&alone, "a");
        let mixed: Vec<_> = (0..64)
            .map(|n| {
                for _ in 0..n % 3 {
                    mixed.next(&ToolCall::new("b"));
                }
                mixed.next(&ToolCall::new("a")).is_some()
            })
            .collect();
        assert_eq!(alone, mixed);
    }

    #[test]
    fn the_rate_is_kept() {
        let layer = layer(4);
        let struck = (0..10_000).filter(|_| layer.next(&ToolCall::new("a")).is_some());
        let struck = struck.count();
        assert!((4_800..5_200).contains(&struck), "{struck}");
        assert_eq!(layer.injected(), struck as u64);
    }

    #[test]
    fn the_tools_that_are_counted_are_bounded() {
        let layer = layer(5);
        for n in 0..2 * MAX_TOOLS {
            layer.next(&ToolCall::new(format!("tool_{n}")));
        }
        assert_eq!(lock(&layer.counted.calls).len(), MAX_TOOLS + 1);
    }
}
