//! X10, X11: one tool has one identity, however callers spell it, and names that do not exist move
//! nothing.

use std::time::Duration;

use tokio::time::Instant;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Execution, Identity, Key, ReplaySafety, ServiceBuilderExt, ToolCall,
    ToolError,
    circuit_breaker::{CircuitBreakerHandle, CircuitBreakerLayer},
    flow::CallExt,
    identity::{IdentityLayer, Resolve},
    rate_limit::RateLimitBackoffLayer,
    redact::Rules,
    retry::RetryPolicy,
    router::{Router, RouterBuilder},
    timeout::TimeoutLayer,
    tool_metrics::Metrics,
};
use tower_toolcall_test::{Events, Script, Step};

/// Every way in which a caller may name the tool `charge` of the server `pay`.
fn spellings() -> [ToolCall; 3] {
    [
        ToolCall::new("pay__charge"),
        ToolCall::new("charge").with_server("pay"),
        ToolCall::new("pay__charge").with_server("pay"),
    ]
}

/// The server `pay`.
struct Pay(Script<String>);

/// Answers with the names that the tool got.
fn names() -> Step<String> {
    Step::of(|call| Ok(format!("{} of {:?}", call.tool(), call.server())))
}

impl Pay {
    fn new(step: Step<String>) -> Self {
        Self(Script::always(step))
    }

    fn failing(kind: ErrorKind) -> Self {
        Self::new(Step::fail(kind))
    }

    fn calls(&self) -> u64 {
        self.0.count()
    }

    fn builder(&self) -> RouterBuilder<String> {
        RouterBuilder::new()
            .tool("local", Script::always(names()))
            .server("pay", self.0.clone(), ["charge", "refund"])
    }

    fn router(&self) -> Router<String> {
        self.builder().build().unwrap()
    }
}

fn breaker() -> (CircuitBreakerLayer, CircuitBreakerHandle) {
    let layer = CircuitBreakerLayer::new();
    let handle = layer.handle();
    (layer, handle)
}

/// V2.
#[tokio::test(start_paused = true)]
async fn a_breaker_that_one_spelling_opens_refuses_all_spellings() {
    for opens in spellings() {
        let pay = Pay::failing(ErrorKind::Upstream);
        let (layer, breakers) = breaker();
        let stack = ServiceBuilder::new()
            .tool_identity(pay.router())
            .layer(layer)
            .service(pay.router());
        for _ in 0..5 {
            let error = stack.clone().oneshot(opens.clone()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Upstream);
        }
        for call in spellings() {
            let error = stack.clone().oneshot(call.clone()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CircuitOpen);
            assert_eq!(error.tool(), Some(call.tool()), "as the caller spelled it");
        }
        assert_eq!((pay.calls(), breakers.len()), (5, 1));
        let known = breakers.find(&ToolCall::new("charge").with_server("pay"));
        assert!(known.unwrap().is_open());
    }
}

/// V2.
#[tokio::test(start_paused = true)]
async fn a_rate_limit_that_one_spelling_met_holds_for_all_spellings() {
    let pay = Pay::new(Step::status(429).with_retry_after(Duration::from_secs(60)));
    let gate = RateLimitBackoffLayer::builder().with_fail_fast();
    let stack = ServiceBuilder::new()
        .tool_identity(pay.router())
        .layer(gate.build().unwrap())
        .service(pay.router());
    for call in spellings() {
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
    }
    assert_eq!(pay.calls(), 1);
}

/// V2: a setting names a tool by its flat name or by its own.
#[tokio::test(start_paused = true)]
async fn a_tools_timeout_holds_for_all_spellings() {
    for setting in ["charge", "pay__charge"] {
        let hangs = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
        let router = RouterBuilder::<()>::new().server("pay", hangs, ["charge"]);
        let router = router.build().unwrap();
        let timeout = TimeoutLayer::default().with_tool(setting, Duration::from_secs(1));
        let stack = ServiceBuilder::new()
            .tool_identity(router.clone())
            .layer(timeout)
            .service(router);
        for call in spellings() {
            let start = Instant::now();
            let error = stack.clone().oneshot(call).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert_eq!(start.elapsed(), Duration::from_secs(1), "{setting}");
        }
    }
}

