//! Where two values differ: pure, bounded, and never a value.

use std::fmt::Write as _;

use serde_json::Value;

use crate::text::Short;

/// How many places are looked for; as many differences count as very different.
const MAX_PLACES: usize = 16;

/// The places at which two values differ, as paths: `filter.lang`, `rows[2]`.
pub(super) fn places(a: &Value, b: &Value) -> Vec<String> {
    let mut found = Vec::new();
    look(a, b, &mut String::new(), &mut found);
    found
}

/// The recursion is as deep as the values are: redacted ones have 64 levels.
fn look(a: &Value, b: &Value, at: &mut String, found: &mut Vec<String>) {
    if a == b || found.len() >= MAX_PLACES {
        return;
    }
    let end = at.len();
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let added = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(added) {
                let dot = if end == 0 { "" } else { "." };
                // Writing to a string does not fail.
                let _ = write!(at, "{dot}{}", Short::name(key));
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => look(a, b, at, found),
                    _ => note(at, found),
                }
                at.truncate(end);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (n, (a, b)) in a.iter().zip(b).enumerate() {
                let _ = write!(at, "[{n}]");
                look(a, b, at, found);
                at.truncate(end);
            }
        }
        _ => note(at, found),
    }
}

fn note(at: &str, found: &mut Vec<String>) {
    if found.len() < MAX_PLACES {
        found.push(at.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_difference_has_its_path() {
        let a = json!({ "q": "a", "page": 1, "filter": { "lang": "en", "tags": ["x", "y"] } });
        let b = json!({ "q": "a", "size": 1, "filter": { "lang": "de", "tags": ["x", "z"] } });
        let mut found = places(&a, &b);
        found.sort();
        assert_eq!(found, ["filter.lang", "filter.tags[1]", "page", "size"]);
        assert!(places(&a, &a).is_empty());
    }

    #[test]
    fn a_list_of_another_length_differs_as_a_whole() {
        let found = places(&json!({ "ids": [1, 2] }), &json!({ "ids": [1] }));
        assert_eq!(found, ["ids"]);
    }

    #[test]
    fn the_search_is_bounded() {
        let (a, b) = (json!(vec![1; 1000]), json!(vec![2; 1000]));
        assert_eq!(places(&a, &b).len(), MAX_PLACES);
    }
}
