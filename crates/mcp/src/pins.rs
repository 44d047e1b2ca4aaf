//! Definitions of tools as a person has read them.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use arc_swap::ArcSwapOption;
use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tower_toolcall::{
    error::{ErrorKind, ToolError},
    redact::is_hidden,
};

use super::{Catalog, events::stale_list};

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
    fn note(at: &str, text: &str, found: &mut Vec<String>) {
        if text.contains(is_hidden) {
            let escaped = text.chars().map(|c| match is_hidden(c) {
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

/// The pins of a list, if there are any.
#[derive(Default)]
pub(super) struct Pinned(ArcSwapOption<(Pins, OnDrift)>);

impl Pinned {
    pub(super) fn set(&self, pins: Option<(Pins, OnDrift)>) {
        self.0.store(pins.map(Arc::new));
    }

    /// Reports the tools that differ, and leaves out those that are hidden.
    pub(super) fn hold(&self, server: Option<&str>, mut tools: Vec<Tool>) -> Vec<Tool> {
        let pins = self.0.load_full();
        let (Some(pins), Some(server)) = (pins, server) else {
            return tools;
        };
        let (pins, on_drift) = &*pins;
        tools.retain(|tool| {
            let changes = pins.changes(server, tool).join(", ");
            let is_hidden = !changes.is_empty() && *on_drift == OnDrift::Hide;
            if !changes.is_empty() {
                let hidden = if is_hidden { ", so it is hidden" } else { "" };
                let why = format!("`{}` is not as it was pinned{hidden}: {changes}", tool.name);
                stale_list(Some(server), &ToolError::refusal(ErrorKind::Denied, why));
            }
            !is_hidden
        });
        tools
    }
}
