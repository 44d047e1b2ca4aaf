//! Names and patterns that match no tool (P6).

use expect_test::expect;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ConfigError, Identity, ToolCall, ToolError,
    cache::CacheLayer,
    concurrency_limit::ConcurrencyLimitLayer,
    identity::Resolve,
    policy::{PolicyLayer, Rule},
    quota::{Quota, QuotaLayer},
    retry::RetryPolicy,
    settings::Settings,
    timeout::TimeoutLayer,
};
use tracing::Level;

use crate::kit::{Written, secs};

/// The tools `docs__search`, `docs__fetch` and `delete_file`.
struct Table;

impl Resolve for Table {
    fn resolve(&self, _: &ToolCall) -> Result<Option<Identity>, ToolError> {
        Ok(None)
    }

    fn identities(&self) -> Option<Vec<Identity>> {
        let of_docs = |tool: &str| Identity::new(tool).with_server("docs");
        let local = Identity::new("delete_file");
        Some(vec![of_docs("search"), of_docs("fetch"), local])
    }
}

fn build(file: &str) -> Result<(), ConfigError> {
    let settings: Settings = toml::from_str(file).unwrap();
    settings.stack().with_identity(Table).build().map(drop)
}

#[test]
fn names_that_match_a_tool_build() {
    let file = r#"
        [policy]
        deny = ["delete_*"]
        allow = ["docs__*", "fetch"]
        [cache]
        tools = ["docs__search"]
        ttl = 60
        [tools.search]
        timeout = 5
        [tools.docs__fetch]
        replay_safe = true
    "#;
    assert_eq!(build(file), Ok(()));
}

/// P6: a pattern that should deny a tool, and matches none, is an error.
#[test]
fn a_misspelt_name_is_an_error_that_names_the_nearest() {
    let errors = [
        "[policy]\ndeny = [\"delete_fiel\"]",
        "[policy]\nallow = [\"docs__serch*\"]",
        "[tools.serch]\ntimeout = 5",
        "[cache]\ntools = [\"docs__fetsch\"]\nttl = 60",
        "[tools.\"docs__*\"]\ntimeout = 5",
        "[policy]\ndeny = [\"pay\"]",
    ];
    let errors = errors.map(|file| build(file).unwrap_err().to_string());
    expect![[r#"
        invalid `policy.deny`: `delete_fiel` matches no tool; did you mean `delete_file`?
        invalid `policy.allow`: `docs__serch*` matches no tool; did you mean `docs__search` or `docs__fetch`?
        invalid `tools.serch`: `serch` matches no tool; did you mean `docs__search`?
        invalid `cache.tools`: `docs__fetsch` matches no tool; did you mean `docs__fetch` or `docs__search`?
        invalid `tools."docs__*"`: `docs__*` matches no tool
        invalid `policy.deny`: `pay` matches no tool"#]].assert_eq(&errors.join("\n"));
    // 46: a start reports each of them.
    let error = build("[policy]\ndeny = [\"pay\", \"delete_fiel\"]\n[tools.serch]\ntimeout = 5");
    expect!["invalid `policy.deny`: `pay` matches no tool; and invalid `policy.deny`: `delete_fiel` matches no tool; did you mean `delete_file`?; and invalid `tools.serch`: `serch` matches no tool; did you mean `docs__search`?"]
        .assert_eq(&error.unwrap_err().to_string());
    // S14: what stands in a file is not blamed on a variable that is not set.
    let file: Settings = toml::from_str("[policy]\ndeny = [\"pay\"]").unwrap();
    let settings = file.with_env_from([("PATH", "/bin")]).unwrap();
    let stack = settings.stack().with_identity(Table);
    let error = stack.build().map(drop).unwrap_err().to_string();
    assert!(!error.contains("TOOLCALL_"), "{error}");
    let deny = [("TOOLCALL_POLICY_DENY", "delete_file, docs__feth")];
    let settings = Settings::default().with_env_from(deny).unwrap();
    let error = settings
        .stack()
        .with_identity(Table)
        .build()
        .map(drop)
        .unwrap_err();
    assert_eq!(error.field(), "TOOLCALL_POLICY_DENY");
}

/// P6: a layer of ours that the program makes itself and puts into the stack.
#[test]
fn a_misspelt_name_in_a_layer_that_was_added_by_hand_is_an_error() {
    use tower_toolcall::settings::{Place, StackBuilder};

    let stack = |policy| {
        let stack: StackBuilder<_, _> = Settings::default().stack();
        stack.with_layer::<&'static str, _>(Place::Allowed, policy)
    };
    let misspelt = || PolicyLayer::new().deny("delete_fiel");
    let error = stack(misspelt()).with_identity(Table).build().map(drop);
    expect!["invalid `policy`: `delete_fiel` matches no tool; did you mean `delete_file`?"]
        .assert_eq(&error.unwrap_err().to_string());
    assert!(stack(misspelt()).build().is_ok());
    let right = PolicyLayer::new().deny("delete_file");
    assert!(stack(right).with_identity(Table).build().is_ok());

    let cost = QuotaLayer::builder(Quota::new(5, secs(60)).unwrap()).with_tool_cost("fetsch", 2);
    let stack = Settings::default().stack().with_identity(Table);
    let stack = stack.with_layer::<&'static str, _>(Place::Call, cost.build().unwrap());
    assert_eq!(stack.build().map(drop).unwrap_err().field(), "quota");
}

/// P6: the table is a router's: once the lists of all servers are there.
#[test]
fn a_router_is_a_table_of_its_tools() {
    use tower_toolcall::router::Router;

    let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("done") });
    let router = Router::builder()
        .tool("delete_file", tool)
        .server("docs", tool, ["search"]);
    let router = router.build().unwrap();
    for (deny, is_tool) in [
        ("delete_fiel", false),
        ("docs__search", true),
        ("serach", false),
    ] {
        let mut settings = Settings::default();
        settings.policy.deny = vec![deny.into()];
        let built = settings.stack().with_identity(router.clone()).build();
        assert_eq!(built.is_ok(), is_tool, "{deny}");
    }
}

