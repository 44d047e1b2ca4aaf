//! Puts the figures, and on what they were taken, into `README.md` and the guide; and writes the
//! chart.

use std::{fmt::Write as _, fs};

use tower_toolcall::BoxError;

use super::{
    COMMAND,
    chart::{self, Bar, Panel},
    here,
};

const CHART: &str = "benches/report/overhead.svg";
const GUIDE: &str = "src/guide/cost.md";
const README: &str = "README.md";
const BEGIN: &str = "<!-- written by `overhead` of the package `benches`, with `--readme` -->\n";
const END: &str = "<!-- until here -->\n";

pub(crate) fn write(panels: &[Panel], caption: &str) -> Result<(), BoxError> {
    super::write(&here().join(CHART), &chart::svg(panels, caption))?;
    let ours = caption.split("; peers: ").next().unwrap_or(caption);
    put(README, &format!("{}\nOn {ours}.", summary(panels)?))?;
    put(
        GUIDE,
        &format!("{}`{COMMAND}`, on {caption}.", all(panels)?),
    )
}

/// Replaces what stands between the two marks of a file.
fn put(name: &str, text: &str) -> Result<(), BoxError> {
    let file = here().join(name);
    let old = fs::read_to_string(&file)?;
    let parts = old
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{name} has no place for the figures"))?;
    super::write(&file, &format!("{before}{BEGIN}\n{text}\n\n{END}{after}"))
}

/// A row for each candidate: ours, and below it its peers.
fn all(panels: &[Panel]) -> Result<String, BoxError> {
    let mut table = String::new();
    for panel in panels {
        writeln!(table, "| {} | ns |\n|---|---|", head(panel))?;
        for Bar { name, is_ours, ns } in panel.groups.iter().flatten() {
            let ns = match *ns > 0.0 {
                true => format!("{ns:.0}"),
                false => "within the noise".to_owned(),
            };
            match is_ours {
                true => writeln!(table, "| **{name}** | **{ns}** |")?,
                false => writeln!(table, "| {name} | {ns} |")?,
            }
        }
        table.push('\n');
    }
    Ok(table)
}

/// For the smallest future, a row for each of our candidates that has peers, with the fastest of
/// them; and the documented stack.
fn summary(panels: &[Panel]) -> Result<String, BoxError> {
    let size = panels.first().map_or("", head);
    let mut table = format!("| {size} | ours | the fastest other |\n|---|---|---|\n");
    let groups = panels.iter().filter(|panel| head(panel) == size);
    for group in groups.flat_map(|panel| &panel.groups) {
        let mut peer = group.iter().find(|bar| !bar.is_ours);
        for Bar { name, ns, .. } in group.iter().filter(|bar| bar.is_ours) {
            match peer.take() {
                Some(peer) => writeln!(
                    table,
                    "| {name} | {ns:.0} | {:.0}, {} |",
                    peer.ns, peer.name
                )?,
                None if *name == "documented stack" => writeln!(table, "| {name} | {ns:.0} | |")?,
                None => {}
            }
        }
    }
    Ok(table)
}

/// "a tool's future of 1 KiB", as a panel's title ends.
fn head(panel: &Panel) -> &str {
    panel
        .title
        .rsplit_once(", ")
        .map_or(panel.title, |(_, head)| head)
}
