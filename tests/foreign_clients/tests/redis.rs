//! Breakers shared over a Redis server by TLS, with a certificate that the machine trusts, and one
//! that it does not.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::{net::TcpStream, task::JoinHandle, time::sleep};
use tower_toolcall::{
    ToolCall,
    circuit_breaker::{BreakerState, CircuitBreakerHandle, CircuitBreakerLayer},
};
use tower_toolcall_redis::{RedisStore, SharedHandle, SharedState};

/// The test in a process that trusts the certificate; its value is the server's URL.
const TRUSTING: &str = "REDIS_TLS_URL";

struct Server {
    process: Child,
    dir: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

async fn server() -> (Server, u16) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let dir = env::temp_dir().join(format!("tt-redis-tls-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let port = TcpListener::bind("localhost:0").unwrap();
    let port = port.local_addr().unwrap().port();

    let kind = env::var("STORE").unwrap_or_else(|_| "redis".to_owned());
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let installed = target.join(format!("{kind}/{kind}-server"));
    let program = match installed.exists() {
        true => installed,
        false => PathBuf::from(format!("{kind}-server")),
    };
    let mut command = Command::new(program);
    command.args(["--port", "0", "--save", "", "--tls-auth-clients", "no"]);
    command.args(["--tls-port", &port.to_string()]);
    command.args(["--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem"]);
    command.args(["--tls-ca-cert-file", "cert.pem", "--bind", "127.0.0.1"]);
    let command = command.current_dir(&dir).stdout(Stdio::null());
    let process = command.spawn().expect("run `tests/run --no-run` once");
    let server = Server { process, dir };
    for _ in 0..6000 {
        if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return (server, port);
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("the server does not start");
}

fn process(url: &str) -> (CircuitBreakerHandle, SharedHandle, JoinHandle<()>) {
    let breakers = CircuitBreakerLayer::new().handle();
    let store = RedisStore::new(url).unwrap();
    let shared = SharedState::new(store)
        .breakers("tools", &breakers)
        .unwrap();
    (breakers, shared.handle(), tokio::spawn(shared.run()))
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} takes too long");
}

/// C8.
#[tokio::test]
async fn breakers_are_shared_by_tls_with_a_server_that_is_trusted() {
    if let Ok(url) = env::var(TRUSTING) {
        let ((a, ..), (b, shared, _)) = (process(&url), process(&url));
        until("meeting", || shared.snapshot().processes == 2).await;
        let call = ToolCall::new("search");
        for _ in 0..5 {
            a.breaker(&call).record_failure();
        }
        let is_open = || b.breaker(&call).state() == BreakerState::Open;
        return until("an opening", is_open).await;
    }
    let (server, port) = server().await;
    let url = format!("rediss://localhost:{port}");
    let (_, shared, _) = process(&url);
    until("a refusal", || shared.snapshot().is_up == Some(false)).await;

    let mut command = Command::new(env::current_exe().unwrap());
    let command = command
        .env(TRUSTING, url)
        .env("SSL_CERT_FILE", server.dir.join("cert.pem"));
    assert!(command.status().unwrap().success());
}
