//! A tool that does what its name says, and counts.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::time::sleep;
use tower::{Service, service_fn};
use tower_toolcall::{BoxError, ToolCall, result::ToolResult};

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// What became of the calls of a tool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) begun: Arc<AtomicUsize>,
    pub(crate) running: Arc<AtomicUsize>,
    pub(crate) most: Arc<AtomicUsize>,
}

impl Counts {
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(SeqCst)
    }
    pub(crate) fn running(&self) -> usize {
        self.running.load(SeqCst)
    }
    pub(crate) fn most(&self) -> usize {
        self.most.load(SeqCst)
    }
}

struct Running(Counts);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

/// `3s` takes 3 s, `20ms` 20 ms, `now` nothing, `hang` for ever; `fail` fails, `panic` panics,
/// `panic_in_drop` hangs and panics when it is dropped. Answers with the name.
pub(crate) fn tool(
    counts: &Counts,
) -> impl Service<
    ToolCall,
    Response = String,
    Error = BoxError,
    Future: Future<Output = Result<String, BoxError>> + Send,
> + Clone
+ Send
+ Sync
+ use<> {
    let counts = counts.clone();
    service_fn(move |call: ToolCall| {
        let counts = counts.clone();
        async move {
            counts.begun.fetch_add(1, SeqCst);
            let now = counts.running.fetch_add(1, SeqCst) + 1;
            counts.most.fetch_max(now, SeqCst);
            let _running = Running(counts);
            match call.tool() {
                "now" => {}
                "hang" => pending().await,
                "fail" => return Err("404 Not Found".into()),
                "panic" => panic!("boom"),
                "panic_in_drop" => {
                    let _last_words = PanicsInDrop;
                    pending().await
                }
                "panic_in_drop_of_a_panic" => {
                    let _last_words = PanicsInDrop;
                    sleep(ms(1)).await;
                    panic!("boom")
                }
                name => sleep(duration(name)).await,
            }
            Ok(call.tool().to_owned())
        }
    })
}

fn duration(name: &str) -> Duration {
    match name.strip_suffix("ms") {
        Some(n) => ms(n.parse().unwrap()),
        None => secs(name.strip_suffix('s').unwrap().parse().unwrap()),
    }
}

struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("in drop");
        }
    }
}

/// One call of each of these tools.
pub(crate) fn calls<const N: usize>(tools: [&str; N]) -> [ToolCall; N] {
    tools.map(ToolCall::new)
}

pub(crate) fn statuses<T>(results: &[ToolResult<T>]) -> Vec<&'static str> {
    results.iter().map(|r| r.status().name()).collect()
}
