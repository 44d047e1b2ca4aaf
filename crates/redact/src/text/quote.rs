//! Where a string ends, at any depth of escaping.
//!
//! JSON inside JSON, debug output and shells put backslashes before the quotes of the strings that
//! they hold: one before those of a string inside a string, three before those of the next, and so
//! on. The number of backslashes before a quote gives its depth, so a value ends at the next quote
//! of the depth that opened it. Quotes of deeper strings belong to the value; a quote of an outer
//! string ends a value that was cut off.

use std::ops::Range;

use super::bytes::*;

/// A quote, and how many backslashes stand before it.
#[derive(Clone, Copy)]
pub(crate) struct Quote {
    mark: &'static str,
    slashes: usize,
}

/// Longest first where one begins with another.
#[rustfmt::skip]
const MARKS: &[&str] = &[
    "\"\"\"", "'''", "\"", "'", "`", "&quot;", "&#34;", "&#39;", "\u{201c}", "\u{201e}", "\u{ab}",
];

impl Quote {
    /// The quote that opens at `at`, its backslashes first.
    pub(crate) fn at(text: &str, at: usize) -> Option<Self> {
        let inner = text[at..].trim_start_of("\\");
        let slashes = text.len() - at - inner.len();
        let mark = *MARKS.iter().find(|mark| inner.starts_with(**mark))?;
        // Three quotes that are not closed by three are an empty string and a quote.
        let empty = matches!(mark, "\"\"\"" | "\'\'\'") && !inner[3..].contains(mark);
        let mark = if empty { &mark[..1] } else { mark };
        Some(Self { mark, slashes })
    }

    /// The quote that stands right before `at`.
    pub(super) fn before(text: &str, at: usize) -> Option<Self> {
        let head = &text[..at];
        let mark = MARKS.iter().find(|m| m.len() == 1 && head.ends_with(**m))?;
        let head = &head[..head.len() - mark.len()];
        let slashes = head.len() - head.trim_end_of("\\").len();
        Some(Self { mark, slashes })
    }

    pub(crate) fn len(&self) -> usize {
        self.slashes + self.mark.len()
    }

    pub(crate) fn mark(&self) -> &'static str {
        self.mark
    }

    /// Returns whether this quote, at `at`, opens a string, which may be empty: then a value
    /// follows, maybe in further quotes.
    pub(super) fn opens(&self, text: &str, at: usize) -> bool {
        let inner = at + self.len();
        let next = Self::at(text, inner);
        if next.is_some_and(|next| next.mark == self.mark && next.slashes == self.slashes) {
            return true;
        }
        let mut end = inner;
        while let Some(quote) = Self::at(text, end) {
            end += quote.len();
        }
        looked_at(end - inner);
        !ends_value(&text[end..])
    }

    /// Returns whether it opens a string beside one in `other` quotes, and neither around nor
    /// inside of it.
    pub(super) fn opens_beside(&self, other: &Self, text: &str, at: usize) -> bool {
        self.slashes == other.slashes && self.opens(text, at)
    }

    /// Returns whether this quote, at `at`, ends a string that began before it in its line.
    pub(super) fn closes_line(&self, text: &str, at: usize) -> bool {
        let line = last_line(behind(text, at, 256));
        let slashes = |head: &str| head.len() - head.trim_end_of("\\").len();
        let marks = line.match_indices(self.mark);
        // Those of other depths open and close other strings.
        let same = marks.filter(|(at, _)| slashes(&line[..*at]) == self.slashes);
        let open = same.count() % 2 == 1;
        open && !self.opens(text, at)
    }

    /// The end of the string that opens at `at`; of the text if the string is cut off. None if no
    /// quote is there.
    pub(super) fn string_end(text: &str, at: usize) -> Option<usize> {
        let quote = Self::at(text, at)?;
        let close = quote.close(text, at + quote.len());
        Some(close.map_or(text.len(), |close| close.end))
    }

    /// The quote that closes this one, its backslashes included, from `from` on. It is empty if the
    /// string is cut off by the end of the one around it.
    pub(crate) fn close(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let mark = match self.mark {
            "\u{201c}" => "\u{201d}",
            "\u{201e}" => "\u{201c}",
            "\u{ab}" => "\u{bb}",
            mark => mark,
        };
        let inner = &text[from..];
        let first = mark.as_bytes()[0];
        let (mut run, mut deeper, mut skip) = (0, None, 0);
        for (i, b) in inner.bytes().enumerate() {
            looked_at(1);
            if i >= skip && b == first && inner[i..].starts_with(mark) {
                let (start, end) = (i - run, i + mark.len());
                let (head, rest) = (&inner[..start], &inner[end..]);
                if let Some(len) = self.reopened(rest) {
                    skip = end + len;
                } else if self.is_closed_by(run, head, rest, &mut deeper) {
                    let end = if run < self.slashes { start } else { end };
                    return Some(from + i - run.min(self.slashes)..from + end);
                }
            }
            run = if b == b'\\' { run + 1 } else { 0 };
        }
        None
    }

    /// Returns whether a quote with `run` backslashes closes this one; `deeper` is a run that
    /// opened a string inside.
    fn is_closed_by(&self, run: usize, head: &str, rest: &str, deeper: &mut Option<usize>) -> bool {
        if run <= self.slashes {
            return run == self.slashes || ends_value(rest);
        }
        // A backslash of the value is two, each escaped as often as the quote: `"a\\"` ends.
        let escaped = run % (2 * (self.slashes + 1)) != self.slashes;
        // Python escapes backslashes, but not the quotes of JSON: `'{"a": "b=\\"c\\""}'`.
        let opens = head.ends_with('=') || !ends_value(rest);
        let closes = !escaped && *deeper != Some(run);
        if closes && opens {
            *deeper = Some(run);
        }
        closes && !opens
    }

    /// How long `\''` is, with which a shell goes on after a quote in a quoted text: `'it'\''s'`.
    fn reopened(&self, rest: &str) -> Option<usize> {
        let after = rest.trim_start_of("\\");
        let slashes = rest.len() - after.len();
        (self.mark == "'" && slashes > 0 && after.starts_with("''")).then_some(slashes + 2)
    }
}

/// Returns whether a value may end before `rest`: no more of it follows.
pub(super) fn ends_value(rest: &str) -> bool {
    let ends = |c: char| c.is_whitespace() || ",;:)]}><'\"`\\&|.+".contains(c);
    rest.chars().next().is_none_or(ends)
}
