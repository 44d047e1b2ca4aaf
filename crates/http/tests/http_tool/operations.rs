//! H-6: eight operations of real APIs as files, against a server that answers as their documents
//! say. The docs of `http_tool` have them as a table.

use std::time::Duration;

use bytes::Bytes;
use expect_test::expect;
use http::{Method, Response};
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, Evidence, ServiceBuilderExt as _, ToolCall, ToolError, call::JobRef,
    token::UpstreamToken,
};
use tower_toolcall_http::{HttpAnswer, ReqwestClient, ToolManifest};

use crate::kit::{Body, Got, Server, full};

/// A file, with the server's address for that of the API.
fn manifest(server: &Server, file: Value) -> ToolManifest {
    let text = file.to_string().replace("https://API", &server.at);
    let manifest: ToolManifest = serde_json::from_str(&text).unwrap();
    manifest.pass_subject_without_audience()
}

/// The stack of a file, as the docs build it.
async fn run(server: &Server, file: Value, arguments: Value) -> Result<HttpAnswer, ToolError> {
    let manifest = manifest(server, file);
    let client = ReqwestClient::new().unwrap();
    let stack = ServiceBuilder::new()
        .option_layer(manifest.poll_layer().unwrap())
        .tool_timeout(Duration::from_secs(30))
        .tool(manifest.tool().unwrap().client::<_, Bytes>(client));
    let mut call = ToolCall::new(manifest.name()).with_json(arguments).unwrap();
    call.extensions_mut().insert(UpstreamToken::new("t0k3n"));
    stack.oneshot(call).await
}

fn answer(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    Response::builder().status(status).body(full(body)).unwrap()
}

fn path(got: &Got) -> &str {
    got.uri().path_and_query().unwrap().as_str()
}

