//! What a caller chooses, and what a text says, moves nothing that other callers share.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::time::{Instant, advance, sleep, timeout};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    BoxError, ErrorKind, Evidence, Keys, Outcome, ReplaySafety, ToolCall, ToolError, Trust,
    circuit_breaker::{Breaker, BreakerState, CircuitBreakerLayer},
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    error::TimeoutLimit,
    flow::CallExt,
    health::Health,
    outcome::classify_fn,
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
};

use crate::kit::secs;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn call() -> ToolCall {
    ToolCall::new("search").with_server("docs")
}

/// A call whose caller, who is not trusted, leaves it so much time.
fn hurried(time: Duration) -> ToolCall {
    let mut call = call();
    call.tighten_remote(Instant::now() + time, Trust::Untrusted);
    call
}

fn trusted(time: Duration) -> ToolCall {
    call().with_deadline(Instant::now() + time)
}

async fn hangs(_: ToolCall) -> Result<&'static str, ToolError> {
    pending().await
}

async fn fails(_: ToolCall) -> Result<&'static str, ToolError> {
    Err(ToolError::new(ErrorKind::Upstream, "down"))
}

fn open(breaker: &Breaker) {
    while !breaker.record_failure() {}
}

fn inherited() -> DeadlineLayer {
    DeadlineLayer::inherited().with_reserve(Duration::ZERO)
}

/// V3.
#[tokio::test(start_paused = true)]
async fn a_strangers_short_deadline_opens_no_breaker_and_marks_no_server() {
    for (hurry, state) in [
        (hurried as fn(Duration) -> ToolCall, BreakerState::Closed),
        (trusted, BreakerState::Open),
    ] {
        // Ended above the breaker, below it, and by a foreign timeout outside.
        for order in 0..3 {
            let (breaker, health) = (CircuitBreakerLayer::new(), Health::new());
            let below = ServiceBuilder::new()
                .layer(health.layer())
                .layer(breaker.clone())
                .layer(TimeoutLayer::new(secs(10)))
                .service_fn(hangs);
            let stack = match order {
                0 => BoxCloneSyncService::new(inherited().layer(below)),
                _ => BoxCloneSyncService::new(below),
            };
            for _ in 0..50 {
                let call = stack.clone().oneshot(hurry(ms(501)));
                let limit = if order == 2 { ms(501) } else { secs(60) };
                let _ = timeout(limit, call).await;
            }
            let known = breaker.handle().breaker(&call());
            assert_eq!(known.state(), state, "{order}");
            let is_there = health.snapshot()[0].failures == 0;
            assert_eq!(is_there, state == BreakerState::Closed, "{order}");
        }
    }
}

/// V3: the error says whose deadline it was.
#[tokio::test(start_paused = true)]
async fn an_error_tells_that_the_callers_deadline_ended_the_call() {
    let below = TimeoutLayer::new(secs(10)).layer(service_fn(hangs));
    for (hurry, limit) in [
        (hurried as fn(Duration) -> ToolCall, TimeoutLimit::Caller),
        (trusted, TimeoutLimit::Deadline),
    ] {
        let error = below.clone().oneshot(hurry(secs(1))).await.unwrap_err();
        assert_eq!(error.timeout_limit(), Some(limit));
        let stack = inherited().layer(below.clone());
        let error = stack.oneshot(hurry(secs(1))).await.unwrap_err();
        assert_eq!(error.timeout_limit(), Some(limit));
        // The tool had all its time.
        let error = below.clone().oneshot(hurry(secs(11))).await.unwrap_err();
        assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Timeout));
    }
}

/// V3: a hung tool is stopped although all callers have deadlines, if they are those of code or of
/// trusted peers.
#[tokio::test(start_paused = true)]
async fn a_budget_set_in_code_that_is_tighter_than_a_strangers_counts() {
    let breaker = CircuitBreakerLayer::new();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(2)).with_reserve(Duration::ZERO))
        .layer(breaker.clone())
        .service_fn(hangs);
    for _ in 0..5 {
        stack.clone().oneshot(hurried(secs(3))).await.unwrap_err();
    }
    assert!(breaker.handle().breaker(&call()).is_open());
}

