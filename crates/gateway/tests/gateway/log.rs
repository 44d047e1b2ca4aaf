//! The program's log, whose reader is stuck or gone.

use std::{
    io::{self, Read as _, Write},
    net::TcpListener,
    os::unix::net::UnixStream,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    net::unix::pipe,
    process::{Child, Command},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    kit::{LIMIT, beside, rpc},
    life::{LONG, until_running_at},
    output::Output,
};

/// More than fit into a pipe and the queue before it.
const CALLS: u64 = 3000;

struct Program {
    child: Child,
    url: String,
}

impl Program {
    /// Waits until it serves.
    async fn start(stdout: Stdio, stderr: Stdio, path: Option<&str>) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let port = free.unwrap().port().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
        command.env("PORT", &port).env("GATEWAY_GRACE", "60");
        command.env("NO_COLOR", "1");
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let command = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let url = format!("http://127.0.0.1:{port}");
        let serves = async {
            while reqwest::get(format!("{url}/health")).await.is_err() {
                assert_eq!(child.try_wait().unwrap(), None, "it has ended");
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, serves).await.expect("it does not serve");
        Self { child, url }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let url = format!("{}/rpc", self.url);
        rpc(&reqwest::Client::new(), &url, 1, tool, &arguments).await
    }

    /// Calls the local tool, each time with success.
    async fn calls(&self, calls: u64) {
        let mut callers = JoinSet::new();
        for _ in 0..8 {
            let url = format!("{}/rpc", self.url);
            callers.spawn(async move {
                let client = reqwest::Client::new();
                let text = json!({ "text": "one two three" });
                for id in 0..calls / 8 {
                    let answer = rpc(&client, &url, id, "count_words", &text).await;
                    assert!(answer["result"].is_object(), "{answer}");
                }
            });
        }
        let all = timeout(LIMIT, callers.join_all()).await;
        all.expect("calls wait for the log");
    }

    /// Sends SIGTERM and waits for the end.
    async fn ended(&mut self) -> ExitStatus {
        let pid = self.child.id().unwrap().to_string();
        let sent = std::process::Command::new("kill").arg(pid).status();
        assert!(sent.unwrap().success());
        let ended = timeout(LIMIT, self.child.wait()).await;
        ended.expect("it does not end").unwrap()
    }

    /// Sends SIGTERM in the middle of a call, which has its answer.
    async fn drains(mut self) {
        let url = self.url.clone();
        let metrics = format!("{url}/metrics");
        let call = tokio::spawn(async move {
            let arguments = json!({ "duration": 2, "steps": 2 });
            let client = reqwest::Client::new();
            rpc(&client, &format!("{url}/rpc"), 1, LONG, &arguments).await
        });
        until_running_at(&metrics, 1).await;
        let status = self.ended().await;
        let answer = call.await.unwrap();
        assert!(answer["result"].is_object(), "{answer}");
        assert_eq!(status.code(), Some(0));
    }
}

/// A pipe that takes no byte more.
async fn full_pipe() -> (Stdio, pipe::Receiver) {
    let (sender, receiver) = pipe::pipe().unwrap();
    sender.writable().await.unwrap();
    while sender.try_write(&[b'\n'; 4096]).is_ok() {}
    (sender.into_blocking_fd().unwrap().into(), receiver)
}

fn closed_pipe() -> Stdio {
    let (sender, _) = pipe::pipe().unwrap();
    sender.into_blocking_fd().unwrap().into()
}

/// S-6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_while_stdout_is_not_read() {
    let _beside = beside().await;
    let (stdout, _unread) = full_pipe().await;
    let gateway = Program::start(stdout, Stdio::inherit(), None).await;
    gateway.calls(CALLS).await;
    gateway.drains().await;
}

/// S-6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_end_before_the_gateway_when_its_outputs_are_closed() {
    let _beside = beside().await;
    let gateway = Program::start(closed_pipe(), closed_pipe(), None).await;
    gateway.calls(200).await;
    gateway.drains().await;
}

/// S-6: no server can be started, which is reported while it serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_serves_while_stderr_is_not_read() {
    let _beside = beside().await;
    let (stderr, _unread) = full_pipe().await;
    let mut gateway = Program::start(Stdio::null(), stderr, Some("")).await;
    gateway.calls(200).await;
    let answer = gateway.call("everything__echo", json!({})).await;
    assert!(answer["error"].is_object(), "{answer}");
    assert_eq!(gateway.ended().await.code(), Some(0));
}

