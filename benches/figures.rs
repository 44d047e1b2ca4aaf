//! What is told of each candidate under each setting, and on what machine: for the benches and for
//! `report`.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each program that includes this uses a part of it"
)]

use std::{env, fs, process::Command};

use serde_json::{Value, json};

use crate::{
    candidates::{By, Group, Setting},
    kit::{
        self,
        rounds::{Plan, median, paired, spread, times},
    },
};

pub struct Row {
    pub name: &'static str,
    pub full_name: String,
    pub by: By,
    /// Above the bare service; none for that itself.
    pub own: Option<f64>,
    /// How far from that the rounds are: half of them no further.
    pub spread: Option<f64>,
    pub ratio: Option<f64>,
    pub total: f64,
    pub scaling: Option<f64>,
    /// Allocations and bytes, if they are known.
    pub counted: Option<[f64; 2]>,
    pub sizes: (usize, usize),
}

impl Row {
    pub fn json(&self, group: &Group, setting: &Setting) -> Value {
        let mut json = json!({
            "group": group.name,
            "setting": setting.name,
            "name": self.name,
            "by": format!("{:?}", self.by).to_lowercase(),
            "ns": self.own,
            "ns_spread": self.spread,
            "ratio_to_best_peer": self.ratio,
            "total_ns": self.total,
            "threads": setting.lanes,
            "service_bytes": self.sizes.0,
            "future_bytes": self.sizes.1,
        });
        if let Some(scaling) = self.scaling {
            json["scaling"] = scaling.into();
        }
        if let Some([allocations, bytes]) = self.counted {
            json["allocations"] = allocations.into();
            json["bytes"] = bytes.into();
        }
        json
    }
}

/// Measures a group under one of its settings.
pub fn rows(group: &Group, setting: &Setting, plan: Plan) -> Vec<Row> {
    let runtime = kit::runtime(setting.lanes);
    let entered = runtime.enter();
    let candidates = &group.candidates;
    let members: Vec<_> = candidates.iter().map(|c| c.member(setting)).collect();
    let sizes: Vec<_> = members.iter().map(|m| m.subject.sizes()).collect();
    drop(entered);
    let feed = |lane| setting.feed(lane);
    let times = times(members, feed, setting.lanes, runtime.handle(), plan);
    let own: Vec<Option<Vec<f64>>> = (0..candidates.len())
        .map(|i| {
            let bare = candidates
                .iter()
                .position(|c| c.name == candidates[i].above)?;
            let own = paired(&times[i], &times[bare], |a, b| a - b);
            (candidates[i].by != By::Bare).then_some(own)
        })
        .collect();
    let fastest = own
        .iter()
        .zip(candidates)
        .filter(|(_, candidate)| candidate.by == By::Peer)
        .filter_map(|(own, _)| own.as_ref())
        .min_by(|a, b| median(a).total_cmp(&median(b)))
        .filter(|own| median(own) > 1.0);
    let ratio = |own: &Vec<f64>| Some(median(&paired(own, fastest?, |a, b| a / b)));
    candidates
        .iter()
        .enumerate()
        .map(|(i, candidate)| Row {
            name: candidate.name,
            full_name: candidate.full_name(setting),
            by: candidate.by,
            own: own[i].as_deref().map(median),
            spread: own[i].as_deref().map(spread),
            ratio: own[i].as_ref().and_then(ratio),
            total: median(&times[i]),
            scaling: None,
            counted: None,
            sizes: sizes[i],
        })
        .collect()
}

/// On what the figures were taken, when, and beside whom.
pub fn machine() -> String {
    let output = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        let text = output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
        text.unwrap_or_default()
    };
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|name| name.trim_matches([' ', '\t', ':']).to_owned())
        .or_else(|| Some(output("sysctl", &["-n", "machdep.cpu.brand_string"])))
        .filter(|name| !name.is_empty());
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    format!(
        "{}, {} threads, {}; {}; tower-toolcall {}; {}; peers: {}",
        model.unwrap_or_else(|| "unknown processor".to_owned()),
        std::thread::available_parallelism().map_or(0, usize::from),
        env::consts::OS,
        output(&rustc, &["--version"]),
        version("tower-toolcall"),
        output("date", &["+%F"]),
        versions(),
    )
}

/// Of the crates that stand beside ours.
fn versions() -> String {
    const PEERS: [(&str, &str); 8] = [
        ("tower", "tower"),
        ("tower-http", "tower-http"),
        ("parts of tower-resilience", "tower-resilience-retry"),
        ("seatbelt", "seatbelt"),
        ("backon", "backon"),
        ("recloser", "recloser"),
        ("failsafe", "failsafe"),
        ("governor", "governor"),
    ];
    PEERS
        .map(|(name, package)| format!("{name} {}", version(package)))
        .join(", ")
}

/// The newest that is locked: where there is another one, a dependency wants it, and not we.
fn version(package: &str) -> &'static str {
    let lines: Vec<&str> = include_str!("../Cargo.lock").lines().collect();
    let name = format!("name = \"{package}\"");
    let versions = lines.windows(2).filter(|pair| pair[0] == name);
    let mut version = versions.filter_map(|pair| pair[1].strip_prefix("version = "));
    version.next_back().unwrap_or("?").trim_matches('"')
}
