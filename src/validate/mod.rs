//! Values against the JSON Schemas of tools.
//!
//! A schema comes from a server, so it is [measured](Schema#limits) before it is compiled.

mod graph;
mod limits;
mod misfits;
mod names;
mod path;
mod patterns;
mod repair;
mod schema;

pub use self::{
    misfits::{Misfit, Misfits},
    schema::{Draft, Schema},
};
