//! Batches that end in the middle.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use futures_util::StreamExt as _;
use tokio::time::{sleep, timeout};
use tower_toolcall::{
    ErrorKind, Event, Execution, ToolCall,
    batch::{Parallel, Sequence},
};
use tower_toolcall_test::Events;

use super::kit::{Counts, calls, ms, secs, statuses, tool};

/// X3: dropped half-way, the calls that run are dropped with it, and no other begins.
#[tokio::test(start_paused = true)]
async fn a_dropped_batch_drops_its_calls() {
    let counts = Counts::default();
    let parallel = Parallel::new(tool(&counts)).with_limit(3).unwrap();
    let running = parallel.run(calls(["1s", "hang", "hang", "hang", "hang"]));
    assert!(timeout(secs(2), running).await.is_err());
    assert_eq!((counts.begun(), counts.running()), (4, 0));
}

#[tokio::test]
async fn a_batch_that_is_never_polled_starts_nothing() {
    let counts = Counts::default();
    drop(Parallel::new(tool(&counts)).run(calls(["now"])));
    drop(Parallel::new(tool(&counts)).stream(calls(["now"])));
    drop(Sequence::new(tool(&counts)).run(calls(["now"])));
    assert_eq!(counts.begun(), 0);
}

/// X3: cancelled half-way, each call has its one result: those that had ended, those that ran,
/// those that waited.
#[tokio::test(start_paused = true)]
async fn a_cancelled_batch_has_a_result_for_each_call() {
    let counts = Counts::default();
    let parallel = Parallel::new(tool(&counts)).with_limit(2).unwrap();
    let mut running = parallel.run(calls(["hang", "1s", "fail", "hang", "now"]));
    assert!(timeout(secs(5), &mut running).await.is_err());
    assert_eq!(running.remaining(), 3);
    running.cancel();
    assert_eq!(counts.running(), 0);
    let results = running.await;
    let expected = ["cancelled", "success", "error", "cancelled", "cancelled"];
    assert_eq!(statuses(&results), expected);
    let error = |n: usize| results[n].error().unwrap();
    assert_eq!(error(3).kind(), ErrorKind::Cancelled);
    assert_eq!(error(3).execution(), Execution::Unknown);
    assert_eq!(error(4).execution(), Execution::NotStarted);
    assert_eq!((results[0].duration(), results[4].attempts()), (secs(5), 0));
    assert_eq!(counts.begun(), 4);
}

/// A call that was begun and not asked yet has not run, and an observer hears of it.
#[tokio::test]
async fn a_call_that_was_never_asked_has_not_started() {
    let (counts, events) = (Counts::default(), Events::new());
    let parallel = Parallel::new(tool(&counts)).with_listener(events.clone());
    let many = || (0..1_000).map(|_| ToolCall::new("now"));
    let mut running = parallel.run(many());
    let mut other = parallel.run(many());
    for running in [&mut running, &mut other] {
        tokio::select! {
            biased;
            _ = running => panic!("it has not ended"),
            () = std::future::ready(()) => {}
        }
    }
    let ran = counts.begun();
    running.cancel();
    let results = running.await;
    let begun = results.iter().filter(|r| r.is_success()).count();
    for result in &results[begun..] {
        let error = result.error().unwrap();
        assert_eq!(error.execution(), Execution::NotStarted);
        assert_eq!(result.attempts(), 0);
    }
    drop(other);
    assert_eq!(counts.begun(), ran);
    assert_eq!(events.take(), vec!["tool.cancelled"; 2_000 - ran]);
}