/// P6: layers of a stack by hand are checked in the same way.
#[test]
fn layers_alone_are_checked_against_a_table() {
    let quota = Quota::new(5, secs(60)).unwrap();
    let quota = QuotaLayer::builder(quota)
        .with_tool_cost("serch", 2)
        .build();
    let limit = ConcurrencyLimitLayer::builder(5)
        .with_tool("serch", 2)
        .build();
    let retry =
        RetryPolicy::new().with_tool("serch", 2, tower_toolcall::backoff::Backoff::default());
    for (layer, names) in [
        (
            "timeout",
            TimeoutLayer::default()
                .with_tool("serch", secs(5))
                .tool_names(),
        ),
        (
            "cache",
            CacheLayer::new(secs(5), ["docs__serch"])
                .unwrap()
                .tool_names(),
        ),
        ("quota", quota.unwrap().tool_names()),
        ("concurrency_limit", limit.unwrap().tool_names()),
        ("retry", retry.unwrap().tool_names()),
        ("policy", PolicyLayer::new().deny("*serch").tool_names()),
        (
            "policy",
            PolicyLayer::new()
                .rule(Rule::deny("*").of_server("dosc"))
                .tool_names(),
        ),
    ] {
        let error = names.check(&Table).unwrap_err();
        assert_eq!(error.field(), layer);
        assert_eq!(names.unmatched().len(), 1);
    }
}

