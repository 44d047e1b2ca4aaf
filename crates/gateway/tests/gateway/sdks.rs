//! Unmodified clients and servers of third parties, while the servers are killed and stopped.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tower_toolcall::settings::Settings;
use tower_toolcall_mcp::McpServer;

use crate::{
    kit::{LIMIT, Running, alone, of_servers, rpc},
    load::{Caller, Planned, Random, Sources, calls, named, signal, until},
    wire::{call, session},
};

/// From the moment at which the server is up to its first answer.
const BACK: Duration = Duration::from_millis(1500);

fn of_gateway(it: &Planned) -> String {
    format!("{}__{}", it.server, it.tool)
}

/// Calls over a session by hand until all is over: each answer is that of its call, and the only
/// one.
async fn ours(url: String, plan: Vec<Planned>, over: CancellationToken) -> [usize; 2] {
    let client = Client::new();
    let session = session(&client, &url).await;
    let mut ends = [0; 2];
    for (n, it) in plan.iter().cycle().enumerate() {
        if n >= plan.len() && over.is_cancelled() {
            break;
        }
        let (id, tool) = (n as u64 + 1, of_gateway(it));
        let answers = call(&client, &url, &session, id, &tool, &it.arguments).await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        let result = &answers[0]["result"];
        let is_error = result["isError"] == true || answers[0]["error"].is_object();
        let said = result["content"].to_string();
        assert!(is_error || said.contains(&it.part), "{tool}: {answers:?}");
        ends[usize::from(is_error)] += 1;
    }
    ends
}

/// Calls until there is an answer, and returns how long that took.
async fn first(gateway: &Running, it: &Planned) -> Duration {
    let (client, since) = (Client::new(), Instant::now());
    loop {
        let answer = rpc(
            &client,
            &gateway.url("/rpc"),
            1,
            &of_gateway(it),
            &it.arguments,
        )
        .await;
        let result = answer.get("result");
        if result.is_some_and(|result| result.to_string().contains(&it.part)) {
            return since.elapsed();
        }
        assert!(since.elapsed() < LIMIT, "it does not come back: {answer}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Kills a server and stops it, in turn. Returns how long its first answers take, from the moment
/// at which it is up or goes on.
async fn disturb(
    gateway: &Running,
    (n, server): (usize, &McpServer),
    plan: &[Planned],
    rounds: u32,
) -> Vec<Duration> {
    let it = plan
        .iter()
        .find(|it| *it.server == **server.name())
        .unwrap();
    let (mut random, mut backs) = (Random::new(n as u64), Vec::new());
    for round in 0..rounds {
        sleep(random.time()).await;
        let pid = server.process_id().unwrap();
        if round % 2 == 0 {
            signal("-9", pid);
            let is_back = || {
                let another = server.process_id().is_some_and(|now| now != pid);
                another && server.connection().is_connected()
            };
            until("it is not started again", is_back).await;
        } else {
            signal("-STOP", pid);
            sleep(random.time()).await;
            signal("-CONT", pid);
        }
        backs.push(first(gateway, it).await);
    }
    backs
}

/// Returns the median of calls of a local tool, one after the other.
async fn median(gateway: &Running) -> Duration {
    let (client, url) = (Client::new(), gateway.url("/mcp"));
    let session = session(&client, &url).await;
    let arguments = json!({ "text": "one two three" });
    let mut times = Vec::new();
    for n in 1..200 {
        let since = Instant::now();
        call(&client, &url, &session, n, "count_words", &arguments).await;
        times.push(since.elapsed());
    }
    times.sort();
    times[times.len() / 2]
}

/// Issue 52: each call has one answer, and its own; each server is back soon after it is up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn third_parties_have_their_answers_while_servers_are_killed() {
    let _alone = alone().await;
    let sources = Sources::new("sdks").await;
    let servers = sources.servers().into_iter().map(|(name, words)| {
        let words = shlex::try_join(words.iter().map(String::as_str)).unwrap();
        format!("{name}={words}").parse().unwrap()
    });
    let gateway = of_servers(Settings::gateway(), servers.collect()).await;
    let gateway = Running::serve(gateway).await;
    println!("p50 of /mcp {:?}", median(&gateway).await);

    let (plan, url) = (sources.plan(None), gateway.url("/mcp"));
    let (named, at): (Value, _) = (named(&plan, of_gateway), [url.clone()]);
    let callers = [
        Caller::python("auto", &at, &named).await,
        Caller::python("legacy", &at, &named).await,
        Caller::node(&at, &named).await,
    ];
    let over = CancellationToken::new();
    let ours = tokio::spawn(ours(url, plan.clone(), over.clone()));
    join_all(callers.iter().map(Caller::another)).await;
    // As long as an answer takes here and now.
    let mut usual = Duration::ZERO;
    for it in plan.iter().take(30) {
        usual = usual.max(first(&gateway, it).await);
    }

    let rounds = 3.max(calls() / 30);
    let servers = gateway.upstreams.iter().enumerate();
    let backs = servers.map(|server| disturb(&gateway, server, &plan, rounds));
    let backs = join_all(backs).await.concat();

    over.cancel();
    for caller in callers {
        let tally = caller.ended().await;
        assert!(tally.right > tally.failed, "it hardly has an answer");
    }
    let [right, failed] = ours.await.unwrap();
    let longest = *backs.iter().max().unwrap();
    println!("ours: {right} right answers, {failed} errors; usual {usual:?}, back {longest:?}");
    assert!(longest < BACK + 10 * usual, "{backs:?}");
    gateway.stopped().await;
}
