use std::fmt;

use serde_json::Value;

/// What goes back to the provider after a turn: what the model said, and exactly one result for
/// each of its calls.
#[derive(Clone)]
#[must_use]
pub struct Reply {
    pub(super) said: Vec<Value>,
    pub(super) results: Vec<Value>,
    pub(super) refused: Vec<Option<String>>,
}

impl Reply {
    /// What the model said, with signatures and reasoning as it sent them: a message, or the output
    /// items of a response.
    pub fn said(&self) -> &[Value] {
        &self.said
    }

    /// The results: a message for each (`OpenAiChat`), an item for each (`OpenAiResponses`), or one
    /// message with all of them. Alone they are what a conversation needs that the provider stores
    /// (`previous_response_id`).
    pub fn results(&self) -> &[Value] {
        &self.results
    }

    /// Both, in the order in which they are appended to the conversation.
    pub fn into_messages(self) -> impl Iterator<Item = Value> {
        self.said.into_iter().chain(self.results)
    }

    /// The ids of results that were not taken, as the turn has no such call, or has a result for it
    /// already.
    pub fn refused(&self) -> impl Iterator<Item = Option<&str>> {
        self.refused.iter().map(Option::as_deref)
    }
}

/// Shows sizes, never what was said.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("said", &self.said.len())
            .field("results", &self.results.len())
            .field("refused", &self.refused.len())
            .finish()
    }
}
