use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{misfit::Misfit, node::Node};
use crate::{
    call::ToolCall,
    error::{ErrorKind, ToolError},
};

/// The call's arguments as a function takes them.
pub(super) fn arguments<A: DeserializeOwned>(call: &ToolCall) -> Result<A, ToolError> {
    // Reading what is nested too deeply would overflow the stack.
    call.check()?;
    let map = call.arguments();
    A::deserialize(Node::Object(map)).or_else(|misfit| {
        if map.is_empty() {
            let null = A::deserialize(Node::Other(&Value::Null));
            return null.map_err(|_| refused(call, &misfit));
        }
        Err(refused(call, &misfit))
    })
}

fn refused(call: &ToolCall, misfit: &Misfit) -> ToolError {
    let text = match misfit.place() {
        Some(place) => format!("invalid arguments: {misfit}, at `{place}`"),
        None => format!("invalid arguments: {misfit}"),
    };
    ToolError::new(ErrorKind::InvalidInput, text).for_call(&call.info())
}
