//! A store on a Redis or Valkey server.

use std::{fmt, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo as _, ProtocolVersion, PushInfo, RedisError,
    Script, aio::MultiplexedConnection,
};
use tokio::sync::Notify;

use tower_toolcall::{AnyError, ConfigError};

use super::{
    random::random,
    refuse_if,
    store::{Exchange, MAX_ENTRIES, MAX_STEP, News, Record, Store},
};

/// How long a connection, and an answer, may take.
const TIME: Duration = Duration::from_millis(500);

/// The most registers that a namespace keeps.
const MAX_KEPT: usize = 100_000;

/// The longest namespace, in bytes.
const MAX_NAMESPACE_BYTES: usize = 64;

/// The longest time for which an entry is kept: a year.
const MAX_LASTS: Duration = Duration::from_secs(366 * 24 * 3600);

/// A [`Store`] on a Redis server, 6.2 or newer, or a Valkey server.
///
/// ```no_run
/// use tower_toolcall::circuit_breaker::CircuitBreakerLayer;
/// use tower_toolcall_redis::{RedisStore, SharedState};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_toolcall::AnyError> {
/// let breaker = CircuitBreakerLayer::new();
/// let store = RedisStore::new("redis://127.0.0.1:6379")?.with_namespace("prod")?;
/// let shared = SharedState::new(store).breakers("tools", &breaker.handle())?;
/// tokio::spawn(shared.run());
/// # Ok(()) }
/// ```
///
/// One connection is used for the exchanges and for the hints that others have written (RESP3). It
/// is made at the first exchange, by a task of the crate `redis` that ends with the store, and
/// again when it is lost. A connection and an answer may take 500 ms each; an exchange that failed
/// because its connection had been closed is made once more immediately.
///
/// An exchange is one script, which runs on the server's clock. It keeps at most 100,000 registers,
/// in the five keys `{tt:NAMESPACE}:*`, which expire eight days after the last write, and publishes
/// hints on the channel `{tt:NAMESPACE}:changed`. So a user of its own needs no more than this:
///
/// ```text
/// ACL SETUSER toolcall on >PASSWORD resetkeys ~{tt:prod}:* resetchannels &{tt:prod}:*
///     -@all +evalsha +script|load +hello +subscribe +publish +time +unlink +pexpire
///     +hmget +hset +hlen +hdel +zadd +zrem +zcard +zscore +zrangebyscore +zremrangebyscore
/// ```
///
/// A URL with the number of a database needs `+select` as well.
#[must_use]
pub struct RedisStore {
    client: Client,
    config: AsyncConnectionConfig,
    script: Script,
    keys: Keys,
    changed: Arc<Notify>,
    connection: Option<MultiplexedConnection>,
}

struct Keys {
    namespace: String,
    data: [String; 5],
    channel: String,
}

impl Keys {
    fn new(namespace: &str) -> Self {
        let key = |name| format!("{{tt:{namespace}}}:{name}");
        Self {
            data: ["meta", "log", "text", "over", "peers"].map(key),
            channel: key("changed"),
            namespace: namespace.to_owned(),
        }
    }
}

