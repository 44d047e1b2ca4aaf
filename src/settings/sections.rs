//! The one table of settings: a row is a key with its type and default, its variable, and what that
//! means.

use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    KeyBy, Preset, ServerUrl, TokenAuth, ToolSettings, Variable, duration, names::Origin,
    token::ClientSecret,
};
use crate::{
    circuit_breaker::{Probe, WeakFailures},
    key::DEFAULT_MAX_KEYS,
    kit::backoff::Jitter,
    reader::Reader,
    redact::{MAX_DEPTH, MAX_NODES, MAX_STRING},
};

/// Makes for each section the struct with its defaults, and the part of a file, in which every key
/// may be missing. Makes for all sections the [`File`], the table of [`VARIABLES`], and the
/// conversions between settings and a file.
///
/// A row is `key: type = default, "TOOLCALL_VARIABLE";`, with its meaning as the first sentence of
/// its docs. `as "module"` names a module for serde's `with`. A field that is not a setting, and
/// has its own functions to read and add it, stands behind them as `+ field: type;`.
macro_rules! settings {
    ($(
        $(#[$about:meta])*
        $section:ident: $settings:ident, $part:ident {$(
            $(#[doc = $doc:literal])*
            $key:ident: $type:ty = $default:expr, $(as $form:literal,)? $name:literal;
        )*} $(+ $field:ident: $of:ty;)?
    )*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Debug, PartialEq)]
            #[non_exhaustive]
            pub struct $settings {$(
                $(#[doc = $doc])*
                pub $key: $type,
            )* $(
                pub(super) $field: $of,
            )?}

            impl Default for $settings {
                fn default() -> Self {
                    Self { $($key: $default,)* $($field: Default::default(),)? }
                }
            }

            /// All values, unlike [`Settings`].
            impl Serialize for $settings {
                fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                    let all = $part { $($key: Some(self.$key.clone()),)* $($field: self.$field.clone(),)? };
                    all.serialize(to)
                }
            }

            impl<'de> Deserialize<'de> for $settings {
                fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                    let (part, default) = ($part::deserialize(Reader::new(from))?, Self::default());
                    Ok(Self { $($key: part.$key.unwrap_or(default.$key),)* $($field: part.$field,)? })
                }
            }

            #[derive(Default, PartialEq, Serialize, Deserialize)]
            #[serde(default, deny_unknown_fields)]
            struct $part {$(
                #[serde($(with = $form,)? skip_serializing_if = "Option::is_none")]
                $key: Option<$type>,
            )* $(
                #[serde(skip_serializing)]
                $field: $of,
            )?}
        )*

        /// The settings of all layers. See the [module docs](super) for an example.
        ///
        /// In a file they begin with those of its `preset`, if it names one. Written, they are such
        /// a file: the preset, and what was set over it.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct Settings {
            /// The preset that the others begin with.
            pub(super) preset: Preset,
            pub(super) origin: Origin,
            $(
                $(#[$about])*
                pub $section: $settings,
            )*
            /// The settings of single tools, by their names.
            pub tools: BTreeMap<String, ToolSettings>,
        }

        /// The content of a file: its preset, and some of the settings.
        #[derive(Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct File {
            #[serde(skip_serializing_if = "Option::is_none")]
            preset: Option<Preset>,
            $(
                #[serde(skip_serializing_if = "is_empty")]
                $section: $part,
            )*
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            tools: BTreeMap<String, ToolSettings>,
        }

        /// All environment variables.
        pub const VARIABLES: &[Variable] = &[
            Variable::PRESET,
            $($(Variable {
                name: $name,
                key: concat!(stringify!($section), ".", stringify!($key)),
                help: concat!($($doc),*),
            },)*)*
        ];

        impl Settings {
            /// The file that makes these settings: the preset, and what was set over it by a file,
            /// by a variable, or in code to another value than the preset's.
            pub(super) fn to_file(&self) -> File {
                self.file_of(false)
            }

            /// As above, or with `all` values.
            pub(super) fn file_of(&self, all: bool) -> File {
                let base = Self::preset(self.preset);
                File {
                    preset: Some(self.preset).filter(|preset| *preset != Preset::Default),
                    $($section: $part {$(
                        $key: {
                            let (value, default) = (&self.$section.$key, &base.$section.$key);
                            let key = concat!(stringify!($section), ".", stringify!($key));
                            let is_set = all || value != default || self.origin.keys.contains(key);
                            is_set.then(|| value.clone())
                        },
                    )* $(
                        $field: self.$section.$field.clone(),
                    )?},)*
                    tools: self.tools.clone(),
                }
            }

            /// All durations, with their keys.
            pub(super) fn durations(&self) -> Vec<(&'static str, Option<Duration>)> {
                let mut all = Vec::new();
                $($($(
                    // Which module reads them is of no matter.
                    let _ = $form;
                    all.push((
                        concat!(stringify!($section), ".", stringify!($key)),
                        self.$section.$key.into(),
                    ));
                )?)*)*
                all
            }

            /// Lays a file over these settings. Its preset goes under what was set.
            pub(super) fn apply(&mut self, file: File) {
                if let Some(preset) = file.preset {
                    let set = File { preset: None, ..self.to_file() };
                    *self = Self::preset(preset);
                    self.apply(set);
                }
                $($(if let Some(value) = file.$section.$key {
                    self.$section.$key = value;
                    self.origin.keys.insert(concat!(stringify!($section), ".", stringify!($key)));
                })*)*
                $($(self.$section.$field.add(file.$section.$field);)?)*
                let tools = file.tools.into_iter();
                self.tools.extend(tools.map(|(name, tool)| (name, tool.with_one_timeout())));
            }
        }
    };
}

