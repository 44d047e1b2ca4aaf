//! Looking at a text by its characters.

/// The digits, as a set.
pub(crate) const DIGITS: &str = "0123456789";

/// Searches of a text for a part, which is not empty, or for one of a set of ASCII characters
/// (`_of`). They are not inlined: the copies in all callers would be a sixth of the code of this
/// crate.
pub(crate) trait Text: AsRef<str> {
    fn starts_of(&self, set: &str) -> bool {
        let first = self.as_ref().bytes().next();
        first.is_some_and(|b| set.bytes().any(|one| one == b))
    }

    fn ends_of(&self, set: &str) -> bool {
        let last = self.as_ref().bytes().next_back();
        last.is_some_and(|b| set.bytes().any(|one| one == b))
    }

    #[inline(never)]
    fn find_of(&self, set: &str) -> Option<usize> {
        self.as_ref().bytes().position(is_in(set))
    }

    fn has_of(&self, set: &str) -> bool {
        self.find_of(set).is_some()
    }

    fn split_of<'t>(&'t self, set: &'t str) -> impl Iterator<Item = &'t str> + Clone {
        let mut rest = Some(self.as_ref());
        std::iter::from_fn(move || {
            let text = rest?;
            let end = text.find_of(set);
            rest = end.map(|end| &text[end + 1..]);
            Some(&text[..end.unwrap_or(text.len())])
        })
    }

    #[inline(never)]
    fn trim_start_of(&self, set: &str) -> &str {
        debug_assert!(set.is_ascii(), "{set}");
        let mut bytes = self.as_ref().bytes();
        let skipped = bytes.position(|b| !set.bytes().any(|one| one == b));
        &self.as_ref()[skipped.unwrap_or(self.as_ref().len())..]
    }

    #[inline(never)]
    fn trim_end_of(&self, set: &str) -> &str {
        debug_assert!(set.is_ascii(), "{set}");
        let mut bytes = self.as_ref().bytes();
        let last = bytes.rposition(|b| !set.bytes().any(|one| one == b));
        &self.as_ref()[..last.map_or(0, |last| last + 1)]
    }

    fn trim_of(&self, set: &str) -> &str {
        self.trim_start_of(set).trim_end_of(set)
    }

    #[inline(never)]
    fn find_str(&self, part: &str) -> Option<usize> {
        let mut places = self.as_ref().as_bytes().windows(part.len());
        places.position(is(part))
    }

    fn holds(&self, part: &str) -> bool {
        self.find_str(part).is_some()
    }

    /// Returns the texts before and after the first `mark`.
    #[inline(never)]
    fn cut(&self, mark: &str) -> Option<(&str, &str)> {
        let at = self.find_str(mark)?;
        Some((&self.as_ref()[..at], &self.as_ref()[at + mark.len()..]))
    }

    /// Returns the texts before and after the last `mark`.
    #[inline(never)]
    fn cut_last(&self, mark: &str) -> Option<(&str, &str)> {
        let mut places = self.as_ref().as_bytes().windows(mark.len());
        let at = places.rposition(is(mark))?;
        Some((&self.as_ref()[..at], &self.as_ref()[at + mark.len()..]))
    }
}

impl Text for str {}

/// Returns whether a byte is one of a set: by a bit for each, which is made once.
fn is_in(set: &str) -> impl FnMut(u8) -> bool {
    debug_assert!(set.is_ascii(), "{set}");
    let bits = set.bytes().fold(0_u128, |bits, b| bits | 1 << (b & 127));
    move |b| b.is_ascii() && bits >> b & 1 == 1
}

/// Returns whether a place holds `part`. Most parts are too short for the searcher of the standard
/// library.
fn is(part: &str) -> impl FnMut(&[u8]) -> bool {
    let first = part.as_bytes()[0];
    move |place| place[0] == first && place == part.as_bytes()
}
