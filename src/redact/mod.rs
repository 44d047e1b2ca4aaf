//! Keeping secrets and bulk out of everything that people and log stores read.
//!
//! [`Redacted`] is a lazy view of JSON: it is made while it is printed or serialised, costs nothing
//! before, and never copies the value. Values under [sensitive keys](is_sensitive_key) become
//! `[REDACTED]`, long strings are cut, depth and size are bounded. [`redact_text`] does what can be
//! done for free text.
//!
//! Bounds: strings of [`MAX_STRING`] characters, [`MAX_DEPTH`] levels, [`MAX_NODES`] values.

use std::{cell::Cell, fmt};

use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::{Map, Value};

use crate::text::{TRUNCATED, truncate};

mod free_text;
mod keys;

pub use self::{free_text::redact_text, keys::is_sensitive_key};

/// What stands in the place of a secret.
pub const REDACTED: &str = "[REDACTED]";

/// Longer strings are cut, in characters (S3).
pub const MAX_STRING: usize = 200;

/// Deeper levels are shown as `"[...]"`.
pub const MAX_DEPTH: usize = 16;

/// After so many values the rest is left out.
pub const MAX_NODES: usize = 1000;

/// A redacted view of JSON. `Display` prints JSON, `Serialize` gives the same structure.
#[derive(Clone, Copy)]
pub struct Redacted<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Map(&'a Map<String, Value>),
    Value(&'a Value),
}

impl<'a> Redacted<'a> {
    /// The view of an object.
    pub fn of_map(map: &'a Map<String, Value>) -> Self {
        Self(Source::Map(map))
    }

    /// The view of any value.
    pub fn of(value: &'a Value) -> Self {
        Self(Source::Value(value))
    }
}

impl Serialize for Redacted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nodes = Cell::new(MAX_NODES);
        let walk = Walk {
            nodes: &nodes,
            depth: 0,
        };
        match self.0 {
            Source::Map(map) => walk.map(map, serializer),
            Source::Value(value) => Node { value, walk }.serialize(serializer),
        }
    }
}

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Utf8<'f, 'b>(&'f mut fmt::Formatter<'b>);
        impl std::io::Write for Utf8<'_, '_> {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                // serde_json writes whole UTF-8 strings.
                let text = std::str::from_utf8(bytes).map_err(std::io::Error::other)?;
                self.0.write_str(text).map_err(std::io::Error::other)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        serde_json::to_writer(Utf8(f), self).map_err(|_| fmt::Error)
    }
}

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text as it may be shown: redacted, at most `max` characters of it.
pub(crate) fn shown(text: &str, max: usize) -> String {
    // Cut first, so that the work is bounded. Redaction shrinks what stands before the cut, so that
    // what the cut has halved may come into view: that goes too.
    let (head, cut) = crate::text::prefix(text, 4 * max);
    if !cut {
        return truncate(&redact_text(head), max);
    }
    let mut redacted = free_text::redact(head, true).into_owned();
    if let Some(end) = redacted.rfind(char::is_whitespace) {
        redacted.truncate(end);
    }
    let (shown, _) = crate::text::prefix(&redacted, max);
    format!("{shown}{TRUNCATED}")
}

#[derive(Clone, Copy)]
struct Walk<'n> {
    nodes: &'n Cell<usize>,
    depth: usize,
}

impl Walk<'_> {
    /// Counts a value; false once there were too many.
    fn admit(&self) -> bool {
        let left = self.nodes.get();
        self.nodes.set(left.saturating_sub(1));
        left > 0
    }

    fn deeper(self) -> Self {
        Self {
            depth: self.depth + 1,
            ..self
        }
    }

    fn map<S: Serializer>(self, map: &Map<String, Value>, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_map(None)?;
        for (key, value) in map {
            if !self.admit() {
                out.serialize_entry("...", TRUNCATED)?;
                break;
            }
            let shown = Short(key);
            if is_sensitive_key(key) {
                out.serialize_entry(&shown, REDACTED)?;
            } else {
                let walk = self.deeper();
                out.serialize_entry(&shown, &Node { value, walk })?;
            }
        }
        out.end()
    }
}

/// A key, cut like a string: a caller may put bulk there too.
struct Short<'a>(&'a str);

impl Serialize for Short<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&shown(self.0, MAX_STRING))
    }
}

struct Node<'a, 'n> {
    value: &'a Value,
    walk: Walk<'n>,
}

