//! Definitions of tools as a person has read them.

use std::{collections::BTreeMap, fmt::Write as _, mem, sync::Mutex};

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tower_toolcall::{
    error::{ErrorKind, ToolError},
    redact::is_hidden,
};

use super::{Catalog, events::stale_list, future::lock};

/// Digests of tools' definitions: a file that is written once, and held against what servers list
/// later.
///
/// A server can change the description of a tool after a person has approved it, and so give a
/// model other orders. [`McpTools::set_pins`](super::McpTools::set_pins) hides such a tool.
///
/// Each member of a definition has a digest, so that a difference can be named: SHA-256 of its
/// canonical JSON (RFC 8785). Numbers are compared as that JSON has them, as floats.
///
/// ```
/// use tower_toolcall_mcp::{Catalog, Pins};
///
/// # let (read, listed) = (Catalog::default(), Catalog::default());
/// let pins = Pins::default().with("docs", &read);
/// let file = serde_json::to_string_pretty(&pins)?;
///
/// let pins: Pins = serde_json::from_str(&file)?;
/// for tool in listed.tools() {
///     assert!(pins.changes("docs", tool).is_empty());
/// }
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pins(BTreeMap<String, BTreeMap<String, Pin>>);

/// The digests of a definition by its members.
type Pin = BTreeMap<String, String>;

impl Pins {
    /// Adds the tools of a server, in the place of those that it had.
    #[must_use]
    pub fn with(mut self, server: &str, tools: &Catalog) -> Self {
        let pins = tools.tools().map(|tool| (tool.name.to_string(), pin(tool)));
        self.0.insert(server.to_owned(), pins.collect());
        self
    }

    /// Returns the servers and tools that are pinned.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &str)> {
        let servers = self.0.iter();
        servers.flat_map(|(server, tools)| tools.keys().map(|tool| (&**server, &**tool)))
    }

    /// Returns how a definition differs: the members that have changed, come or gone, or that the
    /// tool is not pinned.
    pub fn changes(&self, server: &str, tool: &Tool) -> Vec<String> {
        let pinned = self.0.get(server).and_then(|tools| tools.get(&*tool.name));
        let Some(pinned) = pinned else {
            return vec!["it is not pinned".to_owned()];
        };
        let found = pin(tool);
        let all = pinned.keys().chain(found.keys());
        let mut changed: Vec<_> = all
            .filter(|member| pinned.get(*member) != found.get(*member))
            .cloned()
            .collect();
        changed.sort();
        changed.dedup();
        changed
    }
}

fn pin(tool: &Tool) -> Pin {
    let digest = |value: Value| {
        let json = serde_json_canonicalizer::to_vec(&value).unwrap_or_default();
        let mut text = String::new();
        for byte in Sha256::digest(json) {
            let _ = write!(text, "{byte:02x}");
        }
        text
    };
    let members = match serde_json::to_value(tool) {
        Ok(Value::Object(members)) => members,
        _ => Default::default(),
    };
    members
        .into_iter()
        .map(|(name, value)| (name, digest(value)))
        .collect()
}

/// Returns the texts of a definition that have hidden characters, which a person does not see and a
/// model reads: bidirectional, of no width, and tags. They are escaped here.
///
/// ```
/// use rmcp::model::{JsonObject, Tool};
///
/// let tool = Tool::new("search", "finds\u{202e} things", JsonObject::new());
/// let shown = tower_toolcall_mcp::hidden_characters(&tool);
/// assert_eq!(shown, [r"description: finds\u{202e} things"]);
/// ```
pub fn hidden_characters(tool: &Tool) -> Vec<String> {
    // A person sees where lines end.
    fn is_unseen(c: char) -> bool {
        is_hidden(c) && !matches!(c, '\t' | '\n' | '\r')
    }
    fn note(at: &str, text: &str, found: &mut Vec<String>) {
        if text.contains(is_unseen) {
            let escaped = text.chars().map(|c| match is_unseen(c) {
                true => c.escape_unicode().to_string(),
                false => c.to_string(),
            });
            found.push(format!("{at}: {}", escaped.collect::<String>()));
        }
    }
    fn walk(at: &str, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) => note(at, text, found),
            Value::Array(items) => items.iter().for_each(|item| walk(at, item, found)),
            Value::Object(members) => {
                for (name, value) in members {
                    note(at, name, found);
                    walk(&format!("{at}.{name}"), value, found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    if let Ok(Value::Object(members)) = serde_json::to_value(tool) {
        members
            .iter()
            .for_each(|(name, value)| walk(name, value, &mut found));
    }
    found
}

/// The treatment of a tool that differs from its [`Pins`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnDrift {
    /// The tool is left out of the list, and cannot be called.
    #[default]
    Hide,
    /// The event `tool.stale_list` reports it, as it does in both cases.
    Warn,
}

/// The most names of tools in an event.
const MAX_NAMED: usize = 10;

/// The pins of a list, if there are any.
#[derive(Default)]
pub(super) struct Pinned(Mutex<Held>);

#[derive(Default)]
pub(super) struct Held {
    pub(super) pins: Option<(Pins, OnDrift)>,
    /// All tools that the server has listed.
    pub(super) listed: Option<Vec<Tool>>,
    /// The differences that were reported last: each set is reported once.
    reported: Vec<String>,
}

impl Pinned {
    /// Changes the pins or the list, and puts the tools that may be listed then.
    pub(super) fn hold<T>(
        &self,
        server: Option<&str>,
        change: impl FnOnce(&mut Held),
        put: impl FnOnce(Vec<Tool>) -> T,
    ) -> T {
        let mut held = lock(&self.0);
        change(&mut held);
        let tools = held.allowed(server);
        put(tools)
    }
}

impl Held {
    /// Reports the tools that differ, and leaves out those that are hidden.
    fn allowed(&mut self, server: Option<&str>) -> Vec<Tool> {
        let mut tools = self.listed.clone().unwrap_or_default();
        let Some((pins, on_drift)) = &self.pins else {
            return tools;
        };
        let mut drifts = Vec::new();
        tools.retain(|tool| {
            // Nothing is pinned of a server without a name.
            let changes = pins.changes(server.unwrap_or_default(), tool).join(", ");
            if !changes.is_empty() {
                drifts.push(format!("`{}` ({changes})", tool.name));
            }
            changes.is_empty() || *on_drift == OnDrift::Warn
        });
        let before = mem::replace(&mut self.reported, drifts);
        if before != self.reported && !self.reported.is_empty() {
            let (all, named) = (self.reported.len(), self.reported.iter().take(MAX_NAMED));
            let named: Vec<_> = named.map(|it| &**it).collect();
            let hidden = match on_drift {
                OnDrift::Hide => ", and are hidden",
                OnDrift::Warn => "",
            };
            let named = named.join(", ");
            let why = format!("{all} tools are not as they were pinned{hidden}: {named}");
            stale_list(server, &ToolError::refusal(ErrorKind::Denied, why));
        }
        tools
    }
}
