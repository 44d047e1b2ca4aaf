//! Recovery phrases of wallets: twelve words or more, in any quoting.

use super::prelude::*;

/// How far from its name a phrase may begin, in bytes.
const NEAR: usize = 48;

/// The longest phrase, of 24 words of 8 letters.
const LONGEST: usize = 24 * 9;

/// Words that the lists of wallets do not have, and most sentences have.
const PROSE: &str = "the and with for are was not must can has from our their its which but";

/// The phrase behind a name for it.
pub(super) fn find(run: &Run<'_>) -> Option<Range<usize>> {
    const NAMES: &str = "phrase mnemonic seed_words seedwords seed";
    if run.word().len() < 4 || !ends_with_one_of(run.word(), NAMES) {
        return None;
    }
    let near = ahead(run.text, run.end, NEAR + LONGEST);
    let mut before = ' ';
    let mut starts = near.char_indices().take_while(|(i, _)| *i < NEAR);
    let start = starts.find_map(|(i, c)| {
        let begins = c.is_ascii_lowercase() && !before.is_ascii_alphanumeric();
        before = c;
        (begins && len(&near[i..]) > 0).then_some(i)
    })?;
    let start = run.end + start;
    Some(start..start + len(&run.text[start..]))
}

/// The length of the phrase that a text begins with; 0 if there is none.
fn len(text: &str) -> usize {
    let (mut count, mut at, mut end) = (0, 0, 0);
    for word in text.split_inclusive([' ', '\n']) {
        let bare = word.trim_end_of(" \n");
        let letters = bare.trim_end_matches(|c: char| !c.is_ascii_lowercase());
        let plain = letters.bytes().all(|b| b.is_ascii_lowercase());
        if !(3..=8).contains(&letters.len()) || !plain || is_one_of(letters, PROSE) {
            break;
        }
        count += 1;
        end = at + letters.len();
        at += word.len();
        if letters.len() < bare.len() {
            break;
        }
    }
    if count >= 12 { end } else { 0 }
}
