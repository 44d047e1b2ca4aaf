//! Jobs of HTTP tools below what their requests need: a token, and a stack that bounds each of
//! them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use serde_json::json;
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{ToolCall, event::BreakerState, poll::PollLayer, settings::Settings};
use tower_toolcall_http::{HttpJob, HttpTool};
use tower_toolcall_test::Events;

use super::kit::{Provider, SECOND, call};

type Client = BoxCloneSyncService<Request<Bytes>, Response<Full<Bytes>>, std::io::Error>;

const AT: &str = "https://api.pizzeria.com/deliveries";

/// A delivery that takes this long, and hears each request with the seconds since the first.
fn deliveries(
    takes: Duration,
    hear: impl Fn(&Request<Bytes>, u64) + Send + Sync + 'static,
) -> Client {
    let (begun, hear) = (Instant::now(), Arc::new(hear));
    Client::new(service_fn(move |request: Request<Bytes>| {
        hear(&request, begun.elapsed().as_secs());
        let state = match begun.elapsed() < takes {
            true => "baking",
            false => "delivered",
        };
        let body = json!({ "id": 7, "state": state }).to_string();
        std::future::ready(Ok(Response::new(Full::from(body))))
    }))
}

fn tool() -> HttpTool {
    let tool = HttpTool::new(Method::POST, AT).unwrap();
    tool.with_header("Authorization", "Bearer {{ upstream_token }}")
        .unwrap()
}

fn job() -> HttpJob {
    let status = HttpTool::new(Method::GET, format!("{AT}/{{{{ id }}}}"))
        .and_then(|tool| tool.with_header("Authorization", "Bearer {{ upstream_token }}"));
    let job = HttpJob::new(status.unwrap(), "$.state", ["delivered"], ["lost"]).unwrap();
    job.with_value("id", "$.id").unwrap()
}

/// E.6.9: 15 minutes with tokens of 5: each is used for its own time, and the job is started once.
#[tokio::test(start_paused = true)]
async fn a_job_that_outlives_its_token_goes_on_with_another() {
    let starts = Arc::new(AtomicUsize::new(0));
    let uses = Arc::new(Mutex::new(BTreeMap::<String, Vec<u64>>::new()));
    let (started, used) = (Arc::clone(&starts), Arc::clone(&uses));
    let client = deliveries(900 * SECOND, move |request, at| {
        started.fetch_add(usize::from(request.method() == Method::POST), SeqCst);
        let token = request.headers()["authorization"].to_str().unwrap();
        used.lock()
            .unwrap()
            .entry(token.to_owned())
            .or_default()
            .push(at);
    });
    let provider = Provider::default();
    let stack = ServiceBuilder::new()
        .layer(PollLayer::new(job()))
        .layer(provider.layer())
        .service(tool().client::<_, Bytes>(client));
    let answer = stack.oneshot(call("alice")).await.unwrap();
    assert_eq!(answer.into_json()["state"], "delivered");
    assert_eq!(starts.load(SeqCst), 1);
    let uses = uses.lock().unwrap();
    let names: Vec<&str> = uses.keys().map(String::as_str).collect();
    let expected = [1, 2, 3, 4].map(|n| format!("Bearer alice->orders[]#{n}"));
    assert_eq!(names, expected);
    for times in uses.values() {
        assert!(times[times.len() - 1] - times[0] < 300, "{times:?}");
    }
    assert_eq!(provider.asked(), 4);
}

/// E.6.7: the timeout is that of a request, and so are what is slow and what a breaker counts.
#[tokio::test(start_paused = true)]
async fn a_job_of_the_http_proxy_outlives_the_timeout_of_its_requests() {
    let events = Events::new();
    let settings = Settings::http_proxy();
    let takes = 10 * settings.timeout.default;
    let stack = settings.stack().with_listener(events.clone());
    let stack = stack.build().unwrap();
    let (breakers, servers) = (stack.circuit_breaker(), stack.health());
    let stack = ServiceBuilder::new()
        .layer(settings.poll_layer(job()).unwrap())
        .layer(stack)
        .service(tool().client::<_, Bytes>(deliveries(takes, |_, _| {})));
    let mut call = ToolCall::new("deliver").with_server("shop");
    call.extensions_mut()
        .insert(tower_toolcall::token::UpstreamToken::new("t0k3n"));
    let since = Instant::now();
    stack.oneshot(call).await.unwrap();
    assert!(since.elapsed() >= takes);
    assert!(events.names().is_empty(), "{:?}", events.names());
    let breaker = &breakers.snapshot()[0];
    assert_eq!((breaker.state, breaker.failures), (BreakerState::Closed, 0));
    assert!(servers.snapshot().iter().all(|server| server.failures == 0));
}
