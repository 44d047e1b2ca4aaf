//! A snapshot as a table for people.

use std::{fmt, time::Duration};

use super::snapshot::{Snapshot, Stats, TokenStats};
use crate::{event::BreakerState, text::Short};

/// The width of names.
const NAME: usize = 28;

const HEADER: &str = concat!(
    "tool                             calls  err % mean ms     p50     p90     p95",
    "     p99   p99.9     max t/out  retry   slow  now breaker\n",
);

/// At most 140 columns, unless there are a billion calls or more.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEADER)?;
        for row in &self.tools {
            let server = row.server.as_deref();
            let breaker = self.breaker_of(server, &row.tool);
            line(f, &name(server, &row.tool), &row.stats, breaker)?;
        }
        let (tools, period) = (self.tools.len(), self.period);
        let caption = format!("total of {tools} in {period:.1?}");
        line(f, &caption, &self.total, None)?;
        if let Some(reused) = self.total.reused {
            writeln!(f, "reused answers: {reused}")?;
        }
        for row in self.breakers.iter().filter(|row| row.openings > 0) {
            let name = name(row.server.as_deref(), row.tool.as_deref().unwrap_or("*"));
            let state = row.state.map_or("", BreakerState::name);
            writeln!(f, "breaker {name}: {state}, openings: {}", row.openings)?;
        }
        self.tokens.as_ref().map_or(Ok(()), |all| tokens(f, all))
    }
}

impl Snapshot {
    /// Returns the tool's own breaker, or that of its server.
    fn breaker_of(&self, server: Option<&str>, tool: &str) -> Option<BreakerState> {
        let state = |tool| {
            let mut rows = self.breakers.iter();
            let row = rows.find(|r| (r.server.as_deref(), r.tool.as_deref()) == (server, tool));
            row?.state
        };
        state(Some(tool)).or_else(|| state(None))
    }
}

fn line(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    stats: &Stats,
    breaker: Option<BreakerState>,
) -> fmt::Result {
    let (calls, rate, of) = (stats.calls, stats.error_rate * 100.0, &stats.latency);
    write!(f, "{name:NAME$} {calls:>9} {rate:>6.2}")?;
    for time in [of.mean, of.p50, of.p90, of.p95, of.p99, of.p999, of.max] {
        let time = reported((of.count > 0).then(|| millis(time)));
        write!(f, " {time:>7}")?;
    }
    let numbers = format!(
        " {:>5} {:>6} {:>6} {:>4} {}",
        stats.timeouts,
        reported(stats.retries),
        reported(stats.slow),
        stats.in_flight,
        breaker.map_or("", BreakerState::name),
    );
    writeln!(f, "{}", numbers.trim_end())
}

fn tokens(f: &mut fmt::Formatter<'_>, all: &TokenStats) -> fmt::Result {
    let (hits, exchanged) = (all.hits, all.exchanged);
    write!(f, "tokens: {hits} hits, {exchanged} exchanged, ")?;
    write!(f, "{} shared, {} failed", all.shared, all.failed)?;
    if all.exchange.count > 0 {
        let (p50, p99) = (millis(all.exchange.p50), millis(all.exchange.p99));
        write!(f, ", exchanges p50 {p50} ms, p99 {p99} ms")?;
    }
    writeln!(f)
}

/// Returns a figure, or a dash if there is none.
fn reported(figure: Option<impl ToString>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string())
}

/// `server/tool`; of a long one the end is cut off.
fn name(server: Option<&str>, tool: &str) -> String {
    let full = match server {
        Some(server) => format!("{}/{}", Short::name(server), Short::name(tool)),
        None => Short::name(tool).to_string(),
    };
    match full.char_indices().nth(NAME - 3) {
        Some((at, _)) if full.chars().count() > NAME => format!("{}...", &full[..at]),
        _ => full,
    }
}

/// Milliseconds with three significant digits, at most 7 characters.
fn millis(d: Duration) -> String {
    let ms = d.as_secs_f64() * 1e3;
    match ms {
        ..0.9995 => format!("{ms:.3}"),
        ..9.995 => format!("{ms:.2}"),
        ..99.95 => format!("{ms:.1}"),
        _ => format!("{ms:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_three_digits_that_mean_something() {
        let of = |us| millis(Duration::from_micros(us));
        assert_eq!(of(0), "0.000");
        assert_eq!(of(17), "0.017");
        assert_eq!(of(999), "0.999");
        assert_eq!(of(1_234), "1.23");
        assert_eq!(of(12_345), "12.3");
        assert_eq!(of(123_456), "123");
        assert_eq!(of(3_600_000_000), "3600000");
    }

    #[test]
    fn a_wide_name_is_cut_and_a_fitting_one_is_not() {
        let fits = "a".repeat(NAME);
        assert_eq!(name(None, &fits), fits);
        let cut = name(Some("server"), &"ä".repeat(100));
        assert_eq!(cut.chars().count(), NAME);
        assert!(cut.ends_with("ä..."), "{cut}");
    }
}
