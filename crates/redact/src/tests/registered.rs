//! Values that were sent as secrets, H-7.

use serde_json::{Value, json};

use crate::{REDACTED, Rules, TRUNCATED};

fn rules(values: &[&str]) -> Rules {
    Rules::new().with_secrets(values.iter().copied())
}

#[test]
fn a_registered_value_is_hidden_in_each_form() {
    let rules = rules(&["marma/lade\"7&x é"]);
    for text in [
        r#"no user marma/lade"7&x é here"#,
        r#"{"detail": "no user marma/lade\"7&x é here"}"#,
        r#"{"detail": "{\"inner\": \"marma\/lade\\\"7\u0026x \u00e9\"}"}"#,
        "detail: marma\\/lade\\\"7\\u0026x \\u00e9 and {no JSON",
        "GET /users/marma%2Flade%227%26x%20%C3%A9?q=1",
        "GET /users/marma%252Flade%25227%2526x%2520%25C3%25A9?q=1",
        "<p>marma/lade&quot;7&amp;x &#233;</p>",
    ] {
        let shown = rules.redact_text(text);
        assert!(shown.contains(REDACTED), "{text} -> {shown}");
        assert!(!shown.contains("lade"), "{text} -> {shown}");
    }
}

#[test]
fn base64_of_a_registered_value_is_hidden() {
    let shown = rules(&["marmalade-of-oranges"]);
    let shown = shown.redact_text("sent YWRhOm1hcm1hbGFkZS1vZi1vcmFuZ2Vz, refused");
    assert_eq!(shown, "sent [REDACTED], refused");
}

#[test]
fn short_values_and_marks_are_not_registered() {
    let text = "seven77 [REDACTED] and the rest...[truncated]";
    let rules = rules(&["seven77", " seven77 ", "REDACTED", "truncated"]);
    assert_eq!(rules.redact_text(text), text);
    assert_eq!(rules, Rules::new());
}

#[test]
fn the_longest_of_overlapping_values_is_hidden_whole() {
    let rules = rules(&["marmalade", "marmalade-jar", "jar-of-plums"]);
    assert_eq!(
        rules.redact_text("a marmalade-jar-of-plums, marmalade"),
        "a [REDACTED], [REDACTED]"
    );
}

#[test]
fn a_credential_is_hidden_without_its_scheme() {
    let rules = rules(&["Bearer marmalade7"]);
    assert_eq!(rules.redact_text("no marmalade7"), "no [REDACTED]");
}

#[test]
fn numbers_keys_and_media_are_searched_in_views() {
    let rules = rules(&["1234567890", "marmalade7"]);
    let value = json!({
        "id": 1234567890,
        "marmalade7": 1,
        "picture": { "type": "image", "mimeType": "image/png", "data": "aaaamarmalade7aaaa" },
    });
    let view = rules.json(&value).to_string();
    assert!(
        !view.contains("1234567890") && !view.contains("marmalade7"),
        "{view}"
    );
    let mut hidden = value;
    rules.hide_secrets(&mut hidden);
    let hidden = hidden.to_string();
    assert!(
        !hidden.contains("1234567890") && !hidden.contains("marmalade7"),
        "{hidden}"
    );
}

#[test]
fn a_value_beyond_the_cut_is_not_shown_in_part() {
    let secret = "q".repeat(3000);
    let rules = rules(&[&secret]);
    let text = format!("{} {secret} rest", "word ".repeat(30));
    let shown = rules.text(&text, 200).to_string();
    assert!(!shown.contains("qqq"), "{shown}");
    let cut = format!("no user {}{TRUNCATED}", &secret[..9]);
    assert_eq!(
        rules.without_cut_secret(&cut),
        format!("no user {REDACTED}{TRUNCATED}")
    );
}

#[test]
fn more_values_than_are_kept_hide_all_texts() {
    let values: Vec<String> = (0..10_000).map(|n| format!("marmalade{n:05}")).collect();
    let rules = Rules::new().with_secrets(values.iter().map(|value| &**value));
    assert_eq!(rules.redact_text("no user marmalade09999"), REDACTED);
    assert_eq!(rules.redact_text(REDACTED), REDACTED);
    let merged = Rules::new()
        .with_secrets(["marmalade7"])
        .with_secrets_of(&rules);
    assert_eq!(merged.redact_text("no user marmalade09999"), REDACTED);
}

#[test]
fn values_of_secret_members_are_registered() {
    let value = json!({
        "password": "administrator",
        "key": "PROJ-12345678",
        "token_file": "/run/secrets/token",
        "nested": [{ "access_token": ["first-one", "second-one"], "pin": 12345678 }],
        "api_key": 9876543210_u64,
        "city": "Trondheim",
    });
    let Value::Object(object) = value else {
        unreachable!()
    };
    let rules = Rules::new().with_secrets_in(&object);
    for hidden in ["administrator", "first-one", "second-one", "9876543210"] {
        assert_eq!(rules.redact_text(hidden), REDACTED, "{hidden}");
    }
    for shown in [
        "PROJ-12345678",
        "/run/secrets/token",
        "12345678",
        "Trondheim",
    ] {
        assert_eq!(rules.redact_text(shown), shown);
    }
    let rules = Rules::new().with_secrets_under(&object, |key| key == "nested");
    assert_eq!(
        rules.redact_text("second-one or 12345678"),
        "[REDACTED] or [REDACTED]"
    );
}

