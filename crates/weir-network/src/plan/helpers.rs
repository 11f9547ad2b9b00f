//! What the helper of an edge is told: which functions hand it packets, and which addresses it leases to whom.

use std::net::{IpAddr, Ipv4Addr};

use weir_bpf::abi::{NetPunt, vi_flag};

use super::network::OneNetwork;
use super::{Lease, PuntFunction, chains};
use crate::graph::{Who, addresses};
use crate::model::{Punt, Selection};
use crate::values::mac_of_name;

/// Who leases addresses in subnets without a router: an address that is routed nowhere (RFC 3927).
const NO_ROUTER: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

impl OneNetwork<'_, '_> {
    /// A function that hands packets over; `sides`: VIDs of `a` and `b`.
    pub(super) fn punt(&mut self, at: usize, punt: &Punt, sides: [u32; 2]) {
        let there = punt.selections.clone();
        let back: Vec<Selection> = there.iter().map(|one| one.reversed()).collect();
        for (vid, selected) in sides.into_iter().zip([there, back]) {
            if vid == 0 {
                continue;
            }
            let plan = &mut self.planner.plan;
            let instance = plan.punts.len() as u32;
            let (selections, n_selections) = chains::select(&mut plan.selections, &selected);
            plan.punts.push(NetPunt {
                selections,
                n_selections,
                rate: punt.rate,
                pad: 0,
            });
            let vi = self.planner.vi(vid);
            vi.instance = instance;
            vi.flags |= vi_flag::PUNT;
        }
        self.planner.plan.punt_functions.push(PuntFunction {
            network: self.network.name.value.clone(),
            tenant: self.network.tenant.value.clone(),
            name: self.network.functions[at].name.value.clone(),
            sides,
            flows: punt.flows,
        });
    }

    /// What a workload of a subnet with `dhcp` is told; `port`: VID of the bridge's interface towards it. `false`: it has no address to lease.
    pub(super) fn lease(&mut self, subnet: usize, workload: usize, port: u32) -> bool {
        let own = &self.network.subnets[subnet];
        let Some(seconds) = own.dhcp else {
            return false;
        };
        let workload_of = &self.network.workloads[workload];
        let known = workload_of.addresses.known().iter();
        let Some(address) = known.filter_map(|one| v4(one.value)).next() else {
            return false;
        };
        let mut nets = own.prefixes.iter();
        let Some(net) = nets.find(|net| net.contains(address.into())) else {
            return false;
        };
        let routers = self.graph.at_subnet[subnet].iter().flat_map(|tip| {
            let who = self.graph.beyond(self.network, *tip).who.into_iter();
            let sides = who.filter(|who| matches!(who, Who::Side(..)));
            sides.flat_map(|who| addresses(self.network, who))
        });
        let gateways = own.gateway.iter().copied().chain(routers);
        let router = gateways
            .filter_map(|one| v4(one.value))
            .find(|one| net.contains((*one).into()) && *one != address);
        let network = &self.network.name.value;
        let lease = Lease {
            network: network.clone(),
            workload: workload_of.name.value.clone(),
            vid: port,
            mac: self.graph.workload_macs[workload],
            address,
            length: net.len,
            router,
            server: router.unwrap_or(NO_ROUTER),
            server_mac: mac_of_name(&format!("{network}/{} dhcp", own.name.value)),
            mtu: self.network.mtu.value,
            seconds: seconds.value,
        };
        self.planner.plan.leases.push(lease);
        true
    }
}

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    }
}
