//! Rates of an interval, from two readings of an edge's status: what `weir top` prints for scripts and in a pipe.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;

use super::networks::{self, Network};
use super::row::{Row, rate, rows, same, text};

/// One interval, as JSON. Rates are by second.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    edge: String,
    generation: u64,
    seconds: f64,
    ports: Vec<Row>,
    functions: Vec<Row>,
    networks: Vec<Network>,
    /// Devices that packets were redirected or transmitted to; absent where not reported by this kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<Device>>,
    /// Redirected packets that no account has, since the edge was set up; absent where that cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    unaccounted: Option<u64>,
    /// Devices that take no packets now, with the cure.
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Device {
    name: String,
    sent: f64,
    dropped: BTreeMap<String, f64>,
}

/// Runs of a port's program and their ns, with its number in the kernel.
pub(super) type Runs = BTreeMap<u64, (u32, u64, u64)>;

/// An edge at a moment.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) at: Instant,
    /// The graph, as `weir status --json` has it; null: the edge has networks only.
    pub(super) edge: Value,
    /// The networks, as there; null: the edge has a graph only.
    pub(super) networks: Value,
    /// By the port's number; empty where it is not measured.
    pub(super) runs: Runs,
}

impl Table {
    pub(super) fn of(before: &Moment, now: &Moment) -> Table {
        let seconds = (now.at - before.at).as_secs_f64();
        let edge = &now.edge;
        let ports = rows(&edge["ports"]).iter().flat_map(|port| {
            let earlier = same(rows(&before.edge["ports"]), port, "number");
            let name = text(&port["name"]);
            let mut received = Row::of(&name, &earlier["ledger"], &port["ledger"], seconds);
            received.ns = ns(before, now, port["number"].as_u64());
            let transmit = port.get("transmit").map(|ledger| {
                let name = format!("{name}.transmit");
                Row::of(&name, &earlier["transmit"], ledger, seconds)
            });
            std::iter::once(received).chain(transmit)
        });
        let functions = rows(&edge["functions"]).iter().map(|one| {
            let earlier = same(rows(&before.edge["functions"]), one, "name");
            Row::of(
                &text(&one["name"]),
                &earlier["ledger"],
                &one["ledger"],
                seconds,
            )
        });
        let second = &edge["second_stage"];
        Table {
            edge: match edge.is_null() {
                true => text(&now.networks["edge"]),
                false => text(&edge["edge"]),
            },
            networks: networks::of(&before.networks, &now.networks, seconds),
            generation: edge["generation"].as_u64().unwrap_or_default(),
            seconds,
            ports: ports.collect(),
            functions: functions.collect(),
            devices: second["devices"]
                .is_array()
                .then(|| devices(&before.edge["second_stage"], second, seconds)),
            unaccounted: second["unaccounted"].as_u64(),
            warnings: rows(&second["warnings"]).iter().map(text).collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("edge {}", self.edge);
        if self.generation > 0 {
            let _ = write!(text, ", generation {}", self.generation);
        }
        let _ = writeln!(text, ", over {:.1} s", self.seconds);
        let of_networks: Vec<Row> = self.networks.iter().flat_map(Network::rows).collect();
        let rows = self.ports.iter().chain(&self.functions).chain(&of_networks);
        let wide = rows.map(|row| row.name.len()).max().unwrap_or(0).max(8);
        let timed = self.ports.iter().any(|row| row.ns.is_some());
        for (title, rows) in [
            ("port", &self.ports),
            ("function", &self.functions),
            ("network", &of_networks),
        ] {
            // An edge may have a graph, networks, or both.
            if rows.is_empty() {
                continue;
            }
            let ns = match timed && title == "port" {
                true => "  ns/packet",
                false => "",
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
                let reasons = match row.reasons.is_empty() {
                    true => String::new(),
                    false => format!(" ({})", listed(&row.reasons)),
                };
                let _ = writeln!(
                    text,
                    "{:wide$}  {:>10}  {:>10}{ns}  {}{reasons}",
                    row.name,
                    short(row.packets),
                    short(row.bits),
                    listed(&row.verdicts)
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
    fn of(name: &str, before: &Value, now: &Value, seconds: f64) -> Row {
        let verdicts = now["verdicts"].as_object().into_iter().flatten();
        let verdicts = verdicts.map(|(name, count)| {
            let earlier = &before["verdicts"][name.as_str()];
            (name.clone(), rate(earlier, count, seconds))
        });
        let reasons = rows(&now["reasons"]).iter().map(|one| {
            let earlier = &same(rows(&before["reasons"]), one, "reason")["packets"];
            (
                text(&one["reason"]),
                rate(earlier, &one["packets"], seconds),
            )
        });
        Row {
            name: name.to_owned(),
            packets: rate(&before["received"], &now["received"], seconds),
            bits: rate(&before["bytes"], &now["bytes"], seconds) * 8.0,
            verdicts: verdicts.filter(|(_, rate)| *rate > 0.0).collect(),
            reasons: reasons.filter(|(_, rate)| *rate > 0.0).collect(),
            ns: None,
        }
    }
}

/// ns of a packet at a port between two moments.
fn ns(before: &Moment, now: &Moment, port: Option<u64>) -> Option<f64> {
    let port = port?;
    let (id, runs, ns) = now.runs.get(&port)?;
    let (same, runs_before, ns_before) = before.runs.get(&port)?;
    let runs = runs.checked_sub(*runs_before).filter(|_| id == same)?;
    (runs > 0).then(|| ns.saturating_sub(*ns_before) as f64 / runs as f64)
}

/// What became of packets after programs decided.
fn devices(before: &Value, now: &Value, seconds: f64) -> Vec<Device> {
    let one = |device: &Value| {
        let earlier = same(rows(&before["devices"]), device, "device");
        let mut sent = 0.0;
        let mut dropped: BTreeMap<String, f64> = BTreeMap::new();
        for account in ["redirected", "transmitted"] {
            let (earlier, account) = (&earlier[account], &device[account]);
            sent += rate(&earlier["sent"], &account["sent"], seconds);
            for (why, packets) in account["dropped"].as_object().into_iter().flatten() {
                let rate = rate(&earlier["dropped"][why.as_str()], packets, seconds);
                if rate > 0.0 {
                    *dropped.entry(why.clone()).or_default() += rate;
                }
            }
        }
        Device {
            name: text(&device["device"]),
            sent,
            dropped,
        }
    };
    rows(&now["devices"]).iter().map(one).collect()
}

/// Names with their rates, one behind the other.
pub(super) fn listed(rates: &BTreeMap<String, f64>) -> String {
    let all = rates
        .iter()
        .map(|(name, rate)| format!("{name} {}", short(*rate)));
    all.collect::<Vec<_>>().join(", ")
}

/// Four digits and a letter.
pub(super) fn short(rate: f64) -> String {
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
    use std::time::Duration;

    use serde_json::json;

    use super::*;

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

    #[test]
    fn rates_are_differences_of_ledgers() {
        let at = Instant::now();
        let moment = |seconds: u64, packets: u64, dropped: u64| Moment {
            at: at + Duration::from_secs(seconds),
            edge: json!({
                "edge": "office", "generation": 3,
                "ports": [{ "name": "wan", "number": 1, "ledger": {
                    "received": packets, "bytes": packets * 100,
                    "verdicts": { "next": packets, "drop": 0 }, "reasons": [],
                } }],
                "functions": [{ "name": "firewall", "ledger": {
                    "received": packets, "bytes": 0, "verdicts": { "pass": packets - dropped, "drop": dropped },
                    "reasons": [{ "reason": "rule_drop", "packets": dropped }],
                } }],
                "second_stage": { "devices": [], "unaccounted": 0, "warnings": ["look"] },
            }),
            networks: Value::Null,
            runs: [(1, (7, packets, packets * 50))].into(),
        };
        let (before, now) = (moment(0, 100, 10), moment(2, 300, 20));
        let table = serde_json::to_value(Table::of(&before, &now)).expect("JSON");
        assert_eq!(
            table,
            json!({
                "edge": "office", "generation": 3, "seconds": 2.0,
                "ports": [{ "name": "wan", "packets": 100.0, "bits": 80000.0, "verdicts": { "next": 100.0 }, "reasons": {}, "ns": 50.0 }],
                "functions": [{ "name": "firewall", "packets": 100.0, "bits": 0.0, "verdicts": { "pass": 95.0, "drop": 5.0 }, "reasons": { "rule_drop": 5.0 } }],
                "networks": [],
                "devices": [], "unaccounted": 0, "warnings": ["look"],
            })
        );
        // A function that was replaced and begins at 0.
        let again = Table::of(&now, &moment(4, 50, 0));
        assert_eq!(again.functions[0].packets, 0.0);
        assert!(
            again.text().ends_with("warning: look\n"),
            "{}",
            again.text()
        );
    }
}
