//! What `tracing_subscriber::fmt` writes of a call.

use std::{future::pending, time::Duration};

use http::StatusCode;
use serde_json::json;
use tower::{Layer as _, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, ReplaySafety, ServiceBuilderExt as _, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer,
    outcome::{Outcome, classify_fn},
    policy::PolicyLayer,
    rate_limit::RateLimitBackoffLayer,
    retry::RetryPolicy,
    switch::Switch,
    trace::TraceLayer,
};
use tower_toolcall_test::{Script, Step};
use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    prelude::*,
};

use crate::kit::Log;

/// The longest line.
const MAX: usize = 200;

/// The lines of a log at a level, in the default form of `tracing_subscriber::fmt()`, without
/// colours.
pub(super) struct Lines(Log);

impl Lines {
    pub(super) fn at(level: Level) -> (Self, DefaultGuard) {
        crate::listening();
        let log = Log::default();
        let fmt = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(log.clone());
        (Self(log), fmt.set_default())
    }

    fn text(&self) -> String {
        self.0.text()
    }

    /// How long the lines are.
    pub(super) fn lengths(&self) -> Vec<usize> {
        let text = self.text();
        text.lines().map(|line| line.chars().count()).collect()
    }

    /// The lines without their time.
    pub(super) fn lines(&self) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().inspect(|line| {
            let length = line.chars().count();
            assert!(length <= MAX, "{length} characters: {line}");
        });
        lines
            .map(|line| line.split_once("Z ").unwrap().1.trim_start().to_owned())
            .collect()
    }
}

fn call() -> ToolCall {
    ToolCall::new("search")
        .with_server("docs")
        .with_id("toolu_01A09q90qw90lq917835lq9")
        .with_trace_id("0af7651916cd43dd8448eb211c80319c")
        .with_session_id("session-1")
        .with_agent_id("agent-1")
        .with_json(json!({ "query": "x".repeat(150), "limit": vec![7; 40] }))
        .unwrap()
        .with_replay_safety(ReplaySafety::Safe)
}

/// All that callers choose is as long as it may be.
fn monster() -> ToolCall {
    ToolCall::new("search_".repeat(40))
        .with_server("s".repeat(250))
        .with_id("i".repeat(250))
        .with_trace_id("t".repeat(250))
        .with_json(json!({ "query": "\"".repeat(500) }))
        .unwrap()
        .with_replay_safety(ReplaySafety::Safe)
}

type Tool = Script<&'static str>;

async fn send(call: &ToolCall, tool: Tool) -> Vec<String> {
    let (log, _guard) = Lines::at(Level::INFO);
    let retry = RetryPolicy::new().with_attempts(3).unwrap();
    let stack = ServiceBuilder::new()
        .tool_trace()
        .tool_retry(retry)
        .tool_rate_limit()
        .layer(CircuitBreakerLayer::new())
        .layer(TraceLayer::attempts())
        .tool_timeout(Duration::from_secs(10))
        .tool_catch_panic()
        .service(tool);
    let _ = stack.oneshot(call.clone()).await;
    log.lines()
}

/// 20a: limits of calls in a stack whose layers do not enforce them. The second case is a deadline.
#[tokio::test(start_paused = true)]
async fn limits_that_no_layer_enforces_are_said_once() {
    let at = |secs| tokio::time::Instant::now() + Duration::from_secs(secs);
    let timed = || ToolCall::new("search").with_timeout(Duration::from_secs(1));
    let due = || ToolCall::new("search").with_deadline(at(1));
    let slow = || Script::always(Step::ok("sunny").after(Duration::from_secs(2)));
    let inert = |lines: Vec<String>| {
        let all = lines.into_iter().filter(|line| line.contains("tool.inert"));
        all.collect::<Vec<_>>()
    };
    for make in [&timed as &dyn Fn() -> ToolCall, &due] {
        let (log, _guard) = Lines::at(Level::INFO);
        let trace = TraceLayer::new();
        for _ in 0..2 {
            trace.layer(slow()).oneshot(make()).await.unwrap();
        }
        let lines = inert(log.lines());
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("layer=\"trace\" reason=\"not_enforced\""),
            "{lines:?}"
        );
        assert_eq!(trace.inert(), 2);

        let (log, _guard) = Lines::at(Level::INFO);
        let stack = ServiceBuilder::new()
            .layer(trace)
            .tool_timeout(Duration::from_secs(9));
        let _ = stack.service(slow()).oneshot(make()).await;
        assert!(inert(log.lines()).is_empty());
    }
}

