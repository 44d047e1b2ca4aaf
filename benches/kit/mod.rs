//! What all measurements share: the tool under the layers, the calls, the loop that drives a
//! service, and the rounds that take times. Which services are measured stands in `candidates`.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each program that includes this uses a part of it"
)]

pub mod drive;
pub mod feed;
pub mod rounds;
pub mod tasks;
pub mod tool;

use tokio::runtime::{Builder, Runtime};

/// The runtime whose timers the services use. With one lane nothing runs on it but what is
/// measured.
pub fn runtime(lanes: usize) -> Runtime {
    let mut builder = match lanes {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if lanes > 1 {
        builder.worker_threads(lanes);
    }
    builder.enable_time().build().expect("a runtime")
}

/// The value that follows a flag on the command line.
pub fn value(args: &[String], flag: &str) -> Option<String> {
    let at = args.iter().position(|arg| arg == flag)?;
    args.get(at + 1).cloned()
}

/// The words on the command line that are no flags: what is measured has one of them in its name.
pub struct Filter(Vec<String>);

impl Filter {
    /// `flags` are those that a value follows.
    pub fn new(args: &[String], flags: &[&str]) -> Self {
        let mut words = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if flags.contains(&arg.as_str()) {
                args.next();
            } else if !arg.starts_with("--") {
                words.push(arg.clone());
            }
        }
        Self(words)
    }

    pub fn words(&self) -> &[String] {
        &self.0
    }

    /// Whether anything of that is wanted.
    pub fn takes<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> bool {
        let wanted = |name: &str| self.0.iter().any(|word| name.contains(word.as_str()));
        self.0.is_empty() || names.into_iter().any(wanted)
    }
}
