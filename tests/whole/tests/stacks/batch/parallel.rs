use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{Stream as _, StreamExt as _};
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt as _, limit::ConcurrencyLimit, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Execution, ToolCall, batch::Parallel, deadline::DeadlineLayer,
    timeout::TimeoutLayer,
};

use super::kit::{Counts, calls, ms, secs, statuses, tool};

/// X1: results in call order, whatever the order in which they end.
#[tokio::test(start_paused = true)]
async fn results_are_in_the_order_of_the_calls() {
    let results = Parallel::new(tool(&Counts::default()))
        .run(calls(["3s", "1s", "2s", "now"]))
        .await;
    let answers: Vec<_> = results.iter().map(|r| r.data().unwrap().as_str()).collect();
    assert_eq!(answers, ["3s", "1s", "2s", "now"]);
    assert_eq!(results[0].duration(), secs(3));
}

/// X1.
#[tokio::test(start_paused = true)]
async fn calls_run_at_the_same_time() {
    let (counts, start) = (Counts::default(), Instant::now());
    let results = Parallel::new(tool(&counts)).run(calls(["2s"; 50])).await;
    assert_eq!((results.len(), counts.most()), (50, 50));
    assert_eq!(start.elapsed(), secs(2));
}

/// X1, E3: one failure touches no other call, nor does a panic.
#[tokio::test(start_paused = true)]
async fn failures_and_panics_touch_no_other_call() {
    let tools = ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(5)))
        .service(tool(&Counts::default()));
    let results = Parallel::new(tools)
        .run(calls(["fail", "1s", "panic", "hang", "2s"]))
        .await;
    let expected = ["error", "success", "error", "timeout", "success"];
    assert_eq!(statuses(&results), expected);
    assert_eq!(results[0].error().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(results[2].error().unwrap().kind(), ErrorKind::Panicked);
    assert_eq!(results[2].tool(), "panic");
}

/// X1: each with its own timeout.
#[tokio::test(start_paused = true)]
async fn each_call_has_its_own_timeout() {
    let tools = ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(5)).with_tool("3s", secs(2)))
        .service(tool(&Counts::default()));
    let short = ToolCall::new("4s").with_timeout(secs(1));
    let [a, b] = calls(["4s", "3s"]);
    let results = Parallel::new(tools).run([a, b, short]).await;
    assert_eq!(statuses(&results), ["success", "timeout", "timeout"]);
    assert_eq!(results[1].duration(), secs(2));
    assert_eq!(results[2].duration(), secs(1));
}

/// X1.
#[tokio::test(start_paused = true)]
async fn no_more_calls_run_at_a_time_than_the_limit_says() {
    let (counts, start) = (Counts::default(), Instant::now());
    let parallel = Parallel::new(tool(&counts)).with_limit(3).unwrap();
    let results = parallel.run(calls(["1s"; 10])).await;
    assert!(results.iter().all(|r| r.is_success()));
    assert_eq!((counts.begun(), counts.most()), (10, 3));
    assert_eq!(start.elapsed(), secs(4));
}

#[test]
fn a_limit_of_zero_is_refused() {
    let tools = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) });
    let error = Parallel::new(tools).with_limit(0).unwrap_err();
    assert_eq!(error.field(), "limit");
}

/// X1: as a stream in completion order.
#[tokio::test(start_paused = true)]
async fn a_stream_gives_them_in_the_order_in_which_they_end() {
    let parallel = Parallel::new(tool(&Counts::default()));
    let stream = parallel.stream(calls(["3s", "1s", "panic", "2s"]));
    assert_eq!(stream.size_hint(), (4, Some(4)));
    let ended: Vec<_> = stream
        .map(|(n, result)| (n, result.tool().to_owned()))
        .collect()
        .await;
    let expected = [(2, "panic"), (1, "1s"), (3, "2s"), (0, "3s")];
    assert_eq!(ended, expected.map(|(n, tool)| (n, tool.to_owned())));
}

#[tokio::test]
async fn nothing_gives_nothing() {
    let parallel = Parallel::new(tool(&Counts::default()));
    assert!(parallel.run([]).await.is_empty());
    let mut stream = parallel.stream([]);
    assert!(stream.next().await.is_none() && stream.next().await.is_none());
}

