//! The example `agent`: its loop with the scripted model in each format, and with servers that play
//! a provider.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod kit;
mod real;
mod scripted;

#[path = "../../src/agent.rs"]
mod agent;
#[path = "../../src/dialect.rs"]
mod dialect;
#[path = "../../src/provider.rs"]
mod provider;
#[path = "../../src/script.rs"]
mod script;
#[path = "../../src/server.rs"]
mod server;
#[path = "../../src/show.rs"]
mod show;

const FORMATS: [&str; 5] = [
    "openai-chat",
    "openai-responses",
    "anthropic",
    "gemini",
    "bedrock",
];
