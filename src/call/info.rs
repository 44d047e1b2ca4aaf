use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use http::Extensions;

use super::{
    Listeners, Progress, Record, ReplaySafety, Whose, arguments::Arguments, identity::Names,
    job::JobRef,
};
use crate::{error::ToolError, redact::Rules, text::Short};

/// The caller's part of a call. Behind an `Arc`, copied on write.
#[derive(Clone)]
pub(super) struct Data {
    pub(super) ident: Arc<Ident>,
    pub(super) arguments: Arguments,
    pub(super) extensions: Extensions,
    pub(super) progress: Option<Progress>,
    /// The most that is kept back from the deadline.
    pub(super) max_reserve: Duration,
    pub(super) job: Option<JobRef>,
    /// An earlier attempt at the call has started the job: it was not given to the call.
    pub(super) is_own_job: bool,
    pub(super) cancellation: Option<tokio_util::sync::CancellationToken>,
}

/// The names on a call, and its timeout. Apart from the rest, so that a future that names its call
/// in an error keeps no arguments alive, and the tool can take them without a copy.
#[derive(Clone)]
pub(super) struct Ident {
    pub(super) names: Names,
    pub(super) id: Option<Arc<str>>,
    pub(super) agent_id: Option<Arc<str>>,
    pub(super) trace_id: Option<Arc<str>>,
    pub(super) session_id: Option<Arc<str>>,
    /// The hash of the subject's token; 0 without one.
    pub(super) subject: u64,
    /// The ids that were not verified.
    pub(super) unverified: u8,
    pub(super) timeout: Option<Duration>,
    /// A table of tools has set the timeout, not the caller.
    pub(super) is_timeout_listed: bool,
    pub(super) rules: Rules,
    pub(super) record: Arc<Record>,
}

impl Data {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            ident: Arc::new(Ident {
                names: Names::new(name),
                id: None,
                agent_id: None,
                trace_id: None,
                session_id: None,
                subject: 0,
                unverified: 0,
                timeout: None,
                is_timeout_listed: false,
                rules: Rules::default(),
                record: Arc::default(),
            }),
            arguments: Arguments::default(),
            extensions: Extensions::new(),
            progress: None,
            max_reserve: Duration::MAX,
            job: None,
            is_own_job: false,
            cancellation: None,
        }
    }

    pub(super) fn ident_mut(&mut self) -> &mut Ident {
        Arc::make_mut(&mut self.ident)
    }
}

impl Ident {
    #[inline]
    pub(super) fn record(&self, recording: u32, write: impl FnOnce(&Record)) {
        if recording != 0 && self.record.is_current(recording) {
            write(&self.record);
        }
    }
}

/// The getters that a call and a handle on it have in common.
macro_rules! getters {
    ($type:ident, $($ident:ident).+) => {
        impl $type {
            /// Returns the tool's name.
            #[inline]
            pub fn tool(&self) -> &str {
                &self.$($ident).+.names.tool
            }

            /// Returns the server that has the tool, if known.
            #[inline]
            pub fn server(&self) -> Option<&str> {
                self.$($ident).+.names.server.as_deref()
            }

            /// The hash of (server, name), made once per call.
            #[inline]
            pub(crate) fn tool_hash(&self) -> u64 {
                self.$($ident).+.names.tool_hash()
            }

            /// Returns the call's id, if it has one.
            pub fn id(&self) -> Option<&str> {
                self.$($ident).+.id.as_deref()
            }

            /// Returns the id of the agent that makes the call.
            pub fn agent_id(&self) -> Option<&str> {
                self.$($ident).+.agent_id.as_deref()
            }

            /// Returns the caller's trace id, as events show it.
            pub fn trace_id(&self) -> Option<&str> {
                self.$($ident).+.trace_id.as_deref()
            }

            /// Returns the caller's session id, as spans show it.
            pub fn session_id(&self) -> Option<&str> {
                self.$($ident).+.session_id.as_deref()
            }

            /// Returns whether the principal of the call was
            /// [not verified](crate::ToolCall::with_unverified_ids): its subject, else its agent,
            /// else its session. `false` for a call without a principal.
            pub fn has_unverified_principal(&self) -> bool {
                let ident = &self.$($ident).+;
                ident.whose().is_some_and(|whose| ident.is_unverified(whose))
            }

            /// The id that names the principal.
            pub(crate) fn whose(&self) -> Option<$crate::call::Whose<'_>> {
                self.$($ident).+.whose()
            }

            /// Returns the timeout set on the call itself.
            #[inline]
            pub fn timeout(&self) -> Option<Duration> {
                self.$($ident).+.timeout
            }

            /// Returns the redaction rules for the arguments, the result and the errors of the
            /// call.
            #[inline]
            pub fn rules(&self) -> &Rules {
                &self.$($ident).+.rules
            }
        }
    };
}
pub(super) use getters;

