//! The documented stack, built from settings.

mod builder;
mod layer;
mod listeners;
mod optional;
mod own;
mod parts;
mod service;

pub(super) use self::parts::Parts;
pub use self::{
    builder::StackBuilder,
    layer::StackLayer,
    own::{Below, Own, Place},
    service::Stack,
};
