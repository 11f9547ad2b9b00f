//! Into and out of chains: what is selected passes one of the functions that are next, everything else goes onward.

use weir_bpf::abi::{NetSelection, Vi};
use weir_packet::Reason;

use super::frames::{self, ETH_IP4, ETH_IP6, HEADER, ether_type, word16};
use super::{Done, Going, Packet, What};
use crate::values::{number, words};

impl Going<'_, '_> {
    pub(super) fn steer(&mut self, vid: u32, vi: &Vi, packet: Packet) -> Done {
        let tables = self.edge.tables;
        let steer = tables
            .steers
            .get(vi.instance as usize)
            .ok_or(Reason::Internal.name())?;
        let selections: Vec<&NetSelection> = (tables.selections.iter())
            .skip(steer.selections as usize)
            .take(steer.n_selections as usize)
            .collect();
        let fields = Fields::of(&packet.bytes);
        let is_selected = fields.is_some_and(|fields| {
            selections.is_empty() || selections.iter().any(|one| fields.is_of(one))
        });
        let (to, ways) = match steer.n_ways {
            count if count > 0 && is_selected => {
                let choice = frames::spread(&packet.bytes, count);
                let way = tables.lists.get((steer.ways + choice) as usize);
                (*way.ok_or(Reason::Internal.name())?, count)
            }
            _ => (vi.onward, 0),
        };
        self.step(vid, What::Steered { to, ways });
        self.ahead.push_back((to, packet));
        Ok(())
    }
}

/// What selections are about.
pub(super) struct Fields {
    source: [u64; 2],
    target: [u64; 2],
    pub(super) protocol: u8,
    /// From and to; `None`: it has none, or is a later fragment.
    pub(super) ports: Option<(u16, u16)>,
    /// Where the IP headers end, from the beginning of the packet.
    pub(super) l4: usize,
    pub(super) is_fragment: bool,
    /// ... and not the first one.
    pub(super) is_later: bool,
}

/// Headers of IPv6 that are walked, and how many bytes and headers of them.
const EXTENSIONS: [u8; 7] = [0, 43, 44, 51, 60, 135, 139];
const SHIM6: u8 = 140;
const MOST_EXTENSIONS: usize = 8;
const MOST_BYTES: usize = 256;

impl Fields {
    /// `None`: no IP packet, or one that ends inside of the headers that are looked at.
    pub(super) fn of(frame: &[u8]) -> Option<Fields> {
        let ip = frame.get(HEADER..)?;
        match ether_type(frame) {
            ETH_IP4 => Fields::of_ip4(ip),
            ETH_IP6 => Fields::of_ip6(ip),
            _ => None,
        }
    }

    fn of_ip4(ip: &[u8]) -> Option<Fields> {
        let head = usize::from(ip.first()? & 15) * 4;
        let total = usize::from(word16(ip, 2));
        let is_whole = ip.len() >= 20 && ip[0] >> 4 == 4 && (20..=ip.len()).contains(&head);
        if !is_whole || total < head || total > ip.len() {
            return None;
        }
        let is_later = word16(ip, 6) & 0x1fff != 0;
        Some(Fields {
            l4: head,
            is_fragment: word16(ip, 6) & 0x3fff != 0,
            is_later,
            source: words(number(frames::address4(ip, 12).into())),
            target: words(number(frames::address4(ip, 16).into())),
            protocol: ip[9],
            ports: if is_later {
                None
            } else {
                ports(&ip[..total], head, ip[9])?
            },
        })
    }

    fn of_ip6(ip: &[u8]) -> Option<Fields> {
        let total = 40 + usize::from(word16(ip, 4));
        if ip.len() < 40 || ip[0] >> 4 != 6 || total > ip.len() {
            return None;
        }
        let (mut at, mut protocol, mut is_later, mut headers) = (40, ip[6], false, 0);
        let mut is_fragment = false;
        while !is_later && (EXTENSIONS.contains(&protocol) || protocol == SHIM6) {
            headers += 1;
            let head = ip[..total].get(at..at + 8)?;
            let length = match protocol {
                44 => 8,
                51 => (usize::from(head[1]) + 2) * 4,
                _ => (usize::from(head[1]) + 1) * 8,
            };
            is_later = protocol == 44 && word16(head, 2) & 0xfff8 != 0;
            is_fragment |= protocol == 44 && word16(head, 2) & 0xfff9 != 0;
            at += length;
            if headers > MOST_EXTENSIONS || at > total || at - 40 > MOST_BYTES {
                return None;
            }
            protocol = head[0];
        }
        Some(Fields {
            l4: at,
            is_fragment,
            is_later,
            source: words(number(frames::address6(ip, 8).into())),
            target: words(number(frames::address6(ip, 24).into())),
            protocol,
            ports: if is_later {
                None
            } else {
                ports(&ip[..total], at, protocol)?
            },
        })
    }

    pub(super) fn is_of(&self, one: &NetSelection) -> bool {
        let within = |address: [u64; 2], mask: [u64; 2], net: [u64; 2]| {
            (0..2).all(|word| address[word] & mask[word] == net[word])
        };
        let ports = match (one.ports, self.ports) {
            (0, _) => true,
            (_, None) => false,
            (_, Some((from, to))) => {
                (one.source_low..=one.source_high).contains(&from)
                    && (one.target_low..=one.target_high).contains(&to)
            }
        };
        within(self.source, one.source_mask, one.source)
            && within(self.target, one.target_mask, one.target)
            && (one.protocol == 0 || one.protocol == self.protocol)
            && ports
    }
}

/// Ports behind the IP headers, of protocols that have them. `None`: the packet ends in front of what TCP and UDP always have.
fn ports(packet: &[u8], at: usize, protocol: u8) -> Option<Option<(u16, u16)>> {
    let need = match protocol {
        6 => 20,
        17 => 8,
        132 => 4,
        _ => return Some(None),
    };
    match (packet.len() >= at + need, protocol) {
        (true, _) => Some(Some((word16(packet, at), word16(packet, at + 2)))),
        (false, 132) => Some(None),
        (false, _) => None,
    }
}
