//! The stack of the example `mcp_stdio` around a third party's server in a child process: npm's
//! `@modelcontextprotocol/server-everything`, which `tests/run` installs.
//!
//! Real time, and a server of its own for each test.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt as _;
use tower_toolcall::{
    Classify as _, ErrorKind, Execution, ModelText as _, Outcome, ReplaySafety, ToolCall,
    ToolError,
    backoff::Backoff,
    circuit_breaker::{BreakerState, CircuitBreakerHandle, CircuitBreakerLayer},
    error::TimeoutLimit,
};
use tower_toolcall_mcp::{McpAnswer, McpClassifier, McpServer};
use tracing_subscriber::fmt::format::FmtSpan;

use self::example::{LONG, Server, Tools, Way, installed, stack};
use crate::log::Log;

#[allow(dead_code, reason = "the transcript is the example's alone")]
#[path = "../../examples/mcp_stdio.rs"]
mod example;

/// A server, the stack around it, and all that went over the wire.
struct Bench {
    server: Server,
    tools: Tools,
    breakers: CircuitBreakerHandle,
    wire: Arc<Mutex<Vec<(Way, Value)>>>,
}

/// Runs a test against a server of its own, and bounds it: nothing may hang.
async fn bench(test: impl AsyncFnOnce(&mut Bench)) {
    bench_with(McpClassifier::new(), test).await;
}

/// The same with a breaker that is told by another classifier.
async fn bench_with(classifier: McpClassifier, test: impl AsyncFnOnce(&mut Bench)) {
    let breaker = CircuitBreakerLayer::builder()
        .with_classifier(classifier)
        .build()
        .unwrap();
    let wire = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&wire);
    let run = async {
        let seen = move |way, message: &Value| seen.lock().unwrap().push((way, message.clone()));
        let server = Server::start(installed().unwrap(), seen).await.unwrap();
        let mut bench = Bench {
            tools: stack(server.tools(), breaker.clone()).unwrap(),
            server,
            breakers: breaker.handle(),
            wire,
        };
        test(&mut bench).await;
    };
    bounded(run).await;
}

async fn bounded(test: impl Future<Output = ()>) {
    let limit = Duration::from_secs(60);
    timeout(limit, test).await.expect("it hangs");
}

impl Bench {
    async fn run(&self, call: ToolCall) -> Result<McpAnswer, ToolError> {
        self.tools.clone().oneshot(call).await
    }

    /// The messages of one direction that have this method.
    fn messages(&self, way: Way, method: &str) -> Vec<Value> {
        let wire = self.wire.lock().unwrap();
        let these = wire
            .iter()
            .filter(|(w, m)| *w == way && m["method"] == method);
        these.map(|(_, m)| m.clone()).collect()
    }

    /// The ids of the calls that were sent.
    fn sent(&self) -> Vec<Value> {
        let calls = self.messages(Way::ToServer, "tools/call");
        calls.into_iter().map(|call| call["id"].clone()).collect()
    }

    /// Whether the server has answered the request of this id.
    fn answered(&self, id: &Value) -> bool {
        let wire = self.wire.lock().unwrap();
        wire.iter()
            .any(|(way, m)| *way == Way::FromServer && m["id"] == *id && m.get("result").is_some())
    }

