//! Puts the figures, as a table, and on what they were taken into `README.md`; and writes the chart.

use std::{fmt::Write as _, fs};

use tower_toolcall::BoxError;

use super::{
    COMMAND,
    chart::{self, Bar, Panel},
    here,
};

const CHART: &str = "benches/report/overhead.svg";
const BEGIN: &str = "<!-- written by `overhead` of the package `benches`, with `--readme` -->\n";
const END: &str = "<!-- until here -->\n";

pub(crate) fn write(panels: &[Panel], caption: &str) -> Result<(), BoxError> {
    super::write(&here().join(CHART), &chart::svg(panels, caption))?;

    let file = here().join("README.md");
    let readme = fs::read_to_string(&file)?;
    let parts = readme
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or("README.md has no place for the figures")?;
    let table = table(panels)?;
    let readme = format!(
        "{before}{BEGIN}\n{table}\n`{COMMAND}`, on {caption}. [The same as a chart]({CHART}).\n\n{END}{after}"
    );
    super::write(&file, &readme)
}

/// A row for each of our candidates, with the peers of its group.
fn table(panels: &[Panel]) -> Result<String, BoxError> {
    let mut table =
        "| nanoseconds that a layer adds to a call, by the size of the tool's future | ours | other crates |\n|---|---|---|\n"
            .to_owned();
    for (panel, group) in panels
        .iter()
        .flat_map(|p| p.groups.iter().map(move |g| (p, g)))
    {
        let size = panel.title.rsplit_once(" of ").map_or("", |(_, size)| size);
        let peers: Vec<String> = group
            .iter()
            .filter(|bar| !bar.is_ours)
            .map(|Bar { name, ns, .. }| format!("{name} {ns:.0}"))
            .collect();
        let mut peers = Some(peers.join(", "));
        for bar in group.iter().filter(|bar| bar.is_ours) {
            let peers = peers.take().unwrap_or_default();
            writeln!(table, "| {}, {size} | {:.0} | {peers} |", bar.name, bar.ns)?;
        }
    }
    Ok(table)
}
