//! A provider of tools, whole: agents call it over HTTP, it checks their arguments, exchanges their
//! token for one that the upstream takes, and sends requests that are written down in files.
//!
//! ```text
//! cargo run -p example-tools-provider
//! ```
//!
//! The identity provider and the upstream are in this program, on free ports of the loopback
//! interface. With `TOOLCALL_TOKEN_ENDPOINT`, `TOOLCALL_TOKEN_CLIENT_ID`,
//! `TOOLCALL_TOKEN_CLIENT_SECRET` and `AGENT_TOKEN` a real identity provider is asked, Keycloak for
//! example; its client has to be allowed to exchange tokens for the audience `orders`.
//!
//! Each line is what an agent gets: the HTTP status, the executor's status or code, and the rest of
//! the answer; behind it, how often the other two servers were asked meanwhile. What happens to the
//! circuit breaker is told as CloudEvents. At the end: what the provider's own operator sees.

mod cloud_events;
mod servers;

use std::{error::Error, fmt::Display, time::Duration};

use axum::{
    http::{Request, StatusCode, header},
    serve::ListenerExt as _,
};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{
    BoxError, ServiceBuilderExt,
    circuit_breaker::{CircuitBreakerBuilder, CircuitBreakerLayer},
    key::Key,
    router::Router,
    serve::Routes,
    settings::Settings,
    token::{Target, TokenHandle, TokenLayer},
    tool_metrics::Metrics,
    validate::Schemas,
};
use tower_toolcall_http::{
    Executor, HttpAnswer, ReqwestClient, ToolManifest,
    token::{ClientAuth, TokenEndpoint},
};
use tower_toolcall_mcp::Catalog;

use servers::{Idp, Upstream};

/// What the provider knows of its tools: as they are stored.
fn manifests(upstream: &str) -> Result<Vec<ToolManifest>, serde_json::Error> {
    let headers = json!({ "Authorization": "Bearer {{ upstream_token }}", "X-Request-ID": "{{ request_id }}" });
    let order = json!({
        "name": "order",
        "description": "Orders a pizza.",
        "input_schema": {
            "type": "object",
            "properties": {
                "pizza": { "type": "string" },
                "quantity": { "type": "integer", "minimum": 1, "maximum": 20 },
            },
            "required": ["pizza"],
        },
        "execution_profile": {
            "mode": "sync_http",
            "method": "POST",
            "url_template": format!("{upstream}/orders"),
            "headers_template": headers,
            "body_template": r#"{"pizza": "{{ pizza }}", "quantity": {{ quantity | default(1) }}}"#,
            "required_audience": "orders",
        },
    });
    let deliver = json!({
        "name": "deliver",
        "description": "Delivers an order, and waits for it.",
        "input_schema": { "type": "object", "properties": { "order": { "type": "integer" } }, "required": ["order"] },
        "execution_profile": {
            "mode": "async_poll",
            "method": "POST",
            "url_template": format!("{upstream}/orders/{{{{ order }}}}/deliveries"),
            "headers_template": headers,
            "required_audience": "orders",
            "poll_config": {
                "status_url_template": format!("{upstream}/deliveries/{{{{ delivery_id }}}}"),
                "status_field_path": "$.state",
                "completed_values": ["delivered"],
                "failed_values": ["lost"],
                "result_field_path": "$.report",
                "interval_seconds": 0.2,
            },
        },
    });
    [order, deliver]
        .into_iter()
        .map(serde_json::from_value)
        .collect()
}

/// Who asks for tokens, and where.
struct Identity {
    endpoint: String,
    auth: ClientAuth,
    agent: String,
}

impl Identity {
    fn new(idp: &Idp) -> Self {
        let var = |name: &str| std::env::var(name).ok();
        let of_env = || {
            let secret = var("TOOLCALL_TOKEN_CLIENT_SECRET")?;
            Some(Self {
                endpoint: var("TOOLCALL_TOKEN_ENDPOINT")?,
                auth: ClientAuth::basic(var("TOOLCALL_TOKEN_CLIENT_ID")?, secret),
                agent: var("AGENT_TOKEN")?,
            })
        };
        of_env().unwrap_or_else(|| Self {
            endpoint: format!("{}/token", idp.at),
            auth: ClientAuth::basic("tools-provider", "s3cr3t"),
            agent: "agent-7".to_owned(),
        })
    }
}

/// The provider: its address, and what its operator sees.
struct Provider {
    at: String,
    metrics: Metrics,
    tokens: TokenHandle,
}