/// A cheap handle on a call: its names and its [record](Record), not its arguments.
///
/// Events carry it, and futures keep it to name the call in an error. 16 bytes; making one costs
/// one reference count.
#[derive(Clone)]
pub struct CallInfo {
    ident: Arc<Ident>,
    pub(super) recording: u32,
    replay: ReplaySafety,
}

impl CallInfo {
    #[inline]
    pub(super) fn new(ident: Arc<Ident>, recording: u32, replay: ReplaySafety) -> Self {
        Self {
            ident,
            recording,
            replay,
        }
    }

    /// Returns whether this id of the call was not verified.
    pub(crate) fn is_unverified(&self, whose: Whose<'_>) -> bool {
        self.ident.is_unverified(whose)
    }

    /// Returns whether the call is marked as unsafe to run twice.
    pub(crate) fn is_unsafe(&self) -> bool {
        self.replay == ReplaySafety::Unsafe
    }

    pub(super) fn ident(&self) -> &Ident {
        &self.ident
    }

    pub(super) fn set_rules(&mut self, rules: Rules) {
        Arc::make_mut(&mut self.ident).rules = rules;
    }

    /// Returns how long the call may be pending before a drop counts as a timeout: the shortest
    /// configured timeout of the layers on its way, else the call's own, else 30 s. A deadline does
    /// not shorten it.
    pub(crate) fn patience(&self) -> Duration {
        self.patience_within(self.limit_ms())
    }

    /// Returns the [`patience`](Self::patience) under a limit in milliseconds; 0 means no limit.
    pub(crate) fn patience_within(&self, limit_ms: u32) -> Duration {
        const TIMEOUT: Duration = Duration::from_secs(30);
        let timeout = match limit_ms {
            0 => self.timeout().unwrap_or(TIMEOUT),
            ms => Duration::from_millis(ms.into()),
        };
        // The layer that enforces it has started its clock a moment earlier.
        timeout - timeout / 100
    }

    /// Returns whether this is a name of the tool: see
    /// [`ToolCall::is_named`](super::ToolCall::is_named).
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.ident.names.is_named(name)
    }

    /// The [shortest timeout](Record::limit_ms) on the call's way, as far as its layers have
    /// reported it by now.
    pub(crate) fn limit_ms(&self) -> u32 {
        self.ident.record.limit_ms.load(Relaxed)
    }

    /// Keeps the error of an attempt, with its number, for the layer that may end the next one, or
    /// forgets it.
    pub(crate) fn set_failed(&self, error: Option<(u32, ToolError)>) {
        let record = &self.ident.record;
        if record.is_free_for(self.recording) {
            drop(record.put(|rare| std::mem::replace(&mut rare.failed, error)));
        }
    }

    /// Returns the error of the previous attempt, unless that was before attempt `first`: then an
    /// outer layer has made it.
    pub(crate) fn failed_since(&self, first: u32) -> Option<ToolError> {
        let rare = self.ident.record.get_rare()?;
        let (attempt, error) = rare.failed.as_ref()?;
        (*attempt >= first).then(|| error.clone())
    }

    /// Writes to the call's record, if an observer [observes](crate::flow::CallExt::observe) it.
    #[inline]
    pub fn record(&self, write: impl FnOnce(&Record)) {
        self.ident.record(self.recording, write);
    }

    /// The listeners that observers above have put on the call; `None` without an observer.
    #[inline]
    pub(crate) fn listeners(&self) -> Option<&Listeners> {
        let record = &self.ident.record;
        let is_current = self.recording != 0 && record.is_current(self.recording);
        is_current.then_some(&record.listeners)
    }

    /// The listeners that are on the call's record now, also those of another recording.
    pub(crate) fn present_listeners(&self) -> &Listeners {
        &self.ident.record.listeners
    }

    /// The record of a call that is observed.
    #[inline]
    pub(super) fn observed(&self) -> &Record {
        &self.ident.record
    }

    pub(crate) fn shared_tool(&self) -> &Arc<str> {
        &self.ident.names.tool
    }

    pub(crate) fn shared_server(&self) -> Option<&Arc<str>> {
        self.ident.names.server.as_ref()
    }

    pub(crate) fn shared_id(&self) -> Option<&Arc<str>> {
        self.ident.id.as_ref()
    }

    /// Returns the tool's name as a key or a label may have it: `None` while the list of its server
    /// was not read, so that [all its tools](crate::Identity::unlisted) are one.
    #[inline]
    pub fn listed_tool(&self) -> Option<&str> {
        self.ident.names.key_tool()
    }

    /// The hash of the server alone, likewise.
    #[inline]
    pub(crate) fn server_hash(&self) -> u64 {
        self.ident.names.hashes.server(self.server())
    }
}

getters!(CallInfo, ident);

crate::text::debug_fields! {
    /// Shows names, never a value.
    {} |this| CallInfo {
        tool: Short::name(this.tool()),
        server: this.server().map(Short::name),
        id: this.id().map(Short::name),
        ..
    }
}