/// V3.
#[tokio::test(start_paused = true)]
async fn a_call_that_a_stranger_leaves_no_time_is_no_probe() {
    let breaker = CircuitBreakerLayer::new();
    let stack = breaker.layer(service_fn(|_| async { Ok::<_, ToolError>(()) }));
    let known = breaker.handle().breaker(&call());
    open(&known);
    advance(secs(60)).await;
    let error = stack.clone().oneshot(hurried(ms(501))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    assert_eq!(known.state(), BreakerState::Open);
    // One that leaves the tool its time may.
    stack.oneshot(hurried(secs(31))).await.unwrap();
    assert_eq!(known.state(), BreakerState::Closed);
}

/// V3: a breaker knows of the timeouts below it from the calls that opened it.
#[tokio::test(start_paused = true)]
async fn a_call_that_has_the_time_of_the_timeout_below_may_be_the_probe() {
    let breaker = CircuitBreakerLayer::new();
    let opened = breaker.handle();
    let stack = ServiceBuilder::new()
        .layer(breaker)
        .layer(TimeoutLayer::new(secs(5)))
        .service_fn(move |call| {
            let was_open = opened.breaker(&call).state() != BreakerState::Closed;
            async move {
                if was_open {
                    Ok("done")
                } else {
                    fails(call).await
                }
            }
        });
    for _ in 0..5 {
        stack.clone().oneshot(call()).await.unwrap_err();
    }
    advance(secs(60)).await;
    let error = stack.clone().oneshot(hurried(secs(4))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    stack.oneshot(hurried(secs(6))).await.unwrap();
}

/// V3: a breaker closes although there are no other callers.
#[tokio::test(start_paused = true)]
async fn where_every_caller_is_in_a_hurry_one_of_them_is_the_probe_in_the_end() {
    let breaker = CircuitBreakerLayer::new();
    let stack = breaker.layer(service_fn(|_| async { Ok::<_, ToolError>(()) }));
    let known = breaker.handle().breaker(&call());
    open(&known);
    advance(secs(120)).await;
    stack.oneshot(hurried(ms(501))).await.unwrap();
    assert_eq!(known.state(), BreakerState::Closed);
}

/// V9: nobody observes these calls.
#[tokio::test(start_paused = true)]
async fn a_timeout_above_the_breaker_opens_it_though_nobody_observes() {
    let breaker = CircuitBreakerLayer::new();
    let stack = ServiceBuilder::new()
        .layer(TimeoutLayer::new(ms(100)))
        .layer(breaker)
        .service_fn(hangs);
    let mut refused = 0;
    for _ in 0..50 {
        let error = stack.clone().oneshot(call()).await.unwrap_err();
        refused += usize::from(error.kind() == ErrorKind::CircuitOpen);
    }
    assert_eq!(refused, 45);
}

/// V9: a caller who hangs up before the tool's own timeout tells nothing, observed or not.
#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_within_a_long_timeout_opens_no_breaker() {
    let breaker = CircuitBreakerLayer::new();
    let stack = ServiceBuilder::new()
        .layer(breaker.clone())
        .layer(TimeoutLayer::new(secs(60)))
        .service_fn(hangs);
    for observed in [false, true] {
        for _ in 0..10 {
            let mut call = call();
            let _observation = observed.then(|| call.observe());
            let call = stack.clone().oneshot(call);
            timeout(secs(40), call).await.unwrap_err();
        }
    }
    let known = breaker.handle().breaker(&call());
    assert_eq!(known.snapshot().failed_total, 0);
}

/// V16: the tool is well again, but takes 200 ms; two callers hang up after 20 ms, again and again.
#[tokio::test(start_paused = true)]
async fn callers_who_hang_up_do_not_keep_a_breaker_half_open() {
    let breaker = CircuitBreakerLayer::new();
    let known = breaker.handle().breaker(&call());
    let stack = breaker.layer(service_fn(|_: ToolCall| async {
        sleep(ms(200)).await;
        Ok::<_, ToolError>(())
    }));
    open(&known);
    advance(secs(60)).await;
    let impatient = [(); 2].map(|()| {
        let stack = stack.clone();
        tokio::spawn(async move {
            loop {
                let _ = timeout(ms(20), stack.clone().oneshot(call())).await;
                sleep(ms(1)).await;
            }
        })
    });
    sleep(secs(2)).await;
    for _ in 0..600 {
        stack.clone().oneshot(call()).await.unwrap();
        sleep(ms(97)).await;
    }
    assert_eq!(known.state(), BreakerState::Closed);
    impatient.iter().for_each(|task| task.abort());
}

/// V16: what nobody can classify keeps it half-open no more than callers who hang up; and a failure
/// opens it again.
#[tokio::test(start_paused = true)]
async fn a_failure_opens_a_breaker_again_whose_probes_told_nothing() {
    let breaker = CircuitBreakerLayer::new();
    let known = breaker.handle().breaker(&call());
    open(&known);
    advance(secs(60)).await;
    for _ in 0..5 {
        drop(known.admit().unwrap());
    }
    let permits: Vec<_> = (0..20).map(|_| known.admit().unwrap()).collect();
    let mut permits = permits.into_iter();
    drop(permits.next());
    assert!(permits.next().unwrap().failure());
    assert_eq!(known.state(), BreakerState::Open);
    // The others are stale.
    assert!(!permits.any(|permit| permit.failure()));
    assert!(known.admit().is_err());
}

/// V2, C9: a stack without a table of names. Tools that answered once stay guarded, and so does a
/// new one.
#[tokio::test(start_paused = true)]
async fn invented_names_do_not_take_the_places_of_known_tools() {
    let layer = CircuitBreakerLayer::builder().with_keys(Keys::default().at_most(100));
    let breaker = layer.build().unwrap();
    let dead = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&dead);
    let stack = breaker.layer(service_fn(move |call: ToolCall| {
        let is_real = call.tool().starts_with("real") && now.load(SeqCst) == 0;
        async move {
            match is_real {
                true => Ok(()),
                false => Err(ToolError::new(ErrorKind::Failed, "who is that?")),
            }
        }
    }));
    let send = |name: String| stack.clone().oneshot(ToolCall::new(name));
    for n in 0..30 {
        send(format!("real{n}")).await.unwrap();
    }
    for n in 0..1_000 {
        for _ in 0..5 {
            let _ = send(format!("invented{n}")).await;
        }
    }
    assert!(breaker.handle().len() <= 100);
    // One that is called for the first time now.
    for _ in 0..2 {
        send("real30".to_owned()).await.unwrap();
    }
    dead.store(1, SeqCst);
    for n in 0..31 {
        let mut last = None;
        for _ in 0..6 {
            last = send(format!("real{n}")).await.err();
        }
        let last = last.unwrap();
        assert_eq!(last.kind(), ErrorKind::CircuitOpen, "real{n}");
    }
}

