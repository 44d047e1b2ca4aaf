use serde_json::Value;

use crate::text::Short;

/// How many steps of a path are shown.
const MAX_STEPS: usize = 8;

/// The path to the value itself.
pub(super) const ROOT: &str = "root";

/// Returns the path of a JSON pointer into `value`, as it may be shown: names that the schema has,
/// and indices. A name that could be read as something else is in quotation marks; a key of the
/// caller's own is `*`.
pub(super) fn shown(value: &Value, pointer: &str, knows: impl Fn(&str) -> bool) -> String {
    let mut parts = pointer.split('/').skip(1);
    let (mut at, mut path) = (Some(value), Vec::new());
    for part in parts.by_ref().take(MAX_STEPS) {
        let name = part.replace("~1", "/").replace("~0", "~");
        // A key may look like an index, and be a number that is not to be read.
        let (inner, step) = match at {
            Some(Value::Array(items)) => {
                let index = part.parse().ok();
                let item = index.and_then(|n: usize| items.get(n));
                (item, part.to_owned())
            }
            Some(Value::Object(map)) => (map.get(&name), key(&name, knows(&name))),
            _ => (None, "*".to_owned()),
        };
        at = inner;
        path.push(step);
    }
    let more = if parts.next().is_some() { "..." } else { "" };
    match path.is_empty() {
        true => ROOT.to_owned(),
        false => path.join(".") + more,
    }
}

fn key(name: &str, is_known: bool) -> String {
    match is_known {
        true if is_plain(name) => Short::name(name).to_string(),
        // With a quotation mark it would end its own quotation.
        true if !name.contains('"') => format!("\"{}\"", Short::name(name)),
        _ => "*".to_owned(),
    }
}

/// Returns whether a name cannot be taken for several steps, an index, or one of the words for what
/// has no name.
fn is_plain(name: &str) -> bool {
    let is_special = |c: char| matches!(c, '.' | ':' | ';' | ',' | '"' | '*') || c.is_whitespace();
    !name.is_empty()
        && name != ROOT
        && !name.contains(is_special)
        && !name.bytes().all(|byte| byte.is_ascii_digit())
}
