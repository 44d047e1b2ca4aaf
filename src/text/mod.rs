//! Bounded, printable text.

pub(crate) mod limited;
pub(crate) mod values;

use std::{
    cell::RefCell,
    fmt::{self, Write as _},
    mem,
};

use toolcall_redact::Rules;
pub(crate) use toolcall_redact::{TRUNCATED, is_hidden};

/// `Debug` by some fields, for what cannot derive it or must not show all. A field without a value
/// is that of the type. `..` at the end says that there are others, alone that none is shown.
///
/// `debug_fields!({C} |this| Layer<C> { max, tools: this.tools.len(), .. })`
macro_rules! debug_fields {
    ($(#[$doc:meta])* {$($params:tt)*} |$this:pat_param| $name:ident $(<$($arg:tt),+>)? {
        $($field:ident $(: $value:expr)?),* $(,)?
    }) => {
        $crate::text::debug_fields!(@impl $(#[$doc])* {$($params)*} $this, $name $(<$($arg),+>)?,
            finish $(, $field $(: $value)?)*);
    };
    ($(#[$doc:meta])* {$($params:tt)*} |$this:pat_param| $name:ident $(<$($arg:tt),+>)? {
        $($field:ident $(: $value:expr)?,)* ..
    }) => {
        $crate::text::debug_fields!(@impl $(#[$doc])* {$($params)*} $this, $name $(<$($arg),+>)?,
            finish_non_exhaustive $(, $field $(: $value)?)*);
    };
    (@impl $(#[$doc:meta])* {$($params:tt)*} $this:pat_param, $name:ident $(<$($arg:tt),+>)?,
        $finish:ident $(, $field:ident $(: $value:expr)?)*) => {
        $(#[$doc])*
        impl<$($params)*> std::fmt::Debug for $name $(<$($arg),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                let mut fields = f.debug_struct(stringify!($name));
                $(fields.field(
                    stringify!($field),
                    &$crate::text::debug_fields!(@value self $field $(: $value)?),
                );)*
                fields.$finish()
            }
        }
    };
    (@value $own:ident $field:ident) => { $own.$field };
    (@value $own:ident $field:ident: $value:expr) => { $value };
}
pub(crate) use debug_fields;

/// The table of the names of an enum's variants: its function `name`, its list `ALL`, and
/// `Display`.
macro_rules! names {
    ($(#[$doc:meta])* $all:vis $type:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $type {
            /// Every value, in the order of their declaration.
            #[allow(dead_code, reason = "not every list is used, nor with every feature")]
            $all const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            $(#[$doc])*
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub(crate) use names;

/// Returns the longest prefix of `text` that has at most `max` characters, and whether anything is
/// missing.
pub(crate) fn prefix(text: &str, max: usize) -> (&str, bool) {
    if text.len() <= max {
        return (text, false);
    }
    match text.char_indices().nth(max) {
        Some((end, _)) => (&text[..end], true),
        None => (text, false),
    }
}

/// Lists words, each in quotes: `'a', 'b' or 'c'`.
pub(crate) fn either(words: &[String], quote: &str) -> String {
    let quoted = words.iter().map(|word| [quote, word, quote].concat());
    let quoted: Vec<_> = quoted.collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}

/// Returns a question with the nearest names, for an error text; `None` if there are none.
pub(crate) fn did_you_mean(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| format!("did you mean {}?", either(names, "`")))
}

/// Returns whether one of `words` is `word`, in any case.
pub(crate) fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|w| w.eq_ignore_ascii_case(word))
}

/// Returns the highest boundary between characters up to `at`.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// A number with a comma before each group of three digits.
pub(crate) struct Grouped(pub(crate) usize);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n @ 0..1_000 => write!(f, "{n}"),
            n => write!(f, "{},{:03}", Self(n / 1_000), n % 1_000),
        }
    }
}

/// Returns a character as messages, error bodies and labels show it: a space for a
/// [hidden](is_hidden) one. Emoji that are joined to one stand beside each other.
pub(crate) fn plain(c: char) -> char {
    if is_hidden(c) { ' ' } else { c }
}

/// Returns the first `max` characters of a text without its secrets, and a mark if any are missing.
/// Hidden characters stay: the caller shows them as spaces.
pub(crate) fn redacted_head(rules: &Rules, text: &str, max: usize) -> String {
    let (head, cut) = rules.head(text, max);
    let mut head = head.into_owned();
    if cut {
        head.push_str(TRUNCATED);
    }
    head
}

/// Prints at most `max` characters, redacted, hidden characters as spaces: for names that a model
/// or a peer chose and that go into messages, spans and labels.
#[derive(Clone, Copy)]
pub(crate) struct Short<'a> {
    text: &'a str,
    max: usize,
    is_field: bool,
}

