//! The state that a new process gets.

use std::collections::BTreeMap;

use super::{
    message::{self, Head, Id, Line},
    requests::Request,
};

/// The most subscriptions that are repeated.
const MAX_SUBSCRIPTIONS: usize = 1000;

/// The grants of a process that the next one must know.
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
        let (line, granted) = (&request.line, || message::is_result(answer));
        let uri = || Head::of(line).and_then(|head| head.params().uri);
        let all = &mut self.subscriptions;
        match request.method.as_str() {
            "initialize" if granted() => self.initialize = Some((request.id.clone(), line.clone())),
            "logging/setLevel" if granted() => self.level = Some(line.clone()),
            "resources/subscribe" if granted() && all.len() < MAX_SUBSCRIPTIONS => {
                all.extend(uri().map(|uri| (uri, line.clone())));
            }
            "resources/unsubscribe" if granted() => drop(uri().map(|uri| all.remove(&uri))),
            _ => {}
        }
    }

    /// Returns the requests with a lasting effect.
    pub(crate) fn lasting(&self) -> impl Iterator<Item = &Line> {
        self.level.iter().chain(self.subscriptions.values())
    }
}
