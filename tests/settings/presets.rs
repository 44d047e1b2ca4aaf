//! A stack of each preset does what its system does (G3).

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Outcome, ReplaySafety, ToolCall, ToolError,
    circuit_breaker::BreakerState,
    outcome::{ByError, Classify},
    settings::{Preset, Settings},
};
use tower_toolcall_test::{Events, Script, Step};

use crate::kit::{call, flaky, run, safe, secs, stack};

/// Each preset with its timeout, and its cooldown where a rate limit is waited out.
const TABLE: [(Preset, u64, Option<u64>); 5] = [
    (Preset::Default, 30, Some(30)),
    (Preset::AgentLibrary, 5, Some(10)),
    (Preset::AgentLoop, 30, Some(30)),
    (Preset::Gateway, 60, None),
    (Preset::HttpProxy, 30, None),
];

#[test]
fn all_presets_are_tried() {
    assert_eq!(TABLE.map(|(preset, ..)| preset), Preset::ALL);
}

/// T1.
#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_is_ended_at_the_presets_time() {
    for (preset, timeout, _) in TABLE {
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
    for (preset, _, cooldown) in TABLE {
        let Some(cooldown) = cooldown else {
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
    for preset in Preset::ALL {
        let layer = Settings::preset(preset)
            .stack()
            .with_classifier(Words)
            .build()
            .unwrap();
        let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>("error") });
        for _ in 0..10 {
            let answer = layer.layer(tool).oneshot(call()).await;
            assert_eq!(answer.unwrap(), "error", "{preset}");
        }
    }
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