fn is_empty<T: Default + PartialEq>(part: &T) -> bool {
    *part == T::default()
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const RESERVE: Duration = Duration::from_millis(500);

settings! {
    /// Checks of arguments before a call is sent: `[validate]`. They need the feature `validate`,
    /// and schemas: `StackBuilder::with_schemas`.
    validate: ValidateSettings, ValidatePart {
        /// Checks the arguments of tools without a setting of their own. Default: yes.
        enabled: bool = true, "TOOLCALL_VALIDATE_ENABLED";
        /// Changes arguments that only have the wrong type: `"5"` for 5. Default: no.
        repair: bool = false, "TOOLCALL_VALIDATE_REPAIR";
        /// Refuses calls that cannot be checked in full: their schema was refused, or their
        /// arguments are too large for it. Default: no.
        strict: bool = false, "TOOLCALL_VALIDATE_STRICT";
        /// The beginning of the error's message, where that of another system is expected. Default:
        /// none.
        heading: Option<String> = None, "TOOLCALL_VALIDATE_HEADING";
    }

    /// The guard against callers that repeat the same failing call: `[repeat_guard]`. See
    /// [`RepeatGuardLayer`](crate::repeat_guard::RepeatGuardLayer). Calls need a session id or an
    /// agent id.
    repeat_guard: RepeatGuardSettings, RepeatGuardPart {
        /// Refuses a call that fails again and again: puts the layer into the stack. Default: no.
        enabled: bool = false, "TOOLCALL_REPEAT_GUARD_ENABLED";
        /// The failures of the same call in a row after which it is refused. Default 3.
        failures: u32 = 3, "TOOLCALL_REPEAT_GUARD_FAILURES";
        /// The time for which it is refused, at most a day. Default 60 s.
        window: Duration = secs(60), as "duration", "TOOLCALL_REPEAT_GUARD_WINDOW";
        /// The most sessions and agents that are kept. Default 10,000.
        max_keys: usize = DEFAULT_MAX_KEYS, "TOOLCALL_REPEAT_GUARD_MAX_KEYS";
    }

    /// Answers that are too long for a model: `[fit]`. For [`Settings::fit_layer`]: it is in a
    /// stack by `StackBuilder::with_layer`.
    fit: FitSettings, FitPart {
        /// Shortens answers that are too long for a model. Default: no.
        enabled: bool = false, "TOOLCALL_FIT_ENABLED";
        /// The most characters of an answer, at least 1,000. Default 40,000.
        max_chars: usize = 40_000, "TOOLCALL_FIT_MAX_CHARS";
    }

    /// Calls that are allowed, denied, or need an approval: `[policy]`. See
    /// [`policy`](crate::policy) for the patterns. `deny` beats `ask`, and `ask` beats `allow`.
    /// Where nothing is set, no policy is in the stack.
    policy: PolicySettings, PolicyPart {
        /// Patterns of tools that deny calls. Default: none.
        deny: Vec<String> = Vec::new(), "TOOLCALL_POLICY_DENY";
        /// Patterns of tools that require an approval, by `StackBuilder::with_approver`. Default:
        /// none.
        ask: Vec<String> = Vec::new(), "TOOLCALL_POLICY_ASK";
        /// Patterns of tools that allow calls. Default: none.
        allow: Vec<String> = Vec::new(), "TOOLCALL_POLICY_ALLOW";
        /// Denies calls of all other tools. Default: no.
        deny_by_default: bool = false, "TOOLCALL_POLICY_DENY_BY_DEFAULT";
        /// The longest time that a call waits for its approval. Default 5 min.
        approval_timeout: Duration = secs(300), as "duration", "TOOLCALL_POLICY_APPROVAL_TIMEOUT";
    }

    /// The settings of calls that are repeated and run once: `[once]`. For
    /// [`Settings::once_layer`]: it is in a stack by `StackBuilder::with_layer`. See
    /// [`once`](crate::once).
    once: OnceSettings, OncePart {
        /// Answers a repeated call from memory: puts the layer into the stack. Default: no.
        enabled: bool = false, "TOOLCALL_ONCE_ENABLED";
        /// The time for which a caller's key is kept. Default 24 h.
        ttl: Duration = secs(24 * 3600), as "duration", "TOOLCALL_ONCE_TTL";
        /// The time in which a call without a key is not run again with the same arguments. Default
        /// 10 min; zero: it always runs.
        repeat_within: Duration = secs(600), as "duration", "TOOLCALL_ONCE_REPEAT_WITHIN";
        /// The most keys that are kept, an eighth of them for each principal. Default 10,000.
        max_keys: usize = DEFAULT_MAX_KEYS, "TOOLCALL_ONCE_MAX_KEYS";
        /// The most bytes of an answer that is kept. Default 65,536.
        max_answer: u64 = 65_536, "TOOLCALL_ONCE_MAX_ANSWER";
        /// The most bytes of all answers to calls with a key, and of those to calls without. A
        /// principal has an eighth of each. Default 67,108,864.
        max_bytes: u64 = 64 << 20, "TOOLCALL_ONCE_MAX_BYTES";
    }

    /// Answers to keep: `[cache]`. For [`Settings::cache_layer`]: `StackBuilder::with_layer` adds
    /// it to a stack. See [`cache`](crate::cache). No layer without tools.
    cache: CacheSettings, CachePart {
        /// The flat names of tools with answers to keep: tools that only read. Default: none.
        tools: Vec<String> = Vec::new(), "TOOLCALL_CACHE_TOOLS";
        /// The time for which an answer is kept. Required if there are tools. Default: none.
        ttl: Option<Duration> = None, as "duration", "TOOLCALL_CACHE_TTL";
        /// The most answers that are kept, an eighth of them for each principal. Default 1,000.
        max_keys: usize = 1_000, "TOOLCALL_CACHE_MAX_KEYS";
        /// The most bytes of an answer that is kept. Default 65,536.
        max_answer: u64 = 65_536, "TOOLCALL_CACHE_MAX_ANSWER";
        /// The most bytes of all answers, an eighth of them for each principal. Default 67,108,864.
        max_bytes: u64 = 64 << 20, "TOOLCALL_CACHE_MAX_BYTES";
    }

    /// Waits for jobs: `[poll]`. For [`Settings::poll_layer`], which is in no stack by itself.
    poll: PollSettings, PollPart {
        /// The time before the first poll. Default 1 s.
        interval: Duration = secs(1), as "duration", "TOOLCALL_POLL_INTERVAL";
        /// The factor by which each wait is longer than the one before, at least 1. Default 1.5.
        factor: f64 = 1.5, "TOOLCALL_POLL_FACTOR";
        /// The longest time between two polls. Default 30 s.
        cap: Duration = secs(30), as "duration", "TOOLCALL_POLL_CAP";
        /// The most polls of one call. Default 60.
        polls: u32 = 60, "TOOLCALL_POLL_POLLS";
        /// The longest time that a call waits for its job. Default: as long as its deadline and the
        /// polls allow.
        budget: Option<Duration> = None, as "duration", "TOOLCALL_POLL_BUDGET";
        /// Cancels a job when no call waits for it any more. Default: yes.
        cancel: bool = true, "TOOLCALL_POLL_CANCEL";
    }

    /// Settings of all HTTP tools: `[http]`. For `HttpTool::with_settings` of the crate
    /// `tower-toolcall-http`.
    /// `[timeout]` limits the time of a call. The client sets connections and redirects, and should
    /// follow none.
    http: HttpSettings, HttpPart {
        /// The most bytes of an answer. Default 1 MiB.
        max_bytes: usize = 1 << 20, "TOOLCALL_HTTP_MAX_BYTES";
        /// Lets undefined variables of a template print nothing. Default: no, they are errors.
        empty_undefined: bool = false, "TOOLCALL_HTTP_EMPTY_UNDEFINED";
        /// Sends idempotency keys without quotes. Default: no.
        bare_idempotency_key: bool = false, "TOOLCALL_HTTP_BARE_IDEMPOTENCY_KEY";
    }

    /// Breakers and rate limits that processes share: `[shared]`. A stack does not read it:
    /// `SharedState::from_settings` of `tower-toolcall-redis` does, and checks it. Without a URL
    /// nothing is shared.
    shared: SharedSettings, SharedPart {
        /// The URL of the Redis or Valkey server: `redis://user:password@host:6379`, `rediss://..`,
        /// `unix:///path`. A password is never shown or written. Default: none.
        url: Option<ServerUrl> = None, "TOOLCALL_SHARED_URL";
        /// The namespace of the processes that share. Default: `default`.
        namespace: String = "default".to_owned(), "TOOLCALL_SHARED_NAMESPACE";
        /// The longest random addition to an open period that is taken over, at most an hour.
        /// Default 5 s.
        grace: Duration = secs(5), as "duration", "TOOLCALL_SHARED_GRACE";
        /// The longest time between two exchanges with the server, 10 ms to an hour. Default 1 s.
        resync: Duration = secs(1), as "duration", "TOOLCALL_SHARED_RESYNC";
    }

    /// The source of tokens for tools: `[token]`. For `token::layer_from_settings` of the crate
    /// `tower-toolcall-http`; the layer is in no stack by itself. The client's secret is in a file,
    /// or in the variable `TOOLCALL_TOKEN_CLIENT_SECRET`, which takes precedence.
    token: TokenSettings, TokenPart {
        /// The URL of the identity provider's token endpoint: `https://`, or `http://` on this
        /// machine. Default: none, and no tokens.
        endpoint: Option<String> = None, "TOOLCALL_TOKEN_ENDPOINT";
        /// The id by which this program signs in. Default: none, an error where there is an
        /// `endpoint`.
        client_id: Option<String> = None, "TOOLCALL_TOKEN_CLIENT_ID";
        /// The file that has the secret, without the newline at its end. Default: none.
        client_secret_file: Option<PathBuf> = None, "TOOLCALL_TOKEN_CLIENT_SECRET_FILE";
        /// The way in which this program signs in: `basic`, `post` or `public`. Default: `basic`.
        auth: TokenAuth = TokenAuth::Basic, "TOOLCALL_TOKEN_AUTH";
        /// The time before its end in which a token is not used any more; half of its lifetime at
        /// most. Default 30 s.
        leeway: Duration = secs(30), as "duration", "TOOLCALL_TOKEN_LEEWAY";
        /// The lifetime of a token if its provider does not give it. Default 300 s.
        default_lifetime: Duration = secs(300), as "duration", "TOOLCALL_TOKEN_DEFAULT_LIFETIME";
        /// The longest time that a token is used. Default 24 h.
        max_lifetime: Duration = secs(24 * 3600), as "duration", "TOOLCALL_TOKEN_MAX_LIFETIME";
        /// The most tokens that are kept, 1 to 16,777,216. Default 10,000.
        max_keys: usize = 10_000, "TOOLCALL_TOKEN_MAX_KEYS";
        /// The time that the provider has for one token. Default 5 s.
        timeout: Duration = secs(5), as "duration", "TOOLCALL_TOKEN_TIMEOUT";
    } + client_secret: ClientSecret;

    /// Timeouts of attempts: `[timeout]`. See [`TimeoutLayer`](crate::timeout::TimeoutLayer).
    timeout: TimeoutSettings, TimeoutPart {
        /// The timeout of each tool without one of its own. Default 30 s.
        default: Duration = secs(30), as "duration", "TOOLCALL_TIMEOUT";
        /// The longest time without a report of progress. Default: none, the timeout alone holds.
        /// If it is set, each call allocates.
        idle_timeout: Option<Duration> = None, as "duration", "TOOLCALL_IDLE_TIMEOUT";
        /// The part of its timeout above which a call is reported as slow, above 0 and at most 1.
        /// Default 0.8.
        slow_fraction: f64 = 0.8, "TOOLCALL_SLOW_FRACTION";
    }

    /// Deadlines of whole calls, with all waits and attempts: `[deadline]`. See
    /// [`DeadlineLayer`](crate::deadline::DeadlineLayer).
    deadline: DeadlineSettings, DeadlinePart {
        /// The time for each call. Default: none; the deadline that a call brings along is kept.
        budget: Option<Duration> = None, as "duration", "TOOLCALL_DEADLINE_BUDGET";
        /// The reserve that is kept back from the deadline that a call brings along. Default 500
        /// ms; of a remote deadline at most a tenth.
        reserve: Duration = RESERVE, as "duration", "TOOLCALL_DEADLINE_RESERVE";
    }

    /// The units that callers may use: `[quota]`. See [`QuotaLayer`](crate::quota::QuotaLayer).
    quota: QuotaSettings, QuotaPart {
        /// The units per `period`; a call costs one. Default: none, and no layer.
        units: Option<u32> = None, "TOOLCALL_QUOTA_UNITS";
        /// The time in which as many units come back. Default 60 s.
        period: Duration = secs(60), as "duration", "TOOLCALL_QUOTA_PERIOD";
        /// The units that can be used together, after a time without calls. Default: those of a
        /// period.
        burst: Option<u32> = None, "TOOLCALL_QUOTA_BURST";
        /// The longest time that a call waits for its turn. Default 30 s.
        max_wait: Duration = secs(30), as "duration", "TOOLCALL_QUOTA_MAX_WAIT";
        /// Refuses calls that would have to wait. Default: no.
        fail_fast: bool = false, "TOOLCALL_QUOTA_FAIL_FAST";
        /// The calls that share a quota: `tool`, `tool_name`, `server` or `agent`. Default: `tool`.
        key: KeyBy = KeyBy::Tool, "TOOLCALL_QUOTA_KEY";
        /// The most keys that are kept. Default 10,000.
        max_keys: usize = DEFAULT_MAX_KEYS, "TOOLCALL_QUOTA_MAX_KEYS";
    }

    /// Retries: `[retry]`. See [`RetryPolicy`](crate::retry::RetryPolicy).
    retry: RetrySettings, RetryPart {
        /// Sends failed calls again: puts the layer into the stack, if it has anything to do.
        /// Default: yes. Without it the rate-limit layer still repeats a call after a rate limit.
        enabled: bool = true, "TOOLCALL_RETRY_ENABLED";
        /// The most attempts of a call, the first included. Default 3. With 1 this layer repeats
        /// nothing; the rate-limit layer still sends a call that met a limit up to
        /// `rate_limit.attempts` times.
        attempts: u32 = 3, "TOOLCALL_RETRY_ATTEMPTS";
        /// The delay before the second attempt. Default 1 s.
        base: Duration = secs(1), as "duration", "TOOLCALL_RETRY_BASE";
        /// The factor by which each delay is longer than the one before, 1 to 1,000. Default 2.
        factor: f64 = 2.0, "TOOLCALL_RETRY_FACTOR";
        /// The longest delay, before jitter. Default 30 s.
        cap: Duration = secs(30), as "duration", "TOOLCALL_RETRY_CAP";
        /// The random part of a delay: `none`, `upwards`, `equal` or `full`. Default: `upwards`, a
        /// quarter more at most. With `none` the waits after rate limits are exact as well.
        jitter: Jitter = Jitter::Upwards, "TOOLCALL_RETRY_JITTER";
        /// The most retries per call of a tool, 0 to 1,000. Default 0.2.
        budget_ratio: f64 = 0.2, "TOOLCALL_RETRY_BUDGET_RATIO";
        /// The retries of a tool in 20 s that are always allowed. Default 10.
        budget_minimum: u32 = 10, "TOOLCALL_RETRY_BUDGET_MINIMUM";
        /// The most retries per call, over the calls of all tools, 0 to 1,000; or `budget_minimum`
        /// in 20 s. Default: no limit beside those of the tools.
        total_budget_ratio: Option<f64> = None, "TOOLCALL_RETRY_TOTAL_BUDGET_RATIO";
        /// Lets a tool run twice unless it is declared unsafe. Default: no.
        assume_replay_safe: bool = false, "TOOLCALL_RETRY_ASSUME_REPLAY_SAFE";
    }

    /// Waits after rate limits: `[rate_limit]`. See
    /// [`RateLimitBackoffLayer`](crate::rate_limit::RateLimitBackoffLayer).
    rate_limit: RateLimitSettings, RateLimitPart {
        /// Lets all calls of a key wait after a rate limit: puts the layer into the stack. Default:
        /// yes. Without it the retry layer still waits after a rate limit, each call for itself.
        enabled: bool = true, "TOOLCALL_RATE_LIMIT_ENABLED";
        /// The wait after a rate limit without a hint, for the retry layer as well; at most a day.
        /// Default 30 s.
        default_cooldown: Duration = secs(30), as "duration", "TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN";
        /// The longest wait; a server that asks for more is not obeyed, and not hurried either.
        /// Default 300 s. Where the retry layer repeats a call, it is for each of its waits; else
        /// for all waits of a call together.
        max_wait: Duration = secs(300), as "duration", "TOOLCALL_RATE_LIMIT_MAX_WAIT";
        /// The longest cooldown that calls share, at most a day; the call that met a longer one
        /// still comes back no earlier than the server asked. Default 300 s.
        max_cooldown: Duration = secs(300), as "duration", "TOOLCALL_RATE_LIMIT_MAX_COOLDOWN";
        /// Lets a limit that is known by an error's text alone hold other calls back, for
        /// `default_cooldown` at most. Default: no; it delays its own call.
        text_limits: bool = false, "TOOLCALL_RATE_LIMIT_TEXT_LIMITS";
        /// The most attempts of a call that meets the limit itself, where no retry layer repeats
        /// it. Default 3.
        attempts: u32 = 3, "TOOLCALL_RATE_LIMIT_ATTEMPTS";
        /// Refuses calls of a cooling key, which wait otherwise. Then no layer repeats a call that
        /// met the limit, the retry layer included. Default: no.
        fail_fast: bool = false, "TOOLCALL_RATE_LIMIT_FAIL_FAST";
        /// The calls that share a limit: `tool`, `tool_name`, `server` or `agent`. Default: `tool`.
        key: KeyBy = KeyBy::Tool, "TOOLCALL_RATE_LIMIT_KEY";
        /// Gives each principal a limit of its own, for upstreams with a limit per user. Default:
        /// yes if `token.endpoint` is set, and limits are not shared with other processes.
        per_principal: Option<bool> = None, "TOOLCALL_RATE_LIMIT_PER_PRINCIPAL";
        /// The most keys that are kept. Default 10,000.
        max_keys: usize = DEFAULT_MAX_KEYS, "TOOLCALL_RATE_LIMIT_MAX_KEYS";
    }

    /// The registry of available servers: `[health]`. See [`Health`](crate::health::Health).
    health: HealthSettings, HealthPart {
        /// Records which servers are available: puts the layer into the stack. Default: no. Around
        /// a router with flat names it would not know the servers: leave it off, and give the
        /// [registry](super::StackLayer::health) to the router.
        enabled: bool = false, "TOOLCALL_HEALTH_ENABLED";
        /// The timeouts or connection failures in a row that make a server unavailable. Default 3.
        threshold: u32 = 3, "TOOLCALL_HEALTH_THRESHOLD";
        /// Refuses calls to an unavailable server, except probes. There has to be
        /// [evidence](crate::health#refusing-calls) against the server, and not only against one
        /// of its tools. Default: no.
        refusal: bool = false, "TOOLCALL_HEALTH_REFUSAL";
        /// The time for which calls are refused before one is let through as a probe. Default 30 s.
        probe_period: Duration = secs(30), as "duration", "TOOLCALL_HEALTH_PROBE_PERIOD";
        /// The most servers that are kept. Default 1,000.
        max_servers: usize = 1000, "TOOLCALL_HEALTH_MAX_SERVERS";
    }

    /// Limits of calls that run together: `[concurrency]`. See
    /// [`ConcurrencyLimitLayer`](crate::concurrency_limit::ConcurrencyLimitLayer).
    concurrency: ConcurrencySettings, ConcurrencyPart {
        /// The most calls of a key that run together. Default: none, and no layer.
        max: Option<usize> = None, "TOOLCALL_CONCURRENCY_MAX";
        /// The most calls of a key that wait for their turn. Default 64.
        max_queue: usize = 64, "TOOLCALL_CONCURRENCY_MAX_QUEUE";
        /// The calls that share a limit: `tool`, `tool_name`, `server` or `agent`. Default: `tool`.
        key: KeyBy = KeyBy::Tool, "TOOLCALL_CONCURRENCY_KEY";
        /// The most keys that are kept. Default 10,000.
        max_keys: usize = DEFAULT_MAX_KEYS, "TOOLCALL_CONCURRENCY_MAX_KEYS";
    }

    /// Circuit breakers: `[circuit_breaker]`. See
    /// [`CircuitBreakerLayer`](crate::circuit_breaker::CircuitBreakerLayer).
    ///
    /// There are three ways to open. By default `threshold` failures in a row; with a `window`, so
    /// many in a row within that time, or so many in all if `success_resets` is false; with a
    /// `failure_rate` or a `slow_call_rate`, that share of the calls of the last `window`, or of
    /// the last `window_calls`, and `threshold` is not looked at.
    circuit_breaker: CircuitBreakerSettings, CircuitBreakerPart {
        /// Stops calls of a broken tool: puts the layer into the stack. Default: yes.
        enabled: bool = true, "TOOLCALL_CIRCUIT_BREAKER_ENABLED";
        /// The failures that open a breaker. Default 5. Below `retry.attempts` one call can open
        /// it, and its last error is then [`CircuitOpen`](crate::ErrorKind::CircuitOpen).
        threshold: u32 = 5, "TOOLCALL_CIRCUIT_BREAKER_THRESHOLD";
        /// The time within which failures count. Default: none, so that any number of hours may lie
        /// between them. Calls one after the other that time out open it if `(threshold - 1) x
        /// timeout < window`.
        window: Option<Duration> = None, as "duration", "TOOLCALL_CIRCUIT_BREAKER_WINDOW";
        /// Resets the count of failures at a success. Default: yes. If not, `window` has to be set.
        success_resets: bool = true, "TOOLCALL_CIRCUIT_BREAKER_SUCCESS_RESETS";
        /// The time for which a breaker stays open before it admits a probe. Default 60 s.
        open_for: Duration = secs(60), as "duration", "TOOLCALL_CIRCUIT_BREAKER_RESET";
        /// The most probes that run together. Default 1.
        probes: u32 = 1, "TOOLCALL_CIRCUIT_BREAKER_PROBES";
        /// The calls that may be a probe: `any_call`, or `safe_calls` for calls that may run twice.
        /// Default: `any_call`.
        probe: Probe = Probe::AnyCall, "TOOLCALL_CIRCUIT_BREAKER_PROBE";
        /// The successful probes that close the breaker. Default: as many as may run together.
        successes: Option<u32> = None, "TOOLCALL_CIRCUIT_BREAKER_SUCCESSES";
        /// The longest time that a call waits for the result of a probe. Default: none, it is
        /// refused.
        probe_wait: Option<Duration> = None, as "duration", "TOOLCALL_CIRCUIT_BREAKER_PROBE_WAIT";
        /// The share of failures that opens a breaker, above 0 and at most 1. Default: not looked
        /// at.
        failure_rate: Option<f64> = None, "TOOLCALL_CIRCUIT_BREAKER_FAILURE_RATE";
        /// The share of slow calls that opens a breaker, above 0 and at most 1. Default: not looked
        /// at.
        slow_call_rate: Option<f64> = None, "TOOLCALL_CIRCUIT_BREAKER_SLOW_CALL_RATE";
        /// The time from which on a call is slow, for `slow_call_rate`. Default: none.
        slow_call: Option<Duration> = None, as "duration", "TOOLCALL_CIRCUIT_BREAKER_SLOW_CALL";
        /// The fewest calls of which a share counts. Default: 10, or all of `window_calls` if these
        /// are fewer.
        minimum_calls: Option<u32> = None, "TOOLCALL_CIRCUIT_BREAKER_MINIMUM_CALLS";
        /// The number of latest calls of which the shares are, instead of `window`. Default: none.
        window_calls: Option<u32> = None, "TOOLCALL_CIRCUIT_BREAKER_WINDOW_CALLS";
        /// The key of a breaker: `tool`, `tool_name`, `server` or `agent`. Default: `tool`.
        key: KeyBy = KeyBy::Tool, "TOOLCALL_CIRCUIT_BREAKER_KEY";
        /// The most breakers that are kept. Default 10,000.
        max_keys: usize = DEFAULT_MAX_KEYS, "TOOLCALL_CIRCUIT_BREAKER_MAX_KEYS";
        /// Counts an answer that is an error in the tool's own words (MCP's `isError`) as a
        /// failure, for a classifier that sees it. Default: no.
        reported_failures: bool = false, "TOOLCALL_CIRCUIT_BREAKER_REPORTED_FAILURES";
        /// The scope of a failure with an inferred or unknown kind: `per_principal`, `shared` or
        /// `ignored`. See [`WeakFailures`]. Default: `per_principal`.
        weak_failures: WeakFailures = WeakFailures::PerPrincipal, "TOOLCALL_CIRCUIT_BREAKER_WEAK_FAILURES";
    }

    /// The settings of calls one after the other within one budget: `[sequence]`.
    sequence: SequenceSettings, SequencePart {
        /// The time for all calls of a sequence together. Default: none.
        budget: Option<Duration> = None, as "duration", "TOOLCALL_SEQUENCE_BUDGET";
        /// The reserve that is kept back from it for the time after the calls. Default 500 ms. It
        /// is kept once: the deadline layer of the stack does not keep its own besides.
        reserve: Duration = RESERVE, as "duration", "TOOLCALL_SEQUENCE_RESERVE";
    }

    /// Calls at the same time: `[parallel]`.
    parallel: ParallelSettings, ParallelPart {
        /// The most calls that run together. Default: all of them.
        limit: Option<NonZeroUsize> = None, "TOOLCALL_PARALLEL_LIMIT";
        /// The time for all calls of a batch together. Default: none.
        budget: Option<Duration> = None, as "duration", "TOOLCALL_PARALLEL_BUDGET";
    }

    /// Secrets, and bounds of shown texts: `[sanitize]`. See [`Rules`](crate::redact::Rules).
    ///
    /// The built-in words apply too. A harmless word takes precedence over a sensitive one, also
    /// over a built-in one.
    sanitize: SanitizeSettings, SanitizePart {
        /// The most characters of a string; the rest is cut. Default 200.
        max_string: usize = MAX_STRING, "TOOLCALL_SANITIZE_MAX_STRING";
        /// The most levels that are shown. Default 16.
        max_depth: usize = MAX_DEPTH, "TOOLCALL_SANITIZE_MAX_DEPTH";
        /// The most values that are shown. Default 1,000.
        max_nodes: usize = MAX_NODES, "TOOLCALL_SANITIZE_MAX_NODES";
        /// Parts of keys with a secret value, beside the built-in ones. Default: none.
        sensitive_keys: Vec<String> = Vec::new(), "TOOLCALL_SANITIZE_SENSITIVE_KEYS";
        /// Words that are taken out of a key before it is judged, beside the built-in ones. With
        /// `idempotency_key` the key of that name is shown, and `api_key` is not. Default: none.
        harmless_keys: Vec<String> = Vec::new(), "TOOLCALL_SANITIZE_HARMLESS_KEYS";
    }

    /// Spans, and what the span of a call shows: `[trace]`. See
    /// [`TraceLayer`](crate::trace::TraceLayer).
    trace: TraceSettings, TracePart {
        /// Shows the redacted arguments. Default: yes.
        arguments: bool = true, "TOOLCALL_TRACE_ARGUMENTS";
        /// Shows the redacted answer. Default: no.
        output: bool = false, "TOOLCALL_TRACE_OUTPUT";
        /// Gives each attempt a span of its own inside it. Default: no.
        attempts: bool = false, "TOOLCALL_TRACE_ATTEMPTS";
    }
}
