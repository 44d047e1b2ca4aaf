//! What a subscriber sees of the stack that settings build.

use tower::Layer;
use tower_toolcall::settings::Settings;

use super::*;

/// One call whose first attempt is refused and whose second is answered with an error in the tool's
/// own words.
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

/// B: O1. The start of a call says how long it may take: its tool's timeout, its own, or what is
/// left of a budget.
#[tokio::test(start_paused = true)]
async fn the_start_of_a_call_has_the_timeout_in_force() {
    let (record, _guard) = record();
    let mut settings = Settings::agent_library();
    settings
        .tools
        .entry("import".to_owned())
        .or_default()
        .timeout = Some(Duration::from_secs(9));
    let layer = settings.stack().build().unwrap();
    let tool = service_fn(|_: ToolCall| async { Ok::<_, ToolError>("done") });
    let soon = tokio::time::Instant::now() + Duration::from_secs(2);
    let calls = [
        ToolCall::new("search"),
        ToolCall::new("import"),
        ToolCall::new("import").with_timeout(Duration::from_secs(3)),
        ToolCall::new("import").with_deadline(soon),
    ];
    for call in calls {
        layer.layer(tool).oneshot(call).await.unwrap();
    }
    let events = record.0.lock().unwrap().events.clone();
    let starts = events.iter().filter(|(_, name, _)| name == "tool.start");
    let timeouts: Vec<_> = starts
        .map(|(_, _, fields)| fields["timeout_ms"].clone())
        .collect();
    assert_eq!(timeouts, ["5000.0", "9000.0", "3000.0", "2000.0"]);
}

/// The budget of the deadline layer holds too.
#[tokio::test(start_paused = true)]
async fn the_timeout_at_the_start_is_within_the_budget() {
    let (record, _guard) = record();
    let mut settings = Settings::agent_library();
    settings.deadline.budget = Some(Duration::from_secs(4));
    let layer = settings.stack().build().unwrap();
    let tool = service_fn(|_: ToolCall| async { Ok::<_, ToolError>("done") });
    layer.layer(tool).oneshot(call()).await.unwrap();
    let events = record.0.lock().unwrap().events.clone();
    let start = events.iter().find(|(_, name, _)| name == "tool.start");
    assert_eq!(start.unwrap().2["timeout_ms"], "4000.0");
}
