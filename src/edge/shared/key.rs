//! Keys as all processes of a fleet read them.

use super::store::MAX_KEY_BYTES;
use crate::call::hash_of;

/// Between the parts of a key. A name that has it is not shared.
const SEPARATOR: char = '\u{1f}';

pub(super) type Parts<'a> = (Option<&'a str>, Option<&'a str>);

/// A key of a layer as text: the layer's name, then both parts, or the user's own hash. `None`: it
/// is too long, or was cut, so that two keys might be taken for one.
pub(super) fn encode(layer: &str, hash: u64, parts: Parts<'_>, is_hashed: bool) -> Option<String> {
    let (server, tool) = parts;
    let text = match is_hashed {
        true => format!("{layer}{SEPARATOR}#{hash:016x}"),
        false if hash_of(server, tool) != hash => return None,
        false => {
            let part = |part: Option<&str>| part.map_or("-".to_owned(), |text| format!("={text}"));
            format!(
                "{layer}{SEPARATOR}{}{SEPARATOR}{}",
                part(server),
                part(tool)
            )
        }
    };
    let separators = if is_hashed { 1 } else { 2 };
    let fits = text.len() <= MAX_KEY_BYTES && text.matches(SEPARATOR).count() == separators;
    fits.then_some(text)
}

/// The layer's name, the hash of the key in this process, and its parts.
pub(super) fn decode(key: &str) -> Option<(&str, u64, Parts<'_>)> {
    if key.len() > MAX_KEY_BYTES {
        return None;
    }
    let mut fields = key.split(SEPARATOR);
    let (layer, first, second) = (fields.next()?, fields.next()?, fields.next());
    if fields.next().is_some() {
        return None;
    }
    let Some(second) = second else {
        let is_hash = |d: &&str| d.len() == 16 && d.bytes().all(|b| b.is_ascii_hexdigit());
        let digits = first.strip_prefix('#').filter(is_hash)?;
        let hash = u64::from_str_radix(digits, 16).ok()?;
        return Some((layer, hash, (None, None)));
    };
    let part = |field: &'_ str| match field {
        "-" => Some(None),
        _ => Some(Some(field.len() - field.strip_prefix('=')?.len())),
    };
    let (server, tool) = (part(first)?, part(second)?);
    let (server, tool) = (server.map(|at| &first[at..]), tool.map(|at| &second[at..]));
    Some((layer, hash_of(server, tool), (server, tool)))
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
            let text = encode("tools", hash, parts, false).unwrap();
            assert_eq!(decode(&text), Some(("tools", hash, parts)));
        }
        let text = encode("tools", 7, (None, None), true).unwrap();
        assert_eq!(decode(&text), Some(("tools", 7, (None, None))));
    }

    /// C8.
    #[test]
    fn a_name_that_was_cut_or_has_the_separator_is_not_shared() {
        let hash = hash_of(None, Some("a name that was longer"));
        assert_eq!(encode("tools", hash, (None, Some("a name")), false), None);
        let sneaky = "a\u{1f}=b";
        assert_eq!(
            encode(
                "t",
                hash_of(None, Some(sneaky)),
                (None, Some(sneaky)),
                false
            ),
            None
        );
        let long = "x".repeat(MAX_KEY_BYTES);
        assert_eq!(
            encode("t", hash_of(None, Some(&long)), (None, Some(&long)), false),
            None
        );
    }

    /// C8.
    #[test]
    fn what_is_no_key_is_not_taken_over() {
        let long = format!("t\u{1f}-\u{1f}={}", "x".repeat(MAX_KEY_BYTES));
        for text in [
            "",
            "t",
            "t\u{1f}x",
            "t\u{1f}#12",
            "t\u{1f}#+00000000000000a",
            "t\u{1f}x\u{1f}y",
            "t\u{1f}-\u{1f}-\u{1f}-",
            &long,
        ] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
