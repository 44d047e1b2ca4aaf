//! Looking at a text by its characters.

/// The digits, as a set.
pub(crate) const DIGITS: &str = "0123456789";

/// Searches of a text for a part, or for one of a set of ASCII characters (`_of`). They are not
/// inlined: the copies in all callers would be a third of the code of this crate.
pub(crate) trait Text: AsRef<str> {
    fn starts_of(&self, set: &str) -> bool {
        let first = self.as_ref().as_bytes().first();
        first.is_some_and(|b| set.as_bytes().contains(b))
    }

    fn ends_of(&self, set: &str) -> bool {
        let last = self.as_ref().as_bytes().last();
        last.is_some_and(|b| set.as_bytes().contains(b))
    }

    #[inline(never)]
    fn find_of(&self, set: &str) -> Option<usize> {
        let mut bytes = self.as_ref().bytes();
        bytes.position(|b| set.as_bytes().contains(&b))
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
        self.as_ref().trim_start_matches(|c| set.contains(c))
    }

    #[inline(never)]
    fn trim_end_of(&self, set: &str) -> &str {
        self.as_ref().trim_end_matches(|c| set.contains(c))
    }

    fn trim_of(&self, set: &str) -> &str {
        self.trim_start_of(set).trim_end_of(set)
    }

    #[inline(never)]
    fn find_str(&self, part: &str) -> Option<usize> {
        self.as_ref().find(part)
    }

    fn holds(&self, part: &str) -> bool {
        self.find_str(part).is_some()
    }

    /// Returns the texts before and after the first `mark`.
    #[inline(never)]
    fn cut(&self, mark: &str) -> Option<(&str, &str)> {
        self.as_ref().split_once(mark)
    }

    /// Returns the texts before and after the last `mark`.
    #[inline(never)]
    fn cut_last(&self, mark: &str) -> Option<(&str, &str)> {
        self.as_ref().rsplit_once(mark)
    }
}

impl Text for str {}