    /// Waits until the server has reported so many steps.
    async fn progress(&self, steps: u32) {
        let reported = || {
            let reports = self.messages(Way::FromServer, "notifications/progress");
            let step = |m: &Value| m["params"]["progress"].as_f64() == Some(steps.into());
            reports.iter().any(step)
        };
        while !reported() {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

fn call(tool: &str, arguments: Value) -> ToolCall {
    ToolCall::new(tool).with_json(arguments).unwrap()
}

fn echo(message: &str) -> ToolCall {
    call("echo", json!({ "message": message }))
}

/// A call that takes `ms` milliseconds, and reports progress in so many steps.
fn long(ms: u32, steps: u32) -> ToolCall {
    let arguments = json!({ "duration": f64::from(ms) / 1000.0, "steps": steps });
    call(LONG, arguments)
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
//# Clients SHOULD support stdio whenever possible.
#[tokio::test]
async fn a_text_comes_back() {
    bench(async |bench| {
        let result = bench.run(echo("grüß dich")).await.unwrap();
        assert_eq!(result.model_text(), "Echo: grüß dich");
        assert_eq!(result.result().unwrap().is_error, None);
    })
    .await;
}

/// X4, R6: behind a router, by flat names, with the server's own catalog.
#[tokio::test]
async fn a_router_has_its_tools() {
    bench(async |bench| {
        let catalog = bench.server.tools().catalog().await.unwrap();
        let router = tower_toolcall_mcp::router()
            .server("every", bench.tools.clone(), catalog)
            .build()
            .unwrap();
        assert!(
            router
                .definitions()
                .iter()
                .any(|t| t.name() == "every__echo")
        );
        let hi = ToolCall::new("every__echo").with_json(json!({ "message": "hi" }));
        let answer = router.clone().oneshot(hi.unwrap()).await.unwrap();
        assert_eq!(answer.model_text(), "Echo: hi");

        let before = bench.sent().len();
        let error = router
            .oneshot(ToolCall::new("every__ecko"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(
            error
                .model_message()
                .contains("Did you mean 'every__echo'?")
        );
        assert_eq!(bench.sent().len(), before, "the server is not asked");
    })
    .await;
}

/// X5: the model reads the text that goes with it.
#[tokio::test]
async fn structured_content_comes_back() {
    bench(async |bench| {
        let chicago = call("get-structured-content", json!({ "location": "Chicago" }));
        let result = bench.run(chicago).await.unwrap();
        let weather =
            json!({ "temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82 });
        let structured = &result.result().unwrap().structured_content;
        assert_eq!(*structured, Some(weather.clone()));
        let text: Value = serde_json::from_str(&result.model_text()).unwrap();
        assert_eq!(text, weather);
    })
    .await;
}

/// T8: the stack's idle timeout is 1 s.
#[tokio::test]
async fn an_operation_beyond_the_idle_timeout_passes_with_progress() {
    bench(async |bench| {
        let start = Instant::now();
        let result = bench.run(long(1600, 8)).await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(1500));
        assert!(result.model_text().contains("completed"));
        assert_eq!(bench.sent().len(), 1);
    })
    .await;
}

/// T8.
#[tokio::test]
async fn an_operation_without_progress_is_ended_by_the_idle_timeout() {
    bench(async |bench| {
        let error = bench.run(long(3000, 1)).await.unwrap_err();
        assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Idle));
        assert_eq!(error.execution(), Execution::Unknown);
    })
    .await;
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#timeouts
//# SDKs and other middleware SHOULD allow these timeouts to be configured on a per-request basis.
//# However, implementations SHOULD always enforce a maximum timeout, regardless of progress
//# notifications, to limit the impact of a misbehaving client or server.
/// T2, T8: the total holds with progress, and the call's own beats the tool's 5 s.
#[tokio::test]
async fn the_total_is_hard_whatever_progress_is_reported() {
    bench(async |bench| {
        let total = Duration::from_millis(700);
        let ended = bench.run(long(2000, 10).with_timeout(total)).await;
        let error = ended.unwrap_err();
        assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Timeout));
        assert_eq!(error.timeout(), Some(total));
        bench.progress(1).await;
    })
    .await;
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/index#requests
//# The request ID MUST NOT have been previously used by the requestor within the same session.
/// T3, T4, R6: the server is told, once and of the right call. It works on all the same, which is
/// why the call may have run, but it does not answer any more.
#[tokio::test]
async fn a_timeout_cancels_and_the_server_stays_usable() {
    bench(async |bench| {
        let short = Duration::from_millis(300);
        let error = bench.run(long(1200, 2).with_timeout(short)).await;
        let error = error.unwrap_err();
        assert_eq!(
            (error.kind(), error.code(), error.execution()),
            (ErrorKind::Timeout, "TOOL_TIMEOUT", Execution::Unknown)
        );
        assert!(error.is_retryable());

        assert!(bench.run(echo("at once")).await.is_ok());

        let told = bench.messages(Way::ToServer, "notifications/cancelled");
        let [timed_out, at_once] = &bench.sent()[..] else {
            panic!("{:?}", bench.sent())
        };
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0]["params"]["requestId"], *timed_out);

        bench.progress(2).await;
        bench.run(echo("after the last step")).await.unwrap();
        assert!(bench.answered(at_once));
        assert!(!bench.answered(timed_out), "the server was not told");
    })
    .await;
}

/// T4: so does a caller that goes away.
#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    bench(async |bench| {
        let call = bench.run(long(1000, 1));
        assert!(timeout(Duration::from_millis(200), call).await.is_err());
        bench.run(echo("next")).await.unwrap();
        let told = bench.messages(Way::ToServer, "notifications/cancelled");
        assert_eq!(told.len(), 1);
        assert_eq!(told[0]["params"]["requestId"], bench.sent()[0]);
    })
    .await;
}

