//! What tasks share that run on several workers: one tool for all of them, or one each.

use std::sync::Arc;

use tower::timeout::TimeoutLayer as TowerTimeoutLayer;
use tower_layer::Layer;
use tower_toolcall::{
    circuit_breaker::CircuitBreakerLayer, rate_limit::RateLimitBackoffLayer, retry::RetryLayer,
    timeout::TimeoutLayer,
};

use super::{
    By,
    peers::{self, TIMEOUT},
    stacks,
};
use crate::kit::{
    feed::{Arguments, Feed, Length, Names},
    tasks::{Member, Sharable, TASKS},
    tool::{Deep, Does, Tool},
};

pub struct Shared {
    pub name: &'static str,
    pub by: By,
    does: Does,
    names: Names,
    make: fn(Tool) -> Box<dyn Sharable>,
}

impl Shared {
    pub fn member(&self) -> Member {
        let feed = |task| {
            Arc::new(Feed::new(
                self.names,
                Length::Short,
                Arguments::None,
                false,
                task,
            ))
        };
        Member {
            service: (self.make)(Tool(self.does)),
            feeds: (0..TASKS).map(feed).collect(),
        }
    }

    fn waits(mut self) -> Self {
        self.does = Does::Wait;
        self
    }

    fn a_tool_each(mut self) -> Self {
        self.names = Names::OneEach;
        self
    }
}

const fn shared(name: &'static str, by: By, make: fn(Tool) -> Box<dyn Sharable>) -> Shared {
    Shared {
        name,
        by,
        does: Does::Answer,
        names: Names::One,
        make,
    }
}

pub fn all() -> Vec<Shared> {
    let bare = |name| shared(name, By::Bare, |tool| Box::new(tool));
    let ours = |name, make| shared(name, By::Ours, make);
    let peer = |name, make| shared(name, By::Peer, make);
    let breaker: fn(Tool) -> Box<dyn Sharable> =
        |tool| Box::new(CircuitBreakerLayer::new().layer(tool));
    let stack: fn(Tool) -> Box<dyn Sharable> = |tool| Box::new(stacks::eight_on(Deep(tool)));
    let five: fn(Tool) -> Box<dyn Sharable> =
        |tool| Box::new(stacks::resilience_five_on(Deep(tool)));
    vec![
        bare("bare"),
        ours("circuit_breaker", breaker),
        ours("circuit_breaker, a tool per task", breaker).a_tool_each(),
        peer("recloser", |tool| Box::new(peers::recloser_on(tool))),
        peer("failsafe", |tool| Box::new(peers::failsafe_on(tool))),
        peer("tower-resilience breaker", |tool| {
            Box::new(peers::resilience_breaker().layer(tool))
        }),
        ours("retry", |tool| Box::new(RetryLayer::default().layer(tool))),
        peer("tower retry, with a budget", |tool| {
            Box::new(peers::tower_retry(true).layer(tool))
        }),
        ours("rate_limit, a tool per task", |tool| {
            Box::new(RateLimitBackoffLayer::new().layer(tool))
        })
        .a_tool_each(),
        ours("stack of eight", stack),
        ours("stack of eight, a tool per task", stack).a_tool_each(),
        peer("tower-resilience, stack of five", five),
        bare("bare, waits once").waits(),
        ours("timeout, waits once", |tool| {
            Box::new(TimeoutLayer::default().layer(tool))
        })
        .waits(),
        peer("tower timeout, waits once", |tool| {
            Box::new(TowerTimeoutLayer::new(TIMEOUT).layer(tool))
        })
        .waits(),
        peer("tower-resilience timeout, waits once", |tool| {
            Box::new(peers::resilience_timeout().layer(tool))
        })
        .waits(),
        ours("stack of eight, waits once", stack).waits(),
        ours("stack of eight, waits once, a tool per task", stack)
            .waits()
            .a_tool_each(),
        peer("tower-resilience, stack of five, waits once", five).waits(),
    ]
}
