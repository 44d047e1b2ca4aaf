//! Writing values of any type as JSON with bounds: a `Serialize` of a user may be as deep and as
//! large as it likes, and unbounded recursion on it would overflow the stack.

use std::io;

use serde::{Serialize, ser::Error as _};
use serde_json::{Error, Value};

/// More levels than any JSON parser takes.
pub(crate) const LEVELS: usize = 128;

/// The largest value that is collected, in bytes of its JSON.
const MAX_COLLECTED: u64 = 16 << 20;

/// Why the size of a value is not known.
#[derive(Debug)]
pub(crate) enum NoSize {
    /// It is more than was asked about.
    TooLarge,
    /// It cannot be written as JSON, or has more levels than parsers take.
    NotJson(Error),
}

/// Returns `value` as JSON, unless it has more than 16 MiB or too many levels.
pub(crate) fn collect<T: Serialize + ?Sized>(value: &T) -> Result<Value, Error> {
    match size(value, MAX_COLLECTED, <[u8]>::len) {
        Ok(_) => serde_json::to_value(value),
        Err(NoSize::TooLarge) => Err(Error::custom("more than 16 MiB")),
        Err(NoSize::NotJson(error)) => Err(error),
    }
}

/// Returns the size of `value` as compact JSON by a `measure` of bytes, if it is not more than
/// `max`. Stops there, so the work is bounded.
pub(crate) fn size<T: Serialize + ?Sized>(
    value: &T,
    max: u64,
    measure: impl Fn(&[u8]) -> usize,
) -> Result<u64, NoSize> {
    struct Room<F>(u64, F);
    impl<F: Fn(&[u8]) -> usize> io::Write for Room<F> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let left = self.0.checked_sub((self.1)(bytes) as u64);
            self.0 = left.ok_or(io::ErrorKind::FileTooLarge)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut room = Room(max, measure);
    match write(&mut room, value, LEVELS) {
        Ok(()) => Ok(max - room.0),
        Err(error) if error.is_io() => Err(NoSize::TooLarge),
        Err(error) => Err(NoSize::NotJson(error)),
    }
}

/// Writes `value` as JSON if it has no more than these levels. The recursion ends there: each level
/// writes its bracket before its members.
pub(crate) fn write<T: Serialize + ?Sized>(
    to: impl io::Write,
    value: &T,
    levels: usize,
) -> Result<(), Error> {
    let mut bounded = Bounded {
        to,
        levels: Some(levels),
        is_text: false,
        is_escaped: false,
    };
    let written = value.serialize(&mut serde_json::Serializer::new(&mut bounded));
    match bounded.levels {
        Some(_) => written,
        None => Err(Error::custom("nested too deeply")),
    }
}

/// Passes on JSON up to a number of levels.
struct Bounded<W> {
    to: W,
    /// How many levels may still follow; `None` after one too many.
    levels: Option<usize>,
    is_text: bool,
    is_escaped: bool,
}

impl<W: io::Write> io::Write for Bounded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.is_text => self.is_escaped = true,
                b'"' => self.is_text = !self.is_text,
                b'{' | b'[' if !self.is_text => {
                    self.levels = self.levels.and_then(|levels| levels.checked_sub(1));
                    self.levels.ok_or(io::ErrorKind::InvalidData)?;
                }
                b'}' | b']' if !self.is_text => self.levels = self.levels.map(|levels| levels + 1),
                _ => {}
            }
        }
        self.to.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!("]\"}\\"), |inner, _| Value::Array(vec![inner]))
    }

    #[test]
    fn recursion_ends_however_deep_a_value_is() {
        let deep = nested(10_000);
        assert!(collect(&deep).is_err());
        std::mem::forget(deep);
    }

    #[test]
    fn as_many_levels_are_written_as_parsers_take() {
        let written = |levels| write(io::sink(), &nested(levels), LEVELS);
        assert!(written(LEVELS).is_ok());
        assert!(written(LEVELS + 1).is_err());
        // Of them serde_json reads all but one back.
        let text = serde_json::to_string(&nested(LEVELS - 1)).unwrap();
        assert!(serde_json::from_str::<Value>(&text).is_ok());
    }

    #[test]
    fn levels_that_have_ended_count_no_more() {
        let wide = Value::from(vec![nested(LEVELS - 1); 3]);
        assert_eq!(collect(&wide).unwrap(), wide);
    }
}
