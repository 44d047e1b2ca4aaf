use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    CacheSettings, CircuitBreakerSettings, ConcurrencySettings, DeadlineSettings, FitSettings,
    HealthSettings, HttpSettings, OnceSettings, ParallelSettings, PolicySettings, PollSettings,
    Preset, QuotaSettings, RateLimitSettings, RepeatGuardSettings, RetrySettings, SanitizeSettings,
    SequenceSettings, SharedSettings, StackBuilder, TimeoutSettings, TokenSettings, ToolSettings,
    TraceSettings, ValidateSettings, base::Explicit, check, names::Names, sections::File,
};
use crate::{config::ConfigError, edge::reader::Reader, identity::Identity};

/// The settings of all layers. See the [module docs](super) for an example.
///
/// In a file they begin with those of its `preset`, if it names one. Written, they are such a file:
/// the preset, and what was set over it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// The preset that the others begin with.
    pub(super) preset: Preset,
    pub(super) explicit: Explicit,
    /// The settings of variables, by the names that they had.
    pub(super) names: Names,
    /// Arguments.
    pub validate: ValidateSettings,
    /// Calls that fail again and again.
    pub repeat_guard: RepeatGuardSettings,
    /// Answers that are too long: in the stack by `with_fit`, see [`fit_layer`](Self::fit_layer).
    pub fit: FitSettings,
    /// Calls that are allowed, denied, or asked for.
    pub policy: PolicySettings,
    /// Calls that are made again: in the stack by `with_once`, see
    /// [`once_layer`](Self::once_layer).
    pub once: OnceSettings,
    /// Answers that are kept: in the stack by `with_cache`, see [`cache_layer`](Self::cache_layer).
    pub cache: CacheSettings,
    /// Jobs: not in the [stack](Self::stack) by themselves, see [`poll_layer`](Self::poll_layer).
    pub poll: PollSettings,
    /// HTTP tools: likewise, see `http_tool` (feature `http-tool`).
    pub http: HttpSettings,
    /// What processes share: likewise, see `shared` (feature `redis`).
    pub shared: SharedSettings,
    /// Tokens for tools: likewise, see `token_layer` (feature `token`).
    pub token: TokenSettings,
    /// One attempt's time.
    pub timeout: TimeoutSettings,
    /// A whole call's time.
    pub deadline: DeadlineSettings,
    /// The units that callers may use.
    pub quota: QuotaSettings,
    /// Calls that are sent again.
    pub retry: RetrySettings,
    /// Rate limits.
    pub rate_limit: RateLimitSettings,
    /// Servers that are there or not.
    pub health: HealthSettings,
    /// Calls at a time.
    pub concurrency: ConcurrencySettings,
    /// Tools that are no longer called.
    pub circuit_breaker: CircuitBreakerSettings,
    /// Calls one after the other: not in the [stack](Self::stack), but around it (feature `batch`).
    pub sequence: SequenceSettings,
    /// Calls at the same time: likewise.
    pub parallel: ParallelSettings,
    /// Redaction.
    pub sanitize: SanitizeSettings,
    /// Spans.
    pub trace: TraceSettings,
    /// The settings of single tools, by their names.
    pub tools: BTreeMap<String, ToolSettings>,
}

impl Settings {
    /// Returns the settings that work and look wrong, each with the reason; see the
    /// [table](super#warnings). [`StackBuilder::build`] emits each as the event `tool.settings`, at
    /// WARN.
    pub fn warnings(&self) -> Vec<ConfigError> {
        let warnings = check::warnings(self).into_iter();
        warnings.map(|warning| self.names.rename(warning)).collect()
    }

    /// Checks that these settings can work together. [`StackBuilder::build`] and
    /// [`with_env_from`](Self::with_env_from) do so as well.
    ///
    /// # Errors
    ///
    /// If a layer refuses its settings, a disabled one too, or if two of them contradict each
    /// other; see the [module docs](super#errors). The error names the key, and its reason has all
    /// others.
    pub fn check(&self) -> Result<(), ConfigError> {
        check::joined(check::whole(self))
    }

    /// Checks that each name or pattern of tools matches one of `tools`.
    pub(super) fn check_names(&self, tools: &[Identity]) -> Result<(), ConfigError> {
        let checked = check::names_match(self, tools);
        checked.map_err(|error| match self.names.0.is_empty() {
            true => error,
            false => self.names.rename(error),
        })
    }

    /// The documented stack with these settings, to be completed and built.
    pub fn stack(&self) -> StackBuilder {
        StackBuilder::new(self.clone())
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_file().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        File::deserialize(Reader::new(from)).map(Self::from)
    }
}

impl From<File> for Settings {
    fn from(file: File) -> Self {
        let mut settings = Self::default();
        settings.apply(file);
        settings
    }
}
