//! Keys as all processes of a fleet read them: the name of a layer, and the text of its key.

use super::store::MAX_KEY_BYTES;

/// Behind the name of a layer.
const SEPARATOR: char = '\u{1f}';

/// The key in the store; `None`: the text is too long.
pub(super) fn encode(layer: &str, text: &str) -> Option<String> {
    let key = format!("{layer}{SEPARATOR}{text}");
    (key.len() <= MAX_KEY_BYTES).then_some(key)
}

/// The layer's name, and the text of its key.
pub(super) fn decode(key: &str) -> Option<(&str, &str)> {
    let is_short = key.len() <= MAX_KEY_BYTES;
    key.split_once(SEPARATOR).filter(|_| is_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C8.
    #[test]
    fn a_key_is_read_as_it_was_written() {
        for text in ["=docs\u{1f}=search", "-\u{1f}-", "#0000000000000007"] {
            let key = encode("tools", text).unwrap();
            assert_eq!(decode(&key), Some(("tools", text)));
        }
    }

    /// C8.
    #[test]
    fn a_key_that_is_too_long_is_not_shared() {
        let long = "x".repeat(MAX_KEY_BYTES);
        assert_eq!(encode("t", &long), None);
        assert_eq!(decode(&format!("t\u{1f}{long}")), None);
        assert_eq!(decode("t"), None);
    }
}
