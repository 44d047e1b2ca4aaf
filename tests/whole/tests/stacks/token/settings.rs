//! `[token]`, and the audiences of tools.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use expect_test::expect;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::{advance, sleep};
use tower::{
    Layer, Service, ServiceExt, service_fn,
    util::{BoxCloneSyncService, option_layer},
};
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall, ToolError,
    event::BreakerState,
    settings::{Place, Settings, TokenAuth},
    token::{Target, Token, TokenLayer, UpstreamToken},
};
use tower_toolcall_http::token::{ClientAuth, TokenEndpoint, TokenExchange, layer_from_settings};

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

const SECRET: &str = "hunter2-of-the-gateway";
const VARIABLE: &str = "TOOLCALL_TOKEN_CLIENT_SECRET";
const FILE: &str = r#"
    [token]
    endpoint = "https://id.example.com/token"
    client_id = "gateway"

    [tools.order]
    audience = "orders"
    scopes = ["write", "read"]

    [tools.shop__order]
    audience = "shop"
"#;

type Got = Arc<Mutex<Vec<Request<Bytes>>>>;

/// A provider that answers with a token, and keeps the requests.
fn provider(
    got: &Got,
) -> impl Service<Request<Bytes>, Response = Response<Full<Bytes>>, Error = BoxError, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    let got = Arc::clone(got);
    service_fn(move |request| {
        got.lock().unwrap().push(request);
        let token = r#"{"access_token": "t0k3n", "token_type": "Bearer", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}"#;
        std::future::ready(Ok(Response::new(Full::from(token))))
    })
}

type Client = BoxCloneSyncService<Request<Bytes>, Response<Full<Bytes>>, BoxError>;
type Tools = BoxCloneSyncService<ToolCall, (), ToolError>;

/// The layer of `FILE` over a provider that may be gone, around a tool.
struct Rig<T> {
    asked: Arc<AtomicUsize>,
    is_gone: Arc<AtomicBool>,
    tools: Tools,
    of_layer: T,
}

impl<T> Rig<T> {
    fn new<X>(
        change: impl FnOnce(TokenLayer<TokenExchange<Client, Bytes>>) -> (TokenLayer<X>, T),
    ) -> Self
    where
        X: Service<ToolCall, Response = Token, Error = ToolError, Future: Send>
            + Clone
            + Send
            + 'static,
    {
        let (asked, is_gone) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, gone) = (Arc::clone(&asked), Arc::clone(&is_gone));
        let answering = provider(&Got::default());
        let client = Client::new(service_fn(move |request| {
            count.fetch_add(1, SeqCst);
            let (is_gone, answering) = (gone.load(SeqCst), answering.clone());
            async move {
                match is_gone {
                    true => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()),
                    false => answering.oneshot(request).await,
                }
            }
        }));
        let layer = layer_from_settings::<_, Bytes>(&with_secret(file(FILE)), client);
        let (layer, of_layer) = change(layer.unwrap().unwrap());
        let tool = service_fn(|_: ToolCall| async { Ok::<_, ToolError>(()) });
        Self {
            asked,
            is_gone,
            tools: Tools::new(layer.layer(tool)),
            of_layer,
        }
    }

    /// A call for somebody else each time, so that none has a token yet.
    async fn ask(&self) -> Result<(), ToolError> {
        let subject = format!("agent-{}", self.asked.load(SeqCst));
        let call = ToolCall::new("order").with_subject_token(subject);
        self.tools.clone().oneshot(call).await
    }
}

fn file(text: &str) -> Settings {
    toml::from_str(text).unwrap()
}

fn with_secret(settings: Settings) -> Settings {
    settings.with_env_from([(VARIABLE, SECRET)]).unwrap()
}

