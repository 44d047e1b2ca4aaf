//! A stack of each preset does what its system does (G3).

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::time::{Instant, advance};
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Outcome, ReplaySafety, ToolCall, ToolError,
    circuit_breaker::BreakerState,
    outcome::{ByError, Classify},
    settings::{Preset, Settings},
};
use tower_toolcall_test::{Events, Script, Step};

use crate::kit::{call, flaky, run, safe, secs, stack};

struct Row {
    preset: Preset,
    timeout: u64,
    /// Of a rate limit, where it is waited out.
    cooldown: Option<u64>,
    breaker: Option<Breaker>,
}

struct Breaker {
    threshold: usize,
    reset: u64,
    probes: usize,
}

const fn breaker(reset: u64, probes: usize) -> Option<Breaker> {
    Some(Breaker {
        threshold: 5,
        reset,
        probes,
    })
}

const fn row(preset: Preset, timeout: u64, cooldown: Option<u64>, breaker: Option<Breaker>) -> Row {
    Row {
        preset,
        timeout,
        cooldown,
        breaker,
    }
}

const TABLE: [Row; 5] = [
    row(Preset::Default, 30, Some(30), breaker(60, 1)),
    row(Preset::AgentLibrary, 5, Some(10), None),
    row(Preset::AgentLoop, 30, Some(30), None),
    row(Preset::Gateway, 60, None, breaker(60, 1)),
    row(Preset::HttpProxy, 30, None, breaker(30, 3)),
];

#[test]
fn all_presets_are_tried() {
    assert_eq!(TABLE.map(|row| row.preset), Preset::ALL);
}

/// T1.
#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_is_ended_at_the_presets_time() {
    for Row {
        preset, timeout, ..
    } in TABLE
    {
        let tool = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
        let start = Instant::now();
        let tools = stack(&Settings::preset(preset)).layer(tool);
        let error = tools.oneshot(call()).await.unwrap_err();
        assert_eq!(
            (error.kind(), start.elapsed()),
            (ErrorKind::Timeout, secs(timeout)),
            "{preset}"
        );
    }
}

/// L1: success on attempt 2, after the cooldown. The gate and the retry layer each add a second at
/// most.
#[tokio::test(start_paused = true)]
async fn a_rate_limit_ends_in_success_on_attempt_2_after_the_cooldown() {
    for row in TABLE {
        let (preset, Some(cooldown)) = (row.preset, row.cooldown) else {
            continue;
        };
        let tool = flaky(ErrorKind::RateLimited, 1);
        let start = Instant::now();
        let done = run(&stack(&Settings::preset(preset)), &tool, call()).await;
        assert_eq!((done, tool.count()), (Ok("done"), 2), "{preset}");
        let took = start.elapsed();
        assert!(
            (secs(cooldown)..=secs(cooldown + 2)).contains(&took),
            "{preset}: {took:?}"
        );
    }
}

/// What a server may do to a call that is made once.
#[derive(Clone, Copy, Debug)]
enum Upstream {
    Hangs,
    Says(ErrorKind, Option<u64>),
    SaysLate(ErrorKind),
}

/// W3: a call of the gateways' presets is answered within its timeout, whatever the upstream does,
/// and is made once; the next one waits for nothing either.
#[tokio::test(start_paused = true)]
async fn a_call_through_a_gateway_is_answered_within_its_timeout() {
    let upstreams = [
        Upstream::Hangs,
        Upstream::Says(ErrorKind::RateLimited, None),
        Upstream::Says(ErrorKind::RateLimited, Some(290)),
        Upstream::Says(ErrorKind::RateLimited, Some(3)),
        Upstream::Says(ErrorKind::Upstream, Some(20)),
        Upstream::Says(ErrorKind::ConnectionFailed, None),
        Upstream::SaysLate(ErrorKind::Upstream),
    ];
    for (preset, timeout) in [(Preset::Gateway, 60), (Preset::HttpProxy, 30)] {
        for upstream in upstreams {
            let requests = Arc::new(AtomicUsize::new(0));
            let count = requests.clone();
            let tool = service_fn(move |_: ToolCall| {
                count.fetch_add(1, SeqCst);
                async move {
                    let (kind, told) = match upstream {
                        Upstream::Hangs => std::future::pending().await,
                        Upstream::Says(kind, told) => (kind, told),
                        Upstream::SaysLate(kind) => {
                            tokio::time::sleep(secs(timeout - 1)).await;
                            (kind, None)
                        }
                    };
                    let error = ToolError::new(kind, "not now");
                    Err::<(), _>(match told {
                        Some(told) => error.with_retry_after(secs(told)),
                        None => error,
                    })
                }
            });
            let layer = stack(&Settings::preset(preset));
            for n in 1..=3 {
                let start = Instant::now();
                // One that is sure to have run not is not made again either.
                let call = safe();
                let error = layer.layer(tool.clone()).oneshot(call).await.unwrap_err();
                let took = start.elapsed();
                assert!(took <= secs(timeout), "{preset}, {upstream:?}: {took:?}");
                assert!(requests.load(SeqCst) <= n, "{preset}, {upstream:?}");
                if let Upstream::Says(ErrorKind::RateLimited, told) = upstream {
                    assert_eq!((took, requests.load(SeqCst)), (secs(0), 1));
                    assert!(error.retry_after() >= told.map(secs), "{error:?}");
                }
            }
            let state = layer.circuit_breaker().breaker(&call()).state();
            assert_eq!(state, BreakerState::Closed);
        }
    }
}

