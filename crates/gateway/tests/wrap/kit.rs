//! A client that looks at every line.

use std::{
    env,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json, value::RawValue};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Instant, sleep, timeout},
};

/// The program, built with this test.
pub(crate) const GATEWAY: &str = env!("CARGO_BIN_EXE_gateway");

/// The longest wait for anything. It only ends a test that hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What `tests/run` has put under `target`.
pub(crate) fn installed(path: &str) -> String {
    let there = format!("{}/../../target/{path}", env!("CARGO_MANIFEST_DIR"));
    assert!(Path::new(&there).exists(), "run `tests/run --no-run` once");
    there
}

/// npm's `@modelcontextprotocol/server-everything`.
pub(crate) fn everything() -> Vec<String> {
    let script = "mcp-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    vec!["node".into(), installed(script), "stdio".into()]
}

/// PyPI's `mcp-server-time`.
pub(crate) fn time() -> Vec<String> {
    let words = [
        "python3",
        "-m",
        "mcp_server_time",
        "--local-timezone",
        "UTC",
    ];
    words.map(str::to_owned).into()
}

/// Ours, which fails as it is told.
pub(crate) fn own(arguments: &[&str]) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrap/server.py");
    let words = ["python3", script].into_iter();
    words
        .chain(arguments.iter().copied())
        .map(str::to_owned)
        .collect()
}

/// Ours, which says nothing on stderr.
pub(crate) fn quiet() -> Vec<String> {
    let command = format!("exec {} 2>/dev/null", own(&[]).join(" "));
    vec!["sh".into(), "-c".into(), command]
}

/// A file of this test's own.
pub(crate) fn file(name: &str, content: &str) -> String {
    let path = env::temp_dir().join(format!("wrap-{}-{name}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

/// `wrap` with these flags in front of the command.
pub(crate) fn wrapped(flags: &[&str], command: &[String]) -> Vec<String> {
    let mut all = vec![GATEWAY.to_owned(), "wrap".into()];
    all.extend(flags.iter().map(|&flag| flag.to_owned()));
    all.push("--".into());
    all.extend_from_slice(command);
    all
}

pub(crate) struct Client {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    stderr: Arc<Mutex<String>>,
    pub(crate) next_id: u64,
    /// What came beside the answers.
    pub(crate) others: Vec<Value>,
}

impl Client {
    pub(crate) fn start(command: &[String]) -> Self {
        let mut process = Command::new(&command[0]);
        process
            .args(&command[1..])
            .env("PYTHONPATH", installed("mcp-servers-python"));
        process.env("WRAP_TEST", "passed on").kill_on_drop(true);
        process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = process.spawn().unwrap();
        let stderr = Arc::new(Mutex::new(String::new()));
        let (mut said, all) = (
            BufReader::new(child.stderr.take().unwrap()).lines(),
            Arc::clone(&stderr),
        );
        tokio::spawn(async move {
            while let Ok(Some(line)) = said.next_line().await {
                *all.lock().unwrap() += &(line + "\n");
            }
        });
        Self {
            stdin: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            stderr,
            next_id: 100,
            others: Vec::new(),
        }
    }

    /// `wrap` in front of a server, and a session.
    pub(crate) async fn wrap(flags: &[&str], command: &[String]) -> Self {
        let mut client = Self::start(&wrapped(flags, command));
        client.initialize().await;
        client
    }

    pub(crate) async fn initialize(&mut self) -> String {
        let can = json!({ "sampling": {}, "elicitation": {}, "roots": { "listChanged": true } });
        let about = json!({
            "protocolVersion": "2025-11-25", "capabilities": can,
            "clientInfo": { "name": "by hand", "version": "1" },
        });
        let answer = self.answer("initialize", about).await;
        self.send(json!({ "method": "notifications/initialized" }))
            .await;
        answer
    }

    pub(crate) async fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        self.write(&message.to_string()).await;
    }

    pub(crate) async fn write(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// Sends a request; its id.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        self.send(json!({ "id": self.next_id, "method": method, "params": params }))
            .await;
        self.next_id
    }

    pub(crate) async fn ask_tool(&mut self, name: &str, arguments: Value) -> u64 {
        self.ask(
            "tools/call",
            json!({ "name": name, "arguments": arguments }),
        )
        .await
    }

    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            let line = timeout(LIMIT, self.lines.next_line()).await;
            let line = line
                .unwrap_or_else(|_| panic!("nothing comes\n{}", self.said()))
                .unwrap()?;
            if !line.is_empty() {
                let message = serde_json::from_str(&line).expect(&line);
                return Some((line, message));
            }
        }
    }

    /// The answer to a request: the text of its result, or of its error.
    pub(crate) async fn answer_to(&mut self, id: u64) -> String {
        loop {
            let Some((line, message)) = self.next().await else {
                panic!("no answer to {id}\n{}", self.said())
            };
            if message["id"] == id && message.get("method").is_none() {
                let parts: std::collections::BTreeMap<String, Box<RawValue>> =
                    serde_json::from_str(&line).unwrap();
                assert_eq!(parts.len(), 3, "{line}");
                let part = ["result", "error"].iter().find_map(|&part| parts.get(part));
                return part.unwrap().get().to_owned();
            }
            self.others.push(message);
        }
    }

    pub(crate) async fn answer(&mut self, method: &str, params: Value) -> String {
        let id = self.ask(method, params).await;
        self.answer_to(id).await
    }

    pub(crate) async fn call(&mut self, name: &str, arguments: Value) -> Value {
        let id = self.ask_tool(name, arguments).await;
        serde_json::from_str(&self.answer_to(id).await).unwrap()
    }

    /// What `wrap` has answered in place of the server: the code, and the text for the model.
    pub(crate) async fn refused(&mut self, name: &str) -> (String, String) {
        refusal(&self.call(name, json!({})).await)
    }

    /// All that came on stderr.
    pub(crate) fn said(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub(crate) fn has_not_said(&self, what: &str) {
        let said = self.said();
        assert!(!said.contains(what), "{said}");
    }

    pub(crate) async fn cancel(&mut self, params: Value) {
        let method = "notifications/cancelled";
        self.send(json!({ "method": method, "params": params }))
            .await;
    }

    /// Waits until something was said.
    pub(crate) async fn until_said(&self, what: &str) {
        let since = Instant::now();
        while !self.said().contains(what) {
            assert!(since.elapsed() < LIMIT, "no {what} in\n{}", self.said());
            sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// As a client that is killed: its ends are closed, and the program lives.
    pub(crate) fn leave(self) -> Child {
        self.child
    }

    /// Until the program has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let ended = timeout(LIMIT, self.child.wait()).await;
        ended
            .unwrap_or_else(|_| panic!("it does not end\n{}", self.said()))
            .unwrap()
    }
}

pub(crate) fn refusal(result: &Value) -> (String, String) {
    assert_eq!(result["isError"], true, "{result}");
    // Clients of 2026-07-28 require it, and older ones ignore it.
    assert_eq!(result["resultType"], "complete", "{result}");
    let code = &result["_meta"][tower_toolcall_mcp::ERROR_META]["code"];
    let text = &result["content"][0]["text"];
    (
        code.as_str().unwrap_or_default().into(),
        text.as_str().unwrap().into(),
    )
}

pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // A zombie is waited for by somebody else.
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

pub(crate) fn signal(name: &str, pid: u32) {
    let sent = std::process::Command::new("kill")
        .args([name, &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}
