//! A layer that injects faults, at random and repeatably.

mod faults;
mod future;
mod layer;
mod service;

pub use self::{
    faults::Faults, future::ResponseFuture as FaultFuture, layer::FaultLayer, service::Fault,
};
