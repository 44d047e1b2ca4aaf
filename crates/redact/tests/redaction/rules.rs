//! Rules as data: each has an example and a counter-example, explains itself and can be switched
//! off.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};
use toolcall_redact::{Rules, redact_text, rules};

use crate::{forms::secrets, none_of};

#[test]
fn each_rule_finds_its_example_and_says_so() {
    let mut failed = Vec::new();
    for rule in rules().filter(|rule| rule.id() != "own-prefix") {
        let found = Rules::new().explain(rule.example());
        if !found.iter().any(|finding| finding.rule() == rule.id()) {
            failed.push(format!("{}: {:?}: {found:?}", rule.id(), rule.example()));
        }
    }
    none_of("rules", &failed);
}

#[test]
fn no_rule_finds_its_counter_example() {
    let mut failed = Vec::new();
    for rule in rules() {
        let text = rule.counter_example();
        let found = Rules::new().explain(text);
        if redact_text(text) != text || !found.is_empty() {
            failed.push(format!("{}: {text:?}: {found:?}", rule.id()));
        }
    }
    none_of("rules", &failed);
}

#[test]
fn a_rule_that_is_switched_off_finds_nothing() {
    let mut failed = Vec::new();
    for rule in rules().filter(|rule| rule.id() != "own-prefix") {
        let others = Rules::new().without_rule(rule.id()).unwrap();
        let found = others.explain(rule.example());
        if found.iter().any(|finding| finding.rule() == rule.id()) {
            failed.push(format!("{}: {:?}", rule.id(), rule.example()));
        }
    }
    none_of("rules", &failed);
}

#[test]
fn a_false_alarm_is_explained_and_switched_off() {
    let text = "see the note sk-1234567890abcdef12 of the library";
    let found = Rules::new().explain(text);
    let [finding] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(finding.secret(), "sk-1234567890abcdef12");
    let rules = Rules::new().without_rule(finding.rule()).unwrap();
    assert_eq!(rules.redact_text(text), text);
    assert_ne!(rules.redact_text("password=hunter2"), "password=hunter2");
}

#[test]
fn findings_of_json_name_their_rules_and_debug_shows_no_secret() {
    let value = json!({
        "city": "Oslo", "password": 7, "argv": ["--token", "hunter2"],
        "header": { "name": "X-Api-Key", "value": "hunter3" }, "note": "https://ada:hunter4@h/x",
    });
    let found = Rules::new().explain_json(&value);
    let secrets: BTreeMap<_, _> = found.iter().map(|f| (f.secret(), f.rule())).collect();
    let expected = [
        ("7", "key"),
        ("ada:hunter4", "url"),
        ("hunter2", "element-of-array"),
        ("hunter3", "member"),
    ];
    assert_eq!(secrets, BTreeMap::from(expected));
    assert!(!format!("{found:?}").contains("hunter"), "{found:?}");
    let own = Rules::new().with_secret_prefix("acme_", 6).unwrap();
    assert_eq!(own.explain("by acme_123456")[0].rule(), "own-prefix");
}

/// What is encoded is hidden as a whole, by one rule.
#[test]
fn an_encoded_secret_is_explained_once_and_only_if_it_is_hidden() {
    for text in [
        "cGFzc3dvcmQ6IGh1bnRlcjIKaG9zdDogZGI=",
        "dXNlcjogYWRhCnBhc3N3b3JkOiBodW50ZXIy",
    ] {
        let found = Rules::new().explain(text);
        assert_eq!(
            found.iter().map(|f| f.rule()).collect::<Vec<_>>(),
            ["base64"]
        );
        let others = Rules::new().without_rule("base64").unwrap();
        assert_eq!(others.redact_text(text), text);
        assert_eq!(others.explain(text), []);
    }
}

#[test]
fn each_secret_of_the_corpus_is_explained() {
    let known: Vec<_> = rules().map(|rule| rule.id()).collect();
    let mut failed = Vec::new();
    for form in secrets() {
        let found = match &form.input {
            Value::String(text) => Rules::new().explain(text),
            json => Rules::new().explain_json(json),
        };
        if found.is_empty() || found.iter().any(|f| !known.contains(&f.rule())) {
            failed.push(format!("{}: {found:?}", form.name));
        }
    }
    none_of("secrets", &failed);
}

#[test]
fn an_id_of_no_rule_is_refused() {
    let error = Rules::new().without_rule("pears").unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid `rule`: `pears` is not a rule, see `toolcall_redact::rules()`"
    );
}

/// `UPDATE_EXPECT=1 cargo test -p toolcall-redact` writes the page.
#[test]
fn the_page_of_rules_is_that_of_the_table() {
    let mut page = String::from("| rule | finds |\n|---|---|\n");
    let mut vendors = BTreeMap::<_, Vec<_>>::new();
    for rule in rules() {
        match rule
            .finds()
            .strip_prefix('`')
            .filter(|_| rule.finds().contains(" or more "))
        {
            Some(form) => vendors
                .entry(rule.id())
                .or_default()
                .push(form.split_once('`').unwrap().0.to_owned()),
            None => writeln!(page, "| `{}` | {} |", rule.id(), rule.finds()).unwrap(),
        }
    }
    page += "\nTokens of vendors, by their prefixes:\n\n| rule | prefixes |\n|---|---|\n";
    for (id, prefixes) in vendors {
        writeln!(page, "| `{id}` | `{}` |", prefixes.join("` `")).unwrap();
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rules.md");
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&file, &page).unwrap();
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), page);
}
