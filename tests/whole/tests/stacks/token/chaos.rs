//! Many callers, many keys, and a provider that goes away and gets slow at random.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep, sleep_until};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    ErrorKind, ServiceBuilderExt, ToolCall, ToolError,
    retry::{RetryLayer, RetryPolicy},
    token::{Target, Token, TokenLayer, TokenRequest, UpstreamToken},
};

const CALLERS: u64 = 1_000;
const SUBJECTS: u64 = 50;
const AUDIENCES: u64 = 10;
const TIME: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(2);
const LIFETIME: Duration = Duration::from_secs(40);

/// The same numbers in each run.
struct Random(AtomicU64);

impl Random {
    fn below(&self, n: u64) -> u64 {
        let step = |x: u64| Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        let x = self.0.fetch_update(SeqCst, SeqCst, step).unwrap();
        (x >> 33) % n
    }
}

/// What a provider knows of one key.
#[derive(Default)]
struct Key {
    running: usize,
    issued: Vec<Instant>,
}

struct Provider {
    random: Random,
    keys: Mutex<HashMap<String, Key>>,
    asked: AtomicUsize,
    /// Until when it is gone, or slow.
    gone: Mutex<Instant>,
    slow: Mutex<Instant>,
}

/// One request that runs.
struct Running<'p>(&'p Provider, String);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0
            .keys
            .lock()
            .unwrap()
            .get_mut(&self.1)
            .unwrap()
            .running -= 1;
    }
}

impl Provider {
    async fn answer(&self, call: ToolCall) -> Result<Token, ToolError> {
        let request: &TokenRequest = call.extensions().get().unwrap();
        let (subject, audience) = (request.subject().expose(), request.target().name().unwrap());
        let key = format!("{subject}->{audience}");
        self.asked.fetch_add(1, SeqCst);
        {
            let mut keys = self.keys.lock().unwrap();
            let key = keys.entry(key.clone()).or_default();
            key.running += 1;
            assert_eq!(key.running, 1, "two requests for one key");
        }
        let _running = Running(self, key.clone());
        if *self.gone.lock().unwrap() > Instant::now() {
            return Err(ToolError::new(ErrorKind::ConnectionFailed, "refused"));
        }
        let most = match *self.slow.lock().unwrap() > Instant::now() {
            true => 5_000,
            false => 100,
        };
        sleep(Duration::from_millis(self.random.below(most))).await;
        let mut keys = self.keys.lock().unwrap();
        keys.get_mut(&key).unwrap().issued.push(Instant::now());
        Ok(Token::new(key).with_lifetime(LIFETIME))
    }

    async fn trouble(&self) {
        loop {
            sleep(Duration::from_millis(500 + self.random.below(5_000))).await;
            let until = Instant::now() + Duration::from_millis(500 + self.random.below(4_000));
            match self.random.below(2) {
                0 => *self.gone.lock().unwrap() = until,
                _ => *self.slow.lock().unwrap() = until,
            }
        }
    }
}

#[derive(Default)]
struct Seen {
    served: AtomicUsize,
    failed: AtomicUsize,
}

type Stack = BoxCloneSyncService<ToolCall, (), ToolError>;

async fn caller(stack: Stack, random: Arc<Random>, seen: Arc<Seen>, end: Instant) {
    while Instant::now() < end {
        let (subject, audience) = (random.below(SUBJECTS), random.below(AUDIENCES));
        let since = Instant::now();
        let call = ToolCall::new(format!("tool{audience}"))
            .with_subject_token(format!("s{subject}"))
            .with_id(format!("s{subject}->a{audience}"))
            .with_deadline(since + PATIENCE);
        let result = stack.clone().oneshot(call).await;
        assert!(since.elapsed() <= PATIENCE, "waited beyond its deadline");
        let count = match result {
            Ok(()) => &seen.served,
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::Denied, "{error:?}");
                &seen.failed
            }
        };
        count.fetch_add(1, SeqCst);
        sleep(Duration::from_millis(random.below(2_000))).await;
    }
}

/// H2: nobody ever gets another one's token, a key has one request at a time and one token for its
/// lifetime, and nothing waits beyond its deadline.
#[tokio::test(start_paused = true)]
async fn tokens_stay_with_their_subjects_while_the_provider_comes_and_goes() {
    let now = Instant::now();
    let provider = Arc::new(Provider {
        random: Random(AtomicU64::new(7)),
        keys: Mutex::default(),
        asked: AtomicUsize::new(0),
        gone: Mutex::new(now),
        slow: Mutex::new(now),
    });
    let exchange = {
        let provider = Arc::clone(&provider);
        ServiceBuilder::new()
            .tool_timeout(Duration::from_secs(3))
            .service(service_fn(move |call: ToolCall| {
                let provider = Arc::clone(&provider);
                async move { provider.answer(call).await }
            }))
    };
    let mut layer = TokenLayer::new(exchange);
    for n in 0..AUDIENCES {
        layer = layer.with_tool(format!("tool{n}"), Target::audience(format!("a{n}")));
    }
    // The upstream checks whose token it is.
    let upstream = service_fn(|call: ToolCall| async move {
        let token = call.extensions().get::<UpstreamToken>();
        match token.unwrap().expose() == call.id().unwrap() {
            true => Ok(()),
            false => Err(ToolError::new(ErrorKind::Denied, "another one's token")),
        }
    });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new()))
        .service(layer.layer(upstream));
    let (stack, seen) = (Stack::new(stack), Arc::<Seen>::default());
    let trouble = Arc::clone(&provider);
    let trouble = tokio::spawn(async move { trouble.trouble().await });
    let random = Arc::new(Random(AtomicU64::new(11)));
    let end = now + TIME;
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (stack, random, seen) = (stack.clone(), Arc::clone(&random), Arc::clone(&seen));
            tokio::spawn(caller(stack, random, seen, end))
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    sleep_until(end + PATIENCE).await;
    trouble.abort();

    let keys = provider.keys.lock().unwrap();
    assert_eq!(keys.len() as u64, SUBJECTS * AUDIENCES);
    // It is used until 20 s before its end: half of its lifetime is all the leeway that it has.
    for key in keys.values() {
        assert_eq!(key.running, 0);
        for pair in key.issued.windows(2) {
            assert!(pair[1] - pair[0] >= Duration::from_secs(20) - PATIENCE);
        }
    }
    let issued: usize = keys.values().map(|key| key.issued.len()).sum();
    let (served, failed) = (seen.served.load(SeqCst), seen.failed.load(SeqCst));
    let asked = provider.asked.load(SeqCst);
    println!("{served} calls served, {failed} failed; {asked} requests, {issued} tokens");
    assert!(served > 50_000 && failed > 100 && issued < 500 * 7);
    let counts = layer.handle().counts();
    assert!(counts.hits > 0 && counts.shared > 0 && counts.failed > 0);
}
