//! Addresses: of whom they can be, where they belong, that they are there once, and that prefixes of a tenant do not overlap.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use weir_policy::Report;
use weir_policy::ast::Span;
use weir_value::Prefix;

use super::Shape;
use crate::graph::Graph;
use crate::model::{Addresses, Document, Network, Station, Vlan};
use crate::values::{At, Mac, mapped};

pub(super) fn check(document: &Document, graphs: &[Graph], shapes: &[Shape], report: &mut Report) {
    for (at, network) in document.networks.iter().enumerate() {
        mtus(network, report);
        workloads(document, network, &graphs[at], report);
        interfaces(network, &graphs[at], report);
        duplicates(network, &graphs[at], report);
        gateways(network, &graphs[at], report);
    }
    overlaps(document, shapes, report);
}

/// Why an address is nobody's.
fn unusable(address: IpAddr, net: Option<Prefix>) -> Option<&'static str> {
    if address.is_unspecified() {
        return Some("it is the unspecified address");
    }
    if address.is_multicast() {
        return Some("it is a multicast address");
    }
    if address.is_loopback() {
        return Some("it is a loopback address");
    }
    let (IpAddr::V4(v4), Some(net)) = (address, net) else {
        return None;
    };
    let hosts = u32::MAX.checked_shr(net.len.into()).unwrap_or(0);
    match u32::from(v4) & hosts {
        _ if net.len >= 31 => None,
        0 => Some("it is the network address"),
        bits if bits == hosts => Some("it is the broadcast address"),
        _ => None,
    }
}

/// Every interface may have some, whatever the subnet (RFC 4291, 2.1).
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Smallest MTU of a link that carries IPv6 (RFC 8200, 5).
const LEAST_MTU6: u16 = 1280;

fn mtus(network: &Network, report: &mut Report) {
    let mut small = |mtu: &At<u16>, who: String| {
        report
            .error(
                0,
                mtu.span,
                format!(
                    "an MTU of {} is too small for {who}, which has addresses of IPv6",
                    mtu.value
                ),
            )
            .help(format!(
                "write `mtu = {LEAST_MTU6}` or more: IPv6 does not work with less (RFC 8200, 5)"
            ));
    };
    let prefixes = network.subnets.iter().flat_map(|subnet| &subnet.prefixes);
    if network.mtu.value < LEAST_MTU6 && prefixes.into_iter().any(|prefix| prefix.is_ip6) {
        small(&network.mtu, format!("network `{}`", network.name.value));
    }
    for function in &network.functions {
        for interface in &function.interfaces {
            let has_v6 = interface.addresses.iter().any(|own| own.address.is_ipv6());
            if let Some(mtu) = interface
                .mtu
                .as_ref()
                .filter(|mtu| has_v6 && mtu.value < LEAST_MTU6)
            {
                small(
                    mtu,
                    format!("`{}.{}`", function.name.value, interface.name.value),
                );
            }
        }
    }
}

fn texts<'a>(prefixes: impl Iterator<Item = &'a At<Prefix>>) -> String {
    let texts: Vec<String> = prefixes.map(|one| format!("`{}`", one.value)).collect();
    match texts.as_slice() {
        [] => "it has no prefix; add `prefix = [\"...\"]`".to_owned(),
        _ => format!("it has {}", texts.join(", ")),
    }
}

