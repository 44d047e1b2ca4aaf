//! Rules as data: each has an example and a counter-example, explains itself and can be switched
//! off.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};
use toolcall_redact::{Rule, Rules, Tail, redact_text, rules};

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
    let known: Vec<_> = rules().map(|rule| rule.id().to_owned()).collect();
    let mut failed = Vec::new();
    for form in secrets() {
        let found = match &form.input {
            Value::String(text) => Rules::new().explain(text),
            json => Rules::new().explain_json(json),
        };
        if found.is_empty() || found.iter().any(|f| !known.iter().any(|id| id == f.rule())) {
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
                .entry(rule.id().to_owned())
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

fn acme() -> Rule {
    Rule::of_tokens("acme", "acme_", Tail::Plain, 8).with_example("acme_1234abcd")
}

#[test]
fn an_own_rule_is_explained_and_switched_off() {
    let rules = Rules::new().with_rule(acme()).unwrap();
    let text = "by acme_5678efgh";
    assert_eq!(rules.redact_text(text), "by [REDACTED]");
    let found = rules.explain(text);
    assert_eq!(
        (found[0].rule(), found[0].secret()),
        ("acme", "acme_5678efgh")
    );
    let others = rules.without_rule("acme").unwrap();
    assert_eq!(others.redact_text(text), text);
    assert_eq!(others.explain(text), []);
}

#[test]
fn an_anchor_is_shown_and_may_have_a_prefix_of_any_length_before_it() {
    let badge = Rule::behind("badge", "badge no. ", Tail::Any, 5).with_example("badge no. A-123");
    let rules = Rules::new().with_rule(badge).unwrap();
    assert_eq!(
        rules.redact_text("badge no. Z-987, ok"),
        "badge no. [REDACTED], ok"
    );
    assert_eq!(rules.redact_text("badge no. Z-9, ok"), "badge no. Z-9, ok");
}

#[test]
fn an_own_rule_that_cannot_work_is_refused_with_its_value() {
    let base = |id| Rule::of_tokens(id, "acme_", Tail::Plain, 8).with_example("acme_1234abcd");
    let long = "x".repeat(2_000);
    for (rule, error) in [
        (base("pair"), "invalid `rule.id`: `pair` is a built-in rule"),
        (
            base("github"),
            "invalid `rule.id`: `github` is a built-in rule",
        ),
        (
            base("a b"),
            "invalid `rule.id`: `a b` must be 1 to 64 ASCII letters, digits, `-` or `_`",
        ),
        (
            Rule::of_tokens("acme", "_a", Tail::Any, 8),
            "invalid `rule.prefix`: `_a` must be 3 to 64",
        ),
        (
            Rule::behind("acme", "acme", Tail::Any, 8),
            "invalid `rule.anchor`: `acme` must be 3 to 64",
        ),
        (
            Rule::of_tokens("acme", "acme_", Tail::Any, 0),
            "invalid `rule.min`: must be 1 to 256, is 0",
        ),
        (
            acme().with_example(""),
            "invalid `rule.example`: must be 1 to 1024, is 0",
        ),
        (
            acme().with_example(&long),
            "invalid `rule.example`: must be 1 to 1024, is 2000",
        ),
        (
            acme().with_example("acme_12"),
            "invalid `rule.example`: `acme` finds nothing in `acme_12`",
        ),
        (
            acme().with_counter_example("see acme_8765abcd"),
            "invalid `rule.counter_example`: `acme` finds a secret in `see acme_8765abcd`",
        ),
    ] {
        let found = Rules::new().with_rule(rule).unwrap_err().to_string();
        assert!(found.starts_with(error), "{found}");
    }
    let twice = Rules::new()
        .with_rule(acme())
        .unwrap()
        .with_rule(acme())
        .unwrap_err();
    assert_eq!(
        twice.to_string(),
        "invalid `rule.id`: `acme` was added before"
    );
}

#[test]
fn own_rules_are_bounded_in_number() {
    let row = |n: usize| {
        let prefix = format!("acme{n}_");
        let example = format!("{prefix}1234abcd");
        Rule::of_tokens(&format!("acme-{n}"), &prefix, Tail::Plain, 8).with_example(&example)
    };
    let all = (0..256).try_fold(Rules::new(), |rules, n| rules.with_rule(row(n)));
    let error = all.unwrap().with_rule(row(256)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid `rule`: more than 256 entries were added"
    );
}
