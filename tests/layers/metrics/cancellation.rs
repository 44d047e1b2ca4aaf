//! Calls that are dropped unfinished: the count of calls in flight comes back to zero whatever
//! happens.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_test::{assert_pending, task};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ToolCall, ToolError,
    outcome::{ByError, Classify, Outcome},
    retry::RetryLayer,
    tool_metrics::{CallEnd, Labels, Metrics, Sink, ToolSink},
};

use super::{call, stats, tools};

#[tokio::test(start_paused = true)]
async fn a_call_is_in_flight_from_its_start_to_its_end() {
    let metrics = Metrics::new();
    let in_flight = |tool| stats(&metrics, tool).in_flight;
    for tool in ["works", "fails", "takes_a_second", "hangs"] {
        assert_eq!(in_flight(tool), 0);
        let mut response = task::spawn(tools(&metrics).call(call(tool)));
        assert_eq!(in_flight(tool), 1, "before the first poll");
        let mut ended = response.poll().is_ready();
        tokio::time::advance(Duration::from_secs(1)).await;
        ended = ended || response.poll().is_ready();
        assert_eq!(in_flight(tool), u64::from(!ended), "{tool}");
        drop(response);
        assert_eq!(in_flight(tool), 0);
        assert_eq!(stats(&metrics, tool).calls, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_first_poll_was_given_up() {
    let metrics = Metrics::new();
    drop(tools(&metrics).call(call("works")));
    let stats = stats(&metrics, "works");
    assert_eq!((stats.calls, stats.cancelled, stats.in_flight), (1, 1, 0));
    assert_eq!(stats.codes["CANCELLED"], 1);
}

/// Trap 6: an outer timeout drops the call.
#[tokio::test(start_paused = true)]
async fn a_call_dropped_after_its_deadline_is_a_timeout() {
    let metrics = Metrics::new();
    let late = call("hangs").with_deadline(Instant::now() + Duration::from_secs(1));
    let mut response = task::spawn(tools(&metrics).call(late));
    assert_pending!(response.poll());
    tokio::time::advance(Duration::from_secs(2)).await;
    drop(response);
    let stats = stats(&metrics, "hangs");
    assert_eq!(stats.timeouts, 1);
    assert_eq!(stats.cancelled, 0);
    assert_eq!(stats.in_flight, 0);
    assert_eq!(stats.latency.mean, Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_call_and_one_in_a_poll_leave_nothing_in_flight() {
    let metrics = Metrics::new();
    let mut in_poll = tools(&metrics);
    let mut response = task::spawn(in_poll.call(call("panics")));
    assert!(catch_unwind(AssertUnwindSafe(|| response.poll())).is_err());
    drop(response);
    let mut in_call = ServiceBuilder::new()
        .layer(metrics.layer())
        .service(service_fn(
            |_: ToolCall| -> std::future::Ready<Result<(), BoxError>> {
                panic!("before it has a future")
            },
        ));
    assert!(catch_unwind(AssertUnwindSafe(|| in_call.call(call("panics")))).is_err());
    let stats = stats(&metrics, "panics");
    assert_eq!((stats.calls, stats.panicked, stats.in_flight), (2, 2, 0));
}

/// Yields so many times, then ends in one of three ways.
fn shaky(call: ToolCall) -> impl Future<Output = Result<usize, BoxError>> {
    let n: usize = call.id().unwrap_or_default().parse().unwrap();
    async move {
        for _ in 0..n % 7 {
            tokio::task::yield_now().await;
        }
        match n % 3 {
            0 => Ok(n),
            1 => Err("?".into()),
            _ => panic!("the tool panics"),
        }
    }
}

/// Drops at each poll, panics and results, on several threads at once.
#[test]
fn whatever_happens_on_however_many_threads_nothing_stays_in_flight() {
    const CALLS: usize = 3_000;
    for threads in [2, 4, 8] {
        let metrics = Metrics::new();
        let work = |thread: usize| {
            let mut tools = ServiceBuilder::new()
                .layer(metrics.layer())
                .service(service_fn(shaky));
            for n in 0..CALLS {
                let seed = (n * 31 + thread * 17) % 1_009;
                let mut response = task::spawn(tools.call(call("shaky").with_id(seed.to_string())));
                let run = || (0..seed % 5).any(|_| response.poll().is_ready());
                let _ = catch_unwind(AssertUnwindSafe(run));
                drop(response);
            }
        };
        std::panic::set_hook(Box::new(|_| {}));
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || work(thread));
            }
            for _ in 0..20 {
                let now = metrics.snapshot().total;
                assert!(now.in_flight <= threads as u64, "{now:?}");
            }
        });
        let _ = std::panic::take_hook();
        let total = metrics.snapshot().total;
        assert_eq!(total.in_flight, 0);
        assert_eq!(total.calls, (threads * CALLS) as u64);
        assert!(total.successes > 0 && total.errors > 0);
        assert!(total.cancelled > 0 && total.panicked > 0);
        assert_eq!(total.latency.count, total.calls);
    }
}

/// What is told of a call is no call: retries, refused ones and rate limits leave nothing in
/// flight.
#[tokio::test(start_paused = true)]
async fn events_leave_nothing_in_flight() {
    let metrics = Metrics::new();
    let failures = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let tool = service_fn(move |_: ToolCall| {
        let n = failures.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move {
            Err::<(), BoxError>(["503 Service Unavailable", "429 Too Many Requests"][n % 2].into())
        }
    });
    let policy = tower_toolcall::retry::RetryPolicy::new().assume_replay_safe();
    let gate = tower_toolcall::rate_limit::RateLimitBackoffLayer::builder();
    let tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(RetryLayer::new(policy.with_listener(metrics.clone())))
        .layer(gate.with_listener(metrics.clone()).build().unwrap())
        .service(tool);
    for _ in 0..3 {
        assert!(tools.clone().oneshot(call("fails")).await.is_err());
    }
    let stats = stats(&metrics, "fails");
    assert_eq!((stats.calls, stats.in_flight), (3, 0));
    assert!(stats.retries > Some(0) && stats.rate_limited > Some(0));
}

#[derive(Clone, Default)]
struct Gauge(Arc<AtomicI64>);

impl Sink for Gauge {
    fn tool(&self, _: &Labels) -> Box<dyn ToolSink> {
        Box::new(self.clone())
    }
}

impl ToolSink for Gauge {
    fn started(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn left(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    fn ended(&self, _: &CallEnd<'_>) {}
}

#[derive(Default)]
struct Uncloneable(Arc<AtomicBool>);

impl Clone for Uncloneable {
    fn clone(&self) -> Self {
        assert!(!self.0.load(Relaxed), "boom");
        Self(Arc::clone(&self.0))
    }
}

impl<Res> Classify<Res> for Uncloneable {
    fn classify(&self, result: Result<&Res, &ToolError>) -> Outcome {
        ByError.classify(result)
    }
}

#[tokio::test]
async fn panic_of_a_classifiers_clone_leaves_nothing_in_flight_at_a_sink() {
    let (gauge, classifier) = (Gauge::default(), Uncloneable::default());
    let panics = Arc::clone(&classifier.0);
    let metrics = Metrics::builder().with_sink(gauge.clone()).build().unwrap();
    let mut tools = ServiceBuilder::new()
        .layer(metrics.layer().with_classifier(classifier))
        .service(service_fn(super::answer));
    tools
        .ready()
        .await
        .unwrap()
        .call(call("works"))
        .await
        .unwrap();
    panics.store(true, Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| tools.call(call("works")))).is_err());
    assert_eq!(gauge.0.load(Relaxed), 0);
}
