//! Functions of typed arguments.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use expect_test::expect;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_toolcall::{
    BoxError, ErrorKind, Execution, ToolCall, ToolError,
    router::{Router, tool_fn, tool_fn_with_call},
};

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "read by serde")]
struct Weather {
    city: String,
    #[serde(default)]
    days: u8,
    #[serde(default)]
    unit: Unit,
    place: Option<Place>,
    #[serde(default)]
    limits: HashMap<String, u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Unit {
    #[default]
    Celsius,
    Kelvin,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "read by serde")]
struct Place {
    at: (f64, f64),
    host: Option<IpAddr>,
}

pub(crate) async fn refusal<A>(arguments: Value) -> ToolError
where
    A: serde::de::DeserializeOwned + Send + 'static,
{
    let tool = tool_fn(|_: A| async { Ok::<_, BoxError>(()) });
    let router = Router::builder().tool("weather", tool).build().unwrap();
    let call = ToolCall::new("weather").with_json(arguments).unwrap();
    router.oneshot(call).await.unwrap_err()
}

/// X4, E4: what to correct, and where.
#[tokio::test]
async fn the_error_tells_the_field_and_what_it_must_be() {
    let mut texts = String::new();
    for arguments in [
        json!({}),
        json!({ "city": 7 }),
        json!({ "city": null }),
        json!({ "city": "Oslo", "days": 300 }),
        json!({ "city": "Oslo", "days": "3" }),
        json!({ "city": "Oslo", "days": 1.5 }),
        json!({ "city": "Oslo", "days": [] }),
        json!({ "city": "Oslo", "unit": "f" }),
        json!({ "city": "Oslo", "unit": 7 }),
        json!({ "city": "Oslo", "place": {} }),
        json!({ "city": "Oslo", "place": { "at": [1, "x"] } }),
        json!({ "city": "Oslo", "place": { "at": [1] } }),
        json!({ "city": "Oslo", "place": { "at": [1, 2, 3] } }),
        json!({ "city": "Oslo", "place": { "on": 1 } }),
        json!({ "city": "Oslo", "place": "x" }),
        json!({ "city": "Oslo", "place": { "at": [1, 2], "host": "x" } }),
        json!({ "city": "Oslo", "limits": { "own": "x" } }),
    ] {
        let error = refusal::<Weather>(arguments.clone()).await;
        assert_eq!(
            (error.kind(), error.execution(), error.tool()),
            (
                ErrorKind::InvalidInput,
                Execution::NotStarted,
                Some("weather")
            )
        );
        assert!(error.model_message().contains(error.message()));
        texts += &format!("{arguments}: {}\n", error.message());
    }
    expect![[r#"
        {}: the field `city` is missing
        {"city":7}: `city`: expected a string, not an integer
        {"city":null}: `city`: expected a string, not null
        {"city":"Oslo","days":300}: `days`: expected u8, not this integer
        {"city":"Oslo","days":"3"}: `days`: expected u8, not a string
        {"city":"Oslo","days":1.5}: `days`: expected u8, not a number
        {"city":"Oslo","days":[]}: `days`: expected u8, not an array
        {"city":"Oslo","unit":"f"}: `unit`: expected one of `celsius`, `kelvin`
        {"city":"Oslo","unit":7}: `unit`: expected a string or an object, not an integer
        {"city":"Oslo","place":{}}: `place`: the field `at` is missing
        {"city":"Oslo","place":{"at":[1,"x"]}}: `place.at[1]`: expected f64, not a string
        {"city":"Oslo","place":{"at":[1]}}: `place.at`: expected 2 elements, not 1
        {"city":"Oslo","place":{"at":[1,2,3]}}: `place.at`: expected 2 elements, not 3
        {"city":"Oslo","place":{"on":1}}: `place`: unknown field, expected one of `at`, `host`
        {"city":"Oslo","place":"x"}: `place`: expected an object, not a string
        {"city":"Oslo","place":{"at":[1,2],"host":"x"}}: `place.host`: the value does not fit
        {"city":"Oslo","limits":{"own":"x"}}: `limits.*`: expected u32, not a string
    "#]]
    .assert_eq(&texts);
    let error = refusal::<Weather>(json!({})).await;
    expect!["Tool 'weather' refused its arguments: the field `city` is missing. Correct them and call it again."].assert_eq(&error.model_message());
}

/// The model knows the tool by another name than the function's router, and routers nest.
#[tokio::test]
async fn the_model_reads_the_name_that_it_called() {
    let inner = || {
        let tool = tool_fn(|_: Place| async { Ok::<_, BoxError>(()) });
        Router::builder()
            .server("docs", tool, ["search"])
            .build()
            .unwrap()
    };
    let outer = Router::builder()
        .server("hub", inner(), ["docs__search"])
        .build()
        .unwrap();
    let mut texts = String::new();
    for (router, name) in [(inner(), "docs__search"), (outer, "hub__docs__search")] {
        let error = router.oneshot(ToolCall::new(name)).await.unwrap_err();
        texts += &format!("{}\n", error.model_message());
    }
    expect![[r#"
        Tool 'docs__search' refused its arguments: the field `at` is missing. Correct them and call it again.
        Tool 'hub__docs__search' refused its arguments: the field `at` is missing. Correct them and call it again.
    "#]].assert_eq(&texts);
}

/// E4: 200 characters, the dots of the cut among them.
#[tokio::test]
async fn the_text_for_a_model_is_cut_at_its_end() {
    #[derive(Debug, Deserialize)]
    struct Long {
        _abcdefghijklmnopqrstuvwxyz_abcdefghijklmnopqrstuvwxyz_abcdefghi: u8,
    }
    let why =
        "the field `_abcdefghijklmnopqrstuvwxyz_abcdefghijklmnopqrstuvwxyz_abcdefghi` is missing";
    let full = |name: &str| {
        format!("Tool '{name}' refused its arguments: {why}. Correct them and call it again.")
    };
    let longest = "n".repeat(198 - full("").chars().count());
    for (name, is_cut) in [(longest.clone(), false), (longest + "n", true)] {
        let tool = tool_fn(|_: Long| async { Ok::<_, BoxError>(()) });
        let router = Router::builder().tool(&*name, tool).build().unwrap();
        let error = router.oneshot(ToolCall::new(&*name)).await.unwrap_err();
        let text = error.model_message();
        assert!(
            text.ends_with(". Correct them and call it again."),
            "{text}"
        );
        match is_cut {
            false => assert_eq!(text, full(&name)),
            true => assert_eq!(text.chars().count(), 200, "{text}"),
        }
    }
}

/// A name is shown if a type of the program has it, whoever else reads it as one.
#[tokio::test]
async fn the_path_has_the_programs_names_alone() {
    #[derive(Deserialize)]
    enum Choice {
        #[serde(rename = "both")]
        Both { _a: (u8, Vec<u8>) },
    }
    #[derive(PartialEq, Eq, Hash, Deserialize)]
    #[serde(field_identifier, rename_all = "snake_case")]
    enum Name {
        _A,
        _Other(String),
    }
    type Named = HashMap<Name, Vec<u8>>;
    let errors = [
        refusal::<Choice>(json!({ "both": { "_a": [1, [1, "x"]] } })).await,
        refusal::<Choice>(json!({ "both": [[1, []]] })).await,
        refusal::<Choice>(json!({ "canary": 1 })).await,
        refusal::<Named>(json!({ "canary": [1, "x"] })).await,
        refusal::<HashMap<u8, u8>>(json!({ "k": 1 })).await,
    ];
    expect![[r#"
        `both._a[1][1]`: expected u8, not a string
        `both`: expected an object, not an array
        expected `both`
        `*[1]`: expected u8, not a string
        expected u8, not a string"#]]
    .assert_eq(&errors.map(|error| error.message().to_owned()).join("\n"));
}

/// A tool that takes its time keeps no call alive: not the arguments, and not what is attached.
#[tokio::test]
async fn a_running_function_holds_no_call() {
    let attached = Arc::new(());
    let seen = Arc::downgrade(&attached);
    let tool = tool_fn(move |(): ()| {
        // Already here: one that blocks keeps nothing either.
        assert_eq!(seen.strong_count(), 1);
        std::future::pending::<Result<(), BoxError>>()
    });
    let router = tower_toolcall::router::RouterBuilder::<()>::new()
        .tool("local", tool.clone())
        .server("docs", tool, ["search"])
        .build()
        .unwrap();
    for name in ["local", "docs__search"] {
        let mut call = ToolCall::new(name);
        call.extensions_mut().insert(Arc::clone(&attached));
        let mut runs = tokio_test::task::spawn(router.clone().oneshot(call));
        tokio_test::assert_pending!(runs.poll());
        assert_eq!(Arc::strong_count(&attached), 1, "{name}");
    }
}

#[tokio::test]
async fn what_serde_reads_is_read_as_from_a_whole_value() {
    #[derive(Deserialize)]
    struct Wrapped(Weather);
    #[derive(Deserialize)]
    enum Choice {
        Both { a: u8 },
    }
    type Keyed = HashMap<u8, Vec<Option<bool>>>;
    let call = |arguments| ToolCall::new("t").with_json(arguments).unwrap();

    let wrapped = tool_fn(|Wrapped(w): Wrapped| async move { Ok::<_, BoxError>(w.city) });
    let city = wrapped.oneshot(call(json!({ "city": "Oslo" }))).await;
    assert_eq!(city.unwrap(), "Oslo");

    let choice = tool_fn(|Choice::Both { a }: Choice| async move { Ok::<_, BoxError>(a) });
    let a = choice.oneshot(call(json!({ "Both": { "a": 1 } }))).await;
    assert_eq!(a.unwrap(), 1);

    let keyed = tool_fn(|keyed: Keyed| async move { Ok::<_, BoxError>(keyed[&7].len()) });
    let two = keyed.oneshot(call(json!({ "7": [true, null] }))).await;
    assert_eq!(two.unwrap(), 2);

    let all = tool_fn(|all: Value| async move { Ok::<_, BoxError>(all) });
    let same = json!({ "a": [1, -1, 1.5, "x", null, true, {}] });
    assert_eq!(all.oneshot(call(same.clone())).await.unwrap(), same);
}

#[tokio::test]
async fn a_call_without_arguments_fits_nothing_and_options() {
    #[derive(Deserialize)]
    struct Must {
        _city: String,
    }
    let call = || ToolCall::new("t");
    let nothing = tool_fn(|(): ()| async { Ok::<_, BoxError>("ok") });
    assert_eq!(nothing.oneshot(call()).await.unwrap(), "ok");
    let option = tool_fn(|m: Option<Must>| async move { Ok::<_, BoxError>(m.is_none()) });
    assert!(option.clone().oneshot(call()).await.unwrap());
    let some = call().with_json(json!({ "_city": "Oslo" })).unwrap();
    assert!(!option.clone().oneshot(some).await.unwrap());
    // Arguments that are there are not ignored.
    let wrong = call().with_json(json!({ "_city": 7 })).unwrap();
    assert!(option.oneshot(wrong).await.is_err());
    expect!["expected null, not an object"]
        .assert_eq(refusal::<()>(json!({ "a": 1 })).await.message());
}

#[tokio::test(start_paused = true)]
async fn a_function_may_take_the_call_too() {
    let tool = tool_fn_with_call(|call: ToolCall, n: HashMap<String, u8>| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok::<_, BoxError>(format!("{} {}", call.id().unwrap(), n["n"]))
    });
    let call = ToolCall::new("t").with_id("c1");
    let call = call.with_json(json!({ "n": 1 })).unwrap();
    assert_eq!(tool.oneshot(call).await.unwrap(), "c1 1");
}

#[tokio::test]
async fn what_is_nested_too_deeply_is_not_read() {
    let mut value = json!(1);
    for _ in 0..10_000 {
        value = Value::Array(vec![value]);
    }
    let tool = tool_fn(|_: Value| async { Ok::<_, BoxError>(()) });
    let call = ToolCall::new("t").with_arguments([("a".to_owned(), value)].into_iter().collect());
    let error = tool.oneshot(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("120 levels"));
}

/// Text of a megabyte in a field's name or a list of a thousand variants makes no long error.
#[tokio::test]
async fn the_error_is_short() {
    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "read by serde")]
    enum Many {
        AVariantWithAnInterestinglyLongName,
        AnotherOneWhoseNameIsEvenLonger,
        TheThirdThatNobodyReadsAnyMore,
        LastAndLeastAndLongAsAllTheOthers,
    }
    type Deep = HashMap<String, HashMap<String, Vec<Vec<Many>>>>;
    let error = refusal::<Deep>(json!({ "x".repeat(1 << 20): { "y": [[], ["z"]] } })).await;
    assert!(error.model_message().chars().count() <= 200);
    assert!(error.message().ends_with("and others"), "{error}");
}

#[tokio::test]
async fn the_tools_own_error_passes() {
    let tool = tool_fn(|(): ()| async { Err::<(), BoxError>("404 Not Found".into()) });
    let error = tool.oneshot(ToolCall::new("t")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// X4: a type that would take more than it asks for gets what it asks for: `null` is no object.
#[tokio::test]
async fn null_is_no_object() {
    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "read by serde")]
    struct Delete {
        filter: serde_json::Map<String, Value>,
    }
    let error = refusal::<Delete>(json!({ "filter": null })).await;
    let text = "`filter`: expected an object, not null";
    assert_eq!(error.message(), text);
}
