//! One process of the fleet: a stack by settings from the environment, and its mirror.

use std::{env, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, stdin},
    net::TcpStream,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_toolcall::{AnyError, BoxError, ErrorKind, ToolCall, ToolError, settings::Settings};
use tower_toolcall_redis::SharedState;

pub(crate) async fn run(tool: &str) -> Result<(), BoxError> {
    let settings = Settings::from_env()?;
    let stack = settings.stack().build()?;
    // The whole of it: nothing else is spawned, and no call waits for it.
    if let Some(shared) = SharedState::from_settings(&settings, &stack)? {
        let handle = shared.handle();
        tokio::spawn(shared.run());
        let all = env::var("FLEET_PROCESSES")?.parse::<usize>()?;
        while handle.snapshot().processes < all {
            sleep(Duration::from_millis(10)).await;
        }
    }

    let address = tool.to_owned();
    let tools = stack.layer(service_fn(move |call: ToolCall| {
        let address = address.clone();
        async move {
            if call.is_named("dead") {
                TcpStream::connect(&*address).await?.read_u8().await?;
            }
            Ok::<_, AnyError>(())
        }
    }));

    let mut orders = BufReader::new(stdin()).lines();
    println!("ready");
    orders.next_line().await?;
    println!("{}", calls(tools, orders.next_line()).await);
    Ok(())
}

/// Calls the dead tool and a good one until it is told to end.
async fn calls<S>(tools: S, end: impl Future) -> String
where
    S: Service<ToolCall, Error = ToolError> + Clone,
{
    let (mut refused, mut failed, mut times) = (0, 0, Vec::new());
    let mut ticks = interval(Duration::from_millis(20));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut end = std::pin::pin!(end);
    loop {
        tokio::select! {
            _ = &mut end => break,
            _ = ticks.tick() => {}
        }
        match tools.clone().oneshot(ToolCall::new("dead")).await {
            Err(error) if error.kind() == ErrorKind::CircuitOpen => refused += 1,
            _ => failed += 1,
        }
        let begun = Instant::now();
        let _ = tools.clone().oneshot(ToolCall::new("good")).await;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied();
    let (p50, p99) = (at(0.5).unwrap_or_default(), at(0.99).unwrap_or_default());
    format!(
        "process: {failed} calls failed, {refused} were refused; calls of a good tool took p50 {p50:?}, p99 {p99:?}"
    )
}
