//! The calls that are sent.

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

/// What they are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// 6 to 11 bytes.
    Short,
    /// 20 to 40 bytes, as those of large catalogues, which say what they belong to.
    Long,
}

impl Length {
    fn name(self, n: usize) -> String {
        const SUBJECTS: [&str; 4] = [
            "issue",
            "pull_request",
            "workflow_run_artifact",
            "review_thread",
        ];
        match self {
            Self::Short => format!("tool_{n}"),
            Self::Long => format!("list_{}_comments_{n:06}", SUBJECTS[n % 4]),
        }
    }
}

/// What their arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    None,
    /// Five keys.
    Five,
    /// A text of 64 KiB.
    Large,
}

impl Arguments {
    fn map(self) -> Map<String, Value> {
        match self {
            Self::None => Map::new(),
            Self::Five => (0..5).map(|i| (format!("key{i}"), json!("v"))).collect(),
            Self::Large => Map::from_iter([("text".to_owned(), json!("x".repeat(1 << 16)))]),
        }
    }
}

const SERVER: &str = "docs";

/// Calls, and the order in which they are sent.
pub struct Feed {
    calls: Vec<ToolCall>,
    /// As many as a power of two.
    picks: Vec<u32>,
    makes_new: bool,
}

impl Feed {
    /// The calls of one lane. No two lanes share any, so that they contend for nothing but what a
    /// layer makes them share.
    ///
    /// What is sent is a clone of a call that was made before, so that nothing is measured but
    /// layers. If it `makes_new` ones, it is one without arguments, made when it is sent, as users
    /// do: whatever a layer finds out about a call and keeps there, as the hash of its key, it
    /// finds out each time.
    pub fn new(
        names: Names,
        length: Length,
        arguments: Arguments,
        makes_new: bool,
        lane: usize,
    ) -> Self {
        let arguments = arguments.map();
        let call = |name: String| {
            let call = ToolCall::new(name).with_server(SERVER);
            call.with_arguments(arguments.clone())
        };
        let calls = match names {
            Names::One if length == Length::Short => vec![call("search".to_owned())],
            Names::One => vec![call(length.name(1))],
            Names::OneEach => vec![call(format!("search{lane}"))],
            Names::Uniform(n) | Names::Zipf(n) => (0..n).map(|i| call(length.name(i))).collect(),
        };
        Self {
            picks: picks(names, lane as u64),
            calls,
            makes_new,
        }
    }

    /// The `n`-th call to send.
    #[inline]
    pub fn call(&self, n: usize) -> ToolCall {
        let call = &self.calls[self.picks[n & (self.picks.len() - 1)] as usize];
        match self.makes_new {
            true => new_like(call),
            false => call.clone(),
        }
    }

    /// So many calls send each of them at least once, or nearly.
    pub fn len(&self) -> usize {
        self.picks.len()
    }
}

/// Not in the loop itself, which is compiled for each service.
#[inline(never)]
fn new_like(call: &ToolCall) -> ToolCall {
    ToolCall::new(call.tool()).with_server(SERVER)
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

/// SplitMix64: the same in each run.
pub struct Random(pub u64);

impl Random {
    /// From 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
