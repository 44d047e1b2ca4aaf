//! Names and filters in templates, and what is said of them.

use http::Method;
use serde_json::{Value, json};
use tower_toolcall::ErrorKind;
use tower_toolcall_http::{HttpTool, ToolManifest};

use crate::kit::{Server, full, leaves};

fn get(url: &str) -> Result<HttpTool, tower_toolcall::ConfigError> {
    HttpTool::new(Method::GET, format!("http://h{url}"))
}

/// The path and query that a real server gets.
async fn sent(url: &str, arguments: Value) -> Result<String, tower_toolcall::ToolError> {
    let server = Server::start(|_, got| http::Response::new(full(got.uri().to_string()))).await;
    let [leaf, _] = leaves(&server.tool(Method::GET, url));
    let answer = leaf.send(arguments).await?;
    Ok(answer.into_json().as_str().unwrap().to_owned())
}

/// H-2: `filter` and `is` as arguments and as members.
#[tokio::test]
async fn a_word_of_the_syntax_may_be_the_name_of_an_argument() {
    let url = "/x?f={% if filter is defined %}{{ filter }}{% endif %}";
    assert_eq!(
        sent(url, json!({ "filter": "a b" })).await.unwrap(),
        "/x?f=a%20b"
    );
    assert_eq!(sent(url, json!({})).await.unwrap(), "/x?f=");
    let looped = "/x?f={% for filter in filters %}{{ filter }},{% endfor %}";
    assert_eq!(
        sent(looped, json!({ "filters": [1, 2] })).await.unwrap(),
        "/x?f=1,2,"
    );
    let member = "/x?f={{ q.is if q.is else q.filter }}";
    let arguments = json!({ "q": { "is": "", "filter": "b" } });
    assert_eq!(sent(member, arguments).await.unwrap(), "/x?f=b");
    // As a block it still begins with a filter.
    assert!(get("/x?f={% filter upper %}a{% endfilter %}").is_ok());
    assert!(get("/x?f={% filter nothing %}a{% endfilter %}").is_err());
}

/// H-2: names of functions, where nothing calls them: Google Sheets has an argument `range`.
#[tokio::test]
async fn a_function_that_is_not_called_may_be_the_name_of_an_argument() {
    let url = "/values/{{ range }}?d={% if dict is defined %}{{ dict }}{% endif %}";
    assert_eq!(
        sent(url, json!({ "range": "A1:B2" })).await.unwrap(),
        "/values/A1%3AB2?d="
    );
    let error = sent(url, json!({})).await.unwrap_err();
    assert_eq!(error.message(), "`range` is missing");
    let called = "/x?n={% for n in range(3) %}{{ n }}{% endfor %}";
    assert_eq!(sent(called, json!({})).await.unwrap(), "/x?n=012");
}

