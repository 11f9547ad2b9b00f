//! One network on one edge: its links, and what stands between them.
//!
//! A link to a function whose home is elsewhere is a tunnel of its own. Bridges and routers are in files of theirs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_bpf::abi::{NetTunnel, Vi, exact_kind, net_slot, vi_flag};

use super::{Planner, PrivateFunction, record};
use crate::graph::{End, Graph};
use crate::model::{Function, Network};
use crate::values::number;

/// One network while it is planned.
pub(super) struct OneNetwork<'p, 'a> {
    pub(super) planner: &'p mut Planner<'a>,
    pub(super) at: usize,
    pub(super) network: &'a Network,
    pub(super) graph: &'a Graph,
    pub(super) tenant: u32,
    /// Its name, which all labels share, and those of its subnets.
    pub(super) name: Arc<str>,
    pub(super) subnet_names: Vec<Arc<str>>,
    /// VIDs of the ends of links that are here.
    pub(super) tips: BTreeMap<(usize, usize), u32>,
    /// VIDs of bridges towards other edges, 0: none.
    pub(super) tunnels: Vec<u32>,
    /// VIDs that packets for all leave a bridge by.
    pub(super) ports: Vec<Vec<u32>>,
}

impl<'p, 'a> OneNetwork<'p, 'a> {
    pub(super) fn new(planner: &'p mut Planner<'a>, at: usize, tenant: u32) -> OneNetwork<'p, 'a> {
        let networks = planner.networks;
        let network = &networks.wanted().networks[at];
        OneNetwork {
            planner,
            at,
            network,
            graph: &networks.graphs[at],
            tenant,
            name: network.name.value.as_str().into(),
            subnet_names: (network.subnets.iter())
                .map(|subnet| subnet.name.value.as_str().into())
                .collect(),
            tips: BTreeMap::new(),
            tunnels: vec![0; network.subnets.len()],
            ports: vec![Vec::new(); network.subnets.len()],
        }
    }

    pub(super) fn plan(mut self) {
        self.number();
        for link in 0..self.network.links.len() {
            self.link(link);
        }
        for subnet in 0..self.network.subnets.len() {
            self.bridge(subnet);
        }
        for function in 0..self.network.functions.len() {
            self.function(function);
        }
        self.groups();
    }

    pub(super) fn full(&self, name: &str) -> String {
        [&self.name, "/", name].concat()
    }

    fn is_here(&self, function: usize) -> bool {
        self.graph.homes[function].is_none_or(|home| home == self.planner.here)
    }

    pub(super) fn home(&self, end: End) -> Option<usize> {
        match end {
            End::Subnet(_) => None,
            End::Side(function, _) => self.graph.homes[function],
        }
    }

    /// Other edges that have a part of the network.
    pub(super) fn others(&self) -> Vec<usize> {
        let here = self.planner.here;
        self.graph
            .members
            .iter()
            .copied()
            .filter(|edge| *edge != here)
            .collect()
    }

    pub(super) fn remote(&self, edge: usize) -> u32 {
        let name = &self.planner.networks.wanted().edges[edge].name;
        self.planner.remote_numbers.find(name).unwrap_or(0)
    }

    /// Bytes that tunnels of this edge add, to whichever other edge of the network they lead.
    pub(super) fn overhead(&self) -> u16 {
        let edges = &self.planner.networks.wanted().edges;
        let ways = self
            .others()
            .into_iter()
            .filter_map(|at| self.planner.edge.way_to(&edges[at]));
        let kind = self.planner.edge.tunnel;
        ways.map(|(own, _)| kind.overhead(own.is_ipv6()))
            .max()
            .unwrap_or(0)
    }

    /// Gives numbers to bridges, routers and private functions: links name them before they are made.
    fn number(&mut self) {
        for subnet in &self.network.subnets {
            let name = self.full(&subnet.name);
            let number = self.planner.bridge_numbers.of(name.clone());
            *record(&mut self.planner.plan.labels.bridges, number) = name;
        }
        for (at, function) in self.network.functions.iter().enumerate() {
            if !self.is_here(at) {
                continue;
            }
            let name = self.full(&function.name);
            if function.is_router() {
                let number = self.planner.router_numbers.of(name.clone());
                *record(&mut self.planner.plan.labels.routers, number) = name;
            } else if shared_slot(function).is_none() {
                self.planner.slots.of(name);
            }
        }
    }

