//! The tables.

use crate::arrivals::Taken;

pub(crate) const LEGEND: &str = "\
at most     calls per second when 64 tasks send their next call as soon as they have an answer
late, drop  arrivals that were sent 1 ms after they were due, or not at all: too many in flight
p50 ...     microseconds from when a call was due to its answer; - where too few were sent for it; peers are indented";

const PERCENTILES: [(&str, f64, u64); 5] = [
    ("p50", 50.0, 2),
    ("p90", 90.0, 10),
    ("p99", 99.0, 100),
    ("p99.9", 99.9, 1_000),
    ("p99.99", 99.99, 10_000),
];

pub(crate) fn title(name: &str) {
    print!(
        "\n{name:36} {:>9} {:>9} {:>7} {:>6} {:>6}",
        "at most", "calls/s", "sent", "late", "drop"
    );
    for (name, ..) in PERCENTILES {
        print!(" {name:>8}");
    }
    println!(" {:>8}", "max");
}

pub(crate) fn row(name: &str, at_most: f64, rate: u32, taken: &Taken) {
    print!("{name:36} {at_most:>9.0} {rate:>9}");
    if taken.sent == 0 {
        return println!("   more than it can do here");
    }
    print!(" {:>7} {:>6} {:>6}", taken.sent, taken.late, taken.dropped);
    for (_, percentile, takes) in PERCENTILES {
        match taken.sent >= takes {
            true => print!(
                " {:>8}",
                micros(taken.latencies.value_at_percentile(percentile))
            ),
            false => print!(" {:>8}", "-"),
        }
    }
    println!(" {:>8}", micros(taken.latencies.max()));
    if taken.late * 100 > taken.sent {
        println!("  ^ late arrivals: the generator is the limit, or a machine that has other work");
    }
}

fn micros(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e3)
}
