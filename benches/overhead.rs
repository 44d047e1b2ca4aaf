//! What each layer adds to a call, next to everyone else's: nanoseconds, allocations, bytes.
//!
//! ```text
//! cargo bench --all-features --bench overhead                      # all of it: a minute or two
//! cargo bench --all-features --bench overhead -- --quick           # less exact: a third of that
//! cargo bench --all-features --bench overhead -- breaker retry     # groups with that in their names, or a candidate's
//! cargo bench --all-features --bench overhead -- --json FILE       # the same for programs
//! ```
//!
//! Times are medians over rounds; in each round all candidates of a group take their turn, so what slows the
//! machine slows them all, and a ratio is the median of the rounds' ratios. Allocations are counted by
//! `benches/allocations.rs`, a program of its own, because counting takes time; this one builds and runs it.

#![allow(missing_docs)]

mod candidates;
mod kit;

use std::{
    collections::BTreeMap,
    env, fs,
    process::{Command, ExitCode},
    time::Duration,
};

use serde_json::{Value, json};
use tower_toolcall::BoxError;

use candidates::{By, Group, Setting};
use kit::{
    Filter,
    rounds::{Plan, median, paired, times},
};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match measure(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &[String]) -> Result<(), BoxError> {
    let quick = args.iter().any(|arg| arg == "--quick");
    let plan = Plan {
        rounds: if quick { 20 } else { 120 },
        batch: Duration::from_micros(if quick { 200 } else { 500 }),
    };
    let filter = Filter::new(args, &["--json"]);
    let counts = allocations(&filter).unwrap_or_else(|error| {
        eprintln!("no allocations: {error}");
        Value::Null
    });
    candidates::quiet();
    let machine = machine();
    println!("{machine}\n{LEGEND}");
    let mut figures = Vec::new();
    for group in candidates::groups() {
        if !filter.takes(group.names()) {
            continue;
        }
        // What a call takes on one thread, by candidate: what threads are compared with.
        let mut alone = BTreeMap::new();
        for setting in &group.settings {
            let rows = rows(&group, setting, plan);
            title(&group, setting);
            for mut row in rows {
                let alone = *alone.entry(row.name).or_insert(row.total);
                row.scaling = (setting.lanes > 1).then(|| row.total / alone);
                row.counted = counts[&row.full_name].clone();
                println!("{}", row.text());
                figures.push(row.json(&group, setting));
            }
        }
    }
    if figures.is_empty() {
        return Err("nothing has such a name".into());
    }
    if let Some(file) = kit::value(args, "--json") {
        let all = json!({ "machine": machine, "figures": figures });
        fs::write(file, serde_json::to_string_pretty(&all)?)?;
    }
    Ok(())
}

const LEGEND: &str = "\
ns         above the bare service, the median of all rounds
x peer     by the ns of the fastest peer, the median of the rounds' ratios
total      ns with the loop and the bare service; on several threads: wall time by the calls of all
x 1        total by that on one thread: 0.5 is perfect for two
allocs, B  allocations per call, and their bytes
svc, fut   bytes of the service and of its future, without what they hold on the heap";

fn title(group: &Group, setting: &Setting) {
    let comma = if setting.name.is_empty() { "" } else { ": " };
    let title = format!("{}{comma}{}", group.name, setting.name);
    println!(
        "\n{title:56} {:>8} {:>7} {:>8} {:>5} {:>6} {:>6} {:>5} {:>5}",
        "ns", "x peer", "total", "x 1", "allocs", "B", "svc", "fut"
    );
}

struct Row {
    name: &'static str,
    full_name: String,
    by: By,
    /// Above the bare service; none for that itself.
    own: Option<f64>,
    ratio: Option<f64>,
    total: f64,
    scaling: Option<f64>,
    /// Allocations and bytes, if they are known.
    counted: Value,
    sizes: (usize, usize),
}

impl Row {
    fn text(&self) -> String {
        let shown = |value: Option<f64>, digits| match value {
            Some(value) => format!("{value:.digits$}"),
            None => String::new(),
        };
        let peer = if self.by == By::Peer { "  " } else { "" };
        let counted = |i: usize| match self.counted[i].as_f64() {
            Some(n) if n.fract() == 0.0 => format!("{n}"),
            n => shown(n, 1),
        };
        format!(
            "{:56} {:>8} {:>7} {:>8.1} {:>5} {:>6} {:>6} {:>5} {:>5}",
            format!("{peer}{}", self.name),
            shown(self.own, 1),
            shown(self.ratio, 2),
            self.total,
            shown(self.scaling, 2),
            counted(0),
            counted(1),
            self.sizes.0,
            self.sizes.1,
        )
    }

    fn json(&self, group: &Group, setting: &Setting) -> Value {
        json!({
            "group": group.name,
            "setting": setting.name,
            "name": self.name,
            "by": format!("{:?}", self.by).to_lowercase(),
            "ns": self.own,
            "ratio_to_best_peer": self.ratio,
            "total_ns": self.total,
            "threads": setting.lanes,
            "scaling": self.scaling,
            "allocations": self.counted[0],
            "bytes": self.counted[1],
            "service_bytes": self.sizes.0,
            "future_bytes": self.sizes.1,
        })
    }
}

/// Measures a group under one of its settings.
fn rows(group: &Group, setting: &Setting, plan: Plan) -> Vec<Row> {
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
            ratio: own[i].as_ref().and_then(ratio),
            total: median(&times[i]),
            scaling: None,
            counted: Value::Null,
            sizes: sizes[i],
        })
        .collect()
}

/// What `benches/allocations.rs` counts, by name.
fn allocations(filter: &Filter) -> Result<Value, BoxError> {
    let program = env::current_exe()?;
    // target, release, deps
    let target = program.ancestors().nth(3).ok_or("no target directory")?;
    let file = target.join("allocations.json");
    eprintln!("counting allocations ...");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "bench",
            "--quiet",
            "--all-features",
            "--bench",
            "allocations",
        ])
        .arg("--target-dir")
        .arg(target)
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .args(["--", "--json"])
        .arg(&file)
        .args(filter.words())
        .status()?;
    if !status.success() {
        return Err("benches/allocations.rs fails".into());
    }
    Ok(serde_json::from_str(&fs::read_to_string(file)?)?)
}

/// On what the figures were taken, and when.
fn machine() -> String {
    let output = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        let text = output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
        text.unwrap_or_default()
    };
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    format!(
        "{}, {} threads; {}; tower-toolcall {}; {}",
        model
            .unwrap_or("unknown processor")
            .trim_matches([' ', '\t', ':']),
        std::thread::available_parallelism().map_or(0, usize::from),
        output(&rustc, &["--version"]),
        env!("CARGO_PKG_VERSION"),
        output("date", &["+%F"]),
    )
}
