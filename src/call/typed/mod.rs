//! The arguments of a call as a type of the program.

mod access;
mod mismatch;
mod node;

use serde::de::DeserializeOwned;
use serde_json::Value;

use self::{mismatch::Mismatch, node::Node};
use super::ToolCall;
use crate::error::{ErrorKind, ToolError};

/// The call's arguments as a function takes them.
pub(crate) fn arguments<A: DeserializeOwned>(call: &ToolCall) -> Result<A, ToolError> {
    // Reading what is nested too deeply would overflow the stack.
    call.check()?;
    let map = call.arguments();
    A::deserialize(Node::Object(map)).or_else(|mismatch| {
        if map.is_empty() {
            let null = A::deserialize(Node::Other(&Value::Null));
            return null.map_err(|_| refused(call, &mismatch));
        }
        Err(refused(call, &mismatch))
    })
}

fn refused(call: &ToolCall, mismatch: &Mismatch) -> ToolError {
    let text = match mismatch.place() {
        Some(place) => format!("invalid arguments: {mismatch}, at `{place}`"),
        None => format!("invalid arguments: {mismatch}"),
    };
    ToolError::new(ErrorKind::InvalidInput, text).for_call(&call.info())
}
