//! A process that serves a preset.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    served::{FILE, UPSTREAM},
    upstream::Upstream,
};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What a busy machine may take for nothing. Far below any wait that would be a mistake: a cooldown
/// of 60 s is the shortest.
pub(crate) const SLACK: Duration = ms(20_000);

pub(crate) struct Served {
    pub(crate) upstream: Upstream,
    process: Process,
    at: String,
    client: reqwest::Client,
}

/// Ends with the test, and so does its file.
struct Process(Child, PathBuf);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = fs::remove_file(&self.1);
    }
}

/// Starts it, and returns what it says first: where it listens, or what is wrong.
fn start(file: &str, vars: &[(&str, &str)], upstream: &str) -> (Process, String) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let n = NEXT.fetch_add(1, Relaxed);
    let name = format!("presets-{}-{n}.toml", std::process::id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, file).unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("TOOL_") {
            command.env_remove(name);
        }
    }
    let child = command
        .args([
            "--exact",
            "over_http::served::serve",
            "--ignored",
            "--nocapture",
        ])
        .env(FILE, &path)
        .env(UPSTREAM, upstream)
        .envs(vars.iter().copied())
        // It ends when this is closed: also if this process is killed.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut process = Process(child, path);
    let mut out = BufReader::new(process.0.stdout.take().unwrap());
    let said = loop {
        let mut line = String::new();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "it says nothing");
        let said = ["listening at ", "refused: "].map(|words| line.find(words));
        if let Some(from) = said.into_iter().flatten().next() {
            break line[from..].trim().to_owned();
        }
    };
    // What else it prints is read by nobody, and must not stop it.
    std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
    (process, said)
}

/// What is wrong with such settings.
pub(crate) fn refused(file: &str, vars: &[(&str, &str)]) -> String {
    let (_process, said) = start(file, vars, "127.0.0.1:1");
    said.strip_prefix("refused: ").expect("an error").to_owned()
}

impl Served {
    /// By a file and variables alone.
    pub(crate) async fn start(file: &str, vars: &[(&str, &str)]) -> Self {
        let upstream = Upstream::start().await;
        let (process, said) = start(file, vars, &upstream.at.to_string());
        let at = said.strip_prefix("listening at ").expect(&said).to_owned();
        Self {
            upstream,
            process,
            at,
            client: reqwest::Client::new(),
        }
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.0.id()
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.client.post(format!("http://{}{path}", self.at));
        let request = request.header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.at);
        reqwest::get(url).await.unwrap().text().await.unwrap()
    }

    pub(crate) async fn settings(&self) -> Value {
        serde_json::from_str(&self.get("/settings").await).unwrap()
    }

    /// The state of a tool's breaker.
    pub(crate) async fn breaker(&self, tool: &str) -> String {
        let all: Value = serde_json::from_str(&self.get("/breakers").await).unwrap();
        all[tool].as_str().unwrap_or("none").to_owned()
    }

    /// A call by JSON-RPC, and how long it took.
    pub(crate) async fn call(&self, tool: &str) -> (Value, Duration) {
        let start = Instant::now();
        let answer = self
            .post("/rpc", &request(1, &format!("docs__{tool}")))
            .await;
        (answer, start.elapsed())
    }

    /// The number of the error that answers a call; 0 for a success.
    pub(crate) async fn code(&self, tool: &str) -> i64 {
        let (answer, _) = self.call(tool).await;
        answer["error"]["code"].as_i64().unwrap_or(0)
    }

    /// Several calls in one batch.
    pub(crate) async fn batch(&self, tools: &[&str]) -> Vec<Value> {
        let calls = tools.iter().enumerate();
        let calls: Value = calls.map(|(id, tool)| request(id, tool)).collect();
        let answers = self.post("/rpc", &calls).await;
        answers.as_array().unwrap().clone()
    }
}

fn request(id: usize, tool: &str) -> Value {
    let params = json!({ "name": tool, "arguments": { "city": "Oslo" } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}
