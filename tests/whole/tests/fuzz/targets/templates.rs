//! Whatever a template and its arguments are, a request goes to the tool's host, has no more
//! headers than the tool, and a JSON body; and a value that stands in a template of ours is read
//! back as it was.
//!
//! The input is a template, a byte 0, and JSON: the argument `a`.
use std::{
    convert::Infallible,
    future::{Future, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn};
use tower_toolcall::ToolCall;
use tower_toolcall_http::HttpTool;

const HOST: &str = "https://api.pizzeria.com";

pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (template, argument) = text.split_once('\0').unwrap_or((&text, "null"));
    let argument: Value = match serde_json::from_str(argument) {
        Ok(argument) => argument,
        Err(_) => json!(argument),
    };
    let post = || HttpTool::new(Method::POST, HOST);
    // Whatever the template is.
    if let Ok(tool) = post().and_then(|tool| tool.with_body(template)) {
        send(tool, &argument, |request| {
            let _: Value = serde_json::from_slice(request.body()).unwrap();
        });
    }
    if let Ok(tool) = HttpTool::new(Method::GET, format!("{HOST}/{template}")) {
        send(tool, &argument, |_| {});
    }
    if let Ok(tool) = post().and_then(|tool| tool.with_header("x-test", template)) {
        send(tool, &argument, |request| {
            assert!(request.headers().len() <= 1)
        });
    }
    // Whatever the value is.
    let tool =
        post().and_then(|tool| tool.with_body(r#"{"a": {{ a }}, "b": ["{{ a | tojson }}"]}"#));
    let meant = argument.clone();
    send(tool.unwrap(), &argument, move |request| {
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        let text = body["b"][0].as_str().unwrap();
        let inner: Value = serde_json::from_str(text).unwrap();
        assert_eq!((&body["a"], &inner), (&meant, &meant));
        assert_eq!(body.as_object().unwrap().len(), 2);
    });
}

/// Renders a request, if it is one, and looks at it.
fn send(tool: HttpTool, argument: &Value, look: impl Fn(&Request<Bytes>) + Clone + Send + 'static) {
    let client = service_fn(move |request: Request<Bytes>| {
        let uri = request.uri();
        assert_eq!(format!("https://{}", uri.authority().unwrap()), HOST);
        look(&request);
        ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    let call = ToolCall::new("order").with_json(json!({ "a": argument }));
    let mut answer = pin!(tool.client(client).oneshot(call.unwrap()));
    match answer
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(answer) => drop(answer),
        Poll::Pending => panic!("waits for nothing"),
    }
}
