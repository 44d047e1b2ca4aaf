//! Keys as text, which is the same in every process.

use super::Key;
use crate::call::hash_of;

/// Between the parts of a key. A name that has it is in no text.
const SEPARATOR: char = '\u{1f}';

pub(crate) type Parts<'a> = (Option<&'a str>, Option<&'a str>);

impl Key {
    /// Returns the text of a key, by its hash and its parts: `None` if it was cut, so that two keys
    /// might be taken for one.
    pub(crate) fn text_of(&self, hash: u64, (server, name): Parts<'_>) -> Option<String> {
        match self {
            Self::Hashed(_) => return Some(format!("#{hash:016x}")),
            Self::Session | Self::PerPrincipal(_) => return None,
            _ => {}
        }
        let part = |part: Option<&str>| part.map_or("-".to_owned(), |text| format!("={text}"));
        let text = format!("{}{SEPARATOR}{}", part(server), part(name));
        let is_whole = hash_of(server, name) == hash && text.matches(SEPARATOR).count() == 1;
        is_whole.then_some(text)
    }

    /// Returns the hash of a key in this process, and its parts.
    pub(crate) fn read_text<'t>(&self, text: &'t str) -> Option<(u64, Parts<'t>)> {
        if matches!(self, Self::Hashed(_)) {
            let digits = text.strip_prefix('#')?;
            let is_hash = digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            let hash = u64::from_str_radix(digits, 16).ok()?;
            return is_hash.then_some((hash, (None, None)));
        }
        let is_of_callers = matches!(self, Self::Session | Self::PerPrincipal(_));
        let (server, name) = text.split_once(SEPARATOR).filter(|_| !is_of_callers)?;
        let part = |part: &'t str| match part {
            "-" => Some(None),
            _ => part.strip_prefix('=').map(Some),
        };
        let (server, name) = (part(server)?, part(name)?);
        let is_one = !name.is_some_and(|name| name.contains(SEPARATOR));
        is_one.then(|| (hash_of(server, name), (server, name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C8.
    #[test]
    fn a_key_is_read_as_it_was_written() {
        for parts in [
            (Some("docs"), Some("search")),
            (Some("docs"), None),
            (None, Some("-")),
            (None, None),
            (Some(""), Some("=")),
        ] {
            let hash = hash_of(parts.0, parts.1);
            let text = Key::Tool.text_of(hash, parts).unwrap();
            assert_eq!(Key::Tool.read_text(&text), Some((hash, parts)));
        }
        let hashed = Key::hashed(|_| 7);
        let text = hashed.text_of(7, (None, None)).unwrap();
        assert_eq!(hashed.read_text(&text), Some((7, (None, None))));
        assert_eq!(Key::Tool.read_text(&text), None);
    }

    /// C8.
    #[test]
    fn a_name_that_was_cut_or_has_the_separator_has_no_text() {
        let hash = hash_of(None, Some("a name that was longer"));
        assert_eq!(Key::Tool.text_of(hash, (None, Some("a name"))), None);
        let sneaky = "a\u{1f}=b";
        let hash = hash_of(None, Some(sneaky));
        assert_eq!(Key::Tool.text_of(hash, (None, Some(sneaky))), None);
    }

    /// C8: ids of callers stay in their process.
    #[test]
    fn keys_of_callers_have_no_text() {
        for key in [Key::Session, Key::Server.per_principal()] {
            assert_eq!(key.text_of(hash_of(None, None), (None, None)), None);
            assert_eq!(key.read_text("-\u{1f}=a"), None);
        }
    }

    /// C8.
    #[test]
    fn other_texts_are_no_keys() {
        let hashed = Key::hashed(|_| 7);
        for text in [
            "",
            "x",
            "#12",
            "#+00000000000000a",
            "x\u{1f}y",
            "-\u{1f}-\u{1f}-",
            "-\u{1f}=a\u{1f}",
        ] {
            assert_eq!(Key::Tool.read_text(text), None, "{text:?}");
            assert_eq!(hashed.read_text(text), None, "{text:?}");
        }
    }
}
