//! What a new process has to know.

use std::collections::BTreeMap;

use super::{
    message::{self, Head, Id, Line},
    requests::Request,
};

/// How many subscriptions are made anew.
const MAX_SUBSCRIPTIONS: usize = 1000;

/// What a process has granted that the next one has to know.
#[derive(Clone, Default)]
pub(crate) struct Session {
    pub(crate) initialize: Option<(Id, Line)>,
    pub(crate) initialized: Option<Line>,
    /// The request for the level of logs.
    level: Option<Line>,
    /// The requests for news of resources, by what they are about.
    subscriptions: BTreeMap<String, Line>,
}

impl Session {
    /// Notes a request that was answered, unless with an error.
    pub(crate) fn note(&mut self, request: &Request, answer: &Line) {
        let Request {
            id, method, line, ..
        } = request;
        let uri = || Head::of(line).and_then(|head| head.params().uri);
        let lasts = matches!(
            &**method,
            "initialize" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
        );
        if !lasts || !message::is_result(answer) {
            return;
        }
        match &**method {
            "initialize" => self.initialize = Some((id.clone(), line.clone())),
            "logging/setLevel" => self.level = Some(line.clone()),
            "resources/unsubscribe" => drop(uri().and_then(|uri| self.subscriptions.remove(&uri))),
            _ if self.subscriptions.len() < MAX_SUBSCRIPTIONS => {
                drop(uri().and_then(|uri| self.subscriptions.insert(uri, line.clone())))
            }
            _ => {}
        }
    }

    /// The requests whose effect lasts.
    pub(crate) fn lasting(&self) -> impl Iterator<Item = &Line> {
        self.level.iter().chain(self.subscriptions.values())
    }
}
