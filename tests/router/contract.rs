//! The contract of the layers, with the router as one of them: around a service, alone and between
//! our layers.

use std::time::Duration;

use tower::ServiceBuilder;
use tower_layer::{Layer, layer_fn};
use tower_toolcall::{
    ToolCall, ToolError,
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer,
    health::Health,
    rate_limit::RateLimitBackoffLayer,
    retry::RetryLayer,
    router::{Router, RouterBuilder},
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

use crate::kit;

/// A router whose one tool, or one server with this tool, is the inner service.
#[derive(Clone, Copy)]
enum Routed {
    Local,
    Server,
    /// Watched by a registry that refuses.
    Watched,
}

impl<S> Layer<S> for Routed
where
    S: tower::Service<ToolCall, Response = &'static str> + Clone + Send + Sync + 'static,
    S::Error: Into<ToolError>,
    S::Future: Send,
{
    type Service = Router<&'static str>;

    fn layer(&self, inner: S) -> Self::Service {
        let builder = RouterBuilder::new();
        match self {
            Self::Local => builder.tool("search", inner),
            Self::Server => builder.server("docs", inner, ["search"]),
            Self::Watched => {
                let health = Health::builder().with_refusal(true).build().unwrap();
                let builder = builder.server("docs", inner, ["search"]);
                builder.with_health(&health)
            }
        }
        .build()
        .unwrap()
    }
}

/// All of it but what is of other kinds of layers: a panic in `call` comes from the future, which
/// calls; and an instance has no place in a queue before it has a call.
macro_rules! contract {
    ($name:ident, $layer:expr, $panics:expr $(, $more:ident)*) => {
        mod $name {
            use super::*;
            use crate::kit::{self, Panics, Readiness};

            crate::kit::contract! { @tests
                passes_the_response($layer);
                converts_an_inner_error_and_names_the_call($layer);
                treats_readiness_as_documented($layer, Readiness::Eager);
                $($more($layer, Readiness::Eager);)*
                a_future_dropped_before_its_first_poll_gives_everything_back($layer);
                a_future_dropped_in_flight_gives_everything_back($layer);
                a_future_dropped_while_it_waits_for_readiness_gives_its_place_back($layer, Readiness::Eager);
                a_completed_call_gives_its_permit_back($layer);
                a_panic_below_leaks_nothing($layer, $panics);
                works_in_a_spawned_task($layer);
            }
        }
    };
}

contract!(
    local,
    Routed::Local,
    Panics::Pass,
    an_inner_readiness_error_reaches_the_caller
);
contract!(
    server,
    Routed::Server,
    Panics::Pass,
    an_inner_readiness_error_reaches_the_caller
);
contract!(
    watched_server,
    Routed::Watched,
    Panics::Pass,
    an_inner_readiness_error_reaches_the_caller
);
// Here such an error is repeated.
contract!(between_layers, stack(), Panics::BecomeErrors);

/// Our layers above, a breaker and a timeout inside.
fn stack<S>() -> impl Layer<S, Service: kit::Stack>
where
    S: tower::Service<ToolCall, Response = &'static str> + Clone + Send + Sync + 'static,
    S::Error: Into<ToolError>,
    S::Future: Send,
{
    layer_fn(|inner: S| {
        ServiceBuilder::new()
            .layer(TraceLayer::new())
            .layer(DeadlineLayer::new(Duration::from_secs(60)))
            .layer(RetryLayer::default())
            .layer(RateLimitBackoffLayer::new())
            .layer(CatchPanicLayer::new())
            .layer(Routed::Server)
            .layer(CircuitBreakerLayer::new())
            .layer(TimeoutLayer::default())
            .service(inner)
    })
}