    pub(super) fn bridge_number(&self, subnet: usize) -> u32 {
        let name = self.full(&self.network.subnets[subnet].name);
        self.planner.bridge_numbers.find(&name).unwrap_or(0)
    }

    /// Record and slot of a function that is here.
    pub(super) fn place(&self, function: &Function) -> (u32, u32) {
        let name = self.full(&function.name);
        if function.is_router() {
            return (
                self.planner.router_numbers.find(&name).unwrap_or(0),
                net_slot::ROUTER,
            );
        }
        match shared_slot(function) {
            Some(slot) => (0, slot),
            None => {
                let slot = net_slot::PRIVATE + self.planner.slots.find(&name).unwrap_or(0) - 1;
                (slot, slot)
            }
        }
    }

    fn slot(&self, end: End) -> u32 {
        match end {
            End::Subnet(_) => net_slot::BRIDGE,
            End::Side(function, _) => self.place(&self.network.functions[function]).1,
        }
    }

    fn end_name(&self, end: End) -> String {
        match end {
            End::Subnet(subnet) => self.network.subnets[subnet].name.value.clone(),
            End::Side(function, side) => {
                let function = &self.network.functions[function];
                format!("{}.{}", function.name.value, function.side_name(side))
            }
        }
    }

    fn link(&mut self, link: usize) {
        let Some(wire) = self.graph.wires[link] else {
            return;
        };
        let here = self.planner.here;
        let is_here = wire
            .ends
            .map(|end| self.home(end).is_none_or(|home| home == here));
        let mut vids = [0; 2];
        for side in 0..2 {
            if is_here[side] {
                vids[side] = self.tip(link, side, wire.ends);
            }
        }
        match is_here {
            [true, true] => {
                for [side, other] in [[0, 1], [1, 0]] {
                    let slot = self.slot(wire.ends[other]);
                    let vi = self.planner.vi(vids[side]);
                    (vi.peer, vi.slot) = (vids[other], slot);
                }
                for [side, other] in [[0, 1], [1, 0]] {
                    if self.home(wire.ends[side]) == Some(here)
                        && self.home(wire.ends[other]).is_none()
                    {
                        self.link_tunnel(link, wire.ends, side, vids[side], None, &self.others());
                    }
                }
            }
            [true, false] | [false, true] => {
                let side = usize::from(is_here[1]);
                let home = self.home(wire.ends[1 - side]);
                let senders: Vec<usize> = match self.home(wire.ends[side]) {
                    Some(_) => home.into_iter().collect(),
                    None => Vec::new(),
                };
                self.link_tunnel(link, wire.ends, side, vids[side], home, &senders);
            }
            [false, false] => {}
        }
    }

    /// The interface of a function at one end of a link.
    fn tip(&mut self, link: usize, side: usize, ends: [End; 2]) -> u32 {
        let network = self.network;
        let own = self.end_name(ends[side]);
        let (mtu, tenant) = (network.mtu.value, self.tenant);
        let vid = match ends[side] {
            End::Subnet(subnet) => {
                let name = format!("{own} -> {}", self.end_name(ends[1 - side]));
                let vid = (self.planner).vid(&self.name, name, &self.subnet_names[subnet]);
                let instance = self.bridge_number(subnet);
                let vi = self.planner.vi(vid);
                vi.instance = instance;
                vi.vlan = network.links[link].vlan;
                self.ports[subnet].push(vid);
                vid
            }
            End::Side(at, side) => {
                let function = &network.functions[at];
                let vid = self
                    .planner
                    .vid(&self.name, own, &function.name.as_str().into());
                let instance = self.place(function).0;
                let vi = self.planner.vi(vid);
                vi.instance = instance;
                if let Some(interface) = function.interfaces.get(side) {
                    let addresses = interface.addresses.iter().map(|net| net.address);
                    set_addresses(vi, addresses);
                    vi.mac = self.graph.side_macs[at][side].0;
                }
                vid
            }
        };
        let vi = self.planner.vi(vid);
        vi.tenant = tenant;
        vi.mtu = match ends[side] {
            End::Side(at, side) => (network.functions[at].interfaces.get(side))
                .and_then(|interface| interface.mtu)
                .map_or(mtu, |mtu| mtu.value),
            End::Subnet(_) => mtu,
        };
        self.tips.insert((link, side), vid);
        vid
    }

