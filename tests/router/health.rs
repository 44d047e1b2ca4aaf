//! X6: servers that are not there.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use expect_test::expect;
use tokio::time::{Instant, advance, sleep, sleep_until};
use tokio_test::{assert_pending, task};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    ErrorKind, Execution, ServiceBuilderExt, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer,
    health::{Availability, Health},
    retry::{RetryLayer, RetryPolicy},
    router::{Router, RouterBuilder},
};
use tower_toolcall_test::{Script, Step};

const PERIOD: Duration = Duration::from_secs(30);

fn refusing() -> Health {
    let builder = Health::builder().with_refusal(true);
    builder.with_probe_period(PERIOD).build().unwrap()
}

/// The server `docs`, whose tools answer until the test says otherwise.
fn docs() -> Script<()> {
    Script::always(Step::ok(()))
}

fn router(docs: &Script<()>, health: &Health) -> Router<()> {
    builder(docs).with_health(health).build().unwrap()
}

fn builder(docs: &Script<()>) -> RouterBuilder<()> {
    let ok = Script::always(Step::ok(()));
    RouterBuilder::new()
        .tool("pay", ok.clone())
        .server("docs", docs.clone(), ["search", "fetch"])
        .server("web", ok, ["search"])
}

async fn run(router: &Router<()>, tool: &'static str) -> Result<(), ToolError> {
    let call = ToolCall::new(tool).with_id("c1");
    router.clone().oneshot(call).await
}

/// Whoever looks before the first call sees all servers.
#[tokio::test(start_paused = true)]
async fn servers_are_known_before_their_first_call() {
    let health = Health::new();
    let _router = router(&docs(), &health);
    let known = health.snapshot();
    let names: Vec<_> = known.iter().map(|s| s.server.as_deref().unwrap()).collect();
    assert_eq!(names, ["docs", "web"]);
    assert!(known.iter().all(|s| s.state == Availability::Available));
}

/// A server that is unavailable, by calls of its flat names.
async fn dead(health: &Health) -> (Script<()>, Router<()>) {
    let server = docs();
    let router = router(&server, health);
    server.set_then(Step::fail(ErrorKind::ConnectionFailed));
    for _ in 0..3 {
        run(&router, "docs__search").await.unwrap_err();
    }
    (server, router)
}

const ALL: [&str; 4] = ["docs__fetch", "docs__search", "pay", "web__search"];
const WITHOUT: [&str; 2] = ["pay", "web__search"];

#[tokio::test(start_paused = true)]
async fn a_call_to_a_server_that_is_not_there_fails_at_once() {
    let health = refusing();
    let (server, router) = dead(&health).await;
    let docs = health.server("docs").unwrap();
    assert_eq!(docs.state, Availability::Unavailable);

    let error = run(&router, "docs__fetch").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.execution(), error.retry_after()),
        (
            ErrorKind::ConnectionFailed,
            Execution::NotStarted,
            Some(PERIOD)
        )
    );
    assert_eq!(error.tool(), Some("docs__fetch"));
    assert_eq!(error.call_id(), Some("c1"));
    expect!["Tool 'docs__fetch' is unavailable for the moment: its server does not answer. Use another tool or continue without it."].assert_eq(&error.model_message());
    expect!["The tool 'docs__fetch' is unavailable for now. Please try again later."]
        .assert_eq(&error.user_message());
    assert_eq!(server.count(), 3);
    // The others are there.
    run(&router, "web__search").await.unwrap();
    run(&router, "pay").await.unwrap();
    assert!(health.server("pay").is_none());
}

#[tokio::test(start_paused = true)]
async fn its_tools_are_in_no_list_until_it_may_be_called() {
    let health = refusing();
    let (server, router) = dead(&health).await;
    assert_eq!(router.names(), WITHOUT);
    advance(PERIOD - Duration::from_millis(1)).await;
    assert_eq!(router.names(), WITHOUT);
    advance(Duration::from_millis(1)).await;
    assert_eq!(router.names(), ALL);

    // While the probe is under way; and when it has failed.
    server.set_then(Step::hang());
    let mut probe = task::spawn(router.clone().oneshot(ToolCall::new("docs__search")));
    assert_pending!(probe.poll());
    assert_eq!(router.names(), WITHOUT);
    drop(probe);
    assert_eq!(router.names(), ALL);
    server.set_then(Step::fail(ErrorKind::ConnectionFailed));
    run(&router, "docs__search").await.unwrap_err();
    assert_eq!(router.names(), WITHOUT);

    advance(PERIOD).await;
    server.set_then(Step::ok(()));
    run(&router, "docs__search").await.unwrap();
    assert_eq!(router.names(), ALL);
}

