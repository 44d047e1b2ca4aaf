//! The documented stack, built from settings.

mod builder;
mod layer;
mod listeners;
mod optional;
mod results;
mod service;

pub use self::{
    builder::StackBuilder,
    layer::StackLayer,
    results::{Results, ResultsLayer},
    service::{ResponseFuture, Stack},
};