/// A tool that the server does not have, and arguments that it does not take. To be repeated, if
/// any answer were.
fn mistakes() -> [(ToolCall, &'static str); 2] {
    let safe = |call: ToolCall| call.with_replay_safety(ReplaySafety::Safe);
    [
        (
            safe(call("ecko", json!({ "message": "hi" }))),
            "MCP error -32602: Tool ecko not found",
        ),
        (
            safe(call("echo", json!({ "massage": "hi" }))),
            "MCP error -32602: Input validation error: Invalid arguments for tool echo",
        ),
    ]
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#error-handling
//# Clients SHOULD provide tool execution errors to language models to enable self-correction.
/// E6, R2, C5: this server answers both with `isError`; the model reads its words.
#[tokio::test]
async fn mistakes_are_answers_that_are_not_repeated_and_open_no_breaker() {
    bench(async |bench| {
        for (call, words) in mistakes() {
            let before = bench.sent().len();
            for _ in 0..6 {
                let result = bench.run(call.clone()).await.unwrap();
                assert_eq!(result.result().unwrap().is_error, Some(true));
                assert!(result.model_text().starts_with(words), "{result:?}");
            }
            assert_eq!(bench.sent().len() - before, 6);
            assert_eq!(bench.breakers.breaker(&call).state(), BreakerState::Closed);
        }
    })
    .await;
}

/// V6, C5: nor where flagged results count, as in a gateway: refused arguments are the caller's.
#[tokio::test]
async fn refused_arguments_open_no_breaker_where_flagged_results_count() {
    let strict = McpClassifier::new().with_reported(Outcome::tool_failure());
    bench_with(strict, async |bench| {
        for (call, _) in mistakes() {
            for _ in 0..6 {
                bench.run(call.clone()).await.unwrap();
            }
            let breaker = bench.breakers.breaker(&call).snapshot();
            assert_eq!(
                (breaker.state, breaker.failed_total),
                (BreakerState::Closed, 0)
            );
        }
    })
    .await;
}

/// E6, O1.
#[tokio::test]
async fn mistakes_are_reported_to_observers() {
    let (log, _guard) = Log::with_spans(FmtSpan::CLOSE);
    let of = |id: &str| {
        let mut lines = log.lines();
        lines.retain(|line| line.to_string().contains(id));
        let closed = lines.iter().find(|line| line["message"] == "close");
        let error = closed.unwrap()["span"]["error.type"].clone();
        let ended = |name: &str| lines.iter().any(|line| line["message"] == name);
        (ended("tool.success"), ended("tool.failure"), error)
    };
    bench(async |bench| {
        for ((call, _), id) in mistakes().into_iter().zip(["call-m1", "call-m2"]) {
            let result = bench.run(call.with_id(id)).await.unwrap();
            let outcome = McpClassifier::new().classify(Ok(&result));
            assert_eq!(outcome, Outcome::mistake());
            assert_eq!(of(id), (false, true, json!("tool_error")));
        }
        bench.run(echo("hi").with_id("call-ok")).await.unwrap();
        assert_eq!(of("call-ok"), (true, false, Value::Null));
    })
    .await;
}

/// Kills the server in the middle of a call, and says how that one ended.
async fn killed_during(bench: &mut Bench, call: ToolCall) -> (ToolError, Duration) {
    let call = tokio::spawn(bench.tools.clone().oneshot(call));
    bench.progress(1).await;
    let killed = Instant::now();
    bench.server.kill().await.unwrap();
    (call.await.unwrap().unwrap_err(), killed.elapsed())
}

/// E2, R6: it may have run, so it is not sent again.
#[tokio::test]
async fn a_server_killed_in_mid_call_ends_an_unsafe_call_before_its_timeout() {
    bench(async |bench| {
        let unsafe_call = long(4000, 40).with_replay_safety(ReplaySafety::Unsafe);
        let (error, took) = killed_during(bench, unsafe_call).await;
        assert_eq!(
            (error.kind(), error.execution(), error.attempts()),
            (ErrorKind::ConnectionFailed, Execution::Unknown, Some(1))
        );
        assert_eq!(
            (error.tool(), error.server()),
            (Some(LONG), Some("everything"))
        );
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert_eq!(bench.sent().len(), 1);
    })
    .await;
}

/// R3, R6: a call that may run twice is sent again, in vain; the first attempt may have run all the
/// same.
#[tokio::test]
async fn a_server_killed_in_mid_call_costs_a_safe_call_all_attempts() {
    bench(async |bench| {
        let safe_call = long(4000, 40).with_replay_safety(ReplaySafety::Safe);
        let (error, took) = killed_during(bench, safe_call).await;
        assert_eq!(
            (error.kind(), error.execution(), error.attempts()),
            (ErrorKind::ConnectionFailed, Execution::Unknown, Some(3))
        );
        assert!(took < Duration::from_secs(4), "{took:?}");
    })
    .await;
}

/// C1, C4: 5 failures open the breaker; then nothing is tried any more.
#[tokio::test]
async fn calls_to_a_dead_server_fail_fast_and_open_the_breaker() {
    bench(async |bench| {
        bench.run(echo("alive")).await.unwrap();
        bench.server.kill().await.unwrap();
        // What is sent in the moment of its death may have arrived, for all that the client knows.
        while !bench.server.tools().peer().is_transport_closed() {
            sleep(Duration::from_millis(5)).await;
        }

        // Three attempts, and two.
        let error = bench.run(echo("1")).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.execution(), error.attempts()),
            (ErrorKind::ConnectionFailed, Execution::NotStarted, Some(3))
        );
        assert!(bench.run(echo("2")).await.is_err());
        assert!(bench.breakers.breaker(&echo("")).is_open());

        let error = bench.run(echo("3")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CircuitOpen);
        assert!(error.retry_after().is_some());
    })
    .await;
}

