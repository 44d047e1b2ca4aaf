//! Keeps secrets and bulk out of everything that people and log stores read.
//!
//! [`Redacted`] is a lazy view of JSON: it works while it is printed or serialised, costs nothing
//! before, and does not clone the `Value`. [`redact_text`] finds secrets in free text by their
//! form. [`Rules`] define the secrets and how much of the rest is shown; all free functions use the
//! built-in rules.
//!
//! ```
//! use serde_json::json;
//! use toolcall_redact::Redacted;
//!
//! let arguments = json!({ "city": "Oslo", "api_key": 7, "note": "postgres://ada:pw@db/x" });
//! assert_eq!(
//!     Redacted::of(&arguments).to_string(),
//!     r#"{"api_key":"[REDACTED]","city":"Oslo","note":"postgres://[REDACTED]@db/x"}"#,
//! );
//! ```
//!
//! # What is not promised
//!
//! This is a net, not a proof. Secrets without a name, a form or a known prefix look like other
//! text and stay: a bare hexadecimal key, a secret that is split by line breaks or reversed, names
//! spelled letter by letter or with other signs (`p@ssw0rd`), a private key with each line in its
//! own object, Base64 of less than 24 digits, values that code puts together (`"a".concat("b")`,
//! `INSERT .. SELECT 'x'`). Under a sensitive key of JSON doubtful values are redacted: pagination
//! tokens, names of keys. In text, code and words that only handle secrets stay if their form shows
//! it: types, calls, variables (`config.password`, `vault.x`), constants, versions, positions
//! (`password.js:40:9`), lists of names (`required`), paths of files, placeholders (`***`,
//! `<token>`), words of prose (`required`, `expired`), and short numbers in a column like
//! `Secrets`.
//!
//! Names with many other uses (`key`, `token`, `sig`, `pin`, `min_key`) mark only values that look
//! like secrets: `token = next` and `"sort_key": "createdAt"` stay.
//!
//! The data of a picture or a sound in Base64 is not read as text: of a member `data` beside
//! `mimeType`, of a `data:` URL, or with the beginning of PNG, JPEG, GIF or WebP.
//!
//! # Filters
//!
//! Pass whole texts, not lines: private keys, tables and blocks are recognised by several lines
//! together. Passed line by line, the body of a PEM block is shown.
//!
//! A formatter of `tracing` should write [`REDACTED`] for a field with a [sensitive
//! name](Rules::is_sensitive_key), and [`Rules::text`] of the value otherwise.
//!
//! # Details
//!
//! ## What is found
//!
//! - **members of objects**: [sensitive keys](is_sensitive_key), whatever the type of their value;
//!   `{"name": "X-Api-Key", "value": ..}` in any order; the data of a Kubernetes Secret, the
//!   private parts of a JWK, the parts of a JWS; a connection string that is one opaque word
//! - **arrays**: `["Authorization", "x"]`, `["curl", "--token", "x", "-u", "ada:x"]`,
//!   `["mysql", "-px"]`; private keys line by line; the rows of
//!   `{"columns": ["login", "password"], "rows": [["ada", "x"]]}`
//! - **strings that are JSON**: redacted as JSON, four levels deep, up to 64 KiB; as text beyond
//!   that
//! - **strings inside texts**: redacted without their escapes: `Error("user,password\nada,x")`
//! - **texts in Base64**: decoded, also over several lines and as UTF-16, and hidden as a whole if
//!   there is a secret in them
//! - **tables**: columns with sensitive heads: CSV, TSV, Markdown, the output of `psql` and
//!   `mysql`, HTML, `INSERT INTO t (a, password) VALUES ('x', 'y')`, `COPY`
//! - **names with values**: `key=x`, `"key": "x"`, `Header: x`, `--key x`, `key => x`,
//!   `if key == "x"`, `key: Type = "x"`, `API key 1: x`, `Name=key,Value=x`, `TOKEN=Scheme x`; YAML
//!   blocks, TOML, INI, XML, property lists, connection strings, `.netrc`, `.pgpass`;
//!   percent-encoded, with HTML entities, with escaped quotes and letters; values like `Some("x")`,
//!   `b'x'`, `Secret { inner: "x" }`, `{password, <<"x">>}`, `string(1) "x"` of PHP
//! - **schemes**: `Bearer x`, `Basic x` and the like; `Authorization` and `Cookie` headers as a
//!   whole, which means to the end of the line, in prose too
//! - **URLs**: `scheme://user:password@`, tokens as users, query and fragment, webhooks of Slack,
//!   Discord, Telegram, Teams and others
//! - **tokens**: prefixes of some 200 kinds of vendors' tokens, JWTs, and [own
//!   ones](Rules::with_rule)
//! - **blocks**: private keys in PEM, PGP, OpenSSH, SSH2 and PuTTY form, cut off at either end or
//!   not; the `data` of a Kubernetes Secret
//! - **commands**: `-u user:x` of curl, `-px` of mysql, `-p x` of sshpass and docker, `-a x` of
//!   redis-cli, `ConvertTo-SecureString 'x'`, `--name token --value x`, `setx TOKEN x`,
//!   `net user ada x`; `requirepass x` and `SETUSER ada >x` of Redis; lines of `cookies.txt`;
//!   `WIFI:S:home;P:x;;`; `expect "Password:"` and `send "x"`
//! - **calls**: the password of a function that authenticates: `SetBasicAuth("ada", "x")`
//! - **statements**: `IDENTIFIED BY 'x'`, `PASSWORD 'x'`, `SET PASSWORD FOR ada = 'x'`
//! - **values**: those that were sent as secrets, wherever they come back: [`Rules::with_secrets`]
//! - **labels**: `**Password:** x`, names and values with colours of a terminal between them
//! - **sentences**: `password is hunter2`, `the token abc123def456`: where the word after looks
//!   like a secret; one-time codes, recovery codes; recovery phrases of twelve words and more, in
//!   any quoting
//!
//! Each secret is found by one of the [`rules`]. [`Rules::explain`] names the rule, and
//! [`Rules::without_rule`] switches off a rule that hides an innocent text. [`Rules::with_rule`]
//! adds rules for your own tokens.
//!
//! A value ends at the quote that opened it, however many backslashes stand before both. Without
//! quotes it ends at white space: of `IBAN: DE02 1234`, a custom name, only `DE02` is hidden. Names
//! are compared without separators and invisible characters; Cyrillic, Greek, full-width and
//! mathematical letters count as the Latin ones that they look like.
//!
//! ## Limits
//!
//! [`redact_text`] does not bound the length: [`Rules::text`] does.
//!
//! Views escape characters that turn or hide others: those of the direction, those without a width,
//! and line separators are shown as `\u{202e}`. [`Rules::text`] escapes control characters but tabs
//! and line ends, too.
//!
//! Strings of [`MAX_STRING`] characters, [`MAX_DEPTH`] levels, [`MAX_NODES`] values, [`MAX_BYTES`]
//! bytes of a printed view; [`Rules`] can change them. The time is linear in the bytes that are
//! read: of a string no more than four times its limit and 1 KiB, unless it is JSON, or values were
//! [registered](Rules::with_secrets). Redacting redacted text changes nothing; in texts of more
//! than 512 bytes it may hide what was too far from its name, its host or its command before.

