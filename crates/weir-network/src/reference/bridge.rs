//! Bridges: IEEE 802.1Q with declared and learned stations, answers for declared addresses, copies for all.

use weir_bpf::abi::{NetBridge, Vi, bridge_flag, exact_kind, net_slot, vi_flag};
use weir_packet::Reason;

use super::frames::{self, HEADER, mac};
use super::{Done, Going, Packet, Question, Refused, What};
use crate::values::{Mac, number, words};

impl Going<'_, '_> {
    pub(super) fn bridge(&mut self, vid: u32, vi: &Vi, mut packet: Packet) -> Done {
        let instance = vi.instance;
        let bridge = self.edge.tables.bridges.get(instance as usize);
        let bridge = *bridge.ok_or(Reason::Internal.name())?;
        if packet.bytes.len() < HEADER {
            return Err(Reason::FrameShort.name());
        }
        packet.untag()?;
        let vlan = self.vlan_of(vid, vi, &packet)?;
        let (to, from) = (mac(&packet.bytes, 0), mac(&packet.bytes, 6));
        if vi.flags & vi_flag::LEARN != 0 && bridge.learned_mask != 0 {
            let behind = (vid, packet.remote);
            self.edge
                .stations
                .insert((instance, station(from, vlan)), behind);
        }
        if let Some(asked) = frames::asked(&packet.bytes) {
            let address = asked.address;
            let known = self.find(exact_kind::ARP, instance, 0, words(number(address)));
            // Nobody is told of himself: that is how a host finds a duplicate.
            if let Some(owner) = known
                .map(|(_, mac)| Mac::from_number(mac))
                .filter(|mac| *mac != from)
            {
                let question = match address.is_ipv4() {
                    true => Question::Arp,
                    false => Question::Solicitation,
                };
                frames::answer(&mut packet.bytes, &asked, owner);
                packet.probe = false;
                self.step(
                    vid,
                    What::Answered {
                        question,
                        address,
                        mac: owner,
                    },
                );
                // Back to where it came from, another edge included.
                self.ahead.push_back((vid, packet));
                return Ok(());
            }
        }
        // Who might be about to take the address is not to hear of it.
        if packet.probe {
            return Err(Reason::NeighbourSpoofed.name());
        }
        if vi.flags & vi_flag::DHCP != 0 && super::punt::is_dhcp(&packet.bytes) {
            self.leave(vid, super::To::Process { vid }, packet);
            return Ok(());
        }
        if to.is_group() {
            return self.flood(vid, vi, &bridge, vlan, packet);
        }
        let declared = self.find(exact_kind::STATION, instance, 0, [station(to, vlan), 0]);
        let learned = || {
            self.edge
                .stations
                .get(&(instance, station(to, vlan)))
                .copied()
        };
        let (out, remote, is_learned) = match declared {
            Some((out, remote)) => (out, remote as u32, false),
            None => match learned() {
                Some((out, remote)) => (out, remote, true),
                None if bridge.flags & bridge_flag::CLOSED != 0 => {
                    return Err(Reason::UnknownStation.name());
                }
                None => return self.flood(vid, vi, &bridge, vlan, packet),
            },
        };
        let leads = self.edge.vi(out).ok_or(Reason::NoLink.name())?;
        if out == vid || leads.flags & vi.flags & vi_flag::TUNNEL != 0 {
            return Err(Reason::SplitHorizon.name());
        }
        self.step(
            vid,
            What::Station {
                mac: to,
                vlan,
                to: out,
                remote,
                learned: is_learned,
            },
        );
        if !self.leave_vlan(out, leads, vlan, &mut packet) {
            return Err(Reason::VlanNotAllowed.name());
        }
        packet.remote = remote;
        self.ahead.push_back((out, packet));
        Ok(())
    }

    /// Whether an interface with tags carries a VLAN.
    fn carries(&self, vid: u32, vi: &Vi, vlan: u16) -> bool {
        // Other edges get all of them.
        vi.flags & vi_flag::TUNNEL != 0
            || self
                .find(exact_kind::VLAN, vid, 0, [vlan.into(), 0])
                .is_some()
    }

    fn vlan_of(&self, vid: u32, vi: &Vi, packet: &Packet) -> Result<u16, Refused> {
        let is_trunk = vi.flags & vi_flag::TRUNK != 0;
        let vlan = match packet.tag {
            None => vi.vlan,
            Some((_, tci)) if is_trunk => tci & 0xfff,
            Some(_) => return Err(Reason::VlanNotAllowed.name()),
        };
        match is_trunk && !self.carries(vid, vi, vlan) {
            true => Err(Reason::VlanNotAllowed.name()),
            false => Ok(vlan),
        }
    }

    /// Gives the packet the tag, or takes it off, that its VLAN has at an interface. `false`: it has not that VLAN.
    fn leave_vlan(&self, vid: u32, out: &Vi, vlan: u16, packet: &mut Packet) -> bool {
        if out.flags & vi_flag::TRUNK == 0 {
            packet.tag = None;
            return out.vlan == vlan;
        }
        if packet.tag.is_none() && vlan != out.vlan {
            packet.tag = Some((0x8100, vlan));
        }
        self.carries(vid, out, vlan)
    }

    fn flood(&mut self, vid: u32, vi: &Vi, bridge: &NetBridge, vlan: u16, packet: Packet) -> Done {
        let list = |first: u32, count: u32| {
            let all = self.edge.tables.lists.iter();
            all.skip(first as usize)
                .take(count as usize)
                .copied()
                .collect::<Vec<u32>>()
        };
        let came_by_tunnel = vi.flags & vi_flag::TUNNEL != 0;
        let (mut members, mut remotes) = (Vec::new(), Vec::new());
        for member in list(bridge.members, bridge.n_members) {
            let Some(out) = self.edge.vi(member).filter(|_| member != vid) else {
                continue;
            };
            // Functions of the segment have seen it on the edge it started at.
            if came_by_tunnel && out.slot != net_slot::DEVICE {
                continue;
            }
            let mut copy = Packet {
                remote: 0,
                ..packet.clone()
            };
            if self.leave_vlan(member, out, vlan, &mut copy) {
                members.push((member, copy));
            }
        }
        if bridge.tunnel != 0 && !came_by_tunnel {
            for remote in list(bridge.remotes, bridge.n_remotes) {
                let Some(out) = self.edge.vi(bridge.tunnel) else {
                    continue;
                };
                let mut copy = Packet {
                    remote,
                    ..packet.clone()
                };
                if self.leave_vlan(bridge.tunnel, out, vlan, &mut copy) {
                    remotes.push(copy);
                }
            }
        }
        if members.is_empty() && remotes.is_empty() {
            return Err(Reason::UnknownStation.name());
        }
        let what = What::Flooded {
            members: members.iter().map(|(vid, _)| *vid).collect(),
            remotes: remotes.iter().map(|copy| copy.remote).collect(),
        };
        self.step(vid, what);
        self.ahead.extend(members);
        self.ahead
            .extend(remotes.into_iter().map(|copy| (bridge.tunnel, copy)));
        Ok(())
    }
}

fn station(mac: Mac, vlan: u16) -> u64 {
    mac.number() << 16 | u64::from(vlan)
}
