//! The documented stack, built from settings.

mod builder;
mod layer;
mod listeners;
mod own;
mod parts;
mod placed;
mod service;

pub(super) use self::parts::Parts;
pub use self::{
    builder::StackBuilder,
    layer::StackLayer,
    own::{Below, Own, Place},
    service::Stack,
};