use std::borrow::Cow;

mod chars;
mod config;
mod escapes;
mod filter;
mod hidden;
mod inside;
mod keys;
mod pairs;
mod registered;
mod rule;
mod rules;
mod shown;
mod text;
mod view;
mod words;

#[cfg(test)]
mod tests;

pub use self::{
    config::ConfigError,
    hidden::is_hidden,
    rule::{Finding, Rule, rules},
    rules::{MAX_ENTRIES, RedactedText, Rules},
    text::vendors::Tail,
    view::Redacted,
};

use self::rules::BUILT_IN;

/// The text in the place of a secret.
pub const REDACTED: &str = "[REDACTED]";

/// The mark where something was cut away.
pub const TRUNCATED: &str = "...[truncated]";

/// The length of a string in characters; the rest is cut.
pub const MAX_STRING: usize = 200;

/// The number of levels of a view; deeper ones are shown as `"[...]"`.
pub const MAX_DEPTH: usize = 16;

/// The number of values of a view; the rest is left out.
pub const MAX_NODES: usize = 1000;

/// The length of a printed view in bytes; the rest is cut.
pub const MAX_BYTES: usize = 16 * 1024;

/// Returns whether values under this key are secrets, by the built-in rules. The key contains
/// `password`, `token`, `secret`, `key`, `auth`, `credential`, `cookie` or the like, in any case
/// and with any separators. Or it has `pass`, `pwd`, `otp`, `jwt` or the like as a word. Harmless
/// words (`author`, `monkey`, `max_tokens` ...) are taken out before. In doubt a key is sensitive.
///
/// ```
/// use toolcall_redact::is_sensitive_key;
///
/// assert!(is_sensitive_key("X-Api-Key") && is_sensitive_key("adminTokens"));
/// assert!(!is_sensitive_key("max_tokens") && !is_sensitive_key("author"));
/// ```
pub fn is_sensitive_key(key: &str) -> bool {
    BUILT_IN.is_sensitive_key(key)
}

/// Returns a text without the secrets that the built-in rules recognise. Borrows the text if
/// nothing is found. A text that is JSON and has secrets is given back as compact JSON. The length
/// is not bounded: see [`Rules::text`].
///
/// ```
/// use toolcall_redact::redact_text;
///
/// assert_eq!(
///     redact_text("GET /?api_key=s3cr3t&q=1 failed"),
///     "GET /?api_key=[REDACTED]&q=1 failed"
/// );
/// assert_eq!(redact_text("KeyError: 'city'"), "KeyError: 'city'");
/// ```
pub fn redact_text(text: &str) -> Cow<'_, str> {
    BUILT_IN.redact_text(text)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
