use crate::text::{Grouped, floor, plain, prefix};

/// The longest advice, and the longest reference, in characters.
const MAX_WORDS: usize = 256;

/// The length and the mark of a shortened answer. See [`Shorten`](super::Shorten).
#[derive(Clone, Debug)]
pub struct Cut {
    max: usize,
    advice: String,
    missing: &'static str,
}

impl Cut {
    /// Makes a cut to nothing.
    pub(super) fn new(advice: Option<&str>, reference: Option<String>) -> Self {
        let mut advice = advice.unwrap_or("ask for less").to_owned();
        let reference = reference.filter(|text| !text.is_empty() && !prefix(text, MAX_WORDS).1);
        if let Some(reference) = reference {
            advice += ", or read the whole as ";
            advice += &Self::plain(&reference);
        }
        Self {
            max: 0,
            advice,
            missing: "",
        }
    }

    /// Makes a cut to so many characters, to try an implementation of [`Shorten`](super::Shorten)
    /// with; the layer makes those with words of its own.
    pub fn of(max_chars: usize) -> Self {
        Self::new(None, None).to(max_chars)
    }

    /// Returns this cut, to another number of characters: for an answer of several parts.
    #[must_use]
    pub fn to(mut self, max_chars: usize) -> Self {
        self.max = max_chars;
        self
    }

    /// Returns one line, of a bounded length.
    pub(super) fn plain(words: &str) -> String {
        prefix(words, MAX_WORDS).0.chars().map(plain).collect()
    }

    /// Returns how many characters the model may read, the marks included.
    pub fn max_chars(&self) -> usize {
        self.max
    }

    /// Returns the advice to a model for reading more.
    pub fn advice(&self) -> &str {
        &self.advice
    }

    /// Says in the marks what else is missing beside characters: `the structured content`.
    #[must_use]
    pub fn with_missing(mut self, what: &'static str) -> Self {
        self.missing = what;
        self
    }

    /// Shortens a text, if it has more than [`max_chars`](Self::max_chars).
    pub fn text(&self, text: &mut String) {
        self.texts(&mut [text]);
    }

    /// Shortens several texts as if they were one, with a line feed between each two: the beginning
    /// is in the first ones, the end in the last ones. Those between become empty: remove all that
    /// are, then the limit holds for the rest.
    pub fn texts(&self, texts: &mut [&mut String]) {
        self.texts_within(self.max, texts);
    }

    /// Shortens several texts likewise, to `max` characters instead of
    /// [`max_chars`](Self::max_chars): for an answer of which a part is not text.
    pub fn texts_within(&self, max: usize, texts: &mut [&mut String]) {
        self.within(max, texts, |_| 1);
    }

    /// Shortens texts to a total cost, with a cost for each character.
    pub(crate) fn within(
        &self,
        max: usize,
        texts: &mut [&mut String],
        cost: impl Fn(char) -> usize + Copy,
    ) {
        let costs: usize = texts.iter().map(|text| cost_of(text, cost)).sum();
        let gaps = texts.len().saturating_sub(1);
        if costs + gaps <= max {
            return;
        }
        let chars: usize = texts.iter().map(|text| text.chars().count()).sum();
        let room = max.saturating_sub(self.mark_cost(chars, cost) + gaps.min(1));
        let (first, end) = head(texts, room - room / 4, cost);
        let (last, start) = tail(texts, room / 4, cost);
        let end = end_of_line(texts[first], end, room / 4);
        let start = start_of_line(texts[last], start, room / 8);

        let kept = |texts: &[&mut String]| texts.iter().map(|t| t.chars().count()).sum::<usize>();
        let around = kept(&texts[..first]) + kept(&texts[last + 1..]);
        let inside = texts[first][..end].chars().count() + texts[last][start..].chars().count();
        let mut mark = self.mark(chars - around - inside, chars);
        if room == 0 {
            mark = mark.trim().to_owned();
            let (_, end) = head(&[&mut mark], max, cost);
            mark.truncate(end);
        }
        if first == last {
            texts[first].replace_range(end..start, &mark);
        } else {
            texts[first].truncate(end);
            texts[first].push_str(&mark);
            texts[last].drain(..start);
            for text in &mut texts[first + 1..last] {
                text.clear();
            }
        }
        // An answer may be kept for as long as a conversation.
        for text in &mut texts[first..=last] {
            text.shrink_to_fit();
        }
    }

    /// Returns the cost of the widest mark in a text of this many characters.
    pub(super) fn mark_cost(&self, chars: usize, cost: impl Fn(char) -> usize) -> usize {
        cost_of(&self.mark(chars, chars), cost)
    }

    fn mark(&self, left_out: usize, of: usize) -> String {
        let (left_out, of) = (Grouped(left_out), Grouped(of));
        let and = if self.missing.is_empty() {
            ""
        } else {
            ", and "
        };
        let (missing, advice) = (self.missing, &self.advice);
        format!("\n[... {left_out} of {of} characters left out{and}{missing}; {advice}]\n")
    }
}

fn cost_of(text: &str, cost: impl Fn(char) -> usize) -> usize {
    text.chars().map(cost).sum()
}

/// Returns where the texts have to end to cost at most `room`: a text, and a byte of it.
fn head(texts: &[&mut String], mut room: usize, cost: impl Fn(char) -> usize) -> (usize, usize) {
    for (i, text) in texts.iter().enumerate() {
        match room.checked_sub(usize::from(i > 0)) {
            Some(left) => room = left,
            None => return (i - 1, texts[i - 1].len()),
        }
        for (at, c) in text.char_indices() {
            match room.checked_sub(cost(c)) {
                Some(left) => room = left,
                None => return (i, at),
            }
        }
    }
    (texts.len() - 1, texts[texts.len() - 1].len())
}

/// Returns where the texts have to begin to cost at most `room`.
fn tail(texts: &[&mut String], mut room: usize, cost: impl Fn(char) -> usize) -> (usize, usize) {
    for (i, text) in texts.iter().enumerate().rev() {
        match room.checked_sub(usize::from(i + 1 < texts.len())) {
            Some(left) => room = left,
            None => return (i + 1, 0),
        }
        for (at, c) in text.char_indices().rev() {
            match room.checked_sub(cost(c)) {
                Some(left) => room = left,
                None => return (i, at + c.len_utf8()),
            }
        }
    }
    (0, 0)
}

/// Returns the end of the last line that ends within so many bytes before `end`; else `end`.
fn end_of_line(text: &str, end: usize, within: usize) -> usize {
    let from = floor(text, end.saturating_sub(within));
    match text[from..end].rfind('\n') {
        Some(at) if end < text.len() => from + at + 1,
        _ => end,
    }
}

/// Returns the start of the first line that starts within so many bytes behind `start`; else
/// `start`.
fn start_of_line(text: &str, start: usize, within: usize) -> usize {
    if start == 0 || text[..start].ends_with('\n') {
        return start;
    }
    let to = floor(text, start.saturating_add(within));
    text[start..to]
        .find('\n')
        .map_or(start, |at| start + at + 1)
}
