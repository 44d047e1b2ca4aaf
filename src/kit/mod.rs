//! The parts that layers share: the end of a wait, state by key, values by key, shares, time.

pub(crate) mod attempts;
pub mod backoff;
pub(crate) mod cold;
pub(crate) mod converted;
pub(crate) mod drain;
pub(crate) mod fingerprint;
pub(crate) mod flights;
pub(crate) mod glob;
pub(crate) mod inert;
pub(crate) mod inner;
pub(crate) mod keyed;
pub(crate) mod lagged;
pub(crate) mod lane;
pub(crate) mod limit;
pub(crate) mod per_tool;
pub(crate) mod principal;
pub(crate) mod registry;
pub(crate) mod reuse;
pub(crate) mod share;
pub(crate) mod store;
pub(crate) mod timer;