impl<'a> Short<'a> {
    /// Returns a tool's, server's or call's name: 64 characters.
    pub(crate) fn name(text: &'a str) -> Self {
        Self::new(text, 64)
    }

    pub(crate) fn new(text: &'a str, max: usize) -> Self {
        Self {
            text,
            max,
            is_field: false,
        }
    }

    /// Returns the value of a field in a text log: quoted if a part of it would look like another
    /// field.
    pub(crate) fn field(text: &'a str, max: usize) -> Self {
        Self {
            is_field: true,
            ..Self::new(text, max)
        }
    }
}

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forges = |c: char| c.is_whitespace() || matches!(c, '=' | '"' | '{' | '}');
        if self.is_field && self.text.chars().map(plain).any(forges) {
            let plain = Self {
                is_field: false,
                ..*self
            };
            return with_buffer(|text| {
                write!(text, "{plain}")?;
                write!(f, "{text:?}")
            });
        }
        let (head, cut) = Rules::default().head(self.text, self.max);
        for c in head.chars() {
            f.write_char(plain(c))?;
        }
        if cut { f.write_str("...") } else { Ok(()) }
    }
}

impl fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Lends an empty buffer of this thread, so that a text which is only looked at costs no
/// allocation. Calls may be nested. A thread keeps four buffers of 8 KiB at most.
pub(crate) fn with_buffer<T>(read: impl FnOnce(&mut String) -> T) -> T {
    const KEPT: usize = 4;
    const MAX_BYTES: usize = 8 << 10;
    thread_local! {
        static BUFFERS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }
    let kept = BUFFERS.try_with(|buffers| buffers.borrow_mut().pop());
    let mut buffer = kept.ok().flatten().unwrap_or_default();
    let result = read(&mut buffer);
    buffer.clear();
    if buffer.capacity() <= MAX_BYTES {
        // A thread that ends keeps none.
        let _ = BUFFERS.try_with(|buffers| {
            let mut buffers = buffers.borrow_mut();
            if buffers.len() < KEPT {
                buffers.push(buffer);
            }
        });
    }
    result
}

/// Collects what a `Display` writes, up to a number of bytes, and then returns an error: a
/// well-behaved `Display` stops there.
pub(crate) struct Bounded {
    text: String,
    max: usize,
}

impl Bounded {
    /// Prints `value`, its first `max` bytes at the most.
    pub(crate) fn print(max: usize, value: &dyn fmt::Display) -> String {
        let mut text = String::new();
        Self::append(&mut text, max, value);
        text
    }

    /// Prints `value` after a text.
    pub(crate) fn append(text: &mut String, max: usize, value: &dyn fmt::Display) {
        let mut out = Self {
            max: text.len() + max,
            text: mem::take(text),
        };
        // An error means that the limit is reached, or that `value` cannot be printed further.
        let _ = write!(out, "{value}");
        *text = out.text;
    }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = self.max - self.text.len();
        if s.len() <= room {
            self.text.push_str(s);
            return Ok(());
        }
        self.text.push_str(&s[..floor(s, room)]);
        self.max = self.text.len();
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_on_a_character_boundary() {
        assert_eq!(prefix("äöü", 2), ("äö", true));
        assert_eq!(prefix("äöü", 3), ("äöü", false));
        assert_eq!(floor("äöü", 3), 2);
    }

    #[test]
    fn a_name_of_a_megabyte_prints_67_characters() {
        let name = "x".repeat(1 << 20);
        assert_eq!(Short::name(&name).to_string().len(), 67);
    }

    #[test]
    fn control_characters_in_a_name_print_as_spaces() {
        assert_eq!(Short::name("a\nb\u{1b}[31m").to_string(), "a b [31m");
    }

    /// K-4: a name reads as it is.
    #[test]
    fn characters_that_turn_or_hide_text_print_as_spaces() {
        for c in "\u{200b}\u{200d}\u{200f}\u{202e}\u{2028}\u{2060}\u{2066}\u{2069}\u{feff}\u{61c}\u{e0041}\u{ad}\u{34f}\u{17b4}\u{180b}\u{fff0}\u{1bca0}\u{1d173}\u{e0fff}".chars() {
            assert_eq!(Short::name(&format!("read{c}file")).to_string(), "read file", "{c:?}");
        }
        let seen = "naïve 日本語 עברית 👍🏽 ❤\u{fe0f} e\u{301}";
        assert_eq!(Short::name(seen).to_string(), seen);
        assert_eq!(Short::name("👩\u{200d}🚀").to_string(), "👩 🚀");
    }

    #[test]
    fn printing_stops_at_the_limit() {
        assert_eq!(Bounded::print(5, &"äöü"), "äö");
        assert_eq!(Bounded::print(6, &"äöü"), "äöü");
    }
}
