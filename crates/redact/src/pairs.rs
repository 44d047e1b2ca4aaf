//! Names and values that stand beside each other in JSON: `{"name": "X-Api-Key", "value": "x"}`,
//! `["Authorization", "Bearer x"]`, `["curl", "--token", "x"]`.

use std::mem::take;

use serde_json::{Map, Value};

use super::{
    keys::{Strength, is_connection},
    rules::Rules,
    text::{
        bytes::{is_made_of, is_one_of},
        command::Command,
        is_moment, is_opaque,
    },
};

/// Members that hold a name.
#[rustfmt::skip]
pub(super) const NAME_FIELDS: &[&str] = &[
    "name", "key", "field", "header", "headername", "param", "parameter", "variable", "property", "id", "k", "n", "env", "label",
    "attribute", "option", "secretname", "keyname", "parameterkey", "parametername", "outputkey", "optionname",
];

/// Members that hold its value.
#[rustfmt::skip]
pub(super) const VALUE_FIELDS: &[&str] = &[
    "value", "val", "v", "values", "content", "default", "defaultvalue", "data", "stringvalue", "text", "string", "plaintext",
    "raw", "rawvalue", "parametervalue", "outputvalue", "optionvalue", "newvalue", "oldvalue",
];

/// Members that list names.
#[rustfmt::skip]
pub(super) const NAME_LISTS: &[&str] = &[
    "required", "fields", "columns", "names", "properties", "attributes", "params", "parameters", "dependencies", "features",
    "keywords", "tags", "scopes", "include", "exclude", "allow", "deny", "enum",
];

/// Members that hold the data of what [`Members::of`] finds to be a picture or a sound.
pub(super) const DATA_FIELDS: &[&str] = &["data", "blob", "base64"];

/// Members that say of what kind the data is.
pub(super) const KIND_FIELDS: &[&str] = &[
    "mimeType",
    "mime_type",
    "media_type",
    "mediaType",
    "contentType",
];

/// Which members of an object are secrets because of other members.
pub(super) struct Members<'m> {
    /// The member with the value that another names: `{"name": "X-Api-Key", "value": ..}`.
    named: Option<&'m String>,
    /// The members that are secrets in an object of this kind: a Kubernetes Secret, a private key
    /// as JWK, a signed text as JWS.
    secret: &'static [&'static str],
    /// The columns of its rows that are secrets, a bit each.
    columns: u64,
    /// The value is a picture or a sound.
    media: bool,
}

impl<'m> Members<'m> {
    pub(super) fn of(rules: &Rules, map: &'m Map<String, Value>) -> Self {
        let mut members = Self {
            named: secret_field(rules, map),
            secret: &[],
            columns: 0,
            media: false,
        };
        let mut signed = 0;
        for (key, value) in map {
            match key.as_str() {
                "kind" if value == "Secret" => members.secret = &["data", "stringData"],
                "kind" if value == "SecretList" => members.secret = &["items"],
                "kty" => members.secret = &["d", "p", "q", "dp", "dq", "qi", "k", "oth"],
                "protected" | "payload" | "signature" if value.is_string() => signed += 1,
                key if KIND_FIELDS.contains(&key) => {
                    let kind = value.as_str().unwrap_or_default();
                    let kinds = ["image/", "audio/", "video/"];
                    members.media = kinds.iter().any(|of| kind.starts_with(of));
                }
                "columns" | "headers" | "header" | "fields" => {
                    members.columns |= columns(rules, value)
                }
                _ => {}
            }
        }
        if signed == 3 {
            members.secret = &["payload", "signature"];
        }
        members
    }

    /// Returns whether a member is a secret as a whole.
    pub(super) fn hides(&self, key: &String, value: &Value) -> bool {
        self.named == Some(key)
            || self.secret.contains(&key.as_str())
            || is_connection(key) && value.as_str().is_some_and(is_opaque)
    }

