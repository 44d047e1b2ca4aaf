//! `gateway pin`: writes the file of pins.

use std::{
    fs,
    io::{self, ErrorKind},
    path::PathBuf,
};

use anyhow::Context as _;
use serde::Deserialize;
use tower_toolcall::event::shown_text;
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
    let before = match to.read() {
        Ok((pins, _)) => pins,
        Err(error)
            if error
                .downcast_ref::<io::Error>()
                .is_some_and(|it| it.kind() == ErrorKind::NotFound) =>
        {
            Pins::default()
        }
        Err(error) => return Err(error),
    };
    let is_first = before == Pins::default();
    let (mut pins, mut said) = (Pins::default(), String::new());
    for server in plan.servers {
        let server = upstream(server, &plan.variables)?;
        server.connect().await?;
        let (name, catalog) = (server.name(), server.tools().catalog());
        said += &format!("{name}: {} tools are pinned\n", catalog.len());
        for tool in catalog.tools() {
            let named = format!("{name}: {}", shown_text(&tool.name, 100));
            let changes = before.changes(name, tool);
            if !changes.is_empty() && !is_first {
                said += &format!("{named}: {}\n", changes.join(", "));
            }
            let hidden = hidden_characters(tool).into_iter();
            said.extend(hidden.map(|text| format!("{named}: hidden characters in {text}\n")));
        }
        pins = pins.with(name, &catalog);
        server.close().await;
    }
    for (server, tool) in before.tools() {
        if !pins.tools().any(|it| it == (server, tool)) {
            let tool = shown_text(tool, 100);
            said += &format!("{}: {tool}: it is gone\n", shown_text(server, 100));
        }
    }
    let text = serde_json::to_string_pretty(&pins)? + "\n";
    // A gateway that reads it at this moment reads the one or the other.
    let mut new = to.file.clone().into_os_string();
    new.push(".new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &to.file));
    written.with_context(|| to.file.display().to_string())?;
    Ok(said + &format!("written: {}\n", to.file.display()))
}
