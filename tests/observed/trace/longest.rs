//! Row 2 of new users: no event about a call is longer than a line, and the cause of an error can
//! be read in it.

use std::{error::Error, fmt, io, time::Duration};

use serde_json::json;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, Event, Key, ReplaySafety, ServiceBuilderExt as _, ToolCall, ToolError,
    cache::CacheLayer,
    circuit_breaker::{CircuitBreakerLayer, Trip},
    concurrency_limit::ConcurrencyLimitLayer,
    event::{Listener, RetryRefusal},
    health::Health,
    once::OnceLayer,
    policy::{PolicyLayer, Rule},
    repeat_guard::RepeatGuardLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
};
use tower_toolcall_test::{Script, Step};
use tracing::Level;

use super::lines::Lines;

const CAUSE: &str = "Connection refused (os error 111)";

/// An error with a cause, as clients of HTTP and gRPC have.
#[derive(Debug)]
struct Caused(&'static str, Box<dyn Error + Send + Sync>);

impl fmt::Display for Caused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Caused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.1)
    }
}

fn refused() -> AnyError {
    let refused = io::Error::new(io::ErrorKind::ConnectionRefused, CAUSE);
    let connect = Caused("tcp connect error", refused.into());
    let client = Caused("client error (Connect)", connect.into());
    let send = Caused("error sending request for url", client.into());
    Caused("the request failed", send.into()).into()
}

fn call() -> ToolCall {
    ToolCall::new("weather_report")
        .with_server("meteo")
        .with_id("toolu_01A09q90qw90lq917835lq9")
        .with_trace_id("0af7651916cd43dd8448eb211c80319c")
        .with_json(json!({ "city": "Oslo" }))
        .unwrap()
}

fn safe() -> ToolCall {
    call().with_replay_safety(ReplaySafety::Safe)
}

/// Row 2: the innermost source is readable in the line of each retry and of the end.
#[tokio::test(start_paused = true)]
async fn a_line_shows_the_innermost_cause_of_an_error() {
    for call in [safe(), ToolCall::new("pay")] {
        let (log, _guard) = Lines::at(Level::INFO);
        let tool = service_fn(|_: ToolCall| async { Err::<(), _>(refused()) });
        let stack = ServiceBuilder::new()
            .tool_trace()
            .tool_retry(RetryPolicy::new())
            .service(tool);
        stack.oneshot(call).await.unwrap_err();
        let lines = log.lines();
        assert!(lines.len() >= 2, "{lines:?}");
        let failures = lines.iter().filter(|line| line.contains(" error="));
        for line in failures {
            assert!(line.contains(&format!("{CAUSE}\"")), "{line}");
        }
    }
}

/// Row 2: a text without a cause of its own shows both of its ends, and uses the line up, but for
/// words that would be cut.
#[tokio::test(start_paused = true)]
async fn a_text_that_is_cut_fills_the_line() {
    let (log, _guard) = Lines::at(Level::INFO);
    let text = format!(
        "the report {} is not there",
        "of a very long name ".repeat(20)
    );
    let tool = Script::<()>::always(Step::error(ToolError::new(ErrorKind::Failed, text)));
    let stack = ServiceBuilder::new().tool_trace().service(tool);
    stack.oneshot(ToolCall::new("pay")).await.unwrap_err();
    let lengths = log.lengths();
    assert!(
        lengths.iter().all(|n| (188..=200).contains(n)),
        "{lengths:?}"
    );
    let lines = log.lines();
    assert!(lines[0].contains("error=\"the report of a"), "{lines:?}");
    assert!(lines[0].contains(" is not there\" "), "{lines:?}");
}

