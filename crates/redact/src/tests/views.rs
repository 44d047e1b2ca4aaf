//! Views of JSON, and own rules.

use super::*;

fn view(value: &Value) -> Value {
    serde_json::from_str(&Redacted::of(value).to_string()).unwrap()
}

#[test]
fn values_under_sensitive_keys_are_redacted_at_any_depth() {
    let value = json!({ "user": "ada", "password": "hunter2", "a": [{ "X-Auth-Token": 7, "key": null }], "auth": { "a": [1] } });
    let expected = json!({
        "user": "ada", "password": REDACTED, "a": [{ "X-Auth-Token": REDACTED, "key": REDACTED }], "auth": REDACTED
    });
    assert_eq!(view(&value), expected);
}

#[test]
fn names_and_values_beside_each_other_are_pairs() {
    let value = json!({
        "headers": [["Authorization", "x y"], ["Host", "h"]],
        "env": [{ "name": "DB_PASSWORD", "value": "x" }, { "name": "HOST", "value": "h" }],
        "rows": [{ "value": { "a": 1 }, "key": "password" }],
        "argv": ["curl", "-u", "ada:x", "--token", "x", "http://h"],
        "mysql": ["mysql", "-px", "shop"],
    });
    let expected = json!({
        "headers": [["Authorization", REDACTED], ["Host", "h"]],
        "env": [{ "name": "DB_PASSWORD", "value": REDACTED }, { "name": "HOST", "value": "h" }],
        "rows": [{ "value": REDACTED, "key": REDACTED }],
        "argv": ["curl", "-u", REDACTED, "--token", REDACTED, "http://h"],
        "mysql": ["mysql", REDACTED, "shop"],
    });
    assert_eq!(view(&value), expected);
}

#[test]
fn a_number_that_begins_like_a_date_is_a_credential_in_a_pair() {
    for date in [
        "2026-01-31",
        "2026-01-31T10:00:00Z",
        "2026-01-31 10:00:00.123456789 +00:00",
    ] {
        assert_eq!(view(&json!(["bearer", date])), json!(["bearer", date]));
    }
    for secret in [
        "1234-56-789012345",
        "1234-56-78-9012-3456",
        "1234-56-78T9012345678",
        "1234-56-78T90:123456789012345678901234567890",
    ] {
        assert_eq!(view(&json!(["pin", secret])), json!(["pin", REDACTED]));
        let text = format!("('password', '{secret}')");
        assert!(!redact_text(&text).contains(secret), "{text}");
    }
}

#[test]
fn json_in_a_string_is_seen_through_twice() {
    let inner = json!({ "password": "Zq7hunterX", "n": 1 }).to_string();
    let middle = json!({ "body": inner, "m": 2 }).to_string();
    let shown = Redacted::of(&json!({ "outer": middle })).to_string();
    assert!(
        !shown.contains("Zq7hunterX") && shown.contains("\\\"m\\\":2"),
        "{shown}"
    );
    let escaped = r#"{"\u0070assword": "Zq7hunterX"}"#;
    assert!(!redact_text(escaped).contains("Zq7hunterX"));
}

#[test]
fn secrets_in_keys_are_redacted() {
    let value = json!({ "ghp_abcdefghijklmnopqrstuvwxyz0123456789": 1 });
    assert_eq!(view(&value), json!({ REDACTED: 1 }));
}

#[test]
fn own_rules_add_to_the_built_in_ones() {
    let rules = Rules::new()
        .with_sensitive_key("I-BAN")
        .and_then(|r| r.with_harmless_key("idempotency_key"))
        .and_then(|r| r.with_secret_prefix("acme_", 6))
        .and_then(|r| r.with_max_string(20))
        .unwrap();
    assert!(rules.is_sensitive_key("my_iban") && rules.is_sensitive_key("password"));
    assert!(
        !rules.is_sensitive_key("idempotencyKey") && rules.is_sensitive_key("idempotency_keys_key")
    );
    assert_eq!(
        rules.redact_text("x acme_123456 y, iban=DE02"),
        "x [REDACTED] y, iban=[REDACTED]"
    );
    assert_eq!(rules.redact_text("acme_12345"), "acme_12345");
    assert_eq!(
        rules.json(&json!("a".repeat(21))).to_string(),
        format!("\"{}...[truncated]\"", "a".repeat(20))
    );
    assert_eq!(
        rules.text("token=abc and more", 18).to_string(),
        "token=[REDACTED] a...[truncated]"
    );
    assert_eq!(rules.clone(), rules);
    assert!(Rules::default() == Rules::new() && rules != Rules::new());
}

