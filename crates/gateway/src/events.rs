//! Events as lines of a log: calls, connections, breakers, servers that come and go.

use std::{
    fmt::{self, Debug},
    io::{self, IsTerminal as _},
};

use tower_toolcall::event::{TARGET, names::span};
use tracing::{
    Level, Metadata,
    field::{Field, Visit},
};
use tracing_subscriber::{
    field::RecordFields,
    filter::filter_fn,
    fmt::{FormatFields, FormattedFields, format::Writer},
    prelude::*,
};

use super::output::Output;

/// Prints them.
pub(crate) fn show(to: &Output) {
    let (to, is_json) = (to.clone(), to.is_json());
    let layer = tracing_subscriber::fmt::layer().with_target(false);
    // Without the spans, in which the same is told once more.
    let shown = filter_fn(|m| m.is_event() && is_shown(m));
    let events = layer
        .with_writer(move || to.clone())
        .with_ansi(io::stdout().is_terminal());
    match is_json {
        true => {
            let events = events.json().flatten_event(true);
            let events = events.with_current_span(false).with_span_list(false);
            let events = events.with_filter(shown);
            tracing_subscriber::registry().with(events).init();
        }
        false => tracing_subscriber::registry()
            .with(events.with_filter(shown))
            .init(),
    }
}

/// Prints events with the redacted arguments of calls, which are in their spans.
pub(crate) fn show_with_arguments(to: &Output, colours: bool) {
    let to = to.clone();
    let events = tracing_subscriber::fmt::layer()
        .fmt_fields(Terse)
        .with_writer(move || to.clone())
        .with_ansi(colours)
        .with_target(false)
        // Spans have their fields where DEBUG is listened to.
        .with_filter(filter_fn(|m| {
            is_shown(m) || m.is_span() && m.target() == TARGET
        }));
    tracing_subscriber::registry().with(events).init();
}

fn is_shown(m: &Metadata<'_>) -> bool {
    let is_ours = m.target() == TARGET || m.target().starts_with(env!("CARGO_CRATE_NAME"));
    is_ours && *m.level() <= Level::INFO
}

/// Prints all fields of events, and those fields of spans that their events lack.
struct Terse;

impl<'w> FormatFields<'w> for Terse {
    fn format_fields<R: RecordFields>(&self, to: Writer<'w>, fields: R) -> fmt::Result {
        let mut terse = TerseFields(to, Ok(()));
        fields.record(&mut terse);
        terse.1
    }

    fn add_fields(
        &self,
        current: &'w mut FormattedFields<Self>,
        fields: &tracing::span::Record<'_>,
    ) -> fmt::Result {
        self.format_fields(current.as_writer(), fields)
    }
}

/// Escapes control characters and those that change the direction of a text.
fn visible(value: &dyn Debug) -> String {
    let mut visible = String::new();
    for c in format!("{value:?}").chars() {
        match c {
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => {
                visible.extend(c.escape_unicode());
            }
            c if c.is_control() => visible.extend(c.escape_default()),
            c => visible.push(c),
        }
    }
    visible
}

struct TerseFields<'w>(Writer<'w>, fmt::Result);

impl Visit for TerseFields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let Self(to, result) = self;
        let written = match field.name() {
            "message" => to.write_str(&visible(value)),
            span::ARGUMENTS => write!(to, "arguments={}", visible(value)),
            span::RESULT => write!(to, " result={}", visible(value)),
            // A name of OpenTelemetry's, or of a span's.
            name if name.contains('.') => Ok(()),
            name => write!(to, " {name}={value:?}"),
        };
        *result = result.and(written);
    }
}
