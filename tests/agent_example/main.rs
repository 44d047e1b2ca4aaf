//! The example `agent`: its loop with the scripted model in each format, and with servers that play
//! a provider.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod kit;
mod real;
mod scripted;

#[path = "../../examples/agent/agent.rs"]
mod agent;
#[path = "../../examples/agent/dialect.rs"]
mod dialect;
#[path = "../../examples/agent/provider.rs"]
mod provider;
#[path = "../../examples/agent/script.rs"]
mod script;
#[path = "../../examples/agent/server.rs"]
mod server;
#[path = "../../examples/agent/show.rs"]
mod show;

const FORMATS: [&str; 5] = [
    "openai-chat",
    "openai-responses",
    "anthropic",
    "gemini",
    "bedrock",
];
