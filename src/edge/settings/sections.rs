//! The one table of settings: a row is a key with its type and default, its variable, and what that
//! means.

use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    KeyBy, Preset, ProbeBy, ServerUrl, Settings, TokenAuth, ToolSettings, Variable, duration,
    suggest::Suggest, token::ClientSecret,
};
use crate::{
    circuit_breaker::WeakFailures,
    key::DEFAULT_MAX_KEYS,
    kit::backoff::Jitter,
    redact::{MAX_DEPTH, MAX_NODES, MAX_STRING},
};

/// Makes, for each section, the struct with its defaults and the part of a file, in which every key
/// may be missing; and for all of them the [`File`], the table of [`VARIABLES`], and the way from
/// settings to a file and back.
///
/// A row is `key: type = default, "TOOLCALL_VARIABLE", "what it means";`. `as "module"` names a
/// module for serde's `with`. A field that is no setting, with a way of its own to be read and
/// added, stands behind them as `+ field: type;`.
macro_rules! settings {
    ($(
        $(#[$about:meta])*
        $section:ident: $settings:ident, $part:ident {$(
            $(#[$doc:meta])*
            $key:ident: $type:ty = $default:expr, $(as $form:literal,)? $name:literal, $help:literal;
        )*} $(+ $field:ident: $of:ty;)?
    )*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Debug, PartialEq)]
            #[non_exhaustive]
            pub struct $settings {$(
                $(#[$doc])*
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
                    let (part, default) = ($part::deserialize(Suggest(from))?, Self::default());
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
                help: $help,
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
                            let is_set = all || value != default || self.explicit.0.contains(key);
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
                    self.explicit.0.insert(concat!(stringify!($section), ".", stringify!($key)));
                })*)*
                $($(self.$section.$field.add(file.$section.$field);)?)*
                self.tools.extend(file.tools);
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
        enabled: bool = true, "TOOLCALL_VALIDATE_ENABLED", "whether arguments are checked against the schemas of the stack";
        /// Changes arguments that only have the wrong type: `"5"` for 5. Default: no.
        repair: bool = false, "TOOLCALL_VALIDATE_REPAIR", "whether arguments are changed that only have the wrong type";
        /// Refuses calls that cannot be checked in full: their schema was refused, or their
        /// arguments are too large for it. Default: no.
        strict: bool = false, "TOOLCALL_VALIDATE_STRICT", "whether calls are refused that cannot be checked in full";
        /// The beginning of the error's message, where that of another system is expected. Default:
        /// none.
        heading: Option<String> = None, "TOOLCALL_VALIDATE_HEADING", "how the message about wrong arguments begins";
    }

    /// The guard against callers that repeat the same failing call: `[repeat_guard]`. See
    /// [`RepeatGuardLayer`](crate::repeat_guard::RepeatGuardLayer). Calls need a session id or an
    /// agent id.
    repeat_guard: RepeatGuardSettings, RepeatGuardPart {
        /// Puts the layer into the stack. Default: no.
        enabled: bool = false, "TOOLCALL_REPEAT_GUARD_ENABLED", "whether a call that fails again and again is refused";
        /// The failures of the same call in a row after which it is refused. Default 3.
        failures: u32 = 3, "TOOLCALL_REPEAT_GUARD_FAILURES", "how often in a row it has to fail";
        /// The time for which it is refused, at most a day. Default 60 s.
        window: Duration = secs(60), as "duration", "TOOLCALL_REPEAT_GUARD_WINDOW", "how long it is refused before it is let through once";
        /// The most sessions and agents that are kept. Default 10,000.
        max_keys: usize = DEFAULT_MAX_KEYS, "TOOLCALL_REPEAT_GUARD_MAX_KEYS", "how many sessions and agents are kept";
    }

    /// Answers that are too long for a model: `[fit]`. For [`Settings::fit_layer`]: it is in a
    /// stack by `StackBuilder::with_fit`.
    fit: FitSettings, FitPart {
        /// Shortens answers. Default: no.
        enabled: bool = false, "TOOLCALL_FIT_ENABLED", "whether answers that are too long for a model are shortened";
        /// The most characters of an answer, at least 1,000. Default 40,000.
        max_chars: usize = 40_000, "TOOLCALL_FIT_MAX_CHARS", "how many characters an answer may have";
    }

    /// Calls that are allowed, denied, or need an approval: `[policy]`. See
    /// [`policy`](crate::policy) for the patterns. `deny` beats `ask`, and `ask` beats `allow`.
    /// Where nothing is set, no policy is in the stack.
    policy: PolicySettings, PolicyPart {
        /// Calls of these tools are denied. Default: none.
        deny: Vec<String> = Vec::new(), "TOOLCALL_POLICY_DENY", "patterns of tools whose calls are denied, separated by commas";
        /// Calls of these tools need an approval, by `StackBuilder::with_approver`. Default: none.
        ask: Vec<String> = Vec::new(), "TOOLCALL_POLICY_ASK", "patterns of tools whose calls need an approval";
        /// Calls of these tools are allowed. Default: none.
        allow: Vec<String> = Vec::new(), "TOOLCALL_POLICY_ALLOW", "patterns of tools whose calls are allowed";
        /// Denies calls of all other tools. Default: no.
        deny_by_default: bool = false, "TOOLCALL_POLICY_DENY_BY_DEFAULT", "whether calls of all other tools are denied";
        /// The longest time that a call waits for its approval. Default 5 min.
        approval_timeout: Duration = secs(300), as "duration", "TOOLCALL_POLICY_APPROVAL_TIMEOUT", "how long a call waits for its approval";
    }

    /// Calls that are made again and do not run again: `[once]`. For [`Settings::once_layer`]: it
    /// is in a stack by `StackBuilder::with_once`. See [`once`](crate::once).
    once: OnceSettings, OncePart {
        /// Puts the layer into the stack. Default: no.
        enabled: bool = false, "TOOLCALL_ONCE_ENABLED", "whether a call that is made again does not run again";
        /// The time for which a caller's key is kept. Default 24 h.
        ttl: Duration = secs(24 * 3600), as "duration", "TOOLCALL_ONCE_TTL", "how long the answer to a call with a key is kept";
        /// The time in which a call without a key is not run again with the same arguments. Default
        /// 10 min; zero: it always runs.
        repeat_within: Duration = secs(600), as "duration", "TOOLCALL_ONCE_REPEAT_WITHIN", "how long a call without a key is not run again with the same arguments; 0: it is";
        /// The most keys that are kept, an eighth of them for each principal. Default 10,000.
        max_keys: usize = DEFAULT_MAX_KEYS, "TOOLCALL_ONCE_MAX_KEYS", "how many keys of calls are kept, an eighth of them for each principal";
        /// The most bytes of an answer that is kept. Default 65,536.
        max_answer: u64 = 65_536, "TOOLCALL_ONCE_MAX_ANSWER", "how many bytes an answer that is kept may have";
        /// The most bytes of all answers to calls with a key, and of those to calls without. A
        /// principal has an eighth of each. Default 67,108,864.
        max_bytes: u64 = 64 << 20, "TOOLCALL_ONCE_MAX_BYTES", "how many bytes the answers to calls with a key have together, and those to calls without; an eighth for each principal";
    }

    /// Answers that are kept: `[cache]`. For [`Settings::cache_layer`]: it is in a stack by
    /// `StackBuilder::with_cache`. See [`cache`](crate::cache). Without a tool there is no layer.
    cache: CacheSettings, CachePart {
        /// The flat names of tools that only read. Default: none.
        tools: Vec<String> = Vec::new(), "TOOLCALL_CACHE_TOOLS", "tools that only read, and whose answers are kept, separated by commas";
        /// The time for which an answer is kept. Required if there are tools. Default: none.
        ttl: Option<Duration> = None, as "duration", "TOOLCALL_CACHE_TTL", "how long an answer is kept";
        /// The most answers that are kept, an eighth of them for each principal. Default 1,000.
        max_keys: usize = 1_000, "TOOLCALL_CACHE_MAX_KEYS", "how many answers are kept, an eighth of them for each principal";
        /// The most bytes of an answer that is kept. Default 65,536.
        max_answer: u64 = 65_536, "TOOLCALL_CACHE_MAX_ANSWER", "how many bytes an answer may have that is kept";
        /// The most bytes of all answers, an eighth of them for each principal. Default 67,108,864.
        max_bytes: u64 = 64 << 20, "TOOLCALL_CACHE_MAX_BYTES", "how many bytes the answers have together, an eighth of them for each principal";
    }

    /// Waits for jobs: `[poll]`. For [`Settings::poll_layer`], which is in no stack by itself.
    poll: PollSettings, PollPart {
        /// The time before the first poll. Default 1 s.
        interval: Duration = secs(1), as "duration", "TOOLCALL_POLL_INTERVAL", "the time before the first poll of a job";
        /// The factor by which each wait is longer than the one before, at least 1. Default 1.5.
        factor: f64 = 1.5, "TOOLCALL_POLL_FACTOR", "how many times longer the wait gets with each poll";
        /// The longest time between two polls. Default 30 s.
        cap: Duration = secs(30), as "duration", "TOOLCALL_POLL_CAP", "the longest time between two polls";
        /// The most polls of one call. Default 60.
        polls: u32 = 60, "TOOLCALL_POLL_POLLS", "how often a job is asked for";
        /// The longest time that a call waits for its job. Default: as long as its deadline and the
        /// polls allow.
        budget: Option<Duration> = None, as "duration", "TOOLCALL_POLL_BUDGET", "how long a job is waited for";
        /// Cancels a job when no call waits for it any more. Default: yes.
        cancel: bool = true, "TOOLCALL_POLL_CANCEL", "whether a job is cancelled for which nobody waits any more";
    }

    /// Settings of all HTTP tools: `[http]`. For `Settings::http_tool` (feature `http-tool`).
    /// `[timeout]` limits the time of a call. The client sets connections and redirects, and should
    /// follow none.
    http: HttpSettings, HttpPart {
        /// The most bytes of an answer. Default 1 MiB.
        max_bytes: usize = 1 << 20, "TOOLCALL_HTTP_MAX_BYTES", "how many bytes the answer of an HTTP tool may have";
        /// Lets undefined variables of a template print nothing. Default: no, they are errors.
        empty_undefined: bool = false, "TOOLCALL_HTTP_EMPTY_UNDEFINED", "whether undefined variables of a template print nothing";
        /// Sends idempotency keys without quotes. Default: no.
        bare_idempotency_key: bool = false, "TOOLCALL_HTTP_BARE_IDEMPOTENCY_KEY", "whether idempotency keys are sent without quotes";
    }

    /// Breakers and rate limits that processes share: `[shared]`. For `Settings::shared` (feature
    /// `redis`); without a URL nothing is shared.
    shared: SharedSettings, SharedPart {
        /// The URL of the Redis or Valkey server: `redis://user:password@host:6379`, `rediss://..`,
        /// `unix:///path`. A password is never shown or written. Default: none.
        url: Option<ServerUrl> = None, "TOOLCALL_SHARED_URL", "the URL of the Redis server over which processes share breakers and rate limits";
        /// The namespace of the processes that share. Default: `default`.
        namespace: String = "default".to_owned(), "TOOLCALL_SHARED_NAMESPACE", "the namespace on that server";
        /// The longest random addition to an open period that is taken over, at most an hour.
        /// Default 5 s.
        grace: Duration = secs(5), as "duration", "TOOLCALL_SHARED_GRACE", "the longest random addition to an open period that is taken over";
        /// The longest time between two exchanges with the server, 10 ms to an hour. Default 1 s.
        resync: Duration = secs(1), as "duration", "TOOLCALL_SHARED_RESYNC", "the longest time between two exchanges with the server";
    }

    /// The source of tokens for tools: `[token]`. For `Settings::token_layer` (feature `token`),
    /// which is in no stack by itself. The client's secret is in a file, or in the variable
    /// `TOOLCALL_TOKEN_CLIENT_SECRET`, which takes precedence.
    token: TokenSettings, TokenPart {
        /// The URL of the identity provider's token endpoint: `https://`, or `http://` on this
        /// machine. Default: none, and no tokens.
        endpoint: Option<String> = None, "TOOLCALL_TOKEN_ENDPOINT", "the URL of the identity provider's token endpoint";
        /// The id by which this program signs in. Default: none, an error where there is an
        /// `endpoint`.
        client_id: Option<String> = None, "TOOLCALL_TOKEN_CLIENT_ID", "the id by which this program signs in there";
        /// The file that has the secret, without the newline at its end. Default: none.
        client_secret_file: Option<PathBuf> = None, "TOOLCALL_TOKEN_CLIENT_SECRET_FILE", "the file that has its secret";
        /// The way in which this program signs in: `basic`, `post` or `public`. Default: `basic`.
        auth: TokenAuth = TokenAuth::Basic, "TOOLCALL_TOKEN_AUTH", "how this program signs in: basic, post or public";
        /// The time before its end in which a token is not used any more; half of its lifetime at
        /// most. Default 30 s.
        leeway: Duration = secs(30), as "duration", "TOOLCALL_TOKEN_LEEWAY", "how long before its end a token is not used any more";
        /// The lifetime of a token if its provider does not give it. Default 300 s.
        default_lifetime: Duration = secs(300), as "duration", "TOOLCALL_TOKEN_DEFAULT_LIFETIME",
            "how long a token is valid whose provider does not say so";
        /// The longest time that a token is used. Default 24 h.
        max_lifetime: Duration = secs(24 * 3600), as "duration", "TOOLCALL_TOKEN_MAX_LIFETIME", "how long a token is used at most";
        /// The most tokens that are kept, 1 to 16,777,216. Default 10,000.
        max_keys: usize = 10_000, "TOOLCALL_TOKEN_MAX_KEYS", "how many tokens are kept";
        /// The time that the provider has for one token. Default 5 s.
        timeout: Duration = secs(5), as "duration", "TOOLCALL_TOKEN_TIMEOUT", "how long the provider has for one token";
    } + client_secret: ClientSecret;

    /// Timeouts of attempts: `[timeout]`. See [`TimeoutLayer`](crate::timeout::TimeoutLayer).
    timeout: TimeoutSettings, TimeoutPart {
        /// The timeout of each tool without one of its own. Default 30 s.
        default: Duration = secs(30), as "duration", "TOOLCALL_TIMEOUT",
            "how long one attempt may take";
        /// The longest time without a report of progress. Default: none, the timeout alone holds.
        /// If it is set, each call allocates.
        idle_timeout: Option<Duration> = None, as "duration", "TOOLCALL_IDLE_TIMEOUT",
            "how long a tool may go without reporting progress";
        /// The part of its timeout above which a call is reported as slow, above 0 and at most 1.
        /// Default 0.8.
        slow_fraction: f64 = 0.8, "TOOLCALL_SLOW_FRACTION",
            "the part of its timeout above which a call is reported as slow";
    }

    /// Deadlines of whole calls, with all waits and attempts: `[deadline]`. See
    /// [`DeadlineLayer`](crate::deadline::DeadlineLayer).
    deadline: DeadlineSettings, DeadlinePart {
        /// The time for each call. Default: none; the deadline that a call brings along is kept.
        budget: Option<Duration> = None, as "duration", "TOOLCALL_DEADLINE_BUDGET",
            "how long a whole call may take, with all attempts and waits";
        /// The reserve that is kept back from the deadline that a call brings along. Default 500
        /// ms; of a deadline that came over a wire at most a tenth.
        reserve: Duration = RESERVE, as "duration", "TOOLCALL_DEADLINE_RESERVE",
            "what is kept back from a deadline that a call brings along";
    }

    /// The units that callers may use: `[quota]`. See [`QuotaLayer`](crate::quota::QuotaLayer).
    quota: QuotaSettings, QuotaPart {
        /// The units per `period`; a call costs one. Default: none, and no layer.
        tokens: Option<u32> = None, "TOOLCALL_QUOTA_TOKENS", "how many calls there may be per period; none: any number";
        /// The time in which as many units come back. Default 60 s.
        period: Duration = secs(60), as "duration", "TOOLCALL_QUOTA_PERIOD", "the time in which as many calls are granted again";
        /// The units that can be used together, after a time without calls. Default: those of a
        /// period.
        burst: Option<u32> = None, "TOOLCALL_QUOTA_BURST", "how many calls there may be at once; none: those of a period";
        /// The longest time that a call waits for its turn. Default 30 s.
        max_wait: Duration = secs(30), as "duration", "TOOLCALL_QUOTA_MAX_WAIT", "the longest time that a call waits for its turn";
        /// Refuses calls that would have to wait. Default: no.
        fail_fast: bool = false, "TOOLCALL_QUOTA_FAIL_FAST", "whether calls beyond it are refused at once";
        /// The calls that share a quota: `tool`, `tool_name`, `server` or `agent`. Default: `tool`.
        key: KeyBy = KeyBy::Tool, "TOOLCALL_QUOTA_KEY", "which calls share a quota: tool, tool_name, server or agent";
        /// The most keys that are kept. Default 10,000.
        max_keys: usize = DEFAULT_MAX_KEYS, "TOOLCALL_QUOTA_MAX_KEYS", "how many keys are kept";
    }

    /// Retries: `[retry]`. See [`RetryPolicy`](crate::retry::RetryPolicy).
    retry: RetrySettings, RetryPart {
        /// Puts the layer into the stack, if it has anything to do. Default: yes. Without it the
        /// rate-limit layer still repeats a call after a rate limit.
        enabled: bool = true, "TOOLCALL_RETRY_ENABLED", "whether calls are sent again";
        /// The most attempts of a call, the first included. Default 3. With 1 this layer repeats
        /// nothing; the rate-limit layer still sends a call that met a limit up to
        /// `rate_limit.attempts` times.
        attempts: u32 = 3, "TOOLCALL_RETRY_ATTEMPTS", "how often a call is sent at most, the first time included";
        /// The delay before the second attempt. Default 1 s.
        base: Duration = secs(1), as "duration", "TOOLCALL_RETRY_BASE", "the delay before the second attempt";
        /// The factor by which each delay is longer than the one before, 1 to 1,000. Default 2.
        factor: f64 = 2.0, "TOOLCALL_RETRY_FACTOR", "how much longer each further delay is";
        /// The longest delay, before jitter. Default 30 s.
        cap: Duration = secs(30), as "duration", "TOOLCALL_RETRY_CAP", "what no delay exceeds, before jitter";
        /// The random part of a delay: `none`, `upwards`, `equal` or `full`. Default: `upwards`, a
        /// quarter more at most. With `none` the waits after rate limits are exact as well.
        jitter: Jitter = Jitter::Upwards, "TOOLCALL_RETRY_JITTER",
            "how a delay is made random: none, upwards, equal or full";
        /// The most retries per call of a tool, 0 to 1,000. Default 0.2.
        budget_ratio: f64 = 0.2, "TOOLCALL_RETRY_BUDGET_RATIO", "how many retries there may be per call of a tool";
        /// The retries of a tool in 20 s that are always allowed. Default 10.
        budget_minimum: u32 = 10, "TOOLCALL_RETRY_BUDGET_MINIMUM", "how many retries of a tool there may be in 20 s in any case";
        /// The most retries per call, over the calls of all tools, 0 to 1,000; or `budget_minimum`
        /// in 20 s. Default: no limit beside those of the tools.
        total_budget_ratio: Option<f64> = None, "TOOLCALL_RETRY_TOTAL_BUDGET_RATIO",
            "how many retries there may be per call, over the calls of all tools; none: no limit beside those of the tools";
        /// Lets a tool run twice unless it is declared unsafe. Default: no.
        assume_replay_safe: bool = false, "TOOLCALL_RETRY_ASSUME_REPLAY_SAFE",
            "whether a tool may run twice unless it is declared unsafe";
    }

    /// Waits after rate limits: `[rate_limit]`. See
    /// [`RateLimitBackoffLayer`](crate::rate_limit::RateLimitBackoffLayer).
    rate_limit: RateLimitSettings, RateLimitPart {
        /// Puts the layer into the stack. Default: yes. Without it the retry layer still waits
        /// after a rate limit, each call for itself.
        enabled: bool = true, "TOOLCALL_RATE_LIMIT_ENABLED", "whether all calls of a key wait after a rate limit";
        /// The wait after a rate limit without a hint, for the retry layer as well; at most a day.
        /// Default 30 s.
        default_cooldown: Duration = secs(30), as "duration", "TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN",
            "how long to wait after a rate limit without a hint";
        /// The longest wait; a server that asks for more is not obeyed, and not hurried either.
        /// Default 300 s. Where the retry layer repeats a call, it is for each of its waits; else
        /// for all waits of a call together.
        max_wait: Duration = secs(300), as "duration", "TOOLCALL_RATE_LIMIT_MAX_WAIT",
            "the longest wait, whatever a server asks for";
        /// The longest cooldown that calls share, at most a day; the call that met a longer one
        /// still comes back no earlier than the server asked. Default 300 s.
        max_cooldown: Duration = secs(300), as "duration", "TOOLCALL_RATE_LIMIT_MAX_COOLDOWN",
            "the longest cooldown that calls share, whatever a server asks for";
        /// Lets a limit that is known by an error's text alone hold other calls back, for
        /// `default_cooldown` at most. Default: no; it delays its own call.
        text_limits: bool = false, "TOOLCALL_RATE_LIMIT_TEXT_LIMITS",
            "whether a limit known by an error's text alone holds other calls back";
        /// The most attempts of a call that meets the limit itself, where no retry layer repeats
        /// it. Default 3.
        attempts: u32 = 3, "TOOLCALL_RATE_LIMIT_ATTEMPTS",
            "how often a limited call is sent at most, where no retry layer repeats it";
        /// Refuses calls of a cooling key, which wait otherwise. Then no layer repeats a call that
        /// met the limit, the retry layer included. Default: no.
        fail_fast: bool = false, "TOOLCALL_RATE_LIMIT_FAIL_FAST", "whether calls of a cooling key are refused at once";
        /// The calls that share a limit: `tool`, `tool_name`, `server` or `agent`. Default: `tool`.
        key: KeyBy = KeyBy::Tool, "TOOLCALL_RATE_LIMIT_KEY", "which calls share a limit: tool, tool_name, server or agent";
        /// Gives each principal a limit of its own, for upstreams with a limit per user. Default:
        /// yes if `token.endpoint` is set, and limits are not shared with other processes.
        per_principal: Option<bool> = None, "TOOLCALL_RATE_LIMIT_PER_PRINCIPAL",
            "whether each principal has a limit of its own; none: if tokens are exchanged, and limits not shared";
        /// The most keys that are kept. Default 10,000.
        max_keys: usize = DEFAULT_MAX_KEYS, "TOOLCALL_RATE_LIMIT_MAX_KEYS", "how many keys are kept";
    }

    /// The registry of available servers: `[health]`. See [`Health`](crate::health::Health).
    health: HealthSettings, HealthPart {
        /// Puts the layer into the stack. Default: no. Around a router whose tools are called by
        /// flat names it would know no server: leave it off, and give the
        /// [registry](super::StackLayer::health) to the router.
        enabled: bool = false, "TOOLCALL_HEALTH_ENABLED", "whether a registry learns which servers are there";
        /// The timeouts or connection failures in a row that make a server unavailable. Default 3.
        threshold: u32 = 3, "TOOLCALL_HEALTH_THRESHOLD",
            "how many timeouts or connection failures in a row make a server unavailable";
        /// Refuses calls to an unavailable server, except probes, if there is
        /// [evidence](crate::health#refusing-calls) against the server and not only against one of
        /// its tools. Default: no.
        refusal: bool = false, "TOOLCALL_HEALTH_REFUSAL", "whether calls to such a server are refused, except probes";
        /// The time for which calls are refused before one is let through as a probe. Default 30 s.
        probe_period: Duration = secs(30), as "duration", "TOOLCALL_HEALTH_PROBE_PERIOD",
            "how long it is unavailable before a call is let through as a probe";
        /// The most servers that are kept. Default 1,000.
        max_servers: usize = 1000, "TOOLCALL_HEALTH_MAX_SERVERS", "how many servers are kept";
    }

    /// Limits of calls that run together: `[concurrency]`. See
    /// [`ConcurrencyLimitLayer`](crate::concurrency_limit::ConcurrencyLimitLayer).
    concurrency: ConcurrencySettings, ConcurrencyPart {
        /// The most calls of a key that run together. Default: none, and no layer.
        max: Option<usize> = None, "TOOLCALL_CONCURRENCY_MAX", "how many calls of a key run at a time; none: any number";
        /// The most calls of a key that wait for their turn. Default 64.
        max_queue: usize = 64, "TOOLCALL_CONCURRENCY_MAX_QUEUE", "how many more wait for their turn";
        /// The calls that share a limit: `tool`, `tool_name`, `server` or `agent`. Default: `tool`.
        key: KeyBy = KeyBy::Tool, "TOOLCALL_CONCURRENCY_KEY", "which calls share a limit: tool, tool_name, server or agent";
        /// The most keys that are kept. Default 10,000.
        max_keys: usize = DEFAULT_MAX_KEYS, "TOOLCALL_CONCURRENCY_MAX_KEYS", "how many keys are kept";
    }

    /// Circuit breakers: `[circuit_breaker]`. See
    /// [`CircuitBreakerLayer`](crate::circuit_breaker::CircuitBreakerLayer).
    ///
    /// There are three ways to open. By default `threshold` failures in a row; with a `window`, so
    /// many in a row within that time, or so many in all if `success_resets` is false; with a
    /// `failure_rate` or a `slow_call_rate`, that share of the calls of the last `window`, or of
    /// the last `window_calls`, and `threshold` is not looked at.
    circuit_breaker: CircuitBreakerSettings, CircuitBreakerPart {
        /// Puts the layer into the stack. Default: yes.
        enabled: bool = true, "TOOLCALL_CIRCUIT_BREAKER_ENABLED", "whether a broken tool is no longer called";
        /// The failures that open a breaker. Default 5. Below `retry.attempts` one call can open
        /// it, and its last error is then [`CircuitOpen`](crate::ErrorKind::CircuitOpen).
        threshold: u32 = 5, "TOOLCALL_CIRCUIT_BREAKER_THRESHOLD", "how many failures in a row open a breaker";
        /// The time within which failures count. Default: none, so that any number of hours may lie
        /// between them. Calls one after the other that time out open it if `(threshold - 1) x
        /// timeout < window`.
        window: Option<Duration> = None, as "duration", "TOOLCALL_CIRCUIT_BREAKER_WINDOW",
            "how close together they are";
        /// Resets the count of failures at a success. Default: yes. If not, `window` has to be set.
        success_resets: bool = true, "TOOLCALL_CIRCUIT_BREAKER_SUCCESS_RESETS",
            "whether a success resets the count of failures";
        /// The time for which a breaker stays open before it admits a probe. Default 60 s.
        open_for: Duration = secs(60), as "duration", "TOOLCALL_CIRCUIT_BREAKER_RESET",
            "how long a breaker stays open";
        /// The most probes that run together. Default 1.
        probes: u32 = 1, "TOOLCALL_CIRCUIT_BREAKER_PROBES", "how many probes may run at a time";
        /// The calls that may be a probe: `any_call`, or `safe_calls` for calls that may run twice;
        /// a ping is set in code. Default: `any_call`.
        probe: ProbeBy = ProbeBy::AnyCall, "TOOLCALL_CIRCUIT_BREAKER_PROBE",
            "what is a probe: any_call or safe_calls";
        /// The successful probes that close the breaker. Default: as many as may run together.
        successes: Option<u32> = None, "TOOLCALL_CIRCUIT_BREAKER_SUCCESSES",
            "how many successful probes close it; none: as many as may run";
        /// The longest time that a call waits for the result of a probe. Default: none, it is
        /// refused.
        probe_wait: Option<Duration> = None, as "duration", "TOOLCALL_CIRCUIT_BREAKER_PROBE_WAIT",
            "how long a call waits for a probe's verdict; none: not at all";
        /// The share of failures that opens a breaker, above 0 and at most 1. Default: not looked
        /// at.
        failure_rate: Option<f64> = None, "TOOLCALL_CIRCUIT_BREAKER_FAILURE_RATE",
            "the share of failures that opens it, instead of the threshold";
        /// The share of slow calls that opens a breaker, above 0 and at most 1. Default: not looked
        /// at.
        slow_call_rate: Option<f64> = None, "TOOLCALL_CIRCUIT_BREAKER_SLOW_CALL_RATE",
            "the share of slow calls that opens it, instead of the threshold";
        /// The time from which on a call is slow, for `slow_call_rate`. Default: none.
        slow_call: Option<Duration> = None, as "duration", "TOOLCALL_CIRCUIT_BREAKER_SLOW_CALL",
            "from when on a call is slow, for that rate";
        /// The fewest calls of which a share counts. Default: 10, or all of `window_calls` if these
        /// are fewer.
        minimum_calls: Option<u32> = None, "TOOLCALL_CIRCUIT_BREAKER_MINIMUM_CALLS",
            "how many calls a rate needs to mean anything; none: 10";
        /// The number of latest calls of which the shares are, instead of `window`. Default: none.
        window_calls: Option<u32> = None, "TOOLCALL_CIRCUIT_BREAKER_WINDOW_CALLS",
            "how many calls the rates are of, instead of the window";
        /// The key of a breaker: `tool`, `tool_name`, `server` or `agent`. Default: `tool`.
        key: KeyBy = KeyBy::Tool, "TOOLCALL_CIRCUIT_BREAKER_KEY", "which calls share a breaker: tool, tool_name, server or agent";
        /// The most breakers that are kept. Default 10,000.
        max_keys: usize = DEFAULT_MAX_KEYS, "TOOLCALL_CIRCUIT_BREAKER_MAX_KEYS", "how many breakers are kept";
        /// Counts an answer that is an error in the tool's own words (MCP's `isError`) as a
        /// failure, for a classifier that sees it. Default: no.
        reported_failures: bool = false, "TOOLCALL_CIRCUIT_BREAKER_REPORTED_FAILURES",
            "whether answers that are errors in the tool's own words (isError) count";
        /// The scope of a failure with an inferred or unknown kind: `per_principal`, `shared` or
        /// `ignored`. See [`WeakFailures`]. Default: `per_principal`.
        weak_failures: WeakFailures = WeakFailures::PerPrincipal, "TOOLCALL_CIRCUIT_BREAKER_WEAK_FAILURES",
            "what weak failures count for: per_principal, shared or ignored";
    }

    /// Calls one after the other under one budget: `[sequence]`.
    sequence: SequenceSettings, SequencePart {
        /// The time for all calls together. Default: none.
        budget: Option<Duration> = None, as "duration", "TOOLCALL_SEQUENCE_BUDGET",
            "the time for calls one after the other, all together";
        /// The reserve that is kept back from it for the time after the calls. Default 500 ms. It
        /// is kept once: the deadline layer of the stack does not keep its own besides.
        reserve: Duration = RESERVE, as "duration", "TOOLCALL_SEQUENCE_RESERVE",
            "what is kept back from it for the time after them";
    }

    /// Calls at the same time: `[parallel]`.
    parallel: ParallelSettings, ParallelPart {
        /// The most calls that run together. Default: all of them.
        limit: Option<NonZeroUsize> = None, "TOOLCALL_PARALLEL_LIMIT", "how many calls of a batch run at a time; none: all";
        /// The time for all calls together. Default: none.
        budget: Option<Duration> = None, as "duration", "TOOLCALL_PARALLEL_BUDGET",
            "the time for calls at the same time, all together";
    }

    /// Secrets, and bounds of what is shown: `[sanitize]`. See [`Rules`](crate::redact::Rules).
    ///
    /// The built-in words hold besides. A harmless word beats a sensitive one, a built-in one too:
    /// that is what the list is for.
    sanitize: SanitizeSettings, SanitizePart {
        /// The most characters of a string; the rest is cut. Default 200.
        max_string: usize = MAX_STRING, "TOOLCALL_SANITIZE_MAX_STRING", "longer strings are cut, in characters";
        /// The most levels that are shown. Default 16.
        max_depth: usize = MAX_DEPTH, "TOOLCALL_SANITIZE_MAX_DEPTH", "deeper levels are not shown";
        /// The most values that are shown. Default 1,000.
        max_nodes: usize = MAX_NODES, "TOOLCALL_SANITIZE_MAX_NODES", "after so many values the rest is not shown";
        /// Keys are sensitive that contain one of these, beside the built-in ones. Default: none.
        sensitive_keys: Vec<String> = Vec::new(), "TOOLCALL_SANITIZE_SENSITIVE_KEYS",
            "more parts of keys whose values are secrets, separated by commas";
        /// Words that are taken out of a key before it is judged, beside the built-in ones: with
        /// `idempotency_key` the key of that name is shown, and `api_key` is not. Default: none.
        harmless_keys: Vec<String> = Vec::new(), "TOOLCALL_SANITIZE_HARMLESS_KEYS",
            "more words in keys that mean no secret, separated by commas";
    }

    /// Spans, and what the span of a call shows: `[trace]`. See
    /// [`TraceLayer`](crate::trace::TraceLayer).
    trace: TraceSettings, TracePart {
        /// Shows the redacted arguments. Default: yes.
        arguments: bool = true, "TOOLCALL_TRACE_ARGUMENTS", "whether the redacted arguments stand in the span of a call";
        /// Shows the redacted answer. Default: no.
        output: bool = false, "TOOLCALL_TRACE_OUTPUT", "whether the redacted answer stands in it";
        /// Gives each attempt a span of its own inside it. Default: no.
        attempts: bool = false, "TOOLCALL_TRACE_ATTEMPTS", "whether each attempt has a span of its own inside it";
    }
}
