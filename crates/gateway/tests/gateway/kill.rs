//! A server is killed again and again under load.

use std::{
    fs,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use rmcp::{
    ServiceExt as _, model::CallToolRequestParams, transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower_toolcall::settings::Settings;
use tower_toolcall_mcp::McpServer;

use crate::{
    kit::{LIMIT, Running, Use, alone, beside, in_use, rpc},
    upstream::PING,
};

const CALLERS: u64 = 50;
const KILLS: u32 = 8;
/// What a call may take, retries and waits included.
const BUDGET: Duration = Duration::from_secs(3);
/// The delay of a busy machine. A call without a deadline would wait for its server for ever.
const SLACK: Duration = Duration::from_secs(10);

pub(crate) fn settings() -> Settings {
    let mut settings = Settings::gateway();
    settings.deadline.budget = Some(BUDGET);
    settings.timeout.default = Duration::from_secs(2);
    settings.retry.attempts = 3;
    settings.retry.base = Duration::from_millis(100);
    settings.circuit_breaker.open_for = Duration::from_millis(500);
    settings.health.refusal = true;
    settings.health.probe_period = Duration::from_secs(1);
    settings.rate_limit.default_cooldown = Duration::from_secs(1);
    settings
}

/// What came of the calls.
#[derive(Debug, Default)]
struct Tally {
    answers: AtomicU64,
    /// Of the server that is killed.
    answers_there: AtomicU64,
    errors: AtomicU64,
    /// Of the server that nobody kills, and of the local tool.
    errors_elsewhere: AtomicU64,
    /// The longest, in microseconds.
    longest: AtomicU64,
    examples: Mutex<Vec<String>>,
}

impl Tally {
    fn add(&self, tool: &str, took: Duration, answer: Result<(), String>) {
        self.longest.fetch_max(took.as_micros() as u64, SeqCst);
        let there = tool.starts_with("everything");
        let Err(error) = answer else {
            self.answers.fetch_add(1, SeqCst);
            self.answers_there.fetch_add(there.into(), SeqCst);
            return;
        };
        self.errors.fetch_add(1, SeqCst);
        if !there {
            self.errors_elsewhere.fetch_add(1, SeqCst);
        }
        let mut examples = self.examples.lock().unwrap();
        if examples.len() < 1000 && !examples.contains(&error) {
            examples.push(error);
        }
    }
}

impl Tally {
    fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(SeqCst))
    }
}

/// The calls of a caller in turn: quick ones, some that run when the server is killed, and those of
/// others.
fn nth(n: u64) -> (&'static str, Value) {
    match n % 5 {
        0 | 1 => ("everything__echo", json!({ "message": n.to_string() })),
        2 => (
            "everything__trigger-long-running-operation",
            json!({ "duration": 0.4, "steps": 2 }),
        ),
        3 => ("time__get_current_time", json!({ "timezone": "UTC" })),
        _ => ("count_words", json!({ "text": "one two three" })),
    }
}

/// Calls over JSON-RPC until all is over.
async fn rpc_caller(url: String, over: CancellationToken, caller: u64, tally: Arc<Tally>) {
    let client = reqwest::Client::new();
    for n in caller.. {
        if over.is_cancelled() {
            return;
        }
        let (tool, arguments) = nth(n);
        let since = Instant::now();
        let answer = timeout(LIMIT, rpc(&client, &url, n, tool, &arguments)).await;
        let took = since.elapsed();
        let answer = answer.expect("a caller has no answer");
        assert_eq!(answer["id"], n, "it is the answer of another call");
        let is = (
            answer.get("result").is_some(),
            answer.get("error").is_some(),
        );
        let answer = match is {
            (true, false) => Ok(()),
            (false, true) => Err(answer["error"]["data"]["code"].to_string()),
            _ => panic!("neither result nor error: {answer}"),
        };
        tally.add(tool, took, answer);
        sleep(Duration::from_millis(20)).await;
    }
}

