//! Reads a model's tool calls as [`ToolCall`](tower_toolcall::ToolCall)s, and writes their results
//! as the provider's next message.
//!
//! A [`Turn`] is read from the JSON of a response, whichever client fetched it, or put together
//! from a stream by an [`Assembler`]. Its answer has **exactly one result for each call**, in the
//! model's order, whatever failed, was refused, was cancelled or had arguments that are not JSON.
//! Otherwise the provider answers 400, to this and each later request of the conversation.
//!
//! # Example
//!
//! A whole loop; `ask` sends the conversation to the provider:
//!
//! ```
//! use serde::Deserialize;
//! use serde_json::{Value, json};
//! use tower::service_fn;
//! use tower_toolcall::{AnyError, BoxError, ReplaySafety, ToolCall, batch::Parallel};
//! use tower_toolcall_turn::{Format, Turn};
//!
//! /// Sends the messages to the model, and returns its response.
//! async fn ask(messages: &[Value]) -> Result<Value, BoxError> {
//! #     let text = |reason, text| {
//! #         let content = json!([{ "type": "text", "text": text }]);
//! #         Ok(json!({ "stop_reason": reason, "content": content }))
//! #     };
//! #     match messages.len() {
//! #         1 => return text("pause_turn", "Let me look."),
//! #         2 => {}
//! #         4 => return text("max_tokens", "12 deg"),
//! #         _ => return text("end_turn", "12 degrees."),
//! #     }
//! #     Ok(json!({ "stop_reason": "tool_use", "content": [
//! #         { "type": "thinking", "thinking": "..", "signature": "c2ln" },
//! #         { "type": "tool_use", "id": "toolu_1", "name": "weather",
//! #           "input": { "city": "Oslo" } },
//! #         { "type": "tool_use", "id": "toolu_2", "name": "weather",
//! #           "input": { "city": "Narnia" } },
//! #     ] }))
//! # }
//! # #[cfg(any())] // for those who copy this
//! # async fn ask(messages: &[Value]) -> Result<Value, BoxError> {
//!     todo!("call your provider's API")
//! }
//!
//! #[derive(Deserialize)]
//! struct Weather {
//!     city: String,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
//! let tools = Parallel::new(service_fn(|call: ToolCall| async move {
//!     let Weather { city } = call.arguments_as()?;
//!     match &*city {
//!         "Oslo" => Ok("12 degrees"),
//!         _ => Err(AnyError::from("no such city")),
//!     }
//! }));
//!
//! let mut messages =
//!     vec![json!({ "role": "user", "content": "How warm is it in Oslo and in Narnia?" })];
//! // A model may be cut off for ever.
//! for _ in 0..20 {
//!     let turn = Turn::read(Format::Anthropic, &ask(&messages).await?)?
//!         // `once`, `cache`, `repeat_guard` and quotas distinguish conversations by it.
//!         .with_session_id("chat 17")
//!         // Tools that only read may run twice: retries repeat them, and `once` does not answer.
//!         .map_calls(|call| match call.tool() {
//!             "weather" => call.with_replay_safety(ReplaySafety::Safe),
//!             _ => call,
//!         });
//!     let done = turn.is_empty() && !turn.is_cut();
//!     // A paused turn goes on by itself. Few providers go on after the model's own words.
//!     let breaks_off = turn.is_empty() && turn.is_cut() && !turn.is_paused();
//!     messages.extend(turn.run(&tools).await.into_messages());
//!     if done {
//!         break;
//!     }
//!     if breaks_off {
//!         messages.push(json!({ "role": "user", "content": "You were cut off. Go on." }));
//!     }
//! }
//!
//! let results = &messages[3]["content"];
//! assert_eq!(
//!     results[0],
//!     json!({ "type": "tool_result", "tool_use_id": "toolu_1", "content": "12 degrees" })
//! );
//! assert_eq!(results[1]["is_error"], true);
//! # assert_eq!(messages.len(), 7);
//! # assert_eq!(messages[5]["role"], "user");
//! # Ok(()) }
//! ```
//!
//! The tools of the request are written by [`Format::tools`], from any list of names, descriptions
//! and schemas: an MCP server's, for example.
//!
//! [`Turn::with_session_id`], [`with_agent_id`](Turn::with_agent_id) and
//! [`with_trace_id`](Turn::with_trace_id) put their ids on all calls of the turn,
//! [`map_calls`](Turn::map_calls) whatever else they need: a subject's token, for example.
//!
//! To act between these steps, run [`Turn::calls`] in any way, and give the
//! [`ToolResult`](tower_toolcall::ToolResult)s to [`Turn::answer`] in any order.
//!
//! # Formats
//!
//! - [`OpenAiChat`](Format::OpenAiChat)
//!   ([guide](https://platform.openai.com/docs/guides/function-calling?api-mode=chat)): calls are
//!   `tool_calls` of the message, results a message of the role `tool` each. A failure is marked by
//!   its text. Goes back unchanged: the message, fields of other servers included.
//! - [`OpenAiResponses`](Format::OpenAiResponses)
//!   ([guide](https://platform.openai.com/docs/guides/function-calling)): calls are items
//!   `function_call`, `custom_tool_call`, results an item `function_call_output` or
//!   `custom_tool_call_output` each, by `call_id`. A failure is marked by its text. Goes back
//!   unchanged: all items: reasoning too.
//! - [`Anthropic`](Format::Anthropic)
//!   ([guide](https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use)): calls
//!   are blocks `tool_use`, results one `user` message of `tool_result`s. A failure is marked by
//!   `is_error`. Goes back unchanged: thinking and its signature.
//! - [`Gemini`](Format::Gemini)
//!   ([signatures](https://ai.google.dev/gemini-api/docs/thought-signatures)): calls are parts
//!   `functionCall`, results one `user` content of `functionResponse`s. A failure is marked by
//!   `error` in place of `output`. Goes back unchanged: each `thoughtSignature`, in its part.
//! - [`Bedrock`](Format::Bedrock)
//!   ([reference][aws]):
//!   calls are blocks `toolUse`, results one `user` message of `toolResult`s. A failure is marked
//!   by `status`. Goes back unchanged: `reasoningContent`.
//!
//! [aws]: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolResultBlock.html
//!
//! The text that OpenAI's custom tools take instead of JSON is the argument `input`.
//!
//! Calls of tools that run at the provider (`server_tool_use`, for example) are no calls here: they
//! go back with the rest. Nor are those of OpenAI's own tools that run on your side (`shell_call`,
//! `computer_call`): they are yours to answer.
//!
//! # Features
//!
//! `rmcp`, off by default, lets [`Format::tools`] take the tools in the list of an MCP server.
#![cfg_attr(docsrs, feature(doc_cfg))]
//!
//! # Details
//!
//! ## Images
//!
//! An image of an MCP server's answer is a block of the provider:
//!
//! | | block |
//! |---|---|
//! | `OpenAiChat` | none: a message of the role `tool` takes text only |
//! | `OpenAiResponses` | `input_image` in the output |
//! | `Anthropic` | `image` in the `tool_result` |
//! | `Gemini` | `inlineData` in the `parts` of the `functionResponse`, which Gemini 3 reads |
//! | `Bedrock` | `image` in the `toolResult` |
//!
//! They are PNG, JPEG, WebP and (but for Gemini) GIF, as their bytes show, of at most 5,000,000
//! bytes of Base64. Any other image, an image of a failed call, and sounds, files and links become
//! a line: `[image left out: image/tiff, 67,500 bytes]`. Answers of other types have the images of
//! their [`ModelText::model_parts`](tower_toolcall::ModelText::model_parts).
//!
//! ## Changes to the model's message
//!
//! Only parts that the provider would refuse:
//!
//! - A missing, blank or repeated id: the call gets a new one, in the message and in its result. In
//!   Gemini, where calls without an id are matched by their order, a missing id stays missing, and
//!   a blank one is removed. Any other id goes back unchanged.
//! - Arguments of another type than the format's: Anthropic, Gemini and Bedrock take only an
//!   object, OpenAI only text. Arguments without an object become `{}`; those of a custom tool that
//!   are not text become an empty text. Text that is not JSON goes back to OpenAI unchanged.
//! - A missing or blank name becomes `unknown`. A name that is too long or has invalid characters,
//!   such as `get weather?`, becomes a valid name made by [`Names`]; the call keeps the model's
//!   name.
//! - Thinking or reasoning at the end of an incomplete response is removed: its signature may be
//!   cut off too, and OpenAI requires the item that follows it.
//! - Blank text blocks, an empty list of `tool_calls`, fields of a chat message and of its calls
//!   that are null (except `content`), an empty message, and the fields of a response beside its
//!   role and content are removed.
//!
//! ## Calls that cannot run
//!
//! A call without a name, or with arguments that are not a JSON object, is answered with
//! [`InvalidInput`](tower_toolcall::ErrorKind::InvalidInput) and does not run: [`Turn::invalid`].
//! No layer sees it, so the turn emits `tool.rejected` for it, at INFO, and metrics do not count
//! it. Blank arguments count as none.
//!
//! An incomplete response may have lost arguments. So none of its calls runs without arguments, and
//! the last one does not run at all, because providers close an object that the limit of length has
//! cut. In a stream that broke off, a call runs if its arguments are complete JSON; the text of a
//! custom tool shows no end, so its call does not run. In a stream with a refused chunk no call
//! runs.
//!
//! ## Bounds
//!
//! [`MAX_CALLS`] in a turn, [`MAX_BYTES`] of a stream, 128 levels. More is a [`TurnError`].
//! Arguments in text have at most [`MAX_VALUES`](tower_toolcall::MAX_VALUES) values over all calls
//! of a turn: a call beyond that is [invalid](Turn::invalid), and its arguments are not parsed.

mod assembler;
mod format;
mod read;
mod reply;
#[cfg(test)]
mod tests;
mod tools;

pub use self::{
    assembler::Assembler,
    format::Format,
    read::Turn,
    reply::{Reply, TurnError},
    tools::ToolDefinition,
};
pub use tower_toolcall::router::{MAX_TOOL_NAME, Names};

/// The most calls of a turn.
pub const MAX_CALLS: usize = 256;

/// The most that an [`Assembler`] takes, in bytes of JSON: 16 MiB of texts, blocks and fragments.
pub const MAX_BYTES: u64 = 16 << 20;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
