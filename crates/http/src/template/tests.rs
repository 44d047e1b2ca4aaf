//! Templates, by way of the requests that they make.

mod hostile;
mod places;
mod scope;

use expect_test::expect;
use http::{Method, Request};
use serde_json::{Value, json};

use super::super::HttpTool;
use tower_toolcall::{ErrorKind, ToolCall, ToolError, call::UpstreamToken};

const URL: &str = "https://api.pizzeria.com/orders";

fn post() -> HttpTool {
    HttpTool::new(Method::POST, URL).unwrap()
}

fn call(arguments: Value) -> ToolCall {
    let call = ToolCall::new("order").with_id("call_1");
    call.with_json(arguments).unwrap()
}

fn request(tool: &HttpTool, arguments: Value) -> Result<Request<bytes::Bytes>, ToolError> {
    tool.request(&call(arguments))
}

/// The body, as text.
fn body(template: &str, arguments: Value) -> Result<String, ToolError> {
    let tool = post().with_body(template).unwrap();
    let request = request(&tool, arguments)?;
    Ok(String::from_utf8(request.into_body().into()).unwrap())
}

fn url(template: &str, arguments: Value) -> Result<String, ToolError> {
    let tool = HttpTool::new(Method::GET, template).unwrap();
    Ok(request(&tool, arguments)?.uri().to_string())
}

fn header(template: &str, arguments: Value) -> Result<String, ToolError> {
    let tool = post().with_header("x-test", template).unwrap();
    let request = request(&tool, arguments)?;
    let value = request.headers().get("x-test");
    Ok(value.map_or("", |value| value.to_str().unwrap()).to_owned())
}

/// The pizzeria's own template, as its authors wrote it.
const ORDER: &str = r#"{
  "pizza_type": "{{ pizza_type }}",
  "size": "{{ size }}",
  {% if toppings is defined %}"toppings": {{ toppings | tojson }},{% endif %}
  "quantity": {{ quantity | default(1) }}
}"#;

/// H3.
#[test]
fn the_pizzerias_order_renders_as_its_authors_expect() {
    let order = |arguments| {
        let text = body(ORDER, arguments).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    assert_eq!(
        order(
            json!({ "pizza_type": "Margherita", "size": "L", "toppings": ["basil", "</b>"], "quantity": 2 })
        ),
        json!({ "pizza_type": "Margherita", "size": "L", "toppings": ["basil", "</b>"], "quantity": 2 }),
    );
    assert_eq!(
        order(json!({ "pizza_type": "Quattro \"Stagioni\"", "size": "L" })),
        json!({ "pizza_type": "Quattro \"Stagioni\"", "size": "L", "quantity": 1 }),
    );
}

/// H3: the headers of the same example.
#[test]
fn the_pizzerias_headers_have_the_token_and_the_id() {
    let tool = post()
        .with_header("Content-Type", "application/json; charset=utf-8")
        .and_then(|tool| tool.with_header("X-Request-ID", "{{ request_id | default(uuid()) }}"))
        .and_then(|tool| tool.with_header("Authorization", "Bearer {{ upstream_token }}"))
        .and_then(|tool| tool.with_body("{}"))
        .unwrap();
    let mut call = call(json!({}));
    call.extensions_mut().insert(UpstreamToken::new("t0k3n"));
    let request = tool.request(&call).unwrap();
    let headers = request.headers();
    assert_eq!(headers["content-type"], "application/json; charset=utf-8");
    assert_eq!(headers["x-request-id"], "call_1");
    assert_eq!(headers["authorization"], "Bearer t0k3n");
    assert!(headers["authorization"].is_sensitive());
}

/// H3: what the authors' engine would have let in.
#[test]
fn a_value_never_adds_to_the_structure_of_the_body() {
    let template = r#"{"size": "{{ size }}", "quantity": {{ quantity }}}"#;
    let attack = r#"1, "admin": true"#;
    let text = body(template, json!({ "size": attack, "quantity": attack })).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value, json!({ "size": attack, "quantity": attack }));
}

