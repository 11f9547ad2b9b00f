//! Documents of the networks that are measured: a row of routers with subnets between them and at both ends, and many small networks.
//!
//! Invariant: addresses and MAC addresses are a matter of position, so that other programs can be given the same topology.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// Name of the edge.
pub(super) const EDGE: &str = "bench";

/// Routers of a row of so many functions: between them and at both ends are bridges.
pub(super) fn routers(functions: usize) -> usize {
    functions.saturating_sub(1) / 2
}

/// Address of a host of a subnet of the row.
pub(super) fn address(subnet: usize, host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, subnet as u8, host as u8)
}

/// Address that the router on the right of a subnet has in it, and the one of the router on its left.
pub(super) const RIGHT: usize = 1;
pub(super) const LEFT: usize = 2;

/// MAC address of a router's interface; `side`: `l` or `r`.
pub(super) fn router_mac(router: usize, side: char) -> String {
    format!("02:0c:00:00:{router:02x}:{:02x}", u8::from(side == 'r') + 1)
}

/// MAC address of a workload at the end `a` or `b` of the row.
pub(super) fn workload_mac(end: char, pair: usize) -> String {
    format!("02:0{end}:00:00:00:{pair:02x}")
}

/// Host number of the workloads of a pair.
pub(super) fn host(pair: usize) -> usize {
    pair + 10
}

/// Name of the edge's device of a workload.
pub(super) fn device(end: char, pair: usize) -> String {
    format!("{end}{pair}")
}

/// The two routes of a router of the row that do not come of its interfaces: towards the last subnet and towards the first, with their gateways.
pub(super) fn routes(router: usize, routers: usize) -> Vec<(String, Ipv4Addr)> {
    let mut routes = Vec::new();
    if router + 1 < routers {
        let last = format!("{}/24", address(routers, 0));
        routes.push((last, address(router + 1, RIGHT)));
    }
    if router > 0 {
        let first = format!("{}/24", address(0, 0));
        routes.push((first, address(router, LEFT)));
    }
    routes
}

/// A row of so many functions, an odd number, with `pairs` of workloads at its ends.
pub(super) fn row(functions: usize, pairs: usize) -> String {
    let routers = routers(functions);
    let mut text = format!(
        "version = 1\n\n[[edge]]\nname = \"{EDGE}\"\n\n[[tenant]]\nname = \"t\"\n\n[[network]]\nname = \"row\"\ntenant = \"t\"\n"
    );
    for subnet in 0..=routers {
        let _ = write!(
            text,
            "\n[[network.subnet]]\nname = \"s{subnet}\"\nprefix = \"{}/24\"\n",
            address(subnet, 0)
        );
    }
    for router in 0..routers {
        let side = |name: char, subnet: usize, host: usize| {
            format!(
                "{{ name = \"{name}\", address = \"{}/24\", mac = \"{}\" }}",
                address(subnet, host),
                router_mac(router, name)
            )
        };
        let shown: Vec<String> = routes(router, routers)
            .iter()
            .map(|(to, via)| format!("\"{to} via {via}\""))
            .collect();
        let _ = write!(
            text,
            "\n[[network.function]]\nname = \"r{router}\"\nkind = \"router\"\ninterface = [{}, {}]\nroute = [{}]\n",
            side('l', router, RIGHT),
            side('r', router + 1, LEFT),
            shown.join(", ")
        );
        let _ = write!(
            text,
            "\n[[network.link]]\nfrom = \"s{router}\"\nto = \"r{router}.l\"\n\n[[network.link]]\nfrom = \"s{}\"\nto = \"r{router}.r\"\n",
            router + 1
        );
    }
    for pair in 0..pairs {
        for (end, subnet) in [('a', 0), ('b', routers)] {
            let _ = write!(
                text,
                "\n[[network.workload]]\nname = \"{end}{pair}\"\nsubnet = \"s{subnet}\"\nedge = \"{EDGE}\"\ndevice = \"{}\"\nmac = \"{}\"\naddress = \"{}\"\n",
                device(end, pair),
                workload_mac(end, pair),
                // Of a single bridge both ends are in one subnet.
                address(subnet, end_host(end, pair))
            );
        }
    }
    text
}

