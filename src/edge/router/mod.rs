//! TODO
mod answer;
mod builder;
mod list;
mod names;
mod nearest;
mod route;
mod service;
mod table;
mod typed;
mod unknown;

pub use self::{
    answer::{IntoAnswer, Json},
    builder::RouterBuilder,
    list::ToolList,
    service::{ResponseFuture, Router},
    typed::{ToolFn, ToolFnFuture, ToolFnWithCall, tool_fn, tool_fn_with_call},
};
