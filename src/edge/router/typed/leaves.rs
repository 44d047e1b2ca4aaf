//! Whether a text has something of a call's arguments in it: pure, bounded, and in doubt it has.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// If there is more, in bytes, every text is suspected.
const MAX_BYTES: usize = 64 << 10;

/// So many characters in a row that a text and a value share are enough.
const SHARED: usize = 4;

/// The keys and values of a call's arguments.
pub(super) struct Leaves {
    /// As they are, and as [`words`].
    texts: Vec<(String, String)>,
    too_many: bool,
}

impl Leaves {
    pub(super) fn of(arguments: &Map<String, Value>) -> Self {
        let mut leaves = Self {
            texts: Vec::new(),
            too_many: false,
        };
        let mut room = MAX_BYTES;
        leaves.add_members(arguments, &mut room);
        leaves
    }

    /// The depth is bounded: the call was checked.
    fn add(&mut self, value: &Value, room: &mut usize) {
        match value {
            Value::Null => {}
            Value::Bool(b) => self.add_text(&b.to_string(), room),
            Value::Number(n) => self.add_text(&n.to_string(), room),
            Value::String(s) => self.add_text(s, room),
            Value::Array(items) => items.iter().for_each(|item| self.add(item, room)),
            Value::Object(map) => self.add_members(map, room),
        }
    }

    fn add_members(&mut self, map: &Map<String, Value>, room: &mut usize) {
        for (key, value) in map {
            self.add_text(key, room);
            self.add(value, room);
        }
    }

    fn add_text(&mut self, text: &str, room: &mut usize) {
        match room.checked_sub(text.len() + 1) {
            Some(left) if !self.too_many => {
                *room = left;
                self.texts.push((text.to_owned(), words(text)));
            }
            _ => self.too_many = true,
        }
    }

    /// Whether a text shares four characters in a row with any of them, or a shorter word that is a whole value
    /// or has a digit in it; case, punctuation and escapes aside.
    pub(super) fn are_in(&self, text: &str) -> bool {
        let told = words(text);
        let chars: Vec<char> = told.chars().collect();
        let runs: HashSet<&[char]> = chars.windows(SHARED).collect();
        let short = |word: &&str| word.chars().any(char::is_numeric) || word.len() < SHARED;
        let short: Vec<&str> = told.split_whitespace().filter(short).collect();
        self.too_many
            || self.texts.iter().any(|(raw, leaf)| {
                let chars: Vec<char> = leaf.chars().collect();
                let sign = !raw.is_empty() && leaf.trim().is_empty() && text.contains(&**raw);
                sign || chars.windows(SHARED).any(|run| runs.contains(run))
                    || short.iter().any(|word| has_word(leaf, word))
            })
    }
}

fn has_word(leaf: &str, word: &str) -> bool {
    if word.chars().any(char::is_numeric) {
        return leaf.split_whitespace().any(|other| other == word);
    }
    leaf.trim() == word
}

/// Words in lower case, with one blank around each.
fn words(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric());
    let mut all = " ".to_owned();
    for word in words.filter(|word| !word.is_empty()) {
        all.push_str(word);
        all.push(' ');
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn are_in(arguments: Value, text: &str) -> bool {
        let Value::Object(map) = arguments else {
            panic!("an object")
        };
        Leaves::of(&map).are_in(text)
    }

    #[test]
    fn a_value_is_found_in_whatever_way_it_is_told() {
        for (value, text) in [
            (json!("hunter2"), "hunter2 is no host"),
            (json!("hunter2"), "no host: HUNTER2"),
            (json!("a\nhunter2\""), r#"bad "a\nhunter2\"""#),
            (json!("\u{1b}hunter2"), r"bad \u{1b}hunter2"),
            (json!("hunter2"), "it begins with `hunt`"),
            (json!("xy hunter2 z"), "got [hunter2]"),
            (json!("ab"), "got ab"),
            (json!(7), "7 is too many"),
            (json!(-15.0), "got 15"),
            (json!(["x", { "k": 5551234 }]), "no such number: 5551234"),
            (json!({ "hunter2": 1 }), "hunter2 is no key"),
            (json!(true), "true is no answer"),
            (json!("***"), "bad ***"),
            (json!("grüße"), "GRÜSSE, grüße"),
        ] {
            assert!(are_in(json!({ "a": value }), text), "{value} {text}");
        }
    }

    #[test]
    fn an_innocent_text_is_shown() {
        for value in [json!("hunter2"), json!(7), json!(null), json!("")] {
            let text = "the end lies before the start";
            assert!(!are_in(json!({ "zz": value }), text), "{value}");
        }
    }

    #[test]
    fn too_much_to_look_through_is_suspected() {
        assert!(are_in(json!({ "a": "x".repeat(MAX_BYTES) }), "innocent"));
    }
}
