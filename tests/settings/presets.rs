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
    BoxError, ErrorKind, Event, Outcome, ToolCall, ToolError,
    circuit_breaker::BreakerState,
    outcome::{ByError, Classify},
    settings::{Preset, Settings},
};

use crate::kit::{Flaky, call, run, secs, stack};

/// System, timeout, cooldown, failures that open, open period, trials that close, whether `isError` counts.
const TABLE: [(Preset, u64, u64, usize, u64, usize, bool); 5] = [
    (Preset::Default, 30, 30, 5, 60, 1, false),
    (Preset::AgentLibrary, 5, 10, 5, 60, 1, false),
    (Preset::AgentLoop, 30, 30, 5, 60, 1, false),
    (Preset::Gateway, 60, 30, 5, 60, 1, true),
    (Preset::HttpProxy, 30, 30, 5, 30, 3, false),
];

#[test]
fn all_presets_are_tried() {
    assert_eq!(TABLE.map(|row| row.0), Preset::ALL);
}

/// T1.
#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_is_ended_at_the_presets_time() {
    for (preset, timeout, ..) in TABLE {
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

/// L1: success on attempt 2, after the cooldown. The gate and the retry layer each add a second at most.
#[tokio::test(start_paused = true)]
async fn a_rate_limit_ends_in_success_on_attempt_2_after_the_cooldown() {
    for (preset, _, cooldown, ..) in TABLE {
        let tool = Flaky::new(ErrorKind::RateLimited, 1);
        let start = Instant::now();
        let done = run(&stack(&Settings::preset(preset)), &tool, call()).await;
        assert_eq!((done, tool.calls()), (Ok("done"), 2), "{preset}");
        let took = start.elapsed();
        assert!(
            (secs(cooldown)..=secs(cooldown + 2)).contains(&took),
            "{preset}: {took:?}"
        );
    }
}

/// T5: within B's sequence as well.
#[cfg(feature = "batch")]
#[tokio::test(start_paused = true)]
async fn the_cooldown_of_the_agent_library_fits_into_its_sequence() {
    let settings = Settings::agent_library();
    let tools = stack(&settings).layer(Flaky::new(ErrorKind::RateLimited, 2));
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
    for (preset, _, _, threshold, reset, trials, _) in TABLE {
        let layer = stack(&Settings::preset(preset));
        let breaker = layer.circuit_breaker().breaker(&call());
        let tool = Flaky::new(ErrorKind::Upstream, threshold);
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
        for _ in 0..trials {
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

/// E6, C5: it counts in preset D alone.
#[tokio::test(start_paused = true)]
async fn the_tools_own_errors_open_the_breaker_of_the_gateway_alone() {
    for (preset, _, _, threshold, _, _, counts) in TABLE {
        let layer = Settings::preset(preset)
            .stack()
            .with_classifier(Words)
            .build()
            .unwrap();
        let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>("error") });
        for _ in 0..threshold {
            assert_eq!(layer.layer(tool).oneshot(call()).await.unwrap(), "error");
        }
        let refused = layer.layer(tool).oneshot(call()).await.is_err();
        assert_eq!(refused, counts, "{preset}");
    }
}

/// W4: US-2, scenario 3: a success resets the count.
#[tokio::test(start_paused = true)]
async fn a_success_resets_the_count_of_the_gateway() {
    let layer = stack(&Settings::gateway());
    let breaker = layer.circuit_breaker().breaker(&call());
    for (failures, then) in [(3, Ok("done")), (4, Ok("done"))] {
        let tool = Flaky::new(ErrorKind::Upstream, failures);
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
    let tool = Flaky::new(ErrorKind::Upstream, 100);
    for _ in 0..10 {
        assert_eq!(run(&layer, &tool, call()).await, Err(ErrorKind::Upstream));
        advance(secs(76)).await;
    }
}

/// C1: E's breaker is the server's.
#[tokio::test(start_paused = true)]
async fn the_breaker_of_the_http_proxy_is_the_servers() {
    let layer = stack(&Settings::http_proxy());
    let tool = Flaky::new(ErrorKind::Upstream, 5);
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

/// C1: calls without a server have one too.
#[tokio::test(start_paused = true)]
async fn calls_without_a_server_share_a_breaker_of_the_http_proxy() {
    let layer = stack(&Settings::http_proxy());
    let tool = Flaky::new(ErrorKind::Upstream, 5);
    for i in 0..5 {
        let call = ToolCall::new(format!("t{i}"));
        assert_eq!(run(&layer, &tool, call).await, Err(ErrorKind::Upstream));
    }
    let other = ToolCall::new("other");
    let refused = run(&layer, &tool, other).await;
    assert_eq!(refused, Err(ErrorKind::CircuitOpen));
}

/// R6: C alone assumes that a tool may run twice.
#[tokio::test(start_paused = true)]
async fn the_agent_loop_alone_repeats_what_nobody_calls_safe() {
    for preset in Preset::ALL {
        let tool = Flaky::new(ErrorKind::Upstream, 2);
        let call = ToolCall::new("search");
        let done = run(&stack(&Settings::preset(preset)), &tool, call).await;
        assert_eq!(done.is_ok(), preset == Preset::AgentLoop, "{preset}");
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
    for (millis, slow) in [(3_900, 0), (4_100, 1)] {
        let count = Arc::new(AtomicUsize::new(0));
        let heard = count.clone();
        let listen = move |event: &Event<'_>| {
            let is_slow = matches!(event, Event::Slow { .. });
            heard.fetch_add(is_slow.into(), SeqCst);
        };
        let builder = Settings::agent_library().stack().with_listener(listen);
        let tool = service_fn(move |_: ToolCall| async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Ok::<_, BoxError>(())
        });
        let layer = builder.build().unwrap();
        layer.layer(tool).oneshot(call()).await.unwrap();
        assert_eq!(count.load(SeqCst), slow);
    }
}
