//! Error codes as labels: few for each tool.

use std::sync::OnceLock;

use super::labels::OTHER;
use crate::text::Short;

/// How many codes of a tool are distinguished. The rest is `_other`.
pub(crate) const MAX_CODES: usize = 16;

/// The codes that a tool's calls have met, in the order in which they came; a code keeps its place.
#[derive(Debug, Default)]
pub(super) struct Codes([OnceLock<Box<str>>; MAX_CODES]);

impl Codes {
    /// The place of a code, [`MAX_CODES`] if there is none left. Does not allocate for a code that
    /// is known and looks like its label.
    #[inline(always)]
    pub(super) fn place(&self, code: &str) -> usize {
        let mut known = self.0.iter().map_while(OnceLock::get);
        match known.position(|label| **label == *code) {
            Some(place) => place,
            None => self.add(&Short::name(code).to_string()),
        }
    }

    fn add(&self, label: &str) -> usize {
        // Another thread may be adding the same code, or another one.
        let takes = |slot: &OnceLock<Box<str>>| **slot.get_or_init(|| label.into()) == *label;
        self.0.iter().position(takes).unwrap_or(MAX_CODES)
    }

    /// The label of a place.
    pub(super) fn label(&self, place: usize) -> &str {
        let slot = self.0.get(place).and_then(OnceLock::get);
        slot.map_or(OTHER, |label| label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_keeps_its_place_and_the_seventeenth_has_none() {
        let codes = Codes::default();
        for n in 0..100 {
            let place = codes.place(&format!("CODE_{n}"));
            assert_eq!(place, n.min(MAX_CODES));
        }
        assert_eq!(codes.place("CODE_3"), 3);
        assert_eq!(codes.label(3), "CODE_3");
        assert_eq!(codes.label(MAX_CODES), "_other");
    }

    #[test]
    fn a_code_with_a_secret_and_a_long_one_are_labels_all_the_same() {
        let codes = Codes::default();
        let long = "X".repeat(1 << 20);
        for code in ["password=hunter2", &long, "password=hunter2", &long] {
            codes.place(code);
        }
        assert!(!codes.label(0).contains("hunter2"), "{}", codes.label(0));
        assert_eq!(codes.label(1).len(), 67);
        assert_eq!(codes.label(2), "_other", "the third place is free");
    }
}
