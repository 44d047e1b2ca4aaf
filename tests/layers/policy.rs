use std::{
    future::pending,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use expect_test::expect;
use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, advance, sleep},
};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    Classify as _, ErrorKind, Event, Execution, Outcome, ToolCall, ToolError,
    outcome::ByError,
    policy::{
        APPROVAL_FAILED, APPROVAL_MISSING, APPROVAL_UNANSWERED, Approval, ApprovalDecision,
        PolicyLayer, PolicyOutcome, Rule,
    },
    repeat_guard::{RepeatGuardLayer, TOOL_REPEATED},
    retry::{RetryLayer, RetryPolicy},
};
use tower_toolcall_test::{Events, Step};

use crate::kit::{Probe, answers, limited, secs};

fn delete() -> ToolCall {
    let call = ToolCall::new("delete").with_json(json!({ "path": "/tmp/a" }));
    call.unwrap().with_id("c1")
}

fn asks() -> PolicyLayer {
    PolicyLayer::new().ask("delete")
}

/// Who answers by a function, at once.
fn answering(answer: fn(Approval) -> Result<ApprovalDecision, ToolError>) -> PolicyLayer {
    asks().with_approver(service_fn(move |approval| async move { answer(approval) }))
}

/// Cloned for each question that is open.
#[derive(Default)]
struct Alive(Arc<()>);

/// Counts what exists of it, and what was asked.
#[derive(Clone, Default)]
struct Silent {
    alive: Arc<Alive>,
    asked: Arc<AtomicU32>,
}

impl Silent {
    /// Who never answers.
    fn layer(&self) -> PolicyLayer {
        let this = self.clone();
        asks().with_approver(service_fn(move |approval: Approval| {
            this.asked.fetch_add(1, SeqCst);
            let alive = Arc::clone(&this.alive.0);
            async move {
                let _held = (alive, approval);
                pending::<Result<ApprovalDecision, ToolError>>().await
            }
        }))
    }

    fn asked(&self) -> u32 {
        self.asked.load(SeqCst)
    }

    /// How many questions are open.
    fn open(&self) -> usize {
        Arc::strong_count(&self.alive.0) - 1
    }
}

fn outcome(error: &ToolError) -> String {
    assert!(error.is_own_refusal());
    assert_eq!(error.execution(), Execution::NotStarted);
    assert_eq!(error.call_id(), Some("c1"));
    let details = serde_json::to_value(error.details().unwrap()).unwrap();
    details["policy"].as_str().unwrap().to_owned()
}

async fn refused_by(layer: PolicyLayer) -> ToolError {
    let probe = Probe::always(answers());
    let error = layer.layer(probe.clone()).oneshot(delete()).await;
    assert_eq!(probe.count(), 0);
    error.unwrap_err()
}

#[tokio::test]
async fn calls_are_allowed_or_denied_by_their_rules() {
    let probe = Probe::always(answers());
    let policy = PolicyLayer::new()
        .allow("read_*")
        .rule(Rule::deny("*").because("this week nothing is written"))
        .layer(probe.clone());
    let call = ToolCall::new("read_file");
    assert_eq!(policy.clone().oneshot(call).await.unwrap(), "answer");

    let error = policy.oneshot(delete()).await.unwrap_err();
    assert_eq!(probe.count(), 1);
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert_eq!(error.tool(), Some("delete"));
    assert_eq!(outcome(&error), "denied");
    expect!["the policy denies the call: this week nothing is written"].assert_eq(error.message());
    assert!(!error.model_message().contains("week"));
    assert!(error.model_message().contains("'delete'"));
}

#[tokio::test]
async fn what_no_rule_is_for_is_allowed_unless_it_is_denied_by_default() {
    let probe = Probe::always(answers());
    let allowed = PolicyLayer::new().layer(probe).oneshot(delete()).await;
    assert_eq!(allowed.unwrap(), "answer");
    let error = refused_by(PolicyLayer::new().allow("read").deny_by_default()).await;
    assert_eq!(outcome(&error), "denied");
}

#[tokio::test]
async fn an_approved_call_is_sent_as_it_was_approved() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let rule = Rule::ask("delete").because("it is gone then");
    let layer =
        PolicyLayer::new()
            .rule(rule)
            .with_approver(service_fn(move |approval: Approval| {
                let (line, until) = (approval.to_string(), approval.until());
                sees.lock().unwrap().push((line, until.is_some()));
                // A copy that is changed is no part of the call.
                let mut copy = approval.call().clone();
                copy = copy.with_json(json!({ "path": "/" })).unwrap();
                copy.take_arguments();
                async move { Ok::<_, ToolError>(approval.approve()) }
            }));
    let probe = Probe::always(answers());
    let call = delete().with_agent_id("a1").with_server("fs");
    layer.layer(probe.clone()).oneshot(call).await.unwrap();
    assert_eq!(probe.calls()[0].arguments()["path"], "/tmp/a");
    let line = "agent 'a1' wants to call 'delete' of server 'fs' with {\"path\":\"/tmp/a\"} (it is gone then)";
    assert_eq!(*seen.lock().unwrap(), [(line.to_owned(), true)]);
}

