//! The README's program, as it is printed, and its stack with other calls. `npx` is a script that
//! starts the server that `tests/run` has installed, keeps what goes to it, and can be killed.
#![cfg(unix)]

use std::{
    env,
    fmt::Debug,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::time::sleep;
use tower::Service;
use tower_toolcall::{ErrorKind, ReplaySafety, ToolError};

include!(concat!(env!("OUT_DIR"), "/readme_uses.rs"));

const SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/mcp-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
);

/// Only reads, and takes a while.
const LONG: &str = "trigger-long-running-operation";

/// A directory with a program `npx`.
struct Npx(PathBuf);

impl Npx {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let dir = env::temp_dir().join(format!("readme-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory can be made");
        // As `npx` does, it runs the server as a child of its own.
        let script = format!(
            "#!/bin/sh\ncd '{}'\necho $$ >>pids\ntee -a requests | node '{SERVER}' 2>>errors\n",
            dir.display()
        );
        let npx = Self(dir);
        fs::write(npx.path(), script).expect("it can be written");
        fs::set_permissions(npx.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        npx
    }

    fn path(&self) -> PathBuf {
        self.0.join("npx")
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap_or_default()
    }

    /// The process groups that were started.
    fn groups(&self) -> Vec<String> {
        self.read("pids").lines().map(str::to_owned).collect()
    }

    /// How many calls of a tool have reached a server.
    fn calls(&self, tool: &str) -> usize {
        let name = format!(r#""name":"{tool}""#);
        let requests = self.read("requests");
        let calls = requests
            .lines()
            .filter(|line| line.contains(r#""method":"tools/call""#));
        calls.filter(|line| line.contains(&name)).count()
    }

    /// Kills the server that was started last.
    fn kill(&self) {
        let group = self.groups().pop().expect("there is a server");
        assert!(signal("-KILL", &group), "there is no group {group}");
    }

    /// Waits until no server is left.
    async fn ended(&self) {
        while self.groups().iter().any(|group| signal("-0", group)) {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Npx {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Sends a signal to a process group. Returns whether there is such a group.
fn signal(signal: &str, group: &str) -> bool {
    let kill = format!("kill {signal} -{group} 2>/dev/null");
    let kill = Command::new("sh").args(["-c", &kill]).status();
    kill.expect("there is a shell").success()
}

fn server(npx: &Npx) -> McpServer {
    let package = ["-y", "@modelcontextprotocol/server-everything"];
    let npx = npx.path();
    include!(concat!(env!("OUT_DIR"), "/readme_server.rs"))
}

/// The stack of the program around a server.
fn stack(
    server: &McpServer,
) -> impl Service<ToolCall, Response: tower_toolcall::ModelText + Debug, Error = ToolError, Future: Send>
+ Clone {
    let stack =
        || -> Result<_, AnyError> { Ok(include!(concat!(env!("OUT_DIR"), "/readme_stack.rs"))) };
    stack().expect("it is valid")
}

fn call(tool: &str, arguments: serde_json::Value) -> ToolCall {
    ToolCall::new(tool).with_json(arguments).expect("an object")
}

fn echo() -> ToolCall {
    call("echo", json!({ "message": "hello" }))
}

fn long() -> ToolCall {
    call(LONG, json!({ "duration": 1, "steps": 2 }))
}

/// Kills the server when a call of the tool has reached it.
async fn kill_in_mid_call(npx: &Npx, tool: &str) {
    while npx.calls(tool) == 0 {
        sleep(Duration::from_millis(5)).await;
    }
    npx.kill();
}

fn run_as_printed(npx: &Npx) -> Output {
    let path = env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", npx.0.display());
    let program = Path::new(env!("CARGO_BIN_EXE_readme"));
    let mut program = Command::new(program);
    program.env("PATH", path).env("NO_COLOR", "1");
    program.output().expect("it can be started")
}

/// P1, P14: also the third time.
#[tokio::test]
async fn the_program_runs_as_printed_and_ends_cleanly() {
    for _ in 0..3 {
        let npx = Npx::new();
        let output = run_as_printed(&npx);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        for part in ["Echo: hello", "tool.success", "tool=echo", "does not exist"] {
            assert!(printed.contains(part), "{part}: {printed}");
        }
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        npx.ended().await;
        assert!(
            !npx.read("errors").contains("node:"),
            "{}",
            npx.read("errors")
        );
    }
}

/// P14: also if it ends in the middle of a call, and says nothing to its server.
#[test]
fn a_program_that_stops_early_leaves_neither_a_crash_nor_a_process() {
    let npx = Npx::new();
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.enable_all().build().expect("a runtime")
    };
    runtime().block_on(async {
        let server = server(&npx);
        server.connect().await.expect("it connects");
        let busy = call(LONG, json!({ "duration": 60, "steps": 6000 }));
        tokio::select! {
            answer = stack(&server).oneshot(busy) => panic!("{answer:?}"),
            () = async { while npx.calls(LONG) == 0 { sleep(Duration::from_millis(5)).await } } => {}
        }
    });
    runtime().block_on(npx.ended());
    assert!(
        !npx.read("errors").contains("node:"),
        "{}",
        npx.read("errors")
    );
}

/// P1.
#[tokio::test]
async fn a_server_that_is_killed_between_two_calls_is_started_again() {
    let npx = Npx::new();
    let server = server(&npx);
    server.connect().await.expect("it connects");
    let tools = stack(&server);
    tools.clone().oneshot(echo()).await.expect("it answers");
    npx.kill();
    let answer = tools.oneshot(echo()).await.expect("it answers");
    assert_eq!(answer.model_text(), "Echo: hello");
    assert_eq!(npx.groups().len(), 2);
    server.close().await;
    npx.ended().await;
}

/// P1: the server says itself that the tool only reads.
#[tokio::test]
async fn a_call_of_a_tool_that_only_reads_outlives_its_server() {
    let npx = Npx::new();
    let server = server(&npx);
    server.connect().await.expect("it connects");
    let (answer, ()) = tokio::join!(stack(&server).oneshot(long()), kill_in_mid_call(&npx, LONG));
    let answer = answer.expect("the caller sees nothing of it");
    assert!(answer.model_text().contains("completed"), "{answer:?}");
    assert_eq!(npx.calls(LONG), 2);
    server.close().await;
}

/// P1: of a server that is not trusted nothing is known. The error says what to declare.
#[tokio::test]
async fn a_call_that_is_not_declared_safe_is_sent_once() {
    let npx = Npx::new();
    let server = McpServer::command("everything", npx.path(), [""; 0]);
    server.connect().await.expect("it connects");
    let (answer, ()) = tokio::join!(stack(&server).oneshot(long()), kill_in_mid_call(&npx, LONG));
    let error = answer.expect_err("it may have run");
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    let details = error.details().expect("it has details").to_string();
    for part in ["not_marked_safe", "with_replay_safety", "annotations"] {
        assert!(details.contains(part), "{part}: {details}");
    }
    assert_eq!(npx.calls(LONG), 1);
    server.close().await;
}

/// P1: declared by the program, the same call is sent again.
#[tokio::test]
async fn a_call_that_the_program_declares_safe_is_sent_again() {
    let npx = Npx::new();
    let server = McpServer::command("everything", npx.path(), [""; 0])
        .with_replay_safety(LONG, ReplaySafety::Safe);
    server.connect().await.expect("it connects");
    let (answer, ()) = tokio::join!(stack(&server).oneshot(long()), kill_in_mid_call(&npx, LONG));
    answer.expect("the caller sees nothing of it");
    assert_eq!(npx.calls(LONG), 2);
    server.close().await;
}

/// P2: the server's own words are an answer, and its tool is as well as before.
#[tokio::test]
async fn arguments_that_do_not_fit_open_no_breaker() {
    let npx = Npx::new();
    let server = server(&npx);
    server.connect().await.expect("it connects");
    let tools = stack(&server);
    for _ in 0..6 {
        let sum = call("get-sum", json!({ "a": "two" }));
        let answer = tools.clone().oneshot(sum).await.expect("an answer");
        assert!(answer.model_text().contains("nvalid"), "{answer:?}");
    }
    let sum = call("get-sum", json!({ "a": 2, "b": 3 }));
    let answer = tools.oneshot(sum).await.expect("it answers");
    assert!(answer.model_text().contains('5'), "{answer:?}");
    server.close().await;
}
