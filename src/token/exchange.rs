//! The tokens of a layer: kept, or asked for.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;
use tower_service::Service;

use super::{
    Secret, UpstreamToken,
    answer::{Claims, Token, time},
    layer::Settings,
    target::TokenRequest,
};
use crate::{
    call::{CallExt, CallInfo, ToolCall},
    error::{ErrorKind, ToolError},
    event::{Event, Listener, TokenOutcome},
    kit::{
        flights::{Failed, Flights, Made, Source, is_for_one},
        limit,
    },
    lock::lock,
    redact::Rules,
};

/// The name of the calls that ask for tokens.
const TOOL: &str = "token_exchange";

/// A token that was refused is not asked for again before it has this age: the next one would be
/// refused as well.
const REFUSABLE: Duration = Duration::from_secs(30);

/// A token, and when it was asked for.
#[derive(Clone)]
pub(super) struct Kept {
    token: Secret,
    /// Those that hide it.
    rules: Rules,
    since: Instant,
}

impl Kept {
    fn new(token: Secret, since: Instant) -> Self {
        let rules = Rules::new().with_secrets([token.expose()]);
        Self {
            token,
            rules,
            since,
        }
    }

    /// Puts the token on a call, and hides it in everything that shows the call.
    pub(super) fn put_on(self, call: &mut ToolCall) {
        call.hide_secrets_of(&self.rules);
        call.extensions_mut().insert(UpstreamToken::new(self.token));
    }

    pub(super) fn is_refusable(&self) -> bool {
        self.since.elapsed() >= REFUSABLE
    }
}

pub(super) type Asking = Pin<Box<dyn Future<Output = Result<Kept, ToolError>> + Send>>;

pub(super) struct Exchange<X> {
    /// In a mutex, because it need not be `Sync`; only a call without a token takes it.
    svc: Arc<Mutex<X>>,
    tokens: TokenHandle,
}

crate::text::debug_fields! { {X} |_| Exchange<X> { .. } }

impl<X> Clone for Exchange<X> {
    fn clone(&self) -> Self {
        Self {
            svc: Arc::clone(&self.svc),
            tokens: self.tokens.clone(),
        }
    }
}

impl<X> Exchange<X> {
    pub(super) fn new(svc: X, max: usize) -> Self {
        Self {
            svc: Arc::new(Mutex::new(svc)),
            tokens: TokenHandle {
                flights: Arc::new(Flights::new(max)),
                counts: Arc::default(),
            },
        }
    }

    pub(super) fn with_max_keys(mut self, max: usize) -> Self {
        self.tokens.flights = Arc::new(Flights::new(max));
        self
    }

    pub(super) fn map<Y>(self, map: impl FnOnce(X) -> Y) -> Exchange<Y>
    where
        X: Clone,
    {
        let svc = lock(&self.svc);
        Exchange {
            svc: Arc::new(Mutex::new(map(svc.clone()))),
            tokens: self.tokens.clone(),
        }
    }

    pub(super) fn handle(&self) -> TokenHandle {
        self.tokens.clone()
    }

    /// The token, if there is one.
    pub(super) fn kept(&self, call: &ToolCall, request: &TokenRequest) -> Option<Kept> {
        let kept = self.tokens.flights.get(request)?;
        self.tokens.add(TokenOutcome::Hit);
        let info = call.info();
        if info.listeners().is_some_and(|all| all.together() != 0) {
            tell(&info, TokenOutcome::Hit, None, None);
        }
        Some(kept)
    }

    /// A server has refused this token.
    pub(super) fn forget(&self, request: &TokenRequest, refused: &Kept) {
        let is_it = |kept: &Kept| kept.token.is(&refused.token);
        self.tokens.flights.forget(request, is_it);
    }
}

impl<X> Exchange<X>
where
    X: Service<ToolCall, Response = Token> + Clone + Send + 'static,
    X::Error: Into<ToolError>,
    X::Future: Send,
{
    /// Returns the token. Asks for it in the name of this call, unless another call does so
    /// already.
    pub(super) fn ask(
        &self,
        call: &ToolCall,
        request: TokenRequest,
        settings: &Arc<Settings>,
    ) -> Asking {
        let (this, settings) = (self.clone(), Arc::clone(settings));
        let mut ask = call.on_behalf(TOOL);
        ask.extensions_mut().insert(request.clone());
        let info = call.info();
        Box::pin(async move {
            let mut took = None;
            let make = || this.make(ask, &request, &settings, &mut took);
            let (result, source) = this.tokens.flights.get_or_make(&request, make).await;
            let outcome = match (&result, source) {
                (Err(_), _) => TokenOutcome::Failed,
                (Ok(_), Source::Kept) => TokenOutcome::Hit,
                (Ok(_), Source::Shared) => TokenOutcome::Shared,
                (Ok(_), Source::Made) => TokenOutcome::Exchanged,
            };
            this.tokens.add(outcome);
            tell(&info, outcome, took, result.as_ref().err());
            result.map_err(failed)
        })
    }

    async fn make(
        &self,
        ask: ToolCall,
        request: &TokenRequest,
        settings: &Settings,
        took: &mut Option<Duration>,
    ) -> Result<Made<Kept>, Failed> {
        let since = Instant::now();
        let asked = ask.clone();
        let result = self.send(ask).await;
        let is_asked = result.as_ref().err().is_none_or(|e| !e.is_own_refusal());
        *took = is_asked.then(|| since.elapsed());
        let token = result.map_err(|error| Failed {
            is_shared: limit::check(&asked).is_ok() && !is_for_one(&error),
            error,
        })?;
        let until = settings.until(since, &token, request.subject(), wall_clock());
        let token = token.secret().clone();
        Ok(Made {
            value: Kept::new(token, since),
            until,
        })
    }

    async fn send(&self, ask: ToolCall) -> Result<Token, ToolError> {
        let mut svc = lock(&self.svc).clone();
        let ready = poll_fn(|cx| svc.poll_ready(cx)).await;
        ready.map_err(Into::into)?;
        svc.call(ask).await.map_err(Into::into)
    }
}