/// V2.
#[tokio::test(start_paused = true)]
async fn a_tools_number_of_attempts_holds_for_all_spellings() {
    for setting in ["charge", "pay__charge"] {
        let policy = RetryPolicy::new().assume_replay_safe().without_budget();
        let policy = policy.with_tool(setting, 2, Default::default()).unwrap();
        for call in spellings() {
            let pay = Pay::failing(ErrorKind::Upstream);
            let stack = ServiceBuilder::new()
                .tool_identity(pay.router())
                .tool_retry(policy.clone())
                .service(pay.router());
            stack.oneshot(call).await.unwrap_err();
            assert_eq!(pay.calls(), 2, "{setting}");
        }
    }
}

/// V2.
#[tokio::test]
async fn all_spellings_are_one_row_of_metrics() {
    let pay = Pay::new(names());
    let metrics = Metrics::new();
    let stack = ServiceBuilder::new()
        .tool_identity(pay.router())
        .tool_metrics(&metrics)
        .service(pay.router());
    for call in spellings() {
        let answer = stack.clone().oneshot(call).await.unwrap();
        assert_eq!(answer, r#"charge of Some("pay")"#);
    }
    let snapshot = metrics.snapshot();
    let [row] = &snapshot.tools[..] else {
        panic!("{snapshot}");
    };
    assert_eq!(row.server.as_deref(), Some("pay"));
    assert_eq!(&*row.tool, "charge");
    assert_eq!(row.stats.calls, 3);
}

/// V2.
#[tokio::test(start_paused = true)]
async fn a_thousand_invented_servers_do_not_pass_an_open_breaker() {
    let pay = Pay::failing(ErrorKind::Upstream);
    let (layer, breakers) = breaker();
    let stack = ServiceBuilder::new()
        .tool_identity(pay.router())
        .layer(layer)
        .service(pay.router());
    for _ in 0..5 {
        let call = ToolCall::new("pay__charge");
        stack.clone().oneshot(call).await.unwrap_err();
    }
    for n in 0..1000 {
        let call = ToolCall::new("pay__charge").with_server(format!("server-{n}"));
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    assert_eq!((pay.calls(), breakers.len()), (5, 1));
}

/// V2.
#[tokio::test]
async fn sixty_thousand_invented_names_make_no_key_and_no_row() {
    let pay = Pay::failing(ErrorKind::Upstream);
    let (layer, breakers) = breaker();
    let metrics = Metrics::new();
    let stack = ServiceBuilder::new()
        .tool_identity(pay.router())
        .tool_metrics(&metrics)
        .layer(layer)
        .service(pay.router());
    for n in 0..20_000 {
        for call in [
            ToolCall::new("charge").with_server(format!("server-{n}")),
            ToolCall::new(format!("pay__tool-{n}")),
            ToolCall::new(format!("tool-{n}")),
        ] {
            let error = stack.clone().oneshot(call).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    }
    assert!(breakers.is_empty());
    let snapshot = metrics.snapshot();
    assert_eq!((snapshot.tools.len(), snapshot.total.calls), (0, 0));
    assert_eq!(pay.calls(), 0);
}

/// X4, X10.
#[tokio::test]
async fn a_name_that_does_not_exist_is_refused_with_those_that_are_near() {
    let pay = Pay::new(names());
    let stack = pay.router().identity().layer(pay.router());
    for (call, near) in [
        (ToolCall::new("pay__chage"), "pay__charge"),
        (ToolCall::new("charge"), "pay__charge"),
        (ToolCall::new("charge").with_server("py"), "pay__charge"),
        (ToolCall::new("chage").with_server("pay"), "pay__charge"),
    ] {
        let name = call.tool().to_owned();
        let call = call.with_id("c1");
        let error = stack.clone().oneshot(call.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(error.execution(), Execution::NotStarted);
        assert!(error.is_own_refusal());
        assert_eq!(error.tool(), Some(&*name));
        assert_eq!(error.server(), call.server());
        assert_eq!(error.call_id(), Some("c1"));
        assert_eq!(
            error.model_message(),
            format!("Tool '{name}' does not exist. Did you mean '{near}'?")
        );
    }
    assert_eq!(pay.calls(), 0);
}

/// X10: a local tool has no server, and a server is no label of the caller's own.
#[tokio::test]
async fn a_local_tool_has_no_server() {
    let pay = Pay::new(names());
    let stack = pay.router().identity().layer(pay.router());
    let answer = stack.clone().oneshot(ToolCall::new("local")).await;
    assert_eq!(answer.unwrap(), "local of None");
    let labelled = ToolCall::new("local").with_server("mine");
    let error = stack.oneshot(labelled).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// E3: the model knows the tool by the name that it used.
#[tokio::test]
async fn errors_and_their_texts_name_the_tool_as_the_caller_spelled_it() {
    let pay = Pay::failing(ErrorKind::Upstream);
    let stack = ServiceBuilder::new()
        .tool_sanitize(Rules::new())
        .tool_result()
        .tool_identity(pay.router())
        .tool_trace()
        .tool_circuit_breaker()
        .service(pay.router());
    for call in spellings() {
        let name = call.tool().to_owned();
        let Ok(result) = stack.clone().oneshot(call).await;
        assert_eq!(result.call().tool(), name);
        let error = result.into_result().unwrap_err();
        assert_eq!((error.tool(), error.server()), (Some(&*name), Some("pay")));
        assert!(error.model_message().contains(&format!("'{name}'")));
        assert!(error.user_message().contains(&format!("'{name}'")));
    }
}

/// R6: the error of another call, which the tool passes on, says nothing of this one.
#[tokio::test]
async fn the_error_of_another_call_keeps_its_names() {
    let open = ToolError::new(ErrorKind::CircuitOpen, "open");
    let open = open.with_tool("fetch").with_server("web");
    let pay = Pay::new(Step::error(open));
    let stack = pay.router().identity().layer(pay.router());
    let error = stack.oneshot(ToolCall::new("pay__charge")).await;
    let error = error.unwrap_err();
    assert_eq!((error.tool(), error.server()), (Some("fetch"), Some("web")));
    assert_eq!(error.execution(), Execution::Unknown);
}

/// A stack in a stack, and a bridge that resolves names too.
#[tokio::test]
async fn a_call_that_was_resolved_passes() {
    let pay = Pay::new(names());
    let stack = ServiceBuilder::new()
        .tool_identity(pay.router())
        .tool_identity(pay.router())
        .service(pay.router());
    for call in spellings() {
        let answer = stack.clone().oneshot(call).await.unwrap();
        assert_eq!(answer, r#"charge of Some("pay")"#);
    }
    let renamed = ToolCall::new("any").resolved(&Identity::new("charge").with_server("pay"));
    assert!(stack.clone().oneshot(renamed.clone()).await.is_ok());
    let other = renamed.with_server("nobody");
    assert!(!other.is_resolved());
    assert!(stack.oneshot(other).await.is_err());
}

/// X4: the name of a router's server may be that of a server, or a tool, of a router behind it.
#[tokio::test]
async fn routers_behind_routers_resolve_names_of_their_own() {
    let says = |who: &'static str| {
        service_fn(move |call: ToolCall| async move {
            Ok::<_, BoxError>(format!("{who}: {} of {:?}", call.tool(), call.server()))
        })
    };
    let inner = RouterBuilder::<String>::new()
        .tool("charge", says("local"))
        .server("pay", says("pay"), ["charge", "refund"])
        .build()
        .unwrap();
    let (layer, breakers) = breaker();
    let below = ServiceBuilder::new()
        .tool_identity(inner.clone())
        .layer(layer)
        .service(inner.clone());
    for (behind, local) in [(None, "Some(\"pay\")"), (Some(below), "None")] {
        let builder = RouterBuilder::<String>::new();
        let outer = match behind {
            Some(below) => builder.server("pay", below, inner.names()),
            None => builder.server("pay", inner.clone(), inner.names()),
        };
        let outer = outer.build().unwrap();
        let stack = outer.identity().layer(outer.clone());
        for (name, answer) in [
            ("charge", format!("local: charge of {local}")),
            ("pay__charge", "pay: charge of Some(\"pay\")".into()),
            ("pay__refund", "pay: refund of Some(\"pay\")".into()),
        ] {
            for call in [
                ToolCall::new(format!("pay__{name}")),
                ToolCall::new(name).with_server("pay"),
            ] {
                // `pay__charge` of `pay` is the tool's own name before it is a flat one.
                let got = stack.clone().oneshot(call).await.unwrap();
                assert_eq!(got, answer);
            }
        }
    }
    assert_eq!(breakers.len(), 3);
}

/// E3.
#[tokio::test]
async fn an_error_from_a_router_behind_a_router_has_the_callers_names() {
    let pay = Pay::failing(ErrorKind::Upstream);
    let below = pay.router().identity().layer(pay.router());
    let outer = RouterBuilder::<String>::new().server("hub", below, pay.router().names());
    let outer = outer.build().unwrap();
    let stack = outer.identity().layer(outer);
    let call = ToolCall::new("hub__pay__charge");
    let error = stack.oneshot(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Upstream);
    assert_eq!(error.tool(), Some("hub__pay__charge"));
    assert_eq!(error.server(), Some("hub"));
}

/// Without a table the caller's word is all there is.
#[tokio::test]
async fn a_table_that_cannot_tell_leaves_the_callers_names() {
    struct Nothing;
    impl Resolve for Nothing {
        fn resolve(&self, _: &ToolCall) -> Result<Option<Identity>, ToolError> {
            Ok(None)
        }
    }
    let tool = service_fn(|call: ToolCall| async move {
        assert!(!call.is_resolved());
        Ok::<_, BoxError>((call.tool().to_owned(), call.server().map(str::to_owned)))
    });
    let stack = IdentityLayer::new(Nothing).layer(tool);
    let call = ToolCall::new("a__b").with_server("c");
    assert_eq!(
        stack.oneshot(call).await.unwrap(),
        ("a__b".to_owned(), Some("c".to_owned()))
    );
}

/// X10: a table of somebody else's, with aliases, around a stack without a router.
#[tokio::test]
async fn an_alias_is_the_tool_that_it_stands_for() {
    struct Aliases;
    impl Resolve for Aliases {
        fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
            match call.tool() {
                "search" | "find" => Ok(Some(Identity::new("search"))),
                // What a table says is a refusal of this side, whatever it is made of.
                _ => Err(ToolError::new(ErrorKind::NotFound, "there is none")),
            }
        }
    }
    let tool = service_fn(|call: ToolCall| async move {
        Err::<(), _>(ToolError::new(ErrorKind::Upstream, call.tool().to_owned()))
    });
    let (layer, breakers) = breaker();
    let stack = ServiceBuilder::new()
        .tool_identity(Aliases)
        .layer(layer)
        .service(tool);
    for name in ["search", "find"] {
        let error = stack.clone().oneshot(ToolCall::new(name)).await;
        let error = error.unwrap_err();
        assert_eq!((error.message(), error.tool()), ("search", Some(name)));
    }
    assert_eq!(breakers.len(), 1);
    let error = stack.oneshot(ToolCall::new("x")).await.unwrap_err();
    assert!(error.is_own_refusal());
    assert_eq!(error.execution(), Execution::NotStarted);
}

/// T2: what the table knows holds where nobody else says anything.
#[tokio::test(start_paused = true)]
async fn the_timeout_of_a_table_gives_way_to_settings_and_callers() {
    let hangs = || service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    let secs = Duration::from_secs;
    let router = RouterBuilder::<()>::new()
        .tool("local", hangs())
        .server("pay", hangs(), ["charge", "refund"])
        .with_timeout("pay__charge", secs(7))
        .with_timeout("pay__refund", secs(8))
        .with_timeout("local", secs(9))
        .build()
        .unwrap();
    let stack = ServiceBuilder::new()
        .tool_identity(router.clone())
        .layer(TimeoutLayer::default().with_tool("pay__refund", secs(3)))
        .service(router);
    for (call, after) in [
        (ToolCall::new("pay__charge"), 7),
        (ToolCall::new("charge").with_server("pay"), 7),
        (ToolCall::new("pay__charge").with_timeout(secs(2)), 2),
        (ToolCall::new("refund").with_server("pay"), 3),
        (ToolCall::new("pay__refund").with_timeout(secs(5)), 5),
        (ToolCall::new("local"), 9),
    ] {
        let start = Instant::now();
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(start.elapsed(), secs(after));
    }
}

#[test]
fn a_timeout_for_a_name_that_no_tool_can_have_is_refused() {
    for name in ["nothing", "pay__nothing", "py__charge", ""] {
        let router = Pay::new(names()).builder();
        let router = router.with_timeout(name, Duration::from_secs(1));
        assert!(router.build().is_err(), "{name}");
    }
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(String::new()) });
    let nothing = RouterBuilder::<String>::new().server("pay", tool, Vec::<&str>::new());
    let nothing = nothing.with_timeout("pay__charge", Duration::from_secs(1));
    assert!(nothing.build().is_err());
}

/// R6: the caller's word, then the rule of the program, then the table.
#[tokio::test(start_paused = true)]
async fn replay_safety_of_a_table_gives_way_to_rules_and_callers() {
    use ReplaySafety::{Safe, Unknown, Unsafe};
    for (table, rule, own, attempts) in [
        (Safe, Unknown, Unknown, 3),
        (Unsafe, Unknown, Unknown, 1),
        (Unknown, Unknown, Unknown, 1),
        (Safe, Unsafe, Unknown, 1),
        (Unsafe, Safe, Unknown, 3),
        (Safe, Unsafe, Safe, 3),
        (Safe, Safe, Unsafe, 1),
        (Unknown, Safe, Unknown, 3),
    ] {
        let pay = Pay::failing(ErrorKind::Upstream);
        let policy = RetryPolicy::new()
            .without_budget()
            .with_replay_safety(move |call| match call.is_named("pay__charge") {
                true => rule,
                false => Unknown,
            });
        struct One(ReplaySafety);
        impl Resolve for One {
            fn resolve(&self, _: &ToolCall) -> Result<Option<Identity>, ToolError> {
                let identity = Identity::new("charge").with_server("pay");
                Ok(Some(identity.with_replay_safety(self.0)))
            }
        }
        let stack = ServiceBuilder::new()
            .tool_identity(One(table))
            .tool_retry(policy)
            .service(pay.router());
        let call = ToolCall::new("pay__charge").with_replay_safety(own);
        stack.oneshot(call).await.unwrap_err();
        assert_eq!(pay.calls(), attempts, "{table:?} {rule:?} {own:?}");
    }
}

/// Issue 48, D4: the table nearest to the tool knows it best, unless an outer one forbids repeats.
#[tokio::test(start_paused = true)]
async fn a_table_behind_another_one_replaces_what_that_has_listed() {
    use ReplaySafety::{Safe, Unknown, Unsafe};
    struct One(ReplaySafety, u64);
    impl Resolve for One {
        fn resolve(&self, _: &ToolCall) -> Result<Option<Identity>, ToolError> {
            let identity = Identity::new("charge").with_server("pay");
            let identity = identity.with_timeout(Duration::from_secs(self.1));
            Ok(Some(identity.with_replay_safety(self.0)))
        }
    }
    for (outer, inner, attempts) in [
        (Safe, Unsafe, 1),
        (Safe, Unknown, 3),
        (Unknown, Safe, 3),
        (Unsafe, Safe, 1),
    ] {
        let tool = Script::<String>::always(Step::hang());
        let behind = ServiceBuilder::new()
            .tool_identity(One(inner, 2))
            .tool_retry(RetryPolicy::new().without_budget())
            .layer(TimeoutLayer::default())
            .service(tool.clone());
        let router = RouterBuilder::<String>::new().server("pay", behind, ["charge"]);
        let stack = IdentityLayer::new(One(outer, 7)).layer(router.build().unwrap());
        let error = stack.oneshot(ToolCall::new("any")).await.unwrap_err();
        assert_eq!(error.timeout(), Some(Duration::from_secs(2)));
        assert_eq!(tool.count(), attempts, "{outer:?} {inner:?}");
    }
}

/// Keys of other kinds see the identity as well.
#[tokio::test(start_paused = true)]
async fn a_key_of_the_server_is_that_of_the_identity() {
    let pay = Pay::failing(ErrorKind::ConnectionFailed);
    let layer = CircuitBreakerLayer::builder().with_keys(Key::Server);
    let layer = layer.build().unwrap();
    let breakers = layer.handle();
    let stack = ServiceBuilder::new()
        .tool_identity(pay.router())
        .layer(layer)
        .service(pay.router());
    for call in spellings() {
        stack.clone().oneshot(call).await.unwrap_err();
    }
    assert_eq!(breakers.len(), 1);
    assert_eq!(breakers.breakers()[0].server(), Some("pay"));
}

/// W12: metrics below the layer count what never reaches them, without its name.
#[tokio::test]
async fn a_refused_name_is_one_count_without_the_name_as_a_label() {
    let metrics = Metrics::new();
    let router = Pay::new(names()).builder().build().unwrap();
    let stack = ServiceBuilder::new()
        .tool_identity(router.clone())
        .tool_metrics(&metrics)
        .service(router);
    let send = |call| stack.clone().oneshot(call);
    send(ToolCall::new("pay__charge")).await.unwrap();
    for n in 0..10 {
        send(ToolCall::new(format!("invented{n}")))
            .await
            .unwrap_err();
    }
    let rows = metrics.snapshot().tools;
    let counts: Vec<_> = rows
        .iter()
        .map(|row| (&*row.tool, row.stats.calls))
        .collect();
    assert_eq!(counts, [("_other", 10), ("charge", 1)]);
    assert_eq!((rows[0].stats.rejected, rows[0].stats.attempts), (10, 0));
}

/// W12: metrics above the layer see the refusal themselves.
#[tokio::test]
async fn a_refused_name_is_one_count_for_metrics_on_both_sides() {
    let metrics = Metrics::new();
    let router = Pay::new(names()).builder().build().unwrap();
    let stack = ServiceBuilder::new()
        .tool_metrics(&metrics)
        .tool_identity(router.clone())
        .tool_metrics(&metrics)
        .service(router);
    let send = |call| stack.clone().oneshot(call);
    send(ToolCall::new("pay__charge")).await.unwrap();
    send(ToolCall::new("invented")).await.unwrap_err();
    let rows = metrics.snapshot().tools;
    let refused: u64 = rows.iter().map(|row| row.stats.rejected).sum();
    assert_eq!(refused, 1);
}

/// Issue 48, D12: metrics count a refusal by the code that its event shows.
#[tokio::test]
async fn a_refused_name_counts_by_the_code_of_its_error() {
    struct Closed;
    impl Resolve for Closed {
        fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
            match call.tool() {
                "open" => Ok(None),
                _ => Err(ToolError::new(ErrorKind::Denied, "closed").with_code("SHOP_CLOSED")),
            }
        }
    }
    let metrics = Metrics::new();
    let stack = ServiceBuilder::new()
        .tool_identity(Closed)
        .tool_metrics(&metrics)
        .service(Script::always(names()));
    stack.clone().oneshot(ToolCall::new("open")).await.unwrap();
    stack.oneshot(ToolCall::new("buy")).await.unwrap_err();
    let total = metrics.snapshot().total;
    assert_eq!(total.codes.keys().collect::<Vec<_>>(), ["SHOP_CLOSED"]);
}

/// W12: a listener of the layer's own hears of the first one already.
#[tokio::test]
async fn a_listener_hears_of_a_refused_name() {
    let router = Pay::new(names()).builder().build().unwrap();
    let events = Events::new();
    let layer = router.identity().with_listener(events.clone());
    let invented = layer.layer(router).oneshot(ToolCall::new("invented"));
    invented.await.unwrap_err();
    events.assert(["tool.rejected"]);
}