fn workloads(document: &Document, network: &Network, graph: &Graph, report: &mut Report) {
    for (at, workload) in network.workloads.iter().enumerate() {
        let name = &workload.name.value;
        if let Vlan::Trunk(list) = &workload.vlan {
            let mut sorted = list.clone();
            sorted.sort_unstable();
            sorted.dedup();
            if list.is_empty() || sorted.len() != list.len() {
                report
                    .error(0, workload.name.span, format!("`vlan` of `{name}` has no VLAN, or one twice"))
                    .help("write `vlan = 7` for untagged packets of VLAN 7, or `vlan = [7, 8]` for tagged ones");
            }
        }
        if let Station::Given(mac) = workload.mac {
            mac_address(&mac, report);
        }
        if let (Station::Device(mac), Some(edge)) = (workload.mac, graph.edge_of[at]) {
            if let Some(read) = mac.value {
                mac_address(&mac.with(read), report);
            }
            // Bridges of all edges have a declared station for it.
            if let Some(other) = graph.members.iter().find(|other| **other != edge) {
                let text = format!(
                    "the device of `{name}` can be read on edge `{}` only, and the network is on edge `{}`, too",
                    workload.edge.value, document.edges[*other].name.value
                );
                let help = "write the MAC address: `mac = \"02:...\"`; or leave `mac` out, and give the device the one that `weir plan` prints";
                report.error(0, mac.span, text).help(help);
            }
        }
        let Addresses::Given(list) = &workload.addresses else {
            continue;
        };
        if list.is_empty() {
            report
                .error(
                    0,
                    workload.name.span,
                    format!("`{name}` has no address that it may send from"),
                )
                .help("add `address = [\"...\"]`, or `address = \"any\"`");
        }
        let Some(subnet) = graph.subnet_of[at].map(|at| &network.subnets[at]) else {
            continue;
        };
        for address in list {
            let net = subnet
                .prefixes
                .iter()
                .find(|net| net.contains(address.value));
            if let Some(why) = unusable(address.value, net.map(|net| net.value)) {
                let text = format!(
                    "`{name}` cannot have the address `{}`: {why}",
                    address.value
                );
                report
                    .error(0, address.span, text)
                    .help("choose another address of the subnet");
            } else if net.is_none() && !is_link_local(address.value) {
                let text = format!(
                    "the address `{}` of `{name}` is not in the subnet `{}`",
                    address.value, subnet.name.value
                );
                report
                    .error(0, address.span, text)
                    .help(texts(subnet.prefixes.iter()));
            }
        }
    }
}

fn mac_address(mac: &At<Mac>, report: &mut Report) {
    if !mac.is_station() {
        report
            .error(
                0,
                mac.span,
                format!("`{}` is not a unicast MAC address", mac.value),
            )
            .help("the first byte is even, and not all are zero");
    }
}