    /// The tunnel of a link whose far end is on another edge, or may be sent to from others. `to`: where packets go.
    fn link_tunnel(
        &mut self,
        link: usize,
        ends: [End; 2],
        side: usize,
        vid: u32,
        to: Option<usize>,
        senders: &[usize],
    ) {
        let text = format!("{} - {}", self.end_name(ends[0]), self.end_name(ends[1]));
        let identifier = self.planner.networks.link_identifier(self.at, link);
        let remote = to.map_or(0, |edge| self.remote(edge));
        let tunnel = self.tunnel(&text, identifier, remote, senders);
        let slot = self.slot(ends[side]);
        let vi = self.planner.vi(tunnel);
        (vi.peer, vi.slot) = (vid, slot);
        if to.is_some() {
            let vi = self.planner.vi(vid);
            (vi.peer, vi.slot) = (tunnel, net_slot::TUNNEL);
        }
    }

    /// The interface of a tunnel, without its peer.
    pub(super) fn tunnel(
        &mut self,
        name: &str,
        identifier: u32,
        remote: u32,
        senders: &[usize],
    ) -> u32 {
        let name = format!("tunnel {name}");
        let instance = self.planner.tunnel_numbers.of(self.full(&name));
        *record(&mut self.planner.plan.tunnels, instance) = NetTunnel {
            identifier,
            tenant: self.tenant,
            remote,
            pad: 0,
        };
        let function = name.as_str().into();
        let vid = self.planner.vid(&self.name, name, &function);
        let tenant = self.tenant;
        let vi = self.planner.vi(vid);
        (vi.instance, vi.tenant, vi.flags) = (instance, tenant, vi_flag::TUNNEL);
        if !senders.is_empty() {
            self.planner
                .exact(exact_kind::TUNNEL, 0, 0, [identifier.into(), 0], vid, 0);
        }
        for edge in senders {
            let key = [identifier.into(), self.remote(*edge).into()];
            self.planner.exact(exact_kind::MEMBER, 0, 0, key, 1, 0);
        }
        vid
    }

    fn function(&mut self, at: usize) {
        if !self.is_here(at) {
            return;
        }
        let function = &self.network.functions[at];
        if function.is_router() {
            return self.router(at);
        }
        if let Some(steer) = &function.steer {
            return self.steer(at, steer);
        }
        let sides = [0, 1].map(|side| {
            let tip = self.graph.at_side[at][side];
            tip.and_then(|tip| self.tips.get(&(tip.link, tip.side)).copied())
                .unwrap_or(0)
        });
        for (number, [side, other]) in [(1, sides), (2, [sides[1], sides[0]])] {
            let vi = self.planner.vi(side);
            (vi.onward, vi.room) = (other, number);
        }
        if let Some(punt) = &function.punt {
            self.punt(at, punt, sides);
        }
        // Record 0 is nobody's, whichever side is missing.
        *self.planner.vi(0) = Vi::default();
        if let Some(planned) = &self.planner.networks.planned[self.at][at] {
            let slot = self.place(function).1;
            let planned = self.with_groups(planned);
            self.planner.plan.functions.push(PrivateFunction {
                network: self.network.name.value.clone(),
                name: function.name.value.clone(),
                kind: function.kind.value.clone(),
                slot,
                sides,
                planned,
            });
        }
    }
}

/// Programs that all instances of a kind share.
pub(crate) fn shared_slot(function: &Function) -> Option<u32> {
    match function.kind.as_str() {
        "empty" => Some(net_slot::EMPTY),
        "punt" => Some(net_slot::PUNT),
        _ if function.steer.is_some() => Some(net_slot::STEER),
        _ => None,
    }
}

/// Words of an address as in packets; IPv4: the first.
pub(super) fn plain_words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(v4) => [u32::from_ne_bytes(v4.octets()), 0, 0, 0],
        IpAddr::V6(_) => mapped_words(address),
    }
}

/// Words of an address as in packets; IPv4 as `::ffff:a.b.c.d`.
pub(super) fn mapped_words(address: IpAddr) -> [u32; 4] {
    let bytes = number(address).to_be_bytes();
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    words
}

/// Writes the first address of each family; those that are left.
pub(super) fn set_addresses(vi: &mut Vi, addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut more = Vec::new();
    for address in addresses {
        match address {
            IpAddr::V4(v4) if vi.address4 == 0 => vi.address4 = u32::from_ne_bytes(v4.octets()),
            IpAddr::V6(_) if vi.address6 == [0; 4] => vi.address6 = mapped_words(address),
            _ => more.push(address),
        }
    }
    more
}