/// 20a: clones that are sent at the same time have records of their own. The second case is a later
/// call without a `TimeoutLayer`, whose record knew one.
#[tokio::test(start_paused = true)]
async fn a_clone_of_a_call_has_its_own_timeout() {
    let slow = Script::always(Step::ok("sunny").after(Duration::from_secs(2)));
    let trace = TraceLayer::new();
    let (_log, _guard) = Lines::at(Level::INFO);
    let timed = ServiceBuilder::new()
        .tool_timeout(Duration::from_secs(9))
        .layer(&trace)
        .service(slow.clone());
    let send = |secs| {
        let call = ToolCall::new("search").with_timeout(Duration::from_secs(secs));
        (timed.clone().oneshot(call.clone()), call)
    };
    let (first, call) = send(9);
    let (first, second) = tokio::join!(first, timed.clone().oneshot(call));
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(trace.inert(), 0);

    let (first, call) = send(1);
    first.await.unwrap_err();
    trace.layer(slow).oneshot(call).await.unwrap();
    assert_eq!(trace.inert(), 1);
}

/// 20a: a layer outside of the `TimeoutLayer` may answer the call. The second case is a call whose
/// tool service enforces the timeout.
#[tokio::test(start_paused = true)]
async fn a_call_that_ends_within_its_timeout_does_not_show_that_none_is_enforced() {
    let trace = TraceLayer::new();
    let (_log, _guard) = Lines::at(Level::INFO);
    let call = || ToolCall::new("search").with_timeout(Duration::from_secs(1));
    let cached = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("kept") });
    trace.layer(cached).oneshot(call()).await.unwrap();
    let ends_it = Script::always(Step::fail(ErrorKind::Timeout).after(Duration::from_secs(1)));
    let ended: Result<&str, _> = trace.layer(ends_it).oneshot(call()).await;
    ended.unwrap_err();
    assert_eq!(trace.inert(), 0);
}

/// 20b: a call that another one's limit holds back. The second case is a cooldown that a person
/// began.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_out_a_cooldown_is_a_line() {
    for by_hand in [false, true] {
        let limit = RateLimitBackoffLayer::new();
        let stack = |step| limit.layer(Script::always(step));
        match by_hand {
            true => limit
                .handle()
                .cool(&ToolCall::new("search"), Duration::from_secs(7)),
            false => {
                let limited = Step::status(429).with_retry_after(Duration::from_secs(7));
                let unsafe_call =
                    ToolCall::new("search").with_deadline(tokio::time::Instant::now());
                let _ = stack(limited).oneshot(unsafe_call).await;
            }
        }
        let (log, _guard) = Lines::at(Level::DEBUG);
        let call = ToolCall::new("search");
        let (waits, runs) = (stack(Step::ok("sunny")), stack(Step::ok("sunny")));
        waits.oneshot(call.clone()).await.unwrap();
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("tool.waiting tool=search"), "{lines:?}");
        assert!(
            lines[0].contains(" layer=\"rate_limit\" delay_ms=7"),
            "{lines:?}"
        );
        tokio::time::sleep(Duration::from_secs(60)).await;
        runs.oneshot(call).await.unwrap();
        assert_eq!(log.lines().len(), 1);
    }
}

/// P13: of a success.
#[tokio::test(start_paused = true)]
async fn a_success_is_one_short_line() {
    for call in [call(), monster()] {
        let lines = send(&call, Script::always(Step::ok("sunny"))).await;
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        let start = "INFO execute_tool: tower_toolcall: tool.success tool=search";
        assert!(line.starts_with(start), "{line}");
        assert!(
            line.contains(" duration_ms=") && line.ends_with(" attempts=1"),
            "{line}"
        );
    }
}

