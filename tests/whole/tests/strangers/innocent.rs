//! Callers who want nothing but their answers.

use std::time::Duration;

use reqwest::{Client, header::CONTENT_TYPE};
use rmcp::{
    ServiceExt as _, model::CallToolRequestParams, transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::gateway::Gateway;

#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) calls: usize,
    pub(crate) median: Duration,
    pub(crate) slowest: Duration,
    /// What went wrong, the first few.
    pub(crate) failed: Vec<String>,
}

/// Calls all tools that work, over all ways in, for so long.
pub(crate) async fn calls(gateway: &Gateway, lasting: Duration) -> Served {
    let end = Instant::now() + lasting;
    let query = json!({ "query": "tower" });
    let found = |tool: &str| match tool {
        "search" => "found tower",
        "slow" => "done",
        _ => "tower",
    };
    let plain = ["search", "slow", "docs__nap"].map(|tool| {
        let url = gateway.url(&format!("/tools/{tool}/call"));
        let body = if tool == "slow" {
            json!({})
        } else {
            query.clone()
        };
        tokio::spawn(repeat(end, tool, found(tool), move |client| {
            post(client, url.clone(), body.clone())
        }))
    });
    let rpc = ["search", "slow", "docs__echo"].map(|tool| {
        let url = gateway.url("/rpc");
        let arguments = if tool == "slow" {
            json!({})
        } else {
            query.clone()
        };
        let params = json!({ "name": tool, "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        tokio::spawn(repeat(end, tool, found(tool), move |client| {
            post(client, url.clone(), body.clone())
        }))
    });
    let mcp = tokio::spawn(over_mcp(end, gateway.url("/mcp")));
    let mut all = mcp.await.unwrap();
    for served in plain.into_iter().chain(rpc) {
        all.extend(served.await.unwrap());
    }
    let mut took: Vec<_> = all
        .iter()
        .filter_map(|call| call.as_ref().ok().copied())
        .collect();
    took.sort_unstable();
    Served {
        calls: all.len(),
        median: took.get(took.len() / 2).copied().unwrap_or_default(),
        slowest: took.last().copied().unwrap_or_default(),
        failed: all.into_iter().filter_map(Result::err).take(10).collect(),
    }
}

/// How long a call took, or what went wrong.
type Call = Result<Duration, String>;

async fn post(client: Client, url: String, body: Value) -> Result<String, String> {
    let request = client.post(url).header(CONTENT_TYPE, "application/json");
    let response = request.body(body.to_string()).send().await;
    let response = response.map_err(|error| format!("{error:?}"))?;
    response.text().await.map_err(|error| format!("{error:?}"))
}

async fn repeat<F>(
    end: Instant,
    tool: &'static str,
    found: &'static str,
    call: impl Fn(Client) -> F,
) -> Vec<Call>
where
    F: Future<Output = Result<String, String>>,
{
    let client = Client::new();
    let mut calls = Vec::new();
    while Instant::now() < end {
        let start = Instant::now();
        let answer = call(client.clone()).await;
        calls.push(match answer {
            Ok(body) if body.contains(found) => Ok(start.elapsed()),
            other => Err(format!("{tool}: {other:?}")),
        });
        sleep(Duration::from_millis(25)).await;
    }
    calls
}

async fn over_mcp(end: Instant, url: String) -> Vec<Call> {
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = ().serve(transport).await.unwrap();
    let arguments = json!({ "query": "tower" }).as_object().cloned();
    let mut calls = Vec::new();
    while Instant::now() < end {
        for tool in ["docs__echo", "docs__nap", "search"] {
            let start = Instant::now();
            let mut params = CallToolRequestParams::new(tool);
            params.arguments.clone_from(&arguments);
            let answer = client.peer().call_tool_once(params).await;
            calls.push(match answer {
                Ok(answer) if format!("{answer:?}").contains("tower") => Ok(start.elapsed()),
                other => Err(format!("{tool}: {other:?}")),
            });
        }
        sleep(Duration::from_millis(25)).await;
    }
    let _ = client.cancel().await;
    calls
}