impl Provider {
    async fn start(upstream: &Upstream, identity: &Identity) -> Result<Self, BoxError> {
        let (client, metrics) = (ReqwestClient::new()?, Metrics::new());
        let manifests = manifests(&upstream.at)?;

        // The identity provider has layers of its own: when it is down, no tool's breaker opens.
        let (url, auth) = (&identity.endpoint, identity.auth.clone());
        let endpoint = TokenEndpoint::<_, Bytes>::new(url, auth, client.clone())?;
        let exchange = ServiceBuilder::new()
            .tool_trace()
            .tool_metrics(&metrics)
            .layer(breakers(Key::Server).build()?)
            .tool_timeout(secs(5))
            .tool(endpoint);
        let mut tokens = TokenLayer::new(exchange);
        for manifest in &manifests {
            if let Some(audience) = manifest.required_audience() {
                let target = Target::audience(audience);
                let scopes = manifest.required_scopes().iter();
                let target = scopes.fold(target, |target, scope| target.with_scope(scope));
                tokens = tokens.with_tool(manifest.name(), target);
            }
        }

        // One breaker for the source of all tools, and a token for each request.
        let breaker = breakers(Key::by(|_| "pizzeria")).build()?;
        cloud_events::print(breaker.handle().subscribe());
        let schemas = Schemas::new();
        Catalog::new(manifests.iter().map(ToolManifest::definition)).put_schemas(&schemas);
        let mut router = Router::builder();
        for manifest in &manifests {
            let tool = ServiceBuilder::new()
                .option_layer(manifest.poll_layer()?)
                .layer(tokens.clone())
                .layer(breaker.clone())
                .tool_timeout(secs(30))
                .tool(manifest.tool()?.client::<_, Bytes>(client.clone()));
            router = router.tool(manifest.name(), tool.map_response(HttpAnswer::into_json));
        }
        let router = router.build()?;
        let stack = ServiceBuilder::new()
            .tool_trace()
            .tool_metrics(&metrics)
            .layer(Settings::http_proxy().validate_layer(&schemas))
            .tool_deadline(secs(60))
            .tool(router.clone());
        let routes = Routes::new(stack).with_identity(router);
        let routes = routes.with_bearer_subject();
        let app = Executor::new(routes.clone()).into_router();
        let app = app.merge(routes.into_router());

        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at = format!("http://{}", listener.local_addr()?);
        let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
        tokio::spawn(async { axum::serve(listener, app).await });
        let tokens = tokens.handle();
        Ok(Self {
            at,
            metrics,
            tokens,
        })
    }
}

/// An agent: it knows the provider's address and has a token of its own.
struct Agent<'a> {
    provider: &'a Provider,
    idp: &'a Idp,
    upstream: &'a Upstream,
}

impl Agent<'_> {
    async fn call(
        &self,
        tool: &str,
        arguments: Value,
        token: Option<&str>,
    ) -> Result<(), BoxError> {
        let (idp, upstream) = (self.idp.asked(), self.upstream.asked());
        let mut request = Request::post(format!("{}/api/tools/{tool}/execute", self.provider.at))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Bytes::from(json!({ "arguments": arguments }).to_string()))?;
        let (head, body) = ReqwestClient::new()?.oneshot(request).await?.into_parts();
        let body: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
        println!("{tool} {arguments}");
        println!("   {}  {}", head.status.as_u16(), told(head.status, &body));
        for name in [header::RETRY_AFTER, header::WWW_AUTHENTICATE] {
            if let Some(value) = head.headers.get(&name) {
                println!("        {name}: {}", value.to_str()?);
            }
        }
        let (idp, upstream) = (self.idp.asked() - idp, self.upstream.asked() - upstream);
        println!("        requests: {idp} to the identity provider, {upstream} to the upstream");
        Ok(())
    }
}

/// The part of an answer that tells most.
fn told(status: StatusCode, body: &Value) -> String {
    let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    match status {
        StatusCode::OK => format!(
            "{}: {} (upstream: {})",
            text("status"),
            body["result"],
            body["upstream_status"]
        ),
        _ => format!(
            "{}: {} (retryable: {})",
            text("error_code"),
            text("message"),
            body["is_retryable"]
        ),
    }
}

/// Breakers that open for 30 s, and close after 3 successes.
fn breakers(key: Key) -> CircuitBreakerBuilder {
    let builder = CircuitBreakerLayer::builder().with_keys(key);
    builder.with_open_for(secs(30)).with_probes(3)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn title(text: impl Display) {
    println!("\n{text}");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let (idp, upstream) = (Idp::start().await?, Upstream::start().await?);
    let identity = Identity::new(&idp);
    let provider = Provider::start(&upstream, &identity).await?;
    let agent = Agent {
        provider: &provider,
        idp: &idp,
        upstream: &upstream,
    };
    let token = Some(&*identity.agent);
    let pizza = |pizza: &str| json!({ "pizza": pizza });

    title("1  an order: one token, one request");
    agent.call("order", pizza("Margherita"), token).await?;

    title("2  another one: the token is kept");
    agent
        .call("order", json!({ "pizza": "Diavola", "quantity": 2 }), token)
        .await?;

    title("3  a delivery: started once, then asked for until it is there");
    agent.call("deliver", json!({ "order": 1 }), token).await?;

    title("4  arguments that do not fit: nothing is asked, nothing is sent");
    agent.call("order", json!({ "quantity": 0 }), token).await?;

    title(
        "5  hostile ones: they stay where the template puts them, and the upstream says what it says",
    );
    agent
        .call("order", pizza(r#"", "price": 0, "x": ""#), token)
        .await?;
    agent
        .call("deliver", json!({ "order": 999 }), token)
        .await?;

    title("6  without a token, and with one that the identity provider refuses");
    agent.call("order", pizza("Margherita"), None).await?;
    agent
        .call("order", pizza("Margherita"), Some("expired"))
        .await?;

    title("7  a tool that does not exist");
    agent.call("ordre", pizza("Margherita"), token).await?;

    title("8  the identity provider is killed: who has a token goes on, who has none is told so");
    idp.kill().await?;
    agent.call("order", pizza("Margherita"), token).await?;
    agent
        .call("order", pizza("Margherita"), Some("agent-8"))
        .await?;

    title("9  the upstream is killed: five requests fail, then none is sent");
    upstream.kill().await?;
    for _ in 0..6 {
        agent.call("order", pizza("Margherita"), token).await?;
    }

    title("What the operator sees");
    println!("{}", provider.metrics.snapshot());
    println!("tokens: {:?}", provider.tokens.counts());
    Ok(())
}
