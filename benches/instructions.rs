//! Instructions per call that each layer adds to a bare service, counted by callgrind.
//!
//! ```text
//! cargo bench --all-features --bench instructions              # compare with the committed baseline
//! cargo bench --all-features --bench instructions -- --update  # write a new baseline
//! cargo bench --all-features --bench instructions -- breaker   # only groups or candidates with such a name
//! ```
//!
//! Unlike time, instructions repeat, so a growth of 3 % is news: the run prints what grew and fails. They
//! repeat for one compiler only: with another than the baseline's the figures are printed and nothing
//! is held against them.
//! Callgrind cannot see into the kernel's clock read; add about 40 for each. Needs valgrind.
//!
//! What is counted stands in `candidates`; peers stand beside ours, and may grow.

#![allow(missing_docs)]

mod candidates;
mod kit;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, ExitCode},
};

use candidates::{By, Group, Setting};
use kit::Filter;
use tower_toolcall::BoxError;

/// Growth above both is refused: in percent, and in instructions (a tiny layer may gain one or two
/// from another version of libc).
const LIMIT_PERCENT: f64 = 3.0;
const LIMIT_INSTRUCTIONS: f64 = 4.0;

const CALLS: usize = 1000;

/// More would only take longer under valgrind.
const MAX_NAMES: usize = 1000;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    candidates::quiet();
    if let (Some(group), Some(setting)) =
        (kit::value(&args, "--group"), kit::value(&args, "--setting"))
    {
        run(&group, &setting);
        return ExitCode::SUCCESS;
    }
    let update = args.iter().any(|arg| arg == "--update");
    match compare(&Filter::new(&args, &[]), update) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What runs under callgrind: two loops for each candidate, of which the first makes what is made once.
fn run(group: &str, setting: &str) {
    let runtime = kit::runtime(1);
    let _entered = runtime.enter();
    for group in candidates::groups().iter().filter(|g| g.name == group) {
        for setting in group.settings.iter().filter(|s| s.name == setting) {
            let feed = setting.feed(0);
            for candidate in &group.candidates {
                let mut member = candidate.member(setting);
                member.warm(&feed);
                member.run(&feed, 0, CALLS);
            }
        }
    }
}

struct Line {
    name: String,
    group: &'static str,
    by: By,
    own: f64,
    sizes: (usize, usize),
}

/// Counts everything, prints the table, and tells whether nothing grew.
fn compare(filter: &Filter, update: bool) -> Result<bool, BoxError> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt");
    let text = fs::read_to_string(&file).unwrap_or_default();
    let mut known = read(&text);
    let compiler = compiler()?;
    let mut unseen: Vec<String> = known.keys().cloned().collect();
    let (mut grown, mut new) = (Vec::new(), Vec::new());
    println!("instructions per call above the bare service, and bytes");
    let mut group = "";
    for line in count(filter)? {
        if line.group != group {
            group = line.group;
            println!(
                "\n{group:60} {:>9} {:>9} {:>9} {:>9}",
                "now", "baseline", "service", "future"
            );
        }
        let before = known.get(&line.name).copied();
        let shown = before.map_or("new".to_owned(), |b| format!("{b:.0}"));
        let Line { name, own, .. } = &line;
        let (service, future) = line.sizes;
        println!("{name:60} {own:9.0} {shown:>9} {service:9} {future:9}");
        unseen.retain(|known| known != name);
        match before {
            Some(before) if !differs(before, *own) => continue,
            Some(before) if *own > before && line.by == By::Ours => grown.push(format!(
                "{name}: {before:.0} -> {own:.0} (+{:.1} %)",
                (own / before - 1.0) * 100.0
            )),
            Some(_) => {}
            None => new.push(name.clone()),
        }
        known.insert(name.clone(), *own);
    }
    let whole = filter.takes([]);
    if update {
        if whole {
            known.retain(|name, _| !unseen.contains(name));
        }
        let lines: String = known
            .iter()
            .map(|(n, i)| format!("{i:8.1}  {n}\n"))
            .collect();
        fs::write(&file, format!("# {compiler}\n{lines}"))?;
        println!("baseline written: what changed, is new or is gone");
        return Ok(true);
    }
    if whole && let Some(gone) = unseen.first() {
        return Err(format!("the baseline has '{gone}', which is not measured any more").into());
    }
    if let Some(new) = new.first() {
        return Err(format!("'{new}' has no baseline: run with --update").into());
    }
    for line in &grown {
        eprintln!("grew: {line}");
    }
    if !text.contains(&compiler) {
        println!("the baseline is of another compiler than {compiler}: nothing is held against it");
        return Ok(true);
    }
    Ok(grown.is_empty())
}

