use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use http::Extensions;

use super::{Progress, Record, arguments::Arguments};
use crate::{redact::Redacted, text::Short};

/// What the caller wrote. Behind an `Arc`, copied on write.
#[derive(Clone)]
pub(super) struct Data {
    pub(super) name: Arc<str>,
    pub(super) server: Option<Arc<str>>,
    pub(super) id: Option<Arc<str>>,
    pub(super) agent_id: Option<Arc<str>>,
    pub(super) trace_id: Option<Arc<str>>,
    pub(super) session_id: Option<Arc<str>>,
    pub(super) arguments: Arguments,
    pub(super) timeout: Option<Duration>,
    pub(super) extensions: Extensions,
    pub(super) hash: ToolHash,
    pub(super) record: Arc<Record>,
    pub(super) progress: Option<Progress>,
    #[cfg(feature = "cancel")]
    pub(super) cancellation: Option<tokio_util::sync::CancellationToken>,
}

impl Data {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            server: None,
            id: None,
            agent_id: None,
            trace_id: None,
            session_id: None,
            arguments: Arguments::default(),
            timeout: None,
            extensions: Extensions::new(),
            hash: ToolHash::default(),
            record: Arc::default(),
            progress: None,
            #[cfg(feature = "cancel")]
            cancellation: None,
        }
    }

    #[inline]
    pub(super) fn record(&self, recording: u32, write: impl FnOnce(&Record)) {
        if recording != 0 && self.record.is_current(recording) {
            write(&self.record);
        }
    }
}

/// The hash of (server, name), made when a keyed layer first asks; 0 until then.
#[derive(Default)]
pub(super) struct ToolHash(AtomicU64);

impl Clone for ToolHash {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Relaxed)))
    }
}

/// Hashes a key part with the process's own random seed, so that nobody can choose colliding names.
pub(crate) fn hash_of(server: Option<&str>, name: Option<&str>) -> u64 {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    // 0 is kept for "not made yet".
    SEED.hash_one((server, name)).max(1)
}

/// A cheap handle on a call: what the caller wrote, without what layers change per attempt.
///
/// Events carry it, and futures keep it to name the call in an error. 16 bytes; making one costs
/// one reference count.
#[derive(Clone)]
pub struct CallInfo {
    data: Arc<Data>,
    recording: u32,
}

impl CallInfo {
    pub(super) fn new(data: Arc<Data>, recording: u32) -> Self {
        Self { data, recording }
    }

    /// The tool's name.
    pub fn tool(&self) -> &str {
        &self.data.name
    }

    /// The server that has the tool, if known.
    pub fn server(&self) -> Option<&str> {
        self.data.server.as_deref()
    }

    /// The call's id, if it has one.
    pub fn id(&self) -> Option<&str> {
        self.data.id.as_deref()
    }

    /// The id of the agent that makes the call.
    pub fn agent_id(&self) -> Option<&str> {
        self.data.agent_id.as_deref()
    }

    /// The trace id.
    pub fn trace_id(&self) -> Option<&str> {
        self.data.trace_id.as_deref()
    }

    /// The session id.
    pub fn session_id(&self) -> Option<&str> {
        self.data.session_id.as_deref()
    }

    /// Whether the call has arguments.
    pub fn has_arguments(&self) -> bool {
        !self.data.arguments.map().is_empty()
    }

    /// A redacted view of the arguments: made when it is printed or serialised, not before.
    pub fn sanitized(&self) -> Redacted<'_> {
        Redacted::of_map(self.data.arguments.map())
    }

    /// Writes to the call's record, if somebody [observes](super::ToolCall::observe) it.
    #[inline]
    pub fn record(&self, write: impl FnOnce(&Record)) {
        self.data.record(self.recording, write);
    }

    pub(crate) fn shared_tool(&self) -> &Arc<str> {
        &self.data.name
    }

    pub(crate) fn shared_server(&self) -> Option<&Arc<str>> {
        self.data.server.as_ref()
    }

    pub(crate) fn shared_id(&self) -> Option<&Arc<str>> {
        self.data.id.as_ref()
    }

    /// The hash of (server, name), made once per call.
    pub(crate) fn tool_hash(&self) -> u64 {
        match self.data.hash.0.load(Relaxed) {
            0 => {
                let hash = hash_of(self.server(), Some(self.tool()));
                self.data.hash.0.store(hash, Relaxed);
                hash
            }
            hash => hash,
        }
    }
}

/// Shows names, never a value.
impl fmt::Debug for CallInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallInfo")
            .field("tool", &Short::name(self.tool()))
            .field("server", &self.server().map(Short::name))
            .field("id", &self.id().map(Short::name))
            .finish_non_exhaustive()
    }
}
