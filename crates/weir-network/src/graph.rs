//! Names -> places: which subnet a workload is in, what a link joins, what lies behind it at layer 2.
//!
//! Invariant of a [`Graph`] that `check` let pass: every interface of a function is linked once, and no two ways at layer 2 lead from one
//! place to another. Layer 2 ends at interfaces of routers and at workloads; functions with two interfaces hand frames through.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::model::{Document, Network, SIDES, Station};
use crate::values::{At, Mac, mac_of_name};

/// Where a link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum End {
    /// At a bridge.
    Subnet(usize),
    /// At an interface of a function: function, interface.
    Side(usize, usize),
}

/// Who has addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Who {
    Workload(usize),
    /// An interface of a router.
    Side(usize, usize),
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tip {
    pub(crate) link: usize,
    /// 0: `from`, 1: `to`.
    pub(crate) side: usize,
}

/// A link whose ends exist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub(crate) ends: [End; 2],
    pub(crate) vlan: u16,
}

/// What a network is, by places in its lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    /// Of links, `None` where an end is not there.
    pub(crate) wires: Vec<Option<Wire>>,
    /// Links of each subnet.
    pub(crate) at_subnet: Vec<Vec<Tip>>,
    /// The link of each interface of each function.
    pub(crate) at_side: Vec<Vec<Option<Tip>>>,
    /// Subnet of each workload.
    pub(crate) subnet_of: Vec<Option<usize>>,
    /// Edge of each workload.
    pub(crate) edge_of: Vec<Option<usize>>,
    /// Workloads of each subnet.
    pub(crate) workloads_at: Vec<Vec<usize>>,
    /// Home of each function.
    pub(crate) homes: Vec<Option<usize>>,
    /// MAC address of each workload, if it has one.
    pub(crate) workload_macs: Vec<Option<Mac>>,
    /// ... of each interface of each router.
    pub(crate) side_macs: Vec<Vec<Mac>>,
    /// Edges with a workload or a home.
    pub(crate) members: BTreeSet<usize>,
}

/// What lies behind a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beyond {
    pub(crate) who: Vec<Who>,
    pub(crate) subnets: Vec<usize>,
}

impl Graph {
    /// Names that lead nowhere are left out: `check` reports them.
    pub(crate) fn of(document: &Document, network: &Network) -> Graph {
        let edges: BTreeMap<&str, usize> = (document.edges.iter().enumerate())
            .map(|(at, edge)| (edge.name.as_str(), at))
            .collect();
        let names = Names::of(network);
        let edge = |name: &At<String>| edges.get(name.as_str()).copied();
        let mut graph = Graph {
            at_subnet: vec![Vec::new(); network.subnets.len()],
            workloads_at: vec![Vec::new(); network.subnets.len()],
            at_side: (network.functions.iter())
                .map(|function| vec![None; function.sides()])
                .collect(),
            homes: (network.functions.iter())
                .map(|function| edge(function.home.as_ref()?))
                .collect(),
            side_macs: (network.functions.iter())
                .map(|function| side_macs(network, function))
                .collect(),
            ..Graph::default()
        };
        for (at, workload) in network.workloads.iter().enumerate() {
            let subnet = names.subnets.get(workload.subnet.as_str()).copied();
            let edge = edge(&workload.edge);
            if let Some(subnet) = subnet {
                graph.workloads_at[subnet].push(at);
            }
            graph.members.extend(edge);
            graph.subnet_of.push(subnet);
            graph.edge_of.push(edge);
            graph.workload_macs.push(match workload.mac {
                Station::Given(mac) => Some(mac.value),
                Station::Device(At {
                    value: Some(mac), ..
                }) => Some(mac),
                Station::Any => None,
                Station::Made | Station::Device(_) => {
                    let name = format!("{}/{}", network.name.value, workload.name.value);
                    Some(mac_of_name(&name))
                }
            });
        }
        graph.members.extend(graph.homes.iter().flatten());
        for (at, link) in network.links.iter().enumerate() {
            let ends =
                [(&link.from, 1), (&link.to, 0)].map(|(end, bare)| names.end(network, end, bare));
            let wire = match ends {
                [Ok(from), Ok(to)] => Some(Wire {
                    ends: [from, to],
                    vlan: link.vlan,
                }),
                _ => None,
            };
            for (side, end) in wire.iter().flat_map(|wire| wire.ends).enumerate() {
                let tip = Tip { link: at, side };
                match end {
                    End::Subnet(subnet) => graph.at_subnet[subnet].push(tip),
                    // The first link of an interface holds; `check` refuses others.
                    End::Side(function, side) => {
                        graph.at_side[function][side].get_or_insert(tip);
                    }
                }
            }
            graph.wires.push(wire);
        }
        graph
    }

