//! A call of a tool that only reads gets the answer that the same call has got before; nobody gets
//! another one's.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, advance, sleep, timeout};
use tower::{Layer, Service, ServiceExt};
use tower_toolcall::{
    ErrorKind, Execution, ReplaySafety, ToolCall, ToolError,
    answer::{self, KnownAnswer},
    cache::{CacheBuilder, CacheLayer},
    outcome::Outcome,
};
use tower_toolcall_test::{Events, Script, Step};

use crate::kit;

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(60);

type Tool = Script<&'static str>;

fn builder() -> CacheBuilder {
    CacheLayer::builder(TTL, ["search", "docs__search"])
}

fn layer() -> CacheLayer {
    builder().build().unwrap()
}

fn query(text: &str) -> ToolCall {
    ToolCall::new("search")
        .with_session_id("s1")
        .with_json(json!({ "query": text }))
        .unwrap()
}

async fn make<C>(
    layer: &CacheLayer<C>,
    tool: &Tool,
    call: ToolCall,
) -> Result<&'static str, ToolError>
where
    C: tower_toolcall::Classify<&'static str> + Clone,
{
    layer.layer(tool.clone()).oneshot(call).await
}

fn counted() -> Tool {
    Tool::new(["r1", "r2", "r3", "r4"].map(Step::ok))
}

