//! Four processes call a dead tool: how often it is called, with and without a mirror of their
//! circuit breakers over Redis, and what becomes of their calls when Redis is killed.
//!
//! ```text
//! cargo run -p tower-toolcall-redis --features settings --example fleet
//! ```
//!
//! It starts a Redis or Valkey server of its own, if there is one on this machine
//! (`apt-get install redis-server`, or `tests/run --no-run`), and ends it. `FLEET_PROCESSES` is how
//! many processes there are, `FLEET_SECS` how long each part takes.

mod store;
mod worker;

use std::{
    env,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStdin, ChildStdout, Command},
    time::sleep,
};
use tower_toolcall::BoxError;

use store::Server;

fn number(name: &str, default: u64) -> Result<u64, BoxError> {
    match env::var(name) {
        Ok(text) => Ok(text.parse().map_err(|e| format!("{name}: {e}"))?),
        Err(_) => Ok(default),
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    if let Some(tool) = env::args().nth(1) {
        return worker::run(&tool).await;
    }
    let fleet = Fleet {
        processes: number("FLEET_PROCESSES", 4)? as usize,
        time: Duration::from_secs(number("FLEET_SECS", 6)?.max(3)),
        tool: DeadTool::start().await?,
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let Some(mut server) = Server::start(&path).await? else {
        println!(
            "There is no Redis here: `apt-get install redis-server`, or `tests/run --no-run`."
        );
        return Ok(());
    };
    println!(
        "{} processes call a dead tool 50 times a second each; breakers open after 5 failures, for a second.\n",
        fleet.processes
    );

    let alone = fleet.part("each on its own", None, async {}).await?;
    let url = server.url();
    let together = fleet.part("with the mirror", Some(&url), async {}).await?;

    let third = fleet.time / 3;
    let killed = async {
        sleep(third).await;
        server.kill();
        println!("  Redis is killed");
        sleep(third).await;
        if let Err(error) = server.restart().await {
            println!("  Redis does not start: {error}");
        }
        println!("  and back, empty");
    };
    fleet
        .part(
            "with the mirror, and Redis killed half-way",
            Some(&url),
            killed,
        )
        .await?;
    println!("\nreached without the mirror: {alone}, with it: {together}");
    Ok(())
}

struct Fleet {
    processes: usize,
    time: Duration,
    tool: DeadTool,
}

impl Fleet {
    /// Lets all processes call for a while; how often they reached the tool.
    async fn part(
        &self,
        name: &str,
        url: Option<&str>,
        meanwhile: impl Future<Output = ()>,
    ) -> Result<usize, BoxError> {
        println!("{name}:");
        let mut workers = Vec::new();
        for _ in 0..self.processes {
            workers.push(Worker::start(&self.tool.address, self.processes, url)?);
        }
        for worker in &mut workers {
            worker.line().await?;
        }
        let before = self.tool.reached();
        for worker in &mut workers {
            worker.orders.write_all(b"begin\n").await?;
        }
        let ends = async {
            sleep(self.time).await;
            for worker in &mut workers {
                worker.orders.write_all(b"end\n").await?;
            }
            let mut said = Vec::new();
            for worker in &mut workers {
                said.push(worker.line().await?);
            }
            Ok::<_, BoxError>(said)
        };
        let (said, ()) = tokio::join!(ends, meanwhile);
        let said = said?;
        for worker in &mut workers {
            worker.process.wait().await?;
        }
        let reached = self.tool.reached() - before;
        let periods = self.time.as_secs();
        println!("  the tool was reached {reached} times in {periods} open periods");
        for line in said {
            println!("  {line}");
        }
        Ok(reached)
    }
}

/// A server that closes every connection, and counts them.
struct DeadTool {
    address: String,
    count: Arc<AtomicUsize>,
}

impl DeadTool {
    async fn start() -> Result<Self, BoxError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counter.fetch_add(1, Relaxed);
            }
        });
        Ok(Self { address, count })
    }

    fn reached(&self) -> usize {
        self.count.load(Relaxed)
    }
}

/// Another process of this program.
struct Worker {
    process: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(tool: &str, processes: usize, url: Option<&str>) -> Result<Self, BoxError> {
        let mut command = Command::new(env::current_exe()?);
        command
            .arg(tool)
            .env("FLEET_PROCESSES", processes.to_string())
            .env("TOOLCALL_CIRCUIT_BREAKER_RESET", "1s")
            .env("TOOLCALL_RETRY_ENABLED", "false")
            .env("TOOLCALL_SHARED_GRACE", "300ms")
            .env("TOOLCALL_SHARED_URL", url.unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn()?;
        let (orders, lines) = (process.stdin.take(), process.stdout.take());
        Ok(Self {
            process,
            orders: orders.ok_or("no way to the process")?,
            lines: BufReader::new(lines.ok_or("no way from the process")?).lines(),
        })
    }

    async fn line(&mut self) -> Result<String, BoxError> {
        let line = self.lines.next_line().await?;
        Ok(line.ok_or("a process has ended")?)
    }
}
