//! What was asked for: C1 to C5, C9 and C10.

use std::time::Duration;

use tokio::time::advance;
use tokio_test::assert_ready_err;
use tower::{Layer, ServiceExt};
use tower_toolcall::{
    Classify, ErrorKind, Event, Execution, Key, Keys, Outcome, ToolCall, ToolError,
    circuit_breaker::{Breaker, BreakerState, CircuitBreakerBuilder, CircuitBreakerLayer, Trip},
    outcome::{ByError, Count},
};

use super::{Events, Rig, Step, Tool, default_rig, fails, kind, ok, secs, tool};
use crate::kit::call;

/// Opens the breaker of a call's key.
async fn opens(rig: &Rig, call: ToolCall) {
    rig.tool.set_then(fails());
    for _ in 0..5 {
        assert_eq!(kind(rig.send(call.clone()).await), ErrorKind::Upstream);
    }
    rig.tool.set_then(ok());
    assert_eq!(kind(rig.send(call).await), ErrorKind::CircuitOpen);
}

/// C1, E.1.4: one bad tool never affects another; which calls an open breaker refuses is a matter
/// of its key.
#[tokio::test(start_paused = true)]
async fn one_bad_tool_never_affects_another() {
    let alone = |name: &str| ToolCall::new(name);
    let other = |name: &str| alone(name).with_server("other");
    let of = |agent: &str| tool("bad").with_agent_id(agent);
    let long = |end: &str| tool(&("n".repeat(1000) + end));
    let agent = Key::by(|call| call.agent_id().unwrap_or("nobody"));
    for (key, bad, refused, passing) in [
        (
            Key::Tool,
            tool("bad"),
            vec![],
            vec![tool("good"), alone("bad"), other("bad")],
        ),
        (Key::Tool, long("a"), vec![], vec![long("b"), long("")]),
        (
            Key::Server,
            tool("bad"),
            vec![tool("good")],
            vec![other("bad"), alone("bad")],
        ),
        (Key::Server, alone("bad"), vec![], vec![alone("good")]),
        (
            Key::ToolName,
            tool("bad"),
            vec![other("bad"), alone("bad")],
            vec![tool("good")],
        ),
        (
            agent,
            of("anna"),
            vec![tool("b").with_agent_id("anna")],
            vec![of("bert"), tool("bad")],
        ),
    ] {
        let rig = Rig::new(CircuitBreakerLayer::builder().with_keys(key));
        opens(&rig, bad).await;
        for call in refused {
            assert_eq!(kind(rig.send(call).await), ErrorKind::CircuitOpen);
        }
        for call in passing {
            rig.send(call).await.unwrap();
        }
    }
}

/// C4: a rejection says everything, and when to come back: by an open breaker, at the last moment
/// of its period, by a half-open one that is full, and by one that somebody has forced open.
#[tokio::test(start_paused = true)]
async fn a_rejection_says_what_and_when() {
    let rig = default_rig();
    rig.fails(5).await;
    let mut rejections = Vec::new();
    for (after, left) in [(13_000, 47_000), (46_999, 1)] {
        advance(Duration::from_millis(after)).await;
        let error = rig.ask(ok()).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_millis(left)));
        rejections.push(error);
    }
    advance(Duration::from_millis(1)).await;
    let probe = rig.hangs();
    rejections.push(rig.ask(ok()).await.unwrap_err());
    assert!(rig.breaker().snapshot().retry_after.is_some());
    drop(probe);
    rig.breaker().force_open();
    rejections.push(rig.ask(ok()).await.unwrap_err());
    advance(secs(1_000_000)).await;
    rejections.push(rig.ask(ok()).await.unwrap_err());
    assert_eq!(rejections[0].to_json_rpc()["code"], -32001);
    assert_eq!(
        rejections[0].to_json_rpc()["data"]["retry_after_seconds"],
        47
    );
    // A breaker that is driven by hand knows the key, and not the call.
    let by_hand = rig.breaker().admit().unwrap_err();
    let (of_calls, id) = (rejections.len(), Some("c1"));
    rejections.push(by_hand);
    for (n, error) in rejections.into_iter().enumerate() {
        assert_eq!(
            (error.kind(), error.code(), error.execution()),
            (
                ErrorKind::CircuitOpen,
                "CIRCUIT_OPEN",
                Execution::NotStarted
            )
        );
        assert_eq!(error.message(), "Circuit breaker open");
        assert_eq!(error.to_json_rpc()["message"], "Circuit breaker open");
        assert_eq!(error.tool(), Some("search"));
        assert_eq!(error.server(), Some("docs"));
        assert_eq!(error.call_id(), id.filter(|_| n < of_calls));
        assert!(error.retry_after() > Some(Duration::ZERO));
        assert!(error.retry_after_seconds() >= Some(1));
    }
}

