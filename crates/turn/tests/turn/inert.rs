//! Layers that need to know whose a call is, in the loop that `turn` documents.

use std::{
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::json;
use tower::{ServiceBuilder, service_fn};
use tower_toolcall::{
    AnyError, Key, ReplaySafety, ToolCall,
    batch::Parallel,
    cache::CacheLayer,
    event::names,
    once::OnceLayer,
    quota::{Quota, QuotaLayer},
    repeat_guard::RepeatGuardLayer,
    tool_metrics::Metrics,
};
use tower_toolcall_turn::{Format, Turn};
use tracing::field::{Field, Visit};
use tracing_subscriber::{Layer, layer::Context, prelude::*};

use crate::kit::{Written, response};

/// The warnings that a layer can do nothing, as a subscriber gets them: layer, reason, tool.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<[String; 3]>>>);

impl Warnings {
    fn take(&self) -> Vec<[String; 3]> {
        let mut warnings = std::mem::take(&mut *self.0.lock().unwrap());
        warnings.sort();
        warnings
    }
}

#[derive(Default)]
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    fn get(&self, name: &str) -> String {
        let field = self.0.iter().find(|(known, _)| *known == name);
        field.map(|(_, value)| value.clone()).unwrap_or_default()
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}

impl<S: tracing::Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().name() != names::event::INERT {
            return;
        }
        assert_eq!(*event.metadata().level(), tracing::Level::WARN);
        let mut fields = Fields::default();
        event.record(&mut fields);
        assert!(
            fields.get("help").contains("set "),
            "{}",
            fields.get("help")
        );
        let warning = ["layer", "reason", "tool"].map(|name| fields.get(name));
        self.0.lock().unwrap().push(warning);
    }
}

/// An agent's stack over two tools: `pay`, and `read`, which is kept; `fail` always fails alike.
struct Agent {
    metrics: Metrics,
    once: OnceLayer,
    cache: CacheLayer,
    guard: RepeatGuardLayer,
    quota: QuotaLayer,
    sent: Arc<AtomicU32>,
}

impl Agent {
    fn new() -> Self {
        let per_agent = Key::by(|call| call.agent_id().unwrap_or(""));
        let quota = QuotaLayer::builder(Quota::per_minute(4).unwrap());
        Self {
            metrics: Metrics::new(),
            once: OnceLayer::new(),
            cache: CacheLayer::new(Duration::from_secs(60), ["read"]).unwrap(),
            guard: RepeatGuardLayer::builder()
                .with_failures(2)
                .build()
                .unwrap(),
            quota: quota.with_keys(per_agent).with_fail_fast().build().unwrap(),
            sent: Arc::default(),
        }
    }

    /// Plays a turn with these calls. Returns the results in which something failed.
    async fn play(&self, calls: &[Written], caller: impl FnOnce(Turn) -> Turn) -> Vec<String> {
        let sent = Arc::clone(&self.sent);
        let stack = ServiceBuilder::new()
            .layer(self.metrics.layer())
            .layer(&self.guard)
            .layer(&self.once)
            .layer(&self.cache)
            .layer(&self.quota)
            .service(service_fn(move |call: ToolCall| {
                sent.fetch_add(1, SeqCst);
                async move {
                    match call.tool() {
                        "fail" => Err(AnyError::from("no such file")),
                        _ => Ok("done"),
                    }
                }
            }));
        let turn = Turn::read(Format::Anthropic, &response(Format::Anthropic, calls)).unwrap();
        let reply = caller(turn).run(&Parallel::new(stack)).await;
        let results = reply.results()[0]["content"].as_array().unwrap();
        let failed = results.iter().filter(|result| result["is_error"] == true);
        failed.map(|result| result["content"].to_string()).collect()
    }

    fn inert(&self) -> [u64; 4] {
        let (cache, quota) = (self.cache.handle().inert(), self.quota.handle().inert());
        [self.once.inert(), cache, self.guard.inert(), quota]
    }
}

fn ask(tool: &str, n: u32) -> Written {
    Written::new(&format!("c{n}"), tool, &json!({ "n": n }).to_string())
}

