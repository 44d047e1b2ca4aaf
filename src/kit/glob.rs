use std::fmt;

/// A pattern for names: `*` is any text, also none; all else is itself, and upper case is not lower
/// case.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    pattern: Box<str>,
    /// Where the first and the last star are.
    stars: Option<(usize, usize)>,
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Self {
        Self {
            stars: pattern.find('*').zip(pattern.rfind('*')),
            pattern: pattern.into(),
        }
    }

    /// Returns the text itself, a star too.
    pub(crate) fn exact(text: &str) -> Self {
        Self {
            pattern: text.into(),
            stars: None,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.pattern
    }

    /// Returns whether the whole text fits, in a time that grows with the sum of both lengths.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let Some((first, last)) = self.stars else {
            return *self.pattern == *text;
        };
        let (head, tail) = (&self.pattern[..first], &self.pattern[last + 1..]);
        let text = text.strip_prefix(head).and_then(|t| t.strip_suffix(tail));
        let Some(mut text) = text else {
            return false;
        };
        if first == last {
            return true;
        }
        // The first place of each part leaves the most room for the others.
        let mut parts = self.pattern[first + 1..last].split('*');
        parts.all(|part| match text.find(part) {
            Some(at) => {
                text = &text[at + part.len()..];
                true
            }
            None => false,
        })
    }

    /// Returns whether all that fits the other pattern fits this one.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        // Only a star of this one has room for a star of the other.
        self.matches(&other.pattern)
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.pattern, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Glob::new(pattern).matches(text)
    }

    /// Returns the definition, in exponential time.
    fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => {
                (0..=text.len()).any(|skipped| by_definition(rest, &text[skipped..]))
            }
            ([p, pattern @ ..], [t, text @ ..]) => p == t && by_definition(pattern, text),
            _ => false,
        }
    }

    #[test]
    fn a_star_is_any_text_and_all_else_is_itself() {
        for (pattern, text, fits) in [
            ("read", "read", true),
            ("read", "Read", false),
            ("read", "reads", false),
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "a", true),
            ("read_*", "read_", true),
            ("read_*", "unread_x", false),
            ("*_file", "read_file", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*ab*ab", "ab", false),
            ("a.c", "abc", false),
            ("a?", "ab", false),
            ("[ab]", "a", false),
            ("ä*", "äö", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern:?} {text:?}");
        }
    }

    /// Patterns on which matchers that go back take exponential, or quadratic, time.
    #[test]
    fn hostile_names_take_no_time() {
        let text = "a".repeat(1 << 20);
        assert!(!matches(&("*a".repeat(30) + "*b*"), &text));
        assert!(!matches(&format!("*{}b*", "a".repeat(1 << 10)), &text));
    }

    proptest! {
        #[test]
        fn what_fits_is_what_the_definition_says(pattern in "[ab*]{0,7}", text in "[ab]{0,9}") {
            let expected = by_definition(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(&pattern, &text), expected);
        }

        #[test]
        fn a_pattern_that_covers_another_fits_all_that_this_fits(
            wide in "[ab*]{0,6}", narrow in "[ab*]{0,6}", text in "[ab]{0,8}",
        ) {
            let (wide, narrow) = (Glob::new(&wide), Glob::new(&narrow));
            if wide.covers(&narrow) && narrow.matches(&text) {
                prop_assert!(wide.matches(&text));
            }
        }

        /// With a letter that no pattern has, a star has room that only a star covers.
        #[test]
        fn a_pattern_that_does_not_cover_another_misses_something(
            wide in "[ab*]{0,6}", narrow in "[ab*]{0,6}",
        ) {
            let filled = narrow.replace('*', "zzzzzzz");
            let (wide, narrow) = (Glob::new(&wide), Glob::new(&narrow));
            prop_assert!(narrow.matches(&filled));
            prop_assert!(wide.covers(&narrow) || !wide.matches(&filled));
        }
    }
}
