//! Port security: what a workload may say of itself, and which messages only those may send whom the document lets. `netguard.h` is the same
//! in the data plane.
//!
//! ARP (RFC 826, 5227), neighbour discovery (RFC 4861, 4862, 6980), router advertisements (RFC 1256, 6105, 7113), DHCP (RFC 2131, 8415), MLD (RFC 2710,
//! 3810). Whatever may hide one of them is dropped: a second tag, headers that do not fit the frame (RFC 7112).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_bpf::abi::{Vi, exact_kind, vi_flag};
use weir_packet::Reason;

use super::frames::{self, ETH_ARP, ETH_IP4, ETH_IP6, HEADER, ether_type, is_tag, word16};
use super::{Going, Refused, punt, words_of};
use crate::values::{Mac, number, words};

/// Extension headers of IPv6 that are walked, and options of a message of neighbour discovery that are read.
const HEADERS: usize = 8;
const OPTIONS: usize = 16;

const ICMP: u8 = 1;
const IGMP: u8 = 2;
const UDP: u8 = 17;
const ICMP6: u8 = 58;
/// Ports of DHCP clients: only servers send to them.
const CLIENT4: u16 = 68;
const CLIENT6: u16 = 546;

/// RFC 792 and 1256.
const REDIRECT4: u8 = 5;
const ROUTER_ADVERTISEMENT4: u8 = 9;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
const MLD_QUERY: u8 = 130;

/// What a frame that may enter is let do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// Everything.
    Freely,
    /// It asks, without an address, whether somebody has one that is not its workload's: the fabric answers, and nobody else sees it.
    Probe,
}

/// The protocol behind the headers of IPv6.
enum Upper {
    /// Where it begins, and whether the packet is a first fragment.
    At(u8, usize, bool),
    /// In another fragment.
    Elsewhere,
}

/// Who sends a frame.
struct Sender<'v> {
    vid: u32,
    vi: &'v Vi,
    /// The frame's source.
    mac: Mac,
    any_mac: bool,
    any_address: bool,
}

impl Sender<'_> {
    fn may(&self, flag: u32) -> bool {
        self.vi.flags & flag != 0
    }
}

type Verdict = Result<Admitted, Refused>;

/// The frame may enter if a condition holds.
fn only(holds: bool, otherwise: Reason) -> Verdict {
    match holds {
        true => Ok(Admitted::Freely),
        false => Err(otherwise.name()),
    }
}

impl Going<'_, '_> {
    /// Whether a frame may enter by a workload's interface.
    pub(super) fn admit(&self, vid: u32, vi: &Vi, frame: &[u8]) -> Verdict {
        let by = Sender {
            vid,
            vi,
            mac: frames::mac(frame, 6),
            any_mac: vi.flags & vi_flag::ANY_MAC != 0,
            any_address: vi.flags & vi_flag::ANY_ADDRESS != 0,
        };
        if frame.len() < HEADER || by.mac.is_group() || (!by.any_mac && by.mac.0 != vi.mac) {
            return Err(Reason::SpoofedMac.name());
        }
        match ether_type(frame) {
            // It would hide what may be sent by some only.
            kind if is_tag(kind) => only(
                by.any_address && by.may(vi_flag::MAY_RA) && by.may(vi_flag::MAY_DHCP),
                Reason::VlanNotAllowed,
            ),
            ETH_ARP => self.admit_arp(&by, frame),
            ETH_IP4 => self.admit4(&by, frame),
            ETH_IP6 => self.admit6(&by, frame),
            // What is neither IP nor ARP speaks for nobody.
            _ => Ok(Admitted::Freely),
        }
    }

    fn has_own(&self, by: &Sender<'_>, address: IpAddr) -> bool {
        let key = words(number(address));
        let (first, link_local) = match address {
            IpAddr::V4(v4) => (by.vi.address4 == u32::from_ne_bytes(v4.octets()), false),
            // Keys of IPv4 look like these.
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => return false,
            IpAddr::V6(v6) => (words_of(by.vi.address6) == key, v6 == eui64(by.mac)),
        };
        let more = || self.find(exact_kind::ADDRESS, by.vid, 0, key).is_some();
        !address.is_unspecified()
            && (first || link_local || (by.may(vi_flag::MORE_ADDRESSES) && more()))
    }