/// An approval is used once: the same call is asked for again.
#[tokio::test]
async fn the_same_call_again_is_asked_for_again() {
    let asked = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&asked);
    let layer = asks().with_approver(service_fn(move |approval: Approval| {
        let is_first = counts.fetch_add(1, SeqCst) == 0;
        async move {
            Ok::<_, ToolError>(match is_first {
                true => approval.approve(),
                false => approval.deny(""),
            })
        }
    }));
    let stack = layer.layer(Probe::always(answers()));
    stack.clone().oneshot(delete()).await.unwrap();
    let error = stack.oneshot(delete()).await.unwrap_err();
    assert_eq!(
        (outcome(&error).as_str(), asked.load(SeqCst)),
        ("refused", 2)
    );
}

#[tokio::test]
async fn a_persons_reason_is_for_the_model_without_secrets_and_bounded() {
    let error = refused_by(answering(|a| Ok(a.deny("use /tmp/b.")))).await;
    assert_eq!(
        (error.kind(), outcome(&error).as_str()),
        (ErrorKind::Denied, "refused")
    );
    expect!["The call of tool 'delete' was not approved: use /tmp/b. Do not repeat it as it is."]
        .assert_eq(&error.model_message());
    let secret = "AKIAIOSFODNN7EXAMPLE";
    let error = refused_by(answering(|a| {
        Ok(a.deny(format!(
            "not with AKIAIOSFODNN7EXAMPLE\u{202e}{}",
            "x".repeat(9999)
        )))
    }))
    .await;
    assert!(!error.model_message().contains(secret) && !error.message().contains(secret));
    assert!(error.model_message().chars().count() <= 200);
    let long = ToolCall::new("y".repeat(200)).with_id("c1");
    let layer = PolicyLayer::new()
        .ask("*")
        .with_approver(service_fn(|a: Approval| async move {
            Ok::<_, ToolError>(a.deny("z".repeat(200)))
        }));
    let stack = layer.layer(Probe::always(answers()));
    let text = stack.oneshot(long).await.unwrap_err().model_message();
    assert!(text.chars().count() <= 200, "{text}");
    assert!(!error.model_message().contains('\u{202e}'));
}

/// P10: denied means that it was denied; what was not is told in words of its own.
#[tokio::test]
async fn an_approver_that_fails_or_is_missing_has_denied_nothing() {
    let failing = answering(|_| Err(ToolError::new(ErrorKind::Upstream, "the chat is down")));
    let error = refused_by(failing).await;
    assert_eq!(
        (error.code(), outcome(&error).as_str()),
        (APPROVAL_FAILED, "failed")
    );
    assert!(error.is_retryable() && error.is_recoverable());
    expect!["the approver failed: UPSTREAM_ERROR: the chat is down"].assert_eq(error.message());
    expect!["Tool 'delete' needs an approval, and asking for it has failed. Call it again later, or continue without it."].assert_eq(&error.model_message());
    let error = refused_by(asks()).await;
    assert_eq!(
        (error.code(), outcome(&error).as_str()),
        (APPROVAL_MISSING, "no_approver")
    );
    assert!(!error.is_retryable() && error.is_recoverable());
    assert_eq!(error.to_http().status(), 500);
    expect!["Tool 'delete' needs an approval, and no approver is available. Continue without it, or tell the user."].assert_eq(&error.model_message());
    // An approver may know of a call that it cannot ask for.
    for (code, name) in [
        (APPROVAL_MISSING, "no_approver"),
        (APPROVAL_UNANSWERED, "unanswered"),
    ] {
        let error = ToolError::new(ErrorKind::Failed, "no screen").with_code(code);
        let approver = service_fn(move |_: Approval| {
            let error = error.clone();
            async move { Err::<ApprovalDecision, _>(error) }
        });
        let error = refused_by(asks().with_approver(approver)).await;
        assert_eq!((error.code(), outcome(&error).as_str()), (code, name));
    }
}

