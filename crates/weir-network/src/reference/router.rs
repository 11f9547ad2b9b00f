//! Routers: the longest prefix by a probe for each length, neighbours, TTL, and what is answered. RFC 1812, 4443, 8200.

use std::net::IpAddr;

use weir_bpf::abi::router::hop;
use weir_bpf::abi::{NetHop, NetRouter, Vi, exact_kind};
use weir_packet::Reason;
use weir_packet::checksum::{fold, sum};

use super::frames::{self, Cause, ETH_ARP, ETH_IP4, ETH_IP6, HEADER, ether_type, mac};
use super::{Done, Going, Packet, Question, Refused, What, words_of};
use crate::values::{Mac, address, masked, number, words};

/// The next hop of a packet.
struct Next {
    /// VID that it leaves by; 0: the packet is for the router itself.
    vid: u32,
    address: IpAddr,
    mac: Option<Mac>,
    length: Option<u8>,
}

impl Going<'_, '_> {
    pub(super) fn router(&mut self, vid: u32, vi: &Vi, mut packet: Packet) -> Done {
        let router = self.edge.tables.routers.get(vi.instance as usize);
        let router = *router.ok_or(Reason::Internal.name())?;
        let frame = &packet.bytes;
        if frame.len() < HEADER {
            return Err(Reason::FrameShort.name());
        }
        let to = mac(frame, 0);
        if !to.is_group() && to.0 != vi.mac {
            return Err(Reason::DstMacMismatch.name());
        }
        let own = frames::asked(frame).filter(|asked| self.is_own(vi.instance, asked.address));
        // Who looks for a duplicate has no address yet.
        let is_known = own.as_ref().is_some_and(|asked| !asked.probe);
        if let Some((address, mac, is_answer)) = frames::told(frame)
            && router.learned_mask != 0
            && (is_known || (is_answer && !to.is_group()))
        {
            let key = neighbour(address.into(), vid);
            self.edge.neighbours.insert((vi.instance, key), mac);
        }
        if let Some(asked) = own {
            let address = asked.address;
            let question = match address.is_ipv4() {
                true => Question::Arp,
                false => Question::Solicitation,
            };
            let mac = Mac(vi.mac);
            frames::answer(&mut packet.bytes, &asked, mac);
            self.step(
                vid,
                What::Answered {
                    question,
                    address,
                    mac,
                },
            );
            self.ahead.push_back((vid, packet));
            return Ok(());
        }
        match ether_type(frame) {
            ETH_IP4 => self.route(vid, vi, &router, packet, false),
            ETH_IP6 => self.route(vid, vi, &router, packet, true),
            ETH_ARP => Err(Reason::RouterLocal.name()),
            _ => Err(Reason::RouterLocal.name()),
        }
    }

    fn is_own(&self, instance: u32, address: IpAddr) -> bool {
        let known = self.find(exact_kind::NEIGHBOUR, instance, 0, words(number(address)));
        known.is_some_and(|(vid, _)| vid == 0)
    }