    fn admit_arp(&self, by: &Sender<'_>, frame: &[u8]) -> Verdict {
        if by.any_address && by.any_mac {
            return Ok(Admitted::Freely);
        }
        let arp = frame.get(HEADER..HEADER + 28).unwrap_or_default();
        // Ethernet, IPv4, a request or an answer.
        if !arp.starts_with(&[0, 1, 8, 0, 6, 4, 0]) || !matches!(arp[7], 1 | 2) {
            return Err(Reason::NeighbourBad.name());
        }
        let spoofed = Reason::NeighbourSpoofed;
        if !by.any_mac && frames::mac(arp, 8) != by.mac {
            return Err(spoofed.name());
        }
        let (sender, target) = (frames::address4(arp, 14), frames::address4(arp, 24));
        if by.any_address {
            return Ok(Admitted::Freely);
        }
        if sender == Ipv4Addr::UNSPECIFIED {
            return match arp[7] {
                1 if self.has_own(by, target.into()) => Ok(Admitted::Freely),
                1 => Ok(Admitted::Probe),
                _ => Err(spoofed.name()),
            };
        }
        only(self.has_own(by, sender.into()), spoofed)
    }

    fn admit4(&self, by: &Sender<'_>, frame: &[u8]) -> Verdict {
        if frame.len() < HEADER + 20 {
            return Err(Reason::Ip4Truncated.name());
        }
        let ip = &frame[HEADER..];
        let source = frames::address4(ip, 12);
        let is_own = by.any_address
            || match source.is_unspecified() {
                // A host that asks for its address, and nothing else.
                true => punt::is_dhcp(frame),
                false => self.has_own(by, source.into()),
            };
        if !is_own {
            let reason = if ip[9] == IGMP {
                Reason::GroupSpoofed
            } else {
                Reason::Spoofed
            };
            return Err(reason.name());
        }
        let head = usize::from(ip[0] & 15) * 4;
        let is_first = word16(ip, 6) & 0x1fff == 0 && head >= 20;
        // Type and code of ICMP, ports of UDP.
        let Some(bytes) = ip.get(head..head + 4).filter(|_| is_first) else {
            return Ok(Admitted::Freely);
        };
        match ip[9] {
            ICMP if matches!(bytes[0], REDIRECT4 | ROUTER_ADVERTISEMENT4) => {
                only(by.may(vi_flag::MAY_RA), Reason::RaGuard)
            }
            UDP if word16(bytes, 2) == CLIENT4 => {
                only(by.may(vi_flag::MAY_DHCP), Reason::DhcpGuard)
            }
            _ => Ok(Admitted::Freely),
        }
    }

    fn admit6(&self, by: &Sender<'_>, frame: &[u8]) -> Verdict {
        if frame.len() < HEADER + 40 {
            return Err(Reason::Ip6Truncated.name());
        }
        let source = frames::address6(frame, HEADER + 8);
        let is_own = by.any_address || self.has_own(by, source.into());
        let (protocol, at, is_fragment) = match upper(frame)? {
            Upper::At(protocol, at, is_fragment) => (protocol, at, is_fragment),
            Upper::Elsewhere => return only(is_own, Reason::Spoofed),
        };
        if !matches!(protocol, UDP | ICMP6) {
            return only(is_own, Reason::Spoofed);
        }
        let head = frame.get(at..at + 4);
        let head = head.ok_or(Reason::Ip6EhTruncated.name())?;
        if protocol == UDP {
            only(is_own, Reason::Spoofed)?;
            let is_server = word16(head, 2) == CLIENT6;
            return only(!is_server || by.may(vi_flag::MAY_DHCP), Reason::DhcpGuard);
        }
        match head[0] {
            ROUTER_ADVERTISEMENT | REDIRECT if !by.may(vi_flag::MAY_RA) => {
                Err(Reason::RaGuard.name())
            }
            ROUTER_SOLICITATION..=REDIRECT => {
                self.admit_discovery(by, frame, at, is_own, is_fragment)
            }
            kind @ (MLD_QUERY | 131 | 132 | 143) => only(
                by.any_address
                    || (is_own && source.is_unicast_link_local())
                    || (source.is_unspecified() && kind != MLD_QUERY),
                Reason::GroupSpoofed,
            ),
            _ => only(is_own, Reason::Spoofed),
        }
    }