    /// Everything at layer 2 that is reached by leaving a place by its end of a link. Ends although links should form a loop.
    pub(crate) fn beyond(&self, network: &Network, tip: Tip) -> Beyond {
        let mut found = Beyond::default();
        let mut seen = BTreeSet::from([tip.link]);
        let mut ahead = vec![tip];
        while let Some(tip) = ahead.pop() {
            let Some(wire) = self.wires[tip.link] else {
                continue;
            };
            match wire.ends[1 - tip.side] {
                End::Side(function, side) if network.functions[function].is_router() => {
                    found.who.push(Who::Side(function, side));
                }
                End::Side(function, side) => {
                    // Behind functions of a chain is what is behind the chain.
                    let other = if side < 2 { 1 - side } else { side % 2 };
                    let other = self.at_side[function].get(other).copied().flatten();
                    ahead.extend(other.filter(|tip| seen.insert(tip.link)));
                }
                End::Subnet(subnet) => {
                    found.subnets.push(subnet);
                    let inside = self.workloads_at[subnet]
                        .iter()
                        .filter(|at| network.workloads[**at].vlan.list().contains(&wire.vlan));
                    found.who.extend(inside.map(|at| Who::Workload(*at)));
                    let others = self.at_subnet[subnet].iter().filter(|tip| {
                        self.wires[tip.link].is_some_and(|one| one.vlan == wire.vlan)
                    });
                    ahead.extend(others.copied().filter(|tip| seen.insert(tip.link)));
                }
            }
        }
        found
    }

    /// The MAC address of somebody, if it is known.
    pub(crate) fn mac(&self, who: Who) -> Option<Mac> {
        match who {
            Who::Workload(at) => self.workload_macs[at],
            Who::Side(function, side) => self.side_macs[function].get(side).copied(),
        }
    }
}

/// The declared addresses of somebody, in the order of the document.
pub(crate) fn addresses(network: &Network, who: Who) -> Vec<At<IpAddr>> {
    match who {
        Who::Workload(at) => network.workloads[at].addresses.known().to_vec(),
        Who::Side(function, side) => (network.functions[function].interfaces[side].addresses)
            .iter()
            .map(|net| net.with(net.address))
            .collect(),
    }
}

fn side_macs(network: &Network, function: &crate::model::Function) -> Vec<Mac> {
    let made = |interface: &crate::model::Interface| {
        let [network, function] = [&network.name, &function.name].map(|name| name.as_str());
        mac_of_name(&format!("{network}/{function}.{}", interface.name.value))
    };
    (function.interfaces.iter())
        .map(|one| one.mac.map_or_else(|| made(one), |mac| mac.value))
        .collect()
}

/// The names of a network.
pub(crate) struct Names<'a> {
    pub(crate) subnets: BTreeMap<&'a str, usize>,
    pub(crate) functions: BTreeMap<&'a str, usize>,
}

/// Why a text names no end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoEnd {
    /// No subnet and no function has that name.
    Unknown(String),
    /// The function has no interface of that name.
    NoInterface(usize, String),
    /// A router has no interface that a link takes by itself.
    Bare(usize),
    /// Subnets have no interfaces.
    OfSubnet(usize),
}

impl<'a> Names<'a> {
    /// Of two of the same name the first is meant.
    pub(crate) fn of(network: &'a Network) -> Names<'a> {
        let mut names = Names {
            subnets: BTreeMap::new(),
            functions: BTreeMap::new(),
        };
        for (at, subnet) in network.subnets.iter().enumerate() {
            names.subnets.entry(subnet.name.as_str()).or_insert(at);
        }
        for (at, function) in network.functions.iter().enumerate() {
            names.functions.entry(function.name.as_str()).or_insert(at);
        }
        names
    }

    /// What a text of a link names; `bare`: the interface that the name of a function alone stands for.
    pub(crate) fn end(&self, network: &Network, text: &str, bare: usize) -> Result<End, NoEnd> {
        let (name, interface) = match text.split_once('.') {
            Some((name, interface)) => (name, Some(interface)),
            None => (text, None),
        };
        if let Some(&subnet) = self.subnets.get(name) {
            return match interface {
                None => Ok(End::Subnet(subnet)),
                Some(_) => Err(NoEnd::OfSubnet(subnet)),
            };
        }
        let Some(&at) = self.functions.get(name) else {
            return Err(NoEnd::Unknown(name.to_owned()));
        };
        let function = &network.functions[at];
        let Some(interface) = interface else {
            return match function.is_router() {
                true => Err(NoEnd::Bare(at)),
                false => Ok(End::Side(at, bare.min(SIDES.len() - 1))),
            };
        };
        (0..function.sides())
            .find(|side| function.side_name(*side) == interface)
            .map(|side| End::Side(at, side))
            .ok_or_else(|| NoEnd::NoInterface(at, interface.to_owned()))
    }
}
