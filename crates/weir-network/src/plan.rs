//! Checked document -> what one edge needs of it: interfaces with VIDs, records, exact matches, lists, devices, private functions.
//!
//! Deterministic: numbers follow from the document and the numbers of the plan before. What only the host knows (indexes of devices) is left
//! out; `tables` fills it in.

mod bridges;
mod chains;
mod groups;
mod helpers;
mod network;
mod routers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weir_bpf::abi::{
    ACCEPTS_NO_TENANT, Exact, NET_PROGRAMS, NetBridge, NetHop, NetPunt, NetRemote, NetRouter,
    NetSelection, NetSteer, NetTunnel, Vi, exact_kind, net_slot,
};
use weir_functions::kind::Planned;

use crate::check::Networks;
use crate::exact::{INSTANCES, scope};
use crate::model::Edge;
use crate::numbers::{Giver, Numbers};
use crate::values::{Kind, Mac, number, words};

pub(crate) use network::shared_slot;
use network::{OneNetwork, plain_words};

/// Cells of what one bridge or router may learn: a power of two.
pub const LEARNED: u32 = 256;

/// What one edge needs, ready but for what its host knows. Record 0 of each list is nobody's.
#[derive(Clone, Debug)]
pub struct EdgeNetworks {
    /// Name of the edge.
    pub edge: String,
    /// Version of the document.
    pub version: u64,
    /// Numbers, for the next plan.
    pub numbers: Arc<Numbers>,
    /// By VID. `device` and the flag `PEER` are the host's.
    pub interfaces: Vec<Vi>,
    /// By number.
    pub bridges: Vec<NetBridge>,
    /// By number.
    pub routers: Vec<NetRouter>,
    /// Runs of hops, in the order of routes.
    pub hops: Vec<NetHop>,
    /// By number. `device` is the host's.
    pub remotes: Vec<NetRemote>,
    /// By number.
    pub tunnels: Vec<NetTunnel>,
    /// Runs of VIDs and remotes.
    pub lists: Vec<u32>,
    /// By the instance of interfaces of what leads into and out of chains.
    pub steers: Vec<NetSteer>,
    /// Runs of what is sent through chains, or to helpers.
    pub selections: Vec<NetSelection>,
    /// By the instance of interfaces of functions that hand packets to a helper.
    pub punts: Vec<NetPunt>,
    /// Exact matches, not placed yet; those of devices are missing, because only the host knows their keys.
    pub exact: Vec<Exact>,
    /// Cells of what is learned, of all runs.
    pub learned: u32,
    /// Devices of workloads, in the order of the document.
    pub devices: Vec<WorkloadDevice>,
    /// Where tunnels end here.
    pub underlay: Underlay,
    /// Functions with programs of their own.
    pub functions: Vec<PrivateFunction>,
    /// Functions that hand packets to the helper.
    pub punt_functions: Vec<PuntFunction>,
    /// What the helper tells DHCP clients.
    pub leases: Vec<Lease>,
    /// Security groups that functions here test.
    pub groups: Vec<GroupMembers>,
    /// What numbers mean.
    pub labels: Labels,
}

impl EdgeNetworks {
    /// VIDs of interfaces by which packets come into networks: those of workloads, and those behind tunnels from other edges.
    pub fn entrances(&self) -> impl Iterator<Item = u32> {
        let workloads = self.devices.iter().map(|one| one.vid);
        let behind = self.interfaces.iter().zip(0..);
        let behind = behind.filter(|(vi, _)| vi.peer != 0 && vi.slot == net_slot::TUNNEL);
        workloads.chain(behind.map(|(_, vid)| vid))
    }

    /// The plan without the devices of these names: packets to their workloads have no link (`no_link`), all else is as it was.
    #[must_use]
    pub fn without_devices(&self, names: &[String]) -> EdgeNetworks {
        let names: BTreeSet<&String> = names.iter().collect();
        let mut plan = self.clone();
        plan.devices.retain(|one| {
            let is_here = !names.contains(&one.device);
            if !is_here && let Some(port) = plan.interfaces.get_mut(one.port as usize) {
                (port.peer, port.slot) = (0, net_slot::NOWHERE);
            }
            is_here
        });
        plan
    }
}

