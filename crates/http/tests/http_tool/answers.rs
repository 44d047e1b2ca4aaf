//! What answers become.

use std::time::Duration;

use expect_test::expect;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt as _};
use tower_toolcall::{
    Answer, Classify, ErrorKind, Evidence, Execution, ModelText, Outcome, ToolError,
    fit::{Cut, FitLayer, Shorten as _},
    router::IntoAnswer as _,
};
use tower_toolcall_http::{HttpAnswer, HttpClassifier, HttpTool, ToolManifest};
use tower_toolcall_mcp::McpAnswer;

use crate::kit::{Body, Server, answered_by, call, full, leaves, no_arguments};

fn answer(status: u16, body: &'static str) -> Response<Body> {
    Response::builder().status(status).body(full(body)).unwrap()
}

/// H4: JSON is JSON, whatever its type is called; the rest is text.
#[tokio::test]
async fn a_body_is_json_or_text() {
    let server = Server::start(|_, got| {
        Response::new(full(match got.uri().path() {
            "/json" => br#"{"a": [1, "b"]}"#.to_vec(),
            "/text" => b"plain \xff".to_vec(),
            "/deep" => b"[".repeat(100_000),
            _ => Vec::new(),
        }))
    })
    .await;
    let tool = server.tool(Method::GET, "/{{ at }}");
    for leaf in leaves(&tool) {
        let of = async |at: &str| leaf.send(json!({ "at": at })).await.unwrap();
        let answer = of("json").await;
        assert!(matches!(answer.body(), Answer::Json(_)));
        assert_eq!(answer.model_text(), r#"{"a":[1,"b"]}"#);
        assert_eq!(of("text").await.into_json(), json!("plain \u{fffd}"));
        assert!(matches!(of("deep").await.body(), Answer::Text(_)));
        assert_eq!(of("empty").await.into_json(), Value::Null);
    }
}

/// The answer of a server that sends a body of this type.
async fn typed(media_type: &str, body: &'static [u8]) -> HttpAnswer {
    let tool = HttpTool::new(Method::GET, "http://localhost/picture").unwrap();
    let media_type = HeaderValue::from_str(media_type).unwrap();
    let leaf = answered_by(tool, move |_| {
        let answer = Response::builder().header("content-type", &media_type);
        answer.body(full(body)).unwrap()
    });
    leaf.send(no_arguments()).await.unwrap()
}

/// T-1: content that is not text does not become text. What a server calls text is, in any charset.
#[tokio::test]
async fn a_body_that_is_no_text_is_a_line() {
    // The name of this type has `xml` in it.
    let office = "application/vnd.openxmlformats";
    for (media_type, body, read) in [
        (
            "image/png",
            &b"\x89PNG\r\n\x1a\n\x00\xff"[..],
            "image/png, 10 bytes",
        ),
        (
            &format!("{office}; x=1"),
            b"PK\x03\xff",
            &format!("{office}, 4 bytes"),
        ),
    ] {
        let answer = typed(media_type, body).await;
        assert_eq!(answer.model_text(), format!("[body left out: {read}]"));
    }
    for (media_type, body, read) in [
        ("text/plain; charset=latin1", &b"caf\xe9"[..], "caf\u{fffd}"),
        ("image/svg+xml", b"<svg>\xe9</svg>", "<svg>\u{fffd}</svg>"),
        ("application/octet-stream", b"plain", "plain"),
    ] {
        assert_eq!(typed(media_type, body).await.model_text(), read);
    }
}

/// Users' row 3: the model reads the reason for which another server of ours refused its arguments,
/// and not its JSON.
#[tokio::test]
async fn the_reason_in_an_answer_of_ours_is_the_models() {
    let tool = || HttpTool::new(Method::GET, "http://localhost/weather").unwrap();
    let long = format!("city: {} has to be a city", "x".repeat(60));
    for reason in ["city: must not be empty", &long] {
        let refused = ToolError::new(ErrorKind::InvalidInput, reason.to_owned());
        let leaf = answered_by(tool(), move |_| refused.to_http().map(full));
        let error = leaf.send(no_arguments()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.model_message();
        assert!(text.contains(reason) && !text.contains('{'), "{text}");
    }
    // Such a member of any other API is a part of its body.
    let body = r#"{"error": {"code": "no_city", "reason": "give a city"}}"#;
    let leaf = answered_by(tool(), move |_| answer(400, body));
    let text = leaf.send(no_arguments()).await.unwrap_err().model_message();
    assert!(text.contains("no_city"), "{text}");
}

/// E.5.2: bodies that are bytes of UTF-8 are read; of others the bytes that are none are marked,
/// whatever the charset is called.
#[tokio::test]
async fn a_charset_other_than_utf_8_is_not_decoded() {
    for (charset, body, expected) in [
        ("iso-8859-1", &b"caf\xe9"[..], "caf\u{fffd}"),
        ("iso-8859-1", "caf\u{e9}".as_bytes(), "caf\u{e9}"),
        ("utf-16le", b"{\0}\0", "{\0}\0"),
        ("utf-16", b"\xff\xfe{\0}\0", "\u{fffd}\u{fffd}{\0}\0"),
    ] {
        let answer = typed(&format!("application/json; charset={charset}"), body).await;
        assert_eq!(answer.into_json(), json!(expected), "{charset}");
    }
}

/// E.5.2: what JSON allows and a number cannot be is a text, with all its digits.
#[tokio::test]
async fn a_number_beyond_all_bounds_is_a_text() {
    let body = r#"{"total": 1e999}"#;
    for (status, is_ok) in [(200, true), (409, false)] {
        let tool = HttpTool::new(Method::GET, "http://api.example.com/").unwrap();
        let leaf = answered_by(tool, move |_| answer(status, body));
        let result = leaf.send(no_arguments()).await;
        assert_eq!(result.is_ok(), is_ok);
        let kept = result
            .as_ref()
            .or_else(|error| HttpAnswer::of_error(error).ok_or(()));
        assert!(matches!(kept.unwrap().body(), Answer::Text(text) if text == body));
    }
}

/// H4: the result of an execution.
#[tokio::test]
async fn an_answer_is_written_with_its_status_and_time() {
    let server = Server::start(|_, _| {
        let mut answer = answer(201, r#"{"order": 7}"#);
        let headers = answer.headers_mut();
        headers.insert("x-kept", "1".parse().unwrap());
        headers.insert("set-cookie", "sid=c4n4ry".parse().unwrap());
        answer
    })
    .await;
    let tool = server
        .tool(Method::POST, "/")
        .with_kept_header(HeaderName::from_static("x-kept"))
        .unwrap();
    for leaf in leaves(&tool) {
        let answer = leaf.send(no_arguments()).await.unwrap();
        assert_eq!(answer.upstream_status(), StatusCode::CREATED);
        let mut written = serde_json::to_value(&answer).unwrap();
        assert!(written["execution_time_ms"].take().is_u64());
        assert_eq!(
            written,
            json!({
                "status": "completed", "result": { "order": 7 }, "upstream_status": 201,
                "execution_time_ms": null, "metadata": { "x-kept": "1" },
            })
        );
        assert!(!format!("{answer:?}").contains("order"));
    }
}

/// H4, H6: status to kind, and what it says of the tool.
#[tokio::test]
async fn a_status_is_an_error_that_keeps_the_answer() {
    let server = Server::start(|_, got| {
        let status: u16 = got.uri().path()[1..].parse().unwrap();
        answer(
            status,
            r#"{"detail": "no such pizza", "password": "c4n4ry"}"#,
        )
    })
    .await;
    let tool = server.tool(Method::POST, "/{{ status }}");
    for leaf in leaves(&tool) {
        for (status, kind, execution) in [
            (400, ErrorKind::InvalidInput, Execution::NotStarted),
            (401, ErrorKind::Denied, Execution::NotStarted),
            (404, ErrorKind::NotFound, Execution::NotStarted),
            (409, ErrorKind::Failed, Execution::Unknown),
            (422, ErrorKind::InvalidInput, Execution::NotStarted),
            (429, ErrorKind::RateLimited, Execution::NotStarted),
            (500, ErrorKind::Upstream, Execution::Unknown),
            (503, ErrorKind::Upstream, Execution::Unknown),
        ] {
            let error = leaf.send(json!({ "status": status })).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.execution()),
                (kind, execution),
                "{status}"
            );
            assert_eq!(error.status().map(|s| s.as_u16()), Some(status));
            assert_eq!(
                (error.evidence(), error.tool()),
                (Evidence::Reported, Some("order"))
            );
            let kept = HttpAnswer::of_error(&error).unwrap();
            let written = serde_json::to_value(kept).unwrap();
            assert_eq!(
                (&written["status"], &written["result"]["detail"]),
                (&json!("failed"), &json!("no such pizza"))
            );
            let text = error.model_message();
            assert!(status != 422 || text.contains("no such pizza"), "{text}");
            let shown = format!("{error} {error:?} {:?} {text:?}", error.body());
            assert!(shown.contains("no such pizza"), "{shown}");
            assert!(!shown.contains("c4n4ry"), "{shown}");
        }
    }
}

/// L2: hints, in headers and in bodies.
#[tokio::test]
async fn a_refusal_has_the_delay_that_the_server_asks_for() {
    let server = Server::start(|_, got| match got.uri().path() {
        "/header" => {
            let answer = Response::builder().status(503).header("retry-after", "7");
            answer.body(full("")).unwrap()
        }
        _ => answer(429, r#"{"error": {"retry_after": 9}}"#),
    })
    .await;
    let tool = server.tool(Method::POST, "/{{ at }}");
    for leaf in leaves(&tool) {
        let error = leaf.send(json!({ "at": "header" })).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(error.execution(), Execution::NotStarted);
        let error = leaf.send(json!({ "at": "body" })).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(9)));
    }
}