/// Whether five such errors open the breaker.
async fn counts(builder: CircuitBreakerBuilder, kind: ErrorKind) -> bool {
    let rig = Rig::new(builder);
    for _ in 0..5 {
        rig.ask(Step::fail(kind)).await.unwrap_err();
    }
    let after = rig.breaker().snapshot();
    assert_eq!(
        after.failed_total,
        if after.state == BreakerState::Open {
            5
        } else {
            0
        }
    );
    after.state == BreakerState::Open
}

/// C5: timeouts, transport errors, 5xx, panics, and what nobody can classify count; mistakes of the
/// caller, rate limits, cancellations, slow jobs and what never ran do not. Trap 5: for a whole
/// server's breaker, what nobody can classify tells of the tool alone.
#[tokio::test(start_paused = true)]
async fn what_counts_is_what_tells_of_the_tool() {
    use ErrorKind::*;
    let counted = [Timeout, ConnectionFailed, Upstream, Panicked, Internal];
    for (key, own) in [(Key::Tool, Some(Failed)), (Key::Server, None)] {
        for &kind in ErrorKind::ALL {
            let builder = CircuitBreakerLayer::builder().with_keys(key.clone());
            let expected = counted.contains(&kind) || own == Some(kind);
            assert_eq!(counts(builder, kind).await, expected, "{kind:?}");
        }
    }
}

/// C5: errors in the tool's own words count if that is asked for.
#[tokio::test(start_paused = true)]
async fn reported_errors_count_if_that_is_asked_for() {
    let with = |count| CircuitBreakerLayer::builder().with_reported_failures(count);
    assert!(counts(with(true), ErrorKind::Reported).await);
    assert!(!counts(with(false), ErrorKind::Reported).await);
    assert!(!counts(with(true), ErrorKind::InvalidInput).await);
    assert!(!counts(CircuitBreakerLayer::builder(), ErrorKind::Reported).await);
}

/// C5: so do answers that a classifier flags, although the stack sees an `Ok`. V6: a caller's
/// mistake does not, even if reported errors count.
#[tokio::test(start_paused = true)]
async fn flagged_answers_count_if_that_is_asked_for() {
    for (outcome, asked, failed) in [
        (Outcome::reported as fn() -> Outcome, true, 5),
        (Outcome::reported, false, 0),
        (Outcome::mistake, true, 0),
    ] {
        let layer = CircuitBreakerLayer::builder()
            .with_reported_failures(asked)
            .classify_fn(move |_: Result<&&'static str, &ToolError>| outcome())
            .build()
            .unwrap();
        let svc = layer.layer(Tool::always(ok()));
        for _ in 0..5 {
            svc.clone().oneshot(call()).await.unwrap();
        }
        let seen = layer.handle().breaker(&call()).snapshot();
        assert_eq!(seen.failed_total, failed);
        assert_eq!(seen.state == BreakerState::Open, failed == 5);
    }
}

/// C5: what counts is the classifier's verdict, whatever the result is.
#[tokio::test(start_paused = true)]
async fn the_classifier_decides_what_counts() {
    let layer = CircuitBreakerLayer::builder()
        .classify_fn(|result: Result<&&'static str, &ToolError>| match result {
            Ok(_) => Outcome::failure(),
            Err(_) => Outcome::success(),
        })
        .build()
        .unwrap();
    let tool = Tool::always(fails());
    let svc = layer.layer(tool.clone());
    for _ in 0..10 {
        svc.clone().oneshot(call()).await.unwrap_err();
    }
    tool.set_then(ok());
    for _ in 0..5 {
        svc.clone().oneshot(call()).await.unwrap();
    }
    assert_eq!(kind(svc.oneshot(call()).await), ErrorKind::CircuitOpen);
}

