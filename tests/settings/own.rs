//! W9: hooks, checks and layers of the user's in the stack.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use static_assertions::assert_impl_all;
use tower::{
    Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer, load_shed::LoadShedLayer, service_fn,
};
use tower_toolcall::{
    BoxError, CallInfo, ErrorKind, Event, Identity, Outcome, ToolCall, ToolError,
    call::JobRef,
    check::{CheckLayer, check_fn},
    identity::Resolve,
    outcome::ByError,
    poll::{Job, Polled, Started},
    settings::{Own, Place, Settings, StackBuilder, StackLayer},
    switch::Switch,
    trace::{End, TraceHooks},
};
use tower_toolcall_test::{Script, Step};
use tracing::Level;

use crate::kit::{Written, call, changed, flaky, run, safe, secs, stack};

assert_impl_all!(StackBuilder<ByError, Own<()>>: Send, Sync, Clone);
assert_impl_all!(StackLayer<ByError, Own<()>>: Send, Sync, Unpin, Clone);

type Heard = Arc<Mutex<Vec<String>>>;

fn taken(heard: &Heard) -> Vec<String> {
    std::mem::take(&mut heard.lock().unwrap())
}

/// A layer that notes the calls that pass it.
#[derive(Clone)]
struct Notes(&'static str, Heard);

impl<S> Layer<S> for Notes {
    type Service = Noting<S>;

    fn layer(&self, inner: S) -> Noting<S> {
        Noting {
            notes: self.clone(),
            inner,
        }
    }
}

#[derive(Clone)]
struct Noting<S> {
    notes: Notes,
    inner: S,
}

impl<S: Service<ToolCall>> Service<ToolCall> for Noting<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: ToolCall) -> S::Future {
        let Notes(name, heard) = &self.notes;
        let note = format!("{name} {} {}", call.tool(), call.attempt());
        heard.lock().unwrap().push(note);
        self.inner.call(call)
    }
}

struct Docs;

