//! X4: what could be taken for something else is refused when the router is built, by name.

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
fn two_tools_of_one_name() {
    assert_eq!(
        refusal(tool(tool(empty(), "pay"), "pay")),
        "invalid `tool`: `pay` is there twice"
    );
}

#[test]
fn two_servers_of_one_name() {
    assert_eq!(
        refusal(server(server(empty(), "docs"), "docs")),
        "invalid `server`: `docs` is there twice"
    );
}

/// Although the server has no such tool today.
#[test]
fn a_tool_that_is_called_like_one_of_a_server() {
    assert_eq!(
        refusal(tool(server(empty(), "docs"), "docs__anything")),
        "invalid `tool`: `docs__anything` begins like the names of a server's tools"
    );
}

#[test]
fn a_server_with_the_separator_in_its_name() {
    assert_eq!(
        refusal(server(empty(), "my__docs")),
        "invalid `server`: `my__docs` has the separator in it"
    );
}

/// `docs_` has `docs___search`, which `docs` might have as well.
#[test]
fn a_server_whose_name_runs_into_the_separator() {
    assert_eq!(
        refusal(server(empty(), "docs_")),
        "invalid `server`: `docs_` ends with what the separator begins with"
    );
}

#[test]
fn empty_names() {
    assert_eq!(
        refusal(tool(empty(), "")),
        "invalid `tool`: the name is empty"
    );
    assert_eq!(
        refusal(server(empty(), "")),
        "invalid `server`: the name is empty"
    );
    assert_eq!(
        refusal(empty().with_separator("")),
        "invalid `separator`: it is empty"
    );
}

/// No leaf would take such a call.
#[test]
fn names_that_nobody_can_call() {
    for name in ["a\nb", &"x".repeat(300)] {
        let error = refusal(tool(empty(), name));
        assert!(
            error.ends_with("is too long or has control characters in it"),
            "{error}"
        );
        assert!(error.len() < 200 && !error.contains('\n'));
    }
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