impl Serialize for Node<'_, '_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.walk.depth >= MAX_DEPTH && (self.value.is_array() || self.value.is_object()) {
            return s.serialize_str("[...]");
        }
        match self.value {
            Value::String(text) => s.serialize_str(&shown(text, MAX_STRING)),
            Value::Object(map) => self.walk.map(map, s),
            Value::Array(items) => {
                let mut out = s.serialize_seq(None)?;
                for value in items {
                    if !self.walk.admit() {
                        out.serialize_element(TRUNCATED)?;
                        break;
                    }
                    let walk = self.walk.deeper();
                    out.serialize_element(&Node { value, walk })?;
                }
                out.end()
            }
            plain => plain.serialize(s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_under_sensitive_keys_are_redacted_at_any_depth() {
        let value = json!({ "user": "ada", "password": "hunter2", "a": [{ "X-Auth-Token": 7 }] });
        let shown: Value = serde_json::from_str(&Redacted::of(&value).to_string()).unwrap();
        assert_eq!(
            shown,
            json!({ "user": "ada", "password": REDACTED, "a": [{ "X-Auth-Token": REDACTED }] })
        );
    }

    #[test]
    fn sensitive_keys_are_told_from_their_look_alikes() {
        for key in [
            "apiKey",
            "api_key",
            "X-Auth-Token",
            "client-secret",
            "passwd",
            "privateKey",
            "accesskey",
            "mytoken",
            "authheader",
            "Authorization",
            "PASSWORD",
            "author_token",
            "adminTokens",
            "common_key",
            "daemon_key",
            "addon_key",
            "private_key_notes",
            "api_key_word",
            "DB_PASS",
            "pwd",
            "APIKey",
            "key2",
        ] {
            assert!(is_sensitive_key(key), "{key}");
        }
        for key in [
            "max_tokens",
            "monkey",
            "author",
            "keyboard",
            "maxTokens",
            "query",
            "keywords",
            "author_id",
            "token_count",
            "total_tokens",
            "compass",
            "passenger",
            "maxtokens",
            "turkey",
        ] {
            assert!(!is_sensitive_key(key), "{key}");
        }
    }

    #[test]
    fn secrets_in_free_text_are_redacted_and_the_rest_is_kept() {
        for (text, expected) in [
            (
                "Authorization: Bearer abcdef123456",
                "Authorization: [REDACTED]",
            ),
            (
                "Authorization: ApiKey s3cr3t\nHost: x",
                "Authorization: [REDACTED]\nHost: x",
            ),
            (
                "curl -H \"Authorization: SSWS s3cr3t\" http://x",
                "curl -H \"Authorization: [REDACTED]\" http://x",
            ),
            ("Cookie: theme=dark; sid=s3cr3t", "Cookie: [REDACTED]"),
            (
                "sent Bearer abc.def-123456 twice",
                "sent Bearer [REDACTED] twice",
            ),
            (
                "GET /x?api_key=s3cr3t&q=1 failed",
                "GET /x?api_key=[REDACTED]&q=1 failed",
            ),
            (
                r#"{"password": "correct horse", "q": 1}"#,
                r#"{"password": [REDACTED], "q": 1}"#,
            ),
            (
                r#"{\"password\": \"a,b\", \"q\": 1}"#,
                r#"{\"password\": [REDACTED], \"q\": 1}"#,
            ),
            (r#"{"password": "a\"b c"}"#, r#"{"password": [REDACTED]}"#),
            (
                "Config { password: Some(\"x y\"), q: 1 }",
                "Config { password: [REDACTED], q: 1 }",
            ),
            ("token: Token(\"x\") is bad", "token: Token(\"x\") is bad"),
            (
                "api_token: Token(\"x\") is bad",
                "api_token: [REDACTED] is bad",
            ),
            ("{'password': b'x y'}", "{'password': [REDACTED]}"),
            (
                r#""credentials": {"user": "a", "value": "x"}, 1"#,
                r#""credentials": [REDACTED], 1"#,
            ),
            ("'password' => 'x y', 1", "'password' => [REDACTED], 1"),
            ("password := x, 1", "password := [REDACTED], 1"),
            ("X-Api-Key:\ts3cr3t", "X-Api-Key:\t[REDACTED]"),
            ("password:\n  s3cr3t", "password:\n  [REDACTED]"),
            (
                "mysql --password s3cr3t -h x",
                "mysql --password [REDACTED] -h x",
            ),
            (
                "<password>s3cr3t</password>",
                "<password>[REDACTED]</password>",
            ),
            ("user[password]=s3cr3t&a=1", "user[password]=[REDACTED]&a=1"),
            ("Server=db;Pwd=s3cr3t;", "Server=db;Pwd=[REDACTED];"),
            ("postgres://ada:pw@db/x", "postgres://[REDACTED]@db/x"),
            ("postgres://ada:a/b@db/x", "postgres://[REDACTED]@db/x"),
            (
                "key sk-proj-abcdefghijklmnop is wrong",
                "key [REDACTED] is wrong",
            ),
            (
                "/data/task-1/sk-proj-abcdefghijkl0",
                "/data/task-1/[REDACTED]",
            ),
            ("AKIAIOSFODNN7EXAMPLE here", "[REDACTED] here"),
            ("Authorization=Bearer abc def", "Authorization=[REDACTED]"),
            ("api_token: Bearer abcdef, 1", "api_token: [REDACTED], 1"),
            ("token=Bearer abcdef&q=1", "token=[REDACTED]&q=1"),
            ("password1: hunter2", "password1: [REDACTED]"),
            ("db_password_old: hunter2", "db_password_old: [REDACTED]"),
            ("API_KEY_1: s3cr3tABCDEF99", "API_KEY_1: [REDACTED]"),
            ("secrets: hunter2", "secrets: [REDACTED]"),
            ("DB_PASS: hunter2", "DB_PASS: [REDACTED]"),
            (
                r#"{\\\"password\\\":\\\"hunter2 x\\\",1"#,
                r#"{\\\"password\\\":[REDACTED],1"#,
            ),
            (
                r#"{\"password\":\"a\\\"REST\",1"#,
                r#"{\"password\":[REDACTED],1"#,
            ),
            (r#"tokens=["a]b", "x"] 1"#, "tokens=[REDACTED] 1"),
            (
                "?X-Amz-Signature=abcdef&q=1",
                "?X-Amz-Signature=[REDACTED]&q=1",
            ),
        ] {
            assert_eq!(redact_text(text), expected);
        }
    }

    #[test]
    fn innocent_text_is_left_alone() {
        for text in [
            "connection refused",
            "basic auth failed",
            "Basic Authentication required",
            "bearer token required",
            "KeyError: 'city'",
            "Missing key: city",
            "missing required key: 'city'",
            "Unexpected token: identifier",
            "Unexpected token < in JSON at position 0",
            "KeyNotFoundException: no such city",
            "TokenExpiredError: jwt expired",
            "AuthenticationError: token expired",
            "unauthorized: authentication required",
            "401 Unauthorized: Bad credentials",
            "the basic SELECT statement",
            "digest SHA256 of the file",
            "npm_config_registry is not set",
            "hf_hub_download failed",
            "sk_buff_alloc_failed in net/core",
            "ASIA-PACIFIC-SOUTH1 is down",
            "ssh://git@github.com/a/b",
            "http://localhost:8080/a@b",
            "max_tokens: 4096",
            "author: Ada",
            "-----BEGIN CERTIFICATE----- MIIB -----END CERTIFICATE-----",
        ] {
            assert_eq!(redact_text(text), text);
        }
    }

    #[test]
    fn a_private_key_goes_as_a_whole_whatever_its_field_is_called() {
        let pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----";
        assert_eq!(redact_text(&format!("x {pem} y")), "x [REDACTED] y");
        assert_eq!(
            redact_text(&format!("ssh_key={pem} y")),
            "ssh_key=[REDACTED] y"
        );
        let json = json!({ "private_key": pem, "q": 1 }).to_string();
        assert_eq!(redact_text(&json), r#"{"private_key":[REDACTED],"q":1}"#);
        let nested = json!({ "file": json }).to_string();
        assert!(!redact_text(&nested).contains("MIIE"));
        assert!(!redact_text(&pem[..pem.len() - 30]).contains("MIIE"));
    }

    #[test]
    fn a_secret_that_the_cut_has_halved_does_not_come_into_view() {
        for filler in [700, 758, 780, 790] {
            let text = format!(
                "Bearer {} postgres://ada:S3cr3tCanary9xLONGER@db/x",
                "a1".repeat(filler / 2)
            );
            let shown = shown(&text, MAX_STRING);
            assert!(!shown.contains("S3cr3t"), "{shown}");
        }
        let shown = shown(&format!("{} end", "word ".repeat(400)), MAX_STRING);
        assert!(shown.ends_with(TRUNCATED));
    }

    #[test]
    fn a_password_longer_than_the_window_is_redacted() {
        let text = format!("postgres://ada:{}@db/x end", "x".repeat(600));
        assert!(!redact_text(&text).contains("xxx"));
    }

    /// One pass, linear time: no text makes it slow or panic.
    #[test]
    fn hostile_text_is_passed_in_linear_time() {
        for part in [
            "password=",
            "\"password\": ",
            "Bearer ",
            "://",
            "a:b@",
            "sk-",
            "-----BEGIN",
            "key:",
            "[",
            "Some(",
            "\\\"",
            "é=",
            "token\u{a0}:\u{2028}",
            "<key>",
            "--key ",
            "eyJ",
            "Authorization: \n ",
        ] {
            let text = part.repeat(100_000 / part.len());
            let start = tokio::time::Instant::now();
            let _ = redact_text(&text);
            // Far from both: linear is tenths of a second, quadratic a minute and more.
            assert!(start.elapsed().as_secs() < 20, "{part}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_redacted_without_a_panic_and_shown_within_its_limit(
            text in "(password|token|Bearer|://|@|:|=|\"|'|\\\\|\\(|\\[|-----BEGIN PRIVATE| |\n|é|sk-|[a-z0-9]{1,9}){0,60}",
        ) {
            let once = redact_text(&text).into_owned();
            let _ = redact_text(&once);
            proptest::prop_assert!(shown(&text, 20).chars().count() <= 20 + TRUNCATED.len());
        }
    }

    #[test]
    fn output_is_bounded_in_depth_nodes_and_string_length() {
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(Redacted::of(&deep).to_string().contains("[...]"));
        let wide = Value::Array(vec![json!(1); 100_000]);
        assert!(Redacted::of(&wide).to_string().len() < 4 * MAX_NODES);
        let long = Value::String("ä".repeat(1 << 20));
        let shown = Redacted::of(&long).to_string();
        assert_eq!(shown.chars().count(), 2 + MAX_STRING + TRUNCATED.len());
    }
}