/// Python writes such characters as two codes.
#[test]
fn a_value_is_found_behind_codes_of_two_parts() {
    let rules = Rules::new().with_secrets(["caf\u{e9} \u{1f600} key"]);
    let text = r#"said {"k":"caf\u00e9 \ud83d\ude00 key"}"#;
    assert_eq!(rules.redact_text(text), r#"said {"k":"[REDACTED]"}"#);
    assert_eq!(
        rules.without_secrets(r"\ud83d and \ud83dx"),
        r"\ud83d and \ud83dx"
    );
}

#[test]
fn a_value_with_escapes_is_found_at_the_beginning_of_a_long_text() {
    let rules = Rules::new().with_secrets(["pa\"ssword of ada"]);
    let text = format!(r#"pa\"ssword of ada {}"#, "filler ".repeat(40_000));
    assert!(
        rules
            .without_secrets(&text)
            .starts_with("[REDACTED] filler")
    );
}

#[test]
fn rules_that_forgot_their_secrets_hide_by_form_alone() {
    let rules = Rules::new().with_secrets(["marmalade7x"]).forget_secrets();
    let text = "marmalade7x, password=hunter2";
    assert_eq!(rules.redact_text(text), "marmalade7x, password=[REDACTED]");
    assert!(rules.are_built_in());
}

fn assert_hides(value: &str, texts: &[&str], part: &str) {
    let rules = rules(&[value]);
    let shown = texts.iter().map(|text| rules.without_secrets(text));
    let failed: Vec<_> = shown.filter(|shown| shown.contains(part)).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_value_of_several_lines_is_hidden_with_any_line_ends() {
    let texts = [
        "said first lane\r\nsecond lane, no",
        "said first lane\n    second lane, no",
        r"said first lane\r\nsecond lane, no",
        r"said first lane\\r\\nsecond lane, no",
        "said first%20lane%0D%0Asecond%20lane&no",
        "<pre>first lane&#13;&#10;second lane</pre>",
    ];
    assert_hides("first lane\nsecond lane", &texts, "second");
    assert_hides("first lane\r\n\tsecond lane", &texts, "first");
}

#[test]
fn a_value_is_hidden_as_a_form_sends_it() {
    let texts = [
        "q=first+lane%0D%0Asecond+lane%21&no",
        "q=first+lane%0Asecond+lane!&no",
        r#"{"body":"q=first+lane%0D%0Asecond+lane%21"}"#,
        "q=first%2Blane%250Asecond%2Blane%2521",
    ];
    assert_hides("first lane\nsecond lane!", &texts, "lane");
    assert_hides(
        "a+b/c=d+ef",
        &["a+b/c=d+ef", "a%2Bb%2Fc%3Dd%2Bef", r"a+b\/c=d+ef"],
        "c",
    );
}

/// A form of escapes may be a part of the value.
#[test]
fn a_value_that_has_escapes_itself_is_hidden_with_more_of_them() {
    let texts = [
        r#"a%41\"bcdefg"#,
        "a%2541%22bcdefg",
        "a%41&quot;bcdefg",
        r#"{\"k\":\"a%41\\\"bcdefg\"}"#,
    ];
    assert_hides("a%41\"bcdefg", &texts, "bcdefg");
    assert_hides(
        "C:\\new\\user key",
        &[r"C:\\new\\user key", "C:%5Cnew%5Cuser+key"],
        "user",
    );
}

#[test]
fn the_beginning_of_a_value_with_escapes_is_hidden_at_a_cut() {
    let rules = rules(&["marma/lade\"7&x é\nplum"]);
    for head in [
        r"no user marma\/lade",
        r#"no user marma/lade\"#,
        r#"no user marma/lade\"7\u0026x \u00"#,
        "no user marma%2Flade%2",
        "no user marma%252Flade%25",
        "no user marma%2Flade%227%26x+%C3",
        "no user marma/lade&quo",
        "no user marma/lade&quot;7",
    ] {
        let shown = rules
            .without_cut_secret(&format!("{head}{TRUNCATED}"))
            .into_owned();
        assert_eq!(shown, format!("no user {REDACTED}{TRUNCATED}"), "{head}");
    }
}

#[test]
fn a_value_that_the_end_of_what_is_read_halves_is_not_shown() {
    let secret = "\"q".repeat(5_000);
    let rules = rules(&[&secret]);
    for form in [
        secret.clone(),
        secret.replace('"', "\\\""),
        secret.replace('"', "%2522"),
    ] {
        let text = format!("{form} ").repeat(60);
        let shown = rules.text(&text, 4_000).to_string();
        assert!(
            !shown.contains("qq") && !shown.contains('q'),
            "{:.300}",
            &shown[shown.len() - 300..]
        );
    }
}

#[test]
fn a_value_with_escapes_is_found_anywhere_in_a_long_text() {
    let rules = rules(&["pa\"ssword of ada"]);
    for filler in [131_060, 131_075, 400_000] {
        let text = format!(r#"{}é pa\"ssword of ada."#, "%".repeat(filler));
        assert!(
            rules.without_secrets(&text).ends_with("é [REDACTED]."),
            "{filler}"
        );
    }
}
