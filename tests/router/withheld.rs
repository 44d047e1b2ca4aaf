//! X6, C7: tools whose breaker is open are in no list.

use std::time::Duration;

use tokio::time::advance;
use tokio_test::{assert_pending, task};
use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, Key, ToolCall,
    circuit_breaker::{BreakerState, CircuitBreakerHandle, CircuitBreakerLayer},
    router::{Router, RouterBuilder},
};
use tower_toolcall_test::{Script, Step};

const PERIOD: Duration = Duration::from_secs(60);
const ALL: [&str; 4] = ["docs__fetch", "docs__search", "pay", "web__search"];

struct Rig {
    tool: Script<()>,
    router: Router<()>,
    breaker: CircuitBreakerLayer,
    list: Router<()>,
}

impl Rig {
    fn new(key: Key) -> Self {
        let tool = Script::always(Step::ok(()));
        let router = RouterBuilder::new()
            .tool("pay", tool.clone())
            .server("docs", tool.clone(), ["search", "fetch"])
            .server("web", tool.clone(), ["search"])
            .build()
            .unwrap();
        let breaker = CircuitBreakerLayer::builder()
            .with_keys(key)
            .build()
            .unwrap();
        let list = router.clone().withhold(&breaker.handle());
        Self {
            tool,
            router,
            breaker,
            list,
        }
    }

    fn handle(&self) -> CircuitBreakerHandle {
        self.breaker.handle()
    }

    async fn call(&self, name: &'static str) -> Option<ErrorKind> {
        let stack = ServiceBuilder::new()
            .layer(self.router.identity())
            .layer(&self.breaker)
            .service(self.router.clone());
        stack
            .oneshot(ToolCall::new(name))
            .await
            .err()
            .map(|e| e.kind())
    }

    async fn breaks(&self, name: &'static str) {
        self.tool.set_then(Step::fail(ErrorKind::Upstream));
        for _ in 0..5 {
            assert_eq!(self.call(name).await, Some(ErrorKind::Upstream));
        }
        self.tool.set_then(Step::ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_tool_is_in_no_list_until_its_period_is_over() {
    let rig = Rig::new(Key::Tool);
    assert_eq!(rig.list.names(), ALL);
    assert!(rig.handle().is_empty(), "asking makes no breaker");
    rig.breaks("docs__search").await;
    rig.breaks("pay").await;
    let rejected = || -> u64 {
        rig.handle()
            .snapshot()
            .iter()
            .map(|b| b.rejected_total)
            .sum()
    };
    assert_eq!(rig.list.names(), ["docs__fetch", "web__search"]);
    assert_eq!(
        (rig.router.names(), rejected()),
        (ALL.map(String::from).to_vec(), 0)
    );
    // The guard stays.
    assert_eq!(rig.call("docs__search").await, Some(ErrorKind::CircuitOpen));

    advance(PERIOD).await;
    assert_eq!(rig.list.names(), ALL);
    let search = ToolCall::new("search").with_server("docs");
    let search = rig.handle().find(&search).unwrap();
    assert_eq!(
        search.state(),
        BreakerState::Open,
        "the list takes no probe"
    );
    // On trial it is there: only one call in all is its probe.
    rig.tool.set_then(Step::hang());
    let stack = ServiceBuilder::new()
        .layer(rig.router.identity())
        .layer(&rig.breaker)
        .service(rig.router.clone());
    let mut probe = task::spawn(stack.oneshot(ToolCall::new("docs__search")));
    assert_pending!(probe.poll());
    assert_eq!(search.state(), BreakerState::HalfOpen);
    assert_eq!(rig.list.names().len(), 4);
    assert_eq!(rig.handle().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_open_breaker_of_a_server_withholds_all_of_its_tools() {
    let rig = Rig::new(Key::Server);
    rig.handle()
        .breaker(&ToolCall::new("").with_server("docs"))
        .force_open();
    assert_eq!(rig.list.names(), ["pay", "web__search"]);
    assert_eq!(rig.call("docs__fetch").await, Some(ErrorKind::CircuitOpen));
    // Of several layers each is asked.
    let tools = CircuitBreakerLayer::new();
    tools.handle().breaker(&ToolCall::new("pay")).force_open();
    assert_eq!(
        rig.list.clone().withhold(&tools.handle()).names(),
        ["web__search"]
    );
    assert_eq!(rig.list.names(), ["pay", "web__search"]);
}