/// A tool that counts its calls and fails with this text the first time.
fn limited_by_text(
    text: &'static str,
) -> (
    Arc<AtomicUsize>,
    impl Service<ToolCall, Response = usize, Error = BoxError, Future: Send> + Clone + Send,
) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let tool = service_fn(move |_: ToolCall| {
        let n = count.fetch_add(1, SeqCst) + 1;
        async move {
            match n {
                1 => Err(BoxError::from(text)),
                n => Ok(n),
            }
        }
    });
    (calls, tool)
}

/// V4.
#[tokio::test(start_paused = true)]
async fn a_sentence_about_a_rate_limit_closes_no_gate() {
    let text = "the page says: 429 Too Many Requests, try again in 24 hours";
    let (_, tool) = limited_by_text(text);
    let layer = RateLimitBackoffLayer::new();
    let stack = layer.layer(tool);
    let error = stack.clone().oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert!(layer.handle().cooldowns().is_empty());
    let start = Instant::now();
    stack.oneshot(call()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// V4, L1: it delays the call that met it.
#[tokio::test(start_paused = true)]
async fn a_limit_known_by_text_delays_its_own_call_only() {
    let (_, tool) = limited_by_text("429 Too Many Requests, retry after 7 seconds");
    let layer = RateLimitBackoffLayer::new();
    let stack = layer.layer(tool);
    let start = Instant::now();
    let safe = call().with_replay_safety(ReplaySafety::Safe);
    let own = tokio::spawn(stack.clone().oneshot(safe));
    sleep(ms(1)).await;
    assert_eq!(stack.oneshot(call()).await.unwrap(), 2);
    assert_eq!(start.elapsed(), ms(1));
    assert_eq!(own.await.unwrap().unwrap(), 3);
    assert!((secs(7)..secs(9)).contains(&start.elapsed()));
}

/// V4: by setting, and for the default cooldown at most.
#[tokio::test(start_paused = true)]
async fn a_limit_known_by_text_closes_the_gate_where_that_is_asked_for() {
    let (_, tool) = limited_by_text("429 Too Many Requests, try again in 24 hours");
    let layer = RateLimitBackoffLayer::builder().with_text_limits();
    let layer = layer.build().unwrap();
    let stack = layer.layer(tool);
    stack.clone().oneshot(call()).await.unwrap_err();
    assert_eq!(layer.handle().remaining(&call()), Some(secs(30)));
}

/// V4: by status. Who was told a day does not come back earlier; others do after five minutes.
#[tokio::test(start_paused = true)]
async fn a_hint_of_a_day_closes_the_gate_for_five_minutes() {
    let layer = RateLimitBackoffLayer::new();
    let stack = layer.layer(service_fn(|_: ToolCall| async {
        let error = ToolError::from_status(http::StatusCode::TOO_MANY_REQUESTS, "slow down");
        Err::<(), _>(error.with_retry_after(secs(86_400)))
    }));
    let start = Instant::now();
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(secs(86_400)));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(layer.handle().remaining(&call()), Some(secs(300)));
}

/// V4: the caller who may wait longer than others does.
#[tokio::test(start_paused = true)]
async fn whoever_was_told_to_wait_longer_than_others_comes_back_later() {
    let layer = RateLimitBackoffLayer::builder()
        .with_max_cooldown(secs(10))
        .with_max_wait(secs(100));
    let stack = layer
        .build()
        .unwrap()
        .layer(service_fn(|call: ToolCall| async move {
            match call.attempt() {
                1 if call.id().is_none() => {
                    let error = ToolError::new(ErrorKind::RateLimited, "slow down");
                    Err(error.with_retry_after(secs(60)))
                }
                _ => Ok(()),
            }
        }));
    let start = Instant::now();
    let own = tokio::spawn(stack.clone().oneshot(call()));
    sleep(ms(1)).await;
    stack.oneshot(call().with_id("another")).await.unwrap();
    assert!((secs(10)..secs(12)).contains(&start.elapsed()));
    own.await.unwrap().unwrap();
    assert!((secs(60)..secs(65)).contains(&start.elapsed()));
}

/// V4: somebody can look at gates, open and close them.
#[tokio::test(start_paused = true)]
async fn a_handle_lists_ends_and_begins_cooldowns() {
    let layer = RateLimitBackoffLayer::new();
    let handle = layer.handle();
    let stack = layer.layer(service_fn(|_: ToolCall| async { Ok::<_, ToolError>(()) }));
    let other = ToolCall::new("weather");
    handle.cool(&call(), secs(60));
    handle.cool(&other, secs(20));
    handle.cool(&other, Duration::ZERO);
    let listed: Vec<_> = handle.cooldowns();
    let named = |c: &tower_toolcall::rate_limit::Cooldown| (c.tool.clone().unwrap(), c.remaining);
    assert_eq!(
        listed.iter().map(named).collect::<Vec<_>>(),
        [
            ("weather".to_owned(), secs(20)),
            ("search".to_owned(), secs(60))
        ]
    );
    let start = Instant::now();
    stack.clone().oneshot(other.clone()).await.unwrap();
    assert_eq!(start.elapsed(), secs(20));
    assert_eq!(handle.remaining(&call()), Some(secs(40)));
    handle.clear(&call());
    stack.clone().oneshot(call()).await.unwrap();
    assert_eq!(
        (start.elapsed(), handle.remaining(&call())),
        (secs(20), None)
    );
    handle.cool(&call(), Duration::MAX);
    assert_eq!(handle.remaining(&call()), Some(secs(86_400)));
    handle.clear_all();
    assert!(handle.cooldowns().is_empty());
}

/// W15, R2.
#[tokio::test(start_paused = true)]
async fn a_retrier_above_a_gate_that_fails_fast_does_not_wait_for_it() {
    let gate = RateLimitBackoffLayer::builder()
        .with_fail_fast()
        .build()
        .unwrap();
    let handle = gate.handle();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .layer(gate)
        .service(service_fn(|_: ToolCall| async { Ok::<_, ToolError>(()) }));
    handle.cool(&call(), secs(22));
    let start = Instant::now();
    let safe = call().with_replay_safety(ReplaySafety::Safe);
    let error = stack.oneshot(safe).await.unwrap_err();
    assert!(error.is_own_refusal());
    assert_eq!(error.retry_after(), Some(secs(22)));
    assert_eq!(error.attempts(), None);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// W15, R2: nor any other refusal, whatever a classifier says.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_foreign_layer_is_not_repeated() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let policy = RetryPolicy::new()
        .assume_replay_safe()
        .classify_fn(|_: Result<&(), &ToolError>| tower_toolcall::Outcome::failure());
    let stack = RetryLayer::new(policy).layer(service_fn(move |_: ToolCall| {
        count.fetch_add(1, SeqCst);
        async { Err::<(), _>(ToolError::refusal(ErrorKind::Overloaded, "quota")) }
    }));
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!((calls.load(SeqCst), error.attempts()), (1, None));
}

/// V14, R3.
#[tokio::test(start_paused = true)]
async fn the_tools_error_is_the_result_when_the_breaker_opens_between_two_attempts() {
    let breaker = CircuitBreakerLayer::builder().with_trip(
        tower_toolcall::circuit_breaker::Trip::consecutive_failures(2),
    );
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .layer(breaker.build().unwrap())
        .service_fn(fails);
    let safe = call().with_replay_safety(ReplaySafety::Safe);
    let error = stack.clone().oneshot(safe).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Upstream);
    assert_eq!(error.message(), "down");
    assert_eq!(error.attempts(), Some(2));
    let wait = error.retry_after().unwrap();
    assert!((secs(57)..=secs(60)).contains(&wait), "{wait:?}");
    let beside = error.details().unwrap().to_string();
    assert!(beside.contains("CIRCUIT_OPEN"), "{beside}");
    // A call that never reached the tool has the breaker's own error.
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    assert_eq!(error.attempts(), None);
}

