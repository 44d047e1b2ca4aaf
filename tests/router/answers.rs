//! What tools may answer.

use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, BoxError, ErrorKind, Execution, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer,
    retry::RetryLayer,
    router::{IntoAnswer, Json, Router, tool_fn},
    timeout::TimeoutLayer,
};
use tower_toolcall_mcp::McpAnswer;

async fn answer<T>(answer: T) -> Result<Value, ToolError>
where
    T: IntoAnswer<Value> + Clone + Send + Sync + 'static,
{
    let tool = service_fn(move |_: ToolCall| {
        let answer = answer.clone();
        async move { Ok::<_, BoxError>(answer) }
    });
    let router = Router::builder().tool("t", tool).build().unwrap();
    router.oneshot(ToolCall::new("t")).await
}

/// F-1: it compiles where a future must be `Send`.
#[tokio::test]
async fn a_router_of_typed_tools_can_be_made_and_called_in_a_task() {
    let task = tokio::spawn(async move {
        let count = tool_fn(|[text]: [String; 1]| async move {
            Ok::<_, AnyError>(text.parse::<u8>()?.to_string())
        });
        let router = Router::<Value>::builder().tool("count", count).build()?;
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::default())
            .layer(CircuitBreakerLayer::new())
            .layer(TimeoutLayer::default())
            .service(router);
        stack
            .oneshot(ToolCall::new("count"))
            .await
            .map_err(AnyError::from)
    });
    assert!(task.await.unwrap().is_err());
}

#[tokio::test]
async fn values_texts_nothing_and_json() {
    assert_eq!(answer(json!([1])).await.unwrap(), json!([1]));
    assert_eq!(answer("text").await.unwrap(), "text");
    assert_eq!(answer("text".to_owned()).await.unwrap(), "text");
    assert_eq!(answer(()).await.unwrap(), Value::Null);
    assert_eq!(answer(Json(vec![1, 2])).await.unwrap(), json!([1, 2]));
}

/// The tool has run: its answer is what is wrong.
#[tokio::test]
async fn what_cannot_be_written_is_an_error() {
    #[derive(Clone)]
    struct Unwritable;
    impl Serialize for Unwritable {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(S::Error::custom("out of ink"))
        }
    }
    let error = answer(Json(Unwritable)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.execution(), error.tool()),
        (ErrorKind::Reported, Execution::Completed, Some("t"))
    );
    assert!(error.message().ends_with("out of ink"));
}

mod mcp {
    use rmcp::model::{CallToolResult, ContentBlock};
    use tower_toolcall::ModelText as _;

    use super::*;

    fn response(answer: impl IntoAnswer<McpAnswer>) -> CallToolResult {
        answer.into_answer().unwrap().result().cloned().unwrap()
    }

    fn text(answer: impl IntoAnswer<McpAnswer>) -> String {
        answer.into_answer().unwrap().model_text().into_owned()
    }

    #[test]
    fn results_of_mcp() {
        let result = CallToolResult::error(vec![ContentBlock::text("no such city")]);
        assert_eq!(response(result).is_error, Some(true));
        assert_eq!(text("text"), "text");
        assert_eq!(text("text".to_owned()), "text");
        assert_eq!(text(()), "");
        let object = || json!({ "a": 1 });
        for structured in [response(object()), response(Json(object()))] {
            assert!(structured.structured_content.is_some());
        }
        assert_eq!(text(object()), r#"{"a":1}"#);
        assert_eq!(text(Json(object())), r#"{"a":1}"#);
        // As it would be alone.
        let text = response(json!("a \"b\""));
        assert_eq!(text.content[0].as_text().unwrap().text, "a \"b\"");
        assert_eq!(text.structured_content, Some(json!("a \"b\"")));
        let nothing = response(json!(null));
        assert_eq!(
            (nothing.content.len(), nothing.structured_content),
            (0, None)
        );
    }
}