/// X1, T5: at the end of the budget each call has its own result: those that ran, those that had
/// not begun, those that had ended.
#[tokio::test(start_paused = true)]
async fn at_the_end_of_the_budget_each_call_has_its_own_result() {
    let (counts, start) = (Counts::default(), Instant::now());
    let parallel = Parallel::new(tool(&counts)).with_limit(2).unwrap();
    let parallel = parallel.with_budget(secs(60));
    let results = parallel
        .run(calls(["10s", "hang", "hang", "3s", "now"]))
        .await;
    assert_eq!(start.elapsed(), secs(60));
    let expected = ["success", "timeout", "timeout", "skipped", "skipped"];
    assert_eq!(statuses(&results), expected);
    assert_eq!((counts.begun(), counts.running()), (3, 0));
    assert_eq!(results[2].duration(), secs(50));
    let skipped = &results[4];
    assert_eq!((skipped.duration(), skipped.attempts()), (secs(0), 0));
    let error = skipped.error().unwrap();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(error.execution(), Execution::NotStarted);
    assert!(results[1].error().unwrap().message().contains("deadline"));
}

/// The budget begins with `run`, not with the first poll: a future that lies about uses it up.
#[tokio::test(start_paused = true)]
async fn the_budget_begins_with_run() {
    let parallel = Parallel::new(tool(&Counts::default())).with_budget(secs(10));
    let running = parallel.run(calls(["8s"]));
    tokio::time::sleep(secs(5)).await;
    assert_eq!(statuses(&running.await), ["timeout"]);
}

/// T5: a deadline set outside is never exceeded inside.
#[tokio::test(start_paused = true)]
async fn a_calls_own_deadline_holds_when_it_is_earlier() {
    let parallel = Parallel::new(tool(&Counts::default())).with_budget(secs(10));
    let call = ToolCall::new("hang").with_deadline(Instant::now() + secs(2));
    let results = parallel.run([call]).await;
    assert_eq!(results[0].duration(), secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_no_clock_reaches_is_none() {
    let parallel = Parallel::new(tool(&Counts::default())).with_budget(std::time::Duration::MAX);
    assert_eq!(statuses(&parallel.run(calls(["3s"])).await), ["success"]);
}

/// The layers below know of the budget: what they do ends before it.
#[tokio::test(start_paused = true)]
async fn a_deadline_layer_below_keeps_its_reserve_from_the_budget() {
    let tools = ServiceBuilder::new()
        .layer(DeadlineLayer::inherited())
        .service(tool(&Counts::default()));
    let parallel = Parallel::new(tools).with_budget(secs(10));
    let results = parallel.run(calls(["hang"])).await;
    assert_eq!(results[0].duration(), ms(9_500));
}

/// Clones of a call that somebody observes are calls of their own in a batch inside.
#[tokio::test(start_paused = true)]
async fn a_batch_inside_a_batch_has_calls_of_its_own() {
    let heard = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = heard.clone();
    let outer = service_fn(move |call: ToolCall| {
        let count = count.clone();
        async move {
            let inner = Parallel::new(tool(&Counts::default())).with_limit(1)?;
            let inner =
                inner
                    .with_budget(secs(1))
                    .with_listener(move |_: &tower_toolcall::Event<'_>| {
                        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    });
            let results = inner.run(vec![call; 3]).await;
            Ok::<_, BoxError>(statuses(&results))
        }
    });
    let results = Parallel::new(outer).run(calls(["hang"])).await;
    assert_eq!(
        results[0].data().unwrap(),
        &["timeout", "skipped", "skipped"]
    );
    assert_eq!(heard.load(std::sync::atomic::Ordering::SeqCst), 2);
}

/// The observation goes on where a call is cut: what the layers below had said is in its result.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_cut_tells_what_was_known_of_it() {
    let tools = ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(30)))
        .service(tool(&Counts::default()));
    let parallel = Parallel::new(tools).with_budget(secs(10));
    let results = parallel.run(calls(["hang"])).await;
    assert_eq!(results[0].status().name(), "timeout");
    assert_eq!(results[0].metadata().timeout(), Some(secs(10)));
    assert_eq!(results[0].metadata().configured_timeout(), Some(secs(30)));
}

/// Rule 3: each call waits for its own readiness, in its own place of the queue.
#[tokio::test(start_paused = true)]
async fn calls_wait_for_a_limit_below() {
    let counts = Counts::default();
    let tools = ConcurrencyLimit::new(tool(&counts), 2);
    let results = Parallel::new(tools).run(calls(["1s"; 6])).await;
    assert!(results.iter().all(|r| r.is_success()));
    assert_eq!(counts.most(), 2);
}

