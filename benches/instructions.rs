//! Instructions per call that each layer adds to a bare service, counted by callgrind.
//!
//! ```text
//! cargo bench -p benches --bench instructions              # compare with the committed baseline
//! cargo bench -p benches --bench instructions -- --update  # write a new baseline
//! cargo bench -p benches --bench instructions -- breaker # only what has such a name
//! ```
//!
//! Unlike time, instructions repeat, so a growth of 3 % is news: the run prints what grew and
//! fails. They repeat for one compiler only: with another than the baseline's the figures are
//! printed and nothing is held against them. Callgrind cannot see into the kernel's clock read; add
//! about 40 for each, and about 20 for each instruction that locks. Both are counted beside them,
//! and may not become more. Needs valgrind and binutils.
//!
//! What is counted stands in `candidates`; peers stand beside ours, and may grow.

#![allow(missing_docs)]

mod callgrind;
mod candidates;
mod kit;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsString,
    fs,
    path::Path,
    process::{Command, ExitCode},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};

use callgrind::{Counts, Locked};
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

/// What runs under callgrind: two loops for each candidate, of which the first makes what is made
/// once.
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
    own: Counts,
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
                "\n{group:60} {:>9} {:>9} {:>6} {:>5} {:>9} {:>9}",
                "now", "baseline", "locked", "clock", "service", "future"
            );
        }
        let before = known.get(&line.name).copied();
        let shown = before.map_or("new".to_owned(), |b| format!("{:.0}", b.instructions));
        let Line { name, own, .. } = &line;
        let Counts {
            instructions,
            locked,
            clock,
        } = own;
        let (service, future) = line.sizes;
        println!(
            "{name:60} {instructions:9.0} {shown:>9} {locked:6.1} {clock:5.1} {service:9} {future:9}"
        );
        unseen.retain(|known| known != name);
        match before {
            Some(before) => match grows(before, *own) {
                None => continue,
                Some(news) if line.by == By::Ours => {
                    grown.extend(news.map(|n| format!("{name}: {n}")))
                }
                Some(_) => {}
            },
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
            .map(|(name, counts)| written(name, *counts))
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

/// None if nothing differs by more than may be chance; else what has grown, if anything has.
fn grows(before: Counts, now: Counts) -> Option<Option<String>> {
    let (was, is) = (before.instructions, now.instructions);
    let change = (is - was).abs();
    let differs = change > LIMIT_INSTRUCTIONS && change > was.abs() * LIMIT_PERCENT / 100.0;
    // Whole ones, but where only some calls have them.
    let more = |before: f64, now: f64| now - before > 0.5;
    let other = |before: f64, now: f64| (now - before).abs() > 0.5;
    if differs && is > was {
        let percent = (is / was - 1.0) * 100.0;
        return Some(Some(format!("{was:.0} -> {is:.0} (+{percent:.1} %)")));
    }
    if more(before.locked, now.locked) || more(before.clock, now.clock) {
        return Some(Some(format!(
            "locked {:.1} -> {:.1}, clock {:.1} -> {:.1}",
            before.locked, now.locked, before.clock, now.clock
        )));
    }
    let fewer = other(before.locked, now.locked) || other(before.clock, now.clock);
    (differs || fewer).then_some(None)
}

fn compiler() -> Result<String, BoxError> {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(rustc).arg("--version").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn written(name: &str, counts: Counts) -> String {
    let Counts {
        instructions,
        locked,
        clock,
    } = counts;
    format!("{instructions:8.1} {locked:5.1} {clock:4.1}  {name}\n")
}

fn read(text: &str) -> BTreeMap<String, Counts> {
    let line = |line: &str| {
        let (counts, name) = line.split_at(line.find(char::is_alphabetic)?);
        let mut counts = counts.split_whitespace().map(|n| n.parse().ok());
        let counts = Counts {
            instructions: counts.next()??,
            locked: counts.next()??,
            clock: counts.next()??,
        };
        Some((name.to_owned(), counts))
    };
    text.lines().filter_map(line).collect()
}

fn count(filter: &Filter) -> Result<Vec<Line>, BoxError> {
    let groups = candidates::groups();
    let few = |setting: &&Setting| setting.names.count() <= MAX_NAMES;
    let counted = groups
        .iter()
        .filter(|group| !group.is_about_threads() && filter.takes(group.names()));
    let counted: Vec<(&Group, &Setting)> = counted
        .flat_map(|group| group.settings.iter().filter(few).map(move |it| (group, it)))
        .collect();
    let names: Vec<_> = counted
        .iter()
        .map(|(group, setting)| (group.name, setting.name))
        .collect();
    let mut lines = Vec::new();
    for ((group, setting), loops) in counted.into_iter().zip(all_under_callgrind(&names)?) {
        lines.extend(lines_of(group, setting, &loops)?);
    }
    let names: BTreeSet<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names.len(), lines.len(), "each has a name of its own");
    Ok(lines)
}

/// In as many processes at once as there are processors: they do not change each other's counts.
fn all_under_callgrind(names: &[(&str, &str)]) -> Result<Vec<Vec<Counts>>, BoxError> {
    let locked = Locked::of(&env::current_exe()?)?;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut counted = Vec::new();
        while let at = next.fetch_add(1, Relaxed)
            && let Some(&(group, setting)) = names.get(at)
        {
            let loops = under_callgrind(group, setting, &locked);
            counted.push((at, loops.map_err(|error| error.to_string())?));
        }
        Ok(counted)
    };
    let processes = thread::available_parallelism()?.get();
    let counted: Result<Vec<_>, String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..processes).map(|_| scope.spawn(work)).collect();
        let all = workers
            .into_iter()
            .map(|worker| worker.join().expect("no panic"));
        all.collect()
    });
    let all: BTreeMap<usize, Vec<Counts>> = counted?.into_iter().flatten().collect();
    Ok(all.into_values().collect())
}

fn lines_of(group: &Group, setting: &Setting, loops: &[Counts]) -> Result<Vec<Line>, BoxError> {
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
            own: (count(c.name) - count(c.above)).per(CALLS),
            sizes: c.member(setting).subject.sizes(),
        });
    Ok(lines.collect())
}

/// The counts of each loop that `run` runs. In a process of its own: how much it takes to copy
/// memory depends on where that is, and so on what others have left on the heap.
fn under_callgrind(group: &str, setting: &str, locked: &Locked) -> Result<Vec<Counts>, BoxError> {
    let program = env::current_exe()?;
    let file = program.with_extension(format!("{group}.{setting}.callgrind"));
    let mut option = OsString::from("--callgrind-out-file=");
    option.push(&file);
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg("--collect-atstart=no")
        .arg("--combine-dumps=yes")
        .arg("--dump-instr=yes")
        // Two names for one function: callgrind knows one option for each.
        .arg("--toggle-collect=*counted_loop*")
        .arg("--dump-after=instructions::kit::drive::counted_loop*")
        .arg(option)
        .arg(&program)
        .args(["--group", group, "--setting", setting])
        .output()
        .map_err(|e| {
            format!("cannot run valgrind ({e}): install it, it counts the instructions")
        })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("callgrind failed:\n{text}").into());
    }
    let loops = callgrind::read(&file, &program, locked)?;
    fs::remove_file(file)?;
    Ok(loops)
}
