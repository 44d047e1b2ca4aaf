//! Names of tools that models' providers refuse.

use std::{collections::HashSet, sync::Arc};

use rmcp::model::{CallToolResult, ContentBlock, Tool};
use serde_json::json;
use tower::service_fn;
use tower_toolcall::{BoxError, ToolCall, router::Names};
use tower_toolcall_mcp::{GatewayHandler, McpAnswer};

use super::kit::{Connected, WAYS, Way, connect};
use crate::log::Log;

/// A gateway with these tools, which tell their own names.
fn gateway(tools: &[&str]) -> GatewayHandler {
    let tools: Vec<String> = tools.iter().map(|tool| (*tool).to_owned()).collect();
    let stack = service_fn(|call: ToolCall| async move {
        let text = ContentBlock::text(call.tool());
        Ok::<_, BoxError>(McpAnswer::from(CallToolResult::success(vec![text])))
    });
    let tool = |name: &String| Tool::new(name.clone(), "", Arc::default());
    GatewayHandler::new(stack, move || tools.iter().map(tool).collect())
}

async fn listed(client: &Connected) -> Vec<Tool> {
    client.client.peer().list_all_tools().await.unwrap()
}

async fn called(client: &Connected, name: &str) -> String {
    let name: &'static str = name.to_owned().leak();
    let body = client.body(name, json!({})).await;
    body["content"][0]["text"].as_str().unwrap().to_owned()
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#tool-names
//# Tool names SHOULD be between 1 and 128 characters in length (inclusive).
//# The following SHOULD be the only allowed characters: uppercase and lowercase ASCII letters (A-Z,
//# a-z), digits (0-9), underscore (_), hyphen (-), and dot (.)
//# Tool names SHOULD NOT contain spaces, commas, or other special characters.
/// M12, MCP tools15, tools17, tools18: each listed name is one that all providers take, and its
/// calls reach the tool that it was made of, whether the client has seen the list or not.
#[tokio::test]
async fn tools_are_listed_under_names_that_models_can_call() {
    let long = "x".repeat(200);
    let own = [
        "plain",
        "docs.search",
        "docs/search",
        "two words",
        "größe",
        "7zip",
        &long,
    ];
    for way in WAYS {
        let client = connect(way, gateway(&own)).await;
        let tools = listed(&client).await;
        let mut seen = HashSet::new();
        let fresh = connect(way, gateway(&own)).await;
        for tool in &tools {
            let name = &*tool.name;
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            assert!(name.len() <= 64 && name.chars().all(fits), "{name}");
            let own = tool.title.as_deref().unwrap_or(name);
            assert!(seen.insert(own.to_owned()));
            for client in [&client, &fresh] {
                assert_eq!(called(client, name).await, own, "{way:?} {name}");
            }
        }
        assert_eq!(seen, own.iter().map(|own| (*own).to_owned()).collect());
        // A client may know the tool's own name.
        assert_eq!(called(&client, "docs/search").await, "docs/search");
    }
}

/// M12: a name that was made of one tool's is never another's, and that they meet is told.
#[tokio::test]
async fn two_tools_whose_names_come_to_the_same_do_not_mix() {
    let made = Names::new(["a/b"]).to_model("a/b").into_owned();
    let (log, _guard) = Log::begin();
    let client = connect(Way::StreamModern, gateway(&["a/b", &made, "c.d"])).await;
    let tools = listed(&client).await;
    let names: HashSet<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names.len(), 3);
    for tool in &tools {
        let own = tool.title.as_deref().unwrap_or(&tool.name);
        assert_eq!(called(&client, &tool.name).await, own);
    }
    let told = log.events("tool.name_collision");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["tool"], "a/b");
}
