//! Calls that arrive when they arrive: latency under load.
//!
//! ```text
//! cargo bench -p benches --bench load              # about a minute
//! cargo bench -p benches --bench load -- --quick   # less exact: a quarter of that
//! cargo bench -p benches --bench load -- pipe      # only tables with that in their names
//! ```
//!
//! Arrivals keep to a constant rate and wait for no answer, and a latency begins when its call was
//! due: what holds up the generator, or a queue, is in it. Each call is a new one in a task of its
//! own, as a server would have it. The generator has a thread for itself, awake all the time, and
//! the calls have the other processors.
//!
//! At low rates most of a latency is that a processor has to be woken, and on a machine with other
//! work has to be free.
//!
//! All subjects of a table take turns, in slices. Every call must end with the tool's answer, and
//! the tool must have run once for each: otherwise the bench fails. Nothing leaves the machine.

#![allow(missing_docs)]

mod arrivals;
#[path = "../candidates/mod.rs"]
mod candidates;
#[path = "../figures.rs"]
mod figures;
#[path = "../kit/mod.rs"]
mod kit;
mod leaf;
mod subject;
mod table;

use std::{env, time::Duration};

use tokio::runtime::{Builder, Runtime};
use tower_toolcall::BoxError;

use arrivals::{Slice, Taken};
use candidates::stacks;
use kit::{
    Filter,
    tool::{Does, Tool},
};
use leaf::Way;
use subject::{Subject, subject};

fn main() -> Result<(), BoxError> {
    let args: Vec<String> = env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let filter = Filter::new(&args, &[]);
    println!("{}", figures::machine());

    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = threads.saturating_sub(1).max(1);
    let calls = format!("{workers} of {threads} threads for the calls, one for their generator");
    println!("{calls}\n{}", table::LEGEND);
    for target in [Target::Tool, Target::Stream, Target::Http] {
        if filter.takes([target.name()]) {
            target.measure(workers, quick)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Target {
    Tool,
    Stream,
    Http,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Tool => "a tool in this process",
            Self::Stream => "an MCP server over a pipe",
            Self::Http => "an MCP server over HTTP, on loopback",
        }
    }

    /// Calls per second.
    fn rates(self) -> &'static [u32] {
        match self {
            Self::Tool | Self::Stream => &[1_000, 10_000, 100_000],
            Self::Http => &[1_000, 10_000],
        }
    }

    /// On a runtime of its own: when that is dropped, all is closed.
    fn measure(self, workers: usize, quick: bool) -> Result<(), BoxError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .build()?;
        let way = match self {
            Self::Tool => {
                self.run(&runtime, &in_process(), quick);
                return Ok(());
            }
            Self::Stream => Way::Stream,
            Self::Http => Way::Http,
        };
        let server = runtime.block_on(leaf::serve(way))?;
        let leaf = server.leaf();
        let subjects = [
            subject("bare", leaf.clone()),
            subject("documented stack", stacks::documented_on(leaf)),
        ];
        self.run(&runtime, &subjects, quick);
        runtime.block_on(server.close())
    }

    /// All subjects at all rates that they can keep up with.
    fn run(self, runtime: &Runtime, subjects: &[Subject], quick: bool) {
        let probe = Duration::from_millis(if quick { 200 } else { 500 });
        let at_most: Vec<f64> = subjects
            .iter()
            .map(|subject| subject.at_most(runtime, probe))
            .collect();
        let (slices, time) = match quick {
            true => (1, Duration::from_millis(500)),
            false => (3, Duration::from_secs(1)),
        };
        table::title(self.name());
        for &rate in self.rates() {
            let slice = Slice { rate, time };
            let mut taken: Vec<Taken> = subjects.iter().map(|_| Taken::default()).collect();
            for round in 0..slices {
                for i in kit::rounds::shuffled(subjects.len(), round) {
                    // Beyond that, a latency only tells for how long the queue has been growing.
                    if f64::from(rate) <= 0.8 * at_most[i] {
                        taken[i].add(&subjects[i].arrive(runtime, slice));
                    }
                }
            }
            for (i, subject) in subjects.iter().enumerate() {
                table::row(subject.name, at_most[i], rate, &taken[i]);
            }
        }
    }
}

fn in_process() -> [Subject; 4] {
    let leaf = leaf::counted(Tool::<0>(Does::Wait));
    [
        subject("bare", leaf.clone()),
        subject("documented stack", stacks::documented_on(leaf.clone())),
        subject("  tower's own three", stacks::tower_own_on(leaf.clone())),
        subject("  tower-resilience, five", stacks::resilience_five_on(leaf)),
    ]
}