/// A function that hands packets to the helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PuntFunction {
    /// Network it is in.
    pub network: String,
    /// Whose it is.
    pub tenant: String,
    /// Its name there.
    pub name: String,
    /// VIDs of its interfaces `a` and `b`.
    pub sides: [u32; 2],
    /// Flows that may be installed.
    pub flows: u32,
}

/// A security group that functions of an edge test: who is in it, wherever they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMembers {
    /// Network it is in.
    pub network: String,
    /// Its name there.
    pub name: String,
    /// Names of its workloads.
    pub workloads: Vec<String>,
    /// Their addresses, each once.
    pub addresses: BTreeSet<IpAddr>,
}

/// What a DHCP client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Network it is in.
    pub network: String,
    /// Name of the workload.
    pub workload: String,
    /// VID of the bridge's interface that leads to it: what it sends comes in there, and answers leave there.
    pub vid: u32,
    /// Its MAC address; `None`: any.
    pub mac: Option<Mac>,
    /// Its address, and the length of the subnet's prefix.
    pub address: Ipv4Addr,
    /// See `address`.
    pub length: u8,
    /// Where it sends what is for others.
    pub router: Option<Ipv4Addr>,
    /// Who says so, and from which station.
    pub server: Ipv4Addr,
    /// See `server`.
    pub server_mac: Mac,
    /// Largest packet.
    pub mtu: u16,
    /// How long it holds.
    pub seconds: u32,
}

/// A workload's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadDevice {
    /// Name of the device.
    pub device: String,
    /// Network it is in.
    pub network: String,
    /// Name of the workload.
    pub workload: String,
    /// VID of the workload's interface: where its packets come in.
    pub vid: u32,
    /// VID of the bridge's interface: its packets leave by the device.
    pub port: u32,
    /// Largest packet, Ethernet header not counted.
    pub mtu: u16,
    /// Its MAC address, if it has one.
    pub mac: Option<Mac>,
    /// Where that comes from: `names`, `document`, `device` or `any`.
    pub mac_from: &'static str,
}

/// The end of tunnels on this edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Underlay {
    /// Name of the device.
    pub device: Option<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Largest packet.
    pub mtu: u16,
    /// Kinds that are sent or taken.
    pub kinds: BTreeSet<Kind>,
}

/// A function with a program of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateFunction {
    /// Network it is in.
    pub network: String,
    /// Its name there.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Slot of its program.
    pub slot: u32,
    /// VIDs of its interfaces `a` and `b`.
    pub sides: [u32; 2],
    /// Object, constants, maps.
    pub planned: Planned,
}

/// What numbers mean, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// By VID.
    pub interfaces: Vec<Label>,
    /// By number: `network/subnet`.
    pub bridges: Vec<String>,
    /// By number: `network/function`.
    pub routers: Vec<String>,
    /// By number: names of edges.
    pub remotes: Vec<String>,
    /// By number of a tenant.
    pub tenants: BTreeMap<u32, String>,
}

/// What an interface is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// Network it is in.
    pub network: Arc<str>,
    /// Its own name: `w1`, `web -> w1`, `gw.web`.
    pub name: String,
    /// Function it belongs to; that of a workload or tunnel: its own.
    pub function: Arc<str>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The document has no such edge.
    #[error("no edge is named `{name}`; {advice}")]
    Edge {
        /// The name.
        name: String,
        /// The next step.
        advice: String,
    },
    /// More than tables have room for.
    #[error(
        "edge `{edge}` would have {count} {what}; the maximum is {most}. Put some of its networks on another edge"
    )]
    Room {
        /// Name of the edge.
        edge: String,
        /// What there is too much of.
        what: &'static str,
        /// How much.
        count: u32,
        /// Room.
        most: u32,
    },
}