#[test]
fn rules_that_cannot_work_are_refused_and_the_field_is_named() {
    let field = |rules: Result<Rules, crate::ConfigError>| rules.unwrap_err().field().to_owned();
    let rules = Rules::new;
    assert_eq!(field(rules().with_sensitive_key("-_ ")), "sensitive_key");
    assert_eq!(
        field(rules().with_sensitive_key(&"x".repeat(65))),
        "sensitive_key"
    );
    assert_eq!(field(rules().with_harmless_key("")), "harmless_key");
    assert_eq!(field(rules().with_secret_prefix("ab", 1)), "secret_prefix");
    assert_eq!(
        field(rules().with_secret_prefix("ab c", 1)),
        "secret_prefix"
    );
    assert_eq!(
        field(rules().with_secret_prefix("abc", 257)),
        "secret_prefix"
    );
    assert_eq!(field(rules().with_max_string(0)), "max_string");
    assert_eq!(field(rules().with_max_depth(65)), "max_depth");
    assert_eq!(field(rules().with_max_nodes(0)), "max_nodes");
    assert_eq!(field(rules().with_max_bytes(63)), "max_bytes");
    let full = (0..MAX_ENTRIES).try_fold(rules(), |r, i| r.with_sensitive_key(&format!("w{i}")));
    assert_eq!(
        field(full.unwrap().with_harmless_key("one")),
        "harmless_key"
    );
}

#[test]
fn an_own_prefix_finds_its_tokens_or_is_refused() {
    for prefix in ["_acme_", "-acme-", ".acme."] {
        let error = Rules::new().with_secret_prefix(prefix, 8).unwrap_err();
        assert!(
            error.reason().contains("begin with a letter or digit"),
            "{error}"
        );
    }
    for prefix in ["eyJacme_", "4cme.live-", "sk-acme-"] {
        let rules = Rules::new().with_secret_prefix(prefix, 8).unwrap();
        let found = rules.explain(&format!("by {prefix}1234abcd"));
        assert_eq!(found[0].rule(), "own-prefix");
    }
}

/// Only the characters that the docs name count for `min_tail`.
#[test]
fn marks_of_other_kinds_do_not_count_for_the_length_of_an_own_token() {
    let rules = Rules::new().with_secret_prefix("acme_", 8).unwrap();
    for text in ["acme_a.b/c+d~e", "acme_1234/src/"] {
        assert_eq!(rules.redact_text(text), text);
    }
    assert_eq!(rules.redact_text("acme_v1.ab+cd/ef"), "[REDACTED]");
    assert_eq!(rules.redact_text("acme_ab-cd_ef"), "[REDACTED]");
}

#[test]
fn white_space_around_json_stays() {
    let line = "{\"password\":\"hunter2\"}";
    let shown = "{\"password\":\"[REDACTED]\"}";
    for (before, after) in [("", "\n"), ("  ", "\r\n"), ("\n\t", "")] {
        let text = [before, line, after].concat();
        assert_eq!(redact_text(&text), [before, shown, after].concat());
    }
}

/// S-9c: a terminal would act on them.
#[test]
fn control_characters_of_a_text_are_escaped() {
    let rules = Rules::new();
    for (text, shown) in [
        ("a\u{1b}[31mb", "a\\u{1b}[31mb"),
        ("a\0b\u{8}\u{7f}\u{9b}c", "a\\u{0}b\\u{8}\\u{7f}\\u{9b}c"),
        ("safe\rforged", "safe\\u{d}forged"),
        ("two\r\nlines\tof\ntext", "two\r\nlines\tof\ntext"),
    ] {
        assert_eq!(rules.text(text, 100).to_string(), shown);
    }
    assert_eq!(
        rules.json(&json!("a\u{9b}b\u{1b}")).to_string(),
        r#""a\\u{9b}b\u001b""#
    );
}

#[test]
fn numbers_of_json_in_a_text_stay_as_they_are_written() {
    let numbers = r#"[123456789012345678901234567890,-1.10,1E5,1e400,0.1,18446744073709551615,7]"#;
    let text =
        format!(r#"{{"a":{numbers},"s":"1.10 \\\" 2.50","password":99999999999999999999999}}"#);
    let shown = format!(r#"{{"a":{numbers},"s":"1.10 \\\" 2.50","password":"[REDACTED]"}}"#);
    let same = |text: &str| {
        let text = redact_text(text).into_owned();
        text.replace(r#""password":"[REDACTED]","#, "")
            .replace(r#","password":"[REDACTED]""#, "")
    };
    assert_eq!(same(&text), same(&shown));
}