/// P10: what was not answered may be asked for again, and the guard does not count it.
#[tokio::test(start_paused = true)]
async fn an_approval_without_an_answer_may_be_asked_for_again() {
    let silent = Silent::default();
    let probe = Probe::always(answers());
    let stack = ServiceBuilder::new()
        .layer(RepeatGuardLayer::new())
        .layer(silent.layer())
        .service(probe.clone());
    let call = || delete().with_session_id("s1");
    for _ in 0..5 {
        let error = stack.clone().oneshot(call()).await.unwrap_err();
        assert_eq!(
            (error.code(), outcome(&error).as_str()),
            (APPROVAL_UNANSWERED, "unanswered")
        );
        assert!(error.is_retryable() && error.is_recoverable());
        expect!["Tool 'delete' needs an approval, and the request for it is not answered yet. Call it again later, or continue without it."].assert_eq(&error.model_message());
        assert_eq!(error.to_http().status(), 503);
        assert_eq!(
            Outcome::neutral().count(),
            ByError.classify(Err::<&(), _>(&error)).count()
        );
    }
    assert_eq!((silent.asked(), probe.count()), (5, 0));
}

/// P10: a denial is counted by the guard, as before.
#[tokio::test(start_paused = true)]
async fn a_denial_is_counted_by_the_guard() {
    let stack = ServiceBuilder::new()
        .layer(RepeatGuardLayer::new())
        .layer(answering(|a| Ok(a.deny("no"))))
        .service(Probe::always(answers()));
    let call = || delete().with_session_id("s1");
    for _ in 0..3 {
        let error = stack.clone().oneshot(call()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
    }
    assert_eq!(
        stack.oneshot(call()).await.unwrap_err().code(),
        TOOL_REPEATED
    );
}

/// An approver that mixes up its questions approves nothing.
#[tokio::test]
async fn the_approval_of_another_call_approves_nothing() {
    let kept = Arc::new(Mutex::new(None::<Approval>));
    let layer = asks().with_approver(service_fn(move |approval: Approval| {
        let before = kept.lock().unwrap().replace(approval);
        async move {
            match before {
                Some(before) => Ok(before.approve()),
                None => Err(ToolError::new(ErrorKind::Failed, "the first one")),
            }
        }
    }));
    let probe = Probe::always(answers());
    let stack = layer.layer(probe.clone());
    for _ in 0..3 {
        let error = stack.clone().oneshot(delete()).await.unwrap_err();
        assert_eq!(outcome(&error), "failed");
    }
    assert_eq!(probe.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn silence_ends_the_call_after_five_minutes_or_a_limit_of_ones_own() {
    let silent = Silent::default();
    for (layer, limit) in [
        (silent.layer(), secs(300)),
        (
            silent.layer().with_approval_timeout(secs(7)).unwrap(),
            secs(7),
        ),
    ] {
        let start = Instant::now();
        let error = refused_by(layer).await;
        assert_eq!(error.kind(), ErrorKind::Overloaded);
        assert_eq!(start.elapsed(), limit);
        assert_eq!(outcome(&error), "unanswered");
    }
    assert_eq!((silent.asked(), silent.open()), (2, 0));
}

/// Only an answer in time sends the call, also if the task looks for it late.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_too_late_approves_nothing() {
    let (says_yes, yes) = watch::channel(false);
    let layer = asks().with_approver(service_fn(move |approval: Approval| {
        let mut yes = yes.clone();
        async move {
            yes.wait_for(|yes| *yes).await.unwrap();
            Ok::<_, ToolError>(approval.approve())
        }
    }));
    let probe = Probe::always(answers());
    let stack = layer.layer(probe.clone());
    let mut in_time = task::spawn(stack.clone().oneshot(delete()));
    assert_pending!(in_time.poll());
    advance(secs(1)).await;
    let mut late = task::spawn(stack.oneshot(delete()));
    assert_pending!(late.poll());
    advance(secs(299)).await;
    says_yes.send(true).unwrap();
    assert_ready_ok!(in_time.poll());
    advance(secs(2)).await;
    let error = assert_ready_err!(late.poll());
    assert_eq!((outcome(&error).as_str(), probe.count()), ("unanswered", 1));
}

#[tokio::test(start_paused = true)]
async fn the_calls_deadline_ends_the_wait() {
    let silent = Silent::default();
    let probe = Probe::always(answers());
    let mut stack = silent.layer().layer(probe.clone());
    let start = Instant::now();
    let call = delete().with_deadline(start + secs(3));
    let error = stack.ready().await.unwrap().call(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(start.elapsed(), secs(3));
    assert_eq!(error.execution(), Execution::NotStarted);
    assert_eq!((silent.asked(), silent.open(), probe.count()), (1, 0, 0));
    // Of a call that has no time left nobody is asked.
    let call = delete().with_deadline(Instant::now());
    let error = stack.ready().await.unwrap().call(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(silent.asked(), 1);
}

/// Arguments so deep that to compare them would overflow the stack, and a name that no leaf sends.
#[tokio::test]
async fn nobody_is_asked_for_a_call_that_cannot_be_sent() {
    let deep = (0..100_000).fold(Value::Null, |value, _| Value::Array(vec![value]));
    let deep = Map::from_iter([("a".to_owned(), deep)]);
    let silent = Silent::default();
    let stack = silent.layer().ask("*").layer(Probe::always(answers()));
    for call in [
        ToolCall::new("delete").with_arguments(deep),
        ToolCall::new("x".repeat(1000)),
    ] {
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.is_own_refusal());
    }
    assert_eq!(silent.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_callers_token_ends_the_wait() {
    let token = tokio_util::sync::CancellationToken::new();
    let silent = Silent::default();
    let probe = Probe::always(answers());
    let mut stack = silent.layer().layer(probe.clone());
    let call = delete().with_cancellation(token.clone());
    let mut response = task::spawn(stack.call(call.clone()));
    assert_pending!(response.poll());
    assert_eq!(silent.open(), 1);
    token.cancel();
    assert!(response.is_woken());
    assert_eq!(
        assert_ready_err!(response.poll()).kind(),
        ErrorKind::Cancelled
    );
    assert_eq!((silent.open(), probe.count()), (0, 0));
    let error = stack.call(call).await.unwrap_err();
    assert_eq!((error.kind(), silent.asked()), (ErrorKind::Cancelled, 1));
}

#[tokio::test(start_paused = true)]
async fn the_question_goes_with_its_call() {
    let silent = Silent::default();
    let probe = Probe::always(answers());
    let mut stack = silent.layer().layer(probe.clone());
    drop(stack.call(delete()));
    assert_eq!(
        silent.asked(),
        0,
        "nobody is asked for a call that is not awaited"
    );
    let mut response = task::spawn(stack.call(delete()));
    assert_pending!(response.poll());
    assert_eq!((silent.asked(), silent.open()), (1, 1));
    drop(response);
    assert_eq!((silent.open(), probe.count()), (0, 0));
}

/// While somebody thinks, others have the place; then it is waited for again, before the deadline.
#[tokio::test(start_paused = true)]
async fn nothing_is_reserved_while_an_approval_is_waited_for() {
    let (tool, probe, semaphore) = limited(answers());
    let (answer, answered) = oneshot::channel::<()>();
    let answered = Arc::new(Mutex::new(Some(answered)));
    let layer = asks()
        .deny("pay")
        .with_approver(service_fn(move |approval: Approval| {
            let answered = answered.lock().unwrap().take().unwrap();
            async move {
                answered.await.unwrap();
                Ok::<_, ToolError>(approval.approve())
            }
        }));
    let mut stack = tower_test::mock::Spawn::new(layer.layer(tool));
    assert_ready_ok!(stack.poll_ready());
    assert_eq!(semaphore.available_permits(), 0);
    let denied = stack.call(ToolCall::new("pay"));
    assert_eq!(
        semaphore.available_permits(),
        1,
        "a refusal gives it back at once"
    );
    denied.await.unwrap_err();

    assert_ready_ok!(stack.poll_ready());
    let mut response = task::spawn(stack.call(delete()));
    assert_eq!(semaphore.available_permits(), 1);
    assert_pending!(response.poll());
    let other = semaphore.clone().try_acquire_owned().unwrap();
    answer.send(()).unwrap();
    assert_pending!(response.poll());
    assert_eq!(probe.count(), 0);
    drop(other);
    assert!(response.is_woken());
    assert_eq!(assert_ready_ok!(response.poll()), "answer");
    assert_eq!(semaphore.available_permits(), 1);
}

#[tokio::test]
async fn a_panic_of_the_approver_is_one_of_the_call() {
    let probe = Probe::always(answers());
    let mut stack = answering(|_| panic!("no chat")).layer(probe.clone());
    let mut response = Box::pin(stack.call(delete()));
    for _ in 0..2 {
        let polled = catch_unwind(AssertUnwindSafe(|| response.as_mut().now_or_never()));
        polled.unwrap_err();
    }
    drop(response);
    assert_eq!(probe.count(), 0);
    stack.call(ToolCall::new("read")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_approver_that_is_not_ready_is_waited_for() {
    let approver = service_fn(|approval: Approval| async move {
        sleep(secs(100)).await;
        Ok::<_, ToolError>(approval.approve())
    });
    let one = ServiceBuilder::new().concurrency_limit(1).service(approver);
    let one = one.map_err(ToolError::from);
    let stack = asks().with_approver(one).layer(Probe::always(answers()));
    let start = Instant::now();
    let ask = || stack.clone().oneshot(delete());
    let (a, b, c) = tokio::join!(ask(), ask(), ask());
    assert!(a.is_ok() && b.is_ok());
    assert_eq!(start.elapsed(), secs(300));
    // A tie: the answer comes with the end of the limit.
    c.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_approval_is_for_all_attempts_at_a_call() {
    let asked = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&asked);
    let policy = asks().with_approver(service_fn(move |approval: Approval| {
        counts.fetch_add(1, SeqCst);
        async move { Ok::<_, ToolError>(approval.approve()) }
    }));
    let probe = Probe::always(Step::fail(ErrorKind::Upstream));
    let stack = ServiceBuilder::new()
        .layer(policy)
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .service(probe.clone());
    stack.oneshot(delete()).await.unwrap_err();
    assert_eq!((asked.load(SeqCst), probe.count()), (1, 3));
}

/// An id decides only where a rule says so, and one that nobody wrote is none.
#[tokio::test]
async fn an_agent_has_the_rules_of_its_id() {
    let policy = PolicyLayer::new()
        .rule(Rule::allow("*").for_agent("boss"))
        .deny_by_default();
    let stack = policy.layer(Probe::always(answers()));
    for (call, is_allowed) in [
        (delete(), false),
        (delete().with_agent_id("boss"), true),
        (delete().with_agent_id("BOSS"), false),
        (delete().with_agent_id("boss "), false),
        (delete().with_session_id("boss"), false),
    ] {
        let result = stack.clone().oneshot(call).await;
        assert_eq!(result.is_ok(), is_allowed);
    }
}

#[tokio::test]
async fn each_decision_is_an_event() {
    let events = Events::pick(|event| match event {
        Event::Policy {
            outcome,
            rule,
            error,
            ..
        } => Some((*outcome, rule.map(str::to_owned), error.is_some())),
        _ => None,
    });
    let policy = answering(|a| Ok(a.approve()))
        .deny("pay*")
        .allow("read")
        .with_listener(events.clone());
    let stack = policy.layer(Probe::always(answers()));
    for tool in ["delete", "payment", "read", "else"] {
        let _ = stack.clone().oneshot(ToolCall::new(tool)).await;
    }
    let rule = |name: &str| Some(name.to_owned());
    events.assert([
        (PolicyOutcome::Asked, rule("delete"), false),
        (PolicyOutcome::Approved, rule("delete"), false),
        (PolicyOutcome::Denied, rule("pay*"), true),
        (PolicyOutcome::Allowed, rule("read"), false),
        (PolicyOutcome::Allowed, None, false),
    ]);
}

#[tokio::test]
async fn a_call_that_is_observed_has_its_decisions_and_is_rejected() {
    let events = Events::new();
    let stack = asks().layer(Probe::always(answers()));
    let (result, record) = events.run(stack, delete()).await;
    assert_eq!(result.unwrap_err().code(), APPROVAL_MISSING);
    events.assert(["tool.policy"]);
    record.assert(|record| record.sent == 0);
}

#[test]
fn a_policy_that_cannot_work_is_found() {
    let field = |layer: PolicyLayer| layer.check().map_err(|e| e.field().to_owned());
    let approved = || answering(|a| Ok(a.approve()));
    assert_eq!(field(PolicyLayer::new().deny("a*").allow("*")), Ok(()));
    assert_eq!(field(asks()), Err("approver".into()));
    assert_eq!(field(approved()), Ok(()));
    let covered = PolicyLayer::new().allow("fs_*").deny("fs_delete");
    expect![
        "invalid `rules`: `deny fs_delete` can never decide: `allow fs_*` comes first and covers it"
    ]
    .assert_eq(&covered.check().unwrap_err().to_string());
    // What is said twice does no harm.
    assert_eq!(
        field(PolicyLayer::new().deny("fs_*").deny("fs_delete")),
        Ok(())
    );
    // No tool has an empty name: the rule would deny nothing.
    assert_eq!(field(PolicyLayer::new().deny("")), Err("rules".into()));
    assert!(PolicyLayer::new().try_rule(Rule::deny("")).is_err());
    let error = PolicyLayer::new().with_approval_timeout(Duration::ZERO);
    assert_eq!(error.unwrap_err().field(), "approval_timeout");
}
