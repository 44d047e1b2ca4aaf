//! What is set for one tool (G1, T2, R1, R6).

use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, ReplaySafety, ToolCall,
    result::ToolResultLayer,
    settings::{Settings, StackLayer},
};
use tower_toolcall_test::{Script, Step};

use crate::kit::{flaky, run, safe, secs, stack};

fn settings() -> Settings {
    let file = r#"
        [tools.import]
        timeout = "45s"
        attempts = 1

        [tools.find]
        replay_safe = true

        [tools.pay]
        replay_safe = false
    "#;
    toml::from_str(file).unwrap()
}

async fn hangs(layer: &StackLayer, call: ToolCall) -> std::time::Duration {
    let tool = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    let start = Instant::now();
    layer.layer(tool).oneshot(call).await.unwrap_err();
    start.elapsed()
}

/// T2: the call's own timeout beats the tool's, which beats the default.
#[tokio::test(start_paused = true)]
async fn a_tool_has_its_own_timeout() {
    let layer = stack(&settings());
    assert_eq!(hangs(&layer, ToolCall::new("import")).await, secs(45));
    assert_eq!(hangs(&layer, ToolCall::new("search")).await, secs(30));
    let own = ToolCall::new("import").with_timeout(secs(2));
    assert_eq!(hangs(&layer, own).await, secs(2));
}

/// A tool's own limit holds where there is none for the others too.
#[tokio::test(start_paused = true)]
async fn a_tool_has_its_own_concurrency_limit() {
    let file = "[concurrency]\nmax_queue = 0\n[tools.import]\nconcurrency = 1\n";
    let settings: Settings = toml::from_str(file).unwrap();
    let layer = stack(&settings);
    let tool = Script::always(Step::<()>::hang());
    let begin = |name: &'static str| {
        let call = ToolCall::new(name);
        tokio::spawn(layer.layer(tool.clone()).oneshot(call))
    };
    let _running = ["import", "search", "search", "search"].map(begin);
    tokio::task::yield_now().await;
    let error = begin("import").await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(tool.in_flight(), 4);
}

/// With a key that tools share, each has its price.
#[tokio::test(start_paused = true)]
async fn a_tool_has_its_own_quota_and_cost() {
    let file = r#"
        [quota]
        units = 10
        fail_fast = true

        [tools.import]
        quota_units = 6
        quota_cost = 3
    "#;
    let settings: Settings = toml::from_str(file).unwrap();
    let layer = stack(&settings);
    let tool = flaky(ErrorKind::Upstream, 0);
    for (name, passes) in [("import", 2), ("search", 10)] {
        for n in 0..=passes {
            let result = run(&layer, &tool, ToolCall::new(name)).await;
            assert_eq!(result.is_ok(), n < passes, "{name} {n}");
        }
    }
}

/// R1.
#[tokio::test(start_paused = true)]
async fn a_tool_has_its_own_number_of_attempts() {
    let layer = stack(&settings());
    for (name, attempts) in [("import", 1), ("search", 3)] {
        let tool = flaky(ErrorKind::Upstream, 9);
        let call = ToolCall::new(name).with_replay_safety(safe().replay_safety());
        assert_eq!(run(&layer, &tool, call).await, Err(ErrorKind::Upstream));
        assert_eq!(tool.count(), attempts, "{name}");
    }
}

/// L1: what the retry layer leaves alone the rate-limit layer repeats after a limit, up to its own
/// attempts.
#[tokio::test(start_paused = true)]
async fn one_attempt_of_the_retry_layer_is_not_the_only_one_after_a_limit() {
    let mut settings = settings();
    settings.rate_limit.attempts = 2;
    let layer = stack(&settings);
    let tool = flaky(ErrorKind::RateLimited, 9);
    let call = ToolCall::new("import");
    assert_eq!(run(&layer, &tool, call).await, Err(ErrorKind::RateLimited));
    assert_eq!(tool.count(), 2);
}

async fn is_repeated(layer: &StackLayer, name: &str) -> bool {
    let tool = flaky(ErrorKind::Upstream, 1);
    run(layer, &tool, ToolCall::new(name)).await.is_ok()
}

/// R6.
#[tokio::test(start_paused = true)]
async fn a_tool_is_said_to_be_safe() {
    let layer = stack(&settings());
    assert!(is_repeated(&layer, "find").await);
    assert!(!is_repeated(&layer, "pay").await);
    assert!(!is_repeated(&layer, "search").await);
}