/// Unforced: with its own exit code.
#[tokio::test]
async fn the_child_ends_with_the_connection() {
    let run = async {
        let server = Server::start(installed().unwrap(), |_, _| {})
            .await
            .unwrap();
        // A server that has something to say as the pipes close dies of that.
        server.tools().oneshot(echo("bye")).await.unwrap();
        assert_eq!(server.stop().await.unwrap().code(), Some(0));
    };
    bounded(run).await;
}

/// X8: nobody calls, and nothing is left of it all the same; the next call has another child.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_idle_child_that_dies_leaves_no_zombie() {
    bounded(async {
        let (every, _) = reconnecting();
        every.clone().oneshot(echo("hi")).await.unwrap();
        let first = every.process_id().unwrap();
        kill(first);
        while every.connection().is_connected() || exists(&first) {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(every.process_id(), None);
        every.clone().oneshot(echo("hi")).await.unwrap();
        let second = every.process_id().unwrap();
        assert!(exists(&second));
        drop(every);
        while exists(&second) {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// X8: in the middle of its handshake: as it starts, and when the last clone of the leaf goes.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_child_that_is_starting_ends_with_the_last_clone() {
    bounded(async {
        let (every, starts) = reconnecting();
        assert_eq!(every.process_id(), None);
        let call = tokio::spawn(every.clone().oneshot(echo("hi")));
        let pid = loop {
            sleep(Duration::from_millis(1)).await;
            if let Some(pid) = every.process_id() {
                break pid;
            }
        };
        call.abort();
        drop(every);
        while exists(&pid) {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(starts.load(SeqCst), 1);
    })
    .await;
}

/// A server, and how often it was started.
#[cfg(target_os = "linux")]
fn reconnecting() -> (McpServer, Arc<AtomicUsize>) {
    let starts = Arc::new(AtomicUsize::new(0));
    let started = Arc::clone(&starts);
    let server = McpServer::spawn("everything", move || {
        started.fetch_add(1, SeqCst);
        installed().unwrap()
    });
    let often = Backoff::fixed(Duration::from_millis(50)).unwrap();
    let server = server.with_connection(|it| Ok(it.with_backoff(often)));
    (server.unwrap(), starts)
}

#[cfg(target_os = "linux")]
fn kill(pid: u32) {
    let mut kill = std::process::Command::new("kill");
    let killed = kill.args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
}

/// Also as a zombie.
#[cfg(target_os = "linux")]
fn exists(pid: &u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio#unexpected-termination
//# If the server process exits unexpectedly, the client SHOULD restart it.
/// X8: whatever happens to the server, each call has one answer in its time, the connection comes
/// back by itself, and nothing is left behind.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_again_and_again_comes_back() {
    bounded(killed_again_and_again()).await;
}

#[cfg(target_os = "linux")]
async fn killed_again_and_again() {
    const KILLS: usize = 5;
    let metrics = tokio::runtime::Handle::current().metrics();
    let tasks_before = metrics.num_alive_tasks();
    let (every, starts) = reconnecting();

    let stop = Arc::<AtomicBool>::default();
    let answers = Arc::<AtomicUsize>::default();
    // More than a call waits for a connection.
    let budget = Duration::from_secs(8);
    let callers: Vec<_> = (0..20)
        .map(|caller| {
            let (every, stop, answers) = (every.clone(), Arc::clone(&stop), Arc::clone(&answers));
            tokio::spawn(async move {
                let (mut failed, mut n) = (0, 0);
                while !stop.load(SeqCst) {
                    let text = format!("{caller}-{n}");
                    let start = Instant::now();
                    let call = match caller < 10 {
                        true => echo(&text),
                        false => long(50, 1),
                    };
                    let call = call.with_deadline(start + budget);
                    let answer = every.clone().oneshot(call).await;
                    // It would wait for ever without a deadline.
                    assert!(start.elapsed() < budget + Duration::from_secs(20));
                    n += 1;
                    match answer {
                        Ok(answer) => {
                            let echo = format!("Echo: {text}");
                            assert!(caller >= 10 || answer.model_text() == echo);
                            answers.fetch_add(1, SeqCst);
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::ConnectionFailed, "{error}");
                            failed += 1;
                            sleep(error.retry_after().unwrap_or_default()).await;
                        }
                    }
                    sleep(Duration::from_millis(2)).await;
                }
                failed
            })
        })
        .collect();

    let mut pids = Vec::new();
    for _ in 0..KILLS {
        // It is up, and has answered since.
        let before = answers.load(SeqCst);
        while answers.load(SeqCst) < before + 40 {
            sleep(Duration::from_millis(5)).await;
        }
        pids.extend(every.process_id());
        kill(*pids.last().unwrap());
        while starts.load(SeqCst) == pids.len() {
            sleep(Duration::from_millis(5)).await;
        }
    }
    let before = answers.load(SeqCst);
    while answers.load(SeqCst) < before + 40 {
        sleep(Duration::from_millis(5)).await;
    }
    stop.store(true, SeqCst);
    let mut failed = 0;
    for caller in callers {
        failed += caller.await.unwrap();
    }
    // The calls in flight, and no storm.
    assert!((KILLS..=KILLS * 60).contains(&failed), "{failed}");
    pids.extend(every.process_id());
    let started = (starts.load(SeqCst), pids.len());
    assert_eq!(started, (KILLS + 1, KILLS + 1), "one was not needed");

    while pids[..KILLS].iter().any(exists) {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(exists(&pids[KILLS]));
    drop(every);
    while pids.iter().any(exists) || metrics.num_alive_tasks() > tasks_before {
        sleep(Duration::from_millis(5)).await;
    }
}