/// V5: a server that is marked in between does not make another error of the one that the call met.
#[tokio::test(start_paused = true)]
async fn a_caller_whose_server_is_refused_meanwhile_gets_its_own_error() {
    let health = Health::builder().with_threshold(1).with_refusal(true);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .layer(health.build().unwrap().layer())
        .layer(TimeoutLayer::new(secs(1)))
        .service_fn(hangs);
    let safe = call().with_replay_safety(ReplaySafety::Safe);
    let error = stack.oneshot(safe).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.attempts(), Some(1));
}

/// X11: what a text says of connections marks no server.
#[tokio::test(start_paused = true)]
async fn a_text_about_a_lost_connection_marks_no_server() {
    let health = Health::new();
    let stack = health.layer().layer(service_fn(|_: ToolCall| async {
        Err::<(), _>(BoxError::from("the log says: connect ECONNREFUSED"))
    }));
    for _ in 0..5 {
        stack.clone().oneshot(call()).await.unwrap_err();
    }
    assert_eq!(health.snapshot()[0].failures, 0);
}

/// V14: the same of the rate-limit layer, alone.
#[tokio::test(start_paused = true)]
async fn the_limit_is_the_result_when_the_breaker_opens_before_the_next_attempt() {
    let breaker = CircuitBreakerLayer::new();
    let known = breaker.handle().breaker(&call());
    let stack = ServiceBuilder::new()
        .layer(RateLimitBackoffLayer::new())
        .layer(breaker)
        .service(service_fn(move |_: ToolCall| {
            known.force_open();
            let error = ToolError::new(ErrorKind::RateLimited, "slow down");
            async move { Err::<(), _>(error.with_retry_after(secs(5))) }
        }));
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.attempts(), Some(1));
    assert_eq!(error.retry_after(), Some(secs(5)));
}

