//! C8: breakers shared over real servers, Redis and Valkey. Time is real here, as it is the
//! server's.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod fleet;
mod hostile;
mod lost;
mod server;
#[path = "../../examples/fleet/store.rs"]
mod store;

use std::time::Duration;

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tower_toolcall::{
    ToolCall,
    circuit_breaker::{Breaker, BreakerState, CircuitBreakerHandle, CircuitBreakerLayer},
};
use tower_toolcall_redis::{RedisStore, SharedHandle, SharedState};

use BreakerState::{Closed, ForcedOpen, Open};
use server::Server;

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The longest wait for anything. It only ends a test that hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A process, as far as the server can see.
struct Process {
    breakers: CircuitBreakerHandle,
    shared: SharedHandle,
    mirror: JoinHandle<()>,
}

impl Process {
    fn start(url: &str) -> Self {
        Self::with(RedisStore::new(url).unwrap(), millis(60_000))
    }

    fn with(store: RedisStore, open_for: Duration) -> Self {
        let layer = CircuitBreakerLayer::builder().with_open_for(open_for);
        let breakers = layer.build().unwrap().handle();
        let shared = SharedState::new(store)
            .with_grace(millis(300))
            .and_then(|shared| shared.breakers("tools", &breakers))
            .unwrap();
        Self {
            breakers,
            shared: shared.handle(),
            mirror: tokio::spawn(shared.run()),
        }
    }

    fn breaker(&self, tool: &str) -> Breaker {
        self.breakers.breaker(&ToolCall::new(tool).with_server("s"))
    }

    fn fails(&self, tool: &str) {
        for _ in 0..5 {
            self.breaker(tool).record_failure();
        }
    }

    fn state(&self, tool: &str) -> BreakerState {
        self.breaker(tool).state()
    }

    fn is_up(&self) -> Option<bool> {
        self.shared.snapshot().is_up
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.mirror.abort();
    }
}

/// Waits until it is so; how long that took.
async fn until(what: &str, is_so: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "{what} takes too long");
        sleep(millis(1)).await;
    }
    begun.elapsed()
}

/// Processes that know of each other.
async fn fleet<const N: usize>(url: &str) -> [Process; N] {
    let fleet = std::array::from_fn(|_| Process::start(url));
    until("meeting", || {
        fleet
            .iter()
            .all(|process: &Process| process.shared.snapshot().processes == N)
    })
    .await;
    fleet
}

/// C8: on either server, what one learns the others know in moments, by hints.
#[tokio::test]
async fn processes_learn_from_each_other_over_redis_and_valkey() {
    for kind in ["redis", "valkey"] {
        let Some(server) = Server::start(kind).await else {
            continue;
        };
        let [a, b] = fleet(&server.url()).await;
        let mut least = LIMIT;
        for n in 0..20 {
            let tool = format!("tool{n}");
            a.fails(&tool);
            let time = until("an opening", || b.state(&tool) == Open).await;
            least = least.min(time);
        }
        println!("{kind}: an opening is known to another process after {least:?}");
        // Without hints each takes a second, until the next exchange.
        assert!(least < millis(500), "{least:?}");

        a.breaker("admin").force_open();
        until("a forced state", || b.state("admin") == ForcedOpen).await;
        b.breaker("admin").reset();
        until("a reset", || a.state("admin") == Closed).await;
    }
}

/// C8: the success of a probe is that of all; of a process that is killed nothing is left.
#[tokio::test]
async fn a_probe_that_succeeds_closes_all() {
    let server = Server::redis().await;
    let process = || Process::with(RedisStore::new(&server.url()).unwrap(), millis(2_000));
    let (a, b) = (process(), process());
    until("meeting", || b.shared.snapshot().processes == 2).await;
    a.fails("search");
    until("an opening", || b.state("search") == Open).await;
    until("a probe", || match a.breaker("search").admit() {
        Ok(permit) => {
            permit.success();
            true
        }
        Err(_) => false,
    })
    .await;
    until("a closing", || b.state("search") == Closed).await;

    a.fails("fetch");
    until("an opening", || b.state("fetch") == Open).await;
    drop(a);
    until("the end of an opening", || {
        b.breaker("fetch").admit().is_ok()
    })
    .await;
}

