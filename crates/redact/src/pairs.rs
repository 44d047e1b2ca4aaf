//! Names and values that stand beside each other in JSON: `{"name": "X-Api-Key", "value": "x"}`,
//! `["Authorization", "Bearer x"]`, `["curl", "--token", "x"]`.

use serde_json::{Map, Value};

use crate::keys::{Strength, is_connection};
use crate::text::{bytes::*, command::Command, is_mixed, is_moment, is_opaque};
use crate::{rules::Rules, words::Words};

/// Members that hold a name.
pub(super) static NAME_FIELDS: Words = Words::of(
    "name key field header headername param parameter variable property id k n env \
    label attribute option secretname keyname parameterkey parametername outputkey optionname",
);

/// Members that hold its value.
pub(super) static VALUE_FIELDS: Words = Words::of(
    "value val v values content default defaultvalue data stringvalue text string \
    plaintext raw rawvalue parametervalue outputvalue optionvalue newvalue oldvalue",
);

/// Members that list names.
static NAME_LISTS: Words = Words::of(
    "required fields columns names properties attributes params parameters \
    dependencies features keywords tags scopes include exclude allow deny enum",
);

/// Returns whether a member lists names: `required`, `grant_types`, `auth_methods_supported`.
/// The latter have no `second` element that a secret may be.
pub(super) fn lists_names(key: &str, second: &str) -> bool {
    let mixed = is_mixed(second) && !second.has_of(":");
    NAME_LISTS.has(key) || ends_with_one_of(key, "_types _supported") && !mixed
}

/// Members that hold the data of what [`Members::of`] finds to be a picture or a sound.
pub(super) const DATA_FIELDS: &str = "data blob base64";

/// Members that say of what kind the data is.
#[rustfmt::skip]
pub(super) const KIND_FIELDS: &[&str] = &["mimeType", "mime_type", "media_type", "mediaType", "contentType"];

/// Kinds of pictures and sounds.
pub(super) const KINDS: &[&str] = &["image/", "audio/", "video/"];

/// The part that a value plays in the JSON around it. Columns that are secrets are a bit each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Plain,
    /// A list of names.
    Names,
    /// A picture or a sound in Base64.
    Media,
    /// Rows with these columns.
    Rows(u64),
    /// A row with these columns.
    Row(u64),
}

/// Which members of an object are secrets because of other members.
#[derive(Default)]
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
        let (mut members, mut signed) = (Self::default(), 0);
        members.named = secret_field(rules, map);
        for (key, value) in map {
            match key.as_str() {
                "kind" if value == "Secret" => members.secret = &["data", "stringData"],
                "kind" if value == "SecretList" => members.secret = &["items"],
                "kty" => members.secret = &["d", "p", "q", "dp", "dq", "qi", "k", "oth"],
                "protected" | "payload" | "signature" if value.is_string() => signed += 1,
                key if KIND_FIELDS.contains(&key) => {
                    let kind = value.as_str().unwrap_or_default();
                    members.media = prefix_of(kind, KINDS).is_some();
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
        let opaque = |text: &str| is_connection(key) && is_opaque(text);
        self.named == Some(key)
            || self.secret.contains(&key.as_str())
            || value.as_str().is_some_and(opaque)
    }

    /// The role of a member. The data of a picture is not read as text.
    pub(super) fn role(&self, key: &str, value: &Value) -> Role {
        let second = || value.get(1).and_then(Value::as_str).unwrap_or_default();
        let digits = |text: &str| is_made_of(text.trim_end_of("="), "+/-_");
        match value {
            Value::Array(rows) if self.columns != 0 && rows.iter().all(Value::is_array) => {
                Role::Rows(self.columns)
            }
            Value::Array(_) if lists_names(key, second()) => Role::Names,
            Value::String(data) if self.media && is_one_of(key, DATA_FIELDS) && digits(data) => {
                Role::Media
            }
            _ => Role::Plain,
        }
    }
}

/// Returns whether an object in `value` is of a kind with secret members, whatever their names.
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

/// Returns the columns with heads that name secrets, a bit each:
/// `{"columns": ["login", "password"], "rows": [["ada", "x"]]}`.
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
    let value = map.keys().find(|key| VALUE_FIELDS.has(key))?;
    let names = |(key, name): (&String, &Value)| {
        name.as_str().is_some_and(|name| {
            NAME_FIELDS.has(key) && rules.is_sensitive_key(name)
                || key == "type" && rules.strength(name) == Strength::Strong
        })
    };
    map.iter().any(names).then_some(value)
}

/// Looks for secrets among the strings of an array, in which each may be announced by the one
/// before.
#[derive(Default)]
pub(super) struct Arguments {
    command: Option<&'static Command>,
    /// The previous element announces this one. True for the first value of two, where a date is
    /// not a credential.
    announced: Option<bool>,
    /// A private key has begun, and not ended.
    key: bool,
}

impl Arguments {
    /// Returns whether the next element is a secret as a whole. `first` says that it is the first
    /// of two, and that they are not a list of names.
    pub(super) fn is_secret(&mut self, rules: &Rules, first: bool, value: &Value) -> bool {
        let announced = self.announced.take();
        let Some(text) = value.as_str() else {
            return false;
        };
        let key = self.key;
        let begins = text.holds("-----BEGIN") && text.holds("PRIVATE");
        self.key = (key || begins) && !text.holds("-----END");
        let shown = |pair| text.starts_with("--") || pair && is_moment(text);
        if key || announced.is_some_and(|pair| !shown(pair)) {
            return true;
        }
        self.command = Command::of(text).or(self.command);
        let of_command = |is: fn(&Command, &str) -> bool| self.command.is_some_and(|c| is(c, text));
        if of_command(Command::is_password) {
            return true;
        }
        let flag = text.starts_with('-') && !text.has_of("= ");
        let pair = first && !flag && text.len() <= 64 && !text.has_of(" ");
        let announces = (flag || pair) && rules.announces(text) || of_command(Command::announces);
        self.announced = announces.then_some(pair);
        false
    }
}
