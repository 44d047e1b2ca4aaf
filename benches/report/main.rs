//! What each layer costs on this machine, next to everyone else's: a table, a chart, and a file for
//! programs.
//!
//! ```text
//! cargo run --release -p benches --bin overhead                  # target/overhead.svg and .json
//! cargo run --release -p benches --bin overhead -- some/figures  # some/figures.svg and .json
//! cargo run --release -p benches --bin overhead -- --quick # less exact, in a third of the time
//! cargo run --release -p benches --bin overhead -- --readme # tables and chart
//! ```
//!
//! About ten seconds, when it is compiled. Candidates, calls and loop are those of the bench of
//! this name, which knows more: allocations, many names, refusals, threads.

#[path = "../candidates/mod.rs"]
mod candidates;
mod chart;
#[path = "../figures.rs"]
mod figures;
#[path = "../kit/mod.rs"]
mod kit;
mod readme;

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tower_toolcall::BoxError;

use candidates::{By, Group, NEW, NEW_AT_ONCE, Setting};
use chart::{Bar, Panel};
use figures::{Row, machine, rows};
use kit::rounds::Plan;

const COMMAND: &str = "cargo run --release -p benches --bin overhead";

/// What is measured, by the names that `benches/candidates` gives it.
const LAYERS: [&str; 6] = [
    "real futures: timeout, 1 KiB",
    "real futures: retry, 1 KiB",
    "real futures: circuit breaker, 1 KiB",
    "real futures: rate limit, 1 KiB",
    "real futures: trace and metrics, 1 KiB",
    "real futures: others, 1 KiB",
];
const STACKS: [&str; 2] = [
    "real futures: stack of three, 1 KiB",
    "real futures: stacks, 1 KiB",
];
const LARGE: [&str; 2] = [
    "real futures: stack of three, 4 KiB",
    "real futures: stacks, 4 KiB",
];

fn main() -> Result<(), BoxError> {
    if cfg!(debug_assertions) {
        return Err(format!("this tells nothing without optimization: {COMMAND}").into());
    }
    let args: Vec<String> = env::args().skip(1).collect();
    let is = |flag: &str| args.iter().any(|arg| arg == flag);
    let place = args.iter().find(|arg| !arg.starts_with("--"));
    let plan = Plan {
        rounds: if is("--quick") { 20 } else { 150 },
        batch: Duration::from_micros(if is("--quick") { 200 } else { 500 }),
    };
    candidates::quiet();
    let caption = machine();
    println!("{caption}\n{LEGEND}");

    let mut all = Figures::default();
    let groups = candidates::groups();
    let panels = [
        ("One layer, a tool's future of 1 KiB", LAYERS.as_slice()),
        (
            "A stack of layers, a tool's future of 1 KiB",
            STACKS.as_slice(),
        ),
        (
            "A stack of layers, a tool's future of 4 KiB",
            LARGE.as_slice(),
        ),
    ]
    .map(|(title, names)| Panel {
        title,
        groups: names
            .iter()
            .map(|name| all.measure(group(&groups, name), plan))
            .collect(),
    });

    if is("--readme") {
        return readme::write(&panels, &caption);
    }
    let place = place.map_or_else(|| here().join("target/overhead"), PathBuf::from);
    let chart = place.with_extension("svg");
    write(&chart, &chart::svg(&panels, &caption))?;
    let figures = json!({ "machine": caption, "figures": all.0 });
    let file = place.with_extension("json");
    write(&file, &serde_json::to_string_pretty(&figures)?)?;
    println!("\n{}\n{}", chart.display(), file.display());
    Ok(())
}

/// The top of the repository.
fn here() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .parent()
        .expect("the package is within the repository")
}

fn write(file: &Path, text: &str) -> Result<(), BoxError> {
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()).into())
}

fn group<'a>(groups: &'a [Group], name: &str) -> &'a Group {
    let group = groups.iter().find(|group| group.name == name);
    group.expect("a name that benches/candidates knows")
}

const LEGEND: &str = "\
ns         above the bare service, the median of all rounds
x peer     by the ns of the fastest peer, the median of the rounds' ratios
svc, fut   bytes of the service and of its future, without what they hold on the heap
waits once the tool is pending once, as all real ones are; else it answers at once
new calls  each call is made when it is sent: a clone knows already what a layer has found out
KiB        of the tool's future, which a layer that moves it copies";

/// As JSON.
#[derive(Default)]
struct Figures(Vec<Value>);

impl Figures {
    /// Measures a group at once and waiting, prints it, and returns what the chart shows.
    fn measure(&mut self, group: &Group, plan: Plan) -> Vec<Bar> {
        let mut bars = Vec::new();
        let settings = group.settings.iter();
        for setting in
            settings.filter(|setting| [NEW_AT_ONCE.name, NEW.name].contains(&setting.name))
        {
            let rows = rows(group, setting, plan);
            title(group, setting);
            for row in &rows {
                println!("{}", text(row));
            }
            self.0
                .extend(rows.iter().map(|row| row.json(group, setting)));
            if setting.name == NEW.name {
                bars = shown(&rows);
            }
        }
        bars
    }
}

fn title(group: &Group, setting: &Setting) {
    let comma = if setting.name.is_empty() { "" } else { ": " };
    println!(
        "\n{:56} {:>8} {:>7} {:>6} {:>6}",
        format!("{}{comma}{}", group.name, setting.name),
        "ns",
        "x peer",
        "svc",
        "fut"
    );
}

fn text(row: &Row) -> String {
    let shown = |value: Option<f64>, digits| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "-".to_owned(),
    };
    let peer = if row.by == By::Peer { "  " } else { "" };
    format!(
        "{:56} {:>8} {:>7} {:>6} {:>6}",
        format!("{peer}{}", row.name),
        shown(row.own, 1),
        shown(row.ratio, 2),
        row.sizes.0,
        row.sizes.1,
    )
}

/// Ours, then the peers, the fastest first. The size is in the title.
fn shown(rows: &[Row]) -> Vec<Bar> {
    let bars = |by| {
        rows.iter()
            .filter(move |row| row.by == by)
            .map(move |row| Bar {
                name: row
                    .name
                    .rsplit_once(", ")
                    .map_or(row.name, |(name, _size)| name),
                is_ours: by == By::Ours,
                ns: row.own.unwrap_or(0.0),
            })
    };
    let ours = bars(By::Ours);
    let mut peers: Vec<Bar> = bars(By::Peer).collect();
    peers.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    ours.chain(peers).collect()
}
