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
    assert_eq!(error.kind(), ErrorKind::Reported);
    assert_eq!(error.execution(), Execution::Completed);
    assert_eq!(error.tool(), Some("t"));
    assert!(error.message().ends_with("out of ink"));
}