/// T5, trap 22: what still waits for its turn at the end of the budget does not begin then, when
/// those that had it are dropped.
#[tokio::test(start_paused = true)]
async fn nothing_begins_when_the_budget_ends() {
    let counts = Counts::default();
    let limited = ConcurrencyLimit::new(tool(&counts), 1);
    let results = Parallel::new(limited)
        .with_budget(secs(1))
        .run(calls(["hang"; 50]))
        .await;
    assert_eq!(counts.begun(), 1);
    let ended = statuses(&results);
    assert_eq!(ended.iter().filter(|s| **s == "timeout").count(), 1);
    assert_eq!(ended.iter().filter(|s| **s == "skipped").count(), 49);
    assert!(results[49].duration().is_zero());

    // Below layers that wait in their futures as well.
    let stack = || {
        ServiceBuilder::new()
            .layer(tower_toolcall::circuit_breaker::CircuitBreakerLayer::new())
            .layer(TimeoutLayer::new(secs(9)))
            .service(ConcurrencyLimit::new(tool(&counts), 1))
    };
    Parallel::new(stack())
        .with_budget(secs(1))
        .run(calls(["hang"; 50]))
        .await;
    assert_eq!(counts.begun(), 2);
}

/// Trap 18, with the service that panics when its contract is broken.
#[tokio::test(start_paused = true)]
async fn no_service_is_called_that_was_not_ready() {
    let (mock, mut handle) = tower_test::mock::pair::<ToolCall, u8>();
    handle.allow(0);
    let mut running = tokio_test::task::spawn(Parallel::new(mock).run(calls(["a", "b"])));
    tokio_test::assert_pending!(running.poll());
    handle.allow(2);
    for n in 0..2 {
        tokio_test::assert_pending!(running.poll());
        let (_, reply) = handle.next_request().await.unwrap();
        reply.send_response(n);
    }
    assert_eq!(running.await.len(), 2);
}

/// Trap 24.
#[tokio::test]
async fn a_readiness_error_is_the_result_of_each_call_that_meets_it() {
    #[derive(Clone)]
    struct Broken;
    impl Service<ToolCall> for Broken {
        type Response = ();
        type Error = BoxError;
        type Future = std::future::Ready<Result<(), BoxError>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Err("connection refused".into()))
        }
        fn call(&mut self, _: ToolCall) -> Self::Future {
            unreachable!("never ready")
        }
    }
    let results = Parallel::new(Broken).run(calls(["a", "b"])).await;
    assert_eq!(statuses(&results), ["error", "error"]);
    let error = results[1].error().unwrap();
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(error.tool(), Some("b"));
}

/// How many turns another task has while a batch runs: it asks for the next one each time.
async fn turns_beside(batch: impl Future<Output = usize> + Send + 'static) -> usize {
    let batch = tokio::spawn(batch);
    let watch = tokio::spawn(async move {
        let mut turns = 0;
        std::future::poll_fn(move |cx| {
            turns += 1;
            cx.waker().wake_by_ref();
            match batch.is_finished() {
                true => Poll::Ready(turns),
                false => Poll::Pending,
            }
        })
        .await
    });
    watch.await.unwrap()
}

/// Calls that never wait do not keep the task for themselves.
#[tokio::test]
async fn the_task_yields_among_calls_that_never_wait() {
    let parallel = Parallel::new(tool(&Counts::default()));
    let running = parallel.run((0..10_000).map(|_| ToolCall::new("now")));
    let turns = turns_beside(async { running.await.len() }).await;
    assert!(turns > 50, "{turns} turns");
}

/// Nor does it begin ten thousand calls at once.
#[tokio::test]
async fn the_task_yields_while_it_begins_calls() {
    let parallel = Parallel::new(tool(&Counts::default()));
    let running = parallel.run((0..10_000).map(|_| ToolCall::new("1ms")));
    let turns = turns_beside(async { running.await.len() }).await;
    assert!(turns > 200, "{turns} turns");
}

/// No quadratic step: a call is polled when it was woken, and not because another was.
#[tokio::test(start_paused = true)]
async fn each_call_is_polled_as_often_as_it_is_woken() {
    let polls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = polls.clone();
    let tools = service_fn(move |call: ToolCall| {
        let polls = counted.clone();
        async move {
            let n: u64 = call.id().unwrap().parse()?;
            let mut sleep = Box::pin(tokio::time::sleep(ms(n)));
            std::future::poll_fn(|cx| {
                polls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                sleep.as_mut().poll(cx)
            })
            .await;
            Ok::<_, BoxError>(n)
        }
    });
    let calls = (0..2_000).map(|n| ToolCall::new("t").with_id(n.to_string()));
    let results = Parallel::new(tools).run(calls).await;
    assert!(
        results
            .iter()
            .enumerate()
            .all(|(n, r)| r.data() == Some(&(n as u64)))
    );
    let polls = polls.load(std::sync::atomic::Ordering::SeqCst);
    assert!(polls <= 3 * 2_000, "{polls} polls");
}

