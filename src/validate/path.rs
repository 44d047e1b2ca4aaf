use std::fmt;

use serde_json::Value;

use crate::text::Short;

/// How many steps of a path are shown.
const MAX_STEPS: usize = 8;

/// A path into a value, as it may be shown: names that the schema has, and indices. A name that could be read as something else is in
/// quotation marks.
pub(super) struct Path<'p> {
    steps: Vec<Step<'p>>,
    more: bool,
}

enum Step<'p> {
    Name(String),
    Item(&'p str),
    /// A key of the caller's own: not shown.
    Key,
}

impl<'p> Path<'p> {
    /// The path to the value itself.
    pub(super) const ROOT: &'static str = "root";

    /// The path of a JSON pointer into `value`.
    pub(super) fn new(value: &Value, pointer: &'p str, knows: impl Fn(&str) -> bool) -> Self {
        let mut parts = pointer.split('/').skip(1);
        let mut at = Some(value);
        let mut steps = Vec::new();
        for part in parts.by_ref().take(MAX_STEPS) {
            // A key may look like an index, and be a number that nobody should read.
            let step = match at {
                Some(Value::Array(items)) => {
                    at = part.parse().ok().and_then(|n: usize| items.get(n));
                    Step::Item(part)
                }
                Some(Value::Object(map)) => {
                    let name = part.replace("~1", "/").replace("~0", "~");
                    at = map.get(&name);
                    match knows(&name) {
                        true => Step::Name(name),
                        false => Step::Key,
                    }
                }
                _ => Step::Key,
            };
            steps.push(step);
        }
        Self {
            steps,
            more: parts.next().is_some(),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return f.write_str(Path::ROOT);
        }
        for (n, step) in self.steps.iter().enumerate() {
            let dot = if n == 0 { "" } else { "." };
            match step {
                Step::Name(name) if is_plain(name) => write!(f, "{dot}{}", Short::name(name))?,
                // It would end its own quotation.
                Step::Name(name) if name.contains('"') => write!(f, "{dot}*")?,
                Step::Name(name) => write!(f, "{dot}\"{}\"", Short::name(name))?,
                Step::Item(index) => write!(f, "{dot}{index}")?,
                Step::Key => write!(f, "{dot}*")?,
            }
        }
        f.write_str(if self.more { "..." } else { "" })
    }
}

/// Whether a name cannot be taken for several steps, an index, or one of the words for what has no name.
fn is_plain(name: &str) -> bool {
    let is_special = |c: char| matches!(c, '.' | ':' | ';' | ',' | '"' | '*') || c.is_whitespace();
    !name.is_empty()
        && name != Path::ROOT
        && !name.contains(is_special)
        && !name.bytes().all(|byte| byte.is_ascii_digit())
}
