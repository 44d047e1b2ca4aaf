//! Unmodified clients and servers of third parties, while the servers behind `wrap` are killed and
//! stopped.

use std::{cell::Cell, env, fs, path::PathBuf};

use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    kit::{Client, is_alive, wrapped},
    load::{Caller, Planned, Random, Sources, calls, named, signal, until},
};

/// A server that writes the id of its process to a file.
struct Server {
    command: Vec<String>,
    file: PathBuf,
    plan: Vec<Planned>,
}

fn servers(sources: &Sources, client: &str) -> Vec<Server> {
    let all = sources.servers().into_iter().map(|(name, words)| {
        let file = format!("wrap-{client}-{name}-{}", std::process::id());
        let file = env::temp_dir().join(file);
        let script = r#"echo $$ >"$0.new" && mv "$0.new" "$0" && exec "$@""#;
        let path = file.to_str().unwrap();
        let start = ["sh", "-c", script, path].map(str::to_owned);
        Server {
            command: [&start[..], &words].concat(),
            plan: sources.plan(Some(name)),
            file,
        }
    });
    all.collect()
}

impl Server {
    fn pid(&self) -> u32 {
        let pid = fs::read_to_string(&self.file).unwrap();
        pid.trim().parse().unwrap()
    }

    /// Kills the server and stops it, in turn. `another` waits for an answer of it.
    async fn disturb(&self, stream: u64, another: impl AsyncFn()) {
        another().await;
        let mut random = Random::new(stream);
        for round in 0..3.max(calls() / 30) {
            sleep(random.time()).await;
            let pid = self.pid();
            assert!(is_alive(&pid.to_string()), "it has ended by itself");
            if round % 2 == 0 {
                signal("-9", pid);
                until("it is not started again", || self.pid() != pid).await;
            } else {
                signal("-STOP", pid);
                sleep(random.time()).await;
                signal("-CONT", pid);
            }
            another().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// Calls by hand: no answer is left over.
async fn by_hand(server: &Server, stream: u64) {
    let mut client = Client::wrap(&[], &server.command).await;
    let (right, over) = (Cell::new(0), Cell::new(false));
    let calls = async {
        let mut failed = 0;
        for (n, it) in server.plan.iter().cycle().enumerate() {
            if n >= server.plan.len() && over.get() {
                break;
            }
            let result = client.call(it.tool, it.arguments.clone()).await;
            if result["isError"] == true || result["code"].is_number() {
                failed += 1;
                continue;
            }
            let said = result["content"].to_string();
            assert!(said.contains(&it.part), "{}: {said}", it.tool);
            right.set(right.get() + 1);
        }
        failed
    };
    let another = async || {
        let before = right.get();
        until("no right answer", || right.get() > before).await;
    };
    let disturb = async {
        server.disturb(stream, another).await;
        over.set(true);
    };
    let (failed, ()) = tokio::join!(calls, disturb);
    println!("ours: {} right answers, {failed} errors", right.get());
    assert!(right.get() > failed, "it hardly has an answer");
    let is_answer = |message: &&Value| message.get("method").is_none();
    assert_eq!(client.others.iter().find(is_answer), None);
}

async fn under_kills(client: &str) {
    let sources = Sources::new(&format!("wrap-{client}")).await;
    let servers = servers(&sources, client);
    let each = servers.iter().zip(0..).map(async |(server, stream)| {
        if client == "ours" {
            return by_hand(server, stream).await;
        }
        let command = wrapped(&[], &server.command);
        let plan = named(&server.plan, |it| it.tool.to_owned());
        let caller = match client {
            "npm" => Caller::node(&command, &plan).await,
            mode => Caller::python(mode, &command, &plan).await,
        };
        server
            .disturb(stream, async || caller.another().await)
            .await;
        let tally = caller.ended().await;
        assert!(tally.right > tally.failed, "it hardly has an answer");
    });
    join_all(each).await;
}

/// Issue 52.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pypis_client_has_its_answers_while_servers_are_killed() {
    under_kills("auto").await;
}

/// Issue 52.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn npms_client_has_its_answers_while_servers_are_killed() {
    under_kills("npm").await;
}

/// Issue 52.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_has_its_answers_while_servers_are_killed() {
    under_kills("ours").await;
}
