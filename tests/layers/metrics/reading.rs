//! Snapshots, intervals, exports, and how they print.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use expect_test::expect;
use tower::ServiceExt;
use tower_toolcall::{
    circuit_breaker::CircuitBreakerLayer,
    tool_metrics::{Interval, Metrics, Snapshot},
};

use super::{call, run, stats, tools};

async fn mixed(metrics: &Metrics) {
    for tool in ["works", "works", "takes_a_second", "fails", "times_out"] {
        run(metrics, tool).await;
    }
}

#[tokio::test(start_paused = true)]
async fn intervals_add_up_and_know_nothing_of_each_other() {
    let metrics = Metrics::new();
    run(&metrics, "works").await;
    let (mut often, mut seldom) = (metrics.interval(), metrics.interval());
    for _ in 0..3 {
        mixed(&metrics).await;
        metrics.reset();
        let part = often.snapshot();
        assert_eq!((part.total.calls, part.tools.len()), (5, 4));
        assert_eq!(part.period, Duration::from_secs(1));
        assert_eq!(part.total.latency.count, 5);
        assert_eq!(part.tool(Some("docs"), "fails").unwrap().codes.len(), 1);
    }
    let nothing = often.snapshot();
    assert!(nothing.tools.is_empty() && nothing.total == Default::default());
    let all = seldom.snapshot();
    assert_eq!((all.total.calls, all.total.latency.count), (15, 15));
    assert_eq!(all.total.latency.sum, Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_reset_begins_at_zero_and_prometheus_does_not_notice() {
    let metrics = Metrics::new();
    mixed(&metrics).await;
    metrics.reset();
    assert_eq!(metrics.snapshot().total, Default::default());
    run(&metrics, "works").await;
    assert_eq!(stats(&metrics, "works").calls, 1);
    let counted = "tool_executions_total{server=\"docs\",tool=\"works\",outcome=\"success\"} 3\n";
    assert!(metrics.prometheus().contains(counted));
}

/// A call that is in flight at a reset is not lost.
#[tokio::test(start_paused = true)]
async fn a_reset_leaves_calls_in_flight() {
    let metrics = Metrics::new();
    let response = tower::Service::call(&mut tools(&metrics), call("works"));
    metrics.reset();
    assert_eq!(stats(&metrics, "works").in_flight, 1);
    response.await.unwrap();
    assert_eq!(
        (
            stats(&metrics, "works").in_flight,
            stats(&metrics, "works").calls
        ),
        (0, 1)
    );
}

#[test]
fn what_is_recorded_while_somebody_reads_is_not_lost() {
    const CALLS: u64 = 20_000;
    let metrics = Metrics::new();
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap()
    };
    let work = || {
        runtime().block_on(async {
            for n in 0..CALLS {
                run(&metrics, if n % 2 == 0 { "works" } else { "fails" }).await;
            }
        });
    };
    let intervals = [metrics.interval(), metrics.interval()];
    let done = AtomicBool::new(false);
    let read = |mut interval: Interval| {
        let mut sum = (0, 0, 0);
        loop {
            let last = done.load(Relaxed);
            let part = interval.snapshot().total;
            sum = (
                sum.0 + part.calls,
                sum.1 + part.errors,
                sum.2 + part.latency.count,
            );
            if last {
                return sum;
            }
        }
    };
    std::thread::scope(|scope| {
        let readers = intervals.map(|interval| scope.spawn(|| read(interval)));
        let writers = [scope.spawn(work), scope.spawn(work), scope.spawn(work)];
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Relaxed);
        for reader in readers {
            assert_eq!(
                reader.join().unwrap(),
                (3 * CALLS, 3 * CALLS / 2, 3 * CALLS)
            );
        }
    });
    assert_eq!(metrics.snapshot().total.calls, 3 * CALLS);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_survives_json() {
    let metrics = Metrics::new();
    mixed(&metrics).await;
    for snapshot in [metrics.snapshot(), metrics.export()] {
        let json = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
    }
    let json = serde_json::to_value(metrics.snapshot()).unwrap();
    assert_eq!(json["period_ms"], 1000.0);
    assert_eq!(json["tools"][0]["tool"], "fails");
    assert_eq!(json["tools"][0]["error_rate"], 1.0);
    assert_eq!(json["total"]["latency"]["sum_ms"], 1000.0);
}

/// The second case is an interval.
#[tokio::test(start_paused = true)]
async fn an_export_has_the_counts_of_all_latencies() {
    let metrics = Metrics::new();
    let mut interval = metrics.interval();
    mixed(&metrics).await;
    for export in [metrics.export(), interval.export()] {
        let latency = &export.tool(Some("docs"), "takes_a_second").unwrap().latency;
        let [(us, 1)] = latency.histogram.as_deref().unwrap() else {
            panic!("{latency:?}")
        };
        assert!((990_000..=1_000_000).contains(us), "{us}");
        let total = export.total.latency.histogram.unwrap();
        assert_eq!(total.iter().map(|(_, calls)| calls).sum::<u64>(), 5);
    }
    assert_eq!(metrics.snapshot().total.latency.histogram, None);
}

#[tokio::test(start_paused = true)]
async fn the_table_is_aligned_and_readable() {
    let metrics = Metrics::new();
    for n in 1..=200 {
        let tool = match n {
            1..=2 => "times_out",
            3..=5 => "fails",
            6..=20 => "takes_a_second",
            _ => "a_tool_with_a_name_that_is_much_too_long_for_a_table",
        };
        tools(&metrics).oneshot(call(tool)).await.ok();
    }
    let breaker = CircuitBreakerLayer::builder().with_listener(metrics.clone());
    let handle = breaker.build().unwrap().handle();
    for _ in 0..5 {
        handle.breaker(&call("fails")).record_failure();
    }
    handle.breaker(&call("times_out")).force_closed();
    let hanging = tower::Service::call(&mut tools(&metrics), call("hangs"));
    let table = metrics.snapshot().to_string();
    drop(hanging);
    assert!(table.lines().all(|line| line.chars().count() <= 140));
    expect![[r#"
        tool                             calls  err % mean ms     p50     p90     p95     p99   p99.9     max t/out  retry   slow  now breaker
        docs/a_tool_with_a_name_t...       180   0.00   0.000   0.001   0.001   0.001   0.001   0.001   0.001     0      -      -    0
        docs/fails                           3 100.00   0.000   0.001   0.001   0.001   0.001   0.001   0.001     0      -      -    0 open
        docs/hangs                           0   0.00       -       -       -       -       -       -       -     0      -      -    1
        docs/takes_a_second                 15   0.00    1000    1004    1004    1004    1004    1004    1004     0      -      -    0
        docs/times_out                       2 100.00   0.000   0.001   0.001   0.001   0.001   0.001   0.001     2      -      -    0 forced_closed
        total of 5 in 15.0s                200   2.50    75.0   0.001   0.001    1004    1004    1004    1004     2      -      -    1
        breaker docs/fails: open, openings: 1
    "#]].assert_eq(&table);
}
