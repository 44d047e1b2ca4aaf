//! Real servers: Redis, and Valkey.

use std::{
    env, fs, iter,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection};
use tokio::time::sleep;

/// The server that `tests/run` has installed, or that of this machine.
pub(crate) fn program(kind: &str) -> Option<PathBuf> {
    let name = format!("{kind}-server");
    let installed = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target")
        .join(kind);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut files = iter::once(installed).chain(env::split_paths(&path));
    files.find_map(|dir| Some(dir.join(&name)).filter(|file| file.exists()))
}

/// A server of this test, on a socket of its own. It is killed with this value.
pub(crate) struct Server {
    program: PathBuf,
    dir: PathBuf,
    process: Option<Child>,
}

impl Server {
    /// `redis` is always there; `None` where there is no Valkey.
    pub(crate) async fn start(kind: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some(program) = program(kind) else {
            assert_eq!(kind, "valkey", "run `tests/run --no-run` once");
            eprintln!("no {kind}-server here: skipped");
            return None;
        };
        // A socket's path is at most 107 bytes.
        let n = COUNT.fetch_add(1, Relaxed);
        let dir = env::temp_dir().join(format!("tt-{kind}-{}-{n}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut server = Self {
            program,
            dir,
            process: None,
        };
        server.restart().await;
        Some(server)
    }

    /// A Redis server; a Valkey server if `STORE` says so.
    pub(crate) async fn redis() -> Self {
        let kind = env::var("STORE").unwrap_or_else(|_| "redis".to_owned());
        Self::start(&kind).await.unwrap()
    }

    /// Starts it with nothing in it.
    pub(crate) async fn restart(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(["--port", "0", "--save", "", "--appendonly", "no"]);
        command.args(["--loglevel", "warning", "--unixsocket"]);
        let command = command.arg(self.socket()).current_dir(&self.dir);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.process = Some(process.unwrap());
        for _ in 0..6000 {
            if let Ok(mut connection) = self.try_connect().await
                && redis::cmd("PING").exec_async(&mut connection).await.is_ok()
            {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("{} does not start", self.program.display());
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("s")
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The URL of a user.
    pub(crate) fn url_of(&self, user: &str, password: &str) -> String {
        format!("{}?user={user}&pass={password}", self.url())
    }

    async fn try_connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        // Without the client's own limits: a busy server answers late.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let client = Client::open(self.url())?;
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    /// Runs a command as its administrator.
    pub(crate) async fn run<T: redis::FromRedisValue>(&self, command: &[&[u8]]) -> T {
        let mut connection = self.try_connect().await.unwrap();
        let mut cmd = redis::Cmd::new();
        command.iter().for_each(|part| _ = cmd.arg(*part));
        cmd.query_async(&mut connection).await.unwrap()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.as_ref().unwrap().id().to_string();
        let done = Command::new("kill").args(["-s", name, &id]).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