fn interfaces(network: &Network, graph: &Graph, report: &mut Report) {
    for (at, function) in network.functions.iter().enumerate() {
        for (side, interface) in function.interfaces.iter().enumerate() {
            let name = format!("{}.{}", function.name.value, interface.name.value);
            if let Some(mac) = &interface.mac {
                mac_address(mac, report);
            }
            if interface.addresses.is_empty() {
                report
                    .error(0, interface.name.span, format!("`{name}` has no address"))
                    .help("add `address = [\"...\"]`, with the length of its network's prefix");
            }
            let subnets = match graph.at_side[at][side] {
                Some(tip) => graph.beyond(network, tip).subnets,
                None => continue,
            };
            let prefixes = || subnets.iter().flat_map(|at| &network.subnets[*at].prefixes);
            for net in &interface.addresses {
                if let Some(why) = unusable(net.address, Some(net.network())) {
                    let text = format!("`{name}` cannot have the address `{}`: {why}", net.value);
                    report
                        .error(0, net.span, text)
                        .help("choose another address of the subnet");
                    continue;
                }
                // Between routers there may be no subnet at all.
                let Some(first) = subnets.first().map(|at| &network.subnets[*at].name.value) else {
                    continue;
                };
                match prefixes().find(|prefix| prefix.contains(net.address)) {
                    None => {
                        let text = format!(
                            "the address `{}` of `{name}` is not in the subnet `{first}` that it is linked to",
                            net.value
                        );
                        report.error(0, net.span, text).help(texts(prefixes()));
                    }
                    Some(prefix) if prefix.len != net.len => {
                        let text = format!(
                            "the address `{}` of `{name}` is of another prefix than the subnet `{first}` has",
                            net.value
                        );
                        let help = format!("write `{}/{}`", net.address, prefix.len);
                        report.error(0, net.span, text).help(help);
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

/// MAC and IP addresses that two of a network have.
fn duplicates(network: &Network, graph: &Graph, report: &mut Report) {
    let mut macs: HashMap<Mac, Span> = HashMap::new();
    let mut addresses: HashMap<IpAddr, Span> = HashMap::new();
    let mut mac = |mac: Mac, at: Span, is_made: bool, report: &mut Report| {
        if let Some(first) = macs.insert(mac, at) {
            let help = match is_made {
                true => "it is made of the name; give it another one: `mac = \"...\"`",
                false => "MAC addresses must be unique within a network",
            };
            report
                .error(0, at, format!("duplicate MAC address `{mac}`"))
                .help(help)
                .also(0, first, "the first one");
        }
    };
    let mut address = |address: &IpAddr, at: Span, report: &mut Report| {
        if let Some(first) = addresses.insert(*address, at) {
            report
                .error(0, at, format!("duplicate address `{address}`"))
                .help("addresses must be unique within a network; other networks may reuse them")
                .also(0, first, "the first one");
        }
    };
    for (at, function) in network.functions.iter().enumerate() {
        for (side, interface) in function.interfaces.iter().enumerate() {
            let place = interface.mac.map_or(interface.name.span, |mac| mac.span);
            mac(
                graph.side_macs[at][side],
                place,
                interface.mac.is_none(),
                report,
            );
            for net in &interface.addresses {
                address(&net.address, net.span, report);
            }
        }
    }
    for (at, workload) in network.workloads.iter().enumerate() {
        if let Some(own) = graph.workload_macs[at] {
            let (place, is_made) = match workload.mac {
                Station::Given(mac) => (mac.span, false),
                Station::Device(mac) => (mac.span, false),
                _ => (workload.name.span, true),
            };
            mac(own, place, is_made, report);
        }
        for one in workload.addresses.known() {
            address(&one.value, one.span, report);
        }
    }
}

/// Gateways that hosts are told of are routers of their segment.
fn gateways(network: &Network, graph: &Graph, report: &mut Report) {
    for (at, subnet) in network.subnets.iter().enumerate() {
        if subnet.gateway.is_empty() {
            continue;
        }
        let mut routers = Vec::new();
        for tip in &graph.at_subnet[at] {
            for who in graph.beyond(network, *tip).who {
                if let crate::graph::Who::Side(..) = who {
                    let addresses = crate::graph::addresses(network, who);
                    routers.extend(addresses.into_iter().map(|one| one.value));
                }
            }
        }
        for gateway in &subnet.gateway {
            if !routers.contains(&gateway.value) {
                let text = format!(
                    "the gateway `{}` of `{}` is not a router's address there",
                    gateway.value, subnet.name.value
                );
                let known: Vec<String> = routers.iter().map(|one| format!("`{one}`")).collect();
                let help = match known.is_empty() {
                    true => "no router is linked to the subnet".to_owned(),
                    false => format!("routers there have {}", known.join(", ")),
                };
                report.error(0, gateway.span, text).help(help);
            }
        }
    }
}

/// A prefix and the segment it is in: network, and set of subnets that are one at layer 2.
struct Placed<'a> {
    net: &'a At<Prefix>,
    subnet: &'a str,
    segment: (usize, usize),
}

fn overlaps(document: &Document, shapes: &[Shape], report: &mut Report) {
    let mut of_tenants: BTreeMap<&str, Vec<Placed<'_>>> = BTreeMap::new();
    for (at, network) in document.networks.iter().enumerate() {
        let list = of_tenants.entry(network.tenant.as_str()).or_default();
        for (number, subnet) in network.subnets.iter().enumerate() {
            list.extend(subnet.prefixes.iter().map(|net| Placed {
                net,
                subnet: &subnet.name.value,
                segment: (at, shapes[at].segments[number]),
            }));
        }
    }
    for (tenant, mut list) in of_tenants {
        // Of prefixes that overlap one holds the other, and comes first in this order.
        list.sort_by_key(|one| (mapped(&one.net.value), one.net.span.start));
        let mut open: Option<&Placed<'_>> = None;
        for one in &list {
            match open.filter(|open| open.net.overlaps(&one.net.value)) {
                None => open = Some(one),
                // Bridges of one segment share its addresses.
                Some(open) if open.segment == one.segment && open.net.value == one.net.value => {}
                Some(open) => {
                    let text = format!(
                        "`{}` of subnet `{}` overlaps `{}` of subnet `{}`, and both are of tenant `{tenant}`",
                        one.net.value, one.subnet, open.net.value, open.subnet
                    );
                    report
                        .error(0, one.net.span, text)
                        .help(
                            "prefixes must be unique within a tenant; other tenants may reuse them",
                        )
                        .also(0, open.net.span, "the other one");
                }
            }
        }
    }
}