/// H-3: methods, as Python has them, and filters with arguments that they do not take.
#[test]
fn what_no_argument_can_mend_is_refused_when_the_tool_is_built() {
    for url in [
        "/{{ s.upper() }}",
        "/x?q={% if a is defined %}{{ s.strip() }}{% endif %}",
        "/x?q={% for k, v in o.items() %}{{ k }}{% endfor %}",
        "/x?q={{ 'a'.join(s) }}",
        "/{{ s | replace('a') }}",
        "/{{ s | upper(1, 2) }}",
        "/x?q={% if s is divisibleby %}1{% endif %}",
        "/x?q={{ s | replace('a') if s else '' }}",
        "/x?q={{ '' if s else t | replace('a') }}",
        "/x?q={{ s | segment }}",
    ] {
        let error = get(url).unwrap_err();
        assert_eq!(error.field(), "url", "{url}");
    }
    for url in [
        "/{{ s | upper }}",
        "/x?q={% for k, v in o | items %}{{ k }}{% endfor %}",
        "/x?q={% for n in o %}{{ loop.cycle('a', 'b') }}{% endfor %}",
        "/{{ o.upper }}",
        "/x?q={{ path }}&s={{ 'a | segment' }}",
        "/{{ a | segment }}?q={{ segment }}",
        "/{% if q %}x?q={{ q }}{% else %}{{ a | segment }}{% endif %}",
    ] {
        assert!(get(url).is_ok(), "{url}: {:?}", get(url).err());
    }
    let post = || HttpTool::new(Method::POST, "http://h/").unwrap();
    let error = post().with_body(r#"{"a": "{{ a | path }}"}"#).unwrap_err();
    assert_eq!(error.field(), "body");
    let error = post().with_header("x-a", "{{ a | segment }}").unwrap_err();
    assert_eq!(error.field(), "header x-a");
}

/// H-3: a place that encodes does it once.
#[tokio::test]
async fn urlencode_does_nothing_where_values_are_encoded() {
    let arguments = json!({ "a": "x y&z" });
    let url = "/{{ a | urlencode }}?q={{ a | urlencode }}";
    assert_eq!(
        sent(url, arguments.clone()).await.unwrap(),
        "/x%20y%26z?q=x%20y%26z"
    );
    let server = Server::start(|_, got| http::Response::new(full(got.body().clone()))).await;
    let tool = server.tool(Method::POST, "/");
    let [leaf, _] = leaves(&tool.with_body(r#"["{{ a | urlencode }}"]"#).unwrap());
    assert_eq!(
        leaf.send(arguments).await.unwrap().into_json(),
        json!(["x%20y%26z"])
    );
}

/// H-4: a default is no missing argument, nor is what another part has.
#[tokio::test]
async fn exactly_the_missing_arguments_are_named() {
    let server = Server::start(|_, _| http::Response::new(full("1"))).await;
    let tool = server
        .tool(
            Method::POST,
            "/{{ item }}?c={{ currency | default('EUR') }}",
        )
        .with_header("x-unit", "{% if unit is defined %}{{ unit }}{% endif %}")
        .and_then(|tool| {
            tool.with_body(r#"{"n": {{ count }}, "to": "{{ to.city }}", "of": "{{ of.name }}"}"#)
        })
        .unwrap();
    let [leaf, _] = leaves(&tool);
    for (arguments, text) in [
        (
            json!({}),
            "`count`, `item`, `of.name` and `to.city` are missing",
        ),
        (
            json!({ "count": 1, "to": {}, "of": { "name": 1 } }),
            "`item` and `to.city` are missing",
        ),
        (
            json!({ "count": 1, "item": "x", "to": { "city": "x" }, "of": {} }),
            "`of.name` is missing",
        ),
    ] {
        let error = leaf.send(arguments).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidInput, text)
        );
    }
    assert_eq!(server.count(), 0);
}

/// H-4: one of several, and members of an argument that is there.
#[tokio::test]
async fn what_would_do_is_named_where_no_argument_is_needed_alone() {
    for (url, arguments, text) in [
        ("/{{ a | default(b) }}", json!({}), "`a` or `b` is missing"),
        (
            "/{{ items[0].id }}",
            json!({ "items": [] }),
            "a member of `items` is missing",
        ),
        (
            "/{{ a['b-c'] }}",
            json!({ "a": {} }),
            "a member of `a` is missing",
        ),
    ] {
        let error = sent(url, arguments).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidInput, text)
        );
    }
}