/// Tells the observers of the call what became of its token.
fn tell(
    call: &CallInfo,
    outcome: TokenOutcome,
    exchange: Option<Duration>,
    error: Option<&ToolError>,
) {
    Listener::default().tell(&Event::Token {
        call,
        outcome,
        exchange,
        error,
    });
}

/// Returns the error of a call that could not get its token. The call was not sent.
fn failed(cause: ToolError) -> ToolError {
    if cause.kind() == ErrorKind::TokenExchange {
        return cause.unnamed();
    }
    let text = format!("no token could be had: {}", cause.message());
    let mut error = ToolError::new(ErrorKind::TokenExchange, text);
    if let Some(delay) = cause.retry_after() {
        error = error.with_retry_after(delay);
    }
    if let Some(status) = cause.status() {
        error = error.with_status(status);
    }
    error.with_source(cause)
}

impl Settings {
    /// Until when a token is used that was asked for at `since`; `None`: for one call.
    fn until(
        &self,
        since: Instant,
        token: &Token,
        subject: &Secret,
        now: SystemTime,
    ) -> Option<Instant> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let left = |claims: &Claims| claims.expires().map(|end| time(end - now.as_secs_f64()));
        // It may be valid for a shorter time than its provider says, by its own word: this
        // machine's clock is asked where one of them says nothing.
        let own = Claims::of(token.secret().expose()).and_then(|claims| {
            let (issued_for, left) = (claims.lifetime().map(time), left(&claims));
            match token.lifetime() {
                Some(_) => issued_for.or(left),
                None => issued_for.into_iter().chain(left).min(),
            }
        });
        let stated = token.lifetime().unwrap_or(self.default_lifetime);
        let lifetime = stated
            .min(own.unwrap_or(Duration::MAX))
            .min(self.max_lifetime);
        let of_subject = Claims::of(subject.expose()).and_then(|claims| left(&claims));
        let of_subject = of_subject.map(|left| Instant::now().checked_add(left));
        let used = lifetime - self.leeway.min(lifetime / 2);
        let until = since.checked_add(used)?;
        let until = of_subject.flatten().map_or(until, |end| end.min(until));
        (until > Instant::now()).then_some(until)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the `exp` of a JWT can be compared with the wall clock only"
)]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests;

/// The outcomes of the calls that needed a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenCounts {
    /// Calls that found one.
    pub hits: u64,
    /// Calls that got one from the identity provider.
    pub exchanged: u64,
    /// Calls that waited for another one's.
    pub shared: u64,
    /// Calls that got none from the identity provider; not those that were given up before.
    pub failed: u64,
}

/// A handle on the tokens of a [`TokenLayer`](super::TokenLayer). Clones are the same.
#[derive(Clone)]
pub struct TokenHandle {
    flights: Arc<Flights<TokenRequest, Kept>>,
    /// By outcome.
    counts: Arc<[AtomicU64; TokenOutcome::ALL.len()]>,
}

impl TokenHandle {
    fn add(&self, outcome: TokenOutcome) {
        self.counts[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Returns the outcomes of the calls so far.
    pub fn counts(&self) -> TokenCounts {
        let read = |outcome: TokenOutcome| self.counts[outcome as usize].load(Relaxed);
        TokenCounts {
            hits: read(TokenOutcome::Hit),
            exchanged: read(TokenOutcome::Exchanged),
            shared: read(TokenOutcome::Shared),
            failed: read(TokenOutcome::Failed),
        }
    }

    /// Returns how many tokens are kept, with those that are being asked for, and those that have
    /// ended, until others come.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all tokens, those that are being asked for apart.
    pub fn clear(&self) {
        self.flights.clear();
    }
}

crate::text::debug_fields! { {} |this| TokenHandle { counts: this.counts(), len: this.len(), .. } }
