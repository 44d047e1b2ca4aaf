//! A circuit breaker in front of a real HTTP server that is killed and started again while calls
//! flow.
//!
//! ```text
//! cargo run -p example-servers --bin circuit_breaker
//! ```
//!
//! The server is this program in a process of its own, on a free port of the loopback interface.
//! The timeline shows what became of the calls in each state of the breaker.

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use axum::serve::ListenerExt as _;
use tokio::time::{Instant, interval, sleep};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, BoxError, ErrorKind, Event, ToolCall, ToolError,
    circuit_breaker::{BreakerState, CircuitBreakerLayer, Transition},
    timeout::TimeoutLayer,
};

const OPEN_FOR: Duration = Duration::from_secs(1);
const KILLED_AT: Duration = Duration::from_millis(1_000);
const BACK_AT: Duration = Duration::from_millis(3_300);
const END_AT: Duration = Duration::from_millis(6_000);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    if let (Some("serve"), Some(at)) = (args.next().as_deref(), args.next()) {
        return serve(at.parse()?).await;
    }

    let at = free_address()?;
    let mut server = Server::start(at).await?;
    println!(
        "a server answers on {at}; the breaker opens after 5 failures in a row, for {OPEN_FOR:?}\n"
    );

    // A listener hears of a transition before the call that brought it about has its result.
    let (heard, transitions) = mpsc::channel();
    let breaker = CircuitBreakerLayer::builder()
        .with_open_for(OPEN_FOR)
        .with_listener(move |event: &Event<'_>| {
            if let Event::Transition { transition, .. } = event {
                let _ = heard.send((*transition).clone());
            }
        })
        .build()?;
    let handle = breaker.handle();
    let client = reqwest::Client::builder().no_proxy().build()?;
    let tools = ServiceBuilder::new()
        .layer(breaker)
        .layer(TimeoutLayer::new(Duration::from_millis(500)))
        .service(service_fn(move |_: ToolCall| {
            let request = client.get(format!("http://{at}/search"));
            async move { Ok::<_, AnyError>(request.send().await?.error_for_status()?.text().await?) }
        }));

    let mut timeline = Timeline::new();
    let mut ticks = interval(Duration::from_millis(40));
    while timeline.start.elapsed() < END_AT {
        ticks.tick().await;
        let now = timeline.start.elapsed();
        if now >= KILLED_AT && timeline.killed.is_none() {
            server.kill()?;
            timeline.killed = Some(now);
            timeline.note("the server is killed");
        }
        if now >= BACK_AT && timeline.back.is_none() {
            server = Server::start(at).await?;
            timeline.back = Some(timeline.start.elapsed());
            timeline.note("the server is back");
        }
        let result = call(&tools).await;
        let (before, after): (Vec<_>, Vec<_>) = transitions
            .try_iter()
            .partition(|t: &Transition| t.to == BreakerState::HalfOpen);
        // A probe belongs to the state that it found.
        before.iter().for_each(|t| timeline.turn(t));
        timeline.count(&result);
        after.iter().for_each(|t| timeline.turn(t));
    }
    server.kill()?;
    timeline.flush();

    println!(
        "\nthe breaker at the end:\n{}",
        serde_json::to_string_pretty(&handle.snapshot())?
    );
    timeline.judge()
}

async fn call<S>(tools: &S) -> Result<(), ToolError>
where
    S: Service<ToolCall, Response = String, Error = ToolError> + Clone,
{
    let call = ToolCall::new("search").with_server("docs");
    tools.clone().oneshot(call).await.map(drop)
}

/// The tool, in a process that knows nothing of breakers.
async fn serve(at: SocketAddr) -> Result<(), BoxError> {
    let search = axum::routing::get(|| async { "three results" });
    let listener = tokio::net::TcpListener::bind(at).await?;
    let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
    axum::serve(listener, axum::Router::new().route("/search", search)).await?;
    Ok(())
}

fn free_address() -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// A child process that is killed with us.
struct Server(Child);

impl Server {
    async fn start(at: SocketAddr) -> Result<Self, BoxError> {
        let child = Command::new(std::env::current_exe()?)
            .args(["serve", &at.to_string()])
            .stdin(Stdio::null())
            .spawn()?;
        let server = Self(child);
        for _ in 0..500 {
            if tokio::net::TcpStream::connect(at).await.is_ok() {
                return Ok(server);
            }
            sleep(Duration::from_millis(10)).await;
        }
        Err("the server did not start within 5 s".into())
    }

    fn kill(&mut self) -> std::io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Prints a line for each state, and keeps what the judgement needs.
struct Timeline {
    start: Instant,
    state: BreakerState,
    since: Duration,
    passed: u32,
    failed: u32,
    refused: u32,
    killed: Option<Duration>,
    back: Option<Duration>,
    closed_again: Option<Duration>,
    trips_after_back: u32,
}

impl Timeline {
    fn new() -> Self {
        println!("  from      to        state       passed  failed  refused");
        Self {
            start: Instant::now(),
            state: BreakerState::Closed,
            since: Duration::ZERO,
            passed: 0,
            failed: 0,
            refused: 0,
            killed: None,
            back: None,
            closed_again: None,
            trips_after_back: 0,
        }
    }

    fn count(&mut self, result: &Result<(), ToolError>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(e) if e.kind() == ErrorKind::CircuitOpen => self.refused += 1,
            Err(_) => self.failed += 1,
        }
    }

    fn note(&self, what: &str) {
        println!(
            "{:>8.3}s  --------  {what}",
            self.start.elapsed().as_secs_f64()
        );
    }

    fn turn(&mut self, transition: &Transition) {
        self.flush();
        self.state = transition.to;
        if self.back.is_some() {
            match transition.to {
                BreakerState::Closed => self.closed_again = Some(self.since),
                BreakerState::Open => self.trips_after_back += 1,
                _ => {}
            }
        }
    }

    fn flush(&mut self) {
        let now = self.start.elapsed();
        println!(
            "{:>8.3}s {:>8.3}s  {:10}  {:>6}  {:>6}  {:>7}",
            self.since.as_secs_f64(),
            now.as_secs_f64(),
            self.state,
            self.passed,
            self.failed,
            self.refused
        );
        self.since = now;
        (self.passed, self.failed, self.refused) = (0, 0, 0);
    }

    /// Once the server is back, the breaker closes within one open period and the probe, and stays
    /// closed.
    fn judge(&self) -> Result<(), BoxError> {
        let (Some(back), Some(closed)) = (self.back, self.closed_again) else {
            return Err("the breaker did not close again".into());
        };
        let recovery = closed.saturating_sub(back);
        println!(
            "\nclosed {recovery:.0?} after the server was back; trips after that: {}",
            self.trips_after_back
        );
        let probe = Duration::from_millis(500);
        if recovery > OPEN_FOR + probe || self.trips_after_back > 0 {
            return Err("that is more than one open period and the probe".into());
        }
        Ok(())
    }
}
