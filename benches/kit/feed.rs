//! The calls that are sent, all of them made before anything is measured.

use serde_json::{Map, Value, json};
use tower_toolcall::ToolCall;

/// Which tools are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    One,
    /// One tool per lane.
    OneEach,
    /// So many, each as often as any other.
    Uniform(usize),
    /// So many, the n-th 1/n times as often as the first.
    Zipf(usize),
}

impl Names {
    pub fn count(self) -> usize {
        match self {
            Self::One | Self::OneEach => 1,
            Self::Uniform(n) | Self::Zipf(n) => n,
        }
    }
}

/// Calls, and the order in which they are sent.
pub struct Feed {
    calls: Vec<ToolCall>,
    /// As many as a power of two.
    picks: Vec<u32>,
}

impl Feed {
    /// The calls of one lane. No two lanes share any, so that they contend for nothing but what a layer
    /// makes them share.
    pub fn new(names: Names, five_arguments: bool, lane: usize) -> Self {
        let arguments: Map<String, Value> =
            (0..5).map(|i| (format!("key{i}"), json!("v"))).collect();
        let call = |name: String| {
            let call = ToolCall::new(name).with_server("docs");
            match five_arguments {
                true => call.with_arguments(arguments.clone()),
                false => call,
            }
        };
        let calls = match names {
            Names::One => vec![call("search".to_owned())],
            Names::OneEach => vec![call(format!("search{lane}"))],
            Names::Uniform(n) | Names::Zipf(n) => {
                (0..n).map(|i| call(format!("tool_{i}"))).collect()
            }
        };
        Self {
            picks: picks(names, lane as u64),
            calls,
        }
    }

    /// The `n`-th call to send.
    #[inline]
    pub fn call(&self, n: usize) -> &ToolCall {
        &self.calls[self.picks[n & (self.picks.len() - 1)] as usize]
    }

    /// So many calls send each of them at least once, or nearly.
    pub fn len(&self) -> usize {
        self.picks.len()
    }
}

fn picks(names: Names, seed: u64) -> Vec<u32> {
    let count = names.count();
    if count == 1 {
        return vec![0];
    }
    let mut random = Random(seed);
    let picks = (2 * count).next_power_of_two();
    match names {
        Names::Zipf(_) => {
            let mut sum = 0.0;
            let sums: Vec<f64> = (1..=count)
                .map(|n| {
                    sum += 1.0 / n as f64;
                    sum
                })
                .collect();
            let one = |at: f64| sums.partition_point(|s| *s < at).min(count - 1) as u32;
            (0..picks).map(|_| one(random.unit() * sum)).collect()
        }
        _ => {
            let one = |at: f64| (at * count as f64) as u32;
            (0..picks).map(|_| one(random.unit())).collect()
        }
    }
}

/// SplitMix64: the same calls in each run.
struct Random(u64);

impl Random {
    /// From 0 to 1, without 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