/// The same where calls make more than one step in a turn, and the task's turns end in the midst of
/// them.
#[tokio::test]
async fn calls_of_several_steps_are_not_asked_in_vain() {
    let polls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = polls.clone();
    let tools = service_fn(move |_: ToolCall| {
        let polls = counted.clone();
        async move {
            let mut steps = Box::pin(async {
                for _ in 0..5 {
                    tokio::task::coop::consume_budget().await;
                }
            });
            std::future::poll_fn(|cx| {
                polls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                steps.as_mut().poll(cx)
            })
            .await;
            Ok::<_, BoxError>(())
        }
    });
    let calls = (0..8_000).map(|_| ToolCall::new("t"));
    let running = Parallel::new(tools).run(calls);
    let results = tokio::spawn(running).await.unwrap();
    assert!(results.iter().all(|r| r.is_success()));
    let polls = polls.load(std::sync::atomic::Ordering::SeqCst);
    assert!(polls <= 2 * 8_000, "{polls} polls");
}

/// Trap 21: a call that is never done with its turn takes neither the turns of its neighbours nor
/// their deadlines.
#[tokio::test]
async fn a_busy_call_starves_no_other() {
    let tools = service_fn(|call: ToolCall| async move {
        if call.tool() == "busy" {
            std::future::poll_fn(|cx| {
                loop {
                    if !tokio::task::coop::has_budget_remaining() {
                        cx.waker().wake_by_ref();
                        return Poll::<()>::Pending;
                    }
                    if let Poll::Ready(coop) = tokio::task::coop::poll_proceed(cx) {
                        coop.made_progress();
                    }
                }
            })
            .await;
        }
        tokio::time::sleep(ms(20)).await;
        Ok::<_, BoxError>(())
    });
    let busy = || ToolCall::new("busy").with_deadline(Instant::now() + ms(300));
    for busy_ones in 1..4 {
        let mut calls = vec![ToolCall::new("sleeps")];
        calls.extend((0..busy_ones).map(|_| busy()));
        let running = Parallel::new(tools).run(calls);
        let results = tokio::time::timeout(secs(10), tokio::spawn(running));
        let results = results.await.expect("all have ended").unwrap();
        assert!(results[0].is_success());
        assert!(
            results[0].duration() < ms(300),
            "{:?}",
            results[0].duration()
        );
        assert!(results[1..].iter().all(|r| r.status().name() == "timeout"));
    }
}

/// The task's turn is one for all batches that it runs.
#[tokio::test]
async fn batches_in_one_task_share_its_turn() {
    let counts = Counts::default();
    let parallel = Parallel::new(tool(&counts));
    let mut batches: Vec<_> = (0..20)
        .map(|_| parallel.run((0..1_000).map(|_| ToolCall::new("now"))))
        .collect();
    let first_turn = std::future::poll_fn(|cx| {
        for batch in &mut batches {
            let _ = std::pin::Pin::new(batch).poll(cx);
        }
        Poll::Ready(())
    });
    first_turn.await;
    assert!(counts.begun() <= 300, "{} in one turn", counts.begun());
}

/// X1: a moment by which all must have ended; the earlier end holds.
#[tokio::test(start_paused = true)]
async fn a_batch_may_have_a_deadline() {
    let parallel = Parallel::new(tool(&Counts::default())).with_deadline(Instant::now() + secs(2));
    let results = parallel.clone().run(calls(["hang"])).await;
    assert_eq!(
        (statuses(&results), results[0].duration()),
        (vec!["timeout"], secs(2))
    );
    let results = parallel.with_budget(secs(9)).run(calls(["now"])).await;
    assert_eq!(statuses(&results), ["skipped"]);
}

/// Works on whatever can be cloned, without a `'static` and without `Send`.
#[tokio::test]
async fn around_a_service_that_borrows() {
    let cities = [String::from("Oslo")];
    let tools = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(cities[0].as_str()) });
    let results = Parallel::new(tools).run(calls(["weather"])).await;
    assert_eq!(*results[0].data().unwrap(), "Oslo");
}

#[tokio::test]
async fn around_a_boxed_service_in_a_task_of_its_own() {
    let boxed = tower::util::BoxCloneSyncService::new(tool(&Counts::default()));
    let running =
        Parallel::new(boxed.map_err(tower_toolcall::ToolError::from_box)).run(calls(["now"]));
    assert_eq!(tokio::spawn(running).await.unwrap().len(), 1);
}
