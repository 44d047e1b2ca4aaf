//! Minutes of load on all layers together, with 10,000 tools, faults and kills: what must not grow
//! does not.
//!
//! ```text
//! cargo run --release -p benches --bin soak # 20 minutes at 5,000 calls per second
//! cargo run --release -p benches --bin soak -- --secs 300 --rate 1000 --period 30
//! ```
//!
//! Calls arrive at a constant rate, whether others have ended or not, and a latency begins when its
//! call was due. Of the tools every hundredth is one of an MCP server, which is killed every few
//! seconds. Others answer after up to 20 ms, and some fail, hang, panic or ask to wait. Of the
//! callers one in a hundred drops its call; of the names one in a hundred is invented.
//!
//! After each period there is a line. At the end the first third of the periods is compared with
//! the last third, without the first quarter of all, in which tools and their faults are met for
//! the first time. It is flat if
//!
//! - the median of the resident memory has grown by no more than 5 % and 8 MiB;
//! - no more files are open, but 8, and when the load is over no more tasks are alive than before
//!   it;
//! - the medians of p50 and p99 are no more than half longer, and 1 ms; that of p99.9 no more than
//!   twice as long, and 5 ms;
//! - no call is without an end, and none was dropped because too many were in flight.
//!
//! Otherwise it ends with an error, which says what has grown.

mod load;
mod stack;
mod usage;

use std::{env, time::Duration};

use tokio::{runtime::Handle, time::sleep};
use tower_toolcall::BoxError;

use load::Load;
use stack::Stack;
use usage::{Period, Use};

const COMMAND: &str = "cargo run --release -p benches --bin soak";

/// The longest that a call may take: its deadline, and the wait for its quota.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);

fn main() -> Result<(), BoxError> {
    if cfg!(debug_assertions) {
        return Err(format!("this tells nothing without optimization: {COMMAND}").into());
    }
    let secs = argument("--secs", 1_200)?;
    let rate = argument("--rate", 5_000)?;
    let period = argument("--period", 60)?;
    let periods = secs / period;
    if periods < 4 {
        return Err("four periods at least: the first quarter does not count".into());
    }
    load::silence_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    println!(
        "{secs} s at {rate} calls per second, {} tools",
        stack::TOOLS
    );
    runtime.block_on(soak(rate, Duration::from_secs(period), periods))
}

fn argument(name: &str, default: u64) -> Result<u64, BoxError> {
    let mut arguments = env::args().skip_while(|argument| argument != name);
    match (arguments.next(), arguments.next()) {
        (Some(_), Some(value)) => Ok(value.parse()?),
        (Some(_), None) => Err(format!("{name} needs a number").into()),
        _ => Ok(default),
    }
}

async fn soak(rate: u64, period: Duration, periods: u64) -> Result<(), BoxError> {
    let stack = Stack::new()?;
    let killer = tokio::spawn(stack.server.clone().killed(Duration::from_secs(5)));
    stack.server.connected().await?;
    let before = Handle::current().metrics().num_alive_tasks();
    let load = Load::new(rate);
    let arrivals = tokio::spawn(load.clone().arrive(stack.tools.clone()));
    println!("{}", Period::HEAD);
    let mut lines = Vec::new();
    for n in 1..=periods {
        sleep(period).await;
        let line = Period::new(load.take(), Use::now());
        println!("{n:>4} {line}");
        lines.push(line);
    }
    arrivals.abort();
    // All calls end by themselves.
    sleep(LONGEST + Duration::from_secs(2)).await;
    let left = load.in_flight();
    // One for the load that has ended.
    let after = Handle::current().metrics().num_alive_tasks();
    killer.abort();
    println!(
        "{left} calls left, {after} tasks, {before} before; {}",
        stack.kept()
    );
    let mut faults = usage::compare(&lines[lines.len() / 4..]);
    if left > 0 || stack.metrics.snapshot().total.in_flight > 0 {
        faults.push(format!("{left} calls have no end"));
    }
    if after > before + 2 {
        faults.push(format!("{after} tasks are alive, {before} before"));
    }
    match faults.is_empty() {
        true => {
            println!("flat");
            Ok(())
        }
        false => Err(faults.join("; ").into()),
    }
}
