use rmcp::model::CallToolResponse;
use serde::{Serialize, Serializer, ser::Error as _};

/// An MCP server's answer as the JSON that the server has sent, for code that writes answers as JSON.
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt as _, service_fn};
/// use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock};
/// use tower_toolcall::{AnyError, ToolCall, mcp::McpJson};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AnyError> {
/// let tool = service_fn(|_: ToolCall| async {
///     let result = CallToolResult::success(vec![ContentBlock::text("sunny")]);
///     Ok::<_, AnyError>(CallToolResponse::from(result))
/// });
/// let stack = ServiceBuilder::new().map_response(McpJson).service(tool); // for `axum::Routes`, as one
/// let answer = stack.oneshot(ToolCall::new("weather")).await?;
/// let json = serde_json::to_value(&answer)?;
/// assert_eq!(json["content"][0]["text"], "sunny");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct McpJson(pub CallToolResponse);

impl Serialize for McpJson {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        AsJson(&self.0).serialize(to)
    }
}

/// The same of a borrowed answer.
pub(super) struct AsJson<'a>(pub(super) &'a CallToolResponse);

impl Serialize for AsJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            CallToolResponse::Complete(result) => result.serialize(to),
            CallToolResponse::InputRequired(result) => result.serialize(to),
            CallToolResponse::Task(result) => result.serialize(to),
            _ => Err(S::Error::custom("a result of an unknown kind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::InputRequiredResult;
    use serde_json::{Value, from_value, json, to_value};

    /// Whatever the answer is: as it came.
    #[test]
    fn an_answer_of_each_kind_is_written_as_it_was_sent() {
        let is_the_same = |sent: Value, answer: CallToolResponse| {
            assert_eq!(to_value(McpJson(answer)).unwrap(), sent);
        };
        let sent = json!({ "content": [{ "type": "text", "text": "sunny" }], "isError": true });
        let answer = CallToolResponse::Complete(from_value(sent.clone()).unwrap());
        is_the_same(sent, answer);
        let sent = json!({ "resultType": "input_required", "requestState": "opaque" });
        let asks = InputRequiredResult::from_request_state("opaque");
        is_the_same(sent, CallToolResponse::InputRequired(asks));
    }
}
