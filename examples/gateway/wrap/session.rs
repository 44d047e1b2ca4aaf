//! What a new process has to know.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::{
    message::{Head, Id, Line},
    requests::Request,
};

/// The requests that are noted.
const NOTED: [&str; 5] = [
    "initialize",
    "tools/list",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
];

/// How many subscriptions are made anew.
const MAX_SUBSCRIPTIONS: usize = 1000;

/// What a process has granted that the next one has to know, and what the client believes that may change with it.
#[derive(Clone, Default)]
pub(crate) struct Session {
    pub(crate) initialize: Option<(Id, Line)>,
    pub(crate) initialized: Option<Line>,
    /// The request for the level of logs.
    level: Option<Line>,
    /// The requests for news of resources, by what they are about.
    subscriptions: BTreeMap<String, Line>,
    /// The request for the list of tools from its beginning, and the hash of its result.
    pub(crate) list: Option<(Line, u64)>,
}

impl Session {
    /// Notes a request that was answered, unless with an error.
    pub(crate) fn note(&mut self, request: &Request, answer: &Line) {
        let is_noted = NOTED.contains(&&*request.method);
        let Some(hash) = is_noted.then(|| hash(answer)).flatten() else {
            return;
        };
        let params = Head::of(&request.line).map(|head| head.params());
        let params = params.unwrap_or_default();
        let line = request.line.clone();
        match (&*request.method, params.uri) {
            ("initialize", _) => self.initialize = Some((request.id.clone(), line)),
            ("tools/list", _) if params.cursor.is_none() => self.list = Some((line, hash)),
            ("logging/setLevel", _) => self.level = Some(line),
            ("resources/subscribe", Some(uri)) if self.subscriptions.len() < MAX_SUBSCRIPTIONS => {
                self.subscriptions.insert(uri, line);
            }
            ("resources/unsubscribe", Some(uri)) => drop(self.subscriptions.remove(&uri)),
            _ => {}
        }
    }

    /// The requests whose effect lasts.
    pub(crate) fn lasting(&self) -> impl Iterator<Item = &Line> {
        self.level.iter().chain(self.subscriptions.values())
    }
}

/// Of an answer's result, if it has one.
pub(crate) fn hash(answer: &Line) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    Head::of(answer)?.result?.get().hash(&mut hasher);
    Some(hasher.finish())
}
