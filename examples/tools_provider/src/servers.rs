//! The two servers that the provider asks: an identity provider and an upstream. Each has a runtime
//! of its own, to be killed with all its connections.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri, header::AUTHORIZATION},
    response::{IntoResponse, Response},
    serve::ListenerExt as _,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime, task::spawn_blocking, time::Instant};

/// A server, and how often it was asked.
struct Server {
    at: String,
    asked: Arc<AtomicUsize>,
    runtime: Mutex<Option<Runtime>>,
}

impl Server {
    async fn start(app: Router) -> io::Result<Self> {
        let asked = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&asked);
        let app = app.layer(tower::util::MapRequestLayer::new(move |request| {
            count.fetch_add(1, Relaxed);
            request
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at = format!("http://{}", listener.local_addr()?);
        let listener = listener.into_std()?;
        let runtime = Runtime::new()?;
        runtime.spawn(async {
            let listener = TcpListener::from_std(listener)?;
            axum::serve(listener.tap_io(|tcp| drop(tcp.set_nodelay(true))), app).await
        });
        let runtime = Mutex::new(Some(runtime));
        Ok(Self { at, asked, runtime })
    }

    async fn kill(&self) -> io::Result<()> {
        let runtime = lock(&self.runtime).take();
        Ok(spawn_blocking(|| drop(runtime)).await?)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An identity provider that exchanges tokens (RFC 8693).
pub(crate) struct Idp {
    pub(crate) at: String,
    server: Server,
}

impl Idp {
    pub(crate) async fn start() -> io::Result<Self> {
        let server = Server::start(Router::new().fallback(token)).await?;
        Ok(Self {
            at: server.at.clone(),
            server,
        })
    }

    pub(crate) fn asked(&self) -> usize {
        self.server.asked.load(Relaxed)
    }

    pub(crate) async fn kill(&self) -> io::Result<()> {
        self.server.kill().await
    }
}

async fn token(form: String) -> Response {
    let fields = form.split('&').filter_map(|field| field.split_once('='));
    let fields: HashMap<&str, &str> = fields.collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    match field("subject_token") {
        "expired" => {
            let error =
                json!({ "error": "invalid_grant", "error_description": "the token has expired" });
            (StatusCode::BAD_REQUEST, Json(error)).into_response()
        }
        subject => Json(json!({
            "access_token": format!("{subject}.for.{}", field("audience")),
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "token_type": "Bearer",
            "expires_in": 300,
        }))
        .into_response(),
    }
}

/// An API of orders. It takes tokens for `orders` only.
pub(crate) struct Upstream {
    pub(crate) at: String,
    server: Server,
}

#[derive(Default)]
struct Shop {
    orders: u64,
    deliveries: Vec<Instant>,
}

impl Upstream {
    pub(crate) async fn start() -> io::Result<Self> {
        let shop = Arc::<Mutex<Shop>>::default();
        let server = Server::start(Router::new().fallback(serve).with_state(shop)).await?;
        Ok(Self {
            at: server.at.clone(),
            server,
        })
    }

    pub(crate) fn asked(&self) -> usize {
        self.server.asked.load(Relaxed)
    }

    pub(crate) async fn kill(&self) -> io::Result<()> {
        self.server.kill().await
    }
}

async fn serve(
    State(shop): State<Arc<Mutex<Shop>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    let token = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    // A real one checks a signature; that of a real identity provider is believed here.
    let is_ours =
        token.is_some_and(|token| token.ends_with(".for.orders") || token.contains(".ey"));
    let (status, answer) = match is_ours {
        true => lock(&shop).answer(method.as_str(), uri.path(), &body),
        false => (
            StatusCode::UNAUTHORIZED,
            json!({ "error": "not a token for orders" }),
        ),
    };
    (status, Json(answer)).into_response()
}

impl Shop {
    fn answer(&mut self, method: &str, path: &str, body: &str) -> (StatusCode, Value) {
        let path: Vec<&str> = path.split('/').skip(1).collect();
        match (method, &path[..]) {
            ("POST", ["orders"]) => {
                self.orders += 1;
                let order: Value = serde_json::from_str(body).unwrap_or_default();
                (
                    StatusCode::CREATED,
                    json!({ "order": self.orders, "pizza": order["pizza"], "price": order.get("price").unwrap_or(&json!(9)) }),
                )
            }
            ("POST", ["orders", order, "deliveries"]) => match order.parse::<u64>() {
                Ok(order) if order <= self.orders => {
                    self.deliveries.push(Instant::now());
                    let id = self.deliveries.len() - 1;
                    (
                        StatusCode::ACCEPTED,
                        json!({ "delivery_id": id, "state": "on its way" }),
                    )
                }
                _ => (
                    StatusCode::NOT_FOUND,
                    json!({ "error": "there is no such order" }),
                ),
            },
            ("GET", ["deliveries", id]) => {
                let begun = id
                    .parse()
                    .ok()
                    .and_then(|id: usize| self.deliveries.get(id));
                match begun.map(Instant::elapsed) {
                    None => (
                        StatusCode::NOT_FOUND,
                        json!({ "error": "there is no such delivery" }),
                    ),
                    Some(time) if time < Duration::from_secs(1) => {
                        (StatusCode::OK, json!({ "state": "on its way" }))
                    }
                    Some(_) => (
                        StatusCode::OK,
                        json!({ "state": "delivered", "report": "warm, at the door" }),
                    ),
                }
            }
            _ => (StatusCode::NOT_FOUND, json!({ "error": "no such path" })),
        }
    }
}
