//! Characters that a reader does not see.

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
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || is_format(c)
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