impl Networks {
    /// Plans an edge. `before`: the numbers of what runs there.
    ///
    /// # Errors
    /// The document has no such edge, or the edge has no room for its networks.
    pub fn plan(&self, edge: &str, before: &Numbers) -> Result<EdgeNetworks, PlanError> {
        let edges = &self.wanted().edges;
        let Some(here) = edges.iter().position(|one| one.name.value == edge) else {
            let names: Vec<&str> = edges.iter().map(|one| one.name.as_str()).collect();
            return Err(PlanError::Edge {
                name: edge.to_owned(),
                advice: crate::document::known(edge, &names, "the document has no edges"),
            });
        };
        let mut planner = Planner::new(self, here, before);
        for at in 0..self.wanted().networks.len() {
            if self.graphs[at].members.contains(&here) {
                planner.network(at);
            }
        }
        planner.finish()
    }

    /// Which edges have a part of a network of which this one has a part, too.
    pub(crate) fn neighbours(&self, here: usize) -> BTreeSet<usize> {
        let shared = self
            .graphs
            .iter()
            .filter(|graph| graph.members.contains(&here));
        shared
            .flat_map(|graph| &graph.members)
            .copied()
            .filter(|edge| *edge != here)
            .collect()
    }
}

struct Planner<'a> {
    networks: &'a Networks,
    here: usize,
    edge: &'a Edge,
    vids: Giver<'a>,
    bridge_numbers: Giver<'a>,
    router_numbers: Giver<'a>,
    tunnel_numbers: Giver<'a>,
    remote_numbers: Giver<'a>,
    slots: Giver<'a>,
    runs: Giver<'a>,
    group_numbers: Giver<'a>,
    plan: EdgeNetworks,
}

/// Grows a list of records so that there is one of this number.
fn record<T: Default>(list: &mut Vec<T>, at: u32) -> &mut T {
    let at = at as usize;
    if list.len() <= at {
        list.resize_with(at + 1, T::default);
    }
    &mut list[at]
}

