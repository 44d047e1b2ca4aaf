//! Whose rules hold for what is shown of a call.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall, ToolError, ToolResult, redact::Rules, result::ToolResultLayer,
    retry::RetryLayer, sanitize::SanitizeLayer,
};

fn rules() -> Rules {
    Rules::new()
        .with_sensitive_key("iban")
        .unwrap()
        .with_harmless_key("public_key")
        .unwrap()
        .with_secret_prefix("acme_live_", 8)
        .unwrap()
}

fn arguments() -> Value {
    json!({
        "iban": "DE02120300000000202051",
        "public_key": "ssh-ed25519 AAAA",
        "password": "hunter2",
        "note": "by acme_live_0123456789",
    })
}

const REDACTED: &str = r#"{"iban":"[REDACTED]","note":"by [REDACTED]","password":"[REDACTED]","public_key":"ssh-ed25519 AAAA"}"#;

/// S1: the tool gets the real arguments, and whoever looks on gets the view.
#[tokio::test]
async fn the_tool_gets_the_real_arguments() {
    let stack = ServiceBuilder::new()
        .layer(SanitizeLayer::new(rules()))
        .service(service_fn(|call: ToolCall| async move {
            assert_eq!(call.sanitized().to_string(), REDACTED);
            Ok::<_, BoxError>(Value::Object(call.arguments().clone()))
        }));
    let call = ToolCall::new("pay").with_json(arguments()).unwrap();
    assert_eq!(stack.oneshot(call).await.unwrap(), arguments());
}

/// S8: the same rules for the answer.
#[tokio::test]
async fn a_serialised_answer_is_redacted_by_the_same_rules() {
    let stack = ServiceBuilder::new()
        .layer(SanitizeLayer::new(rules()))
        .layer(ToolResultLayer::new())
        .service(service_fn(|_: ToolCall| async {
            Ok::<_, BoxError>(arguments())
        }));
    let Ok(mut result) = stack.oneshot(ToolCall::new("pay")).await;
    result.metadata_mut().insert("iban", "DE02");
    let written = serde_json::to_value(&result).unwrap();
    assert_eq!(written["data"].to_string(), REDACTED);
    assert_eq!(written["metadata"]["extra"]["iban"], "[REDACTED]");
}

/// S8: the same rules for errors, whoever made them, in all that they show.
#[tokio::test]
async fn an_error_is_redacted_by_the_same_rules() {
    let stack = ServiceBuilder::new()
        .layer(SanitizeLayer::new(rules()))
        .layer(RetryLayer::default())
        .service(service_fn(|_: ToolCall| async {
            let error = ToolError::new(
                ErrorKind::InvalidInput,
                "no key: acme_live_0123456789".to_owned(),
            );
            Err::<(), _>(
                error
                    .with_body("body of acme_live_0123456789")
                    .with_detail("iban", "DE02120300000000202051"),
            )
        }));
    let error = stack.oneshot(ToolCall::new("pay")).await.unwrap_err();
    assert_eq!(error.message(), "no key: [REDACTED]");
    assert_eq!(error.body(), Some("body of [REDACTED]"));
    assert_eq!(
        error.details().unwrap().to_string(),
        r#"{"iban":"[REDACTED]"}"#
    );
    let shown = format!(
        "{error} {error:?} {} {} {}",
        error.model_message(),
        error.to_json_rpc(),
        serde_json::to_string(&error).unwrap()
    );
    assert!(!shown.contains("acme_live"), "{shown}");
    // What is added later is redacted by them too.
    let error = error.with_body("acme_live_9876543210");
    assert_eq!(error.body(), Some("[REDACTED]"));
}

/// Of two layers each has its part of the stack.
#[tokio::test]
async fn the_inner_layers_rules_hold_below_it() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let stack = ServiceBuilder::new()
        .layer(SanitizeLayer::new(rules()))
        .layer(SanitizeLayer::default())
        .service(service_fn(move |call: ToolCall| {
            log.lock().unwrap().push(call.sanitized().to_string());
            async { Ok::<_, BoxError>(()) }
        }));
    let call = ToolCall::new("pay")
        .with_json(json!({ "iban": "DE02" }))
        .unwrap();
    stack.oneshot(call.clone()).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [r#"{"iban":"DE02"}"#]);
    // The caller's own clone is as it was.
    assert_eq!(call.sanitized().to_string(), r#"{"iban":"DE02"}"#);
}

/// Rules stay where they are; a result that came over a wire has the built-in ones.
#[tokio::test]
async fn rules_do_not_go_over_a_wire() {
    let call = ToolCall::new("pay").with_rules(rules());
    let sent = serde_json::to_string(&call).unwrap();
    let received: ToolCall = serde_json::from_str(&sent).unwrap();
    assert_eq!(*received.rules(), Rules::default());
    let stack = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .service(service_fn(|_: ToolCall| async { Ok::<_, BoxError>(1) }));
    let Ok(result) = stack.oneshot(call).await;
    let sent = serde_json::to_string(&result.exposed()).unwrap();
    let received: ToolResult<i32> = serde_json::from_str(&sent).unwrap();
    assert_eq!(*received.call().rules(), Rules::default());
}

/// Rules add up: what an inner layer's rules hide stays hidden.
#[tokio::test]
async fn details_keep_the_rules_of_an_inner_layer() {
    let outer = Rules::new().with_sensitive_key("bic").unwrap();
    let stack = ServiceBuilder::new()
        .layer(SanitizeLayer::new(outer))
        .layer(RetryLayer::default())
        .layer(SanitizeLayer::new(rules()))
        .layer(RetryLayer::default())
        .service(service_fn(|_: ToolCall| async {
            let error = ToolError::new(ErrorKind::InvalidInput, "no");
            Err::<(), _>(error.with_detail("iban", "DE02").with_detail("bic", "X"))
        }));
    let error = stack.oneshot(ToolCall::new("pay")).await.unwrap_err();
    assert_eq!(
        error.details().unwrap().to_string(),
        r#"{"bic":"[REDACTED]","iban":"[REDACTED]"}"#
    );
}

/// An error is cut before the rules of a call are known: what the cut leaves of a token is not
/// shown.
#[tokio::test]
async fn a_token_that_was_cut_before_is_not_shown() {
    let rules = Rules::new().with_secret_prefix("acme-", 32).unwrap();
    let stack = ServiceBuilder::new()
        .layer(SanitizeLayer::new(rules))
        .layer(RetryLayer::default())
        .service(service_fn(|_: ToolCall| async {
            let text = format!("{}acme-{}", "word ".repeat(95), "x1".repeat(40));
            let error = ToolError::new(ErrorKind::InvalidInput, text.clone());
            Err::<(), _>(error.with_body(&text))
        }));
    let error = stack.oneshot(ToolCall::new("pay")).await.unwrap_err();
    for text in [error.message(), error.body().unwrap()] {
        assert!(
            text.contains("[REDACTED]") && !text.contains("acme-"),
            "{text}"
        );
    }
}

/// `Debug` of a result shows nothing that a caller has added.
#[tokio::test]
async fn a_results_debug_shows_no_metadata_of_the_callers() {
    let stack = ServiceBuilder::new()
        .layer(SanitizeLayer::new(rules()))
        .layer(ToolResultLayer::new())
        .service(service_fn(|_: ToolCall| async { Ok::<_, BoxError>(1) }));
    let Ok(mut result) = stack.oneshot(ToolCall::new("pay")).await;
    result.metadata_mut().insert("iban", "DE02-canary");
    assert!(!format!("{result:?}").contains("canary"));
}