/// A layer below may have changed the type of the answer.
#[tokio::test(start_paused = true)]
async fn an_answer_to_a_question_passes_whatever_the_tools_answer_is_made_into() {
    #[derive(Clone)]
    struct Reply;
    impl KnownAnswer for Reply {
        fn hash_input(extensions: &http::Extensions, _: &mut dyn std::hash::Hasher) -> bool {
            extensions.get::<Self>().is_some()
        }
    }
    answer::register::<Reply>();
    let (layer, tool, mut replies) = (layer(), counted(), query("a"));
    replies.extensions_mut().insert(Reply);
    assert_eq!(make(&layer, &tool, query("a")).await.unwrap(), "r1");
    assert_eq!(make(&layer, &tool, replies).await.unwrap(), "r2");
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_given_until_it_is_stale() {
    let (layer, tool) = (layer(), counted());
    for _ in 0..3 {
        assert_eq!(make(&layer, &tool, query("a")).await.unwrap(), "r1");
    }
    advance(TTL - SECOND).await;
    assert_eq!(make(&layer, &tool, query("a")).await.unwrap(), "r1");
    advance(SECOND).await;
    assert_eq!(make(&layer, &tool, query("a")).await.unwrap(), "r2");
    let counts = layer.handle().counts();
    assert_eq!((counts.hits, counts.shared, counts.misses), (3, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn other_calls_have_other_answers() {
    let (layer, tool) = (layer(), Tool::always(Step::ok("r")));
    let calls = [
        query("a"),
        query("b"),
        query("a").with_server("docs"),
        query("a").with_session_id("s2"),
        query("a").with_agent_id("a1"),
        query("a").with_agent_id("a1").with_session_id("s2"),
    ];
    for (n, call) in calls.into_iter().enumerate() {
        for _ in 0..2 {
            make(&layer, &tool, call.clone()).await.unwrap();
        }
        assert_eq!(tool.count(), n as u64 + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn subjects_of_one_session_have_answers_of_their_own() {
    let (layer, tool) = (layer(), Tool::always(Step::ok("r")));
    for (subject, sent) in [("u1", 1), ("u2", 2), ("u1", 2)] {
        make(&layer, &tool, query("a").with_subject_token(subject))
            .await
            .unwrap();
        assert_eq!(tool.count(), sent);
    }
}

/// No server's tool is taken for that of another one.
#[tokio::test(start_paused = true)]
async fn of_other_calls_nothing_is_kept() {
    let (layer, tool) = (layer(), Tool::always(Step::ok("r")));
    let calls = [
        ToolCall::new("pay").with_session_id("s1"),
        query("a").with_server("evil"),
        ToolCall::new("search"),
        query("a").with_replay_safety(ReplaySafety::Unsafe),
        ToolCall::new("fetch")
            .with_session_id("s1")
            .with_replay_safety(ReplaySafety::Safe),
    ];
    for (n, call) in calls.into_iter().enumerate() {
        for again in 1..=2 {
            make(&layer, &tool, call.clone()).await.unwrap();
            assert_eq!(tool.count(), 2 * n as u64 + again);
        }
    }
    assert!(layer.handle().is_empty());
}

#[tokio::test(start_paused = true)]
async fn all_have_the_same_answers_if_the_layer_says_so() {
    let (layer, tool) = (builder().shared().build().unwrap(), counted());
    make(&layer, &tool, query("a")).await.unwrap();
    let other = query("a").with_session_id("s2");
    assert_eq!(make(&layer, &tool, other).await.unwrap(), "r1");
}

#[tokio::test(start_paused = true)]
async fn no_failure_is_kept() {
    let tool = Tool::new([
        Step::fail(ErrorKind::NotFound),
        Step::ok("no such row"),
        Step::ok("r1"),
    ]);
    let layer = builder()
        .classify_fn(|result: Result<&&str, &ToolError>| match result {
            Ok(&"no such row") => Outcome::reported(),
            _ => Outcome::success(),
        })
        .build()
        .unwrap();
    make(&layer, &tool, query("a")).await.unwrap_err();
    assert!(layer.handle().is_empty());
    for answer in ["no such row", "r1", "r1"] {
        assert_eq!(make(&layer, &tool, query("a")).await.unwrap(), answer);
    }
    assert_eq!(tool.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_the_leaf_reports_is_no_success() {
    let tool = tower::service_fn(|call: ToolCall| async move {
        call.record(|record| record.set_reported(true));
        Ok::<_, ToolError>("isError")
    });
    let (layer, events) = (layer(), Events::new());
    // Whether anybody observes it or not.
    for n in 1..=4 {
        let mut call = query("a");
        let _below = (n > 2).then(|| events.observe(&mut call));
        layer.layer(tool).oneshot(call).await.unwrap();
        assert_eq!(layer.handle().counts().misses, n);
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_callers_share_one_answer() {
    let layer = layer();
    let tool = Tool::always(Step::ok("r").after(SECOND));
    let all: Vec<_> = (0..1000)
        .map(|_| tokio::spawn(layer.layer(tool.clone()).oneshot(query("a"))))
        .collect();
    let since = Instant::now();
    for one in all {
        assert_eq!(one.await.unwrap().unwrap(), "r");
    }
    assert_eq!((tool.count(), since.elapsed()), (1, SECOND));
    assert_eq!(layer.handle().counts().shared, 999);
}

/// A failure of the tool is that of all who wait; one of the caller's own is not.
#[tokio::test(start_paused = true)]
async fn a_failure_is_shared_unless_it_is_the_callers_own() {
    for (end, sent) in [
        (Step::fail(ErrorKind::Upstream), 1),
        (Step::fail(ErrorKind::Cancelled), 2),
    ] {
        let layer = layer();
        let tool = Tool::new([end.after(SECOND), Step::ok("r")]);
        let call = |id| layer.layer(tool.clone()).oneshot(query("a").with_id(id));
        let (first, second) = tokio::join!(call("c1"), call("c2"));
        first.unwrap_err();
        assert_eq!(tool.count(), sent);
        if let Err(error) = second {
            assert_eq!(error.kind(), ErrorKind::Upstream);
            assert_eq!(error.call_id(), Some("c2"));
        }
    }
    // Its own timeout, by whichever layer below.
    let layer = layer();
    let tool = Tool::new([Step::fail(ErrorKind::Timeout).after(SECOND), Step::ok("r")]);
    let hurried = query("a").with_timeout(SECOND);
    let (first, second) = tokio::join!(
        make(&layer, &tool, hurried),
        make(&layer, &tool, query("a"))
    );
    assert_eq!((first.is_err(), second.unwrap()), (true, "r"));
}

/// Who share answers by the operator's word may have other tokens and quotas.
#[tokio::test(start_paused = true)]
async fn a_strangers_refusal_is_not_that_of_others() {
    for (kind, sent) in [
        (ErrorKind::Denied, 2),
        (ErrorKind::TokenExchange, 2),
        (ErrorKind::RateLimited, 2),
        (ErrorKind::Upstream, 1),
    ] {
        let tool = Tool::new([Step::fail(kind).after(SECOND), Step::ok("r")]);
        let layer = builder().shared().build().unwrap();
        let mine = query("a").with_session_id("s2");
        let (strangers, _) =
            tokio::join!(make(&layer, &tool, query("a")), make(&layer, &tool, mine));
        assert_eq!((strangers.is_err(), tool.count()), (true, sent), "{kind:?}");
    }
}

/// Nobody waits behind a stranger's row of calls, each of which ends by what the stranger has
/// brought along.
#[tokio::test(start_paused = true)]
async fn a_strangers_row_of_calls_holds_up_nobody() {
    let denied = || Step::fail(ErrorKind::Denied).after(SECOND);
    for end in [denied, Step::hang] {
        let layer = builder().shared().build().unwrap();
        let strangers = Tool::always(end());
        let row: Vec<_> = (1..=10)
            .map(|n| {
                let call = layer.layer(strangers.clone()).oneshot(query("a"));
                tokio::spawn(timeout(n * SECOND, call))
            })
            .collect();
        tokio::task::yield_now().await;
        let since = Instant::now();
        let mine = query("a").with_session_id("s2");
        make(&layer, &counted(), mine).await.unwrap();
        assert_eq!(since.elapsed(), SECOND);
        row.iter().for_each(|call| call.abort());
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_takes_over_from_one_who_is_dropped() {
    let (layer, tool) = (layer(), Tool::new([Step::hang(), Step::ok("r")]));
    let first = timeout(SECOND, make(&layer, &tool, query("a")));
    let (first, second) = tokio::join!(first, make(&layer, &tool, query("a")));
    assert_eq!((first.is_err(), second.unwrap()), (true, "r"));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_has_its_own_deadline() {
    let layer = layer();
    let tool = Tool::always(Step::ok("r").after(10 * SECOND));
    let hurried = query("a").with_deadline(Instant::now() + SECOND);
    let (first, second) = tokio::join!(
        make(&layer, &tool, query("a")),
        make(&layer, &tool, hurried)
    );
    let error = second.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(error.execution(), Execution::NotStarted);
    first.unwrap();
}

/// A default is never at fault: only a size that was set can be too large for the bytes.
#[tokio::test(start_paused = true)]
async fn the_largest_answer_is_by_default_at_most_the_share_of_a_principal() {
    let layer = builder().with_max_bytes(80);
    let layer = layer.with_size(|text: &&str| text.len() as u64);
    let layer = layer.build().unwrap();
    let tool = Tool::always(Step::ok("10 letters"));
    let call = || make(&layer, &tool, query("a"));
    call().await.unwrap();
    call().await.unwrap();
    assert_eq!(tool.count(), 1);
    let long = Tool::always(Step::ok("more than ten bytes"));
    let call = || make(&layer, &long, query("b"));
    call().await.unwrap();
    call().await.unwrap();
    assert_eq!(long.count(), 2);
    let set = builder().with_max_bytes(80).with_max_answer(11).build();
    assert_eq!(set.unwrap_err().field(), "max_answer");
    let once = tower_toolcall::once::OnceLayer::builder();
    assert!(once.with_max_bytes(80).build().is_ok());
}

/// An answer that cannot be kept makes nobody wait for another one's.
#[tokio::test(start_paused = true)]
async fn large_answers_are_asked_for_each_time_and_at_once() {
    let layer = builder().with_max_answer(10);
    let layer = layer.with_size(|text: &&str| text.len() as u64);
    let layer = layer.build().unwrap();
    let tool = Tool::always(Step::ok("more than ten bytes").after(SECOND));
    make(&layer, &tool, query("a")).await.unwrap();
    let since = Instant::now();
    let call = || make(&layer, &tool, query("a"));
    let _ = tokio::join!(call(), call(), call());
    assert_eq!((tool.count(), since.elapsed()), (4, SECOND));
}

#[tokio::test(start_paused = true)]
async fn the_store_is_bounded_and_a_stranger_turns_out_nobody_elses_answers() {
    let layer = builder().with_max_keys(80).build().unwrap();
    let tool = Tool::always(Step::ok("r"));
    make(&layer, &tool, query("mine")).await.unwrap();
    for n in 0..1000 {
        let call = query(&n.to_string()).with_session_id("stranger");
        make(&layer, &tool, call).await.unwrap();
        assert!(layer.handle().len() <= 11);
    }
    assert_eq!(tool.count(), 1001);
    make(&layer, &tool, query("mine")).await.unwrap();
    assert_eq!(tool.count(), 1001);
    for n in 0..1000 {
        let call = query("q").with_session_id(n.to_string());
        make(&layer, &tool, call).await.unwrap();
        assert!(layer.handle().len() <= 80);
    }
}

/// S-2: the answers of a principal that are stale first go. Those of another principal stay.
#[tokio::test(start_paused = true)]
async fn beyond_the_bytes_of_a_principal_its_oldest_answers_are_forgotten() {
    let size = |text: &&str| text.len() as u64;
    let builder = builder().with_max_answer(10).with_size(size);
    let layer = builder.with_max_bytes(800).build().unwrap();
    let tool = Tool::always(Step::ok("ten bytes!"));
    let mine = || query("mine").with_session_id("s2");
    make(&layer, &tool, mine()).await.unwrap();
    for n in 0..11 {
        make(&layer, &tool, query(&n.to_string())).await.unwrap();
        advance(SECOND).await;
    }
    make(&layer, &tool, mine()).await.unwrap();
    for n in 2..11 {
        make(&layer, &tool, query(&n.to_string())).await.unwrap();
    }
    assert_eq!(tool.count(), 12);
    make(&layer, &tool, query("0")).await.unwrap();
    assert_eq!(tool.count(), 13);
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_asked_for_again() {
    let (layer, tool) = (layer(), Tool::always(Step::ok("r").after(SECOND)));
    let handle = layer.handle();
    let docs = || query("a").with_server("docs");
    make(&layer, &tool, query("a")).await.unwrap();
    make(&layer, &tool, docs()).await.unwrap();
    handle.forget("docs__search");
    assert_eq!(handle.len(), 1);
    make(&layer, &tool, query("a")).await.unwrap();
    make(&layer, &tool, docs()).await.unwrap();
    assert_eq!(tool.count(), 3);
    handle.clear();
    assert!(handle.is_empty());
    // What is being asked for meanwhile may be old.
    let asks = tokio::spawn(layer.layer(tool.clone()).oneshot(query("a")));
    sleep(SECOND / 2).await;
    handle.clear();
    make(&layer, &tool, query("a")).await.unwrap();
    asks.await.unwrap().unwrap();
    assert_eq!((tool.count(), handle.len()), (5, 1));
    make(&layer, &tool, query("a")).await.unwrap();
    assert_eq!(tool.count(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_hit_holds_nothing_below_and_needs_no_ready_service() {
    let (limited, tool, semaphore) = kit::limited(kit::answers());
    let mut svc = layer().layer(limited);
    svc.ready().await.unwrap().call(query("a")).await.unwrap();
    svc.ready().await.unwrap();
    assert_eq!(semaphore.available_permits(), 0);
    let hit = svc.call(query("a"));
    assert_eq!(semaphore.available_permits(), 1);
    hit.await.unwrap();
    let _permit = semaphore.acquire().await.unwrap();
    svc.ready().await.unwrap().call(query("a")).await.unwrap();
    assert_eq!(tool.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn observers_see_that_nothing_was_sent() {
    let (layer, tool) = (layer(), Tool::always(Step::ok("r")));
    for (sent, names) in [(1, vec![]), (0, vec!["tool.reused"])] {
        let events = Events::new();
        let mut call = query("a");
        let below = events.observe(&mut call);
        make(&layer, &tool, call).await.unwrap();
        assert_eq!((below.sent(None), events.names()), (sent, names));
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let field = |builder: CacheBuilder| builder.build().unwrap_err().field().to_owned();
    assert_eq!(field(CacheLayer::builder(Duration::ZERO, ["a"])), "ttl");
    assert_eq!(field(builder().with_tool("b", Duration::MAX)), "ttl");
    assert_eq!(field(builder().with_max_keys(0)), "max_keys");
}

/// D9: an answer that is an error in the tool's own words is a failure, which those who wait share.
/// It is not kept.
#[tokio::test(start_paused = true)]
async fn an_error_answer_is_shared_with_those_who_wait() {
    let reports = |answer: Result<&&str, &ToolError>| match answer {
        Ok(_) => Outcome::reported(),
        Err(_) => Outcome::failure(),
    };
    let layer = builder().classify_fn(reports).build().unwrap();
    let tool = Tool::always(Step::ok("no such file").after(SECOND));
    let ten = || (0..10).map(|_| make(&layer, &tool, query("a")));
    for round in 1..=2 {
        let answers = join_all(ten()).await;
        assert!(
            answers
                .iter()
                .all(|answer| *answer.as_ref().unwrap() == "no such file")
        );
        assert_eq!(tool.count(), round);
    }
    assert!(layer.handle().is_empty());
    let counts = layer.handle().counts();
    assert_eq!((counts.hits, counts.shared, counts.misses), (0, 18, 2));
}

/// D9: the same for what only the leaf knows to be an error.
#[tokio::test(start_paused = true)]
async fn an_answer_that_the_leaf_reports_as_an_error_is_shared() {
    let tool = tower::service_fn(|call: ToolCall| async move {
        sleep(SECOND).await;
        call.record(|record| record.set_reported(true));
        Ok::<_, ToolError>(Instant::now())
    });
    let layer = layer();
    let (first, second) = tokio::join!(
        layer.layer(tool).oneshot(query("a")),
        layer.layer(tool).oneshot(query("a")),
    );
    assert_eq!(first.unwrap(), second.unwrap());
    assert!(layer.handle().is_empty());
}