/// W3: what is asked for is repeated, of all tools or of one.
#[tokio::test(start_paused = true)]
async fn a_gateway_repeats_calls_if_told_to() {
    let vars = [("TOOLCALL_RETRY_ATTEMPTS", "2")];
    let all = Settings::gateway().with_env_from(vars).unwrap();
    let file = "preset = \"gateway\"\n[tools.search]\nattempts = 2";
    let one: Settings = toml::from_str(file).unwrap();
    for (settings, other) in [(all, 2), (one, 1)] {
        let layer = stack(&settings);
        for (name, sent) in [("search", 2), ("other", other)] {
            let tool = flaky(ErrorKind::Upstream, 1);
            let call = ToolCall::new(name).with_replay_safety(ReplaySafety::Safe);
            let done = run(&layer, &tool, call).await;
            assert_eq!((done.is_ok(), tool.count()), (sent == 2, sent));
        }
    }
}

/// W8: B and C asked for no breaker: every call is made.
#[tokio::test(start_paused = true)]
async fn a_preset_without_a_breaker_makes_every_call() {
    for preset in [Preset::AgentLibrary, Preset::AgentLoop] {
        let layer = stack(&Settings::preset(preset));
        let hangs = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
        for _ in 0..10 {
            let error = layer.layer(hangs).oneshot(call()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{preset}");
        }
        assert!(layer.circuit_breaker().is_empty());
    }
}

/// T5: within B's sequence as well.
#[tokio::test(start_paused = true)]
async fn the_cooldown_of_the_agent_library_fits_into_its_sequence() {
    let settings = Settings::agent_library();
    let tools = stack(&settings).layer(flaky(ErrorKind::RateLimited, 2));
    let sequence = settings
        .sequence
        .apply(tower_toolcall::batch::Sequence::new(tools));
    let report = sequence.run([call(), call()]).await;
    assert_eq!(report.tally().succeeded, 2);
    assert_eq!(report.results()[0].attempts(), 3);
}

/// C1, C2, C3.
#[tokio::test(start_paused = true)]
async fn a_breaker_opens_at_the_threshold_and_closes_after_the_reset() {
    for row in TABLE {
        let preset = row.preset;
        let Some(Breaker {
            threshold,
            reset,
            probes,
            ..
        }) = row.breaker
        else {
            continue;
        };
        let layer = stack(&Settings::preset(preset));
        let breaker = layer.circuit_breaker().breaker(&call());
        let tool = flaky(ErrorKind::Upstream, threshold);
        for _ in 0..threshold {
            assert_eq!(breaker.state(), BreakerState::Closed, "{preset}");
            assert_eq!(run(&layer, &tool, call()).await, Err(ErrorKind::Upstream));
        }
        assert_eq!(
            run(&layer, &tool, call()).await,
            Err(ErrorKind::CircuitOpen),
            "{preset}"
        );
        advance(secs(reset) - Duration::from_millis(1)).await;
        assert_eq!(
            run(&layer, &tool, call()).await,
            Err(ErrorKind::CircuitOpen),
            "{preset}"
        );
        advance(Duration::from_millis(1)).await;
        for _ in 0..probes {
            assert_ne!(breaker.state(), BreakerState::Closed, "{preset}");
            assert_eq!(run(&layer, &tool, call()).await, Ok("done"), "{preset}");
        }
        assert_eq!(breaker.state(), BreakerState::Closed, "{preset}");
    }
}

/// An answer that is an error in the tool's own words.
#[derive(Clone, Copy)]
struct Words;

impl Classify<&'static str> for Words {
    fn classify(&self, result: Result<&&'static str, &ToolError>) -> Outcome {
        match result {
            Ok(&"error") => Outcome::reported(),
            other => ByError.classify(other),
        }
    }
}

/// E6, C5, X11: it counts in no preset: whoever asks for a file that is not there switches nothing
/// off for others.
#[tokio::test(start_paused = true)]
async fn the_tools_own_errors_open_no_breaker() {
    for row in TABLE {
        let preset = row.preset;
        let Some(Breaker { threshold, .. }) = row.breaker else {
            continue;
        };
        let layer = Settings::preset(preset)
            .stack()
            .with_classifier(Words)
            .build()
            .unwrap();
        let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>("error") });
        for _ in 0..2 * threshold {
            let answer = layer.layer(tool).oneshot(call()).await;
            assert_eq!(answer.unwrap(), "error", "{preset}");
        }
    }
}

