//! Ids that were not verified are free to invent: they take no place from those that were.

use std::time::Duration;

use serde_json::json;
use tower::{Layer, ServiceExt};
use tower_toolcall::{
    ErrorKind, Key, Keys, ToolCall, ToolError,
    cache::CacheLayer,
    once::OnceLayer,
    quota::{Quota, QuotaLayer},
    repeat_guard::{RepeatGuardLayer, TOOL_REPEATED},
};
use tower_toolcall_test::{Script, Step};

type Tool = Script<&'static str>;

fn call() -> ToolCall {
    ToolCall::new("pay")
}

fn verified(session: &str) -> ToolCall {
    call().with_session_id(session)
}

fn invented(n: usize) -> ToolCall {
    let call = call().with_session_id(format!("invented-{n}"));
    call.with_unverified_ids()
}

const SESSIONS: [&str; 4] = ["a", "b", "c", "d"];

/// S-3, rule 6: the failures of verified sessions are remembered.
#[tokio::test(start_paused = true)]
async fn invented_sessions_take_no_history_from_verified_ones() {
    // One agent may have verified itself, and not the sessions that it names.
    let of_one_agent = |n: usize| {
        let call = call().with_agent_id("mallory");
        call.with_unverified_session(format!("invented-{n}"))
    };
    for invents in [invented, of_one_agent] {
        let layer = RepeatGuardLayer::builder().with_keys(Keys::default().at_most(8));
        let svc = layer
            .build()
            .unwrap()
            .layer(Tool::always(Step::fail(ErrorKind::Failed)));
        let fail = |call: ToolCall| svc.clone().oneshot(call);
        for session in SESSIONS {
            let _ = fail(verified(session)).await;
            let _ = fail(verified(session)).await;
        }
        for n in 0..3000 {
            let _ = fail(invents(n / 3)).await;
        }
        for session in SESSIONS {
            let _ = fail(verified(session)).await;
            let error = fail(verified(session)).await.unwrap_err();
            assert_eq!(error.code(), TOOL_REPEATED, "{session}");
        }
    }
}

/// S-3, rule 6: what verified agents have used up is remembered, also where invented ones succeed.
#[tokio::test(start_paused = true)]
async fn invented_sessions_take_no_bucket_from_verified_ones() {
    let layer = QuotaLayer::builder(Quota::per_hour(1).unwrap())
        .with_keys(Key::by(|call| call.session_id().unwrap_or_default()))
        .with_fail_fast()
        .with_keys(Keys::default().at_most(8))
        .build()
        .unwrap();
    let svc = layer.layer(Tool::always(Step::ok("paid")));
    for session in SESSIONS {
        svc.clone().oneshot(verified(session)).await.unwrap();
    }
    for n in 0..1000 {
        let _ = svc.clone().oneshot(invented(n)).await;
        let _ = svc.clone().oneshot(invented(n)).await;
    }
    for session in SESSIONS {
        let error = svc.clone().oneshot(verified(session)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited, "{session}");
    }
}

/// An agent that was verified has not verified the session that it names.
#[tokio::test(start_paused = true)]
async fn a_session_that_was_not_verified_has_no_history_of_a_verified_one() {
    let svc = RepeatGuardLayer::new().layer(Tool::always(Step::fail(ErrorKind::Failed)));
    let fail = |call| svc.clone().oneshot(call);
    let claimed = || call().with_agent_id("mallory").with_unverified_session("a");
    for _ in 0..5 {
        let _ = fail(claimed()).await;
    }
    let error = fail(verified("a").with_agent_id("alice")).await;
    assert_ne!(error.unwrap_err().code(), TOOL_REPEATED);
}