/// C8.
#[tokio::test]
async fn a_thousand_breakers_that_open_at_once_are_known_within_moments() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url()).await;
    let tools: Vec<_> = (0..1_000).map(|n| format!("tool{n}")).collect();
    for tool in &tools {
        a.breaker(tool);
        b.breaker(tool);
    }
    tools.iter().for_each(|tool| a.fails(tool));
    let all = || tools.iter().all(|tool| b.state(tool) == Open);
    let time = until("a thousand openings", all).await;
    println!("a thousand openings are known after {time:?}");
}

/// C8.
#[tokio::test]
async fn namespaces_know_nothing_of_each_other() {
    let server = Server::redis().await;
    let in_namespace = |namespace| {
        let store = RedisStore::new(&server.url()).unwrap();
        let store = store.with_namespace(namespace).unwrap();
        Process::with(store, millis(60_000))
    };
    let (a, b, other) = (in_namespace("a"), in_namespace("a"), in_namespace("b"));
    until("meeting", || b.shared.snapshot().processes == 2).await;
    a.fails("search");
    until("an opening", || b.state("search") == Open).await;
    sleep(millis(1_100)).await;
    assert_eq!(other.state("search"), Closed);
    assert_eq!(other.shared.snapshot().processes, 1);
}

/// C8: the command of the docs, with a password of its own.
#[tokio::test]
async fn a_user_that_may_do_what_the_docs_say_is_enough() {
    let server = Server::redis().await;
    let docs = include_str!("../../src/server.rs");
    let (_, rule) = docs.split_once("/// ACL SETUSER ").unwrap();
    let (rule, _) = rule.split_once("/// ```").unwrap();
    let rule = rule.replace("///", "").replace("PASSWORD", "s3cr3t");
    let mut command = vec!["ACL", "SETUSER"];
    command.extend(rule.split_whitespace());
    let command: Vec<_> = command.iter().map(|word| word.as_bytes()).collect();
    let () = server.run(&command).await;

    let store = |password| {
        let url = server.url_of("toolcall", password);
        let store = RedisStore::new(&url).unwrap();
        store.with_namespace("prod").unwrap()
    };
    let process = || Process::with(store("s3cr3t"), millis(60_000));
    let (a, b) = (process(), process());
    until("meeting", || b.shared.snapshot().processes == 2).await;
    a.fails("search");
    until("an opening", || b.state("search") == Open).await;

    let stranger = Process::with(store("wr0ng"), millis(60_000));
    until("a refusal", || stranger.is_up() == Some(false)).await;
    // Another namespace is none of its business.
    let store = RedisStore::new(&server.url_of("toolcall", "s3cr3t")).unwrap();
    let elsewhere = Process::with(store, millis(60_000));
    until("a refusal", || elsewhere.is_up() == Some(false)).await;
}

/// C8.
#[test]
fn what_is_no_url_or_namespace_is_refused_and_a_password_is_not_shown() {
    for url in [
        "",
        "localhost",
        "http://u:s3cr3t@host",
        "redis://u:s3cr3t@host:port",
    ] {
        let error = RedisStore::new(url).unwrap_err();
        assert_eq!(error.field(), "url", "{url:?}");
        assert!(!error.to_string().contains("s3cr3t"), "{error}");
    }
    // Where no TLS is compiled in.
    let error = RedisStore::new("rediss://u:s3cr3t@host").unwrap_err();
    assert!(error.reason().contains("TLS"), "{error}");
    let store = || RedisStore::new("redis://u:s3cr3t@host").unwrap();
    let shown = format!("{:?}", store());
    assert_eq!(shown, "RedisStore { namespace: \"default\", .. }");
    for namespace in ["", "a b", "a}b", &"x".repeat(65)] {
        let error = store().with_namespace(namespace).unwrap_err();
        assert_eq!(error.field(), "namespace");
    }
}
