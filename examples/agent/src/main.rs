//! An agent: a loop around a model that calls the tools of a real MCP server in this process,
//! through a stack of layers.
//!
//! ```text
//! cargo run -p example-agent
//! cargo run -p example-agent -- anthropic
//! ```
//!
//! The model is played by a script, which makes the mistakes of real ones and speaks one of five
//! formats: `openai-chat` (the default), `openai-responses`, `anthropic`, `gemini` or `bedrock`.
//! With a key in the environment the model is real:
//!
//! - `OPENAI_API_KEY`, `ANTHROPIC_API_KEY`, `GEMINI_API_KEY`, `AWS_BEARER_TOKEN_BEDROCK`: the key
//!   of the provider
//! - `AGENT_MODEL`: the model, instead of one of the provider's
//! - `AGENT_URL`: another server with the provider's API, such as `http://127.0.0.1:11434` for
//!   Ollama; it may need no key
//! - `AWS_REGION`: of Bedrock; `us-east-1` by default
//!
//! `-- anthropic script` plays the script although there is a key.

mod agent;
mod dialect;
mod provider;
mod script;
mod server;
mod show;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    agent::main(std::env::args().skip(1)).await
}
