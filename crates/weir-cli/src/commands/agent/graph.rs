//! A running edge as nodes and links with their counters, for clients that draw it. Counters are those of `weir status`; links are those of the record.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use weir_engine::edge::EdgeError;
use weir_engine::network;
use weir_packet::Reason;
use weir_runtime::RuntimeError;
use weir_runtime::status::{Carried, EdgeStatus, Ledger};

use crate::commands::net::Shown;
use crate::failure::Failure;

/// Nodes and links.
#[derive(Debug, Default, Serialize)]
pub(super) struct Graph {
    edge: String,
    generation: u64,
    nodes: Vec<Node>,
    links: Vec<Link>,
    /// Virtual networks as a whole.
    networks: Vec<Total>,
}

/// What came into a network, and what was dropped in it.
#[derive(Debug, Serialize)]
struct Total {
    name: String,
    packets: u64,
    bytes: u64,
    drops: u64,
    reasons: Vec<Counted>,
}

/// What packets pass.
#[derive(Debug, Serialize)]
struct Node {
    /// Unlike that of any other.
    id: String,
    /// `port`, `transmit`, `out`, `function`, `end`, `network`, `workload`, `tunnel`.
    kind: &'static str,
    name: String,
    detail: String,
    /// Whether weir added it, and not the configuration.
    implicit: bool,
    /// Where its rules and connections are; `None`: the node is not a function.
    function: Option<String>,
    packets: u64,
    bytes: u64,
    drops: u64,
    /// Packets by verdict; those that are 0 are left out.
    verdicts: BTreeMap<&'static str, u64>,
    reasons: Vec<Counted>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    carried: Vec<Carried>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

#[derive(Debug, Serialize)]
struct Counted {
    reason: String,
    packets: u64,
    /// In a sentence.
    text: &'static str,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Link {
    from: String,
    to: String,
    /// Name of the output; empty: there is one.
    out: String,
}

impl Graph {
    /// Of a running edge.
    pub(super) fn read(edge: &str) -> Result<Graph, Failure> {
        let mut graph = Graph {
            edge: edge.to_owned(),
            ..Graph::default()
        };
        let look = network::look(edge)?;
        match EdgeStatus::read(edge, false) {
            Ok(status) => graph.add_graph(status)?,
            // It has networks only.
            Err(RuntimeError::Edge(EdgeError::NotRunning { .. })) if look.is_some() => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(look) = look {
            let shown = Shown::of(edge.to_owned(), look, &[])?;
            graph.add_networks(&shown.json()?);
        }
        Ok(graph)
    }

    fn add_graph(&mut self, status: EdgeStatus) -> Result<(), Failure> {
        self.generation = status.generation;
        let record = weir_runtime::graph::running(&status.edge, &mut |_| ())?;
        let outlines = record.map(|record| record.outline.ports);
        let functions: BTreeSet<&str> = status
            .functions
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        let target = |to: &str| match functions.contains(to) {
            true => format!("function:{to}"),
            false if status.ports.iter().any(|port| port.name == to) => format!("out:{to}"),
            false => format!("end:{to}"),
        };
        let mut links = Vec::new();
        let mut link = |from: &str, to: &str, out: &str| {
            links.push(Link {
                from: from.to_owned(),
                to: target(to),
                out: out.to_owned(),
            });
        };
        for port in &status.ports {
            let outlines = outlines.iter().flatten();
            let outline = outlines.clone().find(|one| one.name == port.name);
            let id = format!("port:{}", port.name);
            if let Some(outline) = outline {
                link(&id, &outline.entry, "");
            }
            let mut node = Node::new(id, "port", &port.name, &port.ledger);
            node.detail = format!("{}, {}", port.device, port.mode);
            if !port.attached {
                node.warning = Some(format!(
                    "not attached: device {} is gone, or lost its program",
                    port.device
                ));
            }
            self.nodes.push(node);
            if let Some(ledger) = &port.transmit {
                let id = format!("transmit:{}", port.name);
                if let Some(to) = outline.and_then(|one| one.transmit.as_ref()) {
                    link(&id, to, "");
                }
                let name = format!("{}.transmit", port.name);
                let mut node = Node::new(id, "transmit", &name, ledger);
                node.detail = format!("leaves by {}", port.device);
                self.nodes.push(node);
            }
        }
        for one in &status.functions {
            let from = format!("function:{}", one.name);
            for to in &one.links {
                let out = if to.out == "next" { "" } else { &to.out };
                link(&from, &to.to, out);
            }
        }
        for one in status.functions {
            let id = format!("function:{}", one.name);
            let mut node = Node::new(id, "function", &one.name, &one.ledger);
            node.detail = one.kind.unwrap_or(one.object);
            node.implicit = one.implicit;
            node.function = Some(one.name);
            node.warning = servers_down(&one.carried);
            node.carried = one.carried;
            self.nodes.push(node);
        }
        let ends: BTreeSet<String> = links.iter().map(|link| link.to.clone()).collect();
        for id in ends {
            let (kind, name) = match id.split_once(':') {
                Some(("out", name)) => ("out", name),
                Some(("end", name)) => ("end", name),
                _ => continue,
            };
            let mut node = Node::bare(id.clone(), kind, name);
            node.detail = match (kind, name) {
                ("out", _) => "leaves by this port".to_owned(),
                (_, "stack") => "the host's network stack".to_owned(),
                (_, "drop") => "the link drops packets".to_owned(),
                (_, "tx") => "sent back by the same device".to_owned(),
                _ => String::new(),
            };
            self.nodes.push(node);
        }
        self.links.extend(links);
        Ok(())
    }

    /// Of the JSON of `weir net status`, which has a row for each interface: those of one function are one node.
    fn add_networks(&mut self, networks: &Value) {
        let rows = networks["interfaces"].as_array();
        let rows: Vec<&Value> = rows.into_iter().flatten().collect();
        let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let id =
            |row: &Value| format!("network:{}/{}", text(row, "network"), text(row, "function"));
        let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
        for row in &rows {
            let (id, function) = (id(row), text(row, "function"));
            let (kind, name) = match text(row, "interface") {
                of if of.starts_with("workload ") => ("workload", function.as_str()),
                of if of.starts_with("tunnel ") => ("tunnel", function.as_str()),
                _ => ("network", function.as_str()),
            };
            let node = nodes.entry(id.clone()).or_insert_with(|| {
                let mut node = Node::bare(id, kind, name);
                node.detail = format!("network {}", text(row, "network"));
                if kind == "network" {
                    node.function = Some(format!("{}/{function}", text(row, "network")));
                }
                node
            });
            node.packets += row["packets"].as_u64().unwrap_or_default();
            node.bytes += row["bytes"].as_u64().unwrap_or_default();
            node.drops += row["dropped"].as_u64().unwrap_or_default();
            for (reason, packets) in row["reasons"].as_object().into_iter().flatten() {
                node.add(reason, packets.as_u64().unwrap_or_default());
            }
            let cures = row["cures"].as_object().into_iter().flatten();
            let mut cures = cures.filter_map(|(_, cure)| cure.as_str());
            node.warning = node.warning.take().or(cures.next().map(str::to_owned));
        }
        for row in networks["totals"].as_array().into_iter().flatten() {
            let number = |name: &str| row[name].as_u64().unwrap_or_default();
            let reasons = row["reasons"].as_object().into_iter().flatten();
            let reasons = reasons
                .map(|(reason, packets)| Counted::of(reason, packets.as_u64().unwrap_or_default()));
            self.networks.push(Total {
                name: text(row, "network"),
                packets: number("packets"),
                bytes: number("bytes"),
                drops: number("dropped"),
                reasons: reasons.collect(),
            });
        }
        let mut links = BTreeSet::new();
        for row in &rows {
            let vid = row["vid"].as_u64().unwrap_or_default();
            let peer = row["peer"].as_u64().unwrap_or_default();
            let other = rows.iter().find(|one| one["vid"].as_u64() == Some(peer));
            // Both directions are one link.
            if let Some(other) = other.filter(|_| vid < peer) {
                links.insert(Link {
                    from: id(row),
                    to: id(other),
                    out: String::new(),
                });
            }
        }
        self.nodes.extend(nodes.into_values());
        self.links.extend(links);
    }
}

/// Which services have servers that failed their checks.
fn servers_down(carried: &[Carried]) -> Option<String> {
    let of = |one: &Carried| {
        let (down, [_, all]) = (one.down?, one.servers?);
        Some(format!("{down} of {all} servers of {} are down", one.to))
    };
    let all: Vec<String> = carried.iter().filter_map(of).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

impl Node {
    fn new(id: String, kind: &'static str, name: &str, ledger: &Ledger) -> Node {
        let of = &ledger.verdicts;
        let verdicts = [
            ("next", of.next),
            ("pass", of.pass),
            ("drop", of.drop),
            ("tx", of.tx),
            ("redirect", of.redirect),
            ("aborted", of.aborted),
        ];
        let mut node = Node::bare(id, kind, name);
        node.packets = ledger.received;
        node.bytes = ledger.bytes;
        node.drops = of.drop + of.aborted;
        node.verdicts = verdicts.into_iter().filter(|(_, n)| *n > 0).collect();
        for one in &ledger.reasons {
            node.add(one.reason, one.packets);
        }
        node
    }

    /// Without counters.
    fn bare(id: String, kind: &'static str, name: &str) -> Node {
        Node {
            id,
            kind,
            name: name.to_owned(),
            detail: String::new(),
            implicit: false,
            function: None,
            packets: 0,
            bytes: 0,
            drops: 0,
            verdicts: BTreeMap::new(),
            reasons: Vec::new(),
            carried: Vec::new(),
            warning: None,
        }
    }

    fn add(&mut self, reason: &str, packets: u64) {
        if let Some(known) = self.reasons.iter_mut().find(|one| one.reason == reason) {
            known.packets += packets;
            return;
        }
        self.reasons.push(Counted::of(reason, packets));
    }
}

impl Counted {
    fn of(reason: &str, packets: u64) -> Counted {
        let known = Reason::ALL.iter().find(|one| one.name() == reason);
        Counted {
            reason: reason.to_owned(),
            packets,
            text: known.map_or("", |one| one.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn interfaces_of_one_function_are_one_node() {
        let row = |vid: u32, peer: u32, function: &str, interface: &str, dropped: u64| {
            let reasons = match dropped {
                0 => json!({}),
                _ => json!({ "spoofed_mac": dropped }),
            };
            json!({
                "network": "shop", "function": function, "interface": interface, "vid": vid, "peer": peer, "packets": 10,
                "bytes": 600, "dropped": dropped, "reasons": reasons, "cures": {},
            })
        };
        let rows = [
            row(1, 2, "w1", "workload w1", 3),
            row(2, 1, "web", "web -> workload w1", 1),
            row(3, 4, "tunnel web", "tunnel web", 0),
            row(4, 3, "web", "web -> other edges", 2),
        ];
        let mut graph = Graph::default();
        let totals = json!([{ "network": "shop", "workloads": 1, "packets": 10, "bytes": 600, "dropped": 6, "reasons": { "spoofed_mac": 6 } }]);
        graph.add_networks(&json!({ "interfaces": rows, "totals": totals }));
        let total = &graph.networks[0];
        assert_eq!(
            (total.name.as_str(), total.packets, total.drops),
            ("shop", 10, 6)
        );
        assert!(!total.reasons[0].text.is_empty());
        let nodes: Vec<_> = (graph.nodes.iter())
            .map(|node| (node.id.as_str(), node.kind, node.packets, node.drops))
            .collect();
        assert_eq!(
            nodes,
            [
                ("network:shop/tunnel web", "tunnel", 10, 0),
                ("network:shop/w1", "workload", 10, 3),
                ("network:shop/web", "network", 20, 3),
            ]
        );
        let web = &graph.nodes[2];
        assert_eq!((web.reasons.len(), web.reasons[0].packets), (1, 3));
        assert!(!web.reasons[0].text.is_empty());
        let links: Vec<_> = (graph.links.iter())
            .map(|link| (link.from.as_str(), link.to.as_str()))
            .collect();
        let expected = [
            ("network:shop/tunnel web", "network:shop/web"),
            ("network:shop/w1", "network:shop/web"),
        ];
        assert_eq!(links, expected, "each pair once");
    }

    #[test]
    fn servers_that_are_down_are_a_warning() {
        let carried = |down| Carried {
            to: "tcp 192.0.2.1:80 (web)".to_owned(),
            packets: 0,
            bytes: 0,
            flows: None,
            servers: Some([1, 3]),
            down,
        };
        assert_eq!(servers_down(&[carried(None)]), None);
        assert_eq!(
            servers_down(&[carried(None), carried(Some(2))]).as_deref(),
            Some("2 of 3 servers of tcp 192.0.2.1:80 (web) are down")
        );
    }
}
