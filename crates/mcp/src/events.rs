//! The events of connections, lists and messages. They are in no call.

use std::time::Duration;

use tracing::Level;

use tower_toolcall::{
    error::ToolError,
    event::{
        TARGET, details_are_heard,
        names::{event, field},
        shown_field, shown_text,
    },
};

/// How many characters of an error a text log shows beside the other fields.
const MAX_SHOWN: usize = 80;

/// Emits `tool.message_dropped`: a message of a peer was not read.
pub(super) fn message_dropped(why: &str) {
    tracing::event!(
        name: event::MESSAGE_DROPPED,
        target: TARGET,
        Level::WARN,
        { field::ERROR } = why,
        "{}", event::MESSAGE_DROPPED
    );
}

/// Emits `tool.name_collision`: the name that was made of a tool's is another tool's as well.
#[cfg(feature = "server")]
pub(super) fn name_collision(tool: &str) {
    tracing::event!(
        name: event::NAME_COLLISION,
        target: TARGET,
        Level::WARN,
        { field::TOOL } = tracing::field::display(shown_field(tool)),
        "{}", event::NAME_COLLISION
    );
}

/// Emits `tool.stale_list`: a list may lack tools, or changes of them.
pub(super) fn stale_list(server: Option<&str>, error: &ToolError) {
    let max = match details_are_heard() {
        true => usize::MAX,
        false => MAX_SHOWN,
    };
    // In no span: the task of the client's handler has one with fields of its own.
    tracing::event!(
        name: event::STALE_LIST,
        target: TARGET,
        parent: None,
        Level::WARN,
        { field::SERVER } = server.map(shown_field).map(tracing::field::display),
        { field::CODE } = error.code(),
        { field::ERROR } = shown_text(error.message(), max).to_string(),
        "{}", event::STALE_LIST
    );
}

/// Emits `tool.connected`.
pub(super) fn connected(server: &str, attempts: u32, took: Duration) {
    tracing::event!(
        name: event::CONNECTED,
        target: TARGET,
        Level::INFO,
        { field::SERVER } = tracing::field::display(shown_field(server)),
        { field::ATTEMPTS } = attempts,
        { field::DURATION_MS } = ms(took),
        "{}", event::CONNECTED
    );
}

/// Emits `tool.connect_failed`. No attempt is made for `delay`.
pub(super) fn connect_failed(server: &str, attempts: u32, delay: Duration, error: &ToolError) {
    tracing::event!(
        name: event::CONNECT_FAILED,
        target: TARGET,
        Level::WARN,
        { field::SERVER } = tracing::field::display(shown_field(server)),
        { field::ATTEMPTS } = attempts,
        { field::DELAY_MS } = ms(delay),
        { field::CODE } = error.code(),
        { field::ERROR } = error.message(),
        "{}", event::CONNECT_FAILED
    );
}

/// Emits `tool.disconnected`.
pub(super) fn disconnected(server: &str, error: &ToolError) {
    tracing::event!(
        name: event::DISCONNECTED,
        target: TARGET,
        Level::WARN,
        { field::SERVER } = tracing::field::display(shown_field(server)),
        { field::CODE } = error.code(),
        { field::ERROR } = error.message(),
        "{}", event::DISCONNECTED
    );
}

/// Returns milliseconds, with fractions down to microseconds.
fn ms(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e6).round() / 1e3
}
