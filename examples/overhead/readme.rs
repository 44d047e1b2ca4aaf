//! Puts the chart, and on what it was taken, into `README.md`.

use std::fs;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use tower_toolcall::BoxError;

use super::{
    COMMAND,
    chart::{self, Panel},
    here,
};

const CHART: &str = "examples/overhead/overhead.svg";
/// Where `README.md` is the crate's documentation, the chart's file is not: there this link has it within.
const LINK: &str = "examples/overhead/overhead.md";
const BEGIN: &str = "<!-- written by the example `overhead`, with `--readme` -->\n";
const END: &str = "<!-- until here -->\n";

pub(crate) fn write(panels: &[Panel], caption: &str) -> Result<(), BoxError> {
    let svg = chart::svg(panels, caption);
    super::write(&here().join(CHART), &svg)?;
    let link = format!(
        "[chart]: data:image/svg+xml;base64,{}\n",
        BASE64_STANDARD.encode(svg)
    );
    super::write(&here().join(LINK), &link)?;

    let file = here().join("README.md");
    let readme = fs::read_to_string(&file)?;
    let parts = readme
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or("README.md has no place for the chart")?;
    let chart = format!(
        "![What a layer adds to a call, beside other crates, in nanoseconds][chart]\n\n[chart]: {CHART}"
    );
    let readme = format!("{before}{BEGIN}\n{chart}\n\n`{COMMAND}`, on {caption}.\n\n{END}{after}");
    super::write(&file, &readme)
}