/// Names of two edges.
pub(super) const EDGES: [&str; 2] = ["here", "there"];

/// One subnet over two edges that are joined by a device `wire`, with a workload of each pair at each. `underlay`: the addresses of both.
pub(super) fn stretched(tunnel: &str, underlay: [&str; 2], pairs: usize) -> String {
    let mut text = "version = 1\n".to_owned();
    for (edge, address) in EDGES.iter().zip(underlay) {
        let _ = write!(
            text,
            "\n[[edge]]\nname = \"{edge}\"\nunderlay = \"{address}\"\ndevice = \"wire\"\nmtu = 1600\ntunnel = \"{tunnel}\"\n"
        );
    }
    let _ = write!(
        text,
        "\n[[tenant]]\nname = \"t\"\n\n[[network]]\nname = \"stretched\"\ntenant = \"t\"\n\n[[network.subnet]]\nname = \"s0\"\nprefix = \"{}/24\"\n",
        address(0, 0)
    );
    for pair in 0..pairs {
        for (end, edge) in ['a', 'b'].into_iter().zip(EDGES) {
            let _ = write!(
                text,
                "\n[[network.workload]]\nname = \"{end}{pair}\"\nsubnet = \"s0\"\nedge = \"{edge}\"\ndevice = \"{}\"\nmac = \"{}\"\naddress = \"{}\"\n",
                device(end, pair),
                workload_mac(end, pair),
                address(0, end_host(end, pair))
            );
        }
    }
    text
}

/// Host number at an end: different at both, as a single bridge has both.
pub(super) fn end_host(end: char, pair: usize) -> usize {
    host(pair) + if end == 'b' { 100 } else { 0 }
}

/// Workloads of each of many networks.
pub(super) const WORKLOADS: usize = 10;

/// So many networks of two subnets, a router between them, and ten workloads; the last network has `without` fewer.
pub(super) fn many(networks: usize, version: u64, without: usize) -> String {
    let mut text = format!("version = {version}\n\n[[edge]]\nname = \"{EDGE}\"\n");
    for network in 0..networks {
        // All of them have the same addresses.
        let _ = write!(
            text,
            "\n[[tenant]]\nname = \"t{network}\"\n\n[[network]]\nname = \"n{network}\"\ntenant = \"t{network}\"\n\n\
             [[network.subnet]]\nname = \"s0\"\nprefix = \"10.9.0.0/24\"\n\n[[network.subnet]]\nname = \"s1\"\nprefix = \"10.9.1.0/24\"\n\n\
             [[network.function]]\nname = \"r\"\nkind = \"router\"\ninterface = [{{ name = \"l\", address = \"10.9.0.1/24\" }}, \
             {{ name = \"r\", address = \"10.9.1.1/24\" }}]\n\n[[network.link]]\nfrom = \"s0\"\nto = \"r.l\"\n\n\
             [[network.link]]\nfrom = \"s1\"\nto = \"r.r\"\n"
        );
        let fewer = if network + 1 == networks { without } else { 0 };
        for workload in 0..WORKLOADS - fewer {
            let subnet = workload % 2;
            let _ = write!(
                text,
                "\n[[network.workload]]\nname = \"w{workload}\"\nsubnet = \"s{subnet}\"\nedge = \"{EDGE}\"\ndevice = \"d{}\"\naddress = \"{}\"\n",
                network * WORKLOADS + workload,
                address(subnet, host(workload))
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::network::edge::checked;

    #[test]
    fn documents_are_what_networks_are_planned_from() {
        for functions in [1, 3, 21, 101] {
            let wanted = checked(&row(functions, 16)).expect("a document");
            let network = &wanted.document.networks[0];
            let all = network.subnets.len() + network.functions.len();
            assert_eq!((all, network.workloads.len()), (functions, 32));
        }
        let wanted = checked(&stretched("vxlan", ["192.0.2.1", "192.0.2.2"], 2)).expect("ok");
        assert_eq!(wanted.document.networks[0].workloads.len(), 4);
        let wanted = checked(&many(3, 2, 1)).expect("a document");
        let count = |n: usize| wanted.document.networks[n].workloads.len();
        assert_eq!([count(0), count(2)], [10, 9]);
    }
}
