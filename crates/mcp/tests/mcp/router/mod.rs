//! Real rmcp servers behind a router.

mod identity;
mod lists;
mod server;
mod stack;
mod trouble;
