//! A real rmcp server over streamable HTTP, and statuses in its way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::Request,
    http::{HeaderName, StatusCode},
    middleware::{self, Next},
    response::IntoResponse,
};
use expect_test::expect;
use rmcp::{
    ClientServiceExt as _, ServiceExt as _,
    transport::{
        StreamableHttpClientTransport, StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use tokio::{net::TcpListener, task::AbortHandle};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, Evidence, Execution, ModelText as _, ToolCall, ToolError, timeout::TimeoutLayer,
};
use tower_toolcall_mcp::{McpAnswer, McpReconnect, McpServer, McpService};

use crate::server::{Client, Server, modern};

struct Running {
    url: String,
    /// While it is not zero, every request is answered with this status.
    status: Arc<AtomicU16>,
    server: Server,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve() -> Running {
    serve_refusing_with("no").await
}

async fn serve_refusing_with(body: &'static str) -> Running {
    let server = Server::default();
    let factory = server.clone();
    let mcp = StreamableHttpService::new(
        move || Ok(factory.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let status = Arc::new(AtomicU16::new(0));
    let forced = status.clone();
    let fail = move |request: Request, next: Next| {
        let status = StatusCode::from_u16(forced.load(SeqCst));
        async move {
            match status {
                Ok(status) if status != StatusCode::OK => {
                    let header = [(HeaderName::from_static("retry-after"), "7")];
                    (status, header, body).into_response()
                }
                _ => next.run(request).await,
            }
        }
    };
    let app = Router::new()
        .nest_service("/s3cr3t-canary/mcp", mcp)
        .layer(middleware::from_fn(fail));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "http://{}/s3cr3t-canary/mcp",
        listener.local_addr().unwrap()
    );
    let task =
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }).abort_handle();
    Running {
        url,
        status,
        server,
        task,
    }
}

type Stack = tower::util::BoxCloneSyncService<ToolCall, McpAnswer, ToolError>;

fn stack(client: &Client<()>) -> Stack {
    Stack::new(
        ServiceBuilder::new()
            .layer(TimeoutLayer::new(Duration::from_secs(5)))
            .service(McpService::new(client.peer().clone())),
    )
}

async fn client(url: &str) -> Client<()> {
    let transport = StreamableHttpClientTransport::from_uri(url);
    ().serve_with_lifecycle(transport, modern()).await.unwrap()
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server
//# The client MUST use HTTP POST to send JSON-RPC messages to the MCP endpoint.
//# The body of the POST request MUST be a single JSON-RPC request, notification, or response.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#sending-messages
//# Every JSON-RPC message sent from the client MUST be a new HTTP POST request to the MCP endpoint.
//# The client MUST use HTTP POST to send JSON-RPC messages.
//# The body of the HTTP POST MUST be a single JSON-RPC request or notification.
#[tokio::test]
async fn calls_go_over_http() {
    let running = serve().await;
    let client = client(&running.url).await;
    let response = stack(&client).oneshot(ToolCall::new("echo")).await.unwrap();
    assert_eq!(response.model_text(), "{}");
}

/// H-1: rmcp keeps the body of a 403, and none of its headers.
#[tokio::test]
async fn a_403_whose_body_names_a_limit_is_a_rate_limit() {
    for (body, kind, evidence) in [
        (
            r#"{"error": {"errors": [{"reason": "rateLimitExceeded"}]}}"#,
            ErrorKind::RateLimited,
            Evidence::Reported,
        ),
        (
            "API rate limit exceeded for installation",
            ErrorKind::RateLimited,
            Evidence::Inferred,
        ),
        ("not for you", ErrorKind::Denied, Evidence::Reported),
    ] {
        let running = serve_refusing_with(body).await;
        let client = client(&running.url).await;
        running.status.store(403, SeqCst);
        let error = stack(&client).oneshot(ToolCall::new("echo")).await;
        let error = error.unwrap_err();
        assert_eq!(
            (error.kind(), error.evidence()),
            (kind, evidence),
            "{error}"
        );
    }
}

/// E2: HTTP statuses by type, with `Retry-After`; the same client goes on afterwards.
#[tokio::test]
async fn http_statuses_are_recognised_with_their_delay() {
    let running = serve().await;
    let client = client(&running.url).await;
    let mut stack = stack(&client);
    for (status, kind, execution) in [
        (429, ErrorKind::RateLimited, Execution::NotStarted),
        (503, ErrorKind::Upstream, Execution::NotStarted),
        (400, ErrorKind::InvalidInput, Execution::NotStarted),
        (403, ErrorKind::Denied, Execution::NotStarted),
        (404, ErrorKind::NotFound, Execution::NotStarted),
        (408, ErrorKind::Timeout, Execution::Unknown),
    ] {
        running.status.store(status, SeqCst);
        let call = stack.ready().await.unwrap().call(ToolCall::new("echo"));
        let error = call.await.unwrap_err();
        assert_eq!(
            (error.kind(), error.execution()),
            (kind, execution),
            "{status}"
        );
        assert_eq!(error.status().unwrap().as_u16(), status);
        if status == 429 || status == 503 {
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        }
    }
    running.status.store(200, SeqCst);
    assert!(stack.oneshot(ToolCall::new("echo")).await.is_ok());
    assert_eq!(running.server.started.load(SeqCst), 1);
}

/// R6: a server that cannot be reached has not run the tool.
#[tokio::test]
async fn a_server_that_is_gone_has_not_started_the_call() {
    let running = serve().await;
    let client = client(&running.url).await;
    let stack = stack(&client);
    stack.clone().oneshot(ToolCall::new("echo")).await.unwrap();
    // The old connection may serve one call more; then nobody listens.
    drop(running);
    let mut last = None;
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let error = stack.clone().oneshot(ToolCall::new("echo")).await.err();
        let settled = error
            .as_ref()
            .is_some_and(|e| e.execution() == Execution::NotStarted);
        last = error;
        if settled {
            break;
        }
    }
    let error = last.expect("the server is gone");
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(error.execution(), Execution::NotStarted);
    // An address may be a secret as a whole: here, and where a tool of the user's own met the
    // error.
    assert!(!error.to_string().contains("s3cr3t-canary"), "{error}");
    let params = rmcp::model::CallToolRequestParams::new("echo");
    let raw = client.peer().call_tool_once(params).await.unwrap_err();
    let error = ToolError::from_box(anyhow::Error::from(raw).context("asking the docs").into());
    assert!(error.message().starts_with("asking the docs"), "{error}");
    assert!(!error.to_string().contains("s3cr3t-canary"), "{error}");
}

/// E2: reqwest's own errors, for tools that call HTTP themselves.
#[tokio::test]
async fn reqwests_errors_are_recognised_by_type() {
    let refused = reqwest::get("http://127.0.0.1:1/s/s3cr3t-canary/mcp")
        .await
        .unwrap_err();
    let error = ToolError::from_box(refused.into());
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    // It might have followed a redirect.
    assert_eq!(error.execution(), Execution::Unknown);
    // The cause is told, the address is not.
    assert!(!error.to_string().contains("s3cr3t-canary"), "{error}");
    assert!(error.message().contains("refused"), "{error}");

    let running = serve().await;
    running.status.store(429, SeqCst);
    let response = reqwest::get(&running.url).await.unwrap();
    let error = ToolError::from_box(response.error_for_status().unwrap_err().into());
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.status().unwrap().as_u16(), 429);
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server
//# To cancel, the client SHOULD explicitly send an MCP `CancelledNotification`.
/// T4: over HTTP too a dropped call is seen at the server.
#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    for modern_revision in [true, false] {
        let running = serve().await;
        let transport = StreamableHttpClientTransport::from_uri(running.url.as_str());
        let client: Client<()> = if modern_revision {
            ().serve_with_lifecycle(transport, modern()).await.unwrap()
        } else {
            ().serve(transport).await.unwrap()
        };
        let leaf = McpService::new(client.peer().clone());
        let stack = ServiceBuilder::new()
            .layer(TimeoutLayer::new(Duration::from_millis(200)))
            .service(leaf);
        let error = stack.oneshot(ToolCall::new("hang")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let told = running.server.on_cancel.notified();
        let told = tokio::time::timeout(Duration::from_secs(60), told).await;
        told.expect("the server was not told");
    }
}

