//! What must not grow.

use std::{fmt, fs, time::Duration};

use tokio::runtime::Handle;

use crate::load::Taken;

#[derive(Clone, Copy)]
pub(crate) struct Use {
    resident_kib: u64,
    files: usize,
    tasks: usize,
}

impl Use {
    pub(crate) fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        Self {
            resident_kib: resident.unwrap_or(0),
            files: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
            tasks: Handle::current().metrics().num_alive_tasks(),
        }
    }
}

pub(crate) struct Period {
    taken: Taken,
    used: Use,
}

impl Period {
    pub(crate) const HEAD: &'static str = "      calls successes   errors  dropped  refused |   MiB  files  tasks |   p50 ms    p99 ms  p99.9 ms    max ms";

    pub(crate) fn new(taken: Taken, used: Use) -> Self {
        Self { taken, used }
    }

    fn percentile(&self, percentile: f64) -> Duration {
        Duration::from_micros(self.taken.micros.value_at_percentile(percentile))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Taken {
            calls,
            successes,
            errors,
            dropped,
            refused,
            ..
        } = self.taken;
        let Use {
            resident_kib,
            files,
            tasks,
        } = self.used;
        write!(
            f,
            "{calls:>6} {successes:>9} {errors:>8} {dropped:>8} {refused:>8} |"
        )?;
        write!(
            f,
            "{:>6.1} {files:>6} {tasks:>6} |",
            resident_kib as f64 / 1024.0
        )?;
        for percentile in [50.0, 99.0, 99.9, 100.0] {
            write!(
                f,
                " {:>9.2}",
                self.percentile(percentile).as_secs_f64() * 1e3
            )?;
        }
        Ok(())
    }
}

/// What has grown from the first third of the periods to the last one.
pub(crate) fn compare(periods: &[Period]) -> Vec<String> {
    let third = periods.len().div_ceil(3);
    let (first, last) = (&periods[..third], &periods[periods.len() - third..]);
    let mut faults = Vec::new();
    let mut check = |what: &str, of: &dyn Fn(&Period) -> f64, factor: f64, more: f64| {
        let (was, is) = (median(first, of), median(last, of));
        if is > was * factor + more {
            faults.push(format!("{what} has grown from {was:.2} to {is:.2}"));
        }
    };
    check(
        "memory in MiB",
        &|p| p.used.resident_kib as f64 / 1024.0,
        1.05,
        8.0,
    );
    check("the number of files", &|p| p.used.files as f64, 1.0, 8.0);
    let millis = |percentile| move |p: &Period| p.percentile(percentile).as_secs_f64() * 1e3;
    check("p50 in ms", &millis(50.0), 1.5, 1.0);
    check("p99 in ms", &millis(99.0), 1.5, 1.0);
    check("p99.9 in ms", &millis(99.9), 2.0, 5.0);
    let refused: u64 = periods.iter().map(|p| p.taken.refused).sum();
    if refused > 0 {
        faults.push(format!("{refused} calls were not sent: too many in flight"));
    }
    faults
}

fn median(periods: &[Period], of: &dyn Fn(&Period) -> f64) -> f64 {
    let mut all: Vec<_> = periods.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
