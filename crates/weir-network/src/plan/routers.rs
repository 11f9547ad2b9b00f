//! Routers on one edge: neighbours, routes, and what tunnels take of the MTU behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_bpf::abi::router::hop;
use weir_bpf::abi::{NET_LENGTHS, NetHop, NetRouter, exact_kind};
use weir_value::Prefix;

use super::network::{OneNetwork, mapped_words};
use super::record;
use crate::graph::{Beyond, Tip, addresses};
use crate::model::Way;
use crate::values::{Mac, mapped, masked, number, words};

impl OneNetwork<'_, '_> {
    pub(super) fn router(&mut self, at: usize) {
        let network = self.network;
        let function = &network.functions[at];
        let router = self.place(function).0;
        let mut neighbours = Neighbours::new();
        let mut routes: BTreeMap<(u8, u128), Vec<NetHop>> = BTreeMap::new();
        let mut beyonds: Vec<(u32, Beyond)> = Vec::new();
        let mut has_unknown = false;
        for (side, interface) in function.interfaces.iter().enumerate() {
            let tip = self.graph.at_side[at][side];
            let Some((tip, vid)) =
                tip.and_then(|tip| Some((tip, *self.tips.get(&(tip.link, tip.side))?)))
            else {
                continue;
            };
            let room = self.room(tip);
            self.planner.vi(vid).room = room;
            let own = self.graph.side_macs[at][side];
            for net in &interface.addresses {
                neighbours.entry(number(net.address)).or_insert((0, own));
                let hops = routes.entry(by_length(&net.network())).or_default();
                if hops.is_empty() {
                    hops.push(NetHop {
                        kind: hop::LINK.into(),
                        vid,
                        ..NetHop::default()
                    });
                }
            }
            let beyond = self.graph.beyond(network, tip);
            has_unknown |= beyond.subnets.iter().any(|subnet| self.learns(*subnet));
            beyonds.push((vid, beyond));
        }
        for (vid, beyond) in &beyonds {
            for who in &beyond.who {
                let Some(mac) = self.graph.mac(*who) else {
                    continue;
                };
                for address in addresses(network, *who) {
                    neighbours
                        .entry(number(address.value))
                        .or_insert((*vid, mac));
                }
            }
        }
        for route in &function.routes {
            let hops = match &route.way {
                Way::Via(gateways) => gateways
                    .iter()
                    .filter_map(|gateway| {
                        let hop = self.gateway(at, *gateway, &neighbours)?;
                        has_unknown |= hop.mac == [0; 6];
                        Some(hop)
                    })
                    .collect(),
                Way::Blackhole => vec![special(hop::BLACKHOLE)],
                Way::Unreachable => vec![special(hop::UNREACHABLE)],
                Way::Prohibit => vec![special(hop::PROHIBIT)],
            };
            routes.insert(by_length(&route.to), hops);
        }
        let mut record_of = NetRouter {
            tenant: self.tenant,
            state: router,
            ..NetRouter::default()
        };
        if has_unknown {
            let name = format!("router {}", self.full(&function.name));
            (record_of.learned, record_of.learned_mask) = self.planner.run(name);
        }
        for (address, (vid, mac)) in neighbours {
            self.planner.exact(
                exact_kind::NEIGHBOUR,
                router,
                0,
                words(address),
                vid,
                mac.number(),
            );
        }
        let mut lengths = [BTreeSet::new(), BTreeSet::new()];
        for ((length, first), hops) in routes {
            lengths[usize::from(!is_v4(length, first))].insert(length);
            let value = self.planner.plan.hops.len() as u32;
            let key = words(masked(first, length));
            self.planner.exact(
                exact_kind::ROUTE,
                router,
                length,
                key,
                value,
                hops.len() as u64,
            );
            self.planner.plan.hops.extend(hops);
        }
        let [v4, v6] = &lengths;
        for (list, lengths) in [(&mut record_of.length4, v4), (&mut record_of.length6, v6)] {
            for (place, length) in list.iter_mut().zip(lengths.iter().rev().take(NET_LENGTHS)) {
                *place = length + 1;
            }
        }
        *record(&mut self.planner.plan.routers, router) = record_of;
    }

    /// Bytes that tunnels add beyond an interface of a router.
    fn room(&self, tip: Tip) -> u16 {
        let here = self.planner.here;
        let Some(wire) = self.graph.wires[tip.link] else {
            return 0;
        };
        let far = self
            .home(wire.ends[1 - tip.side])
            .is_some_and(|home| home != here);
        let subnets = self.graph.beyond(self.network, tip).subnets;
        let spread = subnets.iter().any(|subnet| {
            let edges = self.graph.workloads_at[*subnet]
                .iter()
                .filter_map(|one| self.graph.edge_of[*one]);
            edges.into_iter().any(|edge| edge != here)
        });
        if far || spread { self.overhead() } else { 0 }
    }

    /// The hop to a gateway; `check` refuses those that are on no interface.
    fn gateway(&self, at: usize, gateway: IpAddr, neighbours: &Neighbours) -> Option<NetHop> {
        let function = &self.network.functions[at];
        let side = function.interfaces.iter().position(|interface| {
            interface
                .addresses
                .iter()
                .any(|net| net.network().contains(gateway))
        })?;
        let tip = self.graph.at_side[at][side]?;
        let vid = *self.tips.get(&(tip.link, tip.side))?;
        let known = neighbours
            .get(&number(gateway))
            .filter(|(by, _)| *by == vid);
        Some(NetHop {
            kind: hop::GATEWAY.into(),
            vid,
            gateway: mapped_words(gateway),
            mac: known.map_or([0; 6], |(_, mac)| mac.0),
            pad: 0,
        })
    }
}

/// By address: VID of the router's interface, 0 for its own addresses, and MAC address.
type Neighbours = BTreeMap<u128, (u32, Mac)>;

fn special(kind: u8) -> NetHop {
    NetHop {
        kind: kind.into(),
        ..NetHop::default()
    }
}

/// Prefixes of IPv4 have their first 96 bits in common with none of IPv6.
fn is_v4(length: u8, first: u128) -> bool {
    length >= 96 && first >> 32 == 0xffff
}

/// A prefix as routes are ordered: by length.
fn by_length(prefix: &Prefix) -> (u8, u128) {
    let (first, length) = mapped(prefix);
    (length, first)
}
