//! A REST API as tools: orders, deliveries that take a while, hostile arguments, a rate limit, and
//! the death of the server.
//!
//! ```text
//! cargo run -p tower-toolcall-http --features reqwest --example http_tool
//! ```
//!
//! The API is in this program, on a free port of the loopback interface. Each line begins with the
//! seconds so far: a call, the requests that the server sees of it, each with its answer, and the
//! call's result; or its error, whether the tool has run, and what the model would read.

use std::{
    fmt::Display,
    mem::replace,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{Method, StatusCode, Uri, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    serve::ListenerExt as _,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime, task::spawn_blocking, time::Instant};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    BoxError, ModelText, ServiceBuilderExt, ToolCall, ToolError, backoff::Backoff, poll::PollLayer,
    retry::RetryPolicy,
};
use tower_toolcall_http::{HttpAnswer, HttpJob, HttpTool, ReqwestClient};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let api = Shared::default();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let shop = format!("http://{}", listener.local_addr()?) + "/shops/{{ shop }}";
    let app = Router::new().fallback(serve).with_state(Arc::clone(&api));
    // A runtime of its own, to be killed with all its connections.
    let server = Runtime::new()?;
    server.spawn(async {
        axum::serve(listener.tap_io(|tcp| drop(tcp.set_nodelay(true))), app).await
    });

    // What is sent: templates of requests.
    let order = HttpTool::new(Method::POST, format!("{shop}/orders"))?
        .with_body(r#"{"pizza": "{{ pizza }}", "quantity": {{ quantity | default(1) }}}"#)?;
    let deliver = HttpTool::new(Method::POST, format!("{shop}/deliveries"))?;
    let status = shop + "/deliveries/{{ delivery }}";
    let job = HttpTool::new(Method::GET, status)?;
    let job = HttpJob::new(job, "$.state", ["delivered"], ["lost"])?
        .with_value("delivery", "$.id")?
        .with_result("$.report.text")?;

    // The stacks, from the outside in. Both have the same layers around single requests.
    let requests = ServiceBuilder::new()
        .tool_retry(RetryPolicy::new().with_backoff(Backoff::fixed(ms(200))?))
        .tool_rate_limit()
        .tool_circuit_breaker()
        .tool_timeout(ms(2_000))
        .into_inner();
    let client = ReqwestClient::new()?;
    let order = ServiceBuilder::new()
        .tool_deadline(ms(10_000))
        .layer(requests.clone())
        .tool(order.client(client.clone()));
    let deliver = ServiceBuilder::new()
        .tool_deadline(ms(60_000))
        .layer(PollLayer::new(job).with_interval(Backoff::fixed(ms(500))?)?)
        .layer(requests)
        .tool(deliver.client(client));

    println!("1  an order");
    send(&order, pizza("no 1", "Diavola")?).await?;

    println!("\n2  hostile arguments: refused before anything is sent, or harmless");
    for shop in ["../admin", "1?x=/", "1?x=y"] {
        let _ = send(&order, pizza(shop, "Diavola")?).await;
    }
    send(&order, pizza("1", r#"", "price": 0, "x": ""#)?).await?;

    println!("\n3  a delivery: the server answers with a job, the call with the job's result");
    let delivery = ToolCall::new("deliver").with_json(json!({ "shop": "1" }))?;
    send(&deliver, delivery.clone()).await?;

    println!("\n4  a rate limit (Retry-After: 1): the call waits once, and is sent again");
    send(&order, pizza("busy", "Diavola")?).await?;

    // The wait ends a second earlier: half of it is the deadline layer's reserve, half is for the
    // last poll.
    println!("\n5  a delivery that has to be done in 3 s: it is not, and is waited for later");
    let hurried = delivery.clone().with_deadline(Instant::now() + ms(3_000));
    let error = send(&deliver, hurried).await.err();
    let job = error.as_ref().and_then(ToolError::job).ok_or("no job")?;
    say("job", serde_json::to_string(job)?);
    send(&deliver, delivery.with_job(job.clone())).await?;
    let started = lock(&api).deliveries.len();
    say("server", format!("started in 3 and 5: {started}"));

    println!("\n6  the server is killed: after 5 requests the breaker opens, and none is sent");
    spawn_blocking(|| drop(server)).await?;
    for _ in 0..3 {
        let _ = send(&order, pizza("1", "Diavola")?).await;
    }
    Ok(())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn pizza(shop: &str, pizza: &str) -> Result<ToolCall, ToolError> {
    ToolCall::new("order").with_json(json!({ "shop": shop, "pizza": pizza }))
}

/// Shows a call and its end.
async fn send<S>(tool: &S, call: ToolCall) -> Result<(), ToolError>
where
    S: Service<ToolCall, Response = HttpAnswer, Error = ToolError> + Clone,
{
    let job = call.job().map_or("", |_| ", with the job");
    let (name, arguments) = (call.tool(), call.sanitized());
    say("call", format!("{name} {arguments}{job}"));
    let result = tool.clone().oneshot(call).await;
    match &result {
        Ok(answer) => say("result", answer.model_text()),
        Err(error) => {
            let attempts = error.attempts().map(|n| format!(", attempts: {n}"));
            say("error", error);
            let ran = error.execution();
            say("tool", format!("{ran:?}{}", attempts.unwrap_or_default()));
            say("model", error.model_message());
        }
    }
    result.map(drop)
}

fn say(who: &str, what: impl Display) {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let seconds = BEGIN.elapsed().as_secs_f64();
    println!("{seconds:>6.2}  {who:6}  {what}");
}

/// The API: a delivery takes 4 s, and the shop `busy` refuses its first request.
#[derive(Default)]
struct Api {
    deliveries: Vec<Instant>,
    was_busy: bool,
}

type Shared = Arc<Mutex<Api>>;

fn lock(api: &Shared) -> MutexGuard<'_, Api> {
    api.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(State(api): State<Shared>, method: Method, uri: Uri, body: String) -> Response {
    let (status, answer) = lock(&api).answer(method.as_str(), uri.path(), &body);
    let body = if body.is_empty() {
        body
    } else {
        format!(" {body}")
    };
    say(
        "server",
        format!("{method} {uri}{body} -> {status} {answer}"),
    );
    match StatusCode::from_u16(status).unwrap_or_default() {
        busy @ StatusCode::TOO_MANY_REQUESTS => (busy, [(RETRY_AFTER, "1")]).into_response(),
        status => (status, Json(answer)).into_response(),
    }
}

impl Api {
    fn answer(&mut self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let path: Vec<&str> = path.split('/').skip(1).collect();
        match (method, &path[..]) {
            ("POST", ["shops", "busy", _]) if !replace(&mut self.was_busy, true) => {
                (429, json!("not now"))
            }
            ("POST", ["shops", _, "orders"]) => {
                let order: Value = serde_json::from_str(body).unwrap_or_default();
                let price = order["price"].as_u64().unwrap_or(9);
                (201, json!({ "pizza": order["pizza"], "price": price }))
            }
            ("POST", ["shops", _, "deliveries"]) => {
                self.deliveries.push(Instant::now());
                let id = self.deliveries.len() - 1;
                (202, json!({ "id": id, "state": "running" }))
            }
            ("GET", ["shops", _, "deliveries", id]) => {
                let begun = id.parse().map(|id: usize| self.deliveries.get(id));
                match begun.ok().flatten().map(Instant::elapsed) {
                    None => (404, json!("no such delivery")),
                    Some(time) if time < ms(4_000) => (200, json!({ "state": "running" })),
                    Some(_) => {
                        let report = json!({ "text": "warm, at the door" });
                        (200, json!({ "state": "delivered", "report": report }))
                    }
                }
            }
            _ => (404, json!("no such path")),
        }
    }
}