/// The request that a call of the tool `order` causes, and the token that the tool gets.
async fn ask(settings: &Settings, call: ToolCall) -> (Vec<Request<Bytes>>, String) {
    let got = Got::default();
    let tokens = layer_from_settings::<_, Bytes>(settings, provider(&got)).unwrap();
    let stack = settings
        .stack()
        .with_layer(Place::Attempt, option_layer(tokens))
        .build()
        .unwrap();
    let tool = service_fn(|call: ToolCall| async move {
        let token = call.extensions().get::<UpstreamToken>();
        Ok::<_, BoxError>(token.map_or("none", |token| token.expose()).to_owned())
    });
    let answer = stack.layer(tool).oneshot(call.with_subject_token("alice"));
    let answer = answer.await.unwrap();
    (std::mem::take(&mut *got.lock().unwrap()), answer)
}

fn body(request: &Request<Bytes>) -> &str {
    std::str::from_utf8(request.body()).unwrap()
}

#[tokio::test]
async fn a_tool_with_an_audience_gets_a_token() {
    let settings = with_secret(file(FILE));
    let (asked, token) = ask(&settings, ToolCall::new("order")).await;
    assert_eq!((asked.len(), &*token), (1, "t0k3n"));
    assert_eq!(asked[0].uri(), "https://id.example.com/token");
    assert!(asked[0].headers().contains_key("authorization"));
    assert!(body(&asked[0]).contains("&audience=orders&scope=read%20write"));
    // Of a server by the flat name.
    let of = |server| ToolCall::new("order").with_server(server);
    let (asked, _) = ask(&settings, of("shop")).await;
    assert!(body(&asked[0]).ends_with("&audience=shop"));
    let (asked, token) = ask(&settings, of("other")).await;
    assert_eq!((asked.len(), &*token), (0, "none"));
}

#[test]
fn without_an_endpoint_there_is_no_layer() {
    let got = Got::default();
    let layer = |s: &Settings| layer_from_settings::<_, Bytes>(s, provider(&got)).unwrap();
    assert!(layer(&Settings::default()).is_none());
    assert!(layer(&file("[token]\nleeway = \"5s\"")).is_none());
    let public =
        file("[token]\nendpoint = \"https://id/token\"\nclient_id = \"a\"\nauth = \"public\"");
    assert!(layer(&public).is_some());
}

/// The same as by hand, with the defaults too.
#[test]
fn each_setting_reaches_the_layer() {
    let endpoint = || {
        let auth = ClientAuth::public("gateway");
        TokenEndpoint::<_, ()>::new("https://id.example.com/token", auth, ()).unwrap()
    };
    let mut public = Settings::default();
    public.token.endpoint = Some("https://id.example.com/token".into());
    public.token.client_id = Some("gateway".into());
    public.token.auth = TokenAuth::Public;
    let shown = |s: &Settings| {
        format!(
            "{:?}",
            layer_from_settings::<_, ()>(s, ()).unwrap().unwrap()
        )
    };
    let default = TokenLayer::new(endpoint());
    assert_eq!(shown(&public), format!("{default:?}"));
    let mut settings = public;
    settings.token.leeway = secs(5);
    settings.token.default_lifetime = secs(60);
    settings.token.max_lifetime = secs(600);
    settings.token.max_keys = 7;
    settings.tools.entry("order".into()).or_default().audience = Some("orders".into());
    let by_hand = default
        .with_leeway(secs(5))
        .with_default_lifetime(secs(60))
        .with_max_lifetime(secs(600))
        .and_then(|layer| layer.with_max_keys(7))
        .unwrap()
        .with_tool("order", Target::audience("orders"));
    assert_eq!(shown(&settings), format!("{by_hand:?}"));
}

/// The provider has its own time, and a breaker.
#[tokio::test(start_paused = true)]
async fn a_provider_that_is_slow_is_not_waited_for() {
    let mut settings = with_secret(file(FILE));
    settings.token.timeout = secs(2);
    let hangs = service_fn(|_: Request<Bytes>| async {
        sleep(secs(60)).await;
        Err::<Response<Full<Bytes>>, BoxError>("late".into())
    });
    let tokens = layer_from_settings::<_, Bytes>(&settings, hangs)
        .unwrap()
        .unwrap();
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) });
    let svc = tokens.layer(tool);
    let since = tokio::time::Instant::now();
    for _ in 0..6 {
        let call = ToolCall::new("order").with_subject_token("alice");
        let error = svc.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TokenExchange);
    }
    assert_eq!(since.elapsed(), secs(10));
}

