//! The table of schemas.

use expect_test::expect;
use serde_json::{Value, json};
use tower_toolcall::{
    ConfigError,
    validate::{Schema, Schemas},
};

use crate::kit::{Trace, compile};

fn bad() -> Result<Schema, ConfigError> {
    Schema::compile(&json!({ "type": 7 }))
}

fn good() -> Result<Schema, ConfigError> {
    Schema::compile(&json!({ "type": "object" }))
}

#[test]
fn a_list_replaces_that_of_its_server_and_no_other() {
    let schemas = Schemas::new();
    schemas.insert(None, "local", good().unwrap());
    schemas.replace(Some("a"), [("one", good()), ("two", good())]);
    schemas.replace(Some("b"), [("one", good())]);
    schemas.replace(Some("a"), [("three", good())]);
    assert_eq!(schemas.len(), 3);
    let has = |server, tool| schemas.get(server, tool).is_some();
    assert!(has(None, "local") && has(Some("a"), "three") && has(Some("b"), "one"));
    assert!(!has(Some("a"), "one") && !has(Some("a"), "local"));
    assert!(
        schemas.clone().get(Some("b"), "one").is_some(),
        "clones are the same table"
    );
}

#[test]
fn one_warning_tells_of_a_list() {
    let (trace, _guard) = Trace::begin();
    let schemas = Schemas::new();
    let large = json!({ "properties": { "a": { "pattern": r"^[a-z]{1,9}\p{L}{2,20}$" } } });
    let list = [
        ("z", bad()),
        ("b", bad()),
        ("c", good()),
        ("d", Schema::compile(&large)),
    ];
    schemas.replace(Some("docs"), list);
    let events = trace.events("tool.schema");
    assert_eq!(events.len(), 1);
    for field in [
        "WARN",
        "server=docs",
        "tool=b",
        "tools=4",
        "unchecked=3",
        "error=\"is not one: ",
    ] {
        assert!(events[0].contains(field), "{}", events[0]);
    }
    schemas.replace(Some("docs"), [("c", good())]);
    assert_eq!(trace.events("tool.schema").len(), 1, "nothing to tell");
}

#[test]
fn what_is_refused_can_be_asked_for() {
    let schemas = Schemas::new();
    let large = json!({ "properties": { "a": { "pattern": r"^[a-z]{1,9}\p{L}{2,20}$" } } });
    schemas.replace(
        Some("docs"),
        [("b", bad()), ("c", good()), ("d", Schema::compile(&large))],
    );
    schemas.replace(None, [("a", bad())]);
    let refused = schemas.refused();
    let names: Vec<&str> = refused.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "docs/b", "docs/d"]);
    expect![[r#"has a pattern that is left out: "^[a-z]{1,9}\\p{L}{2,20}$""#]]
        .assert_eq(refused[2].1.reason());
    assert!(schemas.get(Some("docs"), "b").is_none() && schemas.get(Some("docs"), "d").is_some());
}

/// Everything that grows is bounded, and no server takes the room of others.
#[test]
fn ten_thousand_are_kept_and_a_thousand_of_each_list() {
    let (trace, _guard) = Trace::begin();
    let schemas = Schemas::new();
    let schema = good().unwrap();
    let list = |tools| (0..tools).map(|n| (format!("t{n}"), Ok(schema.clone())));
    schemas.replace(Some("0"), list(1200));
    assert_eq!(schemas.len(), 1000);
    let event = &trace.events("tool.schema")[0];
    assert!(event.contains("unchecked=200"), "{event}");
    assert!(schemas.get(Some("0"), "t999").is_some());
    for server in 1..11 {
        schemas.replace(Some(&server.to_string()), list(1000));
    }
    assert_eq!(schemas.len(), 10_000);
    assert!(!schemas.insert(None, "two", schema.clone()));
    schemas.replace(Some("0"), [("one", good())]);
    assert!(schemas.insert(None, "two", schema));
    assert_eq!(schemas.len(), 9002);
}

/// A user's own map.
#[test]
fn a_map_of_schemas_is_a_list() {
    let own =
        std::collections::BTreeMap::from([("a", json!({ "type": "object" })), ("b", json!({}))]);
    let schemas = Schemas::new();
    schemas.replace(
        None,
        own.iter()
            .map(|(tool, schema): (_, &Value)| (tool, Schema::compile(schema))),
    );
    assert_eq!(schemas.len(), 2);
    assert!(schemas.get(None, "b").unwrap().is_valid(&json!(1)));
}

#[test]
fn readers_do_not_wait_for_writers() {
    let schemas = Schemas::new();
    schemas.replace(None, [("t", good())]);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..200 {
                schemas.replace(
                    None,
                    [("t", good()), ("u", Ok(compile(json!({ "minimum": n }))))],
                );
            }
        });
        while !writer.is_finished() {
            assert!(schemas.get(None, "t").is_some(), "never away");
        }
    });
}

#[test]
fn a_server_can_be_taken_out() {
    let schemas = Schemas::new();
    schemas.replace(Some("a"), [("one", good()), ("two", bad())]);
    schemas.replace(Some("b"), [("one", good())]);
    schemas.insert(None, "local", good().unwrap());
    schemas.remove_server(Some("a"));
    assert_eq!(schemas.len(), 2);
    schemas.remove_server(None);
    assert!(schemas.len() == 1 && schemas.get(Some("b"), "one").is_some());
}

#[test]
fn debug_shows_a_number() {
    let schemas = Schemas::new();
    schemas.insert(None, "CANARY", good().unwrap());
    assert_eq!(format!("{schemas:?}"), "Schemas { len: 1, .. }");
}
