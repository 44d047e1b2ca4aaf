//! JSON logs as the docs of `event` set them up, and the questions that they answer.

mod load;
mod page;

use std::collections::BTreeMap;

use serde_json::Value;
use tracing_subscriber::{
    fmt::{
        self,
        format::{Format, Json, JsonFields},
    },
    prelude::*,
};

use self::load::Ledger;
use crate::kit::{Log, listening};

fn lines(log: &Log) -> Vec<Value> {
    let text = log.text();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

fn json<S>(log: &Log) -> fmt::Layer<S, JsonFields, Format<Json>, Log> {
    let layer = fmt::layer().json().flatten_event(true);
    layer.with_writer(log.clone())
}

/// The log of the load, the same with the spans, and what the caller knows of it.
async fn run() -> (Log, Log, Ledger) {
    listening();
    let (log, with_spans) = (Log::default(), Log::default());
    let short = json(&log).with_current_span(false).with_span_list(false);
    let _guard = tracing_subscriber::registry()
        .with(short)
        .with(json(&with_spans))
        .set_default();
    let ledger = load::run().await;
    (log, with_spans, ledger)
}

/// O2, the questions of system C.
#[tokio::test(start_paused = true)]
async fn the_log_answers_what_the_caller_knows() {
    let (log, with_spans, ledger) = run().await;
    let lines = lines(&log);
    page::lists_every_key(&lines);

    let ends: Vec<&Value> = lines.iter().filter(|l| is_end(l)).collect();
    assert_eq!(ends.len(), ledger.calls.len());
    let answers = Answers {
        success_rate: share(&ends, |l| l["message"] == "tool.success"),
        p95: p95(ends.iter().map(|l| l["duration_ms"].as_f64().unwrap())),
        errors: ends.iter().filter_map(|l| l["code"].as_str()).fold(
            BTreeMap::new(),
            |mut counts, code| {
                *counts.entry(code.to_owned()).or_default() += 1;
                counts
            },
        ),
        repeated: share(&ends, |l| attempts(l) > 1),
        retries_per_call: ends
            .iter()
            .map(|l| attempts(l).saturating_sub(1))
            .sum::<u64>() as f64
            / ends.len() as f64,
    };
    assert_eq!(answers, ledger.answers());
    // A second way to count them.
    let retries = lines.iter().filter(|l| l["message"] == "tool.retry");
    // One of them the breaker refused.
    assert_eq!(retries.count() as u64, ledger.retries() + 1);

    page::jq_agrees(&log.text(), &answers);
    for text in [log.text(), with_spans.text()] {
        assert!(!text.contains(load::CANARY), "a secret in the log");
        assert!(text.contains("[REDACTED]"));
    }
}

/// What system C asks its logs.
#[derive(Debug, PartialEq)]
struct Answers {
    success_rate: f64,
    p95: f64,
    errors: BTreeMap<String, u64>,
    repeated: f64,
    retries_per_call: f64,
}

fn is_end(line: &Value) -> bool {
    let ends = [
        "success",
        "failure",
        "rejected",
        "timeout",
        "skipped",
        "cancelled",
    ];
    let message = line["message"].as_str().unwrap();
    ends.iter().any(|end| message == format!("tool.{end}"))
}

fn attempts(line: &Value) -> u64 {
    line["attempts"].as_u64().unwrap_or(1)
}

fn share<T>(all: &[T], which: impl Fn(&T) -> bool) -> f64 {
    all.iter().filter(|x| which(x)).count() as f64 / all.len() as f64
}

/// By nearest rank.
fn p95(durations: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = durations.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() as f64 * 0.95).ceil() as usize - 1]
}
