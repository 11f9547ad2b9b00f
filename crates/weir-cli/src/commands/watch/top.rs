//! `weir top`: rates of a running edge. Reads its ledgers twice and shows the difference; nothing about the edge changes for it.
//!
//! The kernel measures time for the program that a device runs, and counts what that one calls to it: ns are of a packet's whole way
//! through the graph, by port. Of single functions `weir trace` tells.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_bpf::abi::{NEXT, Stats};
use weir_engine::edge::{self, Status};
use weir_kernel::{LoadedProgram, RunCounting};
use weir_packet::Reason;

use super::edge_name;
use crate::args::watch::TopArgs;
use crate::failure::Failure;
use crate::output;

/// Longest wait for a signal.
const TICK: Duration = Duration::from_millis(50);

/// One interval, as JSON. Rates are by second.
#[derive(Serialize)]
struct Table {
    edge: String,
    generation: u64,
    seconds: f64,
    ports: Vec<Row>,
    functions: Vec<Row>,
    /// Devices that packets were redirected or transmitted to; absent where not reported by this kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<Device>>,
    /// Redirected packets that no account has, since the edge was set up; absent where that cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    unaccounted: Option<u64>,
    /// Devices that take no packets now, with the cure.
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    packets: f64,
    bits: f64,
    verdicts: BTreeMap<&'static str, f64>,
    reasons: BTreeMap<&'static str, f64>,
    /// Of a packet from entry to end; ports only, and only if it is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    ns: Option<f64>,
}

#[derive(Serialize)]
struct Device {
    name: String,
    sent: f64,
    dropped: BTreeMap<String, f64>,
}

/// Everything at a moment.
struct Reading {
    at: Instant,
    status: Status,
    /// Runs and their ns, by the number of the port and the program.
    runs: BTreeMap<u32, (u32, u64, u64)>,
}

pub(crate) fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    let interval = args.interval;
    let name = edge_name(&args.edge)?;
    let stop = crate::limits::stop_on_signals()?;
    // Counting ends with the command.
    let _counting = args
        .time
        .then(RunCounting::begin)
        .transpose()
        .map_err(Failure::failed)?;
    let redraw = io::stdout().is_terminal() && !args.json && !args.once;
    let mut before = Reading::take(&name, args.time)?;
    loop {
        let end = before.at + interval;
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            sleep(TICK.min(end.saturating_duration_since(Instant::now())));
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(ExitCode::SUCCESS);
        }
        let now = Reading::take(&name, args.time)?;
        let table = Table::of(&before, &now);
        match args.json {
            true => output::json(&table)?,
            // Home, and clear what is behind: nothing flickers as after clearing first.
            false if redraw => output::out(&format!(
                "\x1b[H{}\x1b[J",
                table.text().replace('\n', "\x1b[K\n")
            ))?,
            false => output::out(&table.text())?,
        }
        if args.once {
            return Ok(ExitCode::SUCCESS);
        }
        before = now;
    }
}

impl Reading {
    fn take(name: &str, time: bool) -> Result<Reading, Failure> {
        let status = edge::status(name)?;
        let mut runs = BTreeMap::new();
        for port in status.ports.iter().filter(|_| time) {
            let Some(id) = port.program else { continue };
            let info = LoadedProgram::by_id(id).and_then(|program| program.info());
            let info = info.map_err(Failure::failed)?;
            runs.insert(port.number, (id, info.runs, info.run_time_ns));
        }
        Ok(Reading {
            at: Instant::now(),
            status,
            runs,
        })
    }

    /// ns of a packet at a port since an earlier reading.
    fn ns(&self, before: &Reading, port: u32) -> Option<f64> {
        let (id, runs, ns) = self.runs.get(&port)?;
        let (same, runs_before, ns_before) = before.runs.get(&port)?;
        let runs = runs.checked_sub(*runs_before).filter(|_| id == same)?;
        (runs > 0).then(|| ns.saturating_sub(*ns_before) as f64 / runs as f64)
    }
}

