//! Allocations of a call through each candidate, and their bytes: the columns that
//! `benches/overhead.rs` cannot fill itself, because the allocator that counts takes time.
//!
//! ```text
//! cargo bench -p benches --bench allocations                  # a table
//! cargo bench -p benches --bench allocations -- --json FILE   # for programs
//! ```

#![allow(missing_docs)]

mod candidates;
mod kit;

use std::{collections::BTreeMap, env, fs};

use candidates::{By, Candidate, Setting};
use tower_toolcall::BoxError;

const CALLS: usize = 500;

fn main() -> Result<(), BoxError> {
    let args: Vec<String> = env::args().skip(1).collect();
    let filter = kit::Filter::new(&args, &["--json"]);
    candidates::quiet();
    let mut counted = BTreeMap::new();
    for group in candidates::groups() {
        if group.is_about_threads() || !filter.takes(group.names()) {
            continue;
        }
        for setting in &group.settings {
            counted.extend(counts(&group.candidates, setting));
        }
    }
    match kit::value(&args, "--json") {
        Some(file) => fs::write(file, serde_json::to_string(&counted)?)?,
        None => {
            println!(
                "{:56} {:>6} {:>6}",
                "per call above the bare service", "allocs", "B"
            );
            for (name, [allocations, bytes]) in counted {
                println!("{name:56} {allocations:6.1} {bytes:6.0}");
            }
        }
    }
    Ok(())
}

/// Above the bare service, by name.
fn counts(candidates: &[Candidate], setting: &Setting) -> Vec<(String, [f64; 2])> {
    let counts: BTreeMap<&str, [f64; 2]> = candidates
        .iter()
        .map(|candidate| (candidate.name, count(candidate, setting)))
        .collect();
    let own = |candidate: &Candidate| {
        let [allocations, bytes] = counts[candidate.name];
        let bare = counts[candidate.above];
        [allocations - bare[0], bytes - bare[1]]
    };
    candidates
        .iter()
        .filter(|candidate| candidate.by != By::Bare)
        .map(|candidate| (candidate.full_name(setting), own(candidate)))
        .collect()
}

/// Per call, when all names are known.
fn count(candidate: &Candidate, setting: &Setting) -> [f64; 2] {
    let runtime = kit::runtime(setting.lanes);
    let _entered = runtime.enter();
    let mut member = candidate.member(setting);
    let feed = setting.feed(0);
    member.warm(&feed);
    let info = allocation_counter::measure(|| member.run(&feed, feed.len(), CALLS));
    [info.count_total, info.bytes_total].map(|n| n as f64 / CALLS as f64)
}
