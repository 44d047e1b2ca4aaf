//! A hostile server, and hostile clients, while an innocent caller is served.

use std::{env, net::SocketAddr, pin::pin, time::Duration};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    bounds::{HOSTILE, peak},
    hostile::answer,
    kit::alone,
    servers::Program,
    wire::{initialize, post},
};

/// Another process of the same script.
const INNOCENT: &str = concat!(
    "innocent=python3 \"",
    env!("CARGO_MANIFEST_DIR"),
    "/tests/gateway/hostile.py\""
);

/// The first half of a request.
const HEAD: &str = "POST /rpc HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

/// Between two calls of a caller.
const PAUSE: Duration = Duration::from_millis(5);

/// How long a caller is alone.
const ALONE: Duration = Duration::from_secs(2);

/// How many clients begin sessions.
const SESSIONS: u64 = 8;

/// In MiB, of the program.
const MEMORY: u64 = 200;

/// The treatments of each caller's calls, one after another.
const WAYS: [&[&str]; 4] = [
    &["values", "floods", "cursors", "good"],
    &["renames", "asks", "nulls", "notifies"],
    &["twice", "wrong_id", "garbage", "good"],
    &["late", "good", "nulls"],
];

fn length() -> Duration {
    let set = env::var("SIEGE_SECS").map_or(5, |secs| secs.parse().unwrap());
    Duration::from_secs(set)
}

struct Served {
    times: Vec<Duration>,
}

impl Served {
    fn p99(&self) -> Duration {
        self.times[self.times.len() * 99 / 100]
    }

    /// Its calls are as quick as alone, but for the time that others take of the processors.
    fn is_as(&self, alone: &Self) {
        for (who, it) in [("alone", alone), ("beside", self)] {
            let (times, last) = (&it.times, it.times.len() - 1);
            let (median, slowest) = (times[last / 2], times[last]);
            let p99 = it.p99();
            println!(
                "{who}: {} calls, {median:?}, p99 {p99:?}, {slowest:?}",
                last + 1
            );
        }
        let slack = if cfg!(debug_assertions) { 250 } else { 20 };
        let most = 10 * alone.p99() + Duration::from_millis(slack);
        assert!(self.p99() < most, "it is served late");
    }
}

