//! A keyed 128-bit hash of call arguments.

use std::hash::{BuildHasher as _, Hash as _, Hasher, RandomState};

use serde_json::{Map, Value};

/// A hash of 128 bits with a random seed. A caller cannot choose arguments with a given hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(u64, u64);

/// The seed of fingerprints.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seed(RandomState, RandomState);

impl Seed {
    pub(crate) fn hasher(&self) -> impl Hasher {
        self.0.build_hasher()
    }

    /// Hashes arguments. The order of members does not matter; the type of a number does. They must
    /// not be nested more deeply than [`ToolCall::check`](crate::ToolCall::check) allows.
    pub(crate) fn fingerprint(&self, arguments: &Map<String, Value>) -> Fingerprint {
        Fingerprint(members(&self.0, arguments), members(&self.1, arguments))
    }
}

fn members(seed: &RandomState, members: &Map<String, Value>) -> u64 {
    let member = |(key, value): (&String, &Value)| {
        let mut hasher = seed.build_hasher();
        key.hash(&mut hasher);
        feed(seed, value, &mut hasher);
        hasher.finish()
    };
    members.iter().map(member).fold(0, u64::wrapping_add)
}

/// Not the `Hash` of `serde_json`: that has eight bytes for each number, whatever its type.
fn feed(seed: &RandomState, value: &Value, hasher: &mut impl Hasher) {
    match value {
        Value::Null => hasher.write_u8(0),
        Value::Bool(truth) => hasher.write_u8(1 + u8::from(*truth)),
        Value::Number(number) => {
            let kind = match (number.is_u64(), number.is_i64()) {
                (true, _) => 3,
                (_, true) => 4,
                _ => 5,
            };
            hasher.write_u8(kind);
            number.hash(hasher);
        }
        Value::String(text) => {
            hasher.write_u8(6);
            text.hash(hasher);
        }
        Value::Array(items) => {
            hasher.write_u8(7);
            hasher.write_usize(items.len());
            items.iter().for_each(|item| feed(seed, item, hasher));
        }
        Value::Object(map) => {
            hasher.write_u8(8);
            hasher.write_u64(members(seed, map));
        }
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
        for (one, other) in [
            (json!({ "a": -1 }), json!({ "a": u64::MAX })),
            (json!({ "a": 1.0 }), json!({ "a": 1.0f64.to_bits() })),
            (json!({ "a": 0 }), json!({ "a": 0.0 })),
        ] {
            assert_ne!(print(&seed, one.clone()), print(&seed, other), "{one}");
        }
    }
}