/// E.3.5: 5 failures in a row, 30 s, 3 successes.
#[tokio::test(start_paused = true)]
async fn the_providers_breaker_has_the_numbers_of_the_http_proxy() {
    let rig = Rig::new(|layer| {
        let mut breakers = None;
        let layer = layer.map_exchange(|exchange| {
            breakers = Some(exchange.handle());
            exchange
        });
        (layer, breakers.unwrap())
    });
    let state = || rig.of_layer.snapshot()[0].state;
    rig.is_gone.store(true, SeqCst);
    for _ in 0..5 {
        assert!(rig.ask().await.is_err());
    }
    assert_eq!(state(), BreakerState::Open);
    let error = rig.ask().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TokenExchange);
    assert_eq!(error.retry_after_seconds(), Some(30));
    assert_eq!(rig.asked.load(SeqCst), 5);
    rig.is_gone.store(false, SeqCst);
    advance(secs(30)).await;
    for _ in 0..3 {
        assert_ne!(state(), BreakerState::Closed);
        rig.ask().await.unwrap();
    }
    assert_eq!(state(), BreakerState::Closed);
}

/// E.9.2.
#[tokio::test(start_paused = true)]
async fn the_state_of_the_providers_breaker_is_in_metrics_around_the_exchange() {
    let metrics = tower_toolcall::tool_metrics::Metrics::new();
    let rig = Rig::new(|layer| {
        let layer = layer.map_exchange(|exchange| metrics.layer().layer(exchange));
        (layer, ())
    });
    let state = |n| format!("circuit_breaker_state{{server=\"\",tool=\"token_exchange\"}} {n}\n");
    rig.ask().await.unwrap();
    assert!(metrics.prometheus().contains(&state(0)));
    rig.is_gone.store(true, SeqCst);
    for _ in 0..5 {
        assert!(rig.ask().await.is_err());
    }
    assert!(metrics.prometheus().contains(&state(2)));
}

#[tokio::test]
async fn the_secret_is_that_of_a_file_or_of_the_variable_which_goes_first() {
    let path = format!("{}/client_secret", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&path, "from-a-file\r\n").unwrap();
    let mut settings = file(FILE);
    settings.token.auth = TokenAuth::Post;
    settings.token.client_secret_file = Some(path.into());
    for (settings, expected) in [
        (settings.clone(), "from-a-file"),
        (with_secret(settings.clone()), SECRET),
        (
            settings.with_env_from([(VARIABLE, " ")]).unwrap(),
            "from-a-file",
        ),
    ] {
        let (asked, _) = ask(&settings, ToolCall::new("order")).await;
        let body = body(&asked[0]);
        assert!(
            body.ends_with(&format!("&client_id=gateway&client_secret={expected}")),
            "{body}"
        );
    }
}

/// Another preset of the environment, or variables that are read once more, take nothing away.
#[test]
fn a_secret_stays_under_another_preset() {
    let settings = with_secret(file(FILE));
    let again = settings
        .clone()
        .with_env_from([("TOOLCALL_PRESET", "gateway")]);
    assert_eq!(again.unwrap().token, settings.token);
}

#[test]
fn a_secret_is_nowhere_to_be_read() {
    let settings = with_secret(file(FILE));
    let layer = layer_from_settings::<_, ()>(&settings, ()).unwrap();
    let written = serde_json::to_string(&settings).unwrap();
    let section = serde_json::to_string(&settings.token).unwrap();
    for text in [format!("{settings:?} {layer:?}"), written, section] {
        assert!(
            !text.contains("hunter2") && !text.contains("client_secret\":"),
            "{text}"
        );
    }
}

