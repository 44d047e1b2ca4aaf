//! Requests that a page of a foreign site has a browser send.

use http_body_util::Empty;
use hyper::{Request, body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reqwest::Method;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tower_toolcall::settings::Settings;

use crate::kit::{Running, beside, demo};

const ROUTES: [(Method, &str); 9] = [
    (Method::GET, "/health"),
    (Method::GET, "/metrics"),
    (Method::POST, "/rpc"),
    (Method::POST, "/tools/count_words/call"),
    (Method::POST, "/servers/time/tools/get_current_time/call"),
    (Method::POST, "/mcp"),
    (Method::GET, "/mcp"),
    (Method::DELETE, "/mcp"),
    (Method::GET, "/nothing"),
];

async fn start(hosts: &[&str]) -> Running {
    let mut gateway = demo(Settings::gateway()).await;
    let hosts = hosts.iter().map(|&host| host.to_owned());
    gateway.options.hosts.extend(hosts);
    Running::serve(gateway).await
}

/// The status of a request with these headers to each route.
async fn statuses(gateway: &Running, headers: &[(&str, &str)]) -> Vec<u16> {
    let client = reqwest::Client::new();
    let mut statuses = Vec::new();
    for (method, path) in ROUTES {
        let mut request = client.request(method, gateway.url(path)).body("{}");
        request = request.header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        for &(name, value) in headers {
            request = request.header(name, value);
        }
        statuses.push(request.send().await.unwrap().status().as_u16());
    }
    statuses
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#security--endpoint
//# Servers MUST validate the `Origin` header on all incoming connections to prevent DNS rebinding
//# attacks.
//# If the `Origin` header is present and invalid, servers MUST respond with HTTP 403 Forbidden.
/// W14: no route answers under a foreign name (DNS rebinding), nor a foreign page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_hosts_and_origins_are_refused_on_every_route() {
    let _beside = beside().await;
    let gateway = start(&["gateway.example"]).await;
    let port = gateway.at.port();
    let with_port = |host: &str| format!("{host}:{port}");
    for host in [
        "evil.example",
        &with_port("evil.example"),
        &with_port("127.0.0.1.evil.example"),
        "10.0.0.7",
        "",
        "a b",
    ] {
        let statuses = statuses(&gateway, &[("host", host)]).await;
        assert_eq!(statuses, [403; 9], "{host:?}");
    }
    for origin in [
        "http://evil.example",
        &format!("http://evil.example:{port}"),
        "https://localhost.evil.example",
        "http://localhost@evil.example",
        "null",
        "",
        "file://",
    ] {
        let statuses = statuses(&gateway, &[("origin", origin)]).await;
        assert_eq!(statuses, [403; 9], "{origin:?}");
    }
    let local = format!("http://localhost:{port}");
    for own in [
        &[][..],
        &[("host", "LOCALHOST")],
        &[("host", "[::1]:80")],
        &[("origin", &local)],
        &[("host", "gateway.example")],
        &[("origin", "https://gateway.example")],
    ] {
        let statuses = statuses(&gateway, own).await;
        assert!(!statuses.contains(&403), "{own:?} {statuses:?}");
        assert_eq!(statuses[..2], [200, 200], "{own:?}");
    }
    gateway.stopped().await;
}

/// W14: HTTP/1.0 needs no `Host`, and HTTP/2 has it elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_is_looked_for_in_every_version_of_http() {
    let _beside = beside().await;
    let gateway = start(&[]).await;
    for (head, status) in [
        ("GET /metrics HTTP/1.0\r\n", "403"),
        ("GET /metrics HTTP/1.0\r\nhost: localhost\r\n", "200"),
        (
            "GET http://evil.example/metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n",
            "403",
        ),
        (
            "GET /metrics HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\nconnection: close\r\n",
            "403",
        ),
    ] {
        let mut wire = TcpStream::connect(gateway.at).await.unwrap();
        wire.write_all(format!("{head}\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = Vec::new();
        wire.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        let got = answer.split(' ').nth(1).unwrap();
        assert_eq!(got, status, "{head} {answer}");
    }
    let wire = TokioIo::new(TcpStream::connect(gateway.at).await.unwrap());
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), wire).await.unwrap();
    tokio::spawn(connection);
    for (host, status) in [("evil.example", 403), ("localhost", 200)] {
        let request = Request::get(format!("http://{host}/metrics"));
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let answer = client.send_request(request).await.unwrap();
        assert_eq!(answer.status(), status, "{host}");
    }
    drop(client);
    gateway.stopped().await;
}
