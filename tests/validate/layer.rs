//! The layer: what is checked, when, and what it costs those around it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use expect_test::expect;
use serde_json::json;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Evidence, Execution, Identity, ServiceBuilderExt, ToolCall,
    check::warn_of_invalid_output,
    circuit_breaker::CircuitBreakerLayer,
    flow::CallExt,
    retry::RetryPolicy,
    tool_metrics::Metrics,
    validate::{Schema, Schemas, ValidateLayer, Validation},
};

use crate::kit::{Trace, call, echo, run, schemas};

fn wrong() -> ToolCall {
    call(json!({ "limit": "5", "query": "x" }))
}

#[tokio::test]
async fn arguments_that_fit_pass() {
    let fits = call(json!({ "query": "x", "limit": 5 }));
    let (result, calls) = run(ValidateLayer::new(&schemas()), fits).await;
    assert_eq!(
        (result.unwrap(), calls),
        (json!({ "query": "x", "limit": 5 }), 1)
    );
}

/// H1: what kind of error it is, and what it has.
#[tokio::test]
async fn arguments_that_do_not_fit_are_refused_before_anything_is_sent() {
    let wrong = call(json!({ "limit": "5", "filters": [{ "op": "like" }] }));
    let (result, calls) = run(ValidateLayer::new(&schemas()), wrong).await;
    let error = result.unwrap_err();
    assert_eq!((error.kind(), calls), (ErrorKind::InvalidInput, 0));
    assert_eq!(error.evidence(), Evidence::Refusal);
    assert_eq!(error.execution(), Execution::NotStarted);
    assert!(error.is_own_refusal() && !error.is_retryable() && error.is_recoverable());
    assert_eq!(error.tool(), Some("search"));
    assert_eq!(error.call_id(), Some("call_1"));
    assert_eq!(error.kind().http_status().as_u16(), 400);
    expect![[r#"
        TOOL_INVALID_INPUT: filters.0.op: is not one of "eq", "ne" or 2 others; limit: is not of type "integer"; root: "query" is a required property
        {
          "code": -32602,
          "data": {
            "code": "TOOL_INVALID_INPUT",
            "execution": "not_started",
            "reason": "filters.0.op: is not one of \"eq\", \"ne\" or 2 others; limit: is not of type \"integer\"; root: \"query\" is a required property",
            "retryable": false,
            "tool_id": "search"
          },
          "message": "The tool 'search' could not use the given input."
        }"#]].assert_eq(&format!("{error}\n{:#}", error.to_json_rpc()));
}

/// E4: the model reads what to correct, in 200 characters.
#[tokio::test]
async fn the_model_reads_the_first_three() {
    let schemas = Schemas::new();
    let properties: serde_json::Map<_, _> = (0..9)
        .map(|n| (format!("p{n}"), json!({ "type": "integer" })))
        .collect();
    schemas.insert(
        None,
        "search",
        Schema::compile(&json!({ "properties": properties })).unwrap(),
    );
    let arguments: serde_json::Map<_, _> = (0..9).map(|n| (format!("p{n}"), json!("x"))).collect();
    let (result, _) = run(ValidateLayer::new(&schemas), call(arguments.into())).await;
    let error = result.unwrap_err();
    expect![[r#"
        TOOL_INVALID_INPUT: in more than 5 ways: p0: is not of type "integer"; p1: is not of type "integer"; p2: is not of type "integer"; p3: is not of type "integer"; p4: is not of type "integer"
        Tool 'search' refused its arguments: p0: is not of type "integer"; p1: is not of type "integer"; p2: is not of type "integer". Correct them and call it again."#]].assert_eq(&format!("{error}\n{}", error.model_message()));
    assert!(error.model_message().chars().count() <= 200);
}

/// The names of arguments are those of the schema, whatever they are called.
#[tokio::test]
async fn an_argument_whose_name_sounds_secret_is_told() {
    let schemas = Schemas::new();
    let integer = json!({ "type": "integer" });
    let schema =
        json!({ "properties": { "token": integer, "password": integer, "api_key": integer } });
    schemas.insert(None, "search", Schema::compile(&schema).unwrap());
    let arguments = json!({ "token": "CANARY", "password": "CANARY", "api_key": "CANARY" });
    let (result, _) = run(ValidateLayer::new(&schemas), call(arguments)).await;
    let error = result.unwrap_err();
    expect![[r#"
        TOOL_INVALID_INPUT: api_key: is not of type "integer"; password: is not of type "integer"; token: is not of type "integer"
        Tool 'search' refused its arguments: api_key: is not of type "integer"; password: is not of type "integer"; token: is not of type "integer". Correct them and call it again."#]].assert_eq(&format!("{error}\n{}", error.model_message()));
}

#[tokio::test]
async fn a_tool_without_a_schema_is_not_checked() {
    let other = ToolCall::new("other")
        .with_json(json!({ "limit": "5" }))
        .unwrap();
    let (result, calls) = run(ValidateLayer::new(&schemas()), other).await;
    assert!(result.is_ok() && calls == 1);
    let elsewhere = wrong().with_server("docs");
    assert_eq!(run(ValidateLayer::new(&schemas()), elsewhere).await.1, 1);
}

/// H1: three switches, the nearest one holds.
#[tokio::test]
async fn the_call_beats_the_tool_and_the_tool_beats_the_layer() {
    use Validation::{Off, On, Repair};
    let checked =
        async |layer: Option<Validation>, tool: Option<Validation>, own: Option<Validation>| {
            let mut all = ValidateLayer::new(&schemas());
            if let Some(layer) = layer {
                all = all.with_validation(layer);
            }
            if let Some(tool) = tool {
                all = all.with_tool("search", tool);
            }
            let mut call = wrong();
            if let Some(own) = own {
                call.extensions_mut().insert(own);
            }
            match run(all, call).await.0 {
                Ok(arguments) if arguments["limit"] == 5 => Repair,
                Ok(_) => Off,
                Err(_) => On,
            }
        };
    assert_eq!(checked(None, None, None).await, On);
    for one in [On, Off, Repair] {
        assert_eq!(checked(Some(one), None, None).await, one);
        for two in [On, Off, Repair] {
            assert_eq!(checked(Some(one), Some(two), None).await, two);
            for three in [On, Off, Repair] {
                assert_eq!(checked(Some(one), Some(two), Some(three)).await, three);
            }
        }
    }
}

/// Only code switches it off: what a call is on a wire has no extensions.
#[test]
fn a_switch_does_not_go_over_a_wire() {
    let mut call = wrong();
    call.extensions_mut().insert(Validation::Off);
    let wire = serde_json::to_string(&call).unwrap();
    let came: ToolCall = serde_json::from_str(&wire).unwrap();
    assert!(came.extensions().get::<Validation>().is_none());
}

#[tokio::test]
async fn a_refused_schema_is_not_checked_unless_strict() {
    let schemas = Schemas::new();
    schemas.replace(None, [("search", Schema::compile(&json!({ "type": 7 })))]);
    let (result, calls) = run(ValidateLayer::new(&schemas), wrong()).await;
    assert!(result.is_ok() && calls == 1);
    let (result, calls) = run(ValidateLayer::new(&schemas).strict(), wrong()).await;
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert_eq!(calls, 0);
    assert!(error.is_own_refusal());
    expect!["the arguments cannot be checked: invalid `schema`: is not one: it is not valid under any of the schemas listed in the 'anyOf' keyword"].assert_eq(error.message());
    let off = ValidateLayer::new(&schemas)
        .strict()
        .with_tool("search", Validation::Off);
    assert_eq!(run(off, wrong()).await.1, 1);
}

/// Padding switches off a costly schema.
#[tokio::test]
async fn arguments_that_are_too_large_to_be_checked_pass_unless_strict() {
    let schema = json!({ "properties": { "query": { "type": "string", "not": { "pattern": "^rm " } }, "pad": {} } });
    let schemas = Schemas::new();
    schemas.insert(None, "search", Schema::compile(&schema).unwrap());
    let padded = || call(json!({ "query": "rm -r", "pad": "x".repeat(700_000) }));
    let short = call(json!({ "query": "rm -r" }));
    assert_eq!(run(ValidateLayer::new(&schemas), short).await.1, 0);
    assert_eq!(run(ValidateLayer::new(&schemas), padded()).await.1, 1);
    let (result, calls) = run(ValidateLayer::new(&schemas).strict(), padded()).await;
    let error = result.unwrap_err();
    assert_eq!((error.kind(), calls), (ErrorKind::InvalidInput, 0));
    expect!["root: is too large to be checked"].assert_eq(error.message());
}

#[tokio::test]
async fn what_is_repaired_is_looked_at_by_as_much_of_the_schema() {
    let schema =
        json!({ "properties": { "list": { "type": "array", "items": { "pattern": "^[^x]" } } } });
    let schemas = Schemas::new();
    schemas.insert(None, "search", Schema::compile(&schema).unwrap());
    let list = serde_json::to_string(&vec![0; 15_000]).unwrap();
    let layer = || ValidateLayer::new(&schemas).repair();
    let of = |list: &str| call(json!({ "list": list }));
    assert_eq!(run(layer(), of(&list)).await.1, 0);
    assert_eq!(run(layer().strict(), of(&list)).await.1, 0);
    assert_eq!(run(layer().strict(), of("[0]")).await.1, 1);
}

#[tokio::test]
async fn arguments_that_are_nested_too_deeply_are_refused_as_such() {
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let (result, calls) = run(
        ValidateLayer::new(&schemas()),
        call(json!({ "query": deep })),
    )
    .await;
    let error = result.unwrap_err();
    assert_eq!(
        (error.message(), calls),
        ("the arguments are nested deeper than 120 levels", 0)
    );
}

#[tokio::test]
async fn the_message_can_begin_as_in_another_system() {
    let layer = ValidateLayer::new(&schemas()).with_heading("Argument validation failed");
    let (result, _) = run(layer, call(json!({ "limit": "5" }))).await;
    let error = result.unwrap_err();
    expect![[r#"
        TOOL_INVALID_INPUT: Argument validation failed: limit: is not of type "integer"; root: "query" is a required property
        Tool 'search' refused its arguments: limit: is not of type "integer"; root: "query" is a required property. Correct them and call it again."#]].assert_eq(&format!("{error}\n{}", error.model_message()));
}

/// One check for each call, not for each attempt; nothing is repeated, and no breaker counts it.
#[tokio::test(start_paused = true)]
async fn wrong_arguments_are_not_repeated_and_open_no_breaker() {
    let breaker = CircuitBreakerLayer::new();
    let handle = breaker.handle();
    let metrics = Metrics::new();
    for validate_first in [true, false] {
        let (tool, calls) = echo();
        let layers = ServiceBuilder::new().tool_metrics(&metrics);
        let validate = || ValidateLayer::new(&schemas());
        let policy = RetryPolicy::new().assume_replay_safe();
        let refused = match validate_first {
            true => {
                layers
                    .layer(validate())
                    .tool_retry(policy)
                    .layer(breaker.clone())
                    .service(tool)
                    .oneshot(wrong())
                    .await
            }
            false => {
                let mut stack = layers
                    .tool_retry(policy)
                    .layer(breaker.clone())
                    .layer(validate())
                    .service(tool);
                for _ in 0..20 {
                    stack
                        .ready()
                        .await
                        .unwrap()
                        .call(wrong())
                        .await
                        .unwrap_err();
                }
                stack.oneshot(wrong()).await
            }
        };
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(calls.load(SeqCst), 0);
    }
    assert_eq!(handle.breaker(&wrong()).state().name(), "closed");
    let total = metrics.snapshot().total;
    assert_eq!((total.attempts, total.rejected), (0, 22));
}

/// O2: a refusal of ours, not a failure of the tool's.
#[tokio::test]
async fn the_trace_has_it_as_rejected() {
    let (trace, _guard) = Trace::begin();
    let layer = ServiceBuilder::new()
        .tool_trace()
        .layer(ValidateLayer::new(&schemas()))
        .into_inner();
    run(layer, wrong()).await.0.unwrap_err();
    let events = trace.events("tool.rejected");
    assert!(
        events.len() == 1 && events[0].contains("code=\"TOOL_INVALID_INPUT\""),
        "{}",
        trace.text()
    );
    assert!(trace.events("tool.failure").is_empty());
}

#[tokio::test]
async fn a_schema_that_comes_later_holds_from_then_on() {
    let schemas = Schemas::new();
    let count = Arc::new(AtomicUsize::new(0));
    let calls = count.clone();
    let tool = service_fn(move |_: ToolCall| {
        calls.fetch_add(1, SeqCst);
        async { Ok::<_, BoxError>(()) }
    });
    let mut stack = ValidateLayer::new(&schemas).layer(tool);
    stack.ready().await.unwrap().call(wrong()).await.unwrap();
    schemas.insert(None, "search", crate::kit::search());
    stack
        .ready()
        .await
        .unwrap()
        .call(wrong())
        .await
        .unwrap_err();
    schemas.remove(None, "search");
    stack.ready().await.unwrap().call(wrong()).await.unwrap();
    assert_eq!(count.load(SeqCst), 2);
}

/// What the program has itself is applied whether the server's list was read or not.
#[tokio::test]
async fn a_tool_that_is_not_listed_yet_has_its_own_schema() {
    let table = Schemas::new();
    table.insert(Some("docs"), "search", crate::kit::search());
    table.replace(
        Some("odd"),
        [("search", Schema::compile(&json!({ "type": 7 })))],
    );
    let refused = async |server: &str| {
        let identity = Identity::new("search").with_server(server).unlisted();
        let call = wrong().resolved(&identity);
        let error = run(ValidateLayer::new(&table).strict(), call).await.0;
        error.unwrap_err().kind()
    };
    assert_eq!(refused("docs").await, ErrorKind::InvalidInput);
    assert_eq!(refused("odd").await, ErrorKind::Internal);
}

#[test]
fn a_warning_of_an_invalid_output_is_redacted() {
    let (trace, _guard) = Trace::begin();
    warn_of_invalid_output(&ToolCall::new("weather").info(), &"found password=hunter2");
    assert_eq!(trace.events("tool.invalid_output").len(), 1);
    assert!(!trace.text().contains("hunter2"));
}
