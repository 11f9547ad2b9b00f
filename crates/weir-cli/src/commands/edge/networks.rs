//! Virtual networks of an edge as text and JSON: their plan, and what an apply did.

use serde_json::{Value, json};
use weir_network::EdgeNetworks;
use weir_runtime::networks::NetworksApplied;
use weir_runtime::stations;
use weir_runtime::stations::Station;

use crate::commands::policy::count;
use crate::failure::Failure;

/// So many workloads are shown after an apply.
const FEW: usize = 20;

/// Workloads of a plan and the MAC addresses of their devices.
pub(crate) fn stations_of(plan: &EdgeNetworks) -> Result<Vec<Station<'_>>, Failure> {
    Ok(stations::of(plan)?)
}

/// A plan in words.
pub(crate) fn plan_text(plan: &EdgeNetworks, stations: &[Station<'_>]) -> String {
    let mut text = format!(
        "edge {}: {}, {}, {}\n",
        plan.edge,
        count(plan.devices.len(), "workload"),
        count(
            plan.labels.bridges.iter().filter(|b| !b.is_empty()).count(),
            "subnet"
        ),
        count(
            plan.labels.remotes.iter().filter(|r| !r.is_empty()).count(),
            "other edge"
        ),
    );
    text.push_str(&stations_table(stations, usize::MAX));
    text.push_str(&groups(plan));
    text.push_str(&interfaces(plan, &[], |_| None));
    text
}

/// Security groups that policies of the edge test, with their workloads and addresses.
fn groups(plan: &EdgeNetworks) -> String {
    let mut text = String::new();
    for group in &plan.groups {
        let addresses: Vec<String> = group.addresses.iter().map(ToString::to_string).collect();
        let members = match group.workloads.len() {
            0 => "no workloads".to_owned(),
            few if few <= FEW => {
                format!("{} ({})", group.workloads.join(", "), addresses.join(", "))
            }
            many => format!(
                "{} ({} addresses)",
                count(many, "workload"),
                addresses.len()
            ),
        };
        text.push_str(&format!(
            "group {}/{}: {members}\n",
            group.network, group.name
        ));
    }
    text
}

/// A plan as JSON.
pub(crate) fn plan_json(plan: &EdgeNetworks, stations: &[Station<'_>]) -> Value {
    let mut value = as_json(plan);
    value["stations"] = stations_json(stations);
    value
}

/// What an apply did, as JSON.
pub(crate) fn applied_json(
    edge: &str,
    done: &NetworksApplied,
    stations: &[Station<'_>],
) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(&done.applied).map_err(Failure::failed)?;
    value["stations"] = stations_json(stations);
    value["edge"] = json!(edge);
    value["version"] = json!(done.plan.version);
    Ok(value)
}

/// What an apply did, in words.
pub(crate) fn applied_text(edge: &str, done: &NetworksApplied, stations: &[Station<'_>]) -> String {
    let NetworksApplied { plan, applied } = done;
    let mut text = format!(
        "edge {edge} is at generation {} (document version {}): {}, {}\n",
        applied.generation,
        plan.version,
        count(plan.devices.len(), "workload"),
        count(
            plan.labels.bridges.iter().filter(|b| !b.is_empty()).count(),
            "subnet"
        ),
    );
    for (what, names) in [
        ("attached", &applied.attached),
        ("detached", &applied.detached),
        ("without device:", &applied.waiting),
        ("loaded", &applied.loaded),
    ] {
        match names.as_slice() {
            [] => {}
            few if few.len() <= 8 => text.push_str(&format!("  {what} {}\n", few.join(", "))),
            many => text.push_str(&format!("  {what} {}\n", count(many.len(), "device"))),
        }
    }
    if applied.remade {
        text.push_str(&format!(
            "  maps of {} KiB were made\n",
            applied.memory.div_ceil(1024)
        ));
    }
    text.push_str(&stations_table(stations, FEW));
    text
}

/// Addresses that the document leaves open, of so many workloads at most.
fn stations_table(stations: &[Station<'_>], most: usize) -> String {
    let open: Vec<_> = stations
        .iter()
        .filter(|one| matches!(one.from, "names" | "device"))
        .collect();
    if open.is_empty() {
        return String::new();
    }
    let head = ["workload", "device", "MAC address to use", "its device has"];
    let mut rows = vec![head.map(str::to_owned)];
    for one in open.iter().take(most) {
        let mac = one
            .mac
            .map_or_else(|| "any".to_owned(), |mac| mac.to_string());
        let has = match (one.of_device(), one.difference()) {
            (None, _) => "(cannot be read)".to_owned(),
            (Some(_), None) => "the same".to_owned(),
            (Some(has), Some(_)) => has.to_string(),
        };
        rows.push([one.name.clone(), one.device.to_owned(), mac, has]);
    }
    let mut text = columns(&rows);
    if open.len() > most {
        text.push_str(&format!(
            "and {} more: `weir plan` prints all of them\n",
            open.len() - most
        ));
    }
    text
}

fn stations_json(stations: &[Station<'_>]) -> Value {
    let one = |one: &Station<'_>| {
        json!({
            "workload": one.name,
            "device": one.device,
            "mac": one.mac.map(|mac| mac.to_string()),
            "mac_from": one.from,
            "device_mac": one.of_device().map(|mac| mac.to_string()),
            "differs": one.difference().is_some(),
        })
    };
    stations.iter().map(one).collect()
}

pub(crate) fn as_json(plan: &EdgeNetworks) -> serde_json::Value {
    let interfaces = plan.labels.interfaces.iter().enumerate();
    let interfaces: Vec<_> = interfaces
        .filter(|(_, label)| !label.name.is_empty())
        .map(|(vid, label)| {
            json!({
                "vid": vid,
                "network": label.network,
                "interface": label.name,
                "function": label.function,
                "peer": plan.interfaces[vid].peer,
            })
        })
        .collect();
    let devices: Vec<_> = plan
        .devices
        .iter()
        .map(|one| {
            json!({
                "device": one.device,
                "network": one.network,
                "workload": one.workload,
                "vid": one.vid,
            })
        })
        .collect();
    let edges: Vec<&String> = plan
        .labels
        .remotes
        .iter()
        .filter(|r| !r.is_empty())
        .collect();
    let groups: Vec<_> = plan
        .groups
        .iter()
        .map(|one| {
            json!({
                "network": one.network,
                "group": one.name,
                "workloads": one.workloads,
                "addresses": one.addresses,
            })
        })
        .collect();
    json!({
        "edge": plan.edge,
        "version": plan.version,
        "interfaces": interfaces,
        "devices": devices,
        "edges": edges,
        "groups": groups,
    })
}

/// Interfaces of a plan as a table, of some networks, or all if none is named.
pub(crate) fn interfaces(
    plan: &EdgeNetworks,
    only: &[String],
    counted: impl Fn(u32) -> Option<[u64; 3]>,
) -> String {
    let head = [
        "network",
        "interface",
        "vid",
        "leads to",
        "packets",
        "bytes",
        "dropped",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for (vid, label) in plan.labels.interfaces.iter().enumerate() {
        let named = only.is_empty() || only.iter().any(|name| **name == *label.network);
        if label.name.is_empty() || !named {
            continue;
        }
        let peer = plan.interfaces[vid].peer as usize;
        let peer = plan
            .labels
            .interfaces
            .get(peer)
            .map_or("", |l| l.name.as_str());
        let counts = counted(vid as u32);
        let shown = |at: usize| counts.map_or(String::new(), |counts| counts[at].to_string());
        rows.push([
            label.network.to_string(),
            label.name.clone(),
            vid.to_string(),
            peer.to_owned(),
            shown(0),
            shown(1),
            shown(2),
        ]);
    }
    columns(&rows)
}

/// Rows under each other, numbers to the right.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|at| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let number = !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit());
            let cell = match number {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:<width$}  "),
            };
            line.push_str(&cell);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
