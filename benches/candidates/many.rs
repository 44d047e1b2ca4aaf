//! Layers that keep a state per name: with few names and with many, and for several threads.

use tower_layer::Layer as _;
use tower_toolcall::{
    Keys, circuit_breaker::CircuitBreakerLayer, rate_limit::RateLimitBackoffLayer,
    timeout::TimeoutLayer,
};

use super::{
    AT_ONCE, Candidate, Group, Setting, WAITS, bare, layered, layers, ours, peer,
    peers::{self, TIMEOUT},
    stacks,
};
use crate::kit::{
    drive::executed,
    feed::{Length, Names},
};

/// Room for all names that are used here.
const MAX_KEYS: usize = 200_000;

pub fn groups() -> Vec<Group> {
    vec![
        Group {
            name: "circuit breaker, one per name",
            settings: names().to_vec(),
            candidates: breakers(),
        },
        Group {
            name: "circuit breaker, more names than it may keep",
            settings: vec![UNIFORM_100K, ZIPF_100K],
            candidates: vec![
                bare(),
                ours("circuit_breaker, evicting", |tool| {
                    layered(CircuitBreakerLayer::new(), tool)
                }),
            ],
        },
        Group {
            name: "rate limit, one per name",
            settings: names().to_vec(),
            candidates: limits(),
        },
        threads("two threads: circuit breaker", AT_ONCE, shared_breakers()),
        threads("two threads: timeout", WAITS, shared_timeouts()),
        threads("two threads: stack", AT_ONCE, shared_stacks()),
        threads("two threads: stack, the tool waits", WAITS, shared_stacks()),
    ]
}

const UNIFORM_100K: Setting = Setting {
    name: "100,000 names",
    names: Names::Uniform(100_000),
    ..AT_ONCE
};

const ZIPF_100K: Setting = Setting {
    name: "100,000 names, Zipf",
    names: Names::Zipf(100_000),
    ..AT_ONCE
};

/// Clones, whose hash is known after the first, and new calls, whose is not.
fn names() -> [Setting; 11] {
    let named = |name, names| Setting {
        name,
        names,
        ..AT_ONCE
    };
    let new = |name, names| Setting {
        makes_new: true,
        ..named(name, names)
    };
    let long = |name, names| Setting {
        length: Length::Long,
        ..new(name, names)
    };
    const FEW: Names = Names::Uniform(1000);
    const MANY: Names = Names::Uniform(100_000);
    [
        named("1 name", Names::One),
        new("1 name, new calls", Names::One),
        long("1 long name, new calls", Names::One),
        named("1,000 names", FEW),
        new("1,000 names, new calls", FEW),
        long("1,000 long names, new calls", FEW),
        named("1,000 names, Zipf", Names::Zipf(1000)),
        UNIFORM_100K,
        new("100,000 names, new calls", MANY),
        long("100,000 long names, new calls", MANY),
        ZIPF_100K,
    ]
}

fn threads(name: &'static str, setting: Setting, candidates: Vec<Candidate>) -> Group {
    let threads = |name, lanes, names| Setting {
        name,
        lanes,
        names,
        ..setting
    };
    Group {
        name,
        settings: vec![
            threads("1 thread", 1, Names::One),
            threads("2 threads, one name", 2, Names::One),
            threads("2 threads, a name each", 2, Names::OneEach),
        ],
        candidates,
    }
}

fn breakers() -> Vec<Candidate> {
    vec![
        bare(),
        ours("circuit_breaker, keyed", |tool| {
            let builder =
                CircuitBreakerLayer::builder().with_keys(Keys::default().at_most(MAX_KEYS));
            layered(builder.build().expect("valid"), tool)
        }),
        peer("map + recloser", peers::reclosers),
        peer("map + failsafe", peers::failsafes),
        peer("seatbelt breaker, keyed", |tool| {
            executed(peers::seatbelt_breakers().layer(tool))
        }),
    ]
}

fn limits() -> Vec<Candidate> {
    vec![
        bare(),
        ours("rate_limit, keyed", |tool| {
            let builder =
                RateLimitBackoffLayer::builder().with_keys(Keys::default().at_most(MAX_KEYS));
            layered(builder.build().expect("valid"), tool)
        }),
        ours("quota, keyed", |tool| {
            let builder = layers::quota().with_keys(Keys::default().at_most(MAX_KEYS));
            layered(builder.build().expect("valid"), tool)
        }),
        peer("governor, keyed", peers::governors),
    ]
}

fn shared_breakers() -> Vec<Candidate> {
    vec![
        bare(),
        ours("circuit_breaker", |tool| {
            layered(CircuitBreakerLayer::new(), tool)
        }),
        peer("recloser, one key", peers::recloser),
        peer("map + recloser", peers::reclosers),
        peer("failsafe, one key", peers::failsafe),
        peer("tower-resilience breaker, one key", |tool| {
            layered(peers::resilience_breaker(), tool)
        }),
        peer("seatbelt breaker, keyed", |tool| {
            executed(peers::seatbelt_breakers().layer(tool))
        }),
    ]
}

fn shared_timeouts() -> Vec<Candidate> {
    vec![
        bare(),
        ours("timeout", |tool| layered(TimeoutLayer::default(), tool)),
        peer("tower timeout", |tool| {
            layered(tower::timeout::TimeoutLayer::new(TIMEOUT), tool)
        }),
    ]
}

fn shared_stacks() -> Vec<Candidate> {
    vec![
        bare(),
        ours("stack of eight", stacks::eight),
        peer("tower-resilience, stack of five", stacks::resilience_five),
    ]
}
