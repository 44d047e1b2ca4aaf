use std::collections::HashSet;

use proptest::prelude::*;
use tower_toolcall::{ToolCall, batch::Parallel};

use super::kit::{Counts, calls, tool};

/// X3: a call without an id is given one.
#[tokio::test]
async fn a_call_without_an_id_is_given_one() {
    let [a, b] = calls(["now", "now"]);
    let results = Parallel::new(tool(&Counts::default()))
        .run([a, b.with_id(" ")])
        .await;
    let ids: HashSet<_> = results.iter().map(|r| r.call_id().unwrap()).collect();
    assert_eq!(ids.len(), 2);
    assert!(
        ids.iter()
            .all(|id| id.starts_with("call_") && id.len() == 21)
    );
}

/// X3: both calls run, and the first keeps the id, so that exactly one result has it.
#[tokio::test]
async fn of_calls_with_one_id_the_first_keeps_it() {
    let counts = Counts::default();
    let twice = calls(["now", "fail", "now"]).map(|call| call.with_id("call_1"));
    let results = Parallel::new(tool(&counts)).run(twice).await;
    assert_eq!(counts.begun(), 3);
    assert_eq!(results[0].call_id(), Some("call_1"));
    let of_it = results.iter().filter(|r| r.call_id() == Some("call_1"));
    assert_eq!(of_it.count(), 1);
    assert!(!results[1].is_success() && results[2].is_success());
}

/// The id that the tool sees is that of the result.
#[tokio::test]
async fn the_tool_sees_the_id_that_its_call_was_given() {
    let tools = tower::service_fn(|call: ToolCall| async move {
        Ok::<_, tower_toolcall::BoxError>(call.id().unwrap().to_owned())
    });
    let results = Parallel::new(tools).run(calls(["a", "b"])).await;
    for result in results {
        assert_eq!(result.data().map(String::as_str), result.call_id());
    }
}

/// A clone that the caller keeps is not changed.
#[tokio::test]
async fn the_callers_own_copy_keeps_its_name() {
    let [kept] = calls(["now"]);
    let results = Parallel::new(tool(&Counts::default()))
        .run([kept.clone()])
        .await;
    assert!(results[0].call_id().is_some() && kept.id().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    /// X3: whatever the ids, there are as many results as calls, each with an id of its own.
    #[test]
    fn each_result_has_an_id_of_its_own(ids in prop::collection::vec("[ab ]{0,2}", 0..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let calls: Vec<_> = ids.iter().map(|id| ToolCall::new("now").with_id(id.as_str())).collect();
        let results = runtime.block_on(Parallel::new(tool(&Counts::default())).run(calls));
        prop_assert_eq!(results.len(), ids.len());
        let unique: HashSet<_> = results.iter().map(|r| r.call_id().unwrap()).collect();
        prop_assert_eq!(unique.len(), ids.len());
        for id in ids.iter().filter(|id| !id.trim().is_empty()) {
            prop_assert!(unique.contains(id.as_str()));
        }
    }
}
