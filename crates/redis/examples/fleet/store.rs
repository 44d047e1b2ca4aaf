//! A Redis server of this program's own.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::{net::UnixStream, time::sleep};
use tower_toolcall::BoxError;

/// It ends with this value, and leaves nothing behind.
pub(crate) struct Server {
    program: PathBuf,
    dir: PathBuf,
    process: Option<Child>,
}

impl Server {
    /// Starts the first server in the directories of `path`, which is as `PATH`. `None`: there is
    /// none.
    pub(crate) async fn start(path: &OsStr) -> Result<Option<Self>, BoxError> {
        let mut dirs: Vec<_> = env::split_paths(path).collect();
        // Where the tests keep theirs.
        dirs.extend(["target/redis", "target/valkey"].map(PathBuf::from));
        let names = ["redis-server", "valkey-server"];
        let mut programs = dirs.iter().flat_map(|dir| names.map(|name| dir.join(name)));
        let Some(program) = programs.find(|file| file.is_file()) else {
            return Ok(None);
        };
        let dir = env::temp_dir().join(format!("fleet-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let mut server = Self {
            // By its own name, also where that is a link: Debian's `redis-server` is a link to a
            // program that looks at its name.
            program: std::path::absolute(program)?,
            dir,
            process: None,
        };
        server.restart().await?;
        Ok(Some(server))
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("redis.sock")
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// With nothing in it.
    pub(crate) async fn restart(&mut self) -> Result<(), BoxError> {
        let mut command = Command::new(&self.program);
        command.args([
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--unixsocket",
        ]);
        let command = command.arg(self.socket()).current_dir(&self.dir);
        self.process = Some(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?,
        );
        for _ in 0..6000 {
            if UnixStream::connect(self.socket()).await.is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(10)).await;
        }
        Err("the server does not answer".into())
    }

    /// As `kill -9` does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