/// H-6: GitLab takes the number of a project, and its path.
#[tokio::test]
async fn a_segment_may_be_a_number() {
    let url = "/projects/{{ id | segment }}/{{ v | path }}";
    let path = sent(url, json!({ "id": 7, "v": 1.5 })).await.unwrap();
    assert_eq!(path, "/projects/7/1.5");
    let error = sent(url, json!({ "id": [7], "v": 1 })).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

/// H-6: one segment with slashes, where the template says so.
#[tokio::test]
async fn a_segment_may_have_slashes_where_the_template_says_so() {
    let url = "/projects/{{ id | segment }}/x";
    let path = sent(url, json!({ "id": "group/sub/pro ject" }))
        .await
        .unwrap();
    assert_eq!(path, "/projects/group%2Fsub%2Fpro%20ject/x");
    let path = sent("/wiki/{{ title | segment }}", json!({ "title": "AC/DC" }))
        .await
        .unwrap();
    assert_eq!(path, "/wiki/AC%2FDC");
    for id in ["a/../b", "..", "./a", "a/%2e%2e", "", "a\nb", "..\\a"] {
        let error = sent(url, json!({ "id": id })).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{id}");
    }
    assert!(
        sent("/projects/{{ id }}", json!({ "id": "a/b" }))
            .await
            .is_err()
    );
}

fn manifest(at: &str, profile: Value) -> ToolManifest {
    let mut profile = profile;
    profile["url_template"] = format!("{at}/things/{{{{ id }}}}").into();
    serde_json::from_value(json!({
        "name": "order",
        "input_schema": {
            "type": "object",
            "properties": { "id": { "type": "integer", "minimum": 1 } },
            "required": ["id"],
        },
        "execution_profile": profile,
    }))
    .unwrap()
}

/// H-5: without any layer, as the snippet of the docs has it.
#[tokio::test]
async fn the_schema_of_a_file_is_enforced_unless_switched_off() {
    let server = Server::start(|_, _| http::Response::new(full("1"))).await;
    let tool = manifest(&server.at, json!({ "method": "GET" }))
        .tool()
        .unwrap();
    let [leaf, _] = leaves(&tool);
    for arguments in [json!({ "id": 0 }), json!({ "id": "7" }), json!({})] {
        let error = leaf.send(arguments).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(
            error.message().contains("id") || error.message().contains("required"),
            "{error}"
        );
    }
    assert_eq!(server.count(), 0);
    leaf.send(json!({ "id": 7 })).await.unwrap();
    let [unchecked, _] = leaves(&tool.with_validation(false));
    unchecked.send(json!({ "id": "7" })).await.unwrap();
    use tower::ServiceExt as _;
    let mut call = crate::kit::call(json!({ "id": 0 }));
    call.extensions_mut()
        .insert(tower_toolcall::validate::Validation::Off);
    leaf.oneshot(call).await.unwrap();
    assert_eq!(server.count(), 3);
}

/// H-6: kept headers, the result's and the error's path, and replay safety are fields of a file.
#[tokio::test]
async fn what_an_answer_is_can_be_said_in_a_file() {
    let server = Server::start(|n, _| {
        let body = match n {
            0 | 1 => r#"{"ok": true, "data": {"x": 1}, "error": null}"#,
            _ => r#"{"ok": false, "error": "channel_not_found"}"#,
        };
        let answer = http::Response::builder().header("etag", "v7");
        answer.body(full(body)).unwrap()
    })
    .await;
    let manifest = manifest(
        &server.at,
        json!({
            "kept_headers": ["ETag"], "result_field_path": "$.data",
            "error_field_path": "$.error", "replay_safe": true,
        }),
    );
    let tool = manifest.tool().unwrap();
    assert_eq!(tool.replay_safety(), tower_toolcall::ReplaySafety::Safe);
    for leaf in leaves(&tool) {
        let answer = leaf.send(json!({ "id": 1 })).await.unwrap();
        assert_eq!(answer.headers()["etag"], "v7");
        assert_eq!(answer.into_json(), json!({ "x": 1 }));
    }
    let [leaf, _] = leaves(&tool);
    let error = leaf.send(json!({ "id": 1 })).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Reported, "channel_not_found")
    );
    assert!(error.model_message().contains("channel_not_found"));
}

/// H-8: a body that was not read to its end says so, JSON and text.
#[tokio::test]
async fn a_failed_body_that_was_cut_is_marked() {
    use tower_toolcall_http::HttpAnswer;
    for (length, is_cut) in [(70_000, true), (65_536, false), (100, false)] {
        for open in ["", "["] {
            let server = Server::start(move |_, _| {
                let body = format!("{open}{}", "1".repeat(length - open.len()));
                http::Response::builder()
                    .status(500)
                    .body(full(body))
                    .unwrap()
            })
            .await;
            for leaf in leaves(&server.tool(Method::GET, "/")) {
                let error = leaf.send(json!({})).await.unwrap_err();
                let answer = HttpAnswer::of_error(&error).unwrap().clone().into_json();
                let text = answer.as_str().unwrap_or_default();
                assert_eq!(
                    text.ends_with("[the rest of the body was not read]"),
                    is_cut
                );
            }
        }
    }
}
