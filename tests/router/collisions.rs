//! X4: what could be taken for something else is refused when the router is built, by name.

use expect_test::expect;
use tower::service_fn;
use tower_toolcall::{
    BoxError, ToolCall,
    router::{Router, RouterBuilder, ToolList},
};

fn empty() -> RouterBuilder<serde_json::Value> {
    Router::builder()
}

fn tool(builder: RouterBuilder<serde_json::Value>, name: &str) -> RouterBuilder<serde_json::Value> {
    let ok = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) });
    builder.tool(name, ok)
}

fn server(
    builder: RouterBuilder<serde_json::Value>,
    name: &str,
) -> RouterBuilder<serde_json::Value> {
    let ok = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) });
    builder.server(name, ok, ["search"])
}

fn refusal(builder: RouterBuilder<serde_json::Value>) -> String {
    builder.build().unwrap_err().to_string()
}

#[test]
fn names_that_collide_or_mean_nothing_are_refused() {
    let refused = [
        tool(tool(empty(), "pay"), "pay"),
        server(server(empty(), "docs"), "docs"),
        // Although the server has no such tool today.
        tool(server(empty(), "docs"), "docs__anything"),
        server(empty(), "my__docs"),
        // `docs_` has `docs___search`, which `docs` might have as well.
        server(empty(), "docs_"),
        tool(empty(), ""),
        server(empty(), ""),
        empty().with_separator(""),
        // No leaf would take such a call.
        tool(empty(), "a\nb"),
        tool(empty(), &"x".repeat(300)),
    ];
    expect![[r#"
        invalid `tool`: `pay` is there twice
        invalid `server`: `docs` is there twice
        invalid `tool`: `docs__anything` begins like the names of a server's tools
        invalid `server`: `my__docs` has the separator in it
        invalid `server`: `docs_` ends with what the separator begins with
        invalid `tool`: the name is empty
        invalid `server`: the name is empty
        invalid `separator`: it is empty
        invalid `tool`: `a b` is too long or has control characters in it
        invalid `tool`: `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...` is too long or has control characters in it"#]].assert_eq(&refused.map(refusal).join("\n"));
}

#[test]
fn what_does_not_collide_is_built() {
    let builder = tool(tool(server(empty(), "docs"), "docs"), "docs_search");
    let router = server(tool(builder, "web__search"), "a_b").build().unwrap();
    assert_eq!(
        router.names(),
        [
            "a_b__search",
            "docs",
            "docs__search",
            "docs_search",
            "web__search"
        ]
    );
}

#[test]
fn a_list_is_any_iterator_of_names() {
    let list = ToolList::from(vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(format!("{list:?}"), "ToolList { tools: 2 }");
    let _: ToolList = ["a"].into();
}
