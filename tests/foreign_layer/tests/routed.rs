//! A router of another author's answers, over a list of that author's.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use foreign_layer::{Page, Plugin, Plugins};
use tower::{ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, ReplaySafety, ToolCall,
    router::{Definition, Json, Router, RouterBuilder, tool_fn},
};

const READS: Plugin = Plugin {
    reads: true,
    version: 7,
};

fn router(plugins: &Plugins) -> Router<Page> {
    let host = service_fn(|call: ToolCall| async move {
        Ok::<_, AnyError>(format!("{} of {:?}", call.tool(), call.server()))
    });
    let count = tool_fn(|(): ()| async { Ok::<_, AnyError>(Json([1, 2])) });
    RouterBuilder::new()
        .described_tool(
            Definition::new("count", "Counts", serde_json::Map::new())
                .with_replay_safety(ReplaySafety::Safe),
            count,
        )
        .server("host", host, plugins.clone())
        .build()
        .unwrap()
}

async fn run(router: &Router<Page>, tool: &'static str) -> Result<String, ErrorKind> {
    let answer = router.clone().oneshot(ToolCall::new(tool)).await;
    answer.map(|Page(text)| text).map_err(|error| error.kind())
}

#[tokio::test]
async fn answers_are_converted_to_those_of_the_router() {
    let plugins = Plugins::default();
    plugins.read([("draw", READS)]);
    let router = router(&plugins);
    assert_eq!(run(&router, "count").await.unwrap(), "[1,2]");
    let drawn = run(&router, "host__draw").await.unwrap();
    assert_eq!(drawn, "draw of Some(\"host\")");
}

#[tokio::test]
async fn a_router_follows_a_list_that_changes() {
    let plugins = Plugins::default();
    let router = router(&plugins);
    assert_eq!(router.names(), ["count"]);
    assert!(run(&router, "host__print").await.is_ok(), "not read yet");

    plugins.read([("draw", READS)]);
    assert_eq!(router.names(), ["count", "host__draw"]);
    let unknown = run(&router, "host__print").await.unwrap_err();
    assert_eq!(unknown, ErrorKind::NotFound);
    plugins.read([("print", READS)]);
    assert_eq!(router.names(), ["count", "host__print"]);
    assert!(run(&router, "host__print").await.is_ok());
}

#[test]
fn a_list_tells_what_may_run_twice() {
    let plugins = Plugins::default();
    let writes = Plugin {
        reads: false,
        version: 1,
    };
    plugins.read([("draw", READS), ("print", writes)]);
    let router = router(&plugins);
    let safety = |tool: &'static str| router.replay_safety(&ToolCall::new(tool));
    assert_eq!(safety("host__draw"), ReplaySafety::Safe);
    assert_eq!(safety("host__print"), ReplaySafety::Unknown);
    assert_eq!(safety("count"), ReplaySafety::Safe);
    // A definition says Safe of all.
    let told = router.definitions().into_iter();
    let told: Vec<_> = told
        .map(|of| (of.name().to_owned(), of.replay_safety()))
        .collect();
    let listed = |name: &str, safety| (name.to_owned(), safety);
    assert_eq!(
        told,
        [
            listed("count", ReplaySafety::Safe),
            listed("host__draw", ReplaySafety::Safe),
            listed("host__print", ReplaySafety::Unknown),
        ]
    );
}

#[test]
fn definitions_of_lists_have_flat_names_and_the_original() {
    let plugins = Plugins::default();
    plugins.read([("draw", READS)]);
    let router = router(&plugins);
    let all = router.definitions();
    let names: Vec<_> = all.iter().map(Definition::name).collect();
    assert_eq!(names, ["count", "host__draw"]);
    let draw = router.definition("host__draw").unwrap();
    assert_eq!(draw.name(), "host__draw");
    assert_eq!(draw.original::<Plugin>().unwrap().version, 7);
    assert!(draw.original::<String>().is_none());
    assert!(router.definition("host__print").is_none());
}
