//! Runs a target for some time.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    time::Duration,
};

use tokio::time::Instant;

use crate::mutate::{Random, mutated};

/// In an unoptimised build. What takes longer is no input for a server.
const TOO_LONG: Duration = Duration::from_secs(5);

pub(crate) struct Target {
    name: &'static str,
    corpus: Vec<Vec<u8>>,
    /// How many of them are run as they are.
    files: u64,
    tokens: &'static [&'static str],
    run: fn(&[u8]),
}

impl Target {
    pub(crate) fn new(name: &'static str, tokens: &'static [&'static str], run: fn(&[u8])) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
        let mut files: Vec<_> = fs::read_dir(folder.join(name))
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        // The same inputs on every machine.
        files.sort();
        let corpus: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
        Self {
            name,
            files: corpus.len() as u64,
            corpus,
            tokens,
            run,
        }
    }

    /// Adds what is only mutated.
    pub(crate) fn seed(&mut self, input: String) {
        self.corpus.push(input.into_bytes());
    }

    pub(crate) fn fuzz(&self) {
        let seed = number("FUZZ_SEED").unwrap_or(1);
        if let Some(input) = number("FUZZ_INPUT") {
            return self.one(seed, input);
        }
        let time = Duration::from_secs(number("FUZZ_SECS").unwrap_or(1));
        let begun = Instant::now();
        let mut inputs = 0;
        while begun.elapsed() < time || inputs < self.files {
            self.one(seed, inputs);
            inputs += 1;
        }
        let rate = inputs as f64 / begun.elapsed().as_secs_f64();
        println!(
            "{}: FUZZ_SEED={seed}, {inputs} inputs, {rate:.0} per second",
            self.name
        );
    }

    /// Runs an input: first those of the corpus, then mutated ones.
    fn one(&self, seed: u64, number: u64) {
        let input = match number < self.files {
            true => self.corpus[number as usize].clone(),
            false => mutated(&self.corpus, self.tokens, &mut Random::new(seed, number)),
        };
        let begun = on_processor();
        let ended = catch_unwind(AssertUnwindSafe(|| (self.run)(&input)));
        let took = on_processor().saturating_sub(begun);
        if ended.is_err() || took > TOO_LONG {
            let shown = input.escape_ascii();
            println!(
                "{}: FUZZ_SEED={seed} FUZZ_INPUT={number} after {took:?}: b\"{shown}\"",
                self.name
            );
        }
        match ended {
            Err(panic) => resume_unwind(panic),
            Ok(()) => assert!(took <= TOO_LONG, "it took {took:?}"),
        }
    }
}

/// How long this thread has run, which a busy machine does not lengthen; zero where the system does
/// not count it.
fn on_processor() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|n| n.parse().unwrap())
}
