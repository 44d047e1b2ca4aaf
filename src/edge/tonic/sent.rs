//! An error on its way out.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ::tonic::{Code, Status, metadata::MetadataMap};
use serde_json::{Value, json};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::error::ToolError;

/// The domain of the `google.rpc.ErrorInfo` that this crate writes.
pub const DOMAIN: &str = "tower-toolcall";

pub(super) const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// See [the table](crate::tonic#a-status-from-an-error).
impl From<ToolError> for Status {
    fn from(error: ToolError) -> Self {
        let mut details = ErrorDetails::new();
        details.set_error_info(error.code(), DOMAIN, facts(&error));
        let mut metadata = MetadataMap::new();
        if let Some(delay) = error.retry_after() {
            details.set_retry_info(Some(delay));
            metadata.insert(PUSHBACK, pushback(delay).into());
        }
        let mut status = Self::with_error_details_and_metadata(
            Code::from_i32(error.kind().grpc_code()),
            error.public_message(),
            details,
            metadata,
        );
        status.set_source(Arc::new(error));
        status
    }
}

/// A signed number of 32 bits: a longer delay cannot be expressed, so it forbids the repeat.
fn pushback(delay: Duration) -> i32 {
    i32::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(-1)
}

/// The facts that the receiver may know, as text, except what has a place of its own.
fn facts(error: &ToolError) -> HashMap<String, String> {
    let mut facts = error.public_body();
    for elsewhere in ["code", "message", "retry_after_seconds"] {
        facts.remove(elsewhere);
    }
    facts.insert("kind".to_owned(), json!(error.kind()));
    let text = |value| match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    };
    let facts = facts.into_iter();
    facts
        .filter_map(|(key, value)| Some((key, text(value)?)))
        .collect()
}
