//! The stack that never fails (E6, G2).

use serde_json::json;
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Outcome, ToolCall, ToolError,
    result::{Status, ToolResultLayer},
    settings::Settings,
};

use crate::kit::{call, changed, flaky, run, stack};

#[tokio::test]
async fn whatever_happens_there_is_a_result() {
    let results = (ToolResultLayer::new(), stack(&Settings::default()));
    for (failures, status) in [(0, Status::Success), (1, Status::Error)] {
        let tool = flaky(ErrorKind::Upstream, failures);
        let Ok(result) = results.layer(tool).oneshot(call()).await;
        assert_eq!(result.status(), status);
    }
}

/// Trap 25.
#[tokio::test]
async fn it_shares_its_state_with_the_stack() {
    let layer = stack(&Settings::default());
    let tool = flaky(ErrorKind::Upstream, 9);
    for _ in 0..5 {
        let Ok(result) = (ToolResultLayer::new(), &layer)
            .layer(tool.clone())
            .oneshot(call())
            .await;
        assert_eq!(result.error().unwrap().kind(), ErrorKind::Upstream);
    }
    assert_eq!(
        run(&layer, &tool, call()).await,
        Err(ErrorKind::CircuitOpen)
    );
}

/// S2: the rules of a stack hold for the results that are made around it.
#[tokio::test]
async fn a_result_is_written_by_the_rules() {
    let settings = changed(|s| s.sanitize.sensitive_keys = vec!["iban".into()]);
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(json!({ "iban": "DE02" })) });
    let results = ToolResultLayer::new().layer(stack(&settings).layer(tool));
    let Ok(result) = results.oneshot(call()).await;
    let written = serde_json::to_string(&result).unwrap();
    assert!(
        written.contains("[REDACTED]") && !written.contains("DE02"),
        "{written}"
    );
}

/// E6.
#[tokio::test]
async fn the_tools_own_errors_are_no_success() {
    let own = |result: Result<&&str, &ToolError>| match result {
        Ok(_) => Outcome::reported(),
        Err(_) => Outcome::failure(),
    };
    let layer = Settings::default()
        .stack()
        .with_classifier(own)
        .build()
        .unwrap();
    let tool = flaky(ErrorKind::Upstream, 0);
    let Ok(result) = ToolResultLayer::new()
        .with_classifier(own)
        .layer(layer.layer(tool))
        .oneshot(call())
        .await;
    assert_eq!(result.error().unwrap().kind(), ErrorKind::Reported);
}

/// E7, H-9: another system's codes, which are counted as well.
#[tokio::test(start_paused = true)]
async fn callers_and_metrics_have_codes_of_another_system() {
    let metrics = tower_toolcall::tool_metrics::Metrics::new();
    let codes = |error: &ToolError| match error.kind() {
        ErrorKind::Timeout => Some("TOOL_EXECUTION_FAILED"),
        _ => None,
    };
    let stack = Settings::agent_loop()
        .stack()
        .with_metrics(&metrics)
        .with_codes(codes);
    let stack = stack.build().unwrap();
    let hangs = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    let call = || call().with_timeout(crate::kit::secs(1));
    let error = stack.layer(hangs).oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.code(), "TOOL_EXECUTION_FAILED");
    let results = ToolResultLayer::new().layer(stack.layer(hangs));
    let Ok(result) = results.oneshot(call()).await;
    assert_eq!(result.error().unwrap().code(), "TOOL_EXECUTION_FAILED");
    assert_eq!(metrics.snapshot().total.codes["TOOL_EXECUTION_FAILED"], 2);
}