/// R6: the file's word goes before the function's, and both before what is assumed.
#[tokio::test(start_paused = true)]
async fn a_function_decides_what_the_file_leaves_open() {
    let mut settings = settings();
    settings.retry.assume_replay_safe = true;
    let layer = settings
        .stack()
        .with_replay_safety(|call| match call.tool() {
            "unknown" => ReplaySafety::Unknown,
            "pay" => ReplaySafety::Safe,
            _ => ReplaySafety::Unsafe,
        })
        .build()
        .unwrap();
    assert!(is_repeated(&layer, "find").await);
    assert!(!is_repeated(&layer, "pay").await);
    assert!(!is_repeated(&layer, "search").await);
    assert!(is_repeated(&layer, "unknown").await);
}

/// V2, R6: what a file says of a tool holds however it is called, and before what a table knows.
#[tokio::test(start_paused = true)]
async fn a_tools_section_holds_for_every_spelling() {
    use tower_toolcall::{Identity, ToolError, identity::Resolve};

    struct Pay;
    impl Resolve for Pay {
        fn resolve(&self, _: &ToolCall) -> Result<Option<Identity>, ToolError> {
            let charge = Identity::new("charge").with_server("pay");
            Ok(Some(charge.with_replay_safety(ReplaySafety::Safe)))
        }
    }
    for (section, sent) in [
        ("[tools.charge]\nreplay_safe = false", 1),
        ("[tools.pay__charge]\nreplay_safe = false", 1),
        ("[tools.pay__charge]\nattempts = 2", 2),
        ("[tools.shop__charge]\nreplay_safe = false", 3),
    ] {
        let settings: Settings = toml::from_str(section).unwrap();
        for call in [
            ToolCall::new("pay__charge"),
            ToolCall::new("charge").with_server("pay"),
        ] {
            // Of its own, as calls share a budget of retries.
            let stack = settings.stack().with_identity(Pay).build().unwrap();
            let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
            let count = calls.clone();
            let tool = service_fn(move |_: ToolCall| {
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                async { Err::<(), _>(BoxError::from("503 Service Unavailable")) }
            });
            let name = call.tool().to_owned();
            let service = ToolResultLayer::new().layer(stack.layer(tool));
            let Ok(result) = service.oneshot(call).await;
            assert_eq!(result.call().tool(), name);
            assert_eq!(result.into_result().unwrap_err().tool(), Some(&*name));
            let sent_now = calls.load(std::sync::atomic::Ordering::SeqCst);
            assert_eq!(sent_now, sent, "{section}");
        }
    }
}

/// T2: what a function says of a tool goes before a file; the call's own word before both.
#[tokio::test(start_paused = true)]
async fn a_function_says_the_timeouts_of_tools() {
    let file = "[timeout]\ndefault = \"9s\"\n[tools.import]\ntimeout_ms = 45000";
    let settings: Settings = toml::from_str(file).unwrap();
    let layer = settings
        .stack()
        .with_timeout_fn(|call| call.is_named("search").then_some(secs(5)))
        .with_classifier(tower_toolcall::outcome::ByError)
        .build()
        .unwrap();
    let hangs = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    for (call, time) in [
        (ToolCall::new("search"), 5),
        (ToolCall::new("search").with_timeout(secs(2)), 2),
        (ToolCall::new("import"), 45),
        (ToolCall::new("other"), 9),
    ] {
        let error = layer.layer(hangs).oneshot(call).await.unwrap_err();
        assert_eq!(error.timeout(), Some(secs(time)));
    }
}

/// A tool that is asked until it says yes.
#[tokio::test(start_paused = true)]
async fn a_tool_is_exempt_from_the_repeat_guard() {
    let mut settings: Settings = toml::from_str("[tools.status]\nrepeat_guard = false").unwrap();
    settings.repeat_guard.enabled = true;
    let layer = stack(&settings);
    for (name, sent) in [("status", 9), ("search", 3)] {
        let tool = flaky(ErrorKind::NotFound, 9);
        for _ in 0..9 {
            let call = ToolCall::new(name).with_session_id("s");
            run(&layer, &tool, call).await.unwrap_err();
        }
        assert_eq!(tool.count(), sent, "{name}");
    }
}

#[test]
fn a_tool_that_is_guarded_where_no_tool_is_is_a_warning() {
    let settings: Settings = toml::from_str("[tools.status]\nrepeat_guard = true").unwrap();
    let warnings = settings.warnings();
    assert_eq!(warnings[0].field(), "tools.status.repeat_guard");
}
