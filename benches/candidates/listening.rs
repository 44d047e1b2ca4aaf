//! What it costs when somebody listens: spans and events become text, which nobody reads.

use std::io;

use tower_toolcall::trace::TraceLayer;
use tracing::{Dispatch, Level, dispatcher::with_default};
use tracing_subscriber::fmt;

use super::{
    AT_ONCE, FIVE, Group, WAITS, bare, layered,
    layers::{BARE_HTTP, bare_http, http_trace},
    ours, peer,
};
use crate::kit::{drive::Subject, feed::Feed};

pub fn groups() -> Vec<Group> {
    vec![Group {
        name: "trace, written as text",
        settings: vec![AT_ONCE, FIVE, WAITS],
        candidates: vec![
            bare(),
            bare_http(),
            ours("trace, as text", |tool| {
                listened(layered(TraceLayer::new(), tool))
            }),
            peer("tower-http trace, as text", |tool| {
                listened(http_trace(tool))
            })
            .above(BARE_HTTP),
        ],
    }]
}

/// With a subscriber of its own, for as long as it runs.
struct Listened {
    subject: Box<dyn Subject>,
    subscriber: Dispatch,
}

fn listened(subject: Box<dyn Subject>) -> Box<dyn Subject> {
    let subscriber = fmt()
        .with_max_level(Level::DEBUG)
        .with_ansi(false)
        .with_writer(io::sink)
        .finish();
    Box::new(Listened {
        subject,
        subscriber: subscriber.into(),
    })
}

impl Subject for Listened {
    fn run(&mut self, feed: &Feed, from: usize, calls: usize) -> u64 {
        with_default(&self.subscriber, || self.subject.run(feed, from, calls))
    }

    fn sizes(&self) -> (usize, usize) {
        self.subject.sizes()
    }

    fn fork(&self) -> Option<Box<dyn Subject>> {
        None
    }
}