/// C5: a breaker per server outside, one per tool inside: each counts what tells of its own.
#[tokio::test(start_paused = true)]
async fn a_server_breaker_works_outside_a_tool_breaker() {
    let server = CircuitBreakerLayer::builder()
        .with_keys(Key::Server)
        .with_trip(Trip::consecutive_failures(10))
        .build()
        .unwrap();
    let tools = CircuitBreakerLayer::new();
    let backend = Tool::always(Step::fail(ErrorKind::Failed));
    let stack = server.layer(tools.layer(backend.clone()));
    let send = |name: &str| stack.clone().oneshot(tool(name));

    for _ in 0..20 {
        let _ = send("a").await;
    }
    // The tool is stopped, its server is not.
    assert!(tools.handle().breaker(&tool("a")).is_open());
    assert!(!server.handle().breaker(&tool("a")).is_open());
    // Two more tools lose their transport: now it is the server.
    backend.set_then(Step::fail(ErrorKind::ConnectionFailed));
    for name in ["b", "c"] {
        for _ in 0..5 {
            assert_eq!(kind(send(name).await), ErrorKind::ConnectionFailed);
        }
    }
    let before = backend.count();
    assert_eq!(kind(send("d").await), ErrorKind::CircuitOpen);
    assert_eq!(backend.count(), before);
    assert_eq!(
        tools.handle().breaker(&tool("d")).snapshot().rejected_total,
        0
    );
}

/// C9: invented names do not grow the map, and an open breaker is never the one forgotten, nor a
/// half-open one, which would be closed without a probe.
#[tokio::test(start_paused = true)]
async fn invented_names_neither_grow_the_map_nor_push_out_an_open_breaker() {
    let heard = Events::pick(|event| match event {
        Event::Transition { .. } => Some((1, 0)),
        Event::Evicted { keys, kept, .. } => {
            assert!(*kept <= 100);
            Some((0, *keys))
        }
        _ => None,
    });
    let builder = CircuitBreakerLayer::builder()
        .with_keys(Keys::default().at_most(100))
        .with_listener(heard.clone());
    let rig = Rig::new(builder);
    opens(&rig, tool("half-open")).await;
    advance(secs(60)).await;
    let _probe = rig.handle.breaker(&tool("half-open")).admit().unwrap();
    opens(&rig, tool("bad")).await;
    rig.handle.breaker(&tool("stopped by hand")).force_open();
    rig.tool.set_then(ok());
    for n in 0..10_000 {
        rig.send(tool(&format!("invented {n}"))).await.unwrap();
        assert!(rig.handle.len() <= 100);
    }
    for name in ["half-open", "bad", "stopped by hand"] {
        assert_eq!(kind(rig.send(tool(name)).await), ErrorKind::CircuitOpen);
    }
    let heard = heard.take();
    let evicted: usize = heard.iter().map(|(_, keys)| keys).sum();
    assert!(evicted >= 9_000, "{evicted}");
    assert_eq!(heard.iter().map(|(opened, _)| opened).sum::<i32>(), 4);
}

/// C1, C9: if there is no place left, calls of unknown keys pass, and do not stop each other,
/// whatever somebody demands of one of them.
#[tokio::test(start_paused = true)]
async fn calls_of_unknown_keys_pass_when_all_breakers_are_open() {
    let bad = (0..10).map(|n| tool(&format!("bad {n}")));
    let keys = Keys::default().at_most(10).known_calls(bad.clone());
    let rig = Rig::new(CircuitBreakerLayer::builder().with_keys(keys));
    for tool in bad.clone() {
        opens(&rig, tool).await;
    }
    let unknown = rig.handle.breaker(&tool("new"));
    for demand in [|_: &Breaker| {}, Breaker::force_open, Breaker::reset] {
        demand(&unknown);
        rig.tool.set_then(ok());
        rig.send(tool("other")).await.unwrap();
        rig.tool.set_then(fails());
        for _ in 0..20 {
            let _ = rig.send(tool("new")).await;
        }
    }
    assert_eq!(kind(rig.send(tool("newer")).await), ErrorKind::Upstream);
    assert_eq!(rig.handle.len(), 10);
    for known in bad {
        assert_eq!(kind(rig.send(known).await), ErrorKind::CircuitOpen);
    }
}

