//! Bridges on one edge: interfaces of workloads, the way to other edges, stations, and what ARP is answered with.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_bpf::abi::{NetBridge, bridge_flag, exact_kind, net_slot, vi_flag};

use super::network::{OneNetwork, set_addresses};
use super::{WorkloadDevice, record};
use crate::graph::{Who, addresses};
use crate::model::{Addresses, Allowed, Station, Unknown, Vlan};
use crate::values::{number, words};

impl OneNetwork<'_, '_> {
    pub(super) fn bridge(&mut self, at: usize) {
        let network = self.network;
        let subnet = &network.subnets[at];
        let number = self.bridge_number(at);
        let here = self.planner.here;
        let workloads = &self.graph.workloads_at[at];
        let others = self.others();
        let has_vlans = workloads
            .iter()
            .any(|one| network.workloads[*one].vlan != Vlan::Access(0))
            || self.graph.at_subnet[at]
                .iter()
                .any(|tip| network.links[tip.link].vlan != 0);
        let is_learning = self.learns(at);
        let learn = if is_learning { vi_flag::LEARN } else { 0 };
        // Towards other edges: where the segment's stations are there, or those of other edges send to the ones here.
        let away: BTreeSet<usize> = (workloads.iter())
            .filter_map(|one| self.graph.edge_of[*one])
            .filter(|edge| *edge != here)
            .collect();
        let has_own = workloads
            .iter()
            .any(|one| self.graph.edge_of[*one] == Some(here));
        if !away.is_empty() || (has_own && !others.is_empty()) {
            let identifier = self.planner.networks.identifiers[self.at][at];
            let tunnel = self.tunnel(&subnet.name, identifier, 0, &others);
            let port = self.port(at, "other edges");
            let vi = self.planner.vi(port);
            (vi.peer, vi.slot) = (tunnel, net_slot::TUNNEL);
            vi.flags = vi_flag::TUNNEL | learn | if has_vlans { vi_flag::TRUNK } else { 0 };
            let vi = self.planner.vi(tunnel);
            (vi.peer, vi.slot) = (port, net_slot::BRIDGE);
            self.tunnels[at] = port;
        }
        for one in workloads {
            if self.graph.edge_of[*one] == Some(here) {
                self.workload(at, *one, learn);
            }
        }
        // Learning through links: stations of a segment of several bridges are declared unless some bridge of it learns.
        for tip in &self.graph.at_subnet[at] {
            if let Some(vid) = self.tips.get(&(tip.link, tip.side)) {
                self.planner.vi(*vid).flags |= learn;
            }
        }
        let (learned, learned_mask) = match is_learning {
            true => self
                .planner
                .run(format!("bridge {}", self.full(&subnet.name))),
            false => (0, 0),
        };
        let is_closed = match subnet.unknown {
            Some(unknown) => unknown == Unknown::Drop,
            None => !is_learning,
        };
        let lists = &mut self.planner.plan.lists;
        let members = lists.len() as u32;
        lists.extend(&self.ports[at]);
        let remotes = lists.len() as u32;
        let reached: Vec<u32> = away.iter().map(|edge| self.remote(*edge)).collect();
        let lists = &mut self.planner.plan.lists;
        lists.extend(&reached);
        *record(&mut self.planner.plan.bridges, number) = NetBridge {
            members,
            n_members: self.ports[at].len() as u32,
            remotes,
            n_remotes: reached.len() as u32,
            tunnel: self.tunnels[at],
            storm: subnet.storm,
            age: subnet.age,
            learned,
            learned_mask,
            flags: if is_closed { bridge_flag::CLOSED } else { 0 },
            tenant: self.tenant,
            state: number,
            pad: [0; 4],
        };
        self.stations(at, number);
    }

    /// Whether the bridge, or one that it shares a segment with, has stations that nobody declared.
    pub(super) fn learns(&self, at: usize) -> bool {
        let mut segment = vec![at];
        for tip in &self.graph.at_subnet[at] {
            segment.extend(self.graph.beyond(self.network, *tip).subnets);
        }
        segment.into_iter().any(|subnet| {
            let any = |one: &usize| matches!(self.network.workloads[*one].mac, Station::Any);
            self.network.subnets[subnet].unknown == Some(Unknown::Flood)
                || self.graph.workloads_at[subnet].iter().any(any)
        })
    }

    fn port(&mut self, subnet: usize, to: &str) -> u32 {
        let own = &self.subnet_names[subnet];
        let vid = (self.planner).vid(&self.name, [own, " -> ", to].concat(), own);
        let (instance, tenant) = (self.bridge_number(subnet), self.tenant);
        let mtu = self.network.mtu.value;
        let vi = self.planner.vi(vid);
        (vi.instance, vi.tenant, vi.mtu) = (instance, tenant, mtu);
        vid
    }