    fn route(&mut self, vid: u32, vi: &Vi, router: &NetRouter, packet: Packet, v6: bool) -> Done {
        let ip = &packet.bytes[HEADER..];
        let (to, ttl) = check(ip, mac(&packet.bytes, 0), v6)?;
        let from: IpAddr = match v6 {
            true => frames::address6(ip, 8).into(),
            false => frames::address4(ip, 12).into(),
        };
        let martian = Reason::Martian.name();
        if is_martian(from, true) || is_martian(to, false) {
            return Err(martian);
        }
        // The router itself may be spoken to by who has an address of the link only.
        let of_link = is_of_link(from) || is_of_link(to);
        let next = match self.next(vi.instance, router, to, &packet.bytes, v6) {
            Ok(next) if next.vid != 0 && of_link => return Err(martian),
            Err(_) if of_link => return Err(martian),
            Ok(next) => next,
            Err((cause, reason)) => return self.refuse(vid, vi, packet, v6, cause, reason),
        };
        if next.vid == 0 {
            return self.for_itself(vid, vi, packet, to);
        }
        if ttl <= 1 {
            let reason = Reason::TtlExpired.name();
            return self.refuse(vid, vi, packet, v6, Some(Cause::Expired), reason);
        }
        let out = self.edge.vi(next.vid).ok_or(Reason::NoLink.name())?;
        let length = packet.bytes.len() - HEADER;
        if out.mtu != 0 && length > usize::from(out.mtu) {
            let may_fragment = !v6 && packet.bytes[HEADER + 6] & 0x40 == 0;
            let cause = (!may_fragment).then_some(Cause::TooBig(out.mtu));
            return self.refuse(vid, vi, packet, v6, cause, Reason::PathMtu.name());
        }
        let Some(mac) = next.mac else {
            return self.ask(vid, &next, out, packet);
        };
        let mut packet = packet;
        packet.bytes[..6].copy_from_slice(&mac.0);
        packet.bytes[6..12].copy_from_slice(&out.mac);
        match v6 {
            true => packet.bytes[HEADER + 7] -= 1,
            false => frames::less_ttl(&mut packet.bytes[HEADER..]),
        }
        self.step(
            vid,
            What::Routed {
                length: next.length,
                next: next.address,
                to: next.vid,
                mac,
                ttl: ttl - 1,
            },
        );
        self.ahead.push_back((next.vid, packet));
        Ok(())
    }

    /// The next hop of packets to an address, or why there is none.
    fn next(
        &self,
        instance: u32,
        router: &NetRouter,
        to: IpAddr,
        frame: &[u8],
        v6: bool,
    ) -> Result<Next, (Option<Cause>, Refused)> {
        let key = number(to);
        if let Some((vid, mac)) = self.find(exact_kind::NEIGHBOUR, instance, 0, words(key)) {
            return Ok(Next {
                vid,
                address: to,
                mac: Some(Mac::from_number(mac)),
                length: None,
            });
        }
        let no_route = Reason::NoRoute.name();
        let lengths = if v6 { router.length6 } else { router.length4 };
        let found = lengths
            .iter()
            .take_while(|length| **length != 0)
            .find_map(|length| {
                let length = length - 1;
                let (first, count) = self.find(
                    exact_kind::ROUTE,
                    instance,
                    length,
                    words(masked(key, length)),
                )?;
                Some((length, first, count))
            });
        let (length, first, count) = found.ok_or((Some(Cause::NoRoute), no_route))?;
        let choice = match count {
            0 | 1 => 0,
            count => frames::spread(frame, count as u32),
        };
        let way: &NetHop = (self.edge.tables.hops.get((first + choice) as usize))
            .ok_or((None, Reason::Internal.name()))?;
        let address = match way.kind as u8 {
            hop::LINK => to,
            hop::GATEWAY => address(number_of(way.gateway)),
            hop::UNREACHABLE => return Err((Some(Cause::Unreachable), no_route)),
            hop::PROHIBIT => return Err((Some(Cause::Prohibited), no_route)),
            _ => return Err((None, no_route)),
        };
        let given = Mac(way.mac);
        let learned = || {
            self.edge
                .neighbours
                .get(&(instance, neighbour(address, way.vid)))
                .copied()
        };
        let mac = match given == Mac::default() {
            false => Some(given),
            true if router.learned_mask != 0 => learned(),
            true => None,
        };
        Ok(Next {
            vid: way.vid,
            address,
            mac,
            length: Some(if v6 { length } else { length - 96 }),
        })
    }

    fn for_itself(&mut self, vid: u32, vi: &Vi, mut packet: Packet, address: IpAddr) -> Done {
        let mac = Mac(vi.mac);
        if !frames::echo(&mut packet.bytes, mac) {
            return Err(Reason::RouterLocal.name());
        }
        let question = Question::Echo;
        self.step(
            vid,
            What::Answered {
                question,
                address,
                mac,
            },
        );
        self.ahead.push_back((vid, packet));
        Ok(())
    }