    /// Returns whether a member is the data of a picture or a sound, which is not read as text.
    pub(super) fn is_media(&self, key: &str, value: &Value) -> bool {
        let digits = |text: &str| is_made_of(text.trim_end_matches('='), "+/-_");
        self.media && DATA_FIELDS.contains(&key) && value.as_str().is_some_and(digits)
    }

    /// The columns that are secrets in a member that has rows, a bit each.
    pub(super) fn columns(&self, value: &Value) -> u64 {
        match value.as_array() {
            Some(rows) if rows.iter().all(Value::is_array) => self.columns,
            _ => 0,
        }
    }
}

/// Returns whether an object in `value` is of a kind whose members are secrets, whatever their
/// names.
pub(super) fn tells(rules: &Rules, value: &Value) -> bool {
    match value {
        Value::Object(map) => {
            let members = Members::of(rules, map);
            let own = !members.secret.is_empty() || members.columns != 0;
            own || map.values().any(|value| tells(rules, value))
        }
        Value::Array(items) => items.iter().any(|value| tells(rules, value)),
        _ => false,
    }
}

/// The columns whose heads name secrets, a bit each: `{"columns": ["login", "password"], "rows":
/// [["ada", "x"]]}`.
fn columns(rules: &Rules, heads: &Value) -> u64 {
    let bit = |(i, head): (usize, &Value)| {
        let named = |head: &str| rules.announces(head) && !head.eq_ignore_ascii_case("key");
        let secret = i < 64 && head.as_str().is_some_and(named);
        if secret { 1 << i } else { 0 }
    };
    let heads = heads.as_array().into_iter().flatten();
    heads.enumerate().map(bit).sum()
}

fn secret_field<'m>(rules: &Rules, map: &'m Map<String, Value>) -> Option<&'m String> {
    let value = map.keys().find(|key| is_one_of(key, VALUE_FIELDS))?;
    let names = |key: &str, name: &str| {
        is_one_of(key, NAME_FIELDS) && rules.is_sensitive_key(name)
            || key == "type" && rules.strength(name) == Strength::Strong
    };
    let mut members = map
        .iter()
        .filter_map(|(key, name)| Some((key, name.as_str()?)));
    members.any(|(key, name)| names(key, name)).then_some(value)
}

/// Looks for secrets among the strings of an array, in which each may be announced by the one
/// before.
pub(super) struct Arguments<'r> {
    rules: &'r Rules,
    len: usize,
    /// They are names, of which none announces the next.
    names: bool,
    command: Option<&'static Command>,
    /// The element before announces this one.
    announced: bool,
    /// It was announced as the first value of two, where a date is no credential.
    pair: bool,
    /// A private key has begun, and not ended.
    key: bool,
}

impl<'r> Arguments<'r> {
    pub(super) fn new(rules: &'r Rules, len: usize, names: bool) -> Self {
        Self {
            rules,
            len,
            names,
            command: None,
            announced: false,
            pair: false,
            key: false,
        }
    }

    /// Returns whether the next element, at `index`, is a secret as a whole.
    pub(super) fn is_secret(&mut self, index: usize, value: &Value) -> bool {
        let (announced, pair) = (take(&mut self.announced), take(&mut self.pair));
        let Some(text) = value.as_str() else {
            return false;
        };
        let key = self.key;
        let begins = text.contains("-----BEGIN") && text.contains("PRIVATE");
        self.key = (key || begins) && !text.contains("-----END");
        if key || announced && !text.starts_with("--") && !(pair && is_moment(text)) {
            return true;
        }
        self.command = Command::of(text).or(self.command);
        let of_command = |is: fn(&Command, &str) -> bool| self.command.is_some_and(|c| is(c, text));
        if of_command(Command::is_password) {
            return true;
        }
        // A flag, or the first of two.
        let flag = text.starts_with('-') && !text.contains(['=', ' ']);
        self.pair = !flag
            && !self.names
            && index == 0
            && self.len == 2
            && text.len() <= 64
            && !text.contains(' ');
        self.announced =
            (flag || self.pair) && self.rules.announces(text) || of_command(Command::announces);
        false
    }
}
