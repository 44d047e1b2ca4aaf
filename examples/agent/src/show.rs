//! What there is to see: lines of at most 100 columns.

use std::{collections::BTreeMap, fmt, io::IsTerminal};

use tracing_subscriber::{layer::Context, registry::LookupSpan};

/// It is in the task, so the model may repeat it. No line has it.
pub(crate) const PASSWORD: &str = "hunter2";

const WIDTH: usize = 100;

/// How much of a text is shown, in characters, and of the name of a tool.
const MAX_CHARS: usize = 600;
const MAX_NAME: usize = 40;

/// Prints lines, in colour on a terminal only, and not where `NO_COLOR` is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Show {
    colour: bool,
}

impl Show {
    pub(crate) fn detect() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self {
            colour: std::io::stdout().is_terminal() && !no_color,
        }
    }

    /// A line that begins something.
    pub(crate) fn head(self, text: &str) {
        println!("{}", self.paint("1", text));
    }

    /// A kind of line, the tool that it is about, and a text, wrapped beside both.
    pub(crate) fn line(self, kind: &str, tool: &str, text: &str) {
        let code = match kind {
            "ok" => "32",
            "failed" => "31",
            "trace" | "span" | "server" => "2",
            _ => "0",
        };
        let tool: String = plain(tool).chars().take(MAX_NAME).collect();
        let begin = match tool.as_str() {
            "" => format!("  {kind:<8}"),
            _ => format!("  {kind:<8}{tool:<16}"),
        };
        let indent = begin.chars().count();
        for (n, line) in wrapped(&plain(text), WIDTH - indent).iter().enumerate() {
            match n {
                0 => println!("{}", self.paint(code, &format!("{begin}{line}"))),
                _ => println!("{:indent$}{}", "", self.paint(code, line)),
            }
        }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour && code != "0" {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Without the password, and without what a terminal obeys, or what hides or turns the text around
/// it: models repeat what they read.
pub(crate) fn plain(text: &str) -> String {
    let is_hidden = |c: char| {
        let hides = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        hides || c.is_control()
    };
    text.replace(is_hidden, " ").replace(PASSWORD, "[REDACTED]")
}

/// Breaks at white space.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let end = text.char_indices().nth(MAX_CHARS).map(|(at, _)| at);
    let more = end.map(|_| "...");
    for word in text[..end.unwrap_or(text.len())]
        .split_whitespace()
        .chain(more)
    {
        let fits = |line: &String| line.chars().count() + word.chars().count() < width;
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if fits(line) => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Prints what the trace says of each call: what goes wrong when it does, and the span when it is
/// closed.
pub(crate) struct ShowTrace(pub(crate) Show);

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Fields {
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

impl tracing::field::Visit for Fields {
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for ShowTrace {
    fn on_new_span(
        &self,
        attrs: &tracing::span::Attributes<'_>,
        id: &tracing::Id,
        cx: Context<'_, S>,
    ) {
        let mut fields = Fields::default();
        attrs.record(&mut fields);
        if let Some(span) = cx.span(id) {
            span.extensions_mut().insert(fields);
        }
    }
    fn on_record(&self, id: &tracing::Id, values: &tracing::span::Record<'_>, cx: Context<'_, S>) {
        if let Some(span) = cx.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let name = fields.get("message");
        if ["tool.connected", "tool.start", "tool.success"].contains(&name) {
            return;
        }
        let (level, error) = (event.metadata().level(), fields.get("error"));
        let text = format!("{level} {name} {} {error}", fields.get("code"));
        self.0.line("trace", fields.get("tool"), &text);
    }
    fn on_close(&self, id: tracing::Id, cx: Context<'_, S>) {
        let call = cx.span(&id).filter(|span| span.name() == "execute_tool");
        let Some(span) = call else { return };
        let extensions = span.extensions();
        let Some(fields) = extensions.get::<Fields>() else {
            return;
        };
        let ms = fields.get("tool.duration_ms").split('.').next();
        let text = format!(
            "{} after {} ms {}",
            fields.get("tool.outcome"),
            ms.unwrap_or_default(),
            fields.get("gen_ai.tool.call.arguments"),
        );
        self.0.line("span", fields.get("gen_ai.tool.name"), &text);
    }
}