/// The warnings of so many calls of `search`.
async fn warnings<L>(layer: &L, calls: usize) -> String
where
    L: Layer<tower::util::BoxCloneSyncService<ToolCall, &'static str, ToolError>>,
    L::Service: Service<ToolCall, Response = &'static str, Error: std::fmt::Debug> + Clone,
{
    let (written, _guard) = Written::heard(Level::WARN);
    let tool = service_fn(|_: ToolCall| async { Ok::<_, ToolError>("done") });
    let tools = layer.layer(tower::util::BoxCloneSyncService::new(tool));
    for _ in 0..calls {
        tools
            .clone()
            .oneshot(ToolCall::new("search"))
            .await
            .unwrap();
    }
    written.text()
}

/// P6: without a table a pattern that has matched nothing is a warning after 1,000 calls, once.
#[tokio::test(start_paused = true)]
async fn a_pattern_that_matches_nothing_is_a_warning() {
    let policy = PolicyLayer::new().deny("delete_fiel").allow("search");
    assert_eq!(policy.tool_names().unmatched(), ["delete_fiel", "search"]);
    assert_eq!(warnings(&policy, 999).await, "");
    let written = warnings(&policy, 2_001).await;
    assert_eq!(written.matches("tool.unmatched").count(), 1, "{written}");
    assert!(
        written.contains("layer=\"policy\" names=\"delete_fiel\""),
        "{written}"
    );
    assert_eq!(policy.tool_names().unmatched(), ["delete_fiel"]);
}

/// P6: so is a name of a tool that has a timeout, or a place, of its own.
#[tokio::test(start_paused = true)]
async fn a_name_that_matches_nothing_is_a_warning() {
    let timeout = TimeoutLayer::default()
        .with_tool("serch", secs(5))
        .with_tool("search", secs(6));
    let written = warnings(&timeout, 1_000).await;
    assert!(
        written.contains("layer=\"timeout\" names=\"serch\""),
        "{written}"
    );
    let limit = ConcurrencyLimitLayer::builder(5)
        .with_tool("serch", 2)
        .build();
    let written = warnings(&limit.unwrap(), 1_000).await;
    assert!(
        written.contains("layer=\"concurrency_limit\" names=\"serch\""),
        "{written}"
    );
}

/// P6: names that a table has are not reported, however rarely they are called.
#[tokio::test(start_paused = true)]
async fn a_name_that_a_table_has_is_no_warning() {
    let file =
        "[policy]\ndeny = [\"delete_*\"]\n[tools.docs__fetch]\nreplay_safe = true\ntimeout = 5";
    let settings: Settings = toml::from_str(file).unwrap();
    let layer = settings.stack().with_identity(Table).build().unwrap();
    assert_eq!(layer.tool_names().unmatched(), [""; 0]);
    let written = warnings(&layer, 1_001).await;
    assert!(!written.contains("tool.unmatched"), "{written}");

    let layer = settings.stack().build().unwrap();
    assert_eq!(layer.tool_names().unmatched(), ["delete_*", "docs__fetch"]);
    let written = warnings(&layer, 1_001).await;
    assert!(written.contains("tool.unmatched"), "{written}");
}

/// Stumble A4: a name that decides who may call is not checked without a table, and the start says
/// so.
#[test]
fn a_policy_without_a_table_of_tools_is_a_warning() {
    let warned = |file: &str, with_table: bool| {
        let settings: Settings = toml::from_str(file).unwrap();
        let stack = settings.stack();
        let stack = if with_table {
            stack.with_identity(Table)
        } else {
            stack
        };
        let (written, _guard) = Written::heard(Level::WARN);
        let _ = stack.build().unwrap();
        written.text()
    };
    let deny = "[policy]\ndeny = [\"delete_file\"]";
    let text = warned(deny, false);
    for part in ["policy.deny", "with_identity"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(
        warned(
            "[policy]\nallow = [\"fetch\"]\ndeny_by_default = true",
            false
        )
        .contains("policy.allow")
    );
    assert_eq!(warned(deny, true), "");
    assert_eq!(warned("[tools.fetch]\ntimeout = 5", false), "");
}
