//! The layer of the documented stack.
#![cfg(feature = "settings")]

use expect_test::expect;
use serde_json::json;
use tower::Layer;
use tower_toolcall::{
    ErrorKind, ToolCall, ToolError,
    settings::{Place, Preset, Settings},
    validate::{ValidateLayer, Validation},
};

use crate::kit::{call, run, schemas};

fn wrong() -> ToolCall {
    call(json!({ "query": "x", "limit": "5" }))
}

async fn answer(settings: &str, call: ToolCall) -> Result<serde_json::Value, ToolError> {
    let settings: Settings = toml::from_str(settings).unwrap();
    let stack = settings.stack().with_schemas(&schemas()).build().unwrap();
    run(stack, call).await.0
}

#[tokio::test]
async fn a_stack_with_schemas_checks_arguments() {
    let error = answer("", wrong()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    expect![[r#"limit: is not of type "integer""#]].assert_eq(error.message());
}

#[tokio::test]
async fn a_stack_without_schemas_does_not() {
    let stack = Settings::default().stack().build().unwrap();
    assert!(run(stack, wrong()).await.0.is_ok());
}

/// H1: global, and per tool.
#[tokio::test]
async fn each_key_has_its_effect() {
    assert!(answer("[validate]\nenabled = false", wrong()).await.is_ok());
    assert_eq!(
        answer("[validate]\nrepair = true", wrong()).await.unwrap()["limit"],
        5
    );
    assert_eq!(
        answer("[tools.search]\nvalidate = false", wrong())
            .await
            .unwrap()["limit"],
        "5"
    );
    assert_eq!(
        answer("[tools.search]\nrepair = true", wrong())
            .await
            .unwrap()["limit"],
        5
    );
    let file = "[validate]\nrepair = true\n[tools.search]\nrepair = false";
    assert!(answer(file, wrong()).await.is_err());
    let file = "[validate]\nrepair = true\n[tools.search]\nvalidate = true";
    assert_eq!(answer(file, wrong()).await.unwrap()["limit"], 5);
    let error = answer("[validate]\nheading = \"No\"", wrong())
        .await
        .unwrap_err();
    expect![[r#"No: limit: is not of type "integer""#]].assert_eq(error.message());
}

#[tokio::test]
async fn a_tool_and_a_call_beat_what_is_off_for_all() {
    let off = "[validate]\nenabled = false";
    assert_eq!(answer(off, wrong()).await.unwrap()["limit"], "5");
    let mut checked = wrong();
    checked.extensions_mut().insert(Validation::On);
    let refused = answer(off, checked).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let of_tool = format!("{off}\n[tools.search]\nvalidate = true");
    assert!(answer(&of_tool, wrong()).await.is_err());
    let repaired = format!("{of_tool}\nrepair = true");
    assert_eq!(answer(&repaired, wrong()).await.unwrap()["limit"], 5);
}

/// P18: a setting that would do nothing is a warning, by its key.
#[test]
fn repairs_where_nothing_is_checked_are_warnings() {
    let files = [
        "[validate]\nenabled = false\n[tools.search]\nrepair = true",
        "[tools.search]\nvalidate = false\nrepair = true",
    ];
    let warnings = files.map(|file| {
        let settings: Settings = toml::from_str(file).unwrap();
        settings.stack().build().map(drop).unwrap();
        assert_eq!(settings.warnings().len(), 1, "{file}");
        settings.warnings()[0].to_string()
    });
    expect![[r#"
        invalid `tools.search.repair`: `validate.enabled` is false, so it means nothing
        invalid `tools.search.repair`: `tools.search.validate` is false, so it means nothing"#]]
    .assert_eq(&warnings.join("\n"));
    let refused = |file: &str| {
        let settings: Result<Settings, _> = toml::from_str(file);
        let built = settings.unwrap().stack().build();
        built.map(drop).unwrap_err().to_string()
    };
    assert!(refused("[validate]\nheading = \"\"").starts_with("invalid `validate.heading`: "));
    for file in [
        "[validate]\nenabled = false\n[tools.search]\nrepair = false",
        "[validate]\nrepair = true\n[tools.search]\nvalidate = false",
        "[validate]\nenabled = false\n[tools.search]\nvalidate = true\nrepair = true",
    ] {
        let settings: Settings = toml::from_str(file).unwrap();
        settings.stack().build().map(drop).unwrap();
    }
}

#[test]
fn built_by_hand_it_prints_the_same() {
    let mut settings = Settings::default();
    settings.validate.strict = true;
    settings.validate.heading = Some("No".into());
    let table = schemas();
    let by_hand = ValidateLayer::new(&table).strict().with_heading("No");
    assert_eq!(
        format!("{:?}", settings.validate_layer(&table)),
        format!("{by_hand:?}")
    );
}

/// System E's text.
#[tokio::test]
async fn the_preset_of_an_http_proxy_has_its_systems_words() {
    let stack = Settings::preset(Preset::HttpProxy)
        .stack()
        .with_schemas(&schemas());
    let wrong = call(json!({ "limit": "5" }));
    let error = run(stack.build().unwrap(), wrong).await.0.unwrap_err();
    expect![[r#"Argument validation failed: limit: is not of type "integer"; root: "query" is a required property"#]].assert_eq(error.message());
}

/// What a policy of the user's sees is what is sent.
#[tokio::test]
async fn own_layers_for_a_call_see_arguments_that_fit() {
    let mut settings = Settings::default();
    settings.validate.repair = true;
    let sees = tower_layer::layer_fn(
        |inner: tower_toolcall::settings::Below<serde_json::Value>| {
            tower::ServiceExt::map_request(inner, |call: ToolCall| {
                assert_eq!(call.arguments()["limit"], 5);
                call
            })
        },
    );
    let stack = settings
        .stack()
        .with_schemas(&schemas())
        .with_layer(Place::Call, sees);
    let service = stack.build().unwrap();
    let (tool, _) = crate::kit::echo();
    tower::ServiceExt::oneshot(service.layer(tool), wrong())
        .await
        .unwrap();
}
