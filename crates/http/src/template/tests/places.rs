//! Values at places where they could do harm.

use expect_test::expect;
use http::Method;
use serde_json::{Value, json};

use super::{body, header, post, request, url};
use crate::HttpTool;
use tower_toolcall::ErrorKind;

/// H3: a `\u` escape ends after four digits, also directly before a quote.
#[test]
fn an_escape_before_a_quote_does_not_turn_the_places_round() {
    let attack = r#"x", "admin": true, "y": ""#;
    for template in [
        r#"{"a": "\u0041{{ a }}", "b": {{ a }}}"#,
        r#"{"a\u0041": "{{ a }}", "b": {{ a }}}"#,
        r#"{"k\u0041": {{ a }}, "b": "\\u{{ a }}"}"#,
        r#"{"a": "\u0041", "b": {{ a }}, "c": "\"{{ a }}\u0022"}"#,
    ] {
        let text = body(template, json!({ "a": attack })).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(value.get("admin").is_none(), "{text}");
        assert!(value.to_string().contains("admin"), "{text}");
    }
    for template in [
        r#"["\u00{{ a }}"]"#,
        r#"["\u004{{ a }}"]"#,
        r#"["\{{ a }}"]"#,
    ] {
        assert!(post().with_body(template).is_err(), "{template}");
    }
}

/// H3: JSON has no infinity; `null` is another value.
#[test]
fn a_number_that_json_does_not_have_is_refused() {
    for text in ["inf", "-inf", "nan"] {
        for template in [
            "[{{ a | float }}]",
            "[{{ a | float | tojson }}]",
            "[{{ [none, a | float] }}]",
            "[{{ {'b': a | float} | tojson }}]",
        ] {
            let error = body(template, json!({ "a": text })).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
        }
        assert!(url("https://h/{{ a | float }}", json!({ "a": text })).is_err());
    }
    let nulls = body("[{{ a }}]", json!({ "a": [null, { "b": null }, 1.5] }));
    assert_eq!(nulls.unwrap(), r#"[[null,{"b":null},1.5]]"#);
}

/// It says nothing of the template.
#[test]
fn an_argument_that_nests_too_deeply_is_bad_input() {
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let error = body("[{{ a }}]", json!({ "a": deep })).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    expect!["`a` nests too deeply (body)"].assert_eq(error.message());
}

/// RFC 8259, section 4: which one counts is the server's choice.
#[test]
fn a_value_repeats_no_key_of_the_body() {
    let template = r#"{"role": "user", "{{ k }}": "{{ v }}"}"#;
    for key in ["role", "r\u{6f}le"] {
        let error = body(template, json!({ "k": key, "v": "admin" })).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(!error.message().contains("role"), "{}", error.message());
    }
    assert!(body(template, json!({ "k": "kole", "v": "role" })).is_ok());
    let nested = r#"[{"a": {"a": 1}}, {"a": "{{ a }}"}]"#;
    assert!(body(nested, json!({ "a": "a" })).is_ok());
    let escaped = r#"{"\u0061": 1, "{{ k }}": 2}"#;
    assert!(body(escaped, json!({ "k": "a" })).is_err());
}

/// H3: when the template is read, unknown values of keys are not taken for one value.
#[test]
fn keys_whose_values_are_not_known_differ() {
    for template in [
        r#"{"{{ a }}": 1, "{{ b }}": 2}"#,
        r#"{"size-{{ a }}": 1, "size-{{ b }}": 2}"#,
        r#"{"{{ a }}{{ b }}": 1, "{{ b }}{{ a }}": 2}"#,
    ] {
        assert!(
            body(template, json!({ "a": 3, "b": 4 })).is_ok(),
            "{template}"
        );
        assert!(
            body(template, json!({ "a": 3, "b": 3 })).is_err(),
            "{template}"
        );
    }
}

/// H3: a value that is empty does not take a condition off the request.
#[test]
fn an_empty_value_removes_no_header() {
    for value in [json!(""), json!(" \t")] {
        let error = header("{{ a }}", json!({ "a": value })).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        expect!["`a` leaves the header empty (header x-test)"].assert_eq(error.message());
    }
    assert_eq!(header("\"{{ a }}\"", json!({ "a": "" })).unwrap(), "\"\"");
}

#[test]
fn a_form_as_a_whole_has_a_limit() {
    let names: Vec<String> = (0..20).map(|n| format!("f{n}")).collect();
    let fields = names.iter().map(|name| (name.as_str(), "{{ a }}"));
    let tool = post().with_form(fields).unwrap();
    let error = request(&tool, json!({ "a": "x".repeat(1 << 20) })).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    expect!["the arguments are too large for the form"].assert_eq(error.message());
}

#[test]
fn what_is_raw_is_no_tag() {
    for template in [
        "{% raw %}[\"{{ x | nofilter }}\"]{% endraw %}",
        "[\"{%- raw -%} {{ upstream_token }} {% nothing %} {%- endraw -%}\"]",
    ] {
        let built = post().with_body(template);
        assert!(built.is_ok(), "{template}: {:?}", built.err());
    }
    let text = body(
        "[\"{% raw %}{{ a }}{% endraw %}{{ a }}\"]",
        json!({ "a": 1 }),
    );
    assert_eq!(text.unwrap(), "[\"{{ a }}1\"]");
    let behind = "{% raw %}{{{% endraw %}{{ a | nofilter }}";
    assert!(post().with_body(behind).is_err());
}

#[test]
fn a_body_may_need_texts_and_numbers_at_once() {
    let both = "{ {{ k }}: -{{ n }}, \"e\": {{ n }}e{{ n }} }";
    let text = body(both, json!({ "k": "a", "n": 1 })).unwrap();
    assert_eq!(text, "{ \"a\": -1, \"e\": 1e1 }");
}

#[test]
fn requests_that_are_no_calls_are_refused_when_the_tool_is_built() {
    for method in [Method::CONNECT, Method::TRACE] {
        let error = HttpTool::new(method, "https://h/").unwrap_err();
        assert_eq!(error.field(), "method");
    }
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        let tool = HttpTool::new(method, "https://h/").unwrap();
        assert_eq!(tool.with_body("{}").unwrap_err().field(), "body");
    }
    // Hop by hop (RFC 9110, section 7.6.1), or written by the client (E.4.5).
    for name in [
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "Proxy-Authorization",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Host",
        "Content-Length",
        "Expect",
        "Accept-Encoding",
    ] {
        let error = post().with_header(name, "x").unwrap_err();
        assert_eq!(error.reason(), "is the client's own");
    }
    for url in [
        "https://h:99999/",
        "https://h:/",
        "https://h:0/",
        "https://[::1]:x/",
    ] {
        let error = HttpTool::new(Method::GET, url).unwrap_err();
        assert_eq!(error.field(), "url", "{url}");
    }
    assert!(HttpTool::new(Method::GET, "https://[::1]:8443/").is_ok());
    assert!(HttpTool::new(Method::GET, "https://xn--bcher-kva.example/").is_ok());
}

#[test]
fn one_more_kept_header_than_may_be_is_refused() {
    let mut tool = post();
    for n in 0..64 {
        let name = http::HeaderName::try_from(format!("x-{n}")).unwrap();
        tool = tool.with_kept_header(name).unwrap();
    }
    let tool = tool
        .with_kept_header(http::HeaderName::from_static("x-0"))
        .unwrap();
    let more = tool.with_kept_header(http::HeaderName::from_static("x-more"));
    assert_eq!(more.unwrap_err().field(), "kept_header");
}
