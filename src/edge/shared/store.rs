//! What a store between processes does.

use std::{future::Future, time::Duration};

use crate::error::AnyError;

/// The most entries of one [`Exchange`], and the most [records](News::records) of one answer.
pub const MAX_ENTRIES: usize = 256;

/// The longest key, in bytes; longer ones are neither told nor taken over.
pub const MAX_KEY_BYTES: usize = 512;

/// The longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 64;

/// The most processes of one fleet that a store tells of.
pub const MAX_PEERS: usize = 1_000;

/// A store between processes: a log of entries, one for each process and key, the latest wins.
///
/// It decides nothing: what the entries mean, and what follows from them, is the same for every
/// store. What it may lose is everything: processes go on alone, and tell a [new
/// store](News::store) what still holds.
pub trait Store: Send {
    /// Writes entries, and reads what is new, at once: who reads `seq` has read all that was
    /// written up to it.
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

/// What a process writes, and what it wants to read.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Exchange<'a> {
    /// The process: it is there, and its entries replace those that it has written under the same
    /// keys.
    pub peer: &'a str,
    /// For how long it is to count as there.
    pub present_for: Duration,
    /// At most [`MAX_ENTRIES`].
    pub entries: &'a [Entry],
    /// The [store](News::store) that it knows; empty at first.
    pub store: &'a str,
    /// The number up to which it has read that store. If it was another one, it reads from the
    /// beginning.
    pub since: u64,
}

/// What a process tells of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The key, at most [`MAX_KEY_BYTES`].
    pub key: String,
    /// Opaque; at most [`MAX_VALUE_BYTES`].
    pub value: String,
    /// For how long it is kept.
    pub lasts: Duration,
}

/// An entry that somebody has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number: each write has a higher one than all before.
    pub seq: u64,
    /// Who has written it.
    pub peer: String,
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// For how long it is still kept, by the store's own clock.
    pub left: Duration,
}

/// What a process reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Which store it is: another text once its numbers begin again, or what it had is lost.
    pub store: String,
    /// The number up to which these news go.
    pub seq: u64,
    /// Whether there are more behind it.
    pub more: bool,
    /// The processes that are there, at most [`MAX_PEERS`].
    pub peers: Vec<String>,
    /// What was written since, by the process itself too, in the order of numbers; at most
    /// [`MAX_ENTRIES`]. What was replaced or is over is not among them.
    pub records: Vec<Record>,
    /// How many entries it has refused, as it is full.
    pub refused: usize,
}