impl Resolve for Docs {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        match call.tool() {
            "docs__search" => Ok(Some(Identity::new("search").with_server("docs"))),
            _ => Err(ToolError::new(ErrorKind::NotFound, "there is no such tool")),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_place_is_where_its_name_says() {
    let heard = Heard::default();
    let notes = |name| Notes(name, heard.clone());
    let layer = Settings::agent_loop()
        .stack()
        .with_identity(Docs)
        .with_layer(Place::Attempt, notes("attempt"))
        .with_layer(Place::Call, notes("call"))
        .with_layer(Place::Allowed, notes("allowed"))
        .with_layer(Place::Outside, notes("outside"))
        .with_layer(Place::Call, notes("below it"))
        .build()
        .unwrap();
    let tool = flaky(ErrorKind::Upstream, 1);
    let call = || ToolCall::new("docs__search").with_replay_safety(safe().replay_safety());
    assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
    let expected = [
        "outside docs__search 1",
        "allowed search 1",
        "call search 1",
        "below it search 1",
        "attempt search 1",
        "attempt search 2",
    ];
    assert_eq!(taken(&heard), expected);

    // A name that does not exist comes no further than to the outside.
    let unknown = run(&layer, &tool, ToolCall::new("unknown")).await;
    assert_eq!(unknown, Err(ErrorKind::NotFound));
    assert_eq!(taken(&heard), ["outside unknown 1"]);
}

/// A call comes to each place above the layer of the stack that refuses it, and to none below.
#[tokio::test(start_paused = true)]
async fn a_refused_call_comes_to_the_places_above_the_refusal() {
    type Change = fn(&mut Settings);
    // The setting, how the tool fails, how often it has done so before, and where the next call
    // comes to.
    let cases: [(Change, _, _, &[&str]); 5] = [
        (
            |s| s.policy.deny = vec!["search".into()],
            ErrorKind::Failed,
            0,
            &["outside"],
        ),
        (
            |s| s.repeat_guard.enabled = true,
            ErrorKind::Failed,
            3,
            &["outside"],
        ),
        (
            |s| s.quota.units = Some(1),
            ErrorKind::Failed,
            1,
            &["outside", "allowed"],
        ),
        (
            |_| (),
            ErrorKind::RateLimited,
            1,
            &["outside", "allowed", "call"],
        ),
        (
            |_| (),
            ErrorKind::Upstream,
            5,
            &["outside", "allowed", "call", "attempt"],
        ),
    ];
    for (change, fails, before, expected) in cases {
        let settings = changed(|s| {
            (s.quota.fail_fast, s.rate_limit.fail_fast) = (true, true);
            change(s);
        });
        let heard = Heard::default();
        let notes = |name| Notes(name, heard.clone());
        let layer = settings
            .stack()
            .with_layer(Place::Attempt, notes("attempt"))
            .with_layer(Place::Allowed, notes("allowed"))
            .with_layer(Place::Outside, notes("outside"))
            .with_layer(Place::Call, notes("call"));
        let (layer, tool) = (layer.build().unwrap(), flaky(fails, 9));
        let call = || call().with_session_id("s1");
        for _ in 0..before {
            assert_eq!(run(&layer, &tool, call()).await, Err(fails));
        }
        taken(&heard);
        assert!(run(&layer, &tool, call()).await.is_err());
        assert_eq!(tool.count(), before, "it is refused");
        let expected: Vec<_> = expected.iter().map(|n| format!("{n} search 1")).collect();
        assert_eq!(taken(&heard), expected);
    }
}

/// An answer from memory is one that the policy allows, and no call for the quota.
#[tokio::test(start_paused = true)]
async fn a_kept_answer_costs_no_token_of_the_quota() {
    let settings = changed(|s| {
        s.once.enabled = true;
        s.quota.units = Some(1);
        s.quota.fail_fast = true;
    });
    let once = settings.once_layer().unwrap();
    let layer = settings
        .stack()
        .with_layer(Place::Allowed, Switch::from(once))
        .build()
        .unwrap();
    let tool = Script::new([Step::ok("done")]);
    let call = |key| ToolCall::new("pay").with_agent_id("a1").with_once_key(key);
    for _ in 0..3 {
        assert_eq!(run(&layer, &tool, call("order 1")).await, Ok("done"));
    }
    assert_eq!(tool.count(), 1);
    let other = run(&layer, &tool, call("order 2")).await;
    assert_eq!(other, Err(ErrorKind::RateLimited));
}

/// A check inside sees the whole answer; a switched-off layer is none.
#[tokio::test(start_paused = true)]
async fn answers_are_shortened_above_the_check() {
    let seen = Arc::new(AtomicUsize::new(0));
    for (enabled, expected) in [(true, 1_000), (false, 5_000)] {
        let settings = changed(|s| {
            s.fit.enabled = enabled;
            s.fit.max_chars = 1_000;
        });
        let count = seen.clone();
        let check = check_fn(move |_, answer: &String| {
            count.fetch_add(answer.len(), SeqCst);
            Ok(())
        });
        let layer = settings
            .stack()
            .with_layer(Place::Call, Switch::from(settings.fit_layer()))
            .with_layer(Place::Call, CheckLayer::new(check))
            .build()
            .unwrap();
        let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>("x".repeat(5_000)) });
        let answer = layer.layer(tool).oneshot(call()).await.unwrap();
        assert!(answer.len().abs_diff(expected) < 10, "{}", answer.len());
        assert_eq!(seen.swap(0, SeqCst), 5_000);
    }
}

/// The answers of a tool with jobs, as a model reads them.
#[derive(Clone)]
struct Jobs;