/// X8, E2, S2: what rmcp says of an attempt to connect has no sources that one could walk.
#[tokio::test]
async fn an_attempt_to_connect_fails_with_its_status_and_without_the_address() {
    let running = serve().await;
    let url = running.url.clone();
    for is_modern in [true, false] {
        let connect = |url: &str| {
            let url = url.to_owned();
            McpReconnect::new("web", move || {
                let transport = StreamableHttpClientTransport::from_uri(url.as_str());
                async move {
                    if is_modern {
                        ().serve_with_lifecycle(transport, modern()).await
                    } else {
                        ().serve(transport).await
                    }
                }
            })
        };
        for (status, kind, seconds) in [
            (429, ErrorKind::RateLimited, Some(7)),
            (403, ErrorKind::Denied, None),
            (503, ErrorKind::ConnectionFailed, Some(7)),
        ] {
            running.status.store(status, SeqCst);
            let error = connect(&url).connect().await.unwrap_err();
            assert_eq!(
                (error.kind(), error.execution()),
                (kind, Execution::NotStarted),
                "{error}"
            );
            let wait = error.retry_after().unwrap();
            assert_eq!(
                wait > Duration::from_secs(1),
                seconds.is_some(),
                "{status}: {wait:?}"
            );
        }
        let gone = "http://127.0.0.1:1/s3cr3t-canary/mcp";
        let error = connect(gone).connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
        assert!(
            !format!("{error} {error:?}").contains("s3cr3t-canary"),
            "{error}"
        );
        assert!(error.message().contains("127.0.0.1"), "{error}");
    }
}

