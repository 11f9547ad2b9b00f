//! Edges that share a network: each reaches the others, they take what is sent, packets fit with the tunnel around them, and identifiers
//! are unique.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_policy::Report;
use weir_policy::ast::Span;

use super::{leaves, tenant_number};
use crate::graph::Graph;
use crate::model::{Document, Edge, Network};

pub(super) fn check(document: &Document, graphs: &[Graph], report: &mut Report) {
    underlays(document, report);
    let mut pairs: BTreeSet<(usize, usize)> = BTreeSet::new();
    for graph in graphs {
        for from in &graph.members {
            pairs.extend(
                graph
                    .members
                    .iter()
                    .filter(|to| *to != from)
                    .map(|to| (*from, *to)),
            );
        }
    }
    let mut mute = BTreeSet::new();
    for (from, to) in pairs {
        let (one, other) = (&document.edges[from], &document.edges[to]);
        pair(one, other, from < to, &mut mute, report);
    }
    for (network, graph) in document.networks.iter().zip(graphs) {
        fits(document, network, graph, report);
    }
    identifiers(document, graphs, report);
    tenants(document, report);
}

fn underlays(document: &Document, report: &mut Report) {
    let mut seen: BTreeMap<IpAddr, Span> = BTreeMap::new();
    for edge in &document.edges {
        for (at, address) in edge.underlay.iter().enumerate() {
            if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
                let text = format!("tunnels cannot end at `{}`", address.value);
                report
                    .error(0, address.span, text)
                    .help("name an address of the edge in the underlay");
            }
            if edge.underlay[..at]
                .iter()
                .any(|one| one.is_ipv4() == address.is_ipv4())
            {
                let text = format!("edge `{}` has two addresses of one family", edge.name.value);
                report
                    .error(0, address.span, text)
                    .help("name one address of IPv4, one of IPv6, or both");
            }
            if let Some(first) = seen.insert(address.value, address.span) {
                report
                    .error(
                        0,
                        address.span,
                        format!("duplicate address `{}`", address.value),
                    )
                    .help("each edge has its own addresses in the underlay")
                    .also(0, first, "the first one");
            }
        }
    }
}

/// Whether packets get from one edge to the other; what concerns both is said once.
fn pair<'a>(
    one: &'a Edge,
    other: &'a Edge,
    first: bool,
    mute: &mut BTreeSet<&'a str>,
    report: &mut Report,
) {
    let [from, to] = [one, other].map(|edge| &edge.name);
    if !other.takes(one.tunnel.value) {
        let text = format!(
            "edge `{}` sends {}, which edge `{}` does not accept",
            from.value, one.tunnel.value, to.value
        );
        report
            .error(0, one.tunnel.span, text)
            .help(format!(
                "add `\"{}\"` to `accepts` of `{}`",
                one.tunnel.value, to.value
            ))
            .also(0, to.span, "this one");
    }
    for edge in [one, other] {
        let lacks = match (edge.underlay.is_empty(), edge.device.is_none()) {
            (true, _) => "underlay",
            (_, true) => "device",
            _ => continue,
        };
        if mute.insert(&edge.name.value) {
            let text = format!(
                "edge `{}` has networks that other edges have, too, and no `{lacks}`",
                edge.name.value
            );
            let help = match lacks {
                "underlay" => "add `underlay = \"ADDRESS\"`: where its tunnels end",
                _ => "add `device = \"NAME\"`: the interface of the underlay",
            };
            report.error(0, edge.name.span, text).help(help);
        }
    }
    let has_both = !one.underlay.is_empty() && !other.underlay.is_empty();
    if first && has_both && one.way_to(other).is_none() {
        let text = format!(
            "edges `{}` and `{}` have networks in common, and no family of addresses in the underlay",
            from.value, to.value
        );
        report
            .error(0, to.span, text)
            .help("give both an address of IPv4, or both one of IPv6: `underlay = [\"...\", \"...\"]`")
            .also(0, from.span, "the other one");
    }
}

/// The worst of all ways that packets of a network go.
fn fits(document: &Document, network: &Network, graph: &Graph, report: &mut Report) {
    let edges = &document.edges;
    let mut worst: Option<(u16, &Edge, &Edge, u16)> = None;
    for from in &graph.members {
        for to in graph.members.iter().filter(|to| *to != from) {
            let (one, other) = (&edges[*from], &edges[*to]);
            let Some((own, _)) = one.way_to(other) else {
                continue;
            };
            let overhead = one.tunnel.overhead(own.is_ipv6());
            // Whichever of both underlays carries less.
            let narrow = if other.mtu.value < one.mtu.value {
                other
            } else {
                one
            };
            let room = narrow.mtu.saturating_sub(overhead);
            if room < network.mtu.value && worst.is_none_or(|(least, ..)| room < least) {
                worst = Some((room, one, narrow, overhead));
            }
        }
    }
    let Some((room, one, narrow, overhead)) = worst else {
        return;
    };
    let text = format!(
        "packets of `{}` have up to {} bytes, with {} around them {}; the underlay of edge `{}` carries {}",
        network.name.value,
        network.mtu.value,
        one.tunnel.value,
        u32::from(network.mtu.value) + u32::from(overhead),
        narrow.name.value,
        narrow.mtu.value
    );
    report
        .error(0, network.mtu.span, text)
        .help(format!("write `mtu = {room}` in the network, or `mtu = {}` in the edge if its underlay carries that", u32::from(network.mtu.value) + u32::from(overhead)))
        .also(0, narrow.mtu.span, "the underlay");
}

fn identifiers(document: &Document, graphs: &[Graph], report: &mut Report) {
    let mut seen: BTreeMap<u32, Span> = BTreeMap::new();
    for (network, graph) in document.networks.iter().zip(graphs) {
        let subnets = network
            .subnets
            .iter()
            .filter_map(|subnet| subnet.identifier);
        let links = network.links.iter().filter_map(|link| link.identifier);
        for identifier in subnets.chain(links) {
            if let Some(first) = seen.insert(identifier.value, identifier.span) {
                report
                    .error(0, identifier.span, format!("duplicate identifier {}", identifier.value))
                    .help("identifiers must be unique over all subnets and links; omitted ones are assigned")
                    .also(0, first, "the first one");
            }
        }
        for (link, wire) in network.links.iter().zip(&graph.wires) {
            if let (Some(identifier), Some(wire)) = (link.identifier, wire)
                && !leaves(graph, wire.ends)
            {
                let text = format!(
                    "the link from `{}` to `{}` never leaves an edge: its identifier is not used",
                    link.from.value, link.to.value
                );
                report
                    .warning(0, identifier.span, text)
                    .help("leave it out");
            }
        }
    }
}

/// Tenants are told apart by numbers made of their names.
fn tenants(document: &Document, report: &mut Report) {
    let mut seen: BTreeMap<u32, (&str, Span)> = BTreeMap::new();
    for tenant in &document.tenants {
        let name = tenant.name.as_str();
        match seen.insert(tenant_number(name), (name, tenant.name.span)) {
            Some((other, first)) if other != name => {
                let text = format!(
                    "the tenants `{other}` and `{name}` have the same number, which is made of the name"
                );
                report
                    .error(0, tenant.name.span, text)
                    .help("give one of them another name")
                    .also(0, first, "the other one");
            }
            _ => {}
        }
    }
}
