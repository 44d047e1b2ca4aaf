//! Characters that a reader does not see.

use std::borrow::Cow;

/// Returns whether a character is not visible or changes how others look: control characters, line
/// separators, controls of the direction, and characters without a width.
///
/// ```
/// use toolcall_redact::is_hidden;
///
/// assert!(is_hidden('\u{202e}') && is_hidden('\u{200b}') && is_hidden('\n'));
/// assert!(!is_hidden(' ') && !is_hidden('é'));
/// ```
pub fn is_hidden(c: char) -> bool {
    c.is_control() || misleads(c)
}

/// Returns whether a character parts lines or changes how others are shown, and JSON has no escape
/// for it.
pub(crate) fn misleads(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}') || is_format(c)
}

/// Returns whether a character changes what a terminal shows: such ones, and control characters
/// but tabs and line ends.
pub(crate) fn misleads_in_text(c: char) -> bool {
    c < ' ' && !matches!(c, '\t' | '\n') || misleads(c)
}

/// Returns whether a character is a part of a picture: emoji, or what changes their looks.
fn is_emoji(c: char) -> bool {
    matches!(c, '\u{fe0f}' | '\u{2600}'..='\u{27bf}' | '\u{1f000}'..='\u{1faff}')
}

/// Escapes characters that turn or hide others (`\u{202e}`), and cuts after `max` characters.
/// Returns whether that cut anything. The joiner between two emoji and `\r\n` stay.
pub(crate) fn visible(
    text: Cow<'_, str>,
    max: usize,
    misleads: fn(char) -> bool,
) -> (Cow<'_, str>, bool) {
    let printed = |b| (b' '..0x7f).contains(&b);
    if text.bytes().all(printed) || !text.contains(misleads) {
        return (text, false);
    }
    let mut shown = String::with_capacity(text.len());
    let mut left = max;
    for (at, c) in text.char_indices() {
        let joins = c == '\u{200d}'
            && text[..at].chars().next_back().is_some_and(is_emoji)
            && text[at..].chars().nth(1).is_some_and(is_emoji)
            || text[at..].starts_with("\r\n");
        let escape = (misleads(c) && !joins).then(|| c.escape_unicode());
        let len = escape.as_ref().map_or(1, ExactSizeIterator::len);
        if len > left {
            return (Cow::Owned(shown), true);
        }
        left -= len;
        match escape {
            Some(escape) => shown.extend(escape),
            None => shown.push(c),
        }
    }
    (Cow::Owned(shown), false)
}

/// Returns whether a character only changes how others are shown: controls of the direction,
/// characters without a width, tags. Unicode's `Default_Ignorable_Code_Point` and the marks of
/// interlinear notes, without the 16 variation selectors that emoji have. The joiner of emoji is
/// one of them.
pub(crate) fn is_format(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}