/// GitHub, "Get all contributor commit activity": 202 and an empty object while the statistics are
/// made.
#[tokio::test]
async fn github_statistics_are_asked_for_until_they_are_there() {
    let server = Server::start(|n, got| {
        assert_eq!(
            (got.method(), path(got)),
            (&Method::GET, "/repos/rust-lang/cargo/stats/contributors")
        );
        match n {
            0 | 1 => answer(202, "{}"),
            _ => answer(200, r#"[{"author": {"login": "a"}, "total": 135}]"#),
        }
    })
    .await;
    let file = json!({
        "name": "contributors",
        "input_schema": {
            "type": "object", "required": ["owner", "repo"],
            "properties": { "owner": { "type": "string" }, "repo": { "type": "string" } },
        },
        "execution_profile": {
            "mode": "async_poll", "method": "GET", "replay_safe": true,
            "url_template": "https://API/repos/{{ owner }}/{{ repo }}/stats/contributors",
            "headers_template": {
                "Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28",
                "User-Agent": "tools",
            },
            "poll_config": {
                "pending_statuses": [202], "poll_interval_seconds": 0.01, "result_field_path": "$[*].total",
            },
        },
    });
    let found = run(
        &server,
        file,
        json!({ "owner": "rust-lang", "repo": "cargo" }),
    )
    .await;
    assert_eq!(found.unwrap().into_json(), json!(135));
    assert_eq!(server.count(), 3);
}

/// A job whose URL stands in `Location`, as Azure has it, absolute and relative; never that of
/// another host.
#[tokio::test]
async fn a_job_is_asked_for_where_its_location_says() {
    for (place, is_asked) in [
        ("/operations/7?api-version=1", true),
        ("absolute", true),
        ("loud", true),
        ("http://evil.example/x", false),
        ("//evil.example/x", false),
    ] {
        let server = Server::start(move |_, got| match path(got) {
            "/exports" => {
                let host = got.headers()["host"].to_str().unwrap();
                let absolute = format!("http://{host}/operations/7?api-version=1");
                let loud = absolute.replace("http", "HTTP");
                let place = match place {
                    "absolute" => &*absolute,
                    "loud" => &*loud,
                    place => place,
                };
                let answer = Response::builder().status(202).header("location", place);
                answer.header("retry-after", "0").body(full("")).unwrap()
            }
            "/operations/7?api-version=1" => answer(200, r#"{"rows": 9}"#),
            other => panic!("{other}"),
        })
        .await;
        let file = json!({
            "name": "export",
            "execution_profile": {
                "mode": "async_poll", "url_template": "https://API/exports", "body_template": "{}",
                "poll_config": {
                    "pending_statuses": [202], "status_url_header": "Location", "interval_seconds": 0.01,
                },
            },
        });
        let result = run(&server, file, json!({})).await;
        match is_asked {
            true => assert_eq!(result.unwrap().into_json(), json!({ "rows": 9 })),
            false => assert_eq!(result.unwrap_err().kind(), ErrorKind::Reported),
        }
        assert_eq!(server.count(), if is_asked { 2 } else { 1 });
    }
}

/// Runs a job that `/v1/exports?dry=1` starts with this `Location`, in which HOST is the server,
/// and returns the paths that it is asked for by.
async fn asked_for(location: &'static str) -> (Vec<String>, Result<HttpAnswer, ToolError>) {
    let server = Server::start(move |n, got| {
        let host = got.headers()["host"].to_str().unwrap();
        let status = if n == 0 { 202 } else { 200 };
        let answer = Response::builder()
            .status(status)
            .header("retry-after", "0");
        let answer = answer.header("location", location.replace("HOST", host));
        answer.body(full("{}")).unwrap()
    })
    .await;
    let file = json!({
        "name": "export",
        "execution_profile": {
            "mode": "async_poll", "url_template": "https://API/v1/exports?dry=1", "body_template": "{}",
            "headers_template": { "Authorization": "Bearer {{ upstream_token }}" },
            "poll_config": {
                "pending_statuses": [202], "status_url_header": "Location", "interval_seconds": 0.01,
            },
        },
    });
    let result = run(&server, file, json!({})).await;
    let asked = server.paths().split_off(1);
    (asked, result)
}

/// H-6: a reference is resolved against the URL of the request (RFC 9110, section 10.2.2).
#[tokio::test]
async fn a_relative_location_is_resolved() {
    for (location, path) in [
        ("/jobs/7", "/jobs/7"),
        ("jobs/7", "/v1/jobs/7"),
        ("./jobs/7/", "/v1/jobs/7/"),
        ("../jobs/7?x=1", "/jobs/7?x=1"),
        ("../../../jobs/7", "/jobs/7"),
        ("?id=7", "/v1/exports?id=7"),
        ("#done", "/v1/exports?dry=1"),
        ("/jobs/7#done", "/jobs/7"),
        ("jobs/7?x=1#?done", "/v1/jobs/7?x=1"),
        (
            "/jobs/7?next=http://evil.example/x",
            "/jobs/7?next=http://evil.example/x",
        ),
        ("jobs:7/../8", ""),
        ("./jobs:7", "/v1/jobs:7"),
        ("//HOST/jobs/7", "/jobs/7"),
        ("//HOST?id=7", "/?id=7"),
        ("http://HOST", "/"),
        ("HTTP://HOST/jobs/../7#done", "/7"),
        ("http://HOST//jobs/7", "//jobs/7"),
        ("/..//evil.example/7", "//evil.example/7"),
    ] {
        let (asked, result) = asked_for(location).await;
        let expected = if path.is_empty() { vec![] } else { vec![path] };
        assert_eq!(asked, expected, "{location}: {result:?}");
        assert_eq!(result.is_ok(), !path.is_empty(), "{location}");
    }
}

/// H-6: the token of the tool goes to its own host alone, and nothing is asked for.
#[tokio::test]
async fn a_location_of_another_host_is_refused() {
    let other = Server::start(|_, _| answer(200, "1")).await;
    let there = &*Box::leak(other.at.clone().into_boxed_str());
    let leaked = |text: String| &*Box::leak(text.into_boxed_str());
    for location in [
        there,
        leaked(there.replace("http:", "")),
        leaked(format!("{there}/jobs/7")),
        leaked(there.replace("http://", "http://HOST@")),
        leaked(there.replace("http://", "//HOST@")),
        "https://HOST/jobs/7",
        "http://HOST.evil.example/7",
        "http://user:x@HOST/7",
        "http:jobs/7",
        "http:/jobs/7",
        "mailto:jobs@evil.example",
        "///jobs/7",
        "",
    ] {
        let (asked, result) = asked_for(location).await;
        assert_eq!(asked, Vec::<String>::new(), "{location}");
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reported, "{location}");
        assert!(error.message().contains("`location`"), "{error}");
    }
    assert_eq!(other.count(), 0);
}

/// H-6: a job that was stored names a path of the tool's host, and its token goes nowhere else.
#[tokio::test]
async fn a_stored_job_with_a_foreign_location_is_not_asked_for() {
    let server = Server::start(|_, _| answer(200, "1")).await;
    let other = Server::start(|_, _| answer(200, "1")).await;
    let file = json!({
        "name": "export",
        "execution_profile": {
            "mode": "async_poll", "url_template": "https://API/exports", "body_template": "{}",
            "headers_template": { "Authorization": "Bearer {{ upstream_token }}" },
            "poll_config": {
                "pending_statuses": [202], "status_url_header": "Location", "interval_seconds": 0.01,
            },
        },
    });
    let manifest = manifest(&server, file);
    let other_host = other.at.trim_start_matches("http://");
    for values in [
        json!({ "location": format!("@{other_host}/") }),
        json!({ "location": 7 }),
        json!({}),
    ] {
        let job: JobRef =
            serde_json::from_value(json!({ "tool": "export", "values": values })).unwrap();
        let client = ReqwestClient::new().unwrap();
        let stack = ServiceBuilder::new()
            .option_layer(manifest.poll_layer().unwrap())
            .tool_timeout(Duration::from_secs(5))
            .tool(manifest.tool().unwrap().client::<_, Bytes>(client));
        let mut call = ToolCall::new("export").with_job(job);
        call.extensions_mut().insert(UpstreamToken::new("t0k3n"));
        assert!(stack.oneshot(call).await.is_err(), "{values}");
        assert_eq!((server.count(), other.count()), (0, 0), "{values}");
    }
}

/// GitLab, "Get file from repository": project and file are one segment each.
#[tokio::test]
async fn gitlab_files_have_slashes_in_one_segment() {
    let server = Server::start(|_, got| {
        let expected = "/api/v4/projects/group%2Fproject/repository/files/src%2Fmain.rs?ref=main";
        assert_eq!(path(got), expected);
        assert_eq!(got.headers()["private-token"], "t0k3n");
        let answer = Response::builder().header("X-Gitlab-Size", "12");
        answer
            .body(full(r#"{"file_name": "main.rs", "content": "Zm4="}"#))
            .unwrap()
    })
    .await;
    let file = json!({
        "name": "file",
        "execution_profile": {
            "method": "GET", "kept_headers": ["X-Gitlab-Size"], "result_field_path": "content",
            "url_template": "https://API/api/v4/projects/{{ id | segment }}/repository/files/{{ file | segment }}?ref={{ ref | default('main') }}",
            "headers_template": { "PRIVATE-TOKEN": "{{ upstream_token }}" },
        },
    });
    let arguments = json!({ "id": "group/project", "file": "src/main.rs" });
    let found = run(&server, file, arguments).await.unwrap();
    assert_eq!(found.headers()["x-gitlab-size"], "12");
    assert_eq!(found.into_json(), json!("Zm4="));
}

/// Wikimedia's REST API, a summary: titles have slashes, `?` and letters of all scripts.
#[tokio::test]
async fn wikipedia_pages_have_any_title() {
    let server = Server::start(|_, got| match path(got) {
        "/api/rest_v1/page/summary/AC%2FDC" => {
            answer(200, r#"{"title": "AC/DC", "extract": "a band"}"#)
        }
        "/api/rest_v1/page/summary/%C3%89t%C3%A9%3F" => answer(200, r#"{"extract": "a season"}"#),
        _ => answer(404, r#"{"type": "Internal error", "title": "Not found."}"#),
    })
    .await;
    let file = json!({
        "name": "summary",
        "execution_profile": {
            "method": "GET", "result_field_path": "$.extract",
            "url_template": "https://API/api/rest_v1/page/summary/{{ title | segment }}",
            "headers_template": { "User-Agent": "tools (tools@example.com)" },
        },
    });
    for (title, extract) in [("AC/DC", "a band"), ("Été?", "a season")] {
        let found = run(&server, file.clone(), json!({ "title": title })).await;
        assert_eq!(found.unwrap().into_json(), json!(extract));
    }
    let error = run(&server, file, json!({ "title": "x" }))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// Notion, "Query a database": a POST that only reads, with a filter as it is.
#[tokio::test]
async fn notion_queries_have_an_argument_named_filter() {
    let server = Server::start(|_, got| {
        assert_eq!(
            (got.method(), path(got)),
            (&Method::POST, "/v1/databases/d1/query")
        );
        assert_eq!(got.headers()["notion-version"], "2022-06-28");
        assert_eq!(got.headers()["authorization"], "Bearer t0k3n");
        let asked: Value = serde_json::from_slice(got.body()).unwrap();
        let results = asked.get("filter").cloned().into_iter().collect::<Vec<_>>();
        assert_eq!(asked["page_size"], 10);
        let list = json!({ "object": "list", "results": results, "has_more": false });
        answer(200, list.to_string())
    })
    .await;
    let file = json!({
        "name": "query",
        "execution_profile": {
            "url_template": "https://API/v1/databases/{{ database }}/query",
            "replay_safe": true, "result_field_path": "results",
            "headers_template": { "Authorization": "Bearer {{ upstream_token }}", "Notion-Version": "2022-06-28" },
            "body_template": r#"{ {% if filter is defined %}"filter": {{ filter }},{% endif %} "page_size": {{ page_size | default(10) }} }"#,
        },
    });
    assert_eq!(
        manifest(&server, file.clone())
            .tool()
            .unwrap()
            .replay_safety(),
        tower_toolcall::ReplaySafety::Safe
    );
    let filter = json!({ "property": "Done", "checkbox": { "equals": true } });
    let found = run(
        &server,
        file.clone(),
        json!({ "database": "d1", "filter": filter }),
    )
    .await;
    assert_eq!(found.unwrap().into_json(), json!([filter]));
    let found = run(&server, file, json!({ "database": "d1" })).await;
    assert_eq!(found.unwrap().into_json(), json!([]));
}

/// Google Drive, "files.list": a limit is a 403.
#[tokio::test]
async fn a_limit_of_google_is_a_rate_limit() {
    let server = Server::start(|_, got| {
        assert!(path(got).starts_with("/drive/v3/files?q=name%20contains%20%27a%27&pageSize="));
        answer(403, r#"{"error": {"errors": [{"domain": "usageLimits", "reason": "userRateLimitExceeded",
            "message": "User Rate Limit Exceeded"}], "code": 403, "message": "User Rate Limit Exceeded"}}"#)
    })
    .await;
    let file = json!({
        "name": "files",
        "execution_profile": {
            "method": "GET", "result_field_path": "$.files",
            "url_template": "https://API/drive/v3/files?q={{ q | urlencode }}&pageSize={{ size | default(100) }}",
            "headers_template": { "Authorization": "Bearer {{ upstream_token }}" },
        },
    });
    let error = run(&server, file, json!({ "q": "name contains 'a'" }))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.evidence()),
        (ErrorKind::RateLimited, Evidence::Reported)
    );
    assert!(error.is_retryable());
}

/// Jira Cloud, "Search for issues using JQL": its errors are a list of texts beside a 400.
#[tokio::test]
async fn jira_searches_have_jql_and_fields() {
    let server = Server::start(|_, got| match path(got) {
        "/rest/api/3/search/jql?jql=project%20%3D%20%22A%26B%22&maxResults=50&fields=summary%2Cstatus" => {
            answer(200, r#"{"issues": [{"key": "A-1"}], "isLast": true}"#)
        }
        _ => answer(400, r#"{"errorMessages": ["The value 'X' does not exist for the field 'project'."], "errors": {}}"#),
    })
    .await;
    let file = json!({
        "name": "search",
        "execution_profile": {
            "method": "GET", "result_field_path": "$.issues",
            "url_template": "https://API/rest/api/3/search/jql?jql={{ jql }}&maxResults={{ max | default(50) }}&fields={{ fields | default(['summary', 'status']) | join(',') }}",
            "headers_template": { "Authorization": "Basic {{ upstream_token }}", "Accept": "application/json" },
        },
    });
    let found = run(&server, file.clone(), json!({ "jql": "project = \"A&B\"" })).await;
    assert_eq!(found.unwrap().into_json(), json!([{ "key": "A-1" }]));
    let error = run(&server, file, json!({ "jql": "project = X" }))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    expect!["Tool 'search' refused its arguments: HTTP 400 Bad Request: The value 'X' does not exist for the field 'project'. Correct them and call it again."].assert_eq(&error.model_message());
}

/// Slack, "chat.postMessage": a failure is a 200 with `ok: false`.
#[tokio::test]
async fn a_failed_post_to_slack_is_an_error_with_its_reason() {
    let server = Server::start(|_, got| {
        let asked: Value = serde_json::from_slice(got.body()).unwrap();
        assert_eq!(path(got), "/api/chat.postMessage");
        match asked["channel"].as_str() {
            Some("C1") => answer(
                200,
                r#"{"ok": true, "channel": "C1", "ts": "1503435956.000247"}"#,
            ),
            _ => answer(200, r#"{"ok": false, "error": "channel_not_found"}"#),
        }
    })
    .await;
    let file = json!({
        "name": "post",
        "execution_profile": {
            "url_template": "https://API/api/chat.postMessage", "replay_safe": false,
            "result_field_path": "$.ts", "error_field_path": "$.error",
            "headers_template": { "Authorization": "Bearer {{ upstream_token }}" },
            "body_template": r#"{"channel": "{{ channel }}", "text": "{{ text }}"}"#,
        },
    });
    let found = run(
        &server,
        file.clone(),
        json!({ "channel": "C1", "text": "a \"b\"" }),
    )
    .await;
    assert_eq!(found.unwrap().into_json(), json!("1503435956.000247"));
    let error = run(&server, file, json!({ "channel": "C2", "text": "x" }))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Reported, "channel_not_found")
    );
    assert!(!error.is_retryable());
}

/// Open-Meteo, a forecast: numbers in the query, a reason beside a 400.
#[tokio::test]
async fn a_forecast_has_numbers_and_defaults() {
    let server = Server::start(|_, got| match path(got) {
        "/v1/forecast?latitude=52.52&longitude=-13.4&current=temperature_2m&timezone=auto" => {
            answer(
                200,
                r#"{"current": {"time": "2025-07-01T12:00", "temperature_2m": 21.4}}"#,
            )
        }
        _ => answer(
            400,
            r#"{"error": true, "reason": "Latitude must be in range of -90 to 90."}"#,
        ),
    })
    .await;
    let file = json!({
        "name": "forecast",
        "input_schema": {
            "type": "object", "required": ["latitude", "longitude"],
            "properties": {
                "latitude": { "type": "number" }, "longitude": { "type": "number" },
                "timezone": { "type": "string" },
            },
        },
        "execution_profile": {
            "method": "GET", "result_field_path": "$.current.temperature_2m",
            "url_template": "https://API/v1/forecast?latitude={{ latitude }}&longitude={{ longitude }}&current=temperature_2m&timezone={{ timezone | default('auto') }}",
        },
    });
    let found = run(
        &server,
        file.clone(),
        json!({ "latitude": 52.52, "longitude": -13.4 }),
    )
    .await;
    assert_eq!(found.unwrap().into_json(), json!(21.4));
    let error = run(
        &server,
        file.clone(),
        json!({ "latitude": 99, "longitude": 1 }),
    )
    .await;
    expect!["Tool 'forecast' refused its arguments: HTTP 400 Bad Request: Latitude must be in range of -90 to 90. Correct them and call it again."].assert_eq(&error.unwrap_err().model_message());
    let error = run(&server, file, json!({ "latitude": "north" }))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        server.count(),
        2,
        "what does not fit the schema is not sent"
    );
}
