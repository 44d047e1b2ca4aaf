//! Names and values that stand beside each other in JSON: `{"name": "X-Api-Key", "value": "x"}`,
//! `["Authorization", "Bearer x"]`, `["curl", "--token", "x"]`.

use serde_json::{Map, Value};

use super::{keys::Strength, rules::Rules, text::command::Command};

/// Members that hold a name.
pub(super) const NAME_FIELDS: &[&str] = &[
    "name",
    "key",
    "field",
    "header",
    "headername",
    "param",
    "parameter",
    "variable",
    "property",
    "id",
    "k",
    "n",
    "env",
    "label",
    "attribute",
    "option",
    "secretname",
    "keyname",
];

/// Members that hold its value.
pub(super) const VALUE_FIELDS: &[&str] = &[
    "value",
    "val",
    "v",
    "values",
    "content",
    "default",
    "defaultvalue",
    "data",
    "stringvalue",
    "text",
    "string",
    "plaintext",
    "raw",
    "rawvalue",
];

/// The member of `map` that holds the secret which another member names.
pub(super) fn secret_field<'m>(rules: &Rules, map: &'m Map<String, Value>) -> Option<&'m String> {
    let named = |fields: &[&str], key: &str| fields.iter().any(|f| f.eq_ignore_ascii_case(key));
    let (value, _) = map.iter().find(|(key, _)| named(VALUE_FIELDS, key))?;
    let names = |(key, name): (&String, &Value)| {
        let Some(name) = name.as_str() else {
            return false;
        };
        named(NAME_FIELDS, key) && rules.is_sensitive_key(name)
            || key == "type" && rules.strength(name) == Strength::Strong
    };
    map.iter().any(names).then_some(value)
}

/// Looks for secrets among the strings of an array, in which each may be announced by the one before.
pub(super) struct Arguments<'r> {
    rules: &'r Rules,
    len: usize,
    seen: usize,
    command: Option<Command>,
    announced: bool,
}

impl<'r> Arguments<'r> {
    pub(super) fn new(rules: &'r Rules, len: usize) -> Self {
        Self {
            rules,
            len,
            seen: 0,
            command: None,
            announced: false,
        }
    }

    /// Whether the next element is a secret as a whole.
    pub(super) fn is_secret(&mut self, value: &Value) -> bool {
        let announced = std::mem::take(&mut self.announced);
        self.seen += 1;
        let Some(text) = value.as_str() else {
            return false;
        };
        if announced && !text.starts_with("--") {
            return true;
        }
        if let Some(command) = Command::of(text) {
            self.command = Some(command);
        }
        if self
            .command
            .is_some_and(|command| command.is_password(text))
        {
            return true;
        }
        // A flag, or the first of two.
        let flag = text.starts_with('-') && !text.contains(['=', ' ']);
        let pair = self.seen == 1 && self.len == 2 && text.len() <= 64 && !text.contains(' ');
        self.announced = (flag || pair) && self.rules.is_sensitive_key(text)
            || self.command.is_some_and(|command| command.announces(text));
        false
    }
}