impl Job<&'static str> for Jobs {
    fn ask(&self, call: &ToolCall, _: &JobRef) -> ToolCall {
        call.follow_up()
    }

    fn started(
        &self,
        call: &ToolCall,
        answer: &'static str,
    ) -> Result<Started<&'static str>, ToolError> {
        match answer {
            "started" => Ok(Started::Running(
                JobRef::new(call, Default::default())?,
                None,
            )),
            _ => Ok(Started::Done(answer)),
        }
    }

    fn read(&self, _: &ToolCall, answer: &'static str) -> Result<Polled<&'static str>, ToolError> {
        Ok(match answer {
            "running" => Polled::Running {
                after: None,
                note: None,
            },
            _ => Polled::Done(answer),
        })
    }
}

/// A call costs once, however often its job is asked for.
#[tokio::test(start_paused = true)]
async fn polls_use_up_no_quota() {
    let settings = changed(|s| {
        s.quota.units = Some(2);
        s.quota.period = secs(3600);
    });
    let jobs = settings.poll_layer(Jobs).unwrap();
    let layer = settings.stack().with_layer(Place::Call, jobs).build();
    let layer = layer.unwrap();
    let steps = ["started", "running", "running", "running"].map(Step::ok);
    let tool = Script::new(steps).then(Step::ok("done"));
    assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
    assert_eq!(tool.count(), 5);
    assert_eq!(layer.quota().unwrap().remaining(&call()), 1);
}

/// L3: an attempt that the gate holds back, and one that retries never make, does not pass.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_not_sent_is_not_seen() {
    let heard = Heard::default();
    let layer = Settings::gateway()
        .stack()
        .with_layer(Place::Attempt, Notes("attempt", heard.clone()))
        .build()
        .unwrap();
    let tool = flaky(ErrorKind::RateLimited, 1);
    for _ in 0..2 {
        let limited = run(&layer, &tool, call()).await;
        assert_eq!(limited, Err(ErrorKind::RateLimited));
    }
    assert_eq!(taken(&heard), ["attempt search 1"]);
}

/// Its errors are ours above it: a limiter of tower's is a refusal, which is not repeated and tells
/// a breaker nothing.
#[tokio::test(start_paused = true)]
async fn layers_of_tower_fit() {
    let layer = Settings::default()
        .stack()
        .with_layer(Place::Attempt, LoadShedLayer::new())
        .with_layer(Place::Attempt, ConcurrencyLimitLayer::new(1))
        .build()
        .unwrap();
    let hangs = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    // Of one stack: a limit of tower's is of the services that are cloned.
    let tools = layer.layer(hangs);
    let first = tokio::spawn(tools.clone().oneshot(call()));
    tokio::task::yield_now().await;
    for _ in 0..9 {
        let error = tools.clone().oneshot(safe()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overloaded);
        assert!(error.is_own_refusal());
    }
    first.abort();
    let _ = first.await;
    let free = tokio::time::timeout(secs(1), tools.oneshot(call()));
    assert!(free.await.is_err(), "it runs, and hangs");
}

/// X7: a bad answer is `Reported` for whoever observes, and is not asked for again.
#[tokio::test(start_paused = true)]
async fn a_check_refuses_an_answer() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let heard = Heard::default();
    let check = check_fn(|call: &CallInfo, answer: &&str| match *answer {
        "done" => Ok(()),
        _ => Err(format!("{} says nothing", call.tool()).into()),
    });
    let layer = Settings::agent_loop()
        .stack()
        .with_layer(Place::Call, CheckLayer::new(check))
        .with_layer(Place::Call, Notes("call", heard.clone()))
        .with_layer(Place::Call, CheckLayer::max_bytes(20));
    let layer = layer.build().unwrap();
    let tool = |answer: &'static str| {
        let count = count.clone();
        service_fn(move |_: ToolCall| {
            count.fetch_add(1, SeqCst);
            async move { Ok::<_, BoxError>(answer) }
        })
    };
    let done = layer.layer(tool("done")).oneshot(safe()).await;
    assert_eq!(done.unwrap(), "done");
    for (answer, why) in [
        ("", "search says nothing"),
        (
            "far more than it may say",
            "the answer has more than 20 bytes",
        ),
    ] {
        let error = layer.layer(tool(answer)).oneshot(safe()).await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Reported, why));
    }
    assert_eq!((asked.load(SeqCst), taken(&heard).len()), (3, 3));
}

