use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use serde_json::json;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, Event, ReplaySafety, ToolCall,
    circuit_breaker::CircuitBreakerLayer,
    event::{Listener, RetryRefusal},
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
};
use tower_toolcall_test::{Events, MAX_EVENTS, RecordSnapshot, Script, Step};
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

use crate::{call, secs};

fn safe() -> ToolCall {
    call().with_replay_safety(ReplaySafety::Safe)
}

/// Every layer that the call passes, with nothing wired.
#[tokio::test(start_paused = true)]
async fn all_layers_are_heard_without_wiring() {
    let tool = Script::new([
        Step::status(429).with_retry_after(secs(5)),
        Step::status(503),
        Step::ok(json!(1)).after(secs(9)),
    ]);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .layer(RateLimitBackoffLayer::new())
        .layer(TimeoutLayer::new(secs(10)))
        .service(tool);
    let events = Events::new();
    let (result, record) = events.run(stack, safe()).await;
    assert_eq!(result.unwrap(), 1);
    let names = events.take();
    assert_eq!(
        names,
        ["tool.rate_limited", "tool.retry", "tool.retry", "tool.slow"]
    );
    record.assert(|r| r.sent == 3 && r.is_slow && r.waited >= secs(6));
}

/// The listener of a layer and that of the call are one.
#[tokio::test(start_paused = true)]
async fn what_comes_on_two_ways_is_kept_once() {
    let events = Events::new();
    let policy = RetryPolicy::new().with_listener(events.clone());
    let stack = RetryLayer::new(policy).layer(Script::<()>::always(Step::status(503)));
    let (result, record) = events.run(stack.clone(), safe()).await;
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Upstream);
    events.assert(["tool.retry", "tool.retry", "tool.exhausted"]);
    record.assert(|r| (r.sent, r.max_attempts, r.refusals) == (3, Some(3), 1));
    // Of a call that it does not observe it hears by the layer.
    events.take();
    stack.oneshot(safe()).await.unwrap_err();
    assert_eq!(events.names().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_picked_is_kept() {
    let refused = Events::pick(|event| match event {
        Event::RetryRefused { reason, .. } => Some(*reason),
        _ => None,
    });
    let tool = Script::<()>::always(Step::status(503));
    let (_, record) = refused.run(RetryLayer::default().layer(tool), call()).await;
    refused.assert([RetryRefusal::NotMarkedSafe]);
    record.assert(|r| r.sent == 1 && r.refusals == 1);
}

#[tokio::test(start_paused = true)]
async fn an_assertion_that_fails_prints_what_happened() {
    let events = Events::new();
    let tool = Script::new([Step::status(503), Step::ok(())]);
    let (_, record) = events.run(RetryLayer::default().layer(tool), safe()).await;
    let text = |f: &dyn Fn()| {
        let payload = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
        payload.downcast_ref::<String>().unwrap().clone()
    };
    let told = text(&|| events.assert(["tool.slow"]));
    for part in [
        "expected",
        "tool.slow",
        "of 1 events",
        "tool.retry: Retry {",
        "UPSTREAM_ERROR",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let told = text(&|| record.assert(|r| r.sent == 7));
    assert!(told.contains("sent: 2"), "{told}");
}

/// What is left out of the log is not left out of what is picked, and a test hears of what is lost.
#[test]
fn events_that_are_lost_are_counted() {
    let call = call().info();
    let retries = Events::pick(|event| match event {
        Event::Retry { delay, .. } => Some(*delay),
        _ => None,
    });
    let listener = Listener::new(retries.clone());
    let slow = Event::slow(&call, secs(1), secs(1));
    for _ in 0..MAX_EVENTS {
        listener.tell(&slow);
    }
    listener.tell(&Event::retry(&call, 1, secs(1)));
    assert_eq!(retries.names().len(), MAX_EVENTS);
    retries.assert([secs(1)]);
    assert!(format!("{retries:?}").contains("of 10001 events"));

    let all = Events::new();
    let listener = Listener::new(all.clone());
    for _ in 0..=MAX_EVENTS {
        listener.tell(&slow);
    }
    let kept = catch_unwind(AssertUnwindSafe(|| all.assert(["tool.slow"; MAX_EVENTS])));
    let told = kept.unwrap_err().downcast_ref::<String>().unwrap().clone();
    assert!(
        told.starts_with("1 more were not recorded"),
        "{}",
        &told[..200]
    );
}

/// A call has room for four.
#[test]
#[should_panic(expected = "the call has four listeners already")]
fn a_call_that_cannot_be_heard_is_not_observed_in_silence() {
    let mut call = call();
    let _observations: Vec<_> = (0..5).map(|_| Events::new().observe(&mut call)).collect();
}

/// An observation ends, and with it what is heard.
#[tokio::test(start_paused = true)]
async fn a_call_is_heard_for_as_long_as_it_is_observed() {
    let events = Events::new();
    let stack = RetryLayer::default().layer(Script::<()>::always(Step::status(503)));
    let mut observed = safe();
    let again = observed.clone();
    let observation = events.observe(&mut observed);
    let error = stack.clone().oneshot(observed).await.unwrap_err();
    assert_eq!(RecordSnapshot::of(&observation, Some(&error)).sent, 3);
    drop(observation);
    assert_eq!(events.take().len(), 3);
    stack.oneshot(again).await.unwrap_err();
    events.assert([]);
}

/// A breaker that changes later tells those who were there.
#[tokio::test(start_paused = true)]
async fn a_breaker_that_opened_is_heard_to_be_closed_by_hand() {
    let events = Events::new();
    let breaker = CircuitBreakerLayer::new();
    let stack = breaker.layer(Script::<()>::always(Step::status(503)));
    for _ in 0..5 {
        events.run(stack.clone(), call()).await.0.unwrap_err();
    }
    events.assert(["tool.breaker"]);
    breaker.handle().reset_all();
    events.assert(["tool.breaker"; 2]);
}

/// The names are those under which subscribers get the events.
#[test]
fn an_event_has_the_name_under_which_it_is_emitted() {
    #[derive(Clone, Default)]
    struct Names(Arc<Mutex<Vec<String>>>);
    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Names {
        fn on_event(
            &self,
            event: &tracing::Event<'_>,
            _: tracing_subscriber::layer::Context<'_, S>,
        ) {
            self.0
                .lock()
                .unwrap()
                .push(event.metadata().name().to_owned());
        }
    }
    let call = call().info();
    let mut all = vec![
        Event::slow(&call, secs(1), secs(1)),
        Event::retry(&call, 1, secs(1)),
        Event::rate_limited(&call, 1, secs(1)),
    ];
    all.extend(
        ErrorKind::ALL
            .iter()
            .map(|kind| Event::not_started(&call, *kind)),
    );
    let refusals = [
        RetryRefusal::Exhausted,
        RetryRefusal::NotMarkedSafe,
        RetryRefusal::Unsafe,
    ];
    all.extend(refusals.map(|reason| Event::retry_refused(&call, 1, reason)));
    let emitted = Names::default();
    // Somebody listens on all threads: no event is found to be of no interest from here on.
    tracing_subscriber::registry().try_init().unwrap();
    let subscriber = tracing_subscriber::registry().with(emitted.clone());
    tracing::subscriber::with_default(subscriber, || {
        // Another test may have met an event for the first time, without a listener.
        tracing::callsite::rebuild_interest_cache();
        for event in &all {
            Listener::default().tell(event);
        }
    });
    let names: Vec<_> = all.iter().filter_map(Event::name).collect();
    assert_eq!(*emitted.0.lock().unwrap(), names);
}
