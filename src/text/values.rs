//! Counts the values of JSON text before a parser makes them.

/// Returns whether JSON text has more than `most` values. The names of members count as values.
pub(crate) fn are_more_than(most: usize, text: &[u8]) -> bool {
    // A value has at least one byte.
    text.len() > most && ValueCounter::default().add(text) > most
}

/// Counts the values of JSON text before a parser makes them, for a bridge that bounds them by
/// [`MAX_VALUES`](crate::MAX_VALUES). The names of members count as values.
///
/// The text arrives in pieces, wherever it is cut. Text that is not JSON has a count as well: no
/// parser makes more values of it before it fails.
///
/// ```
/// use tower_toolcall::call::ValueCounter;
///
/// let mut counter = ValueCounter::default();
/// assert_eq!(counter.add(br#"{"ids":[1,"#), 4);
/// assert_eq!(counter.add(b"2]}"), 5);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ValueCounter {
    count: usize,
    place: Place,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Between,
    /// In a number, or in `true`, `false` or `null`.
    Word,
    Text,
    /// After a backslash in a string.
    Escape,
}

impl ValueCounter {
    /// Adds a piece. Returns the count of all pieces so far.
    pub fn add(&mut self, piece: &[u8]) -> usize {
        let Self {
            mut count,
            mut place,
        } = *self;
        for byte in piece {
            place = match (place, byte) {
                (Place::Text, b'\\') => Place::Escape,
                (Place::Text, b'"') => Place::Between,
                (Place::Text | Place::Escape, _) => Place::Text,
                (_, b'"') => {
                    count += 1;
                    Place::Text
                }
                (_, b'{' | b'[') => {
                    count += 1;
                    Place::Between
                }
                (_, b'}' | b']' | b',' | b':' | b' ' | b'\n' | b'\r' | b'\t') => Place::Between,
                (Place::Between, _) => {
                    count += 1;
                    Place::Word
                }
                (Place::Word, _) => Place::Word,
            };
        }
        *self = Self { count, place };
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_names_are_counted_outside_of_strings() {
        for (text, values) in [
            ("", 0),
            ("1", 1),
            (" null ", 1),
            ("[]", 1),
            (r#"{"a":{},"b":[1,-2.5e3,true]}"#, 8),
            (r#"["a,b","[\"{","\\",""]"#, 5),
            ("[ 1 ,\n\t2 ]", 3),
            ("[[],[],[[]]]", 5),
        ] {
            assert_eq!(
                ValueCounter::default().add(text.as_bytes()),
                values,
                "{text}"
            );
            assert!(
                values == 0 || are_more_than(values - 1, text.as_bytes()),
                "{text}"
            );
            assert!(!are_more_than(values, text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn text_may_be_cut_anywhere() {
        let text = br#"{"a\"":[12,"\\",true,{"b":null}]}"#;
        for cut in 0..=text.len() {
            let mut counter = ValueCounter::default();
            counter.add(&text[..cut]);
            assert_eq!(counter.add(&text[cut..]), 9, "{cut}");
        }
    }
}