/// P13: of a call that was repeated, each retry has a line too.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_repeated_is_a_line_for_each_retry_and_one_for_its_end() {
    let broken = || {
        let text = format!("503 Service Unavailable: {}", "\"quoted\" ".repeat(30));
        Step::error(ToolError::new(ErrorKind::Upstream, text))
    };
    for call in [call(), monster()] {
        let tool = Script::new([broken(), broken()]).then(Step::ok("sunny"));
        let lines = send(&call, tool).await;
        let levels: Vec<_> = lines.iter().map(|line| &line[..5]).collect();
        assert_eq!(levels, ["WARN ", "WARN ", "INFO "], "{lines:?}");
        assert!(lines[2].ends_with(" attempts=3"), "{lines:?}");

        let lines = send(&call, Script::always(broken())).await;
        let end = lines.last().unwrap();
        assert!(end.starts_with("ERROR"), "{end}");
        assert!(
            end.contains("tool.failure") && end.contains(" code=\"UPSTREAM_ERROR\""),
            "{end}"
        );
    }
    // What is in the text of an error is there as far as there is room.
    let lines = send(&call(), Script::always(broken())).await;
    assert!(lines[0].contains("error=\"503 Serv"), "{lines:?}");
}

/// P13: a rate limit, a slow call, a timeout.
#[tokio::test(start_paused = true)]
async fn what_happens_on_the_way_is_short_too() {
    for call in [call(), monster()] {
        let limited = ToolError::new(ErrorKind::RateLimited, "slow down. ".repeat(20))
            .with_retry_after(Duration::from_secs(7));
        let tool = Script::new([Step::error(limited)])
            .then(Step::ok("late").after(Duration::from_secs(9)));
        let lines = send(&call, tool).await;
        let names = [
            "tool.rate_limited",
            "tool.retry",
            "tool.slow",
            "tool.success",
        ];
        assert_eq!(lines.len(), names.len(), "{lines:?}");
        for (line, name) in lines.iter().zip(names) {
            assert!(line.contains(name), "{line}");
        }
        let lines = send(&call, Script::always(Step::hang())).await;
        assert!(lines.last().unwrap().contains("tool.timeout"), "{lines:?}");
    }
}

/// P13, stumble 15, 20b: what a caller does wrong is no fault of the program, and what the program
/// did wrong, or has to mend, is. A conflict is the caller's, as 404 and 422 are; an aborted call
/// may be the tool's.
#[tokio::test(start_paused = true)]
async fn mistakes_of_callers_are_info() {
    let kind = |kind| ToolError::new(kind, "`limit` has to be a number");
    let status = |code| ToolError::from_status(code, "the order is closed");
    let grpc = |code| ToolError::from_box(tonic::Status::new(code, "taken").into());
    let text = |name| ToolError::from_box(format!("rpc error: code = {name} desc = taken").into());
    for (level, errors) in [
        (
            "INFO",
            vec![
                kind(ErrorKind::InvalidInput),
                kind(ErrorKind::NotFound),
                kind(ErrorKind::Denied),
                kind(ErrorKind::Cancelled),
                status(StatusCode::CONFLICT),
                status(StatusCode::PRECONDITION_FAILED),
                status(StatusCode::NOT_FOUND),
                status(StatusCode::UNPROCESSABLE_ENTITY),
                grpc(tonic::Code::AlreadyExists),
                text("AlreadyExists"),
            ],
        ),
        (
            "WARN",
            vec![kind(ErrorKind::Reported), kind(ErrorKind::PollTimeout)],
        ),
        (
            "ERROR",
            vec![
                kind(ErrorKind::Failed),
                kind(ErrorKind::Internal),
                kind(ErrorKind::TokenExchange),
                status(StatusCode::METHOD_NOT_ALLOWED),
                status(StatusCode::FOUND),
                status(StatusCode::INTERNAL_SERVER_ERROR),
                grpc(tonic::Code::Aborted),
                grpc(tonic::Code::Unknown),
                text("Aborted"),
            ],
        ),
    ] {
        for error in errors {
            let (log, _guard) = Lines::at(Level::INFO);
            let tool = Script::<()>::always(Step::error(error.clone()));
            let stack = ServiceBuilder::new().tool_trace().service(tool);
            stack.oneshot(call()).await.unwrap_err();
            let [line] = &log.lines()[..] else {
                panic!("{error:?}")
            };
            assert!(line.starts_with(level), "{line}: {error:?}");
        }
    }
    // An answer that says so: MCP servers tell a model's mistake in a result.
    let (log, _guard) = Lines::at(Level::INFO);
    let layer =
        TraceLayer::new().with_classifier(classify_fn(|_: Result<&&str, _>| Outcome::mistake()));
    let tool = Script::always(Step::ok("`limit`: not a number"));
    layer.layer(tool).oneshot(call()).await.unwrap();
    assert!(log.lines()[0].starts_with("INFO "), "{:?}", log.lines());
}