/// S-6: an error at the start ends it although it cannot be told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_setting_ends_the_gateway_while_stderr_is_not_read() {
    let _beside = beside().await;
    for (variable, code) in [("PORT", 2), ("TOOLCALL_TIMEOUT", 2)] {
        let (stderr, _unread) = full_pipe().await;
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
        command.env(variable, "none of them").stdout(Stdio::null());
        let status = command.stderr(stderr).kill_on_drop(true).status();
        let status = timeout(LIMIT, status).await.expect("it does not end");
        assert_eq!(status.unwrap().code(), Some(code));
    }
}

/// S-6: a reader that comes back finds whole lines, and how many are missing. The descriptor is
/// non-blocking, as Node.js makes its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_lines_are_counted_and_none_is_cut() {
    let _beside = beside().await;
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let stdout = Stdio::from(std::os::fd::OwnedFd::from(theirs));
    let mut gateway = Program::start(stdout, Stdio::inherit(), Some("")).await;
    gateway.calls(CALLS).await;

    let log = Arc::new(Mutex::new(String::new()));
    let (reader, mut ours) = (Arc::clone(&log), ours);
    let read = thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = ours.read(&mut bytes) {
            let text = str::from_utf8(&bytes[..count]).unwrap();
            reader.lock().unwrap().push_str(text);
        }
    });
    // What is lost is told with the next line.
    let since = Instant::now();
    while lost(&log.lock().unwrap()) == 0 {
        assert!(since.elapsed() < LIMIT, "no line tells of it");
        gateway.calls(8).await;
    }
    assert_eq!(gateway.ended().await.code(), Some(0));
    read.join().unwrap();

    let log = log.lock().unwrap();
    assert!(log.ends_with("done\n"), "{log}");
    let calls = log.lines().filter(|line| line.contains("count_words"));
    let calls = calls.inspect(|line| assert!(is_whole(line), "{line}"));
    let (logged, lost) = (calls.count(), lost(&log));
    assert!(
        lost > 0 && logged + lost >= CALLS as usize,
        "{logged} and {lost}"
    );
}

/// How many lines the log says are lost.
fn lost(log: &str) -> usize {
    let counts = log
        .lines()
        .filter_map(|line| line.strip_suffix(" lines of this log are lost"));
    counts.map(|count| count.parse::<usize>().unwrap()).sum()
}

/// Whether a line begins with a moment, and is not two.
fn is_whole(line: &str) -> bool {
    line.starts_with("20") && line.matches("Z ").count() == 1
}

/// A writer that waits for permission before each write, and may fail.
struct Slow(mpsc::Receiver<io::Result<usize>>, mpsc::Sender<Vec<u8>>);

impl Write for Slow {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        // For as much as there is when nobody is left to ask.
        let count = self.0.recv().unwrap_or(Ok(usize::MAX))?.min(text.len());
        let _ = self.1.send(text[..count].to_vec());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn slow() -> (
    Output,
    mpsc::Sender<io::Result<usize>>,
    mpsc::Receiver<Vec<u8>>,
) {
    let (permits, permitted) = mpsc::channel();
    let (sender, written) = mpsc::channel();
    (Output::new(Slow(permitted, sender)), permits, written)
}

/// S-6: few lines are as many bytes.
#[test]
fn waiting_lines_are_bounded_in_bytes() {
    let (output, permits, written) = slow();
    let line = "x".repeat(100 << 10);
    for _ in 0..1000 {
        output.say(&line);
    }
    drop(permits);
    output.finish(LIMIT);
    output.say("after");
    output.finish(LIMIT);
    drop(output);
    let written: Vec<u8> = written.try_iter().flatten().collect();
    let text = String::from_utf8(written).unwrap();
    let whole = text.lines().filter(|&found| found == line).count();
    assert!((10..=11).contains(&whole), "{whole}");
    assert_eq!(whole + lost(&text), 1000);
    assert!(text.ends_with("\nafter\n"));
}

/// S-6: what follows a line that was written in part begins a line of its own.
#[test]
fn a_line_that_was_written_in_part_is_ended() {
    let (output, permits, written) = slow();
    for permit in [Ok(4), Err(io::ErrorKind::StorageFull.into())] {
        permits.send(permit).unwrap();
    }
    output.say("a line");
    output.finish(Duration::from_millis(100));
    drop(permits);
    output.say("another");
    output.finish(LIMIT);
    let written: Vec<u8> = written.try_iter().flatten().collect();
    let text = String::from_utf8(written).unwrap();
    assert_eq!(text, "a li\n1 lines of this log are lost\nanother\n");
}
