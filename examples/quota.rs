//! Two agents behind a gateway: one loops, and the other is served as if it were alone.
//!
//! ```text
//! cargo run --example quota
//! ```
//!
//! Both call the tool `search`, whose server works on two calls at a time. `looper` makes 200
//! calls, twenty at a time, and calls again at once when one is refused. `steady` makes one call
//! after the other, as an agent does that reads what it gets. It is measured alone, beside
//! `looper`, and beside it with a quota for each agent and a concurrency limit for each tool.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    AnyError, BoxError, Key, ServiceBuilderExt, ToolCall, ToolResult,
    concurrency_limit::ConcurrencyLimitLayer,
    quota::{Quota, QuotaLayer},
    result::Never,
};

/// How long the server works on a call, and on how many at a time.
const WORK: Duration = Duration::from_millis(40);
const AT_A_TIME: usize = 2;

/// Agents and gateway in one process: a call never fails, its result may be an error.
type Gateway = BoxCloneSyncService<ToolCall, ToolResult<&'static str>, Never>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    println!("                calls  served  waited  refused  p50 answer  p50 wait");
    println!("steady alone");
    let server = Server::default();
    let alone = steady(without_limits(&server)).await;
    alone.show("steady");

    println!("both, without limits");
    let server = Server::default();
    let (beside, looper) = both(without_limits(&server)).await;
    beside.show("steady");
    looper.show("looper");
    server.show();

    println!("both, with a quota for each agent and a concurrency limit for each tool");
    let server = Server::default();
    let (limited, looper) = both(with_limits(&server)?).await;
    limited.show("steady");
    looper.show("looper");
    server.show();

    let text = looper.refusal.as_deref().unwrap_or("");
    println!("\nwhat the model of `looper` reads:\n    {text}");
    let times = [&alone, &beside, &limited].map(|seen| p50(&seen.answers));
    let [alone, beside, with] = times.map(|time| time.as_millis());
    println!(
        "\n`steady` has its answer after {alone} ms alone, after {beside} ms beside `looper`,"
    );
    println!("and after {with} ms beside it with limits: as if it were alone");
    assert!(with < 2 * alone && 3 * alone < beside);
    assert!(limited.refused == 0 && looper.refused >= 100);
    Ok(())
}

fn without_limits(server: &Server) -> Gateway {
    let stack = ServiceBuilder::new()
        .tool_result()
        .tool_timeout(Duration::from_secs(10))
        .tool_catch_panic()
        .tool(server.tool());
    BoxCloneSyncService::new(stack)
}

fn with_limits(server: &Server) -> Result<Gateway, BoxError> {
    // 20 calls per second, ten of them at once. A call that would have to wait for longer than 200
    // ms is refused.
    let quota = QuotaLayer::builder(Quota::per_second(20)?.with_burst(10)?)
        .with_keys(Key::by(|call| call.agent_id().unwrap_or_default()))
        .with_max_wait(Duration::from_millis(200))
        .build()?;
    let stack = ServiceBuilder::new()
        .tool_result()
        .layer(quota)
        .tool_deadline(Duration::from_secs(10))
        .layer(ConcurrencyLimitLayer::new(AT_A_TIME))
        .tool_timeout(Duration::from_secs(1))
        .tool_catch_panic()
        .tool(server.tool());
    Ok(BoxCloneSyncService::new(stack))
}

async fn both(gateway: Gateway) -> (Seen, Seen) {
    tokio::join!(steady(gateway.clone()), looper(gateway))
}

async fn steady(gateway: Gateway) -> Seen {
    let mut seen = Seen::default();
    for _ in 0..8 {
        seen.call(&gateway, "steady").await;
        // The model reads.
        sleep(Duration::from_millis(60)).await;
    }
    seen
}

async fn looper(gateway: Gateway) -> Seen {
    let mut loops = JoinSet::new();
    for _ in 0..20 {
        let gateway = gateway.clone();
        loops.spawn(async move {
            let mut seen = Seen::default();
            for _ in 0..10 {
                seen.call(&gateway, "looper").await;
            }
            seen
        });
    }
    let mut all = Seen::default();
    while let Some(seen) = loops.join_next().await {
        let mut seen = seen.expect("an agent does not panic");
        all.answers.append(&mut seen.answers);
        all.waits.append(&mut seen.waits);
        all.refused += seen.refused;
        all.refusal = all.refusal.or(seen.refusal);
    }
    all
}

/// What an agent has seen of its calls.
#[derive(Default)]
struct Seen {
    /// How long each answer took, and how much of that the call waited at a limit.
    answers: Vec<Duration>,
    waits: Vec<Duration>,
    refused: usize,
    /// What the model reads of a refused call.
    refusal: Option<String>,
}

impl Seen {
    async fn call(&mut self, gateway: &Gateway, agent: &'static str) {
        let call = ToolCall::new("search").with_agent_id(agent);
        let start = Instant::now();
        let Ok(result) = gateway.clone().oneshot(call).await;
        if result.is_success() {
            self.answers.push(start.elapsed());
            self.waits.push(result.metadata().waited());
        } else {
            self.refused += 1;
            self.refusal.get_or_insert_with(|| result.model_message());
        }
    }

    fn served(&self) -> usize {
        self.answers.len()
    }

    fn show(&self, agent: &str) {
        let (served, refused) = (self.served(), self.refused);
        let calls = served + refused;
        let waited = self.waits.iter().filter(|wait| !wait.is_zero()).count();
        let (answer, wait) = (p50(&self.answers), p50(&self.waits));
        println!(
            "    {agent:<10} {calls:>6}  {served:>6}  {waited:>6}  {refused:>7}  {:>7} ms  {:>5} ms",
            answer.as_millis(),
            wait.as_millis()
        );
    }
}

fn p50(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The server of the tool. Calls that it does not work on yet wait there.
#[derive(Clone)]
struct Server {
    places: Arc<Semaphore>,
    calls: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_A_TIME)),
            calls: Arc::default(),
            most: Arc::default(),
        }
    }
}

impl Server {
    fn tool(
        &self,
    ) -> impl Service<ToolCall, Response = &'static str, Error = AnyError, Future: Send>
    + Clone
    + Send
    + Sync
    + use<> {
        let server = self.clone();
        service_fn(move |_: ToolCall| {
            let server = server.clone();
            async move {
                let calls = server.calls.fetch_add(1, Relaxed) + 1;
                server.most.fetch_max(calls, Relaxed);
                let place = server.places.acquire().await;
                sleep(WORK).await;
                drop(place);
                server.calls.fetch_sub(1, Relaxed);
                Ok("found")
            }
        })
    }

    fn show(&self) {
        let most = self.most.load(Relaxed);
        println!("    at most {most} calls at the server at a time, which works on {AT_A_TIME}");
    }
}