/// Calls the innocent server, again if there are too many calls. Returns the answer.
async fn call(client: &reqwest::Client, url: &str, n: usize) -> String {
    let params = json!({ "name": "innocent__act", "arguments": { "how": "good", "n": n } });
    let body = json!({ "jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params });
    let request = client.post(url).header("content-type", "application/json");
    let request = request.body(body.to_string());
    loop {
        let answer = request.try_clone().unwrap().send().await.unwrap();
        match answer.status().as_u16() {
            200 => return answer.text().await.unwrap(),
            status => assert_eq!(status, 503),
        }
        sleep(PAUSE).await;
    }
}

/// Calls until `over` ends, and has each answer.
async fn innocent(url: &str, over: impl Future) -> Served {
    let (mut over, mut times) = (pin!(over), Vec::new());
    let (client, mut is_over) = (reqwest::Client::new(), false);
    while !is_over || times.is_empty() {
        let n = times.len();
        let asked = Instant::now();
        let text = call(&client, url, n).await;
        times.push(asked.elapsed());
        assert!(text.contains(&format!("\"text\":\"{n}\"")), "{text}");
        is_over = timeout(PAUSE, &mut over).await.is_ok();
    }
    times.sort();
    Served { times }
}

/// Calls the hostile server in each way, for some time. Each call has one answer. Returns how many
/// results and errors there were.
async fn hostile(url: String, caller: u64, time: Duration) -> [u64; 2] {
    let (since, mut ends) = (Instant::now(), [0; 2]);
    let ways = WAYS[caller as usize];
    for (n, way) in (0..).zip(ways.iter().cycle()) {
        if since.elapsed() > time && n >= ways.len() as u64 {
            break;
        }
        let id = caller * 1_000_000 + n;
        let arguments = json!({ "how": way, "n": id });
        match answer(&url, id, "hostile__act", &arguments).await {
            Ok(result) if result["isError"] == true => ends[1] += 1,
            Ok(result) => {
                let text = &result["content"][0]["text"];
                assert!(
                    *way == "nulls" || *text == *id.to_string(),
                    "{way}: {result}"
                );
                ends[0] += 1;
            }
            Err(_) => ends[1] += 1,
        }
        sleep(PAUSE).await;
    }
    ends
}

/// A program with both servers, and its address.
async fn program(timeout: &str) -> (Program, String) {
    let mut command = Program::command();
    command.args(["--server", HOSTILE, "--server", INNOCENT]);
    command.env("TOOL_TIMEOUT", timeout);
    // Refusals would be most of what happens.
    command.env("TOOL_CIRCUIT_BREAKER_ENABLED", "false");
    command.env("TOOLCALL_HEALTH_REFUSAL", "false");
    let mut program = Program::of(command);
    let url = program.url().await.replace("/mcp", "/rpc");
    (program, url)
}

/// Issue 52.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_server_takes_little_from_others() {
    let _alone = alone().await;
    let (program, url) = program("2s").await;
    let alone = innocent(&url, sleep(ALONE)).await;
    let callers = (0..).zip(WAYS);
    let callers = callers.map(|(n, _)| hostile(url.clone(), n, length()));
    let mut callers = JoinSet::from_iter(callers);
    let mut ends = [0; 2];
    let over = async {
        while let Some(more) = callers.join_next().await {
            let more = more.unwrap();
            ends = [ends[0] + more[0], ends[1] + more[1]];
        }
    };
    let beside = innocent(&url, over).await;
    let memory = peak(&program);
    println!(
        "hostile: {} results, {} errors; {memory} MiB",
        ends[0], ends[1]
    );
    assert!(ends[0] > 0 && ends[1] > 0, "too little has happened");
    assert!(memory < MEMORY, "it takes {memory} MiB");
    beside.is_as(&alone);
}

/// Sends a request that has no end, again when it is given up. Returns how often.
async fn endless(at: SocketAddr, request: Vec<u8>, time: Duration) -> u64 {
    let (since, mut begun) = (Instant::now(), 0);
    while since.elapsed() < time {
        let mut tcp = TcpStream::connect(at).await.unwrap();
        begun += 1;
        let left = time.saturating_sub(since.elapsed());
        let given_up = async {
            let _ = tcp.write_all(&request).await;
            let _ = tcp.read_to_end(&mut Vec::new()).await;
        };
        let _ = timeout(left, given_up).await;
    }
    begun
}

/// Sends calls, and hangs up before they are answered. Returns how many.
async fn cancelled(at: SocketAddr, time: Duration) -> u64 {
    let params = json!({ "name": "hostile__act", "arguments": { "how": "good" } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let body = body.to_string();
    let request = format!("{HEAD}content-length: {}\r\n\r\n{body}", body.len());
    let (since, mut calls) = (Instant::now(), 0);
    while since.elapsed() < time {
        let mut tcp = TcpStream::connect(at).await.unwrap();
        tcp.write_all(request.as_bytes()).await.unwrap();
        calls += 1;
        sleep(PAUSE).await;
    }
    calls
}

/// Begins sessions: 10,000, and more while there is time. Returns how many.
async fn sessions(url: String, time: Duration) -> u64 {
    let (since, client, mut begun) = (Instant::now(), reqwest::Client::new(), 0);
    while begun < 10_000 / SESSIONS || since.elapsed() < time {
        let answer = post(&client, &url, None, initialize()).await;
        let is_begun = answer.status() == 200;
        answer.bytes().await.unwrap();
        begun += u64::from(is_begun);
    }
    begun
}

/// Issue 52.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_clients_take_little_from_others() {
    let _alone = alone().await;
    let (program, url) = program("30s").await;
    let at: SocketAddr = url.split('/').nth(2).unwrap().parse().unwrap();
    let alone = innocent(&url, sleep(ALONE)).await;
    let (time, mut attacks) = (length(), JoinSet::new());
    let body = "[".repeat(1 << 19);
    let body = format!("{HEAD}content-length: 1900000\r\n\r\n{body}");
    // Fewer than there are places for calls: with as many, all others are refused.
    for _ in 0..40 {
        attacks.spawn(endless(at, body.clone().into_bytes(), time));
        attacks.spawn(endless(at, HEAD.into(), time));
    }
    for _ in 0..2 {
        attacks.spawn(cancelled(at, time));
    }
    for _ in 0..SESSIONS {
        attacks.spawn(sessions(url.replace("/rpc", "/mcp"), time));
    }
    let mut done = 0;
    let over = async {
        while let Some(more) = attacks.join_next().await {
            done += more.unwrap();
        }
    };
    let beside = innocent(&url, over).await;
    let memory = peak(&program);
    println!("hostile: {done} requests; {memory} MiB");
    assert!(memory < MEMORY, "it takes {memory} MiB");
    beside.is_as(&alone);
}
