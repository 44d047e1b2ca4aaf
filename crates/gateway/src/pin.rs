//! `gateway pin`: writes the file of pins.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use serde::Deserialize;
use tower_toolcall::validate::Schemas;
use tower_toolcall_mcp::{OnDrift, Pins, hidden_characters};

use super::{current::Plan, upstream::upstream};

/// The section `[pins]` of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PinsFile {
    file: PathBuf,
    on_drift: OnDrift,
}

impl Default for PinsFile {
    fn default() -> Self {
        Self {
            file: "catalog.lock".into(),
            on_drift: OnDrift::Hide,
        }
    }
}

impl PinsFile {
    pub(crate) fn read(&self) -> anyhow::Result<(Pins, OnDrift)> {
        let read = fs::read(&self.file).map_err(anyhow::Error::from);
        let pins = read.and_then(|text| Ok(serde_json::from_slice(&text)?));
        let why = || {
            format!(
                "pins.file, {}: valid is what `gateway pin` writes",
                self.file.display()
            )
        };
        Ok((pins.with_context(why)?, self.on_drift))
    }
}

/// Starts the servers, writes the digests of their tools, and returns what a person should read.
#[tokio::main]
pub(crate) async fn run(plan: Plan) -> anyhow::Result<String> {
    let to = plan.pins.unwrap_or_default();
    let before = to.read().ok();
    let (mut pins, mut said) = (Pins::default(), String::new());
    for server in plan.servers {
        let server = upstream(server, &Schemas::new())?;
        server.connect().await?;
        let (name, catalog) = (server.name(), server.tools().catalog());
        said += &format!("{name}: {} tools are pinned\n", catalog.len());
        for tool in catalog.tools() {
            let named = format!("{name}: {}", tool.name);
            let changes = before
                .as_ref()
                .map(|(before, _)| before.changes(name, tool));
            let changes = changes.unwrap_or_default();
            if !changes.is_empty() {
                said += &format!("{named}: {}\n", changes.join(", "));
            }
            let hidden = hidden_characters(tool).into_iter();
            said.extend(hidden.map(|text| format!("{named}: hidden characters in {text}\n")));
        }
        pins = pins.with(name, &catalog);
        server.close().await;
    }
    let text = serde_json::to_string_pretty(&pins)? + "\n";
    fs::write(&to.file, text).with_context(|| to.file.display().to_string())?;
    Ok(said + &format!("written: {}\n", to.file.display()))
}