/// S10: an unknown name says what is wrong and what is near, from an identity layer alone and from
/// a router below trace.
#[tokio::test]
async fn an_unknown_tool_is_a_line_with_the_nearest_name() {
    let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("ok") });
    let router = tower_toolcall::router::Router::builder()
        .server("docs", tool, ["search"])
        .build()
        .unwrap();
    let wrong = || ToolCall::new("docs__serch");
    let (log, _guard) = Lines::at(Level::INFO);
    let outside = ServiceBuilder::new().tool_identity(router.clone());
    let refused = outside.service(router.clone()).oneshot(wrong()).await;
    refused.unwrap_err();
    let inside = ServiceBuilder::new().tool_trace().service(router);
    inside.oneshot(wrong()).await.unwrap_err();
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in lines {
        assert!(
            line.starts_with("INFO ") && line.contains("unknown tool; did you mean `docs__"),
            "{line}"
        );
    }
}

/// S3: an answer from memory, or from a cache, is told from one of the tool, and so is an error.
#[tokio::test]
async fn an_answer_from_memory_is_one_line_that_says_so() {
    let cache = tower_toolcall::cache::CacheLayer::new(Duration::from_secs(60), ["pay"]);
    let (cache, once) = (cache.unwrap(), tower_toolcall::once::OnceLayer::new);
    for (cache, once, step) in [
        (None, Some(once()), Step::ok("paid")),
        (None, Some(once()), Step::fail(ErrorKind::Failed)),
        (Some(cache), None, Step::ok("paid")),
    ] {
        let (log, _guard) = Lines::at(Level::INFO);
        let tool = Script::always(step);
        let stack = ServiceBuilder::new()
            .tool_trace()
            .layer(Switch::from(once))
            .layer(Switch::from(cache))
            .service(tool.clone());
        let call = ToolCall::new("pay").with_session_id("s1");
        for _ in 0..2 {
            let _ = stack.clone().oneshot(call.clone()).await;
        }
        assert_eq!(tool.count(), 1);
        let lines = log.lines();
        let [first, second] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert!(first.ends_with(" attempts=1"), "{first}");
        assert!(second.ends_with(" reused=true"), "{second}");
    }
}

/// S8: what never became a call is a line too.
#[cfg(feature = "axum")]
#[tokio::test]
async fn a_request_that_is_no_call_is_one_line() {
    use axum::{body::Body, http::Request};
    use tower_toolcall::serve::Routes;

    let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("ok") });
    let stack = ServiceBuilder::new().tool_trace().service(tool);
    let routes = Routes::new(stack);
    let routes = routes.plain().merge(routes.rpc());
    for (path, kind, body, shown) in [
        (
            "/tools/a/call",
            "application/json",
            "{",
            "tool=a code=\"TOOL_INVALID_INPUT\"",
        ),
        (
            "/tools/a/call",
            "text/plain",
            "{}",
            "tool=a code=\"UNSUPPORTED_MEDIA_TYPE\"",
        ),
        (
            "/rpc",
            "text/plain",
            "{}",
            "tool.rejected code=\"UNSUPPORTED_MEDIA_TYPE\"",
        ),
    ] {
        let (log, _guard) = Lines::at(Level::INFO);
        let request = Request::post(path)
            .header("content-type", kind)
            .body(Body::from(body));
        let response = routes.clone().oneshot(request.unwrap()).await.unwrap();
        assert!(response.status().is_client_error());
        let lines = log.lines();
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert!(line.starts_with("INFO ") && line.contains(shown), "{line}");
    }
}

#[derive(serde::Deserialize)]
#[allow(dead_code, reason = "read by serde")]
struct Weather {
    city: String,
    days: u8,
}

