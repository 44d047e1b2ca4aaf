//! Real rmcp servers behind a router.

mod lists;
mod server;
mod stack;
mod trouble;