/// K-6: servers write a delay into headers of their own, into their JSON and into their words.
#[tokio::test]
async fn a_delay_is_read_wherever_the_answer_has_it() {
    for row in r#"
1500 x-ms-retry-after-ms: 1500
39000 Your quota will reset after 39s.
39000 {"error": {"details": [{"retryDelay": "39s"}]}}
86400 {"error": {"message": "Rate limit reached. Please try again in 1m26.4s."}}
12000 x-acme-retry-after: 12
1500 x-amz-retry-after: 1500
39000 {"error_message": "too many requests from this IP, more requests available in 39 seconds"}
12000 Too many requests: the limit resets in 12 seconds
39000 {"retryDelay": {"seconds": "39", "nanos": 0}}
39000 429 RESOURCE_EXHAUSTED. You exceeded your quota. {'retryDelay': '39s'}
    "#
    .trim()
    .lines()
    {
        let (millis, said) = row.split_once(' ').unwrap();
        let (header, body) = match said.starts_with("x-") {
            true => (said, ""),
            false => ("x-other: 1", said),
        };
        let expected = Some(Duration::from_millis(millis.parse().unwrap()));
        let error = refused_with(429, header, body).await;
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert_eq!(error.retry_after(), expected, "{row}");
        let error = refused_with(503, header, body).await;
        assert_eq!(error.retry_after(), expected, "{row}");
    }
}