    /// The packet becomes a question for its next hop.
    fn ask(&mut self, vid: u32, next: &Next, out: &Vi, packet: Packet) -> Done {
        let (IpAddr::V4(to), true) = (next.address, out.address4 != 0) else {
            return Err(Reason::UnknownNeighbour.name());
        };
        let own = out.address4.to_ne_bytes().into();
        let question = Packet {
            bytes: frames::question(Mac(out.mac), own, to),
            ..packet
        };
        self.step(
            vid,
            What::Asked {
                next: next.address,
                to: next.vid,
            },
        );
        self.ahead.push_back((next.vid, question));
        Ok(())
    }

    /// Drops a packet, and tells its sender if he is to be told.
    fn refuse(
        &mut self,
        vid: u32,
        vi: &Vi,
        packet: Packet,
        v6: bool,
        cause: Option<Cause>,
        reason: Refused,
    ) -> Done {
        let own: IpAddr = match v6 {
            true => address(number_of(vi.address6)),
            false => IpAddr::from(vi.address4.to_ne_bytes()),
        };
        let error = cause.map(|cause| cause.error(v6)).ok_or(reason)?;
        let bytes = match own.is_unspecified() {
            true => None,
            false => frames::error(&packet.bytes, error, Mac(vi.mac), own),
        };
        let bytes = bytes.ok_or(reason)?;
        let (kind, code) = (error.kind, error.code);
        self.step(vid, What::Error { kind, code, reason });
        self.ahead.push_back((vid, Packet { bytes, ..packet }));
        Ok(())
    }
}

/// Destination and TTL of a packet that a router may look at.
fn check(ip: &[u8], station: Mac, v6: bool) -> Result<(IpAddr, u8), Refused> {
    if v6 {
        if ip.len() < 40 {
            return Err(Reason::Ip6Truncated.name());
        }
        if ip[0] >> 4 != 6 {
            return Err(Reason::Ip6BadVersion.name());
        }
        let to = frames::address6(ip, 24);
        if station.is_group() || to.is_unicast_link_local() {
            return Err(Reason::RouterLocal.name());
        }
        return Ok((to.into(), ip[7]));
    }
    if ip.len() < 20 {
        return Err(Reason::Ip4Truncated.name());
    }
    if ip[0] >> 4 != 4 {
        return Err(Reason::Ip4BadVersion.name());
    }
    if ip[0] & 15 < 5 {
        return Err(Reason::Ip4BadIhl.name());
    }
    if ip[0] & 15 == 5 && fold(sum(&ip[..20])) != 0xffff {
        return Err(Reason::Ip4BadChecksum.name());
    }
    if station.is_group() {
        return Err(Reason::RouterLocal.name());
    }
    Ok((frames::address4(ip, 16).into(), ip[8]))
}

/// Addresses that no router sends packets from or to (RFC 1812, 5.3.7; RFC 4291, 2.5; RFC 5771, 4).
fn is_martian(address: IpAddr, is_source: bool) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, third, _] = v4.octets();
            let is_group = match is_source {
                true => v4.is_multicast(),
                false => (first, second, third) == (224, 0, 0),
            };
            first == 0 || first == 127 || first >= 240 || is_group
        }
        IpAddr::V6(v6) => {
            let scope = v6.segments()[0] & 15;
            v6.is_unspecified()
                || v6.is_loopback()
                // Keys of IPv4 look like these.
                || v6.to_ipv4_mapped().is_some()
                || (v6.is_multicast() && (is_source || scope <= 2))
        }
    }
}

/// Addresses of a link (RFC 3927, 2.7; RFC 4291, 2.5.6).
fn is_of_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// The key of a learned neighbour: its address, and the interface it is on.
fn neighbour(address: IpAddr, vid: u32) -> [u64; 2] {
    let [high, low] = words(number(address));
    [high, low ^ u64::from(vid)]
}

fn number_of(words: [u32; 4]) -> u128 {
    let [high, low] = words_of(words);
    let bytes = |word: u64| word.to_ne_bytes();
    u128::from(u64::from_be_bytes(bytes(high))) << 64 | u128::from(u64::from_be_bytes(bytes(low)))
}