impl Table {
    fn of(before: &Reading, now: &Reading) -> Table {
        let seconds = (now.at - before.at).as_secs_f64();
        let nothing = Stats {
            received: 0,
            bytes: 0,
            verdict: [0; 8],
            reason: [0; weir_bpf::abi::REASONS],
        };
        let ports = now.status.ports.iter().flat_map(|port| {
            let mut before_it = before.status.ports.iter();
            let before_it = before_it.find(|one| one.number == port.number);
            let earlier = before_it.map_or(&nothing, |one| &one.ledger);
            let received = Row {
                ns: now.ns(before, port.number),
                ..Row::of(&port.name, earlier, &port.ledger, seconds)
            };
            let transmit = port.transmit.as_ref().map(|transmit| {
                let earlier = before_it.and_then(|one| one.transmit.as_ref());
                let name = format!("{}.transmit", port.name);
                Row::of(&name, earlier.unwrap_or(&nothing), transmit, seconds)
            });
            std::iter::once(received).chain(transmit)
        });
        let functions = now.status.instances.iter().map(|one| {
            let mut earlier = before.status.instances.iter();
            let earlier = earlier.find(|other| other.name == one.name);
            let earlier = earlier.map_or(&nothing, |other| &other.ledger);
            Row::of(&one.name, earlier, &one.ledger, seconds)
        });
        let second = now.status.second.as_ref();
        Table {
            edge: now.status.name.clone(),
            generation: now.status.generation,
            seconds,
            ports: ports.collect(),
            functions: functions.collect(),
            devices: devices(&before.status, &now.status, seconds),
            unaccounted: second.and_then(|second| second.unaccounted),
            warnings: second.map_or(Vec::new(), |second| second.warnings.clone()),
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "edge {}, generation {}, over {:.1} s\n",
            self.edge, self.generation, self.seconds
        );
        let rows = self.ports.iter().chain(&self.functions);
        let wide = rows.map(|row| row.name.len()).max().unwrap_or(0).max(8);
        let timed = self.ports.iter().any(|row| row.ns.is_some());
        for (title, rows) in [("port", &self.ports), ("function", &self.functions)] {
            let ns = if timed && title == "port" {
                "  ns/packet"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "{title:wide$}  {:>10}  {:>10}{ns}  verdicts/s, drops/s by reason",
                "packets/s", "bits/s"
            );
            for row in rows {
                let ns = match (timed && title == "port", row.ns) {
                    (false, _) => String::new(),
                    (true, None) => format!("  {:>9}", "-"),
                    (true, Some(ns)) => format!("  {ns:>9.0}"),
                };
                let verdicts = row
                    .verdicts
                    .iter()
                    .map(|(name, rate)| format!("{name} {}", short(*rate)));
                let verdicts: Vec<String> = verdicts.collect();
                let reasons = row
                    .reasons
                    .iter()
                    .map(|(name, rate)| format!("{name} {}", short(*rate)));
                let reasons: Vec<String> = reasons.collect();
                let reasons = match reasons.is_empty() {
                    true => String::new(),
                    false => format!(" ({})", reasons.join(", ")),
                };
                let _ = writeln!(
                    text,
                    "{:wide$}  {:>10}  {:>10}{ns}  {}{reasons}",
                    row.name,
                    short(row.packets),
                    short(row.bits),
                    verdicts.join(", ")
                );
            }
        }
        for device in self.devices.iter().flatten() {
            if device.sent == 0.0 && device.dropped.is_empty() {
                continue;
            }
            let dropped = device
                .dropped
                .iter()
                .map(|(why, rate)| format!(", not taken ({why}) {}", short(*rate)));
            let _ = writeln!(
                text,
                "to device {}: taken {}{}",
                device.name,
                short(device.sent),
                dropped.collect::<String>()
            );
        }
        if let Some(packets) = self.unaccounted.filter(|packets| *packets > 0) {
            let _ = writeln!(text, "unaccounted: {packets} redirected packets in all");
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        text
    }
}

impl Row {
    fn of(name: &str, before: &Stats, now: &Stats, seconds: f64) -> Row {
        // A replaced program that could not keep its counters begins at 0.
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        let verdict = |at: usize| rate(before.verdict[at], now.verdict[at]);
        let verdicts = [
            ("next", NEXT),
            ("pass", 2),
            ("drop", 1),
            ("tx", 3),
            ("redirect", 4),
            ("aborted", 0),
        ];
        let reasons = Reason::ALL.iter().map(|reason| {
            let at = reason.index() as usize;
            (reason.name(), rate(before.reason[at], now.reason[at]))
        });
        Row {
            name: name.to_owned(),
            packets: rate(before.received, now.received),
            bits: rate(before.bytes, now.bytes) * 8.0,
            verdicts: verdicts
                .into_iter()
                .map(|(name, at)| (name, verdict(at)))
                .filter(|(_, rate)| *rate > 0.0)
                .collect(),
            reasons: reasons.filter(|(_, rate)| *rate > 0.0).collect(),
            ns: None,
        }
    }
}

/// What became of packets after programs decided.
fn devices(before: &Status, now: &Status, seconds: f64) -> Option<Vec<Device>> {
    let now = now.second.as_ref()?;
    let before = before.second.as_ref();
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let rows = now.devices.iter().map(|device| {
        let earlier = before.and_then(|second| {
            let mut devices = second.devices.iter();
            devices.find(|one| one.device == device.device)
        });
        let mut sent = 0.0;
        let mut dropped: BTreeMap<String, f64> = BTreeMap::new();
        let accounts = [
            (&device.redirected, earlier.map(|one| &one.redirected)),
            (&device.transmitted, earlier.map(|one| &one.transmitted)),
        ];
        for (account, earlier) in accounts {
            sent += rate(earlier.map_or(0, |one| one.sent), account.sent);
            for (why, packets) in &account.dropped {
                let before = earlier.and_then(|one| one.dropped.get(why));
                let rate = rate(before.copied().unwrap_or(0), *packets);
                if rate > 0.0 {
                    *dropped.entry(why.clone()).or_default() += rate;
                }
            }
        }
        Device {
            name: device.device.clone(),
            sent,
            dropped,
        }
    });
    Some(rows.collect())
}

/// Four digits and a letter.
fn short(rate: f64) -> String {
    let mut rate = rate;
    for unit in ["", "k", "M", "G"] {
        if rate < 9_999.5 {
            return match (unit, rate < 99.95) {
                ("", false) => format!("{rate:.0}"),
                ("", true) if rate == rate.trunc() => format!("{rate:.0}"),
                (_, true) => format!("{rate:.1}{unit}"),
                (_, false) => format!("{rate:.0}{unit}"),
            };
        }
        rate /= 1000.0;
    }
    format!("{rate:.0}T")
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn rates_fit_their_columns() {
        for (rate, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (0.5, "0.5"),
            (9999.0, "9999"),
            (10_000.0, "10.0k"),
            (1_234_567.0, "1235k"),
            (12_345_678.0, "12.3M"),
            (4.2e12, "4200G"),
            (4.2e13, "42T"),
        ] {
            assert_eq!(short(rate), text);
        }
    }
}
