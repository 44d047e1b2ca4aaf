//! The types of another author's leaf, once it has made them known.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use std::{
    error::Error,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use foreign_layer::{Found, ShardError, Shards};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    BoxError, ErrorKind, Event, Evidence, Execution, ToolCall, ToolError, answer,
    cache::CacheLayer,
    error::{KnownErrors, register},
    normalize::NormalizeLayer,
    once::OnceLayer,
    repeat_guard::RepeatGuardLayer,
    transport::transport,
};

/// An error of a third crate above another one.
#[derive(Debug)]
struct Above(BoxError);

impl fmt::Display for Above {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the search failed")
    }
}

impl Error for Above {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

fn busy() -> BoxError {
    ShardError::Busy(7).into()
}

#[test]
fn a_known_error_is_recognised_wherever_it_is_wrapped() {
    Shards::new();
    let relayed = ShardError::Relayed(busy()).into();
    let wrapped: [BoxError; 4] = [
        busy(),
        Above(busy()).into(),
        io::Error::other(Above(busy())).into(),
        Above(relayed).into(),
    ];
    for error in wrapped {
        let error = ToolError::from_box(error);
        assert_eq!(error.kind(), ErrorKind::Overloaded);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(error.evidence(), Evidence::Inferred);
        assert_eq!(error.execution(), Execution::Unknown);
    }
}

#[tokio::test]
async fn a_known_error_is_the_word_of_a_transport() {
    let tool = transport(Shards::new());
    let error = tool.oneshot(ToolCall::new("busy")).await.unwrap_err();
    assert_eq!(error.evidence(), Evidence::Reported);
    assert_eq!(error.execution(), Execution::NotStarted);
}

#[test]
fn the_text_of_a_known_error_is_for_people_and_has_no_address() {
    Shards::new();
    let error = ToolError::from_box(Above(busy()).into());
    let text = "the search failed: the shard is busy: E42 at the shard";
    assert_eq!(error.message(), text);
}

#[test]
fn a_known_wrapper_takes_nothing_from_an_error_of_ours() {
    Shards::new();
    let ours = || ToolError::new(ErrorKind::RateLimited, "slow down");
    let relayed = ToolError::from_box(ShardError::Relayed(ours().into()).into());
    assert_eq!(relayed.evidence(), Evidence::Reported);
    let above = ToolError::from_box(Above(ours().into()).into());
    assert_eq!(above.evidence(), Evidence::Inferred);
}

/// Its one error is a refusal.
struct Shedder;

/// The error of [`Shedder`].
#[derive(Debug)]
struct Shed;

impl fmt::Display for Shed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many")
    }
}

impl Error for Shed {}

impl KnownErrors for Shedder {
    fn cause(&self, error: &(dyn Error + 'static)) -> Option<ToolError> {
        let shed = || ToolError::new(ErrorKind::Overloaded, "");
        error.is::<Shed>().then(shed)
    }

    fn is_refusal(&self, error: &(dyn Error + 'static)) -> bool {
        error.is::<Shed>()
    }
}

#[tokio::test]
async fn a_known_refusal_is_one_of_ours() {
    assert!(register(&Shedder));
    let tool = tower::service_fn(|_: ToolCall| async { Err::<(), BoxError>(Shed.into()) });
    let tool = ServiceBuilder::new()
        .layer(NormalizeLayer::new())
        .service(tool);
    let error = tool.oneshot(ToolCall::new("search")).await.unwrap_err();
    assert!(error.is_own_refusal());
    assert_eq!(error.kind(), ErrorKind::Overloaded);
}

/// Recognises the same error as [`Shards`] does, as something else, if it were first.
struct Late;

impl KnownErrors for Late {
    fn cause(&self, error: &(dyn Error + 'static)) -> Option<ToolError> {
        let denied = || ToolError::new(ErrorKind::Denied, "");
        matches!(error.downcast_ref(), Some(ShardError::Busy(_))).then(denied)
    }
}

#[test]
fn to_make_errors_known_again_changes_nothing() {
    Shards::new();
    for _ in 0..1_000 {
        assert!(register(&Late));
        Shards::new();
    }
    let error = ToolError::from_box(busy());
    assert_eq!(error.kind(), ErrorKind::Overloaded);
}

/// A call that `once` and `cache` know again, with the number of its query.
fn query(tool: &str, number: u32) -> ToolCall {
    let arguments = format!(r#"{{ "number": {number} }}"#);
    let call = ToolCall::new(tool).with_json_str(&arguments).unwrap();
    call.with_agent_id("alice")
}

fn cache() -> CacheLayer {
    let cache = CacheLayer::builder(Duration::from_secs(60), ["search", "ask"]);
    cache.with_max_keys(10_000).build().unwrap()
}

/// A principal has room for 128 answers of an unknown type.
const MANY: u32 = 300;

/// Makes many calls twice, with the same answers.
async fn give_again<L>(layer: L)
where
    L: Layer<Shards>,
    L::Service: Service<ToolCall, Response = Found, Error = ToolError>,
{
    let shards = Shards::new();
    let mut stack = layer.layer(shards.clone());
    for _ in 0..2 {
        for number in 0..MANY {
            let stack = stack.ready().await.unwrap();
            let found = stack.call(query("search", number)).await.unwrap();
            assert_eq!(found.query, u64::from(number) + 1);
        }
    }
    assert_eq!(shards.asked(), u64::from(MANY));
}

#[tokio::test(start_paused = true)]
async fn answers_of_a_known_type_are_kept_by_cache() {
    give_again(cache()).await;
}

#[tokio::test(start_paused = true)]
async fn answers_of_a_known_type_are_kept_by_once() {
    give_again(OnceLayer::new()).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_a_known_type_that_asks_for_input_is_not_kept() {
    let shards = Shards::new();
    let (once, cache) = (OnceLayer::new(), cache());
    for _ in 0..2 {
        let once = once.layer(shards.clone());
        once.oneshot(query("ask", 1)).await.unwrap();
        let cache = cache.layer(shards.clone());
        cache.oneshot(query("ask", 1)).await.unwrap();
    }
    assert_eq!(shards.asked(), 4);
}

/// Returns how often a call was reported as repeated that was made nine times.
async fn repeated(tool: &str) -> u32 {
    let heard = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&heard);
    let guard = RepeatGuardLayer::builder()
        .with_listener(move |event: &Event<'_>| {
            if let Event::Repeated { .. } = event {
                count.fetch_add(1, SeqCst);
            }
        })
        .build()
        .unwrap();
    let stack = guard.layer(Shards::new());
    for _ in 0..9 {
        stack.clone().oneshot(query(tool, 1)).await.unwrap();
    }
    heard.load(SeqCst)
}

#[tokio::test(start_paused = true)]
async fn answers_of_a_known_type_are_compared_by_their_hash() {
    assert!(repeated("search").await > 0);
    assert_eq!(repeated("latest").await, 0);
}

#[tokio::test(start_paused = true)]
async fn to_make_an_answer_known_again_changes_nothing() {
    for _ in 0..1_000 {
        assert!(answer::register::<Found>());
    }
    give_again(cache()).await;
}