/// By more than may be chance.
fn differs(before: f64, now: f64) -> bool {
    let change = (now - before).abs();
    change > LIMIT_INSTRUCTIONS && change > before.abs() * LIMIT_PERCENT / 100.0
}

fn compiler() -> Result<String, BoxError> {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(rustc).arg("--version").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn read(text: &str) -> BTreeMap<String, f64> {
    text.lines()
        .filter_map(|line| {
            let (count, name) = line.trim().split_once("  ")?;
            Some((name.trim().to_owned(), count.parse().ok()?))
        })
        .collect()
}

fn count(filter: &Filter) -> Result<Vec<Line>, BoxError> {
    let mut lines = Vec::new();
    for group in candidates::groups() {
        if group.is_about_threads() || !filter.takes(group.names()) {
            continue;
        }
        let few = |setting: &&Setting| setting.names.count() <= MAX_NAMES;
        for setting in group.settings.iter().filter(few) {
            lines.extend(count_group(&group, setting)?);
        }
    }
    let names: BTreeSet<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names.len(), lines.len(), "each has a name of its own");
    Ok(lines)
}

fn count_group(group: &Group, setting: &Setting) -> Result<Vec<Line>, BoxError> {
    let loops = under_callgrind(group, setting)?;
    let candidates = &group.candidates;
    if loops.len() != 2 * candidates.len() {
        return Err(format!("{} loops in '{}'", loops.len(), group.name).into());
    }
    let count = |name| {
        let at = candidates.iter().position(|c| c.name == name);
        loops[2 * at.expect("a name in the group") + 1]
    };
    let runtime = kit::runtime(1);
    let _entered = runtime.enter();
    let lines = candidates
        .iter()
        .filter(|c| c.by != By::Bare)
        .map(|c| Line {
            name: c.full_name(setting),
            group: group.name,
            by: c.by,
            own: (count(c.name) - count(c.above)) / CALLS as f64,
            sizes: c.member(setting).subject.sizes(),
        });
    Ok(lines.collect())
}

/// The instructions of each loop that `run` runs. In a process of its own: how much it takes to copy memory depends
/// on where that is, and so on what others have left on the heap.
fn under_callgrind(group: &Group, setting: &Setting) -> Result<Vec<f64>, BoxError> {
    let program = env::current_exe()?;
    let file = program.with_extension("callgrind");
    let mut option = OsString::from("--callgrind-out-file=");
    option.push(&file);
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg("--collect-atstart=no")
        .arg("--combine-dumps=yes")
        // Two names for one function: callgrind knows one option for each.
        .arg("--toggle-collect=*counted_loop*")
        .arg("--dump-after=instructions::kit::drive::counted_loop*")
        .arg(option)
        .arg(program)
        .args(["--group", group.name, "--setting", setting.name])
        .output()
        .map_err(|e| {
            format!("cannot run valgrind ({e}): install it, it counts the instructions")
        })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("callgrind failed:\n{text}").into());
    }
    let loops = BufReader::new(fs::File::open(&file)?)
        .lines()
        .filter_map(|line| line.ok()?.strip_prefix("summary: ")?.trim().parse().ok())
        .filter(|instructions| *instructions > 0.0)
        .collect();
    fs::remove_file(file)?;
    Ok(loops)
}