/// W4: US-2, scenario 3: a success resets the count.
#[tokio::test(start_paused = true)]
async fn a_success_resets_the_count_of_the_gateway() {
    let layer = stack(&Settings::gateway());
    let breaker = layer.circuit_breaker().breaker(&call());
    for (failures, then) in [(3, Ok("done")), (4, Ok("done"))] {
        let tool = flaky(ErrorKind::Upstream, failures);
        for _ in 0..failures {
            assert_eq!(run(&layer, &tool, call()).await, Err(ErrorKind::Upstream));
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert_eq!(run(&layer, &tool, call()).await, then);
    }
}

/// C2: of D's failures, those within 300 s.
#[tokio::test(start_paused = true)]
async fn the_failures_of_the_gateway_leave_its_window() {
    let layer = stack(&Settings::gateway());
    let tool = flaky(ErrorKind::Upstream, 100);
    for _ in 0..10 {
        assert_eq!(run(&layer, &tool, call()).await, Err(ErrorKind::Upstream));
        advance(secs(76)).await;
    }
}

/// C1: E's breaker is the server's.
#[tokio::test(start_paused = true)]
async fn the_breaker_of_the_http_proxy_is_the_servers() {
    let layer = stack(&Settings::http_proxy());
    let tool = flaky(ErrorKind::Upstream, 5);
    let call = |tool: String| ToolCall::new(tool).with_server("api");
    for i in 0..5 {
        assert_eq!(
            run(&layer, &tool, call(format!("t{i}"))).await,
            Err(ErrorKind::Upstream)
        );
    }
    assert_eq!(
        run(&layer, &tool, call("other".into())).await,
        Err(ErrorKind::CircuitOpen)
    );
}

/// C1, E.1.4: a tool without a source does not close others to their callers.
#[tokio::test(start_paused = true)]
async fn a_tool_without_a_server_has_its_own_breaker_in_the_http_proxy() {
    let layer = stack(&Settings::http_proxy());
    let tool = flaky(ErrorKind::Upstream, 5);
    for _ in 0..5 {
        let failed = run(&layer, &tool, ToolCall::new("a")).await;
        assert_eq!(failed, Err(ErrorKind::Upstream));
    }
    let refused = run(&layer, &tool, ToolCall::new("a")).await;
    assert_eq!(refused, Err(ErrorKind::CircuitOpen));
    run(&layer, &tool, ToolCall::new("b")).await.unwrap();
}

/// P11: no preset assumes that a tool may run twice. System C's rule is a line of the user's.
#[tokio::test(start_paused = true)]
async fn no_preset_repeats_a_call_that_is_not_known_to_be_safe() {
    for preset in Preset::ALL {
        let tool = flaky(ErrorKind::Upstream, 2);
        let call = ToolCall::new("search");
        let done = run(&stack(&Settings::preset(preset)), &tool, call).await;
        assert!(done.is_err() && tool.count() == 1, "{preset}");
    }
}

/// P11: a payment that timed out is not sent again by an agent loop, and a user's line changes
/// that.
#[tokio::test(start_paused = true)]
async fn an_agent_loop_pays_once_unless_a_line_says_otherwise() {
    for (assumes, sent) in [(false, 1), (true, 3)] {
        let mut settings = Settings::agent_loop();
        settings.retry.assume_replay_safe = assumes;
        let tool = flaky(ErrorKind::Timeout, 2);
        let _ = run(&stack(&settings), &tool, ToolCall::new("pay")).await;
        assert_eq!(tool.count(), sent);
    }
}

/// P12: system B does not ask for retries: a timeout of its library is no refused retry.
#[tokio::test(start_paused = true)]
async fn the_agent_library_has_no_retry_layer() {
    for kind in [ErrorKind::Timeout, ErrorKind::ConnectionFailed] {
        let events = Events::new();
        let builder = Settings::agent_library().stack();
        let layer = builder.with_listener(events.clone()).build().unwrap();
        let tool = flaky(kind, 1);
        assert_eq!(run(&layer, &tool, safe()).await, Err(kind));
        assert_eq!(tool.count(), 1);
        let names = events.names();
        assert!(
            names.iter().all(|name| !name.contains("retry")),
            "{names:?}"
        );
    }
}

/// G3: what no layer of the stack shows.
#[test]
fn the_rest_of_the_numbers_of_the_agent_library() {
    let settings = Settings::agent_library();
    assert_eq!(settings.timeout.slow_fraction, 0.8);
    assert_eq!(settings.sequence.budget, Some(secs(30)));
    assert_eq!(settings.sequence.reserve, Duration::from_millis(500));
    assert_eq!(settings.parallel.budget, Some(secs(60)));
}

/// T6: B reports a call as slow that took more than 4 of its 5 s.
#[tokio::test(start_paused = true)]
async fn a_call_of_the_agent_library_is_slow_from_80_percent_on() {
    for (millis, slow) in [(3_900, false), (4_100, true)] {
        let stack = stack(&Settings::agent_library());
        let tool = Script::always(Step::ok(()).after(Duration::from_millis(millis)));
        let (done, record) = Events::new().run(stack.layer(tool), call()).await;
        done.unwrap();
        record.assert(|r| r.is_slow == slow);
    }
}