/// C9: a key with a call in flight is not forgotten, so that the call's failure counts.
#[tokio::test(start_paused = true)]
async fn a_key_with_a_call_in_flight_is_kept() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_keys(Keys::default().at_most(10)));
    let act = Step::fail(ErrorKind::Upstream).after(secs(1));
    let mut calls = [(); 5].map(|()| rig.starts(act.clone(), call()));
    rig.tool.set_then(ok());
    for n in 0..1_000 {
        rig.send(tool(&format!("invented {n}"))).await.unwrap();
    }
    advance(secs(1)).await;
    for running in &mut calls {
        assert_ready_err!(running.poll());
    }
    assert_eq!(rig.breaker().state(), BreakerState::Open);
}

/// C2, C9: a dead tool that is called now and then is stopped, whatever names are invented in
/// between.
#[tokio::test(start_paused = true)]
async fn invented_names_do_not_make_a_breaker_forget_failures() {
    let layer = CircuitBreakerLayer::builder()
        .with_keys(Keys::default().at_most(100))
        .build()
        .unwrap();
    let handle = layer.handle();
    for n in 1..=5 {
        let opened = handle.breaker(&call()).record_failure();
        assert_eq!(opened, n == 5);
        for i in 0..300 {
            handle
                .breaker(&ToolCall::new(format!("invented-{n}-{i}")))
                .record_success();
        }
    }
}

/// C9: a tool that nobody has called for an hour after its open period may be forgotten, so that
/// old trouble does not fill the registry for ever.
#[tokio::test(start_paused = true)]
async fn breakers_that_have_been_open_for_long_make_room_in_the_end() {
    let layer = CircuitBreakerLayer::builder()
        .with_keys(Keys::default().at_most(100))
        .build()
        .unwrap();
    let handle = layer.handle();
    let open = |name: String| {
        let breaker = handle.breaker(&ToolCall::new(name));
        (0..5).any(|_| breaker.record_failure())
    };
    assert!((0..100).all(|i| open(format!("old-{i}"))));
    assert!(!open("new".into()));
    advance(secs(3600)).await;
    assert!(!open("new".into()));
    advance(secs(60)).await;
    assert!(open("new".into()));
}

/// C5, trap 5: with a key of one's own an error that nobody can classify counts only if a
/// classifier says so.
#[tokio::test(start_paused = true)]
async fn unclassified_errors_count_for_an_own_key_only_if_a_classifier_says_so() {
    for count in [Count::ToolFailure, Count::Failure] {
        let layer = CircuitBreakerLayer::builder()
            .with_keys(Key::by(|call| call.server().unwrap_or("")))
            .classify_fn(move |result: Result<&(), &ToolError>| {
                ByError.classify(result).with_count(count)
            })
            .build()
            .unwrap();
        let tool = tower::service_fn(|_: ToolCall| async {
            Err::<(), tower_toolcall::BoxError>("odd".into())
        });
        let error = layer.layer(tool).oneshot(call()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        let seen = layer.handle().breaker(&call()).snapshot();
        assert_eq!(seen.failed_total == 1, count == Count::Failure, "{count:?}");
    }
}

/// C9: asking for a breaker does not make one.
#[tokio::test(start_paused = true)]
async fn a_look_makes_no_breaker() {
    let handle = CircuitBreakerLayer::new().handle();
    assert!(handle.find(&call()).is_none());
    assert!(handle.is_empty());
    handle.breaker(&call()).force_open();
    assert!(handle.find(&call()).unwrap().is_open());
}
