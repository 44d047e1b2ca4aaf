use serde::de::{DeserializeOwned, IntoDeserializer as _, value::UnitDeserializer};

use super::{
    leaves::Leaves,
    misfit::{Misfit, Step},
    node::Node,
    root::Root,
};
use crate::{call::ToolCall, error::ToolError};

/// The call's arguments as a function takes them.
pub(super) fn arguments<A: DeserializeOwned>(call: &ToolCall) -> Result<A, ToolError> {
    // Reading what is nested too deeply would overflow the stack.
    call.check()?;
    let map = call.arguments();
    if let Ok(arguments) = A::deserialize(Root(map)) {
        return Ok(arguments);
    }
    if map.is_empty() {
        let null: UnitDeserializer<serde::de::value::Error> = ().into_deserializer();
        if let Ok(arguments) = A::deserialize(null) {
            return Ok(arguments);
        }
    }
    // Once more, to learn what was wrong: serde_json's errors quote values.
    Err(refused(call, A::deserialize(Node::Object(map)).err()))
}

fn refused(call: &ToolCall, misfit: Option<Misfit>) -> ToolError {
    let text = match &misfit {
        Some(misfit) => describe(call, misfit),
        None => "they do not fit".to_owned(),
    };
    ToolError::refused(&text).about(&call.info())
}

fn describe(call: &ToolCall, misfit: &Misfit) -> String {
    let leaves = Leaves::of(call.arguments());
    let secret =
        |step: &Step| matches!(step, Step::Field(name) if call.rules().is_sensitive_key(name));
    let hidden = misfit.path().any(secret);
    let what = misfit.what(|text| !hidden && !leaves.are_in(text));
    match misfit.place() {
        Some(place) => format!("{what}, at `{place}`"),
        None => what,
    }
}