/// V1: what a readiness error is known by stays, although its call was surely not sent.
#[tokio::test(start_paused = true)]
async fn a_readiness_error_before_a_second_attempt_marks_no_server_by_its_text() {
    #[derive(Clone)]
    struct Fails(Arc<AtomicUsize>);
    impl Service<ToolCall> for Fails {
        type Response = ();
        type Error = BoxError;
        type Future = std::future::Ready<Result<(), BoxError>>;
        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), BoxError>> {
            std::task::Poll::Ready(match self.0.load(SeqCst) {
                0 => Ok(()),
                _ => Err("connection refused".into()),
            })
        }
        fn call(&mut self, _: ToolCall) -> Self::Future {
            self.0.fetch_add(1, SeqCst);
            std::future::ready(Err("503 Service Unavailable".into()))
        }
    }
    let health = Health::new();
    let stack = ServiceBuilder::new()
        .layer(health.layer())
        .layer(RetryLayer::default())
        .service(Fails(Arc::default()));
    let call = call().with_replay_safety(ReplaySafety::Safe);
    let error = stack.oneshot(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(error.evidence(), Evidence::Inferred);
    assert_eq!(error.attempts(), Some(3));
    assert_eq!(health.snapshot()[0].failures, 0);
}

/// V2: an answer that tells of a limit shows that there is such a tool, as any other does.
#[tokio::test(start_paused = true)]
async fn a_tool_whose_answers_tell_of_a_limit_keeps_its_gate() {
    let tells = |result: Result<&(), &ToolError>| match result {
        Ok(()) => Outcome::success().with_cooldown(secs(1)),
        Err(_) => Outcome::rate_limited(Some(secs(200))),
    };
    let gate = RateLimitBackoffLayer::builder()
        .with_keys(Keys::default().at_most(4))
        .with_attempts(1)
        .with_classifier(classify_fn(tells))
        .build()
        .unwrap();
    let handle = gate.handle();
    let stack = gate.layer(service_fn(|call: ToolCall| {
        let is_real = call.tool() == "search";
        let limited = || ToolError::new(ErrorKind::RateLimited, "later");
        async move { if is_real { Ok(()) } else { Err(limited()) } }
    }));
    stack.clone().oneshot(call()).await.unwrap();
    // It does not cool any more, and could be forgotten.
    advance(secs(2)).await;
    for n in 0..100 {
        let invented = ToolCall::new(format!("invented{n}"));
        let _ = stack.clone().oneshot(invented).await;
    }
    // The gate of those without a place is no gate.
    stack.oneshot(call()).await.unwrap();
    assert!(handle.remaining(&call()) >= Some(secs(1)));
}