    /// RFC 4861, 6.1 and 7.1, and whose addresses are spoken of.
    fn admit_discovery(
        &self,
        by: &Sender<'_>,
        frame: &[u8],
        at: usize,
        is_own: bool,
        is_fragment: bool,
    ) -> Verdict {
        let bad = Reason::NeighbourBad.name();
        let spoofed = Reason::NeighbourSpoofed;
        let (kind, code) = (frame[at], frame[at + 1]);
        let nobody = frames::address6(frame, HEADER + 8).is_unspecified();
        let payload = usize::from(word16(frame, HEADER + 4));
        let end = HEADER + 40 + payload;
        let fixed = match kind {
            ROUTER_SOLICITATION => 8,
            ROUTER_ADVERTISEMENT => 16,
            REDIRECT => 40,
            _ => 24,
        };
        // RFC 6980: never in fragments.
        if is_fragment || frame[HEADER + 7] != 255 || code != 0 {
            return Err(bad);
        }
        if payload == 0 || end > frame.len() || at + fixed > end {
            return Err(bad);
        }
        let may_have_none = matches!(kind, ROUTER_SOLICITATION | SOLICITATION);
        let is_honest = is_own || (nobody && may_have_none);
        if !is_honest {
            return Err(spoofed.name());
        }
        // Of the sender, or of the target of an advertisement.
        let link_layer = match kind {
            ADVERTISEMENT => 2,
            REDIRECT => 0,
            _ => 1,
        };
        let mut option = at + fixed;
        for _ in 0..OPTIONS {
            if option >= end {
                break;
            }
            let length = match frame.get(option..option + 2) {
                Some(&[_, length]) if length != 0 => usize::from(length) * 8,
                _ => return Err(bad),
            };
            if option + length > end {
                return Err(bad);
            }
            if frame[option] == link_layer {
                if nobody {
                    return Err(bad);
                }
                if !by.any_mac && (length != 8 || frames::mac(frame, option + 2) != by.mac) {
                    return Err(spoofed.name());
                }
            }
            option += length;
        }
        if option < end {
            return Err(bad);
        }
        let target = || self.has_own(by, frames::address6(frame, at + 8).into());
        match kind {
            _ if by.any_address => Ok(Admitted::Freely),
            ADVERTISEMENT => only(target(), spoofed),
            SOLICITATION if nobody && !target() => Ok(Admitted::Probe),
            _ => Ok(Admitted::Freely),
        }
    }
}

/// The link-local address that is made of a MAC address (RFC 4291, appendix A).
fn eui64(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([
        0xfe,
        0x80,
        0,
        0,
        0,
        0,
        0,
        0,
        a ^ 2,
        b,
        c,
        0xff,
        0xfe,
        d,
        e,
        f,
    ])
}

/// Walks the headers of IPv6, which lie in the frame whole or hide what is behind them.
fn upper(frame: &[u8]) -> Result<Upper, Refused> {
    let (mut protocol, mut at, mut is_fragment) = (frame[HEADER + 6], HEADER + 40, false);
    for count in 0..=HEADERS {
        if !matches!(protocol, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140) {
            return Ok(Upper::At(protocol, at, is_fragment));
        }
        if count == HEADERS {
            break;
        }
        let head = frame.get(at..at + 8);
        let head = head.ok_or(Reason::Ip6EhTruncated.name())?;
        let units = usize::from(head[1]);
        at += match protocol {
            44 if word16(head, 2) & 0xfff8 != 0 => return Ok(Upper::Elsewhere),
            44 => 8,
            51 => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        is_fragment |= protocol == 44;
        protocol = head[0];
    }
    Err(Reason::Ip6EhDeep.name())
}
