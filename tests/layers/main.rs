//! Every layer: the contract that all keep, and what each does.

mod auto_traits;
mod bounds;
mod catch_panic;
mod contract;
mod deadline;
mod kit;
mod stacking;
mod timeout;
mod trace;
