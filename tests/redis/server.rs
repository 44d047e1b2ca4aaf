//! Real servers: Redis, and Valkey.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use redis::{Client, aio::MultiplexedConnection};
use tokio::time::sleep;

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
        let name = format!("{kind}-server");
        let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("target/{kind}/{name}"));
        let program = match installed.exists() {
            true => installed,
            false => {
                let path = env::var_os("PATH").unwrap_or_default();
                let program = env::split_paths(&path).map(|dir| dir.join(&name));
                let Some(program) = program.into_iter().find(|file| file.exists()) else {
                    assert_eq!(kind, "valkey", "no {name}: run `tests/run --no-run` once");
                    eprintln!("no {name} here: skipped");
                    return None;
                };
                program
            }
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
        for _ in 0..500 {
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
        let client = Client::open(self.url())?;
        client.get_multiplexed_async_connection().await
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