/// S11: the argument is named before the line is cut, if it is missing and if it does not fit.
#[tokio::test]
async fn a_wrong_argument_is_named_in_the_line() {
    let tool = service_fn(|call: ToolCall| async move {
        let _: Weather = call.arguments_as()?;
        Ok::<_, ToolError>(())
    });
    for (arguments, named) in [
        (
            json!({ "city": "Oslo", "days": "three" }),
            "error=\"`days`: ",
        ),
        (json!({ "days": 3 }), "error=\"the field `city` is missing"),
    ] {
        let (log, _guard) = Lines::at(Level::INFO);
        let stack = ServiceBuilder::new().tool_trace().service(tool);
        let call = ToolCall::new("weather_forecast").with_server("meteo");
        let call = call.with_json(arguments).unwrap();
        stack.oneshot(call).await.unwrap_err();
        let lines = log.lines();
        assert!(lines[0].contains(named), "{lines:?}");
    }
}

/// S11: and by a schema.
#[cfg(feature = "validate")]
#[tokio::test]
async fn an_argument_that_does_not_fit_a_schema_is_named_in_the_line() {
    use tower_toolcall::validate::{Schema, Schemas, ValidateLayer};

    let (log, _guard) = Lines::at(Level::INFO);
    let schemas = Schemas::new();
    let schema = json!({ "properties": { "days": { "type": "integer" } } });
    schemas.insert(None, "weather_forecast", Schema::compile(&schema).unwrap());
    let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>(()) });
    let stack = ServiceBuilder::new()
        .tool_trace()
        .layer(ValidateLayer::new(&schemas))
        .service(tool);
    let call = ToolCall::new("weather_forecast");
    let call = call.with_json(json!({ "days": "three" })).unwrap();
    stack.oneshot(call).await.unwrap_err();
    let lines = log.lines();
    assert!(lines[0].contains("error=\"days: is not"), "{lines:?}");
}

/// P13, S12: a refusal and a call that was given up; the end of the call is what is said of a
/// denial.
#[tokio::test(start_paused = true)]
async fn a_denied_call_and_a_dropped_one_are_short() {
    for call in [call(), monster()] {
        let (log, _guard) = Lines::at(Level::INFO);
        let hangs = service_fn(|_: ToolCall| pending::<Result<(), AnyError>>());
        let denies = ServiceBuilder::new()
            .tool_trace()
            .layer(PolicyLayer::new().deny("*"))
            .service(hangs);
        denies.oneshot(call.clone()).await.unwrap_err();
        let gives_up = ServiceBuilder::new().tool_trace().service(hangs);
        let limit = tokio::time::timeout(Duration::from_secs(1), gives_up.oneshot(call));
        limit.await.unwrap_err();
        let lines = log.lines();
        assert!(
            lines.iter().all(|line| line.starts_with("INFO ")),
            "{lines:?}"
        );
        assert!(
            lines.last().unwrap().contains("tool.cancelled"),
            "{lines:?}"
        );
    }
}

/// P13: and each of two layers with levels of their own has all of its events.
#[tokio::test(start_paused = true)]
async fn a_layer_at_debug_takes_no_event_from_one_at_info() {
    crate::listening();
    let logs = [(); 2].map(|()| Log::default());
    let layer = |log: &Log| {
        let layer = tracing_subscriber::fmt::layer().with_ansi(false);
        layer.with_writer(log.clone())
    };
    let debug = Targets::new().with_target("tower_toolcall", Level::DEBUG);
    let layers = vec![
        layer(&logs[0]).with_filter(LevelFilter::INFO).boxed(),
        layer(&logs[1]).with_filter(debug).boxed(),
    ];
    let _guard = tracing_subscriber::registry().with(layers).set_default();
    let failed = || Step::error(ToolError::new(ErrorKind::Upstream, "503"));
    let tool = Script::new([failed()]).then(Step::ok("sunny"));
    let stack = ServiceBuilder::new()
        .tool_trace()
        .tool_retry(RetryPolicy::new())
        .service(tool);
    stack.clone().oneshot(call()).await.unwrap();
    stack.oneshot(call()).await.unwrap();
    let [info, debug] = logs.map(|log| {
        let text = log.text();
        let names = ["tool.start", "tool.retry", "tool.success"];
        names.map(|name| text.matches(&format!(": {name} ")).count())
    });
    assert_eq!((info, debug), ([0, 1, 2], [2, 1, 2]));
}