/// `e...connection closed` names no beginning. Each length of a name leaves another room for
/// the text.
#[tokio::test(start_paused = true)]
async fn a_cut_text_begins_with_words_or_with_its_cause() {
    let (log, _guard) = Lines::at(Level::INFO);
    let text =
        "the request failed: error sending request: connection closed before message completed";
    let tool = Script::<()>::always(Step::error(ToolError::new(ErrorKind::Failed, text)));
    let stack = ServiceBuilder::new().tool_trace().service(tool);
    for length in 1..=64 {
        let call = ToolCall::new("x".repeat(length));
        stack.clone().oneshot(call).await.unwrap_err();
    }
    let lines = log.lines();
    let heads = lines.iter().filter_map(|line| {
        let (_, text) = line.split_once("error=\"")?;
        Some(text.split_once("...")?.0)
    });
    let heads: Vec<_> = heads.collect();
    assert!(heads.len() > 10, "{lines:?}");
    for head in heads {
        assert!(head.is_empty() || head.contains(' '), "{head}");
    }
}

/// 46: no word is cut in two, at neither end.
#[tokio::test(start_paused = true)]
async fn a_text_is_cut_between_words() {
    let (log, _guard) = Lines::at(Level::INFO);
    let text = "consequences of long reports in the office ".repeat(8);
    let text = text.trim();
    let tool = Script::<()>::always(Step::error(ToolError::new(
        ErrorKind::Failed,
        text.to_owned(),
    )));
    let stack = ServiceBuilder::new().tool_trace().service(tool);
    for length in 1..=30 {
        let call = ToolCall::new("x".repeat(length));
        stack.clone().oneshot(call).await.unwrap_err();
    }
    let lines = log.lines();
    let shown = lines.iter().filter_map(|line| {
        let (_, text) = line.split_once("error=\"")?;
        text.split_once('"')?.0.split_once("...")
    });
    let shown: Vec<_> = shown.collect();
    assert!(shown.len() > 10, "{shown:?}");
    for (head, tail) in shown {
        assert!(
            head.is_empty() || text.starts_with(&format!("{head} ")),
            "{head}"
        );
        assert!(text.ends_with(&format!(" {tail}")), "{tail}");
    }
}

