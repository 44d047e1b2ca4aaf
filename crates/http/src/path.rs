//! Where in an answer something stands.

use std::fmt;

use serde_json::Value;
use serde_json_path::JsonPath;

use tower_toolcall::ConfigError;

/// A JSONPath (RFC 9535).
#[derive(Clone, Debug)]
pub(super) struct Path(JsonPath);

impl Path {
    /// Parses a path, with or without `$` at its beginning. `field` is what an error names.
    pub(super) fn parse(field: &'static str, path: &str) -> Result<Self, ConfigError> {
        let whole = match path.chars().next() {
            None => return Err(ConfigError::new(field, "is empty")),
            Some('$') => path.to_owned(),
            Some('.' | '[') => format!("${path}"),
            Some(_) => format!("$.{path}"),
        };
        let parsed = JsonPath::parse(&whole);
        parsed.map(Self).map_err(|error| {
            let reason = format!("`{whole}` is not a JSONPath: {}", error.message());
            ConfigError::new(field, reason)
        })
    }

    /// The first value that it finds.
    pub(super) fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.0.query(value).first()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_may_leave_the_root_out() {
        let answer = json!({ "data": [{ "id": 1 }, { "id": 2 }] });
        for path in [
            "$.data[*].id",
            "data[*].id",
            ".data[*].id",
            "['data'][0].id",
        ] {
            let path = Path::parse("result", path).unwrap();
            assert_eq!(path.first(&answer), Some(&json!(1)), "{path}");
        }
        let all = Path::parse("result", "$").unwrap();
        assert_eq!(all.first(&answer), Some(&answer));
        let none = Path::parse("result", "data[2].id").unwrap();
        assert_eq!(none.first(&answer), None);
        let chosen = Path::parse("result", "data[?length(@) == 1 && @.id > 1].id").unwrap();
        assert_eq!(chosen.first(&answer), Some(&json!(2)));
        let null = Path::parse("result", "a").unwrap();
        assert_eq!(null.first(&json!({ "a": null })), Some(&json!(null)));
    }

    #[test]
    fn a_path_that_is_none_is_refused() {
        for path in ["", "$.", "$.a[", "a b", "$$", "$[?match(@.a, 'x')]"] {
            let error = Path::parse("result", path).unwrap_err();
            assert_eq!(error.field(), "result", "{path}");
        }
    }
}
