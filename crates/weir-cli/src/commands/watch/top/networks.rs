//! Rates of virtual networks, from two readings of `weir status`: of each network, its workloads and its functions.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::row::{Row, rate, rows, same, text};

/// One network, as JSON. Rates are by second.
#[derive(Debug, Serialize)]
pub(super) struct Network {
    /// What came in from workloads of this edge and from other edges, and what was dropped anywhere.
    #[serde(flatten)]
    whole: Rates,
    /// What each workload of this edge sent, and what was dropped at its port.
    workloads: Vec<Rates>,
    /// What came in by the interfaces of each subnet, function and tunnel.
    functions: Vec<Rates>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Rates {
    name: String,
    packets: f64,
    bits: f64,
    drops: f64,
    reasons: BTreeMap<String, f64>,
}

/// Of all networks of an edge.
pub(super) fn of(before: &Value, now: &Value, seconds: f64) -> Vec<Network> {
    let earlier: BTreeMap<(&str, &str), &Value> = rows(&before["interfaces"])
        .iter()
        .filter_map(|row| Some((interface(row)?, row)))
        .collect();
    let mut networks = Vec::new();
    for total in rows(&now["totals"]) {
        let network = text(&total["network"]);
        let same_total = same(rows(&before["totals"]), total, "network");
        // Those of one function are one row.
        let (mut workloads, mut functions) = (BTreeMap::new(), BTreeMap::new());
        for row in rows(&now["interfaces"]) {
            if row["network"] != network.as_str() {
                continue;
            }
            let known = interface(row).and_then(|place| earlier.get(&place));
            let function = text(&row["function"]);
            // A subnet may have the name of a workload.
            let part = match row["interface"] == format!("workload {function}") {
                true => &mut workloads,
                false => &mut functions,
            };
            let rates: &mut Rates = part.entry(function.clone()).or_default();
            rates.name = function;
            rates.add(known.unwrap_or(&&Value::Null), row, seconds);
        }
        let mut whole = Rates {
            name: network.clone(),
            ..Rates::default()
        };
        whole.add(same_total, total, seconds);
        networks.push(Network {
            whole,
            workloads: workloads.into_values().collect(),
            functions: functions.into_values().collect(),
        });
    }
    networks
}

/// What an interface is known by: its number may be another one's after a change.
fn interface(row: &Value) -> Option<(&str, &str)> {
    Some((row["network"].as_str()?, row["interface"].as_str()?))
}

impl Network {
    /// As rows of a table: the network, then what is in it.
    pub(super) fn rows(&self) -> Vec<Row> {
        let network = &self.whole.name;
        let parts = self.workloads.iter().chain(&self.functions);
        let parts = parts.map(|one| one.row(format!("  {network}/{}", one.name)));
        let whole = self.whole.row(network.clone());
        std::iter::once(whole).chain(parts).collect()
    }
}

impl Rates {
    fn add(&mut self, before: &Value, now: &Value, seconds: f64) {
        self.packets += rate(&before["packets"], &now["packets"], seconds);
        self.bits += rate(&before["bytes"], &now["bytes"], seconds) * 8.0;
        self.drops += rate(&before["dropped"], &now["dropped"], seconds);
        for (reason, packets) in now["reasons"].as_object().into_iter().flatten() {
            let rate = rate(&before["reasons"][reason.as_str()], packets, seconds);
            if rate > 0.0 {
                *self.reasons.entry(reason.clone()).or_default() += rate;
            }
        }
    }

    fn row(&self, name: String) -> Row {
        let dropped = (self.drops > 0.0).then(|| ("drop".to_owned(), self.drops));
        Row {
            name,
            packets: self.packets,
            bits: self.bits,
            verdicts: dropped.into_iter().collect(),
            reasons: self.reasons.clone(),
            ns: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_network_has_workloads_and_functions() {
        let reading = |n: u64| {
            let row = |network: &str, function: &str, interface: &str, dropped: u64| {
                json!({
                    "network": network, "function": function, "interface": interface, "packets": n, "bytes": 100 * n,
                    "dropped": dropped, "reasons": { "no_route": dropped },
                })
            };
            json!({
                "edge": "e1",
                "interfaces": [
                    row("shop", "w1", "workload w1", 0),
                    row("shop", "gw", "gw.web", n / 2),
                    row("shop", "gw", "gw.db", n / 2),
                    row("lab", "w1", "workload w1", 0),
                ],
                "totals": [
                    { "network": "shop", "packets": n, "bytes": 100 * n, "dropped": n, "reasons": { "no_route": n } },
                    { "network": "lab", "packets": 0, "bytes": 0, "dropped": 0, "reasons": {} },
                ],
            })
        };
        let networks = of(&reading(10), &reading(30), 2.0);
        let shown = serde_json::to_value(&networks[0]).expect("JSON");
        assert_eq!(
            shown,
            json!({
                "name": "shop", "packets": 10.0, "bits": 8000.0, "drops": 10.0, "reasons": { "no_route": 10.0 },
                "workloads": [{ "name": "w1", "packets": 10.0, "bits": 8000.0, "drops": 0.0, "reasons": {} }],
                "functions": [{ "name": "gw", "packets": 20.0, "bits": 16000.0, "drops": 10.0, "reasons": { "no_route": 10.0 } }],
            })
        );
        assert_eq!(networks[1].workloads[0].name, "w1");
        // A network that is new begins at 0.
        assert_eq!(of(&Value::Null, &reading(8), 2.0)[0].whole.packets, 4.0);
        let names: Vec<String> = networks[0].rows().into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["shop", "  shop/w1", "  shop/gw"]);
    }
}
