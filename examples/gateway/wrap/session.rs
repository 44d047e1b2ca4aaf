//! What a new process has to know.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::message::{Head, Id, Line};

/// How many subscriptions are made anew.
const MAX_SUBSCRIPTIONS: usize = 1000;

/// What the client has said that a new process has to know, and what it believes that may change with it.
#[derive(Clone, Default)]
pub(crate) struct Session {
    pub(crate) initialize: Option<(Id, Line)>,
    pub(crate) initialized: Option<Line>,
    /// The request for the level of logs.
    level: Option<Line>,
    /// The requests for news of resources, by what they are about.
    subscriptions: BTreeMap<String, Line>,
    /// The request for the list of tools from its beginning, and the hash of its result.
    pub(crate) list: Option<(Line, Option<u64>)>,
}

impl Session {
    /// Notes a request that is sent.
    pub(crate) fn note(&mut self, id: &Id, method: &str, line: &Line) {
        let params = || Head::of(line).map(|head| head.params()).unwrap_or_default();
        match method {
            "initialize" => self.initialize = Some((id.clone(), line.clone())),
            "tools/list" if params().cursor.is_none() => self.list = Some((line.clone(), None)),
            "logging/setLevel" => self.level = Some(line.clone()),
            "resources/subscribe" if self.subscriptions.len() < MAX_SUBSCRIPTIONS => {
                if let Some(uri) = params().uri {
                    self.subscriptions.insert(uri, line.clone());
                }
            }
            "resources/unsubscribe" => {
                params().uri.map(|uri| self.subscriptions.remove(&uri));
            }
            _ => {}
        }
    }

    /// Notes the answer to the request for the list of tools.
    pub(crate) fn note_list(&mut self, request: &Line, answer: &Line) {
        if let Some((list, result)) = &mut self.list
            && list == request
        {
            *result = hash(answer);
        }
    }

    /// The requests whose effect lasts.
    pub(crate) fn lasting(&self) -> impl Iterator<Item = &Line> {
        self.level.iter().chain(self.subscriptions.values())
    }
}

/// Of an answer's result.
pub(crate) fn hash(answer: &Line) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    Head::of(answer)?.result?.get().hash(&mut hasher);
    Some(hasher.finish())
}