/// Hooks hear how calls begin and end, where anybody listens.
#[derive(Clone)]
struct Hooks(Heard);

impl<Res> TraceHooks<Res> for Hooks {
    fn classify(&self, _: Result<&Res, &ToolError>) -> Outcome {
        panic!("the stack has a classifier")
    }

    fn on_end(&self, call: &CallInfo, end: &End<'_, Res>, _: &tracing::Span) {
        let note = format!("{} {:?}", call.tool(), end.failure());
        self.0.lock().unwrap().push(note);
    }
}

/// The classifier is the stack's, wherever it is set.
#[tokio::test(start_paused = true)]
async fn hooks_hear_of_calls_and_attempts() {
    let own = |_: Result<&&str, &ToolError>| Outcome::reported();
    for attempts in [false, true] {
        let heard = Heard::default();
        let settings = changed(|s| s.trace.attempts = attempts);
        let hooks = Hooks(heard.clone());
        let builder = settings.stack().with_hooks(hooks).with_classifier(own);
        let layer = builder.with_listener(|_: &Event<'_>| {}).build().unwrap();
        let tool = flaky(ErrorKind::Upstream, 0);
        let _listens = Written::heard(Level::TRACE);
        assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
        let expected = vec!["search Some(Reported)"; 1 + usize::from(attempts)];
        assert_eq!(taken(&heard), expected);
    }
}

/// P18: what looks wrong is seen once, by the subscriber of the thread that builds the stack.
#[test]
fn a_warning_is_an_event_when_the_stack_is_built() {
    let file = "[circuit_breaker]\nwindow = \"5m\"\n[tools.import]\ntimeout = \"10m\"";
    let settings: Settings = toml::from_str(file).unwrap();
    let (written, _guard) = Written::heard(Level::INFO);
    let _ = settings.stack().build().unwrap();
    let written = written.text();
    assert_eq!(written.matches("tool.settings").count(), 1, "{written}");
    assert!(
        written.contains("WARN") && written.contains("window (5m) must"),
        "{written}"
    );
}

/// Hooks that do not say what an answer is leave it to the stack.
#[tokio::test(start_paused = true)]
async fn hooks_without_a_word_on_answers_leave_them_in_the_span() {
    let settings = changed(|s| s.trace.output = true);
    let hooks = Hooks(Heard::default());
    let layer = settings.stack().with_hooks(hooks).build().unwrap();
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>("sunny".to_owned()) });
    let (written, _guard) = Written::heard(Level::TRACE);
    assert_eq!(layer.layer(tool).oneshot(call()).await.unwrap(), "sunny");
    let written = written.text();
    for field in ["tool.output_bytes=7", "gen_ai.tool.call.result=sunny"] {
        assert!(written.contains(field), "{field} in {written}");
    }
}

/// A stack without any is for tools with answers of all types; one with a few for those of one.
#[tokio::test]
async fn a_stack_without_own_layers_fits_every_answer() {
    let layer = stack(&Settings::default());
    let number = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(7) });
    let text = service_fn(|_: ToolCall| async { Ok::<_, BoxError>("seven") });
    assert_eq!(layer.layer(number).oneshot(call()).await.unwrap(), 7);
    assert_eq!(layer.layer(text).oneshot(call()).await.unwrap(), "seven");
}

#[test]
fn debug_tells_how_many_there_are() {
    let builder = Settings::default().stack().with_hooks::<()>(());
    assert!(format!("{builder:?}").starts_with("StackBuilder"));
    let layer = builder.build().unwrap();
    assert!(format!("{layer:?}").starts_with("StackLayer"));
}
