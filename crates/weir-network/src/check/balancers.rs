//! Balancers in networks: of all modes NAT alone, and a place in the network in which every packet of a service finds its way there and back.
//!
//! A balancer leaves MAC addresses as they are: behind it stands a router, which looks the server up. What servers answer passes it again
//! because they are behind that router, too.

use std::collections::BTreeSet;
use std::net::IpAddr;

use toml::{Table, Value};
use weir_functions::balancer::Balancer;
use weir_policy::Report;
use weir_policy::ast::Span;

use crate::graph::{Graph, Who, addresses};
use crate::model::{Function, Network};

/// The kind of functions that are balancers.
pub const BALANCER: &str = "balancer";

fn place(function: &Function, key: &str) -> Span {
    let known = function.places.0.get(key).copied();
    known.unwrap_or(function.name.span)
}

/// Refuses keys that are about hosts, CPUs and devices. Returns whether there are none.
pub(super) fn keys(function: &Function, report: &mut Report) -> bool {
    let before = report.errors();
    for key in ["source4", "source6"] {
        if function.keys.contains_key(key) {
            let text = format!("`{key}` is for tunnels to servers, and in networks there are none");
            report
                .error(0, place(function, key), text)
                .help("leave it out: in networks services have `mode = \"nat\"`");
        }
    }
    for (at, service) in tables(&function.keys, "service") {
        let at = format!("service.{at}");
        let mode = service.get("mode").and_then(Value::as_str);
        if let Some(mode) = mode.filter(|mode| ["ipip", "gue", "dsr"].contains(mode)) {
            let text = format!(
                "mode \"{mode}\" does not work in networks: servers would answer from the service's address, which they do not have"
            );
            report
                .error(0, place(function, &format!("{at}.mode")), text)
                .help("write mode = \"nat\"");
        }
        for key in ["check", "all_down"] {
            if service.contains_key(key) {
                report
                    .error(
                        0,
                        place(function, &format!("{at}.{key}")),
                        "servers in networks have no health checks",
                    )
                    .help(format!(
                        "leave `{key}` out; `drain = true` takes a server out of the ring"
                    ));
            }
        }
        for (number, server) in tables(service, "server") {
            for key in ["mac", "to", "cpu"] {
                if server.contains_key(key) {
                    let text = format!(
                        "`{key}` sets how a host reaches a server; in networks routers do that"
                    );
                    let at = place(function, &format!("{at}.server.{number}.{key}"));
                    report.error(0, at, text).help("leave it out");
                }
            }
        }
    }
    report.errors() == before
}

fn tables<'a>(keys: &'a Table, key: &str) -> impl Iterator<Item = (usize, &'a Table)> {
    let list = keys.get(key).and_then(Value::as_array);
    let numbered = list.into_iter().flatten().enumerate();
    numbered.filter_map(|(at, one)| Some((at, one.as_table()?)))
}

/// Whether packets of its services find their way, to servers and back.
pub(super) fn way(
    network: &Network,
    graph: &Graph,
    at: usize,
    balancer: &Balancer,
    report: &mut Report,
) {
    let function = &network.functions[at];
    let name = &function.name.value;
    // What is not linked is told where links are looked at.
    if graph.at_side[at].iter().any(Option::is_none) {
        return;
    }
    let mut near = BTreeSet::new();
    let mut routers = 0;
    for tip in graph.at_side[at].iter().flatten() {
        let beyond = graph.beyond(network, *tip);
        let is_router = |who: &&Who| matches!(who, Who::Side(..));
        routers += beyond.who.iter().filter(is_router).count();
        near.extend(beyond.subnets);
    }
    if routers == 0 {
        let text =
            format!("no router is linked to `{name}`: packets to its servers could not be routed");
        report.error(0, function.name.span, text).help(format!(
            "put it between clients and the router that leads to the servers: link `{name}.b` to an interface of it"
        ));
        return;
    }
    let subnet_of = |address: IpAddr| {
        let subnets = near.iter().map(|at| &network.subnets[*at]);
        subnets
            .filter(|subnet| subnet.prefixes.iter().any(|net| net.contains(address)))
            .map(|subnet| &subnet.name.value)
            .next()
    };
    let declared = declared(network);
    for (number, service) in balancer.services.iter().enumerate() {
        let address = service.address.address();
        let at = place(function, &format!("service.{number}.address"));
        if declared.contains(&address) {
            let text = format!(
                "the address `{address}` of service `{}` is already in use",
                service.name
            );
            report
                .error(0, at, text)
                .help("a service has its own address, in none of the subnets that are linked to the balancer");
        } else if let Some(subnet) = subnet_of(address) {
            let text = format!(
                "the address `{address}` of service `{}` is in subnet `{subnet}`, where ARP and ND for it are not answered",
                service.name
            );
            report
                .error(0, at, text)
                .help("choose an address outside of it: workloads send what is for that to their router, and so through the balancer");
        }
        for (place_of, server) in service.servers.iter().enumerate() {
            let Some(subnet) = subnet_of(server.address) else {
                continue;
            };
            let text = format!(
                "server `{}` of service `{}` is in subnet `{subnet}`, in front of the router: what it answers would not pass `{name}`",
                server.address, service.name
            );
            let key = format!("service.{number}.server.{place_of}.address");
            report
                .error(0, place(function, &key), text)
                .help("put servers into a subnet behind the router");
        }
    }
}

/// All addresses that workloads and routers of a network have.
fn declared(network: &Network) -> BTreeSet<IpAddr> {
    let workloads = (0..network.workloads.len()).map(Who::Workload);
    let sides = (network.functions.iter().enumerate())
        .flat_map(|(at, one)| (0..one.interfaces.len()).map(move |side| Who::Side(at, side)));
    let all = workloads.chain(sides);
    all.flat_map(|who| addresses(network, who))
        .map(|one| one.value)
        .collect()
}
