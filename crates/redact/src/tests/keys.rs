//! Keys that are sensitive, and their look-alikes.

use super::*;
use crate::{filter::suspicious, words};

#[rustfmt::skip]
const SENSITIVE: &[&str] = &[
    "apiKey", "api_key", "X-Auth-Token", "client-secret", "passwd", "privateKey", "accesskey", "mytoken", "authheader", "Authorization", "PASSWORD", "author_token", "adminTokens",
    "common_key", "daemon_key", "addon_key", "private_key_notes", "api_key_word", "DB_PASS", "pwd", "APIKey", "key2", "key", "token", "auth", "user[password]", "db.password", "keyboard_key",
    "monkeyToken", "authorization", "authentication", "dbpass", "userpwd", "pass2", "otp", "totp_code", "jwt", "sid", "session_id", "PHPSESSID", "JSESSIONID", "csrf", "pin", "cvv", "db_pw", "pw",
    "cookie", "Set-Cookie", "credentials", "creds", "AWS_SECRET_ACCESS_KEY", "pass\u{200b}word", "ｐａｓｓｗｏｒｄ", "to\u{feff}ken", "ToKeN", "t-o-k-e-n", "refresh_token", "tokens", "new_tokens", "max_token_secret",
    "auth_order", "tokenizer_token", "passphrase", "Passwort", "authorized_keys", "x_sig", "author_auth", "secretary_secret", "token_value", "pässword_key", "\u{212a}ey",
];

#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "max_tokens", "monkey", "author", "keyboard", "maxTokens", "query", "keywords", "author_id", "token_count", "total_tokens", "compass", "passenger", "maxtokens", "turkey", "authors", "authored_by",
    "authority", "keyframes", "tokenizer", "tokenize", "secretary", "hockey", "donkey", "prompt_tokens", "completion_tokens", "input_tokens", "cache_read_input_tokens", "reasoning_tokens",
    "max_output_tokens", "promptTokenCount", "totalTokenCount", "token_type", "token_limit", "tokens_used", "eos_token_id", "primary_key", "coauthors", "keynote", "whiskey", "authorized", "bypass",
    "passive", "design", "inside", "path", "url", "name", "city", "created_at", "description", "spinner", "shipping", "x-ratelimit-remaining-tokens", "authenticated", "secrete", "cookies_baked", "keycloak_url", "tokens_per_second", "", "日本", "ключ",
];

#[test]
fn sensitive_keys_are_told_from_their_look_alikes() {
    let wrong = |keys: &[&'static str], is: bool| -> Vec<&str> {
        keys.iter()
            .copied()
            .filter(|key| is_sensitive_key(key) != is)
            .collect()
    };
    assert_eq!(wrong(SENSITIVE, true), [""; 0]);
    assert_eq!(wrong(HARMLESS, false), [""; 0]);
}

/// Common names are looked up. With a word of the user's own, they are taken apart.
#[test]
fn common_names_are_as_strong_when_they_are_taken_apart() {
    let rules = Rules::new().with_harmless_key("snowkey").unwrap();
    let mut names = words::COMMON.split_whitespace();
    assert!(names.all(|name| rules.strength(name) == crate::keys::Strength::Strong));
}

#[test]
fn lists_of_words_are_in_the_order_of_their_bits() {
    let kinds = [
        ("strong", words::STRONG),
        ("weak", words::WEAK),
        ("whole", words::WHOLE),
        ("sure", words::SURE),
        ("vague", words::VAGUE),
        ("harmless", words::HARMLESS),
        ("phrase", words::PHRASE),
        ("quantity", words::QUANTITY),
        ("count", words::COUNT),
        ("counts", words::COUNTS),
        ("failure", words::FAILURE),
        ("described", words::DESCRIBED),
        ("failing", words::FAILING),
        ("noun", words::NOUN),
        ("kind", words::KIND),
    ];
    let names = include_str!("../words.txt").lines();
    let names: Vec<_> = names
        .filter_map(|line| Some(line.split_once(": ")?.0))
        .collect();
    assert_eq!(names, kinds.map(|(name, _)| name));
    let bits = words::lists().map(|(kind, _)| kind);
    assert!(bits.eq(kinds.map(|(_, kind)| kind)));
}

/// No sensitive word slips through the filter.
#[test]
fn the_filter_stops_every_word() {
    let sensitive = words::STRONG | words::WEAK | words::WHOLE;
    let lists = words::lists().filter(|(kind, _)| kind & sensitive != 0);
    let words: Vec<_> = lists.flat_map(|(_, words)| words.split(' ')).collect();
    assert_eq!(words.len(), 59);
    for word in words {
        assert!(suspicious(word), "{word}");
    }
}

#[test]
fn a_word_is_found_anywhere_in_a_long_key() {
    for at in [0, 70, 79, 80, 90, 120, 128, 200, 1_000] {
        let key = format!("{}_password_{}", "x".repeat(at), "y".repeat(300));
        assert!(is_sensitive_key(&key), "{at}");
    }
    assert!(!is_sensitive_key(&"author_id_".repeat(100)));
}

/// Letters that have no ASCII form are distinct.
#[test]
fn own_entries_in_other_scripts_match_only_themselves() {
    let rules = Rules::new().with_sensitive_key("口座").unwrap();
    let rules = rules.with_harmless_key("名前").unwrap();
    assert!(rules.is_sensitive_key("口座") && rules.is_sensitive_key("my_口座"));
    assert!(!rules.is_sensitive_key("名前") && !rules.is_sensitive_key("住所"));
    let rules = rules.with_sensitive_key("ЦИФРЫ").unwrap();
    assert!(rules.is_sensitive_key("цифры") && !rules.is_sensitive_key("буквы"));
    assert_eq!(rules.redact_text("口座=1234567"), "口座=[REDACTED]");
}
