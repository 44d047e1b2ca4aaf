//! What each layer adds to a call, next to everyone else's: nanoseconds, allocations, bytes.
//!
//! ```text
//! cargo bench -p benches --bench overhead                      # all of it: a minute or two
//! cargo bench -p benches --bench overhead -- --quick           # less exact: a third of that
//! cargo bench -p benches --bench overhead -- breaker retry # groups, or candidates
//! cargo bench -p benches --bench overhead -- tasks # tasks on several workers
//! cargo bench -p benches --bench overhead -- --json FILE       # the same for programs
//! ```
//!
//! Times are medians over rounds; in each round all candidates of a group take their turn, so what
//! slows the machine slows them all, and a ratio is the median of the rounds' ratios. Allocations
//! are counted by `benches/allocations.rs`, a program of its own, because counting takes time; this
//! one builds and runs it.

#![allow(missing_docs)]

mod candidates;
mod figures;
mod kit;

use std::{
    collections::BTreeMap,
    env, fs,
    process::{Command, ExitCode},
    time::Duration,
};

use serde_json::{Value, json};
use tower_toolcall::BoxError;

use candidates::{By, Group, Setting, tasks::Shared};
use figures::{Row, machine, rows};
use kit::{Filter, rounds::Plan, tasks::Times};

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
        BTreeMap::new()
    });
    candidates::quiet();
    let machine = machine();
    println!("{machine}\n{LEGEND}");
    let mut figures = Vec::new();
    // Before the groups, of which the last one slows down all clocks.
    let shared: Vec<_> = candidates::tasks::all()
        .into_iter()
        .filter(|shared| filter.takes([TASKS, shared.name]))
        .collect();
    if !shared.is_empty() {
        figures.extend(tasks(&shared, quick));
    }
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
                row.counted = counts.get(&row.full_name).copied();
                println!("{}", text(&row));
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
ns, +-     above the bare service, the median of all rounds; half of them were no further from it
x peer     by the ns of the fastest peer, the median of the rounds' ratios
total      ns with the loop and the bare service; on several threads: wall time by the calls of all
x 1        total by that on one thread: 0.5 is perfect for two
allocs, B  allocations per call, and their bytes
svc, fut   bytes of the service and of its future, without what they hold on the heap
tasks      wall time by the calls of all, awaited; one tool for all tasks, if not one for each";

fn title(group: &Group, setting: &Setting) {
    let comma = if setting.name.is_empty() { "" } else { ": " };
    let title = format!("{}{comma}{}", group.name, setting.name);
    println!(
        "\n{title:56} {:>8} {:>6} {:>7} {:>8} {:>5} {:>6} {:>6} {:>5} {:>5}",
        "ns", "+-", "x peer", "total", "x 1", "allocs", "B", "svc", "fut"
    );
}

fn text(row: &Row) -> String {
    let shown = |value: Option<f64>, digits| match value {
        Some(value) => format!("{value:.digits$}"),
        None => String::new(),
    };
    let peer = if row.by == By::Peer { "  " } else { "" };
    let counted = |i: usize| match row.counted.map(|counted| counted[i]) {
        Some(n) if n.fract() == 0.0 => format!("{n}"),
        n => shown(n, 1),
    };
    format!(
        "{:56} {:>8} {:>6} {:>7} {:>8.1} {:>5} {:>6} {:>6} {:>5} {:>5}",
        format!("{peer}{}", row.name),
        shown(row.own, 1),
        shown(row.spread, 1),
        shown(row.ratio, 2),
        row.total,
        shown(row.scaling, 2),
        counted(0),
        counted(1),
        row.sizes.0,
        row.sizes.1,
    )
}

const TASKS: &str = "8 tasks on 2 workers";

/// Measures and prints what several tasks do to each other.
fn tasks(shared: &[Shared], quick: bool) -> Vec<Value> {
    let runtime = kit::tasks::runtime();
    let entered = runtime.enter();
    let members: Vec<_> = shared.iter().map(Shared::member).collect();
    drop(entered);
    let rounds = if quick { 30 } else { 150 };
    let times = kit::tasks::times(&runtime, &members, rounds, Duration::from_millis(1));
    println!(
        "\n{TASKS:56} {:>8} {:>7} {:>8}",
        "1 task", "8 tasks", "by 1"
    );
    let line = |(shared, times): (&Shared, Times)| {
        let peer = if shared.by == By::Peer { "  " } else { "" };
        let name = format!("{peer}{}", shared.name);
        let Times { one, all, scaling } = times;
        println!("{name:56} {one:>8.1} {all:>7.1} {scaling:>8.2}");
        json!({
            "group": TASKS,
            "name": shared.name,
            "by": format!("{:?}", shared.by).to_lowercase(),
            "one_task_ns": one,
            "all_tasks_ns": all,
            "scaling": scaling,
        })
    };
    shared.iter().zip(times).map(line).collect()
}

/// What `benches/allocations.rs` counts, by name.
fn allocations(filter: &Filter) -> Result<BTreeMap<String, [f64; 2]>, BoxError> {
    let program = env::current_exe()?;
    // target, release, deps
    let target = program.ancestors().nth(3).ok_or("no target directory")?;
    let file = target.join("allocations.json");
    eprintln!("counting allocations ...");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["bench", "--quiet", "--bench", "allocations"])
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