/// H3: the table of places, for JSON.
#[test]
fn each_type_has_its_form_in_a_string_and_outside_of_one() {
    let both = |value: Value| body(r#"["{{ a }}", {{ a }}]"#, json!({ "a": value }));
    assert_eq!(both(json!("x\"\n")).unwrap(), r#"["x\"\n", "x\"\n"]"#);
    assert_eq!(both(json!(1.5)).unwrap(), r#"["1.5", 1.5]"#);
    assert_eq!(both(json!(true)).unwrap(), r#"["true", true]"#);
    assert_eq!(both(json!(["x", 1])).unwrap(), r#"["[\"x\",1]", ["x",1]]"#);
    assert_eq!(body("[{{ a }}]", json!({ "a": null })).unwrap(), "[null]");
    let error = both(Value::Null).unwrap_err();
    expect!["`a` is null in a string (body)"].assert_eq(error.message());
    let text = body(r#"{"a": {{ a | tojson | safe }}}"#, json!({ "a": "x" }));
    assert_eq!(text.unwrap(), r#"{"a": "x"}"#);
}

/// H3: filters and blocks that print text as it is, elsewhere.
#[test]
fn no_filter_opens_a_place() {
    for template in [
        "[{{ a | safe }}]",
        "[{{ a | escape }}]",
        "[{{ a | e }}]",
        "{% autoescape true %}[{{ a }}]{% endautoescape %}",
        "[{{ a | string }}]",
        "[{{ a ~ '' }}]",
        "[{{ a | safe ~ '' }}]",
        "[{% set b = a | safe %}{{ b }}]",
    ] {
        let text = body(template, json!({ "a": "[1], <&>" })).unwrap();
        assert_eq!(text, r#"["[1], <&>"]"#, "{template}");
    }
    // A block that captures marks cannot print them.
    for template in [
        "{% set v %}{{ a }}{% endset %}[{{ v }}]",
        "[{% filter upper %}{{ a }}{% endfilter %}]",
        "{% set v %}{{ a }}{% endset %}{{ [v] | tojson }}",
        "{% set v %}{{ a }}{% endset %}[{{ v | tojson }}]",
    ] {
        let error = body(template, json!({ "a": "x" })).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{template}");
    }
}

/// H3: the table of places, for URLs.
#[test]
fn values_are_encoded_by_their_place_in_the_url() {
    let template = "https://h/orders/{{ a }}?q={{ a }}";
    let both = |a: Value| url(template, json!({ "a": a }));
    let encoded = "https://h/orders/a%20%26%3F%23%25%3Db?q=a%20%26%3F%23%25%3Db";
    assert_eq!(both(json!("a &?#%=b")).unwrap(), encoded);
    assert_eq!(both(json!(7)).unwrap(), "https://h/orders/7?q=7");
    assert_eq!(both(json!(true)).unwrap(), "https://h/orders/true?q=true");
    for bad in [
        json!(""),
        json!("a/b"),
        json!("a\\b"),
        json!("\n"),
        json!("."),
        json!(".."),
        json!(null),
        json!([1]),
        json!({}),
    ] {
        let error = both(bad.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}");
        assert!(error.message().contains("`a`"), "{}", error.message());
    }
    let query = url("https://h/?q={{ a }}", json!({ "a": "a/b&c=\n" }));
    assert_eq!(query.unwrap(), "https://h/?q=a%2Fb%26c%3D%0A");
}

/// H3.
#[test]
fn values_together_make_no_dot_segment() {
    let two = |a: &str, b: &str| url("https://h/x/{{ a }}{{ b }}/y", json!({ "a": a, "b": b }));
    assert_eq!(two("a", ".").unwrap(), "https://h/x/a./y");
    assert!(two(".", ".").is_err());
    assert!(url("https://h/x/.{{ a }}", json!({ "a": "." })).is_err());
    let behind_percent = "{% if true %}https://h/x/%2{{ a }}{% endif %}";
    assert!(HttpTool::new(Method::GET, behind_percent).is_err());
    let behind_percent = "https://h/x/{% if true %}%2{{ a }}{% endif %}";
    assert!(url(behind_percent, json!({ "a": "e" })).is_err());
    assert!(url("https://h/x/%2e{{ a }}/y", json!({ "a": "." })).is_err());
    let twice = url("https://h/{{ a }}", json!({ "a": "%2e%2e" }));
    assert_eq!(twice.unwrap(), "https://h/%252e%252e");
}

/// H3.
#[test]
fn several_segments_are_asked_for_by_a_filter() {
    let path = |p: &str| url("https://h/f/{{ p | path }}?x=1", json!({ "p": p }));
    assert_eq!(path("a b/c?d").unwrap(), "https://h/f/a%20b/c%3Fd?x=1");
    for bad in ["", "/a", "a//b", "a/", "../a", "a/../../b", "a/./b", "a\\b"] {
        assert_eq!(
            path(bad).unwrap_err().kind(),
            ErrorKind::InvalidInput,
            "{bad}"
        );
    }
    assert!(post().with_body("[{{ p | path }}]").is_err());
}

/// H3: the table of places, for headers.
#[test]
fn a_header_takes_one_line_of_visible_ascii() {
    let of = |a: Value| header("v-{{ a }}", json!({ "a": a }));
    assert_eq!(of(json!("a \t~")).unwrap(), "v-a \t~");
    assert_eq!(of(json!(-1)).unwrap(), "v--1");
    for bad in ["a\r\nX-Evil: 1", "a\n", "\0", "\u{7f}", "ä"] {
        let error = of(json!(bad)).unwrap_err();
        expect!["`a` cannot be in a header (header x-test)"].assert_eq(error.message());
    }
    assert!(of(json!(["a"])).is_err());
}

#[test]
fn an_empty_header_is_not_sent() {
    let template = "{% if a is defined %}{{ a }}{% endif %}";
    let tool = post().with_header("x-test", template).unwrap();
    let request = request(&tool, json!({})).unwrap();
    assert!(!request.headers().contains_key("x-test"));
}

/// H3.
#[test]
fn a_form_is_encoded_field_by_field() {
    let fields = [("a&b", "{{ a }}"), ("n", "x-{{ n }}")];
    let tool = post().with_form(fields).unwrap();
    let request = request(&tool, json!({ "a": "1&admin=true +", "n": 2 })).unwrap();
    assert_eq!(
        request.headers()["content-type"],
        "application/x-www-form-urlencoded"
    );
    assert_eq!(request.body(), "a%26b=1%26admin%3Dtrue%20%2B&n=x-2");
}

/// H3.
#[test]
fn an_undefined_variable_is_an_error_that_names_it() {
    let error = body(ORDER, json!({ "pizza_type": "x", "toppings": [] })).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.message(), "`size` is missing");
    let error = url("https://h/{{ order.id }}", json!({ "order": {} })).unwrap_err();
    assert_eq!(error.message(), "`order.id` is missing");
}

/// H3.
#[test]
fn arguments_do_not_shadow_what_the_tool_gives() {
    let evil = json!({
        "upstream_token": "evil", "request_id": "evil", "uuid": "evil", "trace_id": "evil", "idempotency_key": "evil",
    });
    let text = body(r#"["{{ request_id }}", "{{ uuid() }}"]"#, evil.clone()).unwrap();
    assert!(
        text.starts_with(r#"["call_1", ""#) && !text.contains("evil"),
        "{text}"
    );
    for name in ["trace_id", "idempotency_key"] {
        let template = format!("{{{{ {name} | default('none') }}}}");
        assert_eq!(header(&template, evil.clone()).unwrap(), "none");
    }
    let error = header("{{ upstream_token }}", evil).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TokenExchange);
    expect!["no upstream token on this call"].assert_eq(error.message());
}

/// The name of a function of the engine's, and of an argument of many a spreadsheet.
#[test]
fn an_argument_may_have_the_name_of_a_function() {
    assert_eq!(
        body("[{{ range }}]", json!({ "range": "A1:B2" })).unwrap(),
        r#"["A1:B2"]"#
    );
    assert_eq!(body("{{ range(2) }}", json!({})).unwrap(), "[0,1]");
}

/// E.4.2: outside of a loop it is the argument, inside the loop's own.
#[test]
fn an_argument_may_be_called_loop() {
    let arguments = json!({ "loop": "evil", "a": [7, 8] });
    assert_eq!(
        body("[{{ loop }}]", arguments.clone()).unwrap(),
        r#"["evil"]"#
    );
    let each = "[{% for x in a %}{{ loop.index }}{% if not loop.last %},{% endif %}{% endfor %}]";
    assert_eq!(body(each, arguments).unwrap(), "[1,2]");
}

/// E.4.2: all parts of a request have the same one, and each request its own.
#[test]
fn a_call_without_an_id_gets_a_request_id() {
    let url = "https://h/{{ request_id }}";
    let tool = HttpTool::new(Method::POST, url)
        .and_then(|tool| tool.with_header("X-Request-ID", "{{ request_id }}"))
        .and_then(|tool| tool.with_body("[{{ request_id }}]"))
        .unwrap();
    let ids = [(); 2].map(|()| {
        let request = tool.request(&ToolCall::new("order")).unwrap();
        let id = request.headers()["x-request-id"].to_str().unwrap();
        assert_eq!(request.uri().path(), format!("/{id}"));
        assert_eq!(*request.body(), format!("[\"{id}\"]"));
        assert_eq!(id.len(), 36);
        id.to_owned()
    });
    assert_ne!(ids[0], ids[1]);
}

/// E.4.5: who is to see a token, the template says.
#[test]
fn no_authorization_is_sent_without_a_template() {
    let mut call = call(json!({ "upstream_token": "evil" })).with_subject_token("alice");
    call.extensions_mut().insert(UpstreamToken::new("t0k3n"));
    let tool = post().with_body("{}").unwrap();
    let request = tool.request(&call).unwrap();
    let names: Vec<_> = request.headers().keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["content-type"]);
}

#[test]
fn uuids_are_of_version_4_and_differ() {
    let one = super::scope::uuid();
    assert_ne!(one, super::scope::uuid());
    let (version, variant) = (one.as_bytes()[14], one.as_bytes()[19]);
    assert_eq!((one.len(), version), (36, b'4'));
    assert!(b"89ab".contains(&variant), "{one}");
}

/// Rule 6: what a caller can make long.
#[test]
fn steps_and_sizes_are_bounded() {
    let endless = "[{% for i in a %}{% for j in a %}{% endfor %}{% endfor %}]";
    let error = body(endless, json!({ "a": vec![1; 1_000] })).unwrap_err();
    expect!["the arguments are too large for the body"].assert_eq(error.message());
    let twenty = format!("[{}\"\"]", "{{ a }},".repeat(20));
    let error = body(&twenty, json!({ "a": "x".repeat(1 << 20) })).unwrap_err();
    expect!["the arguments are too large for the body"].assert_eq(error.message());
    assert!(url("https://h/{{ a }}", json!({ "a": "x".repeat(20_000) })).is_err());
    assert!(header("{{ a }}", json!({ "a": "x".repeat(20_000) })).is_err());
    let again = "[{% for i in b %}{% set c = a | tojson %}{% endfor %}]";
    let error = body(
        again,
        json!({ "a": ["x".repeat(1 << 20)], "b": vec![1; 100] }),
    )
    .unwrap_err();
    expect!["the arguments are too large for the body"].assert_eq(error.message());
    // A file in an argument is not.
    let text = body("[\"{{ a }}\"]", json!({ "a": "x".repeat(4 << 20) }));
    assert_eq!(text.unwrap().len(), (4 << 20) + 4);
}

/// E.4.1, E.4.8: a template that is costly by itself. No argument is to blame.
#[test]
fn a_loop_of_a_billion_ends_at_once() {
    let since = tokio::time::Instant::now();
    for template in [
        "{{ range(10 ** 9) }}",
        "[{% for i in range(10 ** 9) %}{% endfor %}]",
        "[{% for i in range(300) %}{% for j in range(300) %}{% endfor %}{% endfor %}]",
    ] {
        let error = body(template, json!({})).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{template}");
        assert!(error.is_own_refusal());
        let text = "the template of the body cannot be rendered, whatever the arguments are";
        assert_eq!(error.message(), text);
    }
    let error = post().with_body("[\"{{ 'x' * 10 ** 9 }}\"]").unwrap_err();
    assert!(error.reason().contains("line 1"), "{error}");
    assert!(since.elapsed().as_secs() < 60);
}

/// Rule 9.
#[test]
fn errors_name_arguments_and_never_show_values() {
    let canary = "c4n4ry\n/";
    for error in [
        url("https://h/{{ a }}", json!({ "a": canary })).unwrap_err(),
        header("{{ a }}", json!({ "a": canary })).unwrap_err(),
        body("[{{ a | round }}]", json!({ "a": canary })).unwrap_err(),
        body("[{{ a.b.c }}]", json!({ "a": canary })).unwrap_err(),
        body(
            "[{{ x }}{% if x %}{{ a }}{% endif %}]",
            json!({ "x": canary, "a": canary }),
        )
        .unwrap_err(),
    ] {
        let shown = format!("{error} {error:?} {}", error.model_message());
        assert!(!shown.contains("c4n4ry"), "{shown}");
    }
}

/// A template that gives no JSON is refused by this side: it says nothing of the server.
#[test]
fn a_body_that_is_no_json_is_our_own_refusal() {
    for template in [
        "{% if a %}{\"a\": {{ a }},}{% endif %}",
        "{% if a %}[\"\\{{ a }}\"]{% endif %}",
        "{% if a %}[\"\\u00{{ a }}\"]{% endif %}",
        "{% for c in a %}[{{ c }}]{% endfor %}",
        "{{ a }}{% if false %}{% endif %}{{ a }}",
    ] {
        let error = body(template, json!({ "a": "41" })).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{template}");
        assert!(error.is_own_refusal());
    }
}

/// Without statements there is one form, which is tried when the tool is built.
#[test]
fn a_template_that_can_be_no_part_of_a_request_is_refused_when_it_is_built() {
    for template in [
        "{\"a\": {{ a }},}",
        "[{{ a }}",
        "[\"\\{{ a }}\"]",
        "[\"\\u00{{ a }}\"]",
        "{{ a }} {{ b }}",
        "{\"a\": \"{{ a }}}",
    ] {
        let error = post().with_body(template).unwrap_err();
        assert_eq!(error.field(), "body", "{template}");
    }
    for template in [
        "-{{ a }}",
        "{ {{ k }}: 1 }",
        "{\"{{ k }}\": [{{ a }}, {{ b }}]}",
        "{# [ #}1",
        "[{{- a -}}]",
        "[{{ a -}} ]",
        "1.{{ a }}",
        "{\"a\": \"{\"}",
        "{}",
    ] {
        let built = post().with_body(template);
        assert!(built.is_ok(), "{template}: {:?}", built.err());
    }
    for url in [
        "https://h/a b",
        "https://h/ä",
        "https://h/../a",
        "https://h/%2E%2e",
        "https://h/%{{ a }}",
        "https://h/%2{{ a }}",
    ] {
        let error = HttpTool::new(Method::GET, url).unwrap_err();
        assert_eq!(error.field(), "url", "{url}");
    }
}

/// "Everything is checked when the tool is built": what is refused, and what its error names.
/// Nothing is loaded (E.4.1).
#[test]
fn mistakes_are_found_when_the_tool_is_built() {
    let long = "x".repeat(70_000);
    for template in [
        "{{ a",
        "{% if a %}",
        "{{ a | nofilter }}",
        "{% if a is notest %}{% endif %}",
        "{{ nofunction(a) }}",
        "{% if x is defined %}{{ a|upper|nofilter }}{% endif %}",
        "{% filter nofilter %}{% endfilter %}",
        "{% include 'x' %}",
        "{% import 'x' as x %}",
        "{% from 'x' import y %}",
        "{% extends 'x' %}",
        "{% macro m() %}{% endmacro %}",
        "{{ debug() }}",
        "{{ a | pprint }}",
        "\u{10FFFE}",
        "{{ upstream_token }}",
        &long,
    ] {
        let error = post().with_body(template).unwrap_err();
        assert_eq!(error.field(), "body", "{template}");
    }
    for url in [
        "ftp://h/",
        "/x",
        "{{ a }}",
        "https://{{ a }}/",
        "https://h{{ a }}",
        "https://h:{{ a }}/",
        "https://u:p@h/",
        "https:///x",
        "https://h?q={{ a }}",
        "https://h/#a",
        "https://h/{{ upstream_token }}",
        // A name is written as it is asked for (`xn--..`), so that none is another one to look at.
        "https://bücher.example/",
        "https://аpi.pizzeria.com/",
        "https://h\u{3002}example/",
        "https://h\\x/",
        "https://h/{{ a",
    ] {
        let error = HttpTool::new(Method::GET, url).unwrap_err();
        assert_eq!(error.field(), "url", "{url}");
    }
    for (name, value) in [
        ("Host", "x"),
        ("content-length", "1"),
        ("Transfer-Encoding", "x"),
        ("a b", "x"),
        ("x", "a\nb"),
        ("x", "{{ a"),
    ] {
        let error = post().with_header(name, value).unwrap_err();
        assert_eq!(
            error.field(),
            format!("header {}", name.to_ascii_lowercase())
        );
    }
    let twice = post()
        .with_header("X-A", "1")
        .and_then(|tool| tool.with_header("x-a", "2"));
    assert_eq!(twice.unwrap_err().reason(), "comes twice");
    assert!(
        HttpTool::new(Method::GET, URL)
            .and_then(|tool| tool.with_body("{}"))
            .is_err()
    );
    assert!(
        post()
            .with_body("{}")
            .and_then(|tool| tool.with_form([("a", "b")]))
            .is_err()
    );
    assert!(post().with_max_bytes(0).is_err());
}

#[test]
fn tags_may_hold_what_looks_like_other_tags() {
    for template in [
        "{{ a | replace('|nofilter', \"}}\") }}",
        "{{ a if a is not defined else a }}",
        "{{ a | default(x, true) }}",
        "{% for t in a %}{{ loop.index }}{{ t }}{% if not loop.last %},{% endif %}{% endfor %}",
        "{{ range(3) }}",
        "{{ uuid() }}",
        "{# nofunction() #}1",
        "{%- if (a and (not (b))) -%}{%- endif -%}",
        "{{ a is divisibleby(3) }}",
        "{% set x = (a) %}",
        "{\"a\": \"{\"}",
        "\"{é\"",
        "\"é{\"",
    ] {
        let built = post().with_body(template);
        assert!(built.is_ok(), "{template}: {:?}", built.err());
    }
}

#[test]
fn a_body_that_is_never_json_is_refused_when_the_tool_is_built() {
    for template in ["{{ a }}, {{ b }}", "{\"-a\": {{ a }} x}"] {
        let error = post().with_body(template).unwrap_err();
        expect!["is not JSON when its values are in"].assert_eq(error.reason());
    }
}

#[test]
fn what_is_no_schema_of_arguments_is_refused() {
    let error = post().with_input_schema(&json!({ "type": 7 })).unwrap_err();
    assert_eq!(error.field(), "input_schema");
    assert!(error.reason().starts_with("is not one: "), "{error}");
}

#[test]
fn templates_are_held_to_the_schema_of_the_arguments() {
    let schema = json!({ "properties": { "a": {} } });
    let tool = post()
        .with_body("[{{ a.b }}, \"{{ request_id }}\", \"{{ uuid() }}\", {{ range(2) }}]")
        .unwrap();
    let tool = tool.with_input_schema(&schema).unwrap();
    let error = tool.with_header("x", "{{ sise }}").unwrap_err();
    assert_eq!(
        (error.field(), error.reason()),
        (
            "header x",
            "uses `sise`, which is not a property of the schema"
        )
    );
    let error = post()
        .with_body("[{{ b.c }}]")
        .unwrap()
        .with_input_schema(&schema)
        .unwrap_err();
    assert_eq!(error.field(), "body");
    assert!(
        post()
            .with_body("[{{ b }}]")
            .unwrap()
            .with_input_schema(&json!({}))
            .is_ok()
    );
}