#[tokio::test(start_paused = true)]
async fn its_tools_are_not_told_instead_of_an_unknown_one() {
    let health = refusing();
    let (_, router) = dead(&health).await;
    for (name, near) in [
        ("serch", vec!["web__search"]),
        ("search", vec!["web__search"]),
        ("docs__serch", vec!["web__search"]),
        ("fetch", vec![]),
    ] {
        let error = run(&router, name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let text = error.model_message();
        assert!(!text.contains("'docs__search'"), "{text}");
        assert!(!text.contains("'docs__fetch'"), "{text}");
        assert!(near.iter().all(|name| text.contains(name)), "{text}");
    }
    // A call that names another server than the flat name does.
    let call = ToolCall::new("docs__search").with_server("web");
    let error = router.clone().oneshot(call.clone()).await.unwrap_err();
    assert!(!error.model_message().contains("without a server"));
    advance(PERIOD).await;
    let error = router.oneshot(call).await.unwrap_err();
    expect!["Tool 'docs__search' does not exist at server 'web'. Call it without a server."]
        .assert_eq(&error.model_message());
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_only_looks_on_leaves_nothing_out() {
    let health = Health::new();
    let (server, router) = dead(&health).await;
    let docs = health.server("docs").unwrap();
    assert_eq!(docs.state, Availability::Unavailable);
    assert_eq!(router.names(), ALL);
    run(&router, "docs__search").await.unwrap_err();
    assert_eq!(server.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn routers_may_share_a_registry() {
    let health = refusing();
    let (_, first) = dead(&health).await;
    let second = router(&docs(), &health);
    assert_eq!(second.names(), WITHOUT);
    run(&second, "docs__search").await.unwrap_err();
    advance(PERIOD).await;
    run(&second, "docs__search").await.unwrap();
    assert_eq!(first.names(), ALL);
}

/// A model that is shown no tool calls none: the clients are told when it is there again, by time
/// alone too.
#[tokio::test(start_paused = true)]
async fn whoever_follows_the_lists_hears_when_they_change() {
    let health = refusing();
    let server = docs();
    let router = router(&server, &health);
    let lists = Arc::new(Mutex::new(vec![(0, router.names().len())]));
    let begun = Instant::now();
    let (tells, listed) = (Arc::clone(&lists), router.clone());
    let tell = move || {
        let list = (begun.elapsed().as_secs(), listed.names().len());
        let mut lists = tells.lock().unwrap();
        if lists.last().map(|last| last.1) != Some(list.1) {
            lists.push(list);
        }
    };
    let follows = health.clone();
    // As in the docs of the router.
    let follower = tokio::spawn(async move {
        let mut servers = follows.subscribe_all();
        loop {
            let probes: Vec<_> = servers
                .borrow_and_update()
                .iter()
                .filter_map(|s| s.probe_at)
                .collect();
            let next = probes.into_iter().filter(|at| *at > Instant::now()).min();
            tokio::select! {
                changed = servers.changed() => if changed.is_err() { return },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
            tell();
        }
    });
    // A client that calls what it is shown; the server is dead from 10 s to 55 s.
    while begun.elapsed().as_secs() < 100 {
        let is_dead = (10..55).contains(&begun.elapsed().as_secs());
        server.set_then(match is_dead {
            true => Step::fail(ErrorKind::ConnectionFailed),
            false => Step::ok(()),
        });
        let is_shown = lists.lock().unwrap().last().unwrap().1 == ALL.len();
        if is_shown {
            let _ = run(&router, "docs__search").await;
        }
        sleep(Duration::from_millis(700)).await;
    }
    follower.abort();
    // Dead after the third call; the probe of 42.0 s fails, that of 72.1 s does not.
    let expected = [(0, 4), (11, 2), (41, 4), (42, 2), (72, 4)];
    assert_eq!(*lists.lock().unwrap(), expected);
}

/// The documented stack above knows no servers; and what it sees of a dead one is not its own.
#[tokio::test(start_paused = true)]
async fn a_registry_may_be_that_of_a_stack_around_the_router() {
    for server in [None, Some("docs")] {
        let health = refusing();
        let docs = docs();
        let stack = ServiceBuilder::new()
            .tool_health(&health)
            .service(router(&docs, &health));
        let run = || {
            let call = match server {
                Some(server) => ToolCall::new("search").with_server(server),
                None => ToolCall::new("docs__search"),
            };
            stack.clone().oneshot(call)
        };
        docs.set_then(Step::fail(ErrorKind::ConnectionFailed));
        for failures in 1..=3 {
            run().await.unwrap_err();
            assert_eq!(health.server("docs").unwrap().failures, failures);
        }
        run().await.unwrap_err();
        assert_eq!(docs.count(), 3, "{server:?}");
        let others = ToolCall::new("web__search");
        stack.clone().oneshot(others).await.unwrap();

        advance(PERIOD).await;
        docs.set_then(Step::ok(()));
        run().await.unwrap();
        assert_eq!(docs.count(), 4);
        let state = health.server("docs").unwrap().state;
        assert_eq!(state, Availability::Available, "{server:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_repeated_above_the_router_and_opens_no_breaker() {
    let health = refusing();
    let (_, router) = dead(&health).await;
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .layer(CircuitBreakerLayer::new())
        .service(router);
    let begun = Instant::now();
    for _ in 0..10 {
        let call = ToolCall::new("docs__search");
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// Its timeout is above the router, and drops what hangs below. V5: the other tool of the server
/// stays in the lists.
#[tokio::test(start_paused = true)]
async fn the_timeouts_of_the_documented_stack_are_seen_below_it() {
    let health = refusing();
    let server = docs();
    let router = router(&server, &health);
    let stack = ServiceBuilder::new()
        .tool_deadline(Duration::from_secs(100))
        .tool_retry(RetryPolicy::new().assume_replay_safe())
        .tool_rate_limit()
        .tool_circuit_breaker()
        .tool_timeout(Duration::from_secs(10))
        .tool_catch_panic()
        .service(router.clone());
    server.set_then(Step::hang());
    let call = ToolCall::new("docs__search");
    let error = stack.oneshot(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    // Three attempts.
    let docs = health.server("docs").unwrap();
    assert_eq!((docs.failures, docs.state), (3, Availability::Unavailable));
    assert_eq!(router.names(), ALL);
}

/// V5: the list tells how many tools a server has, before any of them has answered.
#[tokio::test(start_paused = true)]
async fn timeouts_of_one_tool_of_a_list_leave_the_others_there() {
    for (tools, is_refused) in [(vec!["search", "fetch"], false), (vec!["search"], true)] {
        let health = refusing();
        let slow = service_fn(|_: ToolCall| async {
            Err::<(), _>(ToolError::new(ErrorKind::Timeout, "so it is"))
        });
        let router = RouterBuilder::new().server("docs", slow, tools);
        let router = router.with_health(&health).build().unwrap();
        for _ in 0..3 {
            let error = run(&router, "docs__search").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
        }
        assert_eq!(router.names().is_empty(), is_refused);
    }
}

/// V5: and timeouts of two of them take all away.
#[tokio::test(start_paused = true)]
async fn timeouts_of_two_tools_take_the_server_out_of_the_lists() {
    let health = refusing();
    let server = docs();
    let router = router(&server, &health);
    server.set_then(Step::fail(ErrorKind::Timeout));
    for tool in ["docs__search", "docs__search", "docs__fetch"] {
        run(&router, tool).await.unwrap_err();
    }
    assert_eq!(router.names(), WITHOUT);
}

/// One registry above the router and below it, and a timeout between the two: the upper one cannot
/// know for whom a flat name is, nor that the other one has counted.
#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_takes_no_other_tool_with_it() {
    let health = refusing();
    let server = docs();
    let stack = ServiceBuilder::new()
        .tool_health(&health)
        .tool_timeout(Duration::from_secs(10))
        .service(router(&server, &health));
    server.set_then(Step::hang());
    for _ in 0..3 {
        let call = ToolCall::new("docs__search").with_timeout(Duration::from_secs(10));
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }
    assert_eq!(
        health.server("docs").unwrap().state,
        Availability::Unavailable
    );
    for name in ["web__search", "pay"] {
        stack.clone().oneshot(ToolCall::new(name)).await.unwrap();
    }
}

/// It hides the tools from a client that lists them meanwhile, and no end of it will tell that they
/// are back.
#[tokio::test(start_paused = true)]
async fn whoever_watches_knows_when_a_probe_that_hangs_gives_the_tools_back() {
    let health = refusing();
    let (server, router) = dead(&health).await;
    let servers = health.subscribe_all();
    advance(PERIOD).await;
    assert_eq!(router.names(), ALL);
    server.set_then(Step::hang());
    let call = ToolCall::new("docs__search");
    let mut probe = task::spawn(router.clone().oneshot(call));
    assert_pending!(probe.poll());
    assert_eq!(router.names(), WITHOUT);
    assert!(servers.has_changed().unwrap());
    let docs = |s: &&tower_toolcall::health::ServerHealth| s.server.as_deref() == Some("docs");
    let next = servers.borrow().iter().find(docs).unwrap().probe_at;
    sleep_until(next.unwrap()).await;
    assert_eq!(router.names(), ALL);
}