/// A session that a bridge has verified stays known, whatever its caller says about the agent.
#[tokio::test(start_paused = true)]
async fn a_verified_session_keeps_its_history_beside_an_invented_agent() {
    let svc = RepeatGuardLayer::new().layer(Tool::always(Step::fail(ErrorKind::Failed)));
    let fail = |call: ToolCall| svc.clone().oneshot(call);
    let invented = |id: &str| call().with_agent_id(id.to_owned()).with_unverified_ids();
    for agent in ["x", "y", "z"] {
        let _ = fail(invented(agent).with_session_id("a")).await;
    }
    let error = fail(verified("a")).await.unwrap_err();
    assert_eq!(error.code(), TOOL_REPEATED);
}

/// S-3, rule 6: half of the places of `once` stay free for verified principals.
#[tokio::test(start_paused = true)]
async fn invented_sessions_fill_half_of_the_places_of_once() {
    let layer = OnceLayer::builder().with_max_keys(16).build().unwrap();
    let svc = layer.layer(Tool::always(Step::ok("paid")));
    let pay = |call: ToolCall| svc.clone().oneshot(call.with_once_key("k"));
    let mut paid = 0;
    for n in 0..100 {
        match pay(invented(n)).await {
            Ok(_) => paid += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Overloaded),
        }
    }
    assert_eq!(paid, 8);
    for n in 0..8 {
        pay(verified(&format!("v{n}"))).await.unwrap();
    }
}

/// S-3, rule 6: kept answers of verified principals are not forgotten for invented ones.
#[tokio::test(start_paused = true)]
async fn invented_sessions_push_out_no_answer_of_verified_ones() {
    let layer = CacheLayer::builder(Duration::from_secs(60), ["pay"])
        .with_max_keys(16)
        .build()
        .unwrap();
    let tool = Tool::always(Step::ok("paid"));
    let svc = layer.layer(tool.clone());
    // More than half: the store is full of answers then.
    for n in 0..12 {
        let _ = svc.clone().oneshot(verified(&format!("v{n}"))).await;
    }
    for n in 0..100 {
        let _ = svc.clone().oneshot(invented(n)).await;
    }
    let before = tool.count();
    for n in 0..12 {
        let _ = svc.clone().oneshot(verified(&format!("v{n}"))).await;
    }
    assert_eq!(tool.count(), before);
}

/// S-2, rule 6: answers of verified principals are not forgotten for the bytes of invented ones,
/// which have half.
#[tokio::test(start_paused = true)]
async fn invented_sessions_take_no_bytes_from_verified_ones() {
    let layer = CacheLayer::builder(Duration::from_secs(60), ["pay"])
        .with_max_answer(10)
        .with_size(|text: &&str| text.len() as u64)
        .with_max_bytes(160)
        .build()
        .unwrap();
    let tool = Tool::always(Step::ok("ten bytes!"));
    let svc = layer.layer(tool.clone());
    for n in 0..12 {
        let _ = svc.clone().oneshot(verified(&format!("v{n}"))).await;
    }
    for n in 0..100 {
        let _ = svc.clone().oneshot(invented(n)).await;
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert_eq!(tool.count(), 112);
    for n in 0..12 {
        let _ = svc.clone().oneshot(verified(&format!("v{n}"))).await;
    }
    assert_eq!(tool.count(), 112);
    for n in 96..100 {
        let _ = svc.clone().oneshot(invented(n)).await;
    }
    assert_eq!(tool.count(), 112);
}

/// An invented id gets no answer of the verified one with the same text.
#[tokio::test(start_paused = true)]
async fn an_invented_session_gets_no_answer_of_a_verified_one() {
    let layer = OnceLayer::new();
    let tool = Tool::new([Step::ok("hers"), Step::ok("another")]);
    let svc = layer.layer(tool);
    let call = |call: ToolCall| -> Result<ToolCall, ToolError> {
        call.with_once_key("k").with_json(json!({ "euros": 20 }))
    };
    let hers = call(verified("invented-1")).unwrap();
    assert_eq!(svc.clone().oneshot(hers).await.unwrap(), "hers");
    let asked = call(invented(1)).unwrap();
    assert_eq!(svc.oneshot(asked).await.unwrap(), "another");
}