/// A file is read by many, and lies in repositories.
#[test]
fn a_secret_in_the_settings_is_refused_and_not_shown() {
    let with = |value: &str| file(&format!("[token]\nclient_secret = {value}"));
    for value in [r#""hunter2""#, "[\"hunter2\"]", "7"] {
        for result in [
            with(value).check(),
            with(value).stack().build().map(drop),
            layer_from_settings::<_, ()>(&with(value), ()).map(drop),
            with(value).with_env_from([(VARIABLE, "other")]).map(drop),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.field(), "token.client_secret");
            let text = error.to_string();
            assert!(
                text.contains("token.client_secret_file") && text.contains(VARIABLE),
                "{text}"
            );
            assert!(
                !format!("{text} {:?}", with(value)).contains("hunter2"),
                "{text}"
            );
        }
    }
}

/// The error of the check, which is that of building the layer.
fn refused(change: &dyn Fn(&mut Settings)) -> String {
    let mut settings = with_secret(file(FILE));
    change(&mut settings);
    let error = settings.check().unwrap_err();
    let of_layer = layer_from_settings::<_, ()>(&settings, ()).unwrap_err();
    assert_eq!(error.field(), of_layer.field(), "{error}");
    error.to_string()
}

#[test]
fn settings_that_cannot_work_are_refused_by_their_keys() {
    let url = |url: &'static str| move |s: &mut Settings| s.token.endpoint = Some(url.to_owned());
    let public = |s: &mut Settings| {
        s.token.auth = TokenAuth::Public;
        s.token.client_secret_file = Some("/run/secrets/gateway".into());
    };
    let audience = |audience: Option<&'static str>| {
        move |s: &mut Settings| {
            s.tools.entry("order".into()).or_default().audience = audience.map(str::to_owned);
        }
    };
    let changes: [&dyn Fn(&mut Settings); 11] = [
        &url("http://id.example.com/token"),
        &url("https://me:hunter2@id/token"),
        &url("id"),
        &|s| s.token.endpoint = None,
        &|s| s.token.client_id = None,
        &|s| s.token.client_id = Some(String::new()),
        &|s| s.token.max_keys = 0,
        &|s| s.token.max_lifetime = secs(0),
        &audience(None),
        &audience(Some("")),
        &public,
    ];
    let errors = changes.map(refused).join("\n");
    let without_secret = file(FILE).check().unwrap_err();
    expect![[r#"
        invalid `token.endpoint`: is `http://` on another machine: secrets go there
        invalid `token.endpoint`: has a user in it
        invalid `token.endpoint`: is not an `https://` URL
        invalid `tools.order.audience`: `token.endpoint` is not set
        invalid `token.client_id`: is not set
        invalid `token.client_id`: is empty
        invalid `token.max_keys`: 0 is not between 1 and 16777216
        invalid `token.max_lifetime`: is zero
        invalid `tools.order.scopes`: the tool has no audience
        invalid `tools.order.audience`: is empty
        invalid `token.client_secret_file`: `token.auth` is `public`, so it means nothing
        invalid `token.client_secret_file`: is not set, and neither is TOOLCALL_TOKEN_CLIENT_SECRET"#]].assert_eq(&format!("{errors}\n{without_secret}"));
}

/// Whoever takes the key for that of the secret itself.
#[test]
fn a_file_that_cannot_be_read_is_not_named() {
    let empty = format!("{}/empty_secret", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&empty, "\n").unwrap();
    for (path, says) in [("hunter2", "cannot be read"), (&*empty, "is empty")] {
        let mut settings = file(FILE);
        settings.token.client_secret_file = Some(path.into());
        assert_eq!(settings.check(), Ok(()));
        let error = layer_from_settings::<_, ()>(&settings, ()).unwrap_err();
        assert_eq!(error.field(), "token.client_secret_file");
        let text = error.to_string();
        assert!(text.contains(says) && !text.contains(path), "{text}");
    }
}
