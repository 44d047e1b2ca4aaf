//! Six servers of third parties, and their unmodified clients, which call until they are told to
//! stop.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, http::Uri};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    process::{Child, ChildStdin, Command},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

/// The longest wait for anything. It only ends a test that hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Files, entities and commits, each of a number.
const NUMBERS: u32 = 10;

/// Returns how many calls a client makes of each server, at least.
pub(crate) fn calls() -> u32 {
    env::var("SDK_CALLS").map_or(60, |calls| calls.parse().unwrap())
}

/// A call: its server, its tool, arguments, and what is in its answer and in that of no other.
#[derive(Clone)]
pub(crate) struct Planned {
    pub(crate) server: &'static str,
    pub(crate) tool: &'static str,
    pub(crate) arguments: Value,
    pub(crate) part: String,
}

/// Returns the plan of a client, with the names of tools that it uses.
pub(crate) fn named(plan: &[Planned], name: impl Fn(&Planned) -> String) -> Value {
    let plan = plan
        .iter()
        .map(|it| json!([name(it), it.arguments, it.part]));
    plan.collect()
}

/// The files and pages that the servers read.
pub(crate) struct Sources {
    folder: PathBuf,
    pages: String,
}

impl Drop for Sources {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn target(path: &str) -> String {
    let there = format!("{}/../../target/{path}", env!("CARGO_MANIFEST_DIR"));
    assert!(Path::new(&there).exists(), "run `tests/run --no-run` once");
    there
}

fn git(folder: &str, arguments: &[&str]) {
    let author = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    let git = std::process::Command::new("git")
        .args(["-C", folder])
        .args(author)
        .args(arguments)
        .status();
    assert!(git.unwrap().success());
}

impl Sources {
    pub(crate) async fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let path = |name: &str| folder.join(name);
        fs::create_dir_all(path("files")).unwrap();
        fs::create_dir_all(path("repository")).unwrap();
        let repository = path("repository").to_str().unwrap().to_owned();
        git(&repository, &["init", "-q"]);
        let mut entities = String::new();
        for n in 0..NUMBERS {
            let text = format!("v{n}v");
            fs::write(path(&format!("files/{n}")), &text).unwrap();
            git(&repository, &["commit", "-q", "--allow-empty", "-m", &text]);
            git(&repository, &["tag", &text]);
            let entity = json!({ "type": "entity", "name": text, "entityType": "number", "observations": [] });
            entities += &format!("{entity}\n");
        }
        fs::write(path("memory.json"), entities).unwrap();
        let page = |uri: Uri| async move { format!("v{}v", uri.path().trim_matches('/')) };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pages = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, Router::new().fallback(page)).into_future());
        Self { folder, pages }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// Returns the name of each server, and its command.
    pub(crate) fn servers(&self) -> Vec<(&'static str, Vec<String>)> {
        let script = |name: &str| {
            target(&format!(
                "mcp-servers/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"
            ))
        };
        let packages = format!("PYTHONPATH={}", target("mcp-servers-python"));
        let python = |rest: &[&str]| {
            let words = ["env", &packages, "python3", "-m"].into_iter();
            words
                .chain(rest.iter().copied())
                .map(str::to_owned)
                .collect()
        };
        let node = |words: &[String]| [&["node".to_owned()], words].concat();
        let memory = format!("MEMORY_FILE_PATH={}", self.path("memory.json"));
        let memory = ["env".into(), memory, "node".into(), script("memory")];
        let repository = self.path("repository");
        vec![
            ("everything", node(&[script("everything"), "stdio".into()])),
            (
                "filesystem",
                node(&[script("filesystem"), self.path("files")]),
            ),
            ("memory", memory.into()),
            (
                "git",
                python(&["mcp_server_git", "--repository", &repository]),
            ),
            (
                "fetch",
                python(&[
                    "mcp_server_fetch",
                    "--allow-private-ips",
                    "--ignore-robots-txt",
                ]),
            ),
            (
                "time",
                python(&["mcp_server_time", "--local-timezone", "UTC"]),
            ),
        ]
    }

    /// Returns calls of each server in turn, or of one.
    pub(crate) fn plan(&self, of: Option<&str>) -> Vec<Planned> {
        let each = |n: u32| {
            let (few, any) = (format!("v{}v", n % NUMBERS), format!("v{n}v"));
            let time = format!("{:02}:{:02}", n / 60 % 24, n % 60);
            let at = format!("T{time}:00");
            let zones = json!({ "source_timezone": "UTC", "time": time, "target_timezone": "UTC" });
            let file = self.path(&format!("files/{}", n % NUMBERS));
            let revision = json!({ "repo_path": self.path("repository"), "revision": few });
            let url = format!("{}/{n}", self.pages);
            [
                ("everything", "echo", json!({ "message": any }), any.clone()),
                (
                    "filesystem",
                    "read_text_file",
                    json!({ "path": file }),
                    few.clone(),
                ),
                (
                    "memory",
                    "open_nodes",
                    json!({ "names": [few] }),
                    few.clone(),
                ),
                ("git", "git_show", revision, few),
                ("fetch", "fetch", json!({ "url": url }), any),
                ("time", "convert_time", zones, at),
            ]
        };
        let plan = (0..calls()).flat_map(each);
        let plan = plan.map(|(server, tool, arguments, part)| Planned {
            server,
            tool,
            arguments,
            part,
        });
        plan.filter(|it| of.is_none_or(|of| it.server == of))
            .collect()
    }
}

