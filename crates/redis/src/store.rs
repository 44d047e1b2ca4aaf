//! The interface of a store between processes.

use std::{future::Future, time::Duration};

use tower_toolcall::AnyError;

/// The most entries of one [`Exchange`], and the most [records](News::records) of one answer.
pub const MAX_ENTRIES: usize = 256;

/// The longest key, in bytes; longer ones are not shared.
pub const MAX_KEY_BYTES: usize = 512;

/// The longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 64;

/// How far a version may be beyond another one of the same key. Versions that are further away are
/// errors or attacks: no key changes so often.
pub const MAX_STEP: u64 = 1 << 32;

/// A store between processes: one register for each key, which is replaced by a higher version
/// only.
///
/// A store decides nothing else: the meaning of registers is the same for every store. A store may
/// lose everything: processes continue alone, and write to a [new store](News::store) what still
/// holds.
pub trait Store: Send {
    /// Writes entries, and reads new ones, as one step: a process that reads `seq` has read all
    /// entries up to it.
    ///
    /// An entry is written if the store's register of its key is missing, has a lower version, or
    /// has a version more than [`MAX_STEP`] higher. Otherwise the register is among the records of
    /// the answer, whatever its number is. A full store drops entries with new keys.
    ///
    /// # Errors
    ///
    /// Any error. The whole exchange is repeated later, even if it was done: do not retry here.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped if it takes too long. The exchange may have been done nevertheless.
    fn exchange(
        &mut self,
        exchange: Exchange<'_>,
    ) -> impl Future<Output = Result<News, AnyError>> + Send;

    /// Completes when others may have written something: a hint, which may come too often, or
    /// never. It must wait, or it keeps its process busy.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped whenever anything else happens, also in the middle of a message. A
    /// hint may be lost by that, and nothing else.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}

/// The entries that a process writes, and the position from which it reads.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Exchange<'a> {
    /// The process, which is present now.
    pub peer: &'a str,
    /// For how long it is to count as present.
    pub present_for: Duration,
    /// At most [`MAX_ENTRIES`].
    pub entries: &'a [Entry],
    /// The [store](News::store) that it knows; empty at first.
    pub store: &'a str,
    /// The number up to which it has read that store. If it was another one, it reads from the
    /// beginning.
    pub since: u64,
}

/// A register to write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The key, at most [`MAX_KEY_BYTES`].
    pub key: String,
    /// The version, at least 1.
    pub version: u64,
    /// Opaque; at most [`MAX_VALUE_BYTES`].
    pub value: String,
    /// For how long it is kept.
    pub lasts: Duration,
}

/// A register of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its key.
    pub key: String,
    /// Its version.
    pub version: u64,
    /// Its value.
    pub value: String,
    /// For how long it is still kept, by the store's own clock.
    pub left: Duration,
}

/// The answer of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The identity of the store: another text once its numbers begin again, or its content is
    /// lost.
    pub store: String,
    /// The number up to which these news go.
    pub seq: u64,
    /// More records follow.
    pub more: bool,
    /// The number of present processes.
    pub processes: usize,
    /// The registers that were written since, by the process itself too, at most [`MAX_ENTRIES`];
    /// and those that an entry did not replace.
    pub records: Vec<Record>,
}
