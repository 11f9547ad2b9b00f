//! What is said of the machine in results, and the energy that it counts.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// `uname -r`.
pub(super) fn kernel() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// Lines about the machine, in the order to show.
pub(super) fn describe() -> Vec<(String, String)> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpuinfo
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?
                .split_once(':')
                .map(|(_, name)| name.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let idle =
        fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_driver").unwrap_or_default();
    let idle = match idle.trim() {
        "" => "none",
        name => name,
    };
    let lines = [
        ("cpu", cpu),
        ("cpus used", super::space::cpus().len().to_string()),
        ("cpuidle driver", idle.to_owned()),
        ("kernel", kernel()),
        ("weir", env!("CARGO_PKG_VERSION").to_owned()),
        ("date", today()),
    ];
    lines
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The day in UTC, as ISO 8601 writes it.
fn today() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    weir_value::utc_day(seconds)
}

/// Joules that all packages have taken since some time; none where the machine does not count (`/sys/class/powercap`).
pub(super) fn energy() -> Option<f64> {
    let mut sum = None;
    for entry in fs::read_dir("/sys/class/powercap").ok()?.flatten() {
        // Packages have one number in their names (intel-rapl:0); what they consist of has more.
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.matches(':').count() != 1 {
            continue;
        }
        if let Some(joules) = zone(&entry.path()) {
            sum = Some(sum.unwrap_or(0.0) + joules);
        }
    }
    sum
}

fn zone(path: &Path) -> Option<f64> {
    let text = fs::read_to_string(path.join("energy_uj")).ok()?;
    text.trim().parse::<f64>().ok().map(|uj| uj / 1e6)
}
