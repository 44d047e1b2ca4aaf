//! What a subscriber sees of the stack that settings build.

use tower::Layer;
use tower_toolcall::settings::Settings;

use super::*;

/// One call whose first attempt is refused and whose second is answered with an error in the tool's own words.
async fn seen(attempts: bool) -> Vec<(Option<String>, String, Option<String>)> {
    let (record, _guard) = record();
    let mut settings = Settings::default();
    settings.trace.attempts = attempts;
    let own = classify_fn(|result: Result<&&str, &ToolError>| match result {
        Ok(_) => Outcome::reported(),
        other => ByError.classify(other),
    });
    let layer = settings.stack().with_classifier(own).build().unwrap();
    let tool = service_fn(|call: ToolCall| async move {
        match call.attempt() {
            1 => Err(ToolError::new(ErrorKind::RateLimited, "429")),
            _ => Ok("no such file"),
        }
    });
    layer.layer(tool).oneshot(call()).await.unwrap();
    let spans = record.0.lock().unwrap().spans.clone();
    spans
        .into_iter()
        .map(|(parent, name, mut fields)| (parent, name, fields.remove("error.type")))
        .collect()
}

/// Between retry and rate limit, with the stack's own classifier.
#[tokio::test(start_paused = true)]
async fn each_attempt_has_its_span_if_asked_for() {
    let call = (
        None,
        "execute_tool".to_owned(),
        Some("tool_error".to_owned()),
    );
    let attempt = |error: &str| {
        let parent = Some("execute_tool".to_owned());
        (parent, "tool_attempt".to_owned(), Some(error.to_owned()))
    };
    assert_eq!(seen(false).await, std::slice::from_ref(&call));
    assert_eq!(
        seen(true).await,
        [call, attempt("rate_limited"), attempt("tool_error")]
    );
}
