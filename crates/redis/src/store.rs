//! The interface of a store between processes.

use std::{future::Future, time::Duration};

use tower_toolcall::AnyError;

/// The most entries of one [`Exchange`], and the most [records](News::records) of one answer.
pub const MAX_ENTRIES: usize = 256;

/// The longest key, in bytes; longer ones are neither told nor taken over.
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
/// lose everything: processes go on alone, and tell a [new store](News::store) what still holds.
pub trait Store: Send {
    /// Writes entries, and reads what is new, as one step: a process that reads `seq` has read all
    /// that was written up to it.
    ///
    /// An entry is written if the store has no register of its key, or one with a lower version, or
    /// one whose version is more than [`MAX_STEP`] higher. Else the register is among the records
    /// of the answer, whatever its number is. A store that is full leaves entries with new keys
    /// out.
    ///
    /// # Errors
    ///
    /// Any: all of the exchange is tried again later, also if it was done. There are no retries to
    /// make here.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped if it takes too long. The exchange may have been done all the same.
    fn exchange(
        &mut self,
        exchange: Exchange<'_>,
    ) -> impl Future<Output = Result<News, AnyError>> + Send;

    /// Completes when others may have written something: a hint, which may come too often, or
    /// never. It must wait for something, or it keeps its process busy.
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
    /// Whether there are more behind it.
    pub more: bool,
    /// How many processes are present.
    pub processes: usize,
    /// The registers that were written since, by the process itself too, at most [`MAX_ENTRIES`];
    /// and those that an entry did not replace.
    pub records: Vec<Record>,
}