/// What callers in a hurry take of a queue is there for others as soon as they are gone.
#[tokio::test(start_paused = true)]
async fn strangers_in_a_hurry_take_no_turn_from_others() {
    let works = |_: ToolCall| async {
        sleep(secs(1)).await;
        Ok::<_, ToolError>("answer")
    };
    let (limit, quota) = (ConcurrencyLimitLayer::new(1), Quota::per_second(1).unwrap());
    let limited = BoxCloneSyncService::new(limit.layer(service_fn(works)));
    let rationed = BoxCloneSyncService::new(QuotaLayer::new(quota).layer(service_fn(works)));
    for stack in [limited, rationed] {
        let start = Instant::now();
        let first = tokio::spawn(stack.clone().oneshot(call()));
        sleep(ms(10)).await;
        let mut strangers = Vec::new();
        // More than there are places in the queue, and seconds to wait for.
        for n in 0..200 {
            let hurried = stack.clone().oneshot(hurried(ms(500 + n % 10 * 1000)));
            strangers.push(tokio::spawn(timeout(ms(n % 7 * 50), hurried)));
        }
        sleep(ms(600)).await;
        for stranger in strangers {
            assert!(!matches!(stranger.await.unwrap(), Ok(Ok(_))));
        }
        stack.oneshot(call()).await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 2);
        first.await.unwrap().unwrap();
    }
}