    fn workload(&mut self, subnet: usize, at: usize, learn: u32) {
        let workload = &self.network.workloads[at];
        let name = &workload.name.value;
        let own = (self.planner).vid(
            &self.name,
            ["workload ", name].concat(),
            &name.as_str().into(),
        );
        let port = self.port(subnet, &["workload ", name].concat());
        self.ports[subnet].push(port);
        let mac = self.graph.workload_macs[at];
        let mut flags = 0;
        if mac.is_none() {
            flags |= vi_flag::ANY_MAC;
        }
        if workload.external {
            flags |= vi_flag::EXTERNAL;
        }
        for one in &workload.allow {
            flags |= match one {
                Allowed::Ra => vi_flag::MAY_RA,
                Allowed::DhcpServer => vi_flag::MAY_DHCP,
            };
        }
        let vi = self.planner.vi(own);
        (vi.peer, vi.slot) = (port, net_slot::BRIDGE);
        vi.mac = mac.unwrap_or_default().0;
        let more: Vec<IpAddr> = match &workload.addresses {
            Addresses::Any => {
                flags |= vi_flag::ANY_ADDRESS;
                Vec::new()
            }
            Addresses::Given(list) => set_addresses(vi, list.iter().map(|one| one.value)),
        };
        if !more.is_empty() {
            flags |= vi_flag::MORE_ADDRESSES;
        }
        for one in more {
            self.planner
                .exact(exact_kind::ADDRESS, own, 0, words(number(one)), 1, 0);
        }
        let tenant = self.tenant;
        let vi = self.planner.vi(own);
        (vi.flags, vi.tenant) = (flags, tenant);
        let mut port_flags = flags & vi_flag::EXTERNAL;
        if mac.is_none() {
            port_flags |= learn;
        }
        if self.lease(subnet, at, port) {
            port_flags |= vi_flag::DHCP;
        }
        let vlan = match &workload.vlan {
            Vlan::Access(vlan) => *vlan,
            Vlan::Trunk(list) => {
                port_flags |= vi_flag::TRUNK;
                for vlan in list {
                    self.planner
                        .exact(exact_kind::VLAN, port, 0, [(*vlan).into(), 0], 1, 0);
                }
                0
            }
        };
        let vi = self.planner.vi(port);
        (vi.peer, vi.slot, vi.flags, vi.vlan) = (own, net_slot::DEVICE, port_flags, vlan);
        self.planner.plan.devices.push(WorkloadDevice {
            device: workload.device.value.clone(),
            network: self.network.name.value.clone(),
            workload: name.clone(),
            vid: own,
            port,
            mtu: self.network.mtu.value,
            mac,
            mac_from: workload.mac.origin(),
        });
    }

    /// Who is behind which interface of a bridge, and what ARP is answered with.
    fn stations(&mut self, subnet: usize, bridge: u32) {
        let network = self.network;
        let mut asked = BTreeSet::new();
        let mut add = |this: &mut Self, who: Who, vlans: &[u16], vid: u32, remote: u32| {
            let Some(mac) = this.graph.mac(who) else {
                return;
            };
            for vlan in vlans {
                let key = [mac.number() << 16 | u64::from(*vlan), 0];
                this.planner
                    .exact(exact_kind::STATION, bridge, 0, key, vid, remote.into());
            }
            for address in addresses(network, who) {
                if asked.insert(address.value) {
                    let key = words(number(address.value));
                    this.planner
                        .exact(exact_kind::ARP, bridge, 0, key, 0, mac.number());
                }
            }
        };
        for at in &self.graph.workloads_at[subnet] {
            let workload = &network.workloads[*at];
            let (vid, remote) = match self.graph.edge_of[*at] {
                Some(edge) if edge != self.planner.here => {
                    (self.tunnels[subnet], self.remote(edge))
                }
                _ => {
                    let name = format!(
                        "{} -> workload {}",
                        network.subnets[subnet].name.value, workload.name.value
                    );
                    (self.planner.vids.find(&self.full(&name)).unwrap_or(0), 0)
                }
            };
            add(self, Who::Workload(*at), workload.vlan.list(), vid, remote);
        }
        for tip in &self.graph.at_subnet[subnet] {
            let Some(vid) = self.tips.get(&(tip.link, tip.side)).copied() else {
                continue;
            };
            let vlan = network.links[tip.link].vlan;
            for who in self.graph.beyond(network, *tip).who {
                add(self, who, &[vlan], vid, 0);
            }
        }
    }
}