/// Calls over MCP until all is over, with a session of its own.
async fn mcp_caller(url: String, over: CancellationToken, caller: u64, tally: Arc<Tally>) {
    let client = ().serve(StreamableHttpClientTransport::from_uri(url)).await.unwrap();
    for n in caller.. {
        if over.is_cancelled() {
            break;
        }
        let (tool, arguments) = nth(n);
        let Value::Object(arguments) = arguments else {
            unreachable!()
        };
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let since = Instant::now();
        let answer = timeout(LIMIT, client.call_tool(params)).await;
        let took = since.elapsed();
        let answer = match answer.expect("a caller has no answer") {
            Ok(result) if result.is_error == Some(true) => Err(json!(result.content).to_string()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        tally.add(tool, took, answer);
        sleep(Duration::from_millis(20)).await;
    }
    client.cancel().await.unwrap();
}

/// 50 callers, half of them over each protocol.
async fn load<T>(gateway: &Running, meanwhile: impl Future<Output = T>) -> (Arc<Tally>, T) {
    let tally = Arc::new(Tally::default());
    let over = CancellationToken::new();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let (tally, over) = (Arc::clone(&tally), over.clone());
        match caller % 2 {
            0 => callers.spawn(rpc_caller(gateway.url("/rpc"), over, caller, tally)),
            _ => callers.spawn(mcp_caller(gateway.url("/mcp"), over, caller, tally)),
        };
    }
    let meanwhile = meanwhile.await;
    over.cancel();
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    (tally, meanwhile)
}

/// Kills the server's process a while after it has connected, and the next one, and so on, for some
/// time.
async fn kill(server: &McpServer, after: Duration, times: u32) {
    let (mut kills, mut last) = (0, None);
    while kills < times {
        sleep(Duration::from_millis(20)).await;
        if server.connection().is_connected() && server.process_id() != last {
            sleep(after).await;
            last = server.process_id();
            signal("-9", last.unwrap());
            kills += 1;
        }
    }
}

fn pid(server: &McpServer) -> u32 {
    server.process_id().unwrap()
}

fn signal(which: &str, pid: u32) {
    let sent = Command::new("kill")
        .args([which, &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// Waits until nothing has gone for 2 s, and returns what there is: what ends late must not hide
/// what never does.
pub(crate) async fn at_rest() -> Use {
    let (mut least, mut since) = (in_use(), Instant::now());
    while since.elapsed() < Duration::from_secs(2) {
        sleep(Duration::from_millis(50)).await;
        let now = in_use();
        let goes = now.tasks < least.tasks || now.files < least.files;
        if goes || now.children.len() < least.children.len() {
            (least, since) = (now, Instant::now());
        }
    }
    in_use()
}

/// The same, when there is no more than before, or at the latest when a test may end.
pub(crate) async fn at_rest_with(before: &Use) -> Use {
    let since = Instant::now();
    loop {
        let after = at_rest().await;
        let is_more = after.tasks > before.tasks || after.files > before.files;
        if !is_more && !after.children.contains(&'Z') || since.elapsed() > LIMIT {
            return after;
        }
    }
}

/// Calls until there is an answer, and returns how long that took.
async fn back(gateway: &Running) -> Duration {
    let since = Instant::now();
    let client = reqwest::Client::new();
    let hello = json!({ "message": "hello" });
    loop {
        let answer = rpc(&client, &gateway.url("/rpc"), 1, "everything__echo", &hello).await;
        if answer.get("result").is_some() {
            return since.elapsed();
        }
        assert!(since.elapsed() < LIMIT, "it does not come back: {answer}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// X8: each caller has exactly one answer, none much after its deadline; what is killed comes back
/// by itself; others notice nothing; nothing is left over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_be_killed_again_and_again() {
    let _alone = alone().await;
    let gateway = Running::start(settings()).await;
    let everything = gateway.upstream("everything").clone();
    // Everything has been there once: pools, sessions, the allocator's arenas.
    let lives = Duration::from_millis(1500);
    load(&gateway, kill(&everything, lives, 2)).await;
    back(&gateway).await;
    let before = at_rest().await;

    let (tally, ()) = load(&gateway, kill(&everything, lives, KILLS)).await;

    let back = self::back(&gateway).await;
    let after = at_rest_with(&before).await;

    let longest = tally.longest();
    let examples = tally.examples.lock().unwrap().clone();
    println!(
        "{KILLS} kills; {} answers and {} errors; the longest call took {longest:?} of {BUDGET:?}, overshoot {:?}; back after {back:?}",
        tally.answers.load(SeqCst),
        tally.errors.load(SeqCst),
        longest.saturating_sub(BUDGET),
    );
    println!("before {before:?}\nafter  {after:?}\nerrors {examples:#?}");

    assert!(longest < BUDGET + SLACK, "a caller waited {longest:?}");
    assert_eq!(
        tally.errors_elsewhere.load(SeqCst),
        0,
        "others have noticed"
    );
    // Refusals are quick, so their number says nothing.
    let answers = tally.answers_there.load(SeqCst);
    assert!(
        answers > 10 * u64::from(KILLS),
        "it hardly comes back: {answers}"
    );
    assert!(after.tasks <= before.tasks, "tasks are left over");
    assert!(after.files <= before.files, "files are left open");
    assert_eq!(after.children.len(), 2);
    assert!(!after.children.contains(&'Z'), "a zombie is left over");
    let grown = after.resident_kib.saturating_sub(before.resident_kib);
    assert!(grown < 16 << 10, "memory has grown by {grown} KiB");
    gateway.stopped().await;
}

/// T1, T5: a server that is there and does not answer: no call outlives its budget, and it works
/// when it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_stand_still() {
    let _beside = beside().await;
    let gateway = Running::start(settings()).await;
    let everything = gateway.upstream("everything").clone();
    let stopped = async {
        sleep(Duration::from_secs(1)).await;
        signal("-STOP", pid(&everything));
        sleep(Duration::from_secs(5)).await;
        signal("-CONT", pid(&everything));
        sleep(Duration::from_secs(2)).await;
    };
    let (tally, ()) = load(&gateway, stopped).await;
    let longest = tally.longest();
    println!(
        "the longest call took {longest:?} of {BUDGET:?}; errors {:#?}",
        tally.examples.lock().unwrap()
    );
    assert!(
        longest > Duration::from_secs(2),
        "nobody has waited: {longest:?}"
    );
    assert!(longest < BUDGET + SLACK, "a caller waited {longest:?}");
    assert_eq!(
        tally.errors_elsewhere.load(SeqCst),
        0,
        "others have noticed"
    );
    back(&gateway).await;
    gateway.stopped().await;
}

/// Whether there is a process of this number, other than one that has ended and waits for its
/// parent to see it.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// W14, X8: a server that is stopped for good is replaced, its process ended; its calls fail in
/// time, and those of others do not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_for_good_is_replaced() {
    let _beside = beside().await;
    let gateway = Running::start(settings()).await;
    let everything = gateway.upstream("everything").clone();
    let stopped = pid(&everything);
    let replaced = async {
        sleep(Duration::from_secs(1)).await;
        signal("-STOP", stopped);
        let since = Instant::now();
        while everything.process_id() == Some(stopped) || !everything.connection().is_connected() {
            assert!(since.elapsed() < LIMIT, "it is not");
            sleep(Duration::from_millis(20)).await;
        }
        since.elapsed()
    };
    let (tally, replaced) = load(&gateway, replaced).await;
    let longest = tally.longest();
    println!("replaced after {replaced:?}; the longest call took {longest:?} of {BUDGET:?}");
    // A call times out, its ping does, and the next call connects.
    assert!(replaced >= PING, "{replaced:?}");
    assert!(longest < BUDGET + SLACK, "a caller waited {longest:?}");
    assert_eq!(
        tally.errors_elsewhere.load(SeqCst),
        0,
        "others have noticed"
    );
    back(&gateway).await;
    let since = Instant::now();
    while is_alive(stopped) {
        assert!(since.elapsed() < LIMIT, "it is left over");
        sleep(Duration::from_millis(50)).await;
    }
    gateway.stopped().await;
}
