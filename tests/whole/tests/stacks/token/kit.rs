use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};
use tower_toolcall::{
    ToolCall, ToolError,
    token::{Secret, Target, Token, TokenLayer, TokenRequest, UpstreamToken},
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// An identity provider: it takes a second, and counts.
#[derive(Clone, Default)]
pub(crate) struct Provider(Arc<Inner>);

#[derive(Default)]
struct Inner {
    asked: AtomicUsize,
    /// What it answers next, before it does as always.
    next: Mutex<Vec<Result<Token, ToolError>>>,
}

pub(crate) type Exchange = BoxCloneSyncService<ToolCall, Token, ToolError>;

impl Provider {
    pub(crate) fn answering(answers: impl IntoIterator<Item = Result<Token, ToolError>>) -> Self {
        let provider = Self::default();
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        *provider.0.next.lock().unwrap() = answers;
        provider
    }

    /// `alice -> orders [read] #1`, valid for 300 s.
    pub(crate) fn service(&self) -> Exchange {
        let this = self.clone();
        Exchange::new(tower::service_fn(move |call: ToolCall| {
            let this = this.clone();
            async move {
                assert_eq!((call.tool(), call.arguments().len()), ("token_exchange", 0));
                let n = this.0.asked.fetch_add(1, SeqCst) + 1;
                sleep(SECOND).await;
                let next = this.0.next.lock().unwrap().pop();
                next.unwrap_or_else(|| {
                    let request: &TokenRequest = call.extensions().get().unwrap();
                    let target = request.target();
                    let scopes: Vec<&str> = target.scopes().collect();
                    let text = format!(
                        "{}->{}{scopes:?}#{n}",
                        request.subject().expose(),
                        target.name().unwrap_or("-"),
                    );
                    Ok(Token::new(text).with_lifetime(300 * SECOND))
                })
            }
        }))
    }

    pub(crate) fn layer(&self) -> TokenLayer<Exchange> {
        TokenLayer::new(self.service()).with_tool("order", orders())
    }

    pub(crate) fn asked(&self) -> usize {
        self.0.asked.load(SeqCst)
    }
}

pub(crate) fn orders() -> Target {
    Target::audience("orders")
}

/// A tool that answers with the token it got; `401` as often as it is told to.
#[derive(Clone, Default)]
pub(crate) struct Upstream {
    pub(crate) calls: Arc<AtomicUsize>,
    refuses: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Upstream {
    /// Answers these tokens with a 401 so often.
    pub(crate) fn refuse(&self, token: &str, times: usize) {
        self.refuses.lock().unwrap().insert(token.into(), times);
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    pub(crate) fn service(&self) -> BoxCloneSyncService<ToolCall, String, ToolError> {
        let this = self.clone();
        BoxCloneSyncService::new(tower::service_fn(move |call: ToolCall| {
            this.calls.fetch_add(1, SeqCst);
            let token = call.extensions().get::<UpstreamToken>();
            let token = token.map_or("none", |token| token.expose()).to_owned();
            let mut refuses = this.refuses.lock().unwrap();
            let result = match refuses.get_mut(&token) {
                Some(times @ 1..) => {
                    *times -= 1;
                    Err(unauthorized())
                }
                _ => Ok(token),
            };
            std::future::ready(result)
        }))
    }
}

/// A status on a leaf's own wire.
pub(crate) fn unauthorized() -> ToolError {
    ToolError::from_status(http::StatusCode::UNAUTHORIZED, "HTTP 401")
}

pub(crate) fn call(subject: &str) -> ToolCall {
    ToolCall::new("order").with_subject_token(Secret::from(subject))
}

/// A stack, to be called as often as one likes.
#[derive(Clone)]
pub(crate) struct Stack(BoxCloneSyncService<ToolCall, String, ToolError>);

impl Stack {
    pub(crate) fn new<X>(layer: &TokenLayer<X>, upstream: &Upstream) -> Self
    where
        X: Service<ToolCall, Response = Token> + Clone + Send + 'static,
        X::Error: Into<ToolError>,
        X::Future: Send,
    {
        Self(BoxCloneSyncService::new(layer.layer(upstream.service())))
    }

    pub(crate) async fn send(&self, call: ToolCall) -> Result<String, ToolError> {
        self.0.clone().oneshot(call).await
    }

    pub(crate) fn spawn(
        &self,
        call: ToolCall,
    ) -> tokio::task::JoinHandle<Result<String, ToolError>> {
        let this = self.clone();
        tokio::spawn(async move { this.send(call).await })
    }
}

/// An HTTP client that answers by itself, and keeps the requests.
#[derive(Clone)]
pub(crate) struct Http {
    answer: Arc<dyn Fn() -> Response<Full<Bytes>> + Send + Sync>,
    pub(crate) got: Arc<Mutex<Vec<Request<Bytes>>>>,
}

impl Http {
    pub(crate) fn new(status: u16, body: impl Into<String>) -> Self {
        let body = body.into();
        Self::by(move || {
            let answer = Response::builder().status(status);
            answer.body(Full::new(body.clone().into())).unwrap()
        })
    }

    pub(crate) fn by(answer: impl Fn() -> Response<Full<Bytes>> + Send + Sync + 'static) -> Self {
        Self {
            answer: Arc::new(answer),
            got: Arc::default(),
        }
    }
}

impl Service<Request<Bytes>> for Http {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.got.lock().unwrap().push(request);
        std::future::ready(Ok((self.answer)()))
    }
}