/// Sends calls through a layer inside of trace, to a tool that fails.
async fn through<L>(layer: L, calls: &[ToolCall], step: &Step<&'static str>) -> Vec<String>
where
    L: Layer<Script<&'static str>>,
    L::Service: Service<ToolCall, Response = &'static str, Error = ToolError> + Clone,
{
    let (log, _guard) = Lines::at(Level::INFO);
    let tool = Script::always(step.clone());
    let stack = ServiceBuilder::new()
        .tool_trace()
        .layer(layer)
        .service(tool);
    for call in calls {
        let _ = stack.clone().oneshot(call.clone()).await;
    }
    log.lines()
}

/// Row 2: `tool.inert` of each layer is one line, with all of its advice.
#[tokio::test(start_paused = true)]
async fn a_layer_that_can_do_nothing_says_so_in_one_line() {
    let (call, ok) = ([call()], Step::ok("sunny"));
    let cache = || CacheLayer::new(Duration::from_secs(60), ["weather_report"]).unwrap();
    let marked = ToolCall::new("weather_report").with_replay_safety(ReplaySafety::Unsafe);
    let marked = [marked.with_session_id("s1")];
    let key = Key::by(|call| call.session_id().unwrap_or(""));
    let limit = ConcurrencyLimitLayer::builder(4).with_keys(key);
    let agents = PolicyLayer::new().rule(Rule::deny("*").for_agent("intern-*"));
    let found = [
        through(OnceLayer::new(), &call, &ok).await,
        through(cache(), &[ToolCall::new("weather_report")], &ok).await,
        through(cache(), &marked, &ok).await,
        through(RepeatGuardLayer::new(), &call, &ok).await,
        through(RetryLayer::default(), &call, &Step::status(502)).await,
        through(limit.build().unwrap(), &call, &ok).await,
        through(agents, &call, &ok).await,
    ];
    for (n, lines) in found.iter().enumerate() {
        let inert = lines.iter().find(|line| line.contains("tool.inert"));
        let inert = inert.unwrap_or_else(|| panic!("{n}: {lines:?}"));
        assert!(
            inert.contains(" help=\"set ") || inert.contains(" help=\"leave "),
            "{inert}"
        );
        assert!(!inert.contains("..."), "{inert}");
        assert!(inert.contains("tool=weather_report "), "{inert}");
    }
}

/// Row 2: so are a breaker's changes of state, for all callers and for one of them.
#[tokio::test(start_paused = true)]
async fn each_change_of_a_breaker_is_one_line() {
    for (failures, trip, reason) in [
        (5, Trip::consecutive_failures(5), "consecutive_failures"),
        (
            30,
            Trip::total_failures_within(30, Duration::from_secs(3600)),
            "failures_in_window",
        ),
    ] {
        let (log, _guard) = Lines::at(Level::INFO);
        let breaker = CircuitBreakerLayer::builder().with_trip(trip);
        let breaker = breaker.build().unwrap();
        let down = Step::status(503);
        let tool = Script::new(vec![down; failures + 1]).then(Step::ok("sunny"));
        let stack = ServiceBuilder::new()
            .tool_trace()
            .layer(breaker)
            .layer(TimeoutLayer::new(Duration::from_secs(10)))
            .service(tool);
        for _ in 0..100 {
            let _ = stack.clone().oneshot(safe()).await;
            tokio::time::advance(Duration::from_secs(20)).await;
        }
        let lines = log.lines();
        let reason = format!("to=\"open\" reason=\"{reason}\"");
        for shown in [
            &*reason,
            "to=\"half_open\" reason=\"period_elapsed\"",
            "to=\"closed\" reason=\"probes_succeeded\"",
        ] {
            let mut changes = lines.iter();
            let change = changes.find(|line| line.contains("tool.breaker") && line.contains(shown));
            let change = change.unwrap_or_else(|| panic!("{shown}: {lines:?}"));
            assert!(change.contains("tool=weather_report "), "{change}");
        }
    }
    let breaker = CircuitBreakerLayer::new();
    let failed = Step::error(ToolError::from_box("it is broken".into()));
    let alice = call().with_session_id("0f4ac1a2-6f0e-4a53-9d51-8f0f4c1b7e2d");
    let lines = through(breaker, &vec![alice; 6], &failed).await;
    let alone = |line: &&String| line.contains("tool.breaker.principal tool=");
    let line = lines.iter().find(alone);
    assert!(
        line.is_some_and(|line| line.contains("principal=\"session")),
        "{lines:?}"
    );
}

/// Row 2: and those of a server's health.
#[tokio::test(start_paused = true)]
async fn each_change_of_a_servers_health_is_one_line() {
    let health = Health::builder().with_threshold(3).build().unwrap();
    let step = Step::fail(ErrorKind::ConnectionFailed);
    let lines = through(health.layer(), &vec![safe(); 4], &step).await;
    let down = lines
        .iter()
        .find(|line| line.contains("to=\"unavailable\""));
    let down = down.unwrap_or_else(|| panic!("{lines:?}"));
    assert!(
        down.contains("tool.health") && down.contains("server=meteo"),
        "{down}"
    );
}

/// Row 2: and the events that layers of other authors report, with texts of theirs.
#[tokio::test(start_paused = true)]
async fn events_of_layers_of_others_are_lines() {
    let (log, _guard) = Lines::at(Level::INFO);
    let listener = Listener::default();
    let info = call().info();
    let error = ToolError::from_box(Box::new(Caused("it failed in some way", CAUSE.into())));
    let hour = Duration::from_secs(3600);
    for event in [
        Event::slow(&info, hour, hour),
        Event::not_started(&info, ErrorKind::NotFound).with_error(&error),
        Event::not_started(&info, ErrorKind::DeadlineExceeded),
        Event::retry(&info, 100, hour).with_error(&error).hinted(),
        Event::retry_refused(&info, 100, RetryRefusal::Exhausted).with_error(&error),
        Event::retry_refused(&info, 100, RetryRefusal::NotMarkedSafe).with_error(&error),
        Event::rate_limited(&info, 100, hour).hinted(),
        Event::repeated(&info, 1000),
    ] {
        listener.tell(&event);
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 8, "{lines:?}");
    let text = lines.join("\n");
    assert_eq!(text.matches("tool=weather_report ").count(), 8, "{text}");
    assert_eq!(text.matches(&format!("{CAUSE}\"")).count(), 4, "{text}");
}
