//! `weir prog list`: what is loaded, where it runs, since when.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::store::{self, Kept};
use crate::args::prog::ListArgs;
use crate::commands::prog::typed::hex;
use crate::commands::table::grouped;
use crate::failure::Failure;
use crate::output;

/// A loaded program.
#[derive(Serialize)]
pub(in crate::commands) struct Row {
    pub(super) id: u32,
    name: String,
    /// Name in the object, cut to 15 bytes by the kernel.
    program: String,
    pub(super) program_id: u32,
    pub(super) tag: String,
    /// Seconds since 1970.
    loaded: u64,
    /// Absent where the kernel does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<u64>,
    pub(super) interfaces: Vec<Interface>,
    maps: Vec<MapRow>,
}

#[derive(Serialize)]
pub(super) struct Interface {
    /// Absent in another network namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<String>,
    ifindex: u32,
    netns: u64,
    mode: String,
    /// Whether the device is there and runs it.
    attached: bool,
}

#[derive(Serialize)]
struct MapRow {
    name: String,
    id: u32,
    definition: String,
}

pub(crate) fn run(args: &ListArgs) -> Result<ExitCode, Failure> {
    let rows = rows()?;
    if args.json {
        output::json(&serde_json::json!({ "programs": rows }))?;
    } else if rows.is_empty() {
        output::out("no programs are loaded; `weir prog load OBJ` loads one\n")?;
    } else {
        output::out(&rows.iter().map(words).collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All loaded programs.
pub(in crate::commands) fn rows() -> Result<Vec<Row>, Failure> {
    store::kept()?.iter().map(row).collect()
}

impl Row {
    /// Name, program and interfaces in one line.
    pub(in crate::commands) fn line(&self) -> String {
        let on: Vec<&str> = (self.interfaces.iter())
            .filter_map(|one| one.interface.as_deref())
            .collect();
        let on = match on.is_empty() {
            true => "loaded, on no interface here".to_owned(),
            false => format!("on {}", on.join(", ")),
        };
        format!("program {} ({} {}) {on}", self.id, self.name, self.program)
    }
}

/// What there is to say about a program.
pub(super) fn row(kept: &Kept) -> Result<Row, Failure> {
    let info = kept.program()?.info().map_err(Failure::failed)?;
    let mut interfaces = Vec::new();
    for place in kept.places()? {
        let link = place.link().map_err(Failure::failed)?;
        let attached = link
            .map(|l| l.is_attached())
            .transpose()
            .map_err(Failure::failed)?;
        interfaces.push(Interface {
            interface: place.interface(),
            ifindex: place.ifindex,
            netns: place.netns,
            mode: place.mode,
            attached: attached.unwrap_or(false),
        });
    }
    let map = |(name, map): (String, weir_kernel::Map)| MapRow {
        name,
        id: map.id(),
        definition: map.definition().to_string(),
    };
    let counted = std::fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled");
    let counted = counted.is_ok_and(|text| text.trim() == "1");
    Ok(Row {
        id: kept.id,
        name: kept.name.clone(),
        program: info.name,
        program_id: info.id,
        tag: hex(&info.tag),
        loaded: since_epoch(Duration::from_nanos(info.loaded_ns)),
        runs: (counted || info.runs > 0).then_some(info.runs),
        interfaces,
        maps: kept.maps()?.into_iter().map(map).collect(),
    })
}

/// A time since boot as seconds since 1970.
fn since_epoch(boot: Duration) -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    let loaded = SystemTime::now().checked_sub(now.saturating_sub(boot));
    let loaded = loaded.and_then(|t| t.duration_since(SystemTime::UNIX_EPOCH).ok());
    loaded.map_or(0, |d| d.as_secs())
}

fn words(row: &Row) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let age = now.map_or(0, |d| d.as_secs().saturating_sub(row.loaded));
    let mut text = format!(
        "{} {}: program {}, kernel id {}, tag {}, loaded {} ago",
        row.id,
        row.name,
        row.program,
        row.program_id,
        row.tag,
        span(age)
    );
    if let Some(runs) = row.runs {
        let _ = write!(text, ", {} runs", grouped(runs));
    }
    text.push('\n');
    for interface in &row.interfaces {
        let name = interface.interface.clone().unwrap_or_else(|| {
            format!(
                "interface {} of network namespace {}",
                interface.ifindex, interface.netns
            )
        });
        let gone = if interface.attached {
            ""
        } else {
            "; the device is gone"
        };
        let _ = writeln!(text, "    on {name} ({}{gone})", interface.mode);
    }
    for map in &row.maps {
        let _ = writeln!(
            text,
            "    map {} (id {}): {}",
            map.name, map.id, map.definition
        );
    }
    text
}

/// Seconds as `2d 3h`, `5m 1s`.
fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, m) => format!("{m}m {}s", seconds % 60),
        (0, h, m) => format!("{h}h {m}m"),
        (d, h, _) => format!("{d}d {h}h"),
    }
}