impl<'a> Planner<'a> {
    fn new(networks: &'a Networks, here: usize, before: &'a Numbers) -> Planner<'a> {
        let document = networks.wanted();
        let edge = &document.edges[here];
        let kinds = edge.accepted().into_iter();
        let mut planner = Planner {
            networks,
            here,
            edge,
            vids: Giver::new(&before.interfaces),
            bridge_numbers: Giver::new(&before.bridges),
            router_numbers: Giver::new(&before.routers),
            tunnel_numbers: Giver::new(&before.tunnels),
            remote_numbers: Giver::new(&before.remotes),
            slots: Giver::new(&before.slots),
            runs: Giver::new(&before.runs),
            group_numbers: Giver::new(&before.groups),
            plan: EdgeNetworks {
                edge: edge.name.value.clone(),
                version: document.version,
                numbers: Arc::default(),
                interfaces: vec![Vi::default()],
                bridges: vec![NetBridge::default()],
                routers: vec![NetRouter::default()],
                hops: vec![NetHop::default()],
                remotes: vec![NetRemote::default()],
                tunnels: vec![NetTunnel::default()],
                lists: vec![0],
                steers: vec![NetSteer::default()],
                selections: vec![NetSelection::default()],
                punts: vec![NetPunt::default()],
                exact: Vec::new(),
                learned: 0,
                devices: Vec::new(),
                underlay: Underlay {
                    device: edge.device.as_ref().map(|device| device.value.clone()),
                    addresses: edge.underlay.iter().map(|one| one.value).collect(),
                    mtu: edge.mtu.value,
                    kinds: kinds.chain([edge.tunnel.value]).collect(),
                },
                functions: Vec::new(),
                punt_functions: Vec::new(),
                leases: Vec::new(),
                groups: Vec::new(),
                labels: Labels::default(),
            },
        };
        for other in networks.neighbours(here) {
            planner.remote(other);
        }
        for one in &edge.underlay {
            planner.exact(exact_kind::LOCAL, 0, 0, words(number(one.value)), 1, 0);
        }
        planner
    }

    fn remote(&mut self, other: usize) {
        let edge = &self.networks.wanted().edges[other];
        let remote = self.remote_numbers.of(edge.name.value.clone());
        *record(&mut self.plan.labels.remotes, remote) = edge.name.value.clone();
        // `check` refuses networks on edges that cannot reach each other.
        let Some((local, address)) = self.edge.way_to(edge) else {
            return;
        };
        // What may come from there, while a fleet changes over more than what is sent. `underlay` leaves VXLAN that only a device of the
        // kernel's is to take to that one.
        let mut accepts =
            (self.edge.accepted().iter()).fold(0_u16, |bits, kind| bits | 1 << kind.number());
        if !edge.names_tenant {
            accepts |= ACCEPTS_NO_TENANT;
        }
        *record(&mut self.plan.remotes, remote) = NetRemote {
            family: if address.is_ipv4() { 4 } else { 6 },
            kind: self.edge.tunnel.number(),
            port: self.edge.tunnel.port(),
            device: 0,
            local: plain_words(local),
            address: plain_words(address),
            mtu: self.edge.mtu.value,
            accepts,
            state: remote,
            pad: [0; 4],
        };
        // Packets may come from any address that the other edge has.
        for one in &edge.underlay {
            self.exact(exact_kind::PEER, 0, 0, words(number(one.value)), remote, 0);
        }
    }

    fn exact(
        &mut self,
        kind: u32,
        instance: u32,
        length: u8,
        key: [u64; 2],
        value: u32,
        extra: u64,
    ) {
        self.plan.exact.push(Exact {
            value,
            scope: scope(kind, instance, length.into()),
            key,
            extra,
        });
    }

    fn vid(&mut self, network: &Arc<str>, name: String, function: &Arc<str>) -> u32 {
        let vid = self.vids.of([network, "/", &name].concat());
        *record(&mut self.plan.labels.interfaces, vid) = Label {
            network: Arc::clone(network),
            name,
            function: Arc::clone(function),
        };
        record(&mut self.plan.interfaces, vid).state = vid;
        vid
    }

    fn vi(&mut self, vid: u32) -> &mut Vi {
        record(&mut self.plan.interfaces, vid)
    }

    fn run(&mut self, name: String) -> (u32, u32) {
        let run = self.runs.of(name);
        self.plan.learned = self.plan.learned.max(run * LEARNED);
        ((run - 1) * LEARNED, LEARNED - 1)
    }

    fn network(&mut self, at: usize) {
        let networks = self.networks;
        let network = &networks.wanted().networks[at];
        let tenant = networks.tenant_number(&network.tenant);
        self.plan
            .labels
            .tenants
            .insert(tenant, network.tenant.value.clone());
        OneNetwork::new(self, at, tenant).plan();
    }

    fn finish(mut self) -> Result<EdgeNetworks, PlanError> {
        let plan = &self.plan;
        let private = self
            .plan
            .functions
            .iter()
            .map(|one| one.slot + 1)
            .max()
            .unwrap_or(0);
        let counts = [
            ("programs", private, NET_PROGRAMS as u32),
            ("interfaces", plan.interfaces.len() as u32, INSTANCES),
            ("bridges", plan.bridges.len() as u32, INSTANCES),
            ("routers", plan.routers.len() as u32, INSTANCES),
        ];
        for (what, count, most) in counts {
            if count > most {
                let edge = self.edge.name.value.clone();
                return Err(PlanError::Room {
                    edge,
                    what,
                    count,
                    most,
                });
            }
        }
        let groups = self.group_numbers.finish();
        let most = groups.names.iter().map(|(_, number)| number + 1).max();
        if let Some(count) = most.filter(|count| *count > INSTANCES) {
            return Err(PlanError::Room {
                edge: self.edge.name.value.clone(),
                what: "groups",
                count,
                most: INSTANCES,
            });
        }
        self.plan.numbers = Arc::new(Numbers {
            groups,
            interfaces: self.vids.finish(),
            bridges: self.bridge_numbers.finish(),
            routers: self.router_numbers.finish(),
            tunnels: self.tunnel_numbers.finish(),
            remotes: self.remote_numbers.finish(),
            slots: self.slots.finish(),
            runs: self.runs.finish(),
        });
        let interfaces = self.plan.interfaces.len();
        self.plan
            .labels
            .interfaces
            .resize_with(interfaces, Label::default);
        self.plan
            .labels
            .bridges
            .resize_with(self.plan.bridges.len(), String::new);
        self.plan
            .labels
            .routers
            .resize_with(self.plan.routers.len(), String::new);
        self.plan
            .labels
            .remotes
            .resize_with(self.plan.remotes.len(), String::new);
        Ok(self.plan)
    }
}