/// P13: whatever is in names and texts.
#[tokio::test(start_paused = true)]
async fn control_characters_and_wide_ones_keep_a_line_short() {
    let call = ToolCall::new("\u{1b}[31m\n\u{202e}ß".repeat(20))
        .with_server("日\u{301}\t".repeat(30))
        .with_replay_safety(ReplaySafety::Safe);
    let text = "\u{1b}[2J e\u{301}\n\u{0}\u{feff}👩‍💻\"\\".repeat(30);
    for code in ["", "A_CODE_OF_THE_TOOLS_OWN_".repeat(20).as_str()] {
        let mut error = ToolError::new(ErrorKind::Failed, text.clone());
        if !code.is_empty() {
            error = error.with_code(code.to_owned());
        }
        let lines = send(&call, Script::always(Step::error(error))).await;
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert!(
            line.contains("tool.failure") && !line.contains('\u{1b}'),
            "{line:?}"
        );
    }
}

/// O2: the other fields are recorded where DEBUG is heard.
#[tokio::test(start_paused = true)]
async fn all_fields_are_there_at_debug() {
    let (log, _guard) = Lines::at(Level::DEBUG);
    let stack = ServiceBuilder::new()
        .tool_trace()
        .service(service_fn(|_: ToolCall| async {
            Ok::<_, AnyError>("sunny")
        }));
    stack.oneshot(call()).await.unwrap();
    let text = log.text();
    let end = text.lines().last().unwrap();
    for field in [
        "gen_ai.tool.call.arguments=",
        "gen_ai.agent.id=agent-1",
        " call_id=toolu_01A09q90qw90lq917835lq9",
        " trace_id=0af7651916cd43dd8448eb211c80319c",
        " output_bytes=7",
    ] {
        assert!(end.contains(field), "{field} in {end}");
    }
}

/// O1: or where the layer is told to fill in the span.
#[tokio::test(start_paused = true)]
async fn a_span_has_its_fields_where_the_layer_says_so() {
    crate::listening();
    let record = super::Record::default();
    let _guard = tracing_subscriber::registry()
        .with(LevelFilter::INFO)
        .with(record.clone())
        .set_default();
    for fields in [false, true] {
        let layer = TraceLayer::new().with_span_fields(fields);
        let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("sunny") });
        let stack = ServiceBuilder::new().layer(layer).service(tool);
        stack.oneshot(call()).await.unwrap();
    }
    let seen = record.0.lock().unwrap().clone();
    let [bare, filled] = &seen.spans[..] else {
        panic!("{seen:?}")
    };
    assert!(bare.2.is_empty(), "{bare:?}");
    assert_eq!(filled.2["gen_ai.tool.name"], "search");
    assert_eq!(filled.2["tool.success"], "true");
}

/// S-9c: a name that a model or a peer has chosen is one field, whatever is in it.
#[tokio::test(start_paused = true)]
async fn names_forge_no_fields() {
    for level in [Level::INFO, Level::DEBUG] {
        let (log, _guard) = Lines::at(level);
        for name in [
            "search code=\"OK\"",
            "a\nb error=x",
            "a=b",
            "a} tool.success",
            "a\u{200b}code=x",
        ] {
            let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("sunny") });
            let stack = ServiceBuilder::new().layer(TraceLayer::new()).service(tool);
            let call = ToolCall::new(name).with_server(name).with_id(name);
            stack.oneshot(call.with_trace_id(name)).await.unwrap();
        }
        let text = log.text();
        let is_event = |line: &&str| line.contains("tool.success tool=");
        assert_eq!(text.lines().filter(is_event).count(), 5, "{text}");
        for line in text.lines() {
            // What stands outside of quotes is ours.
            let plain = line.replace("\\\"", "");
            let ours: String = plain.split('"').step_by(2).collect();
            for forged in ["code=", "error=", "a=b", "} tool.success t=", "b "] {
                assert!(!ours.contains(forged), "{forged} in {line}");
            }
        }
    }
}

/// S-9c: other names are as they were.
#[tokio::test(start_paused = true)]
async fn ordinary_names_are_not_quoted() {
    let (log, _guard) = Lines::at(Level::INFO);
    let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("sunny") });
    let stack = ServiceBuilder::new().layer(TraceLayer::new()).service(tool);
    for name in ["docs__search", "ns:files/read.v2", "größe-π"] {
        stack.clone().oneshot(ToolCall::new(name)).await.unwrap();
        let lines = log.lines();
        let last = lines.last().unwrap();
        assert!(last.contains(&format!(" tool={name} ")), "{last}");
    }
}