impl RedisStore {
    /// Makes a store at the server of a URL: `redis://user:password@host:6379`, `rediss://..` with
    /// TLS, or `unix:///path/to/socket`. Nothing is connected yet. For TLS the program depends on
    /// the crate `redis` 1.8 itself, with its feature `tokio-rustls-comp` or
    /// `tokio-native-tls-comp`. It has to be one server, or the primary of a group; a cluster is
    /// not supported.
    ///
    /// # Errors
    ///
    /// `url`: it is not such a URL, or is one with TLS and no such feature is on. The error does
    /// not have the URL, which may have a password.
    pub fn new(url: &str) -> Result<Self, ConfigError> {
        let client = url.into_connection_info().and_then(|info| {
            let settings = info.redis_settings().clone();
            let settings = settings
                .set_protocol(ProtocolVersion::RESP3)
                .set_skip_set_lib_name();
            Client::open(info.set_redis_settings(settings))
        });
        let reason = match url.starts_with("rediss:") {
            true => {
                "not a URL of a Redis server, or TLS is missing: a feature of the crate `redis`"
            }
            false => "not a URL of a Redis server, such as `redis://127.0.0.1:6379`",
        };
        let changed = Arc::new(Notify::new());
        let notify = Arc::clone(&changed);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIME))
            .set_response_timeout(Some(TIME))
            // Messages and the end of the connection alike. What they say does not matter.
            .set_push_sender(move |_: PushInfo| {
                notify.notify_one();
                Ok::<_, RedisError>(())
            });
        Ok(Self {
            client: client.map_err(|_| ConfigError::new("url", reason))?,
            config,
            script: Script::new(include_str!("exchange.lua")),
            keys: Keys::new("default"),
            changed,
            connection: None,
        })
    }

    /// Sets the namespace. Processes share states only with those of the same namespace. Default:
    /// `default`.
    ///
    /// # Errors
    ///
    /// `namespace`: empty, longer than 64 bytes, or with other characters than ASCII letters,
    /// digits, `-`, `_`, `.` and `:`.
    pub fn with_namespace(mut self, namespace: &str) -> Result<Self, ConfigError> {
        let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
        let is_bad = !(1..=MAX_NAMESPACE_BYTES).contains(&namespace.len())
            || !namespace.bytes().all(is_good);
        let reason = "is not 1 to 64 ASCII letters, digits, `-`, `_`, `.` and `:`";
        refuse_if(is_bad, "namespace", reason)?;
        self.keys = Keys::new(namespace);
        Ok(self)
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let connect = self
            .client
            .get_multiplexed_async_connection_with_config(&self.config);
        let mut connection = connect.await?;
        connection.subscribe(&self.keys.channel).await?;
        Ok(connection)
    }

    /// One exchange, on the connection that there is, or on a new one. One on which something
    /// failed is not used again.
    async fn run(&mut self, exchange: &Exchange<'_>) -> Result<Answer, RedisError> {
        let mut connection = match &self.connection {
            Some(connection) => connection.clone(),
            // Kept if the exchange is given up: the answer to it is not read.
            None => self.connection.insert(self.connect().await?).clone(),
        };
        let fresh_id = format!("{:016x}", random());
        let mut script = self.script.prepare_invoke();
        self.keys.data.iter().for_each(|key| _ = script.key(key));
        script
            .arg(exchange.peer)
            .arg(micros(exchange.present_for))
            .arg(exchange.store)
            .arg(exchange.since)
            .arg(fresh_id)
            .arg(MAX_KEPT)
            .arg(MAX_ENTRIES)
            .arg(MAX_STEP)
            .arg(&self.keys.channel);
        for entry in exchange.entries {
            script.arg(&entry.key).arg(entry.version);
            script.arg(&entry.value).arg(micros(entry.lasts));
        }
        let answer = script.invoke_async(&mut connection).await;
        answer.inspect_err(|_| self.connection = None)
    }
}

fn micros(time: Duration) -> u64 {
    time.min(MAX_LASTS).as_micros() as u64
}

/// The answer of the script: the store, the number, whether there is more, the moment, how many
/// processes there are, and keys with their texts.
type Answer = (String, u64, bool, u64, usize, Vec<(Vec<u8>, Vec<u8>)>);

/// `None`: it was not written by the script.
fn record(key: &[u8], text: &[u8], now: u64) -> Option<Record> {
    let mut text = str::from_utf8(text).ok()?.splitn(3, ' ');
    let version = text.next()?.parse().ok()?;
    let until = text.next()?.parse::<u64>().ok()?;
    Some(Record {
        key: str::from_utf8(key).ok()?.to_owned(),
        version,
        value: text.next()?.to_owned(),
        left: Duration::from_micros(until.saturating_sub(now)),
    })
}

impl Store for RedisStore {
    async fn exchange(&mut self, exchange: Exchange<'_>) -> Result<News, AnyError> {
        let was_connected = self.connection.is_some();
        let answer = match self.run(&exchange).await {
            Err(error) if was_connected && error.is_connection_dropped() => {
                self.run(&exchange).await
            }
            answer => answer,
        };
        let (store, seq, more, now, processes, records) = answer?;
        let records = records.iter();
        let record = |(key, text): &(Vec<u8>, Vec<u8>)| record(key, text, now);
        Ok(News {
            store,
            seq,
            more,
            processes,
            records: records.filter_map(record).collect(),
        })
    }

    async fn changed(&mut self) {
        self.changed.notified().await;
    }
}

/// Without the URL, which may have a password.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("namespace", &self.keys.namespace)
            .finish_non_exhaustive()
    }
}
