//! What callgrind writes of a loop: its instructions, those of them that lock the bus, and reads of
//! the clock.

use std::{
    collections::{HashMap, HashSet},
    fs,
    ops::Sub,
    path::Path,
    process::Command,
};

use tower_toolcall::BoxError;

/// In how many calls they are is for the reader of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) instructions: f64,
    /// Atomic read-modify-writes, and stores with the order of all: on x86-64 a `lock` prefix or an
    /// `xchg` with memory. On others none is known.
    pub(crate) locked: f64,
    /// Reads of the clock, which callgrind counts none of the kernel's instructions for.
    pub(crate) clock: f64,
}

impl Counts {
    /// By so many calls.
    pub(crate) fn per(self, calls: usize) -> Self {
        let calls = calls as f64;
        Self {
            instructions: self.instructions / calls,
            locked: self.locked / calls,
            clock: self.clock / calls,
        }
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            instructions: self.instructions - other.instructions,
            locked: self.locked - other.locked,
            clock: self.clock - other.clock,
        }
    }
}

/// The addresses of a program's locked instructions.
pub(crate) struct Locked(HashSet<u64>);

impl Locked {
    pub(crate) fn of(program: &Path) -> Result<Self, BoxError> {
        let output = Command::new("objdump")
            .args(["-d", "--no-show-raw-insn"])
            .arg(program)
            .output()
            .map_err(|e| format!("cannot run objdump ({e}): install binutils"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let locked = text.lines().filter_map(|line| {
            let (address, code) = line.split_once(":\t")?;
            let locks = code.starts_with("lock ") || code.starts_with("xchg") && code.contains('(');
            locks.then(|| u64::from_str_radix(address.trim(), 16).ok())?
        });
        Ok(Self(locked.collect()))
    }
}

/// The parts of a file that has addresses and combined dumps, without those in which nothing was
/// counted.
pub(crate) fn read(file: &Path, program: &Path, locked: &Locked) -> Result<Vec<Counts>, BoxError> {
    let text = fs::read_to_string(file)?;
    let mut reader = Reader::default();
    let program = program.to_string_lossy();
    for line in text.lines() {
        reader.line(line, &program, locked);
    }
    reader.parts.retain(|part| part.instructions > 0.0);
    Ok(reader.parts)
}

#[derive(Default)]
struct Reader<'a> {
    parts: Vec<Counts>,
    /// Names are written once, and are numbers then.
    objects: HashMap<&'a str, &'a str>,
    functions: HashMap<&'a str, &'a str>,
    in_program: bool,
    called: &'a str,
    address: u64,
    /// The next line has the costs of what was called, which are counted there.
    is_inclusive: bool,
}

impl<'a> Reader<'a> {
    fn line(&mut self, line: &'a str, program: &str, locked: &Locked) {
        if line.starts_with("part: ") {
            self.parts.push(Counts::default());
        }
        let Some(part) = self.parts.last_mut() else {
            return;
        };
        if let Some(sum) = line.strip_prefix("summary: ") {
            part.instructions = sum.trim().parse().unwrap_or(0.0);
        } else if let Some(object) = line.strip_prefix("ob=") {
            self.in_program = name(&mut self.objects, object) == program;
        } else if let Some(object) = line.strip_prefix("cob=") {
            name(&mut self.objects, object);
        } else if let Some(function) = line.strip_prefix("fn=") {
            name(&mut self.functions, function);
        } else if let Some(function) = line.strip_prefix("cfn=") {
            self.called = name(&mut self.functions, function);
        } else if let Some(calls) = line.strip_prefix("calls=") {
            if self.called.starts_with("clock_gettime") {
                part.clock += first(calls);
            }
            self.is_inclusive = true;
        } else if let Some((at, rest)) = line.split_once(' ')
            && let Some(address) = position(at, self.address)
        {
            self.address = address;
            let costs = !std::mem::take(&mut self.is_inclusive);
            if costs && self.in_program && locked.0.contains(&address) {
                part.locked += rest
                    .split_once(' ')
                    .map_or(0.0, |(_line, cost)| first(cost));
            }
        }
    }
}

/// `(2) name` the first time, `(2)` then.
fn name<'a>(known: &mut HashMap<&'a str, &'a str>, text: &'a str) -> &'a str {
    match text.split_once(' ') {
        Some((number, name)) => {
            known.insert(number, name);
            name
        }
        None => known.get(text).copied().unwrap_or(text),
    }
}

fn first(numbers: &str) -> f64 {
    let number = numbers.split(' ').next().and_then(|n| n.parse().ok());
    number.unwrap_or(0.0)
}

/// An address, or where it is from the one before.
fn position(text: &str, before: u64) -> Option<u64> {
    if text == "*" {
        Some(before)
    } else if let Some(address) = text.strip_prefix("0x") {
        u64::from_str_radix(address, 16).ok()
    } else if let Some(further) = text.strip_prefix('+') {
        Some(before + further.parse::<u64>().ok()?)
    } else {
        Some(before - text.strip_prefix('-')?.parse::<u64>().ok()?)
    }
}