/// 20b: an operator reads why, and no type of rmcp's. The second case is a server that answers
/// something else.
#[cfg(unix)]
#[tokio::test]
async fn an_attempt_to_connect_fails_in_plain_words() {
    let sh = |script: String| McpServer::command("docs", "sh", ["-c", &script]);
    // Answers each request like this.
    let says = |answer: &str| {
        sh(format!(
            r#"while read -r line; do
                id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
                echo '{{"jsonrpc":"2.0","id":'$id',{answer}}}'
            done"#
        ))
    };
    let (mut texts, mut models) = (String::new(), Vec::new());
    for server in [
        McpServer::http("docs", "http://127.0.0.1:1/mcp"),
        McpServer::command("docs", "no-such-program", ["x"]),
        sh("read -r line; exit 3".to_owned()),
        says(r#""result":{"tools":[]}"#),
        says(r#""error":{"code":-32603,"message":"no database"}"#),
    ] {
        let error = server.connect().await.unwrap_err();
        texts += &format!("{}\n", error.message());
        models.push(error.model_message());
        server.close().await;
    }
    expect![[r#"
        cannot connect to the MCP server `docs`: error sending request to 127.0.0.1: client error (Connect): tcp connect error: Connection refused (os error 111)
        cannot connect to the MCP server `docs`: cannot start `no-such-program`: No such file or directory (os error 2)
        cannot connect to the MCP server `docs`: `sh` has ended with exit status: 3
        cannot connect to the MCP server `docs`: the server has not answered the handshake with its result
        cannot connect to the MCP server `docs`: the server answered with error -32603: no database
    "#]]
    .assert_eq(&texts);
    // No call was made, so no tool has failed.
    for text in models {
        assert!(text.starts_with("Server 'docs' "), "{text}");
    }
}

/// 20b: a program that ends before it is written to, as with a wrong flag. This thread is busy
/// until then.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "it keeps the thread busy")]
#[tokio::test]
async fn how_a_process_has_ended_is_known_if_it_never_read() {
    let server = McpServer::command("docs", "sh", ["-c", "exit 3"]);
    let busy = async {
        loop {
            std::thread::sleep(Duration::from_millis(300));
            tokio::task::yield_now().await;
        }
    };
    let error = tokio::select! {
        biased;
        ended = server.connect() => ended.unwrap_err(),
        () = busy => unreachable!(),
    };
    let message = error.message();
    assert!(
        message.ends_with("`sh` has ended with exit status: 3"),
        "{message}"
    );
}
