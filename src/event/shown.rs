//! Names and texts of callers and peers, for events of other authors.

use std::fmt;

use super::emit::MAX_NAME;
use crate::text::Short;

/// Returns a name of a caller or a peer as the fields of events and spans have it: as
/// [`shown_name`], and quoted if a part of it would look like another field of a text log. For
/// events of tool services and layers of other authors.
pub fn shown_field(name: &str) -> impl fmt::Display + fmt::Debug + '_ {
    Short::field(name, MAX_NAME)
}

/// Returns a name of a caller or a peer as texts and attributes have it: redacted, at most 64
/// characters, hidden characters as spaces.
pub fn shown_name(name: &str) -> impl fmt::Display + fmt::Debug + '_ {
    Short::name(name)
}

/// Returns a text of a peer, such as an error's, as the fields of events have it: redacted, at most
/// `max` characters, hidden characters as spaces.
pub fn shown_text(text: &str, max: usize) -> impl fmt::Display + fmt::Debug + '_ {
    Short::new(text, max)
}