/// P5: with a session and an agent each layer acts for its caller, and none warns.
#[tokio::test(start_paused = true)]
async fn layers_act_for_each_session_of_a_turn() {
    let warnings = Warnings::default();
    let _guard = tracing_subscriber::registry()
        .with(warnings.clone())
        .set_default();
    let agent = Agent::new();
    for (who, sent) in [("a", 2), ("b", 4)] {
        let caller = |turn: Turn| turn.with_session_id(who).with_agent_id(who);
        for _ in 0..3 {
            let failed = agent.play(&[ask("pay", 1), ask("read", 2)], caller).await;
            assert_eq!((failed.len(), agent.sent.load(SeqCst)), (0, sent));
        }
    }
    // The quota of an agent, and of no other, is used up.
    let third = |turn: Turn| turn.with_session_id("c").with_agent_id("c");
    let calls = [1, 2, 3, 4, 5].map(|n| ask("pay", n));
    assert_eq!(agent.play(&calls, third).await.len(), 1);
    let fourth = |turn: Turn| turn.with_session_id("d").with_agent_id("d");
    assert!(agent.play(&calls[..1], fourth).await.is_empty());
    assert_eq!((agent.inert(), warnings.take()), ([0; 4], vec![]));
    assert!(agent.metrics.snapshot().inert.is_empty());
    assert!(!agent.metrics.prometheus().contains("tool_inert"));
}

/// P5: without, each says so once, and counts each call.
#[tokio::test(start_paused = true)]
async fn layers_say_once_that_a_turn_has_no_session() {
    let warnings = Warnings::default();
    let _guard = tracing_subscriber::registry()
        .with(warnings.clone())
        .set_default();
    let agent = Agent::new();
    let calls = [ask("pay", 1), ask("pay", 2), ask("read", 3)];
    agent.play(&calls[..1], |turn| turn).await;
    let of = |layer: &str, reason: &str| [layer, reason, "pay"].map(str::to_owned);
    let expected = vec![
        of("once", "no_principal"),
        of("quota", "no_key"),
        of("repeat_guard", "no_principal"),
    ];
    assert_eq!(warnings.take(), expected);
    agent.play(&calls[1..], |turn| turn).await;
    let of_cache = ["cache", "no_principal", "read"].map(str::to_owned);
    assert_eq!(warnings.take(), [of_cache]);
    agent.play(&calls[1..], |turn| turn).await;
    assert!(warnings.take().is_empty());

    // Calls that `once` answers do not reach the layers below it.
    assert_eq!(agent.inert(), [5, 1, 5, 3]);
    let snapshot = agent.metrics.snapshot();
    let rows = snapshot.inert.iter();
    let rows: Vec<_> = rows
        .map(|row| (&*row.layer, &*row.reason, row.calls))
        .collect();
    let expected = [
        ("cache", "no_principal", 1),
        ("once", "no_principal", 5),
        ("quota", "no_key", 3),
        ("repeat_guard", "no_principal", 5),
    ];
    assert_eq!(rows, expected);
    let line = "tool_inert_total{layer=\"once\",reason=\"no_principal\"} 5";
    assert!(agent.metrics.prometheus().contains(line));
}

/// P5: the guard refuses a session's repeated failure, and watches no calls without one.
#[tokio::test(start_paused = true)]
async fn a_guard_watches_the_calls_of_a_session_only() {
    for (session, refused) in [(Some("s"), true), (None, false)] {
        let agent = Agent::new();
        let mut last = Vec::new();
        for n in 0..3 {
            let call = Written::new(&format!("c{n}"), "fail", "{}");
            last = agent
                .play(&[call], |turn| {
                    // Else `once` would give the first failure again, which the guard does not
                    // count.
                    let turn = turn.map_calls(|call| call.with_replay_safety(ReplaySafety::Safe));
                    match session {
                        Some(session) => turn.with_session_id(session),
                        None => turn,
                    }
                })
                .await;
        }
        assert_eq!(last[0].contains("in a row"), refused, "{last:?}");
    }
}