/// The results of a client's calls.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    numbers: BTreeSet<i64>,
    pub(crate) right: usize,
    pub(crate) failed: usize,
    /// In milliseconds, of the right answers.
    times: Vec<f64>,
    /// Answers that are wrong, double or missing.
    pub(crate) wrong: Vec<String>,
    examples: BTreeSet<String>,
}

impl Tally {
    fn add(&mut self, line: &str) {
        let (n, what, took, said): (i64, String, f64, String) = serde_json::from_str(line).unwrap();
        if n >= 0 && !self.numbers.insert(n) {
            self.wrong.push(format!("{n} has two answers"));
        }
        match &*what {
            "right" => {
                self.right += 1;
                self.times.push(took);
            }
            "failed" => {
                self.failed += 1;
                if self.examples.len() < 5 {
                    self.examples.insert(said);
                }
            }
            _ => self.wrong.push(line.to_owned()),
        }
    }
}

/// A client that runs.
pub(crate) struct Caller {
    name: String,
    child: Child,
    stdin: ChildStdin,
    tally: Arc<Mutex<Tally>>,
    reads: JoinHandle<()>,
    planned: usize,
}

impl Caller {
    /// Starts PyPI's client of a URL or a command.
    pub(crate) async fn python(mode: &str, server: &[String], plan: &Value) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/load/client.py");
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", target("mcp-servers-python"));
        command.args([script, mode]).args(server);
        Self::start(format!("PyPI's, {mode}"), command, plan).await
    }

    /// Starts npm's client of a URL or a command.
    pub(crate) async fn node(server: &[String], plan: &Value) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/load/client.mjs");
        let sdk = target("mcp-servers/node_modules/@modelcontextprotocol/sdk");
        let mut command = Command::new("node");
        command.args([script, &sdk]).args(server);
        Self::start("npm's".to_owned(), command, plan).await
    }

    async fn start(name: String, mut command: Command, plan: &Value) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Its servers write much when they are killed.
        let mut child = command
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let line = format!("{plan}\n");
        stdin.write_all(line.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let tally = Arc::new(Mutex::new(Tally::default()));
        let reader = Arc::clone(&tally);
        let reads = tokio::spawn(async move {
            while let Some(line) = lines.next_line().await.unwrap() {
                reader.lock().unwrap().add(&line);
            }
        });
        let planned = plan.as_array().unwrap().len();
        Self {
            name,
            child,
            stdin,
            tally,
            reads,
            planned,
        }
    }

    /// Waits for another right answer.
    pub(crate) async fn another(&self) {
        let right = || self.tally.lock().unwrap().right;
        let before = right();
        until(&format!("{}: no right answer", self.name), || {
            right() > before
        })
        .await;
    }

    /// Has it end. Each call has had one answer, and its own.
    pub(crate) async fn ended(mut self) -> Tally {
        drop(self.stdin);
        let ended = timeout(LIMIT, self.child.wait()).await;
        let ended = ended.expect("the client hangs").unwrap();
        self.reads.await.unwrap();
        let tally = std::mem::take(&mut *self.tally.lock().unwrap());
        let (right, failed) = (tally.right, tally.failed);
        let mut times = tally.times.clone();
        times.sort_by(f64::total_cmp);
        let median = times.get(times.len() / 2);
        println!(
            "{}: {right} right answers, {failed} errors, p50 {median:.1?} ms; {:#?}",
            self.name, tally.examples
        );
        assert!(ended.success(), "{}: {ended}", self.name);
        assert!(tally.wrong.is_empty(), "{}: {:?}", self.name, tally.wrong);
        let calls = tally.numbers.len();
        assert!(calls >= self.planned, "{}: {calls} calls", self.name);
        let last = tally.numbers.last();
        assert_eq!(last, Some(&(calls as i64 - 1)), "a call has no answer");
        tally
    }
}

/// Waits until it holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < LIMIT, "{what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Sends a signal to a process that a test has started.
pub(crate) fn signal(which: &str, pid: u32) {
    let pid = pid.to_string();
    let sent = std::process::Command::new("kill")
        .args([which, &pid])
        .status();
    sent.unwrap();
}

/// Random numbers, for the lives of servers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(stream: u64) -> Self {
        let seed = env::var("SEED").map_or(1, |seed| seed.parse::<u64>().unwrap());
        Self(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ (stream + 1).wrapping_mul(0xd1b5_4a32_d192_ed03),
        )
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// A time to live, or to stand still.
    pub(crate) fn time(&mut self) -> Duration {
        Duration::from_millis(100 + self.below(1200))
    }
}
