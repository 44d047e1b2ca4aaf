//! What a new process has to know.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::message::{Head, Id, Line};

/// How many requests with a lasting effect are made anew.
const MAX_LASTING: usize = 1000;

/// What the client has said that a new process has to know, and what it believes that may change with it.
#[derive(Clone, Default)]
pub(crate) struct Session {
    pub(crate) initialize: Option<(Id, Line)>,
    pub(crate) initialized: Option<Line>,
    /// Requests whose effect lasts: for the level of logs, and for news of resources, by what they are about.
    pub(crate) lasting: BTreeMap<String, Line>,
    /// The request for the list of tools, and the hash of its result.
    pub(crate) list: Option<(Line, Option<u64>)>,
}

impl Session {
    pub(crate) fn note(&mut self, id: &Id, method: &str, line: &Line) {
        let about = || Head::of(line)?.param("uri");
        match method {
            "initialize" => self.initialize = Some((id.clone(), line.clone())),
            "tools/list" => self.list = Some((line.clone(), None)),
            "resources/unsubscribe" => drop(about().map(|uri| self.lasting.remove(&uri))),
            "resources/subscribe" | "logging/setLevel" if self.lasting.len() < MAX_LASTING => {
                let about = about().unwrap_or_default();
                self.lasting.insert(about, line.clone());
            }
            _ => {}
        }
    }

    pub(crate) fn note_list(&mut self, answer: &Head<'_>) {
        if let Some((_, result)) = &mut self.list {
            *result = hash(answer);
        }
    }
}

/// Of an answer's result.
pub(crate) fn hash(answer: &Head<'_>) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    answer.result?.get().hash(&mut hasher);
    Some(hasher.finish())
}
