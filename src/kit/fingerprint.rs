//! A keyed 128-bit hash of call arguments.

use std::hash::{BuildHasher as _, RandomState};

use serde_json::{Map, Value};

/// A hash of 128 bits with a random seed. A caller cannot choose arguments with a given hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(u64, u64);

/// The seed of fingerprints.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seed(RandomState, RandomState);

impl Seed {
    /// Hashes arguments. The order of members does not matter. They must not be nested more deeply
    /// than [`ToolCall::check`](crate::ToolCall::check) allows.
    pub(crate) fn fingerprint(&self, arguments: &Map<String, Value>) -> Fingerprint {
        Fingerprint(self.0.hash_one(arguments), self.1.hash_one(arguments))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn print(seed: &Seed, value: Value) -> Fingerprint {
        seed.fingerprint(value.as_object().unwrap())
    }

    #[test]
    fn the_order_of_members_does_not_matter_and_all_else_does() {
        let seed = Seed::default();
        let first = print(&seed, json!({ "a": 1, "b": [{ "c": null, "d": "x" }] }));
        let same = print(&seed, json!({ "b": [{ "d": "x", "c": null }], "a": 1 }));
        assert_eq!(first, same);
        for other in [
            json!({ "a": 1 }),
            json!({ "a": "1", "b": [{ "c": null, "d": "x" }] }),
            json!({ "a": 1.0, "b": [{ "c": null, "d": "x" }] }),
            json!({ "a": 1, "b": [{ "c": null }, { "d": "x" }] }),
            json!({ "a": 1, "b": [{ "c": "x", "d": null }] }),
            json!({ "a": 1, "b": [[{ "c": null, "d": "x" }]] }),
        ] {
            assert_ne!(print(&seed, other.clone()), first, "{other}");
        }
    }
}
