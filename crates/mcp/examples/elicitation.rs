//! An MCP server asks the user of its client before it deletes a file.
//!
//! ```text
//! cargo run -p tower-toolcall-mcp --features server --example elicitation
//! ```
//!
//! The server's approver is [`McpElicitation`]: it sends `elicitation/create` to the client that
//! makes the call. Both are in this process, at the ends of a pipe. The first client shows the
//! question to its user (here a script); the second one has not declared that it can, and is denied
//! without being asked.

use std::time::Duration;

use rmcp::{
    ClientHandler, RoleClient, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock,
        ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability, ErrorData,
    },
    service::RequestContext,
};
use serde::Deserialize;
use serde_json::json;
use tower::{ServiceBuilder, service_fn};
use tower_toolcall::{
    BoxError, ServiceBuilderExt as _, ToolCall,
    answer::ModelText,
    policy::{PolicyLayer, Rule},
};
use tower_toolcall_mcp::{GatewayHandler, McpAnswer, McpElicitation};

/// A client, with a user to ask or without.
struct Client {
    can_ask: bool,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self.can_ask.then(ElicitationCapability::default);
        let mut info = ClientConfig::default();
        info.capabilities = capabilities;
        info
    }

    /// A real client shows a dialogue. This user allows whatever is in /tmp.
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            return Ok(ElicitResult::new(ElicitationAction::Cancel));
        };
        let action = match message.contains(r#""/tmp/"#) {
            true => ElicitationAction::Accept,
            false => ElicitationAction::Decline,
        };
        println!("  asked: {message}\n  the user says: {action:?}");
        Ok(ElicitResult::new(action))
    }
}

#[derive(Deserialize)]
struct Delete {
    path: String,
}

fn server() -> Result<GatewayHandler, BoxError> {
    let policy = PolicyLayer::new()
        .allow("list_files")
        .rule(Rule::ask("delete_file").because("what is deleted is gone"))
        .deny_by_default()
        .with_approver(McpElicitation)
        .with_approval_timeout(Duration::from_secs(60))?;
    policy.check()?;
    let tool = service_fn(|call: ToolCall| async move {
        let text = match call.tool() {
            "list_files" => "report.txt, notes.txt".to_owned(),
            _ => format!("deleted {}", call.arguments_as::<Delete>()?.path),
        };
        let result = CallToolResult::success(vec![ContentBlock::text(text)]);
        Ok::<_, BoxError>(McpAnswer::from(result))
    });
    let stack = ServiceBuilder::new()
        .tool_policy(policy)
        // The time in which the user thinks is not the tools'.
        .tool_timeout(Duration::from_secs(5))
        .tool(tool);
    // Nothing is listed: the calls below are known.
    Ok(GatewayHandler::new(stack, Vec::new))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    for can_ask in [true, false] {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let server = server()?;
        let server = tokio::spawn(async move { server.serve(theirs).await });
        let client = Client { can_ask }.serve(ours).await?;
        println!(
            "a client that {} ask:",
            if can_ask { "can" } else { "cannot" }
        );
        for (tool, arguments) in [
            ("list_files", json!({})),
            ("delete_file", json!({ "path": "/tmp/report.txt" })),
            ("delete_file", json!({ "path": "/etc/passwd" })),
        ] {
            let mut params = CallToolRequestParams::new(tool);
            params.arguments = arguments.as_object().cloned();
            let answer = McpAnswer::from(client.call_tool(params).await?);
            println!("{tool}: {}", answer.model_text());
        }
        client.cancel().await?;
        server.await??.waiting().await?;
    }
    Ok(())
}