/// K-6: words that a limit shares with other things ask for nothing.
#[tokio::test]
async fn words_about_other_things_are_no_delay() {
    for body in [
        "connection reset after 39s",
        "limit of 5 connections; the last connection reset after 39s",
        r#"{"config": {"retryDelay": 5000}}"#,
        r#"{"details": [{"@type": "acme.Pause", "retryDelay": "39s"}]}"#,
    ] {
        let error = refused_with(429, "x-after: 1", body).await;
        assert_eq!(error.retry_after(), None, "{body}");
    }
}

/// K-6: a number that no duration can hold is a very long delay, not a missing one.
#[tokio::test]
async fn a_delay_of_32_digits_is_the_longest_one() {
    let digits = "9".repeat(32);
    let json = format!(r#"{{"retry_after": {digits}}}"#);
    let text = format!("try again in {digits} seconds");
    let header = format!("retry-after: {digits}");
    let millis = format!("retry-after-ms: {digits}");
    let reset = format!("x-ratelimit-reset: {digits}");
    for (header, body) in [
        (&*header, ""),
        (&*millis, ""),
        (&*reset, ""),
        ("x-other: 1", &*json),
        ("x-other: 1", &*text),
    ] {
        let error = refused_with(429, header, body).await;
        let delay = error.retry_after().unwrap_or_default();
        let century = Duration::from_secs(100 * 365 * 86_400);
        assert!(delay > century, "{header}, {body}: {delay:?}");
        // Callers and models see no more than the longest period of a quota.
        assert_eq!(error.retry_after_seconds(), Some(31 * 86_400));
    }
}

/// The error of a server that answers so; the header is `name: value`.
async fn refused_with(status: u16, header: &str, body: &str) -> ToolError {
    let (name, value) = header.split_once(": ").unwrap();
    let (name, value): (HeaderName, HeaderValue) = (name.parse().unwrap(), value.parse().unwrap());
    let body = body.to_owned();
    let leaf = answered_by(tool(Method::POST), move |_| {
        let answer = Response::builder().status(status).header(&name, &value);
        answer.body(full(body.clone())).unwrap()
    });
    leaf.send(no_arguments()).await.unwrap_err()
}

/// L3: a success that was the last one for a while.
#[tokio::test]
async fn a_success_with_nothing_left_has_a_cooldown() {
    let server = Server::start(|n, _| {
        let left = if n == 0 { "0" } else { "9" };
        let limit = format!("limit=10, remaining={left}, reset=5");
        let answer = Response::builder().header("ratelimit", limit);
        answer.body(full("1")).unwrap()
    })
    .await;
    let [leaf, _] = leaves(&server.tool(Method::GET, "/"));
    let last = leaf.send(no_arguments()).await.unwrap();
    let cooldown = Outcome::success().with_cooldown(Duration::from_secs(5));
    assert_eq!(HttpClassifier::new().classify(Ok(&last)), cooldown);
    let other = leaf.send(no_arguments()).await.unwrap();
    assert_eq!(
        HttpClassifier::new().classify(Ok(&other)),
        Outcome::success()
    );
}

fn tool(method: Method) -> HttpTool {
    HttpTool::new(method, "http://h/").unwrap()
}

/// RFC 9110, section 6.4.1: the headers of an answer without a body are those of another one.
#[tokio::test]
async fn an_answer_that_has_no_body_is_not_judged_by_its_headers() {
    for (method, status) in [(Method::HEAD, 200), (Method::GET, 204)] {
        let leaf = answered_by(tool(method), move |_| {
            let answer = Response::builder().status(status);
            let answer = answer
                .header("content-length", "99999999")
                .header("content-encoding", "gzip");
            answer.body(full("")).unwrap()
        });
        let answer = leaf.send(no_arguments()).await.unwrap();
        assert_eq!(answer.into_json(), Value::Null, "{status}");
    }
}

/// H4: what Windows writes before a text.
#[tokio::test]
async fn a_byte_order_mark_is_no_part_of_the_json() {
    let leaf = answered_by(tool(Method::GET), |_| {
        Response::new(full("\u{FEFF}{\"a\": 1}"))
    });
    let answer = leaf.send(no_arguments()).await.unwrap();
    assert_eq!(answer.into_json(), json!({ "a": 1 }));
}

#[tokio::test]
async fn a_header_that_comes_twice_is_written_as_one() {
    let kept = tool(Method::GET).with_kept_header(HeaderName::from_static("x-kept"));
    let leaf = answered_by(kept.unwrap(), |_| {
        let answer = Response::builder()
            .header("x-kept", "a")
            .header("x-kept", "b");
        answer.body(full("1")).unwrap()
    });
    let answer = leaf.send(no_arguments()).await.unwrap();
    assert_eq!(answer.headers().get_all("x-kept").iter().count(), 2);
    let written = serde_json::to_value(&answer).unwrap();
    assert_eq!(written["metadata"], json!({ "x-kept": "a, b" }));
}

/// 20b: a kept header reaches the model, within bounds. The second case is a long one, the third an
/// MCP server's answer.
#[tokio::test]
async fn a_model_reads_the_headers_that_a_tool_keeps() {
    const NEXT: &str = r#"<https://api.example.com/repos?page=2>; rel="next""#;
    for (value, shown) in [
        (NEXT.to_owned(), format!("link: {NEXT}")),
        ("x".repeat(9_000), "[1 of 1 headers left out]".to_owned()),
    ] {
        let kept = tool(Method::GET).with_kept_header(http::header::LINK);
        let leaf = answered_by(kept.unwrap(), move |_| {
            let answer = Response::builder().header("link", &value);
            answer.header("etag", "v7").body(full("[1]")).unwrap()
        });
        let answer = leaf.clone().send(no_arguments()).await.unwrap();
        assert_eq!(answer.model_text(), format!("[1]\n{shown}"));
        let long = answer.model_text().chars().count();
        assert!(answer.fits(long) && !answer.fits(long - 1));
        let mut cut = answer.clone();
        cut.shorten(&Cut::of(60)).unwrap();
        assert!(cut.fits(60), "{}", cut.model_text());

        let answer: McpAnswer = answer.into_answer().unwrap();
        let result = answer.result().unwrap();
        assert_eq!(result.structured_content, Some(json!([1])));
        let texts: Vec<_> = result
            .content
            .iter()
            .map(|block| &*block.as_text().unwrap().text)
            .collect();
        assert_eq!(texts, ["[1]", &*shown]);
    }
}

/// 20b: a model reads neither secrets nor a part of a header, and no character that changes how
/// others look. The last case is a header that a manifest keeps to ask for its job.
#[tokio::test]
async fn a_model_reads_kept_headers_whole_and_without_secrets() {
    let manifest: ToolManifest = serde_json::from_value(json!({
        "name": "export",
        "execution_profile": {
            "method": "GET", "mode": "async_poll", "url_template": "https://h/exports",
            "poll_config": { "pending_statuses": [202], "status_url_header": "Location" },
        },
    }))
    .unwrap();
    let long = "x".repeat(960);
    for (base, headers, shown) in [
        (
            tool(Method::GET),
            [("set-cookie", "sid=c4n4ry"), ("link", "<a>")],
            "\nlink: <a>",
        ),
        (
            tool(Method::GET),
            [
                ("x-auth-token", "c4n4ry"),
                ("x-note", "a\u{202e}b\u{2028}c"),
            ],
            "\nx-note: a b c",
        ),
        (
            tool(Method::GET),
            [
                ("etag", &*long),
                ("link", "<https://api.example.com/?page=2>"),
            ],
            "\nlink: <https://api.example.com/?page=2>\n[1 of 2 headers left out]",
        ),
        (
            manifest.tool().unwrap().clone(),
            [("location", "/exports/c4n4ry"), ("etag", "v7")],
            "\netag: v7",
        ),
    ] {
        let names = headers.iter().map(|(name, _)| *name);
        let kept = names.filter(|name| *name != "location");
        let kept = kept.fold(base, |tool, name| {
            tool.with_kept_header(HeaderName::from_static(name))
                .unwrap()
        });
        let headers = headers.map(|(name, value)| (name, HeaderValue::try_from(value).unwrap()));
        let leaf = answered_by(kept, move |_| {
            let answer = headers
                .iter()
                .fold(Response::builder(), |answer, (name, value)| {
                    answer.header(*name, value)
                });
            answer.body(full("1")).unwrap()
        });
        let answer = leaf.send(no_arguments()).await.unwrap();
        assert_eq!(answer.model_text(), format!("1{shown}"));
        assert_eq!(answer.headers().len(), 2);
    }
}

/// 20b: headers that a cut leaves out are in the whole that is kept, and the model learns its name.
/// The second case is a body that fits without them.
#[tokio::test]
async fn a_cut_keeps_the_headers_in_the_whole() {
    let link = format!("<https://api.example.com/{}>", "x".repeat(200));
    for body in ["x".repeat(900), "[1]".to_owned()] {
        let kept = tool(Method::GET).with_kept_header(http::header::LINK);
        let (full_body, value) = (body.clone(), link.clone());
        let leaf = answered_by(kept.unwrap(), move |_| {
            let answer = Response::builder().header("link", &value);
            answer.body(full(full_body.clone())).unwrap()
        });
        let expected = format!("{body}\nlink: {link}");
        let layer = FitLayer::new(200).with_keep(move |_, whole| {
            assert_eq!(whole, expected);
            Some("a.txt".to_owned())
        });
        let stack = ServiceBuilder::new().layer(layer).service(leaf);
        let answer = stack.oneshot(call(no_arguments())).await.unwrap();
        let text = answer.model_text();
        let note = "[1 of 1 headers left out; ask for less, or read the whole as a.txt]";
        assert!(text.contains(note) && answer.fits(200), "{text}");
    }
}

/// 300 and 304 send nobody elsewhere.
#[tokio::test]
async fn only_a_redirect_is_called_one() {
    for (status, text) in [
        (300, "HTTP 300 Multiple Choices"),
        (304, "HTTP 304 Not Modified"),
        (307, "the server redirects, which is not followed"),
    ] {
        let leaf = answered_by(tool(Method::GET), move |_| answer(status, ""));
        let error = leaf.send(no_arguments()).await.unwrap_err();
        assert_eq!(error.message(), text);
    }
}

/// R6: what lets a POST run again is a header, and no words.
#[tokio::test]
async fn only_retry_after_says_that_a_503_has_not_started() {
    for (header, value, body, execution) in [
        ("retry-after", "7", "", Execution::NotStarted),
        ("retry-after-ms", "7000", "", Execution::NotStarted),
        ("x-ratelimit-reset", "7", "", Execution::Unknown),
        ("x-other", "7", r#"{"retry_after": 7}"#, Execution::Unknown),
        (
            "retry-after",
            "soon",
            r#"{"retry_after": 7}"#,
            Execution::Unknown,
        ),
    ] {
        let leaf = answered_by(tool(Method::POST), move |_| {
            let mut answer = answer(503, body);
            answer.headers_mut().insert(header, value.parse().unwrap());
            answer
        });
        let error = leaf.send(no_arguments()).await.unwrap_err();
        assert_eq!(error.execution(), execution, "{header}: {value}, {body}");
        assert_eq!(
            error.retry_after(),
            Some(Duration::from_secs(7)),
            "{header}"
        );
    }
}

/// H4: the part of the answer that is the result.
#[tokio::test]
async fn a_result_is_taken_out_of_the_answer() {
    for path in ["$.data.items[*].id", "data.items[0].id"] {
        let tool = tool(Method::GET).with_result(path).unwrap();
        let leaf = answered_by(tool, |_| {
            answer(200, r#"{"data": {"items": [{"id": 7}, {"id": 8}]}}"#)
        });
        let answer = leaf.send(no_arguments()).await.unwrap();
        assert_eq!(serde_json::to_value(&answer).unwrap()["result"], json!(7));
        assert_eq!(answer.into_json(), json!(7));
    }
}

/// H4: the tool ran; what it said is kept.
#[tokio::test]
async fn an_answer_without_the_result_is_reported_and_kept() {
    for (body, kept) in [
        (r#"{"detail": "none"}"#, json!({ "detail": "none" })),
        ("none", json!("none")),
        ("", Value::Null),
    ] {
        let tool = tool(Method::GET).with_result("data").unwrap();
        let leaf = answered_by(tool, move |_| answer(200, body));
        let error = leaf.send(no_arguments()).await.unwrap_err();
        assert_eq!(error.message(), "the answer has nothing at `$.data`");
        assert_eq!(
            (error.kind(), error.execution()),
            (ErrorKind::Reported, Execution::Completed)
        );
        let answer = HttpAnswer::of_error(&error).unwrap();
        assert_eq!(answer.clone().into_json(), kept);
    }
}

/// H4: an error's body has another form.
#[tokio::test]
async fn a_result_is_not_looked_for_in_an_error() {
    let tool = tool(Method::GET).with_result("data").unwrap();
    let leaf = answered_by(tool, |_| answer(404, r#"{"data": 1}"#));
    let error = leaf.send(no_arguments()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let kept = HttpAnswer::of_error(&error).unwrap().clone();
    assert_eq!(kept.into_json(), json!({ "data": 1 }));
}

/// The tool ran and would run twice. Too large, compressed, and without the result.
#[tokio::test]
async fn a_model_reads_that_a_tool_ran_whose_answer_cannot_be_used() {
    let mut texts = String::new();
    for (tool, encoding) in [
        (
            tool(Method::POST).with_max_bytes(1_000).unwrap(),
            "identity",
        ),
        (tool(Method::POST), "gzip"),
        (tool(Method::POST).with_result("data").unwrap(), "identity"),
    ] {
        let leaf = answered_by(tool, move |_| {
            let answer = Response::builder().header("content-encoding", encoding);
            answer.body(full(vec![b'1'; 1_001])).unwrap()
        });
        let error = leaf.send(no_arguments()).await.unwrap_err();
        assert_eq!(error.execution(), Execution::Completed, "{error}");
        assert!(!error.is_retryable(), "{error}");
        texts += &format!("{}\n", error.model_message());
    }
    expect![[r#"
        Tool 'order' ran; its answer is unusable: the answer has more than 1000 bytes. Do not repeat it if it changes something.
        Tool 'order' ran; its answer is unusable: the answer is compressed, which was not asked for. Do not repeat it if it changes something.
        Tool 'order' ran; its answer is unusable: the answer has nothing at `$.data`. Do not repeat it if it changes something.
    "#]]
    .assert_eq(&texts);
}

/// A status of 5xx, as a lost connection, does not say that nothing has happened. A 503 with
/// `Retry-After` does.
#[tokio::test]
async fn a_model_reads_that_a_call_may_have_run_whose_server_failed() {
    for (status, header, may_have_run) in [
        (500, "x-request-id: 7", true),
        (507, "x-request-id: 7", true),
        (503, "x-request-id: 7", true),
        (503, "retry-after: 7", false),
    ] {
        let error = refused_with(status, header, "").await;
        let text = error.model_message();
        assert_eq!(text.contains("may have run"), may_have_run, "{text}");
        assert_eq!(text.contains("another tool"), !may_have_run, "{text}");
    }
}

/// What APIs write of their errors is read, and not the JSON around it. The last ones have
/// nothing to read.
#[tokio::test]
async fn a_model_reads_the_reason_in_a_body() {
    let mut texts = String::new();
    for (status, body) in [
        (
            404,
            r#"{"error": {"code": "no_such_item", "docs": "https://api.example.com/docs", "message": "Item 9 was deleted; items 10 to 12 exist"}}"#,
        ),
        (
            422,
            r#"{"type": "https://example.com/probs/out-of-credit", "title": "Out of credit.", "detail": "Your balance is 30, and this costs 50."}"#,
        ),
        (
            410,
            r#"{"type": "about:blank", "title": "Gone", "status": 410}"#,
        ),
        (
            400,
            r#"{"errorMessages": ["The value 'X' does not exist for the field 'project'."], "errors": {}}"#,
        ),
        (
            422,
            r#"{"detail": [{"loc": ["body", "city"], "msg": "field required", "type": "value_error"}]}"#,
        ),
        (
            404,
            r#"{"errors": [{"status": "404", "title": "Not Found", "detail": "no order 7"}]}"#,
        ),
        (
            422,
            r#"{"message": "Validation Failed", "errors": [{"resource": "Issue", "field": "title"}]}"#,
        ),
        (404, r#"{"errors": [{"message": "no \"order\"\n7"}]}"#),
        (409, r#"{"ok": false, "error": "already_archived"}"#),
        (500, r#"{"message": "the ledger is locked"}"#),
        (404, r#"{"id": 7, "message": {"en": "no"}}"#),
        (502, "<html><body>Bad Gateway</body></html>"),
    ] {
        let error = refused_with(status, "x-request-id: 7", body).await;
        texts += &format!("{}\n", error.model_message());
    }
    expect![[r#"
        Tool 'order' did not find what it was asked for: HTTP 404 Not Found: Item 9 was deleted; items 10 to 12 exist. Check the arguments, or continue without it.
        Tool 'order' refused its arguments: HTTP 422 Unprocessable Entity: Your balance is 30, and this costs 50. Correct them and call it again.
        Tool 'order' did not find what it was asked for: HTTP 410 Gone: Gone. Check the arguments, or continue without it.
        Tool 'order' refused its arguments: HTTP 400 Bad Request: The value 'X' does not exist for the field 'project'. Correct them and call it again.
        Tool 'order' refused its arguments: HTTP 422 Unprocessable Entity: {"detail":[{"loc":["body","city"],"msg":"field required","type":"value_error"}]}. Correct them and call it again.
        Tool 'order' did not find what it was asked for: HTTP 404 Not Found: no order 7. Check the arguments, or continue without it.
        Tool 'order' refused its arguments: HTTP 422 Unprocessable Entity: Validation Failed: [{"field":"title","resource":"Issue"}]. Correct them and call it again.
        Tool 'order' did not find what it was asked for: HTTP 404 Not Found: no "order" 7. Check the arguments, or continue without it.
        Tool 'order' failed: HTTP 409 Conflict: already_archived. Do not repeat the same call; change it or continue without it.
        The service behind tool 'order' failed: HTTP 500 Internal Server Error: the ledger is locked. It may have run: repeat it only if it may run twice, or continue without it.
        Tool 'order' did not find what it was asked for: HTTP 404 Not Found: {"id":7,"message":{"en":"no"}}. Check the arguments, or continue without it.
        The service behind tool 'order' failed: HTTP 502 Bad Gateway. It may have run: repeat it only if it may run twice, or continue without it.
    "#]]
    .assert_eq(&texts);
}