/// O2: a caller's token ends the calls of a batch; those that had not begun are events of their
/// own.
#[tokio::test(start_paused = true)]
async fn a_token_cancels_calls_and_skips_those_that_wait() {
    let events = Events::new();
    let token = tokio_util::sync::CancellationToken::new();
    let calls = calls(["hang", "hang", "now"]).map(|call| call.with_cancellation(token.clone()));
    let sequence = Sequence::new(tool(&Counts::default()));
    let sequence = sequence.with_listener(events.clone());
    let running = tokio::spawn(sequence.run(calls));
    sleep(secs(1)).await;
    token.cancel();
    let report = running.await.unwrap();
    assert_eq!(report.tally().cancelled, 3);
    let attempts: Vec<_> = report.results().iter().map(|r| r.attempts()).collect();
    assert_eq!(attempts, [1, 0, 0]);
    events.assert(["tool.cancelled"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_cancelled_before_it_began_and_twice() {
    let counts = Counts::default();
    let mut running = Parallel::new(tool(&counts)).run(calls(["now", "now"]));
    running.cancel();
    running.cancel();
    assert_eq!(statuses(&running.await), ["cancelled", "cancelled"]);
    assert_eq!(counts.begun(), 0);
}

/// A listener must not panic; one that does takes no result with it.
#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_takes_no_result() {
    let parallel = Parallel::new(tool(&Counts::default()));
    let parallel = parallel
        .with_limit(1)
        .unwrap()
        .with_listener(|_: &Event<'_>| panic!("heard"));
    let mut running = parallel.run(calls(["hang", "now", "now"]));
    assert!(timeout(secs(1), &mut running).await.is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| running.cancel())).is_err());
    assert_eq!(statuses(&running.await), ["cancelled"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_stream_gives_the_rest_in_call_order() {
    let parallel = Parallel::new(tool(&Counts::default()));
    let mut stream = parallel.stream(calls(["hang", "1s", "hang"]));
    assert_eq!(stream.next().await.unwrap().0, 1);
    stream.cancel();
    let rest: Vec<_> = stream.map(|(n, r)| (n, r.status().name())).collect().await;
    assert_eq!(rest, [(0, "cancelled"), (2, "cancelled")]);
}

/// The results that a stream has given are given; the others stay where `next` is dropped.
#[tokio::test(start_paused = true)]
async fn next_loses_nothing_when_it_is_dropped() {
    let parallel = Parallel::new(tool(&Counts::default()));
    let mut stream = parallel.stream(calls(["1s", "2s"]));
    let mut seen = Vec::new();
    while stream.remaining() > 0 {
        if let Ok(Some((n, _))) = timeout(ms(300), stream.next()).await {
            seen.push(n);
        }
    }
    assert_eq!(seen, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_sequence_reports_all_calls() {
    let counts = Counts::default();
    let mut running = Sequence::new(tool(&counts)).run(calls(["1s", "hang", "now"]));
    assert!(timeout(secs(3), &mut running).await.is_err());
    running.cancel();
    let report = running.await;
    let expected = ["success", "cancelled", "cancelled"];
    assert_eq!(statuses(report.results()), expected);
    assert_eq!((counts.begun(), counts.running()), (2, 0));
}

/// E3: nor does a tool that panics while it is dropped take a result from another.
#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_in_its_drop_harms_nobody() {
    let counts = Counts::default();
    let parallel = Parallel::new(tool(&counts)).with_budget(secs(3));
    let tools = ["panic_in_drop", "1s", "panic_in_drop", "hang"];
    let results = parallel.run(calls(tools)).await;
    assert_eq!(
        statuses(&results),
        ["timeout", "success", "timeout", "timeout"]
    );

    let mut running = Parallel::new(tool(&counts)).run(calls(tools));
    assert!(timeout(secs(2), &mut running).await.is_err());
    running.cancel();
    let expected = ["cancelled", "success", "cancelled", "cancelled"];
    assert_eq!(statuses(&running.await), expected);

    let mut running = Parallel::new(tool(&counts)).run(calls(tools));
    assert!(timeout(secs(2), &mut running).await.is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(running))).is_ok());
    assert_eq!(counts.running(), 0);
}

/// At whatever moment a batch is cancelled, each call has one result, and nothing runs on.
#[tokio::test(start_paused = true)]
async fn at_each_moment_of_a_cancel_there_is_one_result_for_each_call() {
    for moment in 0..40 {
        for limit in [1, 2, 9] {
            let counts = Counts::default();
            let parallel = Parallel::new(tool(&counts)).with_limit(limit).unwrap();
            let tools = ["5ms", "fail", "3ms", "panic", "now", "8ms", "panic_in_drop"];
            let mut running = parallel.with_budget(ms(30)).run(calls(tools));
            tokio::select! {
                biased;
                () = sleep(Duration::from_millis(moment)) => running.cancel(),
                _ = &mut running => continue,
            }
            let results = running.await;
            assert_eq!(results.len(), tools.len());
            for (result, name) in results.iter().zip(tools) {
                assert_eq!(result.tool(), name);
            }
            assert_eq!(counts.running(), 0);
        }
    }
}

#[tokio::test]
#[should_panic(expected = "polled after completion")]
async fn a_sequence_that_is_polled_after_its_end_says_so() {
    let mut running = Sequence::new(tool(&Counts::default())).run(calls(["now"]));
    let _ = (&mut running).await;
    let _ = (&mut running).await;
}

#[tokio::test]
#[should_panic(expected = "polled after completion")]
async fn a_batch_that_is_polled_after_its_end_says_so() {
    let mut running = Parallel::new(tool(&Counts::default())).run(calls(["now"]));
    let _ = (&mut running).await;
    let _ = (&mut running).await;
}
