//! Layers and leaves as another author writes them, against the public API of `tower-toolcall`
//! alone.

mod again;
mod index;
mod pace;
mod plugins;
mod quota;
mod shard;

pub use self::{
    again::AgainLayer,
    index::{Index, Shard},
    pace::PaceLayer,
    plugins::{Page, Plugin, Plugins},
    quota::QuotaLayer,
    shard::{Found, ShardError, Shards},
};
