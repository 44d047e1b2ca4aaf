//! Which variables a template has.

use serde_json::json;

use super::{URL, body, call, header, post, request, url};
use crate::HttpTool;
use tower_toolcall::{ErrorKind, ToolError, call::UpstreamToken};

/// H3.
#[test]
fn a_nested_argument_is_in_scope() {
    let order = json!({ "order": { "id": "a b", "lines": [{ "n": 2 }] } });
    let text = body(
        r#"{"id": "{{ order.id }}", "n": {{ order.lines[0].n }}}"#,
        order.clone(),
    );
    assert_eq!(text.unwrap(), r#"{"id": "a b", "n": 2}"#);
    let text = url("https://h/{{ order.id }}?q={{ order['id'] }}", order);
    assert_eq!(text.unwrap(), "https://h/a%20b?q=a%20b");
}

/// H3: the name that a block sets is the name of an argument.
#[test]
fn an_argument_that_is_set_anew_is_in_scope() {
    let template = "{% set q = q | default(1) %}[{{ q }}]";
    assert_eq!(body(template, json!({ "q": 7 })).unwrap(), "[7]");
    assert_eq!(body(template, json!({})).unwrap(), "[1]");
}

/// H3.
#[test]
fn an_argument_that_is_only_sliced_is_in_scope() {
    let text = body(r#"["{{ text[:3] }}"]"#, json!({ "text": "abcdef" }));
    assert_eq!(text.unwrap(), r#"["abc"]"#);
}

/// H3.
#[test]
fn an_argument_of_a_block_that_filters_is_in_scope() {
    let template = "[{% filter replace(from, to) %}1{% endfilter %}]";
    let text = body(template, json!({ "from": "1", "to": "2" }));
    assert_eq!(text.unwrap(), "[\"2\"]");
}

/// Rule 9: however it is written, the token is for headers.
#[test]
fn the_token_is_in_headers_only() {
    for template in [
        "https://h/{{ upstream_token[:] }}",
        "https://h/?q={{ upstream_token[0:2] }}",
        "https://h/{% set x = upstream_token %}{{ x }}",
        "https://h/{% filter replace('a', upstream_token) %}a{% endfilter %}",
    ] {
        let error = HttpTool::new(http::Method::GET, template).unwrap_err();
        assert_eq!(error.field(), "url", "{template}");
    }
    assert!(post().with_body("[{{ upstream_token[:] }}]").is_err());
    assert!(
        post()
            .with_form([("a", "{{ upstream_token[:] }}")])
            .is_err()
    );
    // Neither an attribute of an argument nor a text is the token.
    let text = body(
        r#"["{{ a.upstream_token }}", "{{ 'upstream_token' }}"]"#,
        json!({ "a": { "upstream_token": "x" } }),
    );
    assert_eq!(text.unwrap(), r#"["x", "upstream_token"]"#);
}

/// The header of a request whose call has this token.
fn with_token(tool: &HttpTool, token: &str, arguments: serde_json::Value) -> Result<(), ToolError> {
    let mut call = call(arguments);
    call.extensions_mut().insert(UpstreamToken::new(token));
    let request = tool.request(&call)?;
    assert!(request.headers()["x-test"].is_sensitive());
    Ok(())
}

/// Rule 9: whatever its name is.
#[test]
fn a_header_with_the_token_is_sensitive() {
    for template in ["{{ upstream_token }}", "a {{ upstream_token[:3] }}"] {
        let tool = post().with_header("x-test", template).unwrap();
        with_token(&tool, "t0k3n", json!({})).unwrap();
    }
    let request = request(
        &post().with_header("x-test", "{{ a }}").unwrap(),
        json!({ "a": 1 }),
    );
    assert!(!request.unwrap().headers()["x-test"].is_sensitive());
}

/// It is nothing that the model could mend.
#[test]
fn a_bad_token_is_no_bad_argument() {
    let tool = post()
        .with_header("x-test", "Bearer {{ upstream_token }} {{ a }}")
        .unwrap();
    for bad in ["t0k3n\n", "", "tökén", &"x".repeat(20_000)] {
        let error = with_token(&tool, bad, json!({ "a": "x" })).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TokenExchange);
        assert_eq!(error.message(), "the upstream token cannot be in a header");
    }
}

#[test]
fn a_missing_token_is_named_only_where_nothing_else_is_missing() {
    let template = "{{ upstream_token }} {{ a }} {{ b | default(1) }}";
    let error = header(template, json!({})).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(!error.message().contains("token"), "{}", error.message());
    let error = header(template, json!({ "a": 1 })).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TokenExchange);
    assert_eq!(error.message(), "no upstream token on this call");
}

/// An argument that many parts use is taken once.
#[test]
fn an_argument_is_the_same_in_all_parts() {
    let tool = HttpTool::new(http::Method::POST, format!("{URL}/{{{{ a.b }}}}"))
        .and_then(|tool| tool.with_header("x-test", "{{ a.b }}"))
        .and_then(|tool| tool.with_body("[{{ a.b }}]"))
        .unwrap();
    let request = request(&tool, json!({ "a": { "b": 7 }, "unused": [1] })).unwrap();
    assert_eq!(request.uri().path(), "/orders/7");
    assert_eq!(request.headers()["x-test"], "7");
    assert_eq!(request.body(), "[7]");
}

/// Templates that were written for Jinja2.
#[test]
fn an_undefined_variable_may_print_nothing() {
    let tool = HttpTool::new(http::Method::POST, "https://h/x?q={{ q }}")
        .and_then(|tool| tool.with_header("x-test", "{{ h }}"))
        .and_then(|tool| tool.with_body(r#"{"a": "{{ a }}"{% if b %}, "b": 1{% endif %}}"#))
        .unwrap();
    assert!(request(&tool, json!({})).is_err());
    let request = request(&tool.with_empty_undefined(), json!({})).unwrap();
    assert_eq!(request.uri(), "https://h/x?q=");
    assert!(!request.headers().contains_key("x-test"));
    assert_eq!(request.body(), r#"{"a": ""}"#);
}

/// H3: no request of another resource, none without its token, no body that is no JSON.
#[test]
fn nothing_stands_at_no_place_that_needs_something() {
    let refused = |tool: HttpTool, kind: ErrorKind, text: &str| {
        let error = request(&tool.with_empty_undefined(), json!({ "b": 1 })).unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, text));
    };
    let delete = |url: &str| HttpTool::new(http::Method::DELETE, url).unwrap();
    let invalid = ErrorKind::InvalidInput;
    refused(delete("https://h/x/{{ a }}"), invalid, "`a` is missing");
    refused(
        delete("https://h/x-{{ a }}/{{ b }}"),
        invalid,
        "`a` is missing",
    );
    let body = post().with_body(r#"{"a": {{ a }}, "b": {{ b }}}"#).unwrap();
    refused(body, invalid, "`a` is missing");
    let within = post().with_body("[\"{{ a.x }}\"]").unwrap();
    refused(within, invalid, "`a.x` is missing");
    let header = post().with_header("x-test", "Bearer {{ upstream_token }}");
    refused(
        header.unwrap(),
        ErrorKind::TokenExchange,
        "no upstream token on this call",
    );
}
