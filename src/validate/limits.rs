//! How much of a stranger's schema is taken.

use std::borrow::Cow;

use serde_json::Value;

/// Why a schema is not compiled; it goes on where the words "the schema" end.
pub(super) type Reason = Cow<'static, str>;

/// Levels of a schema as JSON. A compiler goes down one call per level, and some 1,000 overflow a stack of 2 MiB.
pub(super) const MAX_DEPTH: usize = 64;

/// Bytes of a schema as JSON: 10,000 properties take 80 ms.
pub(super) const MAX_BYTES: u64 = 256 << 10;

/// Bytes of a reference, an anchor or an identifier: the compiler joins each with the identifier of the whole.
pub(super) const MAX_URI: usize = 1 << 10;

/// References, and subschemas in their places.
pub(super) const MAX_EDGES: usize = 256 << 10;

/// Subschemas that look at one value, together: a list of two references, twenty times one inside the other, is a million.
pub(super) const MAX_SUBSCHEMAS: u64 = 10_000;

/// Subschemas one inside the other, references followed.
pub(super) const MAX_LEVELS: usize = 256;

/// How many references the compiler goes down, one inside the other, with the schema around them.
pub(super) const NESTED_REFERENCES: usize = 9;

/// The same of those that look at one value, where arguments decide how often they come back.
pub(super) const MAX_CHAIN: usize = 16;

/// Different regular expressions.
pub(super) const MAX_PATTERNS: usize = 64;

/// Bytes of one, and of all: a parser makes 40 KiB of each `\pL` before it looks at the limit of what is compiled.
pub(super) const MAX_PATTERN_TEXT: usize = 1 << 10;
pub(super) const MAX_PATTERNS_TEXT: usize = 8 << 10;

/// The size of one that is compiled, in bytes.
pub(super) const MAX_PATTERN: usize = 1 << 18;

/// The size of each part of one, for the engine for look-around and back references.
pub(super) const MAX_PATTERN_FANCY: usize = 8 << 10;

/// What the linear engine may cost for one value: bytes of text, times patterns that look at one, times the size of the largest. A pattern of
/// 256 KiB takes 20 us for a byte in the worst case.
pub(super) const MAX_TEXT_STEPS: u64 = 1 << 31;

/// Bytes of text for the engine for look-around and back references, times patterns that look at one: one that is given up is looked at
/// 64 times.
pub(super) const MAX_TEXT_FANCY: u64 = 2 << 10;

/// What that engine may cost for one value: for each byte of text it may read all others with each part of a pattern, and each of these
/// steps costs as much as the part is large.
pub(super) const MAX_FANCY_STEPS: u64 = 1 << 34;

/// How often the engine for look-around and back references goes back, before a text does not match: 0.2 ms.
pub(super) const MAX_BACKTRACKS: usize = 10_000;

/// What such an expression costs, in subschemas: a fifth of what it may, as few go back so often.
pub(super) const FANCY: u64 = 4_000;

/// How often the compiler's validator begins again, if it gave up such expressions: once for each way in which they might have ended.
pub(super) const RUNS: u64 = 64;

/// What it costs to divide by a fraction, in subschemas.
pub(super) const FRACTION: u64 = 100;

/// The same of comparing an item with all others: numbers beyond 2^53 have the hash of 2,000 others.
pub(super) const UNIQUE: u64 = 400;

/// The outcomes of `if` and `dependentSchemas` that the compiler keeps apart for one `unevaluatedProperties`.
pub(super) const MAX_OUTCOMES: u64 = 64;

/// Steps: the values of the arguments times the subschemas that look at each. About 10 ns each.
pub(super) const MAX_STEPS: u64 = 20_000_000;

/// As many for finding the first misfit, where there are no alternatives: these have all of theirs.
pub(super) const MAX_STEPS_TO_ONE: u64 = 1_000_000;

/// As many for finding all that is wrong. Each may be an error, of 300 bytes.
pub(super) const MAX_STEPS_TO_ALL: u64 = 100_000;

/// A schema of at most this weight looks at any number of values, whatever [`MAX_STEPS`] says: counting them would cost as much.
pub(super) const LIGHT: u64 = 8;

/// Arguments of more bytes, as JSON, are searched for the first misfit only.
pub(super) const MAX_BYTES_TO_ALL: u64 = 64 << 10;

/// Arguments with more levels are not searched for misfits, if the schema is recursive: each level can triple the work.
pub(super) const MAX_LEVELS_TO_MISFIT: usize = 8;

/// Levels of a recursive schema that look at arguments, one inside the other.
pub(super) const MAX_RECURSION: usize = 1_000;

/// The paths of a schema's values as JSON pointers, in bytes: the compiler keeps one or two for each.
pub(super) const MAX_PATHS: u64 = 8 << 20;

/// The extent of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Extent {
    /// The values, and one more for each 64 bytes of text, as whoever counts characters looks at all of them.
    pub(super) values: u64,
    /// The arrays and objects among them.
    pub(super) containers: u64,
    pub(super) levels: usize,
    /// The bytes of all paths together, and of the longest.
    pub(super) paths: u64,
    pub(super) longest: u64,
}

impl Extent {
    /// Allocates nothing. A value that is deeper than `max` levels is counted down to the next.
    pub(super) fn of(value: &Value, max: usize) -> Self {
        let mut extent = Self::default();
        extent.add(value, 1, 0, max);
        extent
    }

    fn add(&mut self, value: &Value, level: usize, path: u64, max: usize) {
        self.values += 1;
        self.levels = self.levels.max(level);
        self.paths = self.paths.saturating_add(path);
        self.longest = self.longest.max(path);
        match value {
            Value::String(text) => self.values += text.len() as u64 / 64,
            Value::Array(_) | Value::Object(_) if level > max => {}
            Value::Array(items) => {
                self.containers += 1;
                for item in items {
                    self.add(item, level + 1, path + INDEX, max);
                }
            }
            Value::Object(map) => {
                self.containers += 1;
                for (key, value) in map {
                    let key = key.len() as u64;
                    self.values += key / 64;
                    // `~` and `/` are written as two bytes.
                    self.add(value, level + 1, path + 1 + 2 * key, max);
                }
            }
            _ => {}
        }
    }
}

/// The bytes of most indices in a path, with the `/`.
const INDEX: u64 = 6;

/// Whether the texts and keys in a value have `most` bytes together at the most, each counted one longer than it is, as an empty one is
/// looked at too; and it is not deeper than schemas go. Allocates nothing.
pub(super) fn has_text_up_to(value: &Value, most: u64) -> bool {
    fn take(value: &Value, levels: usize, left: &mut u64) -> Option<()> {
        match value {
            Value::String(text) => *left = left.checked_sub(text.len() as u64 + 1)?,
            Value::Array(_) | Value::Object(_) if levels == 0 => return None,
            Value::Array(items) => {
                for item in items {
                    take(item, levels - 1, left)?;
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    *left = left.checked_sub(key.len() as u64 + 1)?;
                    take(value, levels - 1, left)?;
                }
            }
            _ => {}
        }
        Some(())
    }
    let mut left = most;
    take(value, MAX_LEVELS, &mut left).is_some()
}
