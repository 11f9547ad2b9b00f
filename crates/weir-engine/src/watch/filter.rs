//! What of a filter the kernel can test: never less than the filter lets by, seldom much more.
//!
//! The kernel looks at family, protocol, one prefix for each address and one range for each port, and lets by what it cannot judge.
//! The reader asks `weir_policy::Filter` of the packet as it came in.

use weir_bpf::abi::{WatchEvent, WatchWant, watch};
use weir_policy::Filter;
use weir_policy::field::{Header, Kind};
use weir_policy::model::{Classes, Match, Ranges, Test};
use weir_policy::reference::{Input, Meta, PortId};

/// Header bytes that a filter may look at: the frame's and IP headers with all that [docs/semantics.md] walks, and TCP's.
pub const HEADERS: u32 = 512;

/// A wish about headers that the kernel tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quick {
    checks: u32,
    proto: (u8, u8),
    saddr: Prefix,
    daddr: Prefix,
    sport: (u16, u16),
    dport: (u16, u16),
}

/// Bytes of an address and which of its bits count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Prefix {
    value: [u8; 16],
    mask: [u8; 16],
}

impl Quick {
    /// What of a filter can be tested.
    pub fn of(filter: &Filter) -> Quick {
        let mut quick = Quick::default();
        let rule = filter.rule();
        let has = |class| rule.requires.contains(class);
        if has(Classes::IP4) {
            quick.checks |= watch::IP4;
        }
        if has(Classes::IP6) {
            quick.checks |= watch::IP6;
        }
        for (class, proto) in [
            (Classes::TCP, (6, 6)),
            (Classes::UDP, (17, 17)),
            // In IPv4 only, and in IPv6 only.
            (Classes::ICMP, (1, 1)),
            (Classes::ICMP6, (58, 58)),
        ] {
            if has(class) {
                quick.checks |= watch::PROTO;
                quick.proto = proto;
            }
        }
        for one in &rule.matches {
            quick.narrow(one);
        }
        quick
    }

    /// Puts it into what is asked for.
    pub(super) fn write(&self, want: &mut WatchWant) {
        want.checks = self.checks;
        (want.proto_v4, want.proto_v6) = self.proto;
        (want.saddr, want.saddr_mask) = (self.saddr.value, self.saddr.mask);
        (want.daddr, want.daddr_mask) = (self.daddr.value, self.daddr.mask);
        want.sport = [self.sport.0, self.sport.1];
        want.dport = [self.dport.0, self.dport.1];
    }

    fn narrow(&mut self, one: &Match) {
        let (false, Test::In(set)) = (one.negated, &one.test) else {
            return;
        };
        let Some(hull) = hull(set) else {
            return;
        };
        let info = one.subject.field.info();
        let source = info.name.ends_with("saddr");
        let port = |(low, high): (u128, u128)| (low as u16, high as u16);
        match (info.kind, info.header, info.offset) {
            (Kind::Addr4 | Kind::Addr6, ..) => {
                let bits = u32::from(info.bits);
                let prefix = Prefix::covering(hull, bits);
                let (check, place) = match source {
                    true => (watch::SADDR, &mut self.saddr),
                    false => (watch::DADDR, &mut self.daddr),
                };
                // Of two matches on one address either is more than both.
                self.checks |= check;
                *place = prefix;
            }
            (Kind::Number, Header::Ip4, _) if info.name == "ip-proto" && hull.0 == hull.1 => {
                self.checks |= watch::PROTO;
                self.proto = (hull.0 as u8, 0);
            }
            (Kind::Number, Header::Udp | Header::Tcp, 0) => {
                self.checks |= watch::SPORT;
                self.sport = port(hull);
            }
            (Kind::Number, Header::Udp | Header::Tcp, 16) => {
                self.checks |= watch::DPORT;
                self.dport = port(hull);
            }
            _ => {}
        }
    }
}

impl Prefix {
    /// The longest prefix of an address of so many bits that covers an interval.
    fn covering((low, high): (u128, u128), bits: u32) -> Prefix {
        let length = bits - (128 - (low ^ high).leading_zeros());
        let to_top = 128 - bits;
        let mask = match length {
            0 => 0,
            length => u128::MAX << (128 - length),
        };
        Prefix {
            value: (low << to_top & mask).to_be_bytes(),
            mask: mask.to_be_bytes(),
        }
    }
}

/// First and last element; `None` of an empty set.
fn hull(set: &Ranges) -> Option<(u128, u128)> {
    let intervals = set.intervals();
    Some((intervals.first()?.0, intervals.last()?.1))
}

/// Bytes of a packet that a filter must see.
pub fn bytes_read(filter: &Filter) -> u32 {
    match filter.reads_payload() {
        true => watch::SNAP as u32,
        false => HEADERS,
    }
}

/// Whether a packet matches, from its event at the entry. What of the frame is not in the event counts as zeros, which no test on
/// headers sees.
pub fn matches(filter: &Filter, event: &WatchEvent, bytes: &[u8], port: Option<&str>) -> bool {
    let mut frame = bytes.to_vec();
    frame.resize((event.len as usize).max(bytes.len()), 0);
    filter.matches(&Input {
        frame: &frame,
        now_ns: event.time_ns,
        number: event.number,
        port: PortId {
            name: port,
            index: event.port,
        },
        queue: event.queue as u16,
        meta: Meta::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(text: &str) -> Quick {
        Quick::of(&Filter::parse(text).expect("a filter"))
    }

    #[test]
    fn prefixes_cover_what_they_stand_for() {
        let one = quick("ip-saddr 192.0.2.0/24");
        assert_eq!(one.checks, watch::IP4 | watch::SADDR);
        assert_eq!(one.saddr.value[..5], [192, 0, 2, 0, 0]);
        assert_eq!(one.saddr.mask[..5], [255, 255, 255, 0, 0]);
        // 10.0.0.1 to 10.0.0.9 share 28 bits.
        let range = quick("ip-daddr 10.0.0.1-10.0.0.9");
        assert_eq!(range.daddr.mask[..4], [255, 255, 255, 240]);
        let all = quick("ip6-saddr ::/0");
        assert_eq!(all.saddr.mask, [0; 16]);
        let host = quick("ip6-daddr 2001:db8::1");
        assert_eq!(host.daddr.mask, [255; 16]);
        assert_eq!(host.daddr.value[15], 1);
    }

    #[test]
    fn ports_and_protocols_become_tests() {
        let web = quick("tcp-dport in { 80, 443 }");
        assert_eq!(web.checks, watch::PROTO | watch::DPORT);
        assert_eq!((web.proto, web.dport), ((6, 6), (80, 443)));
        let not = quick("! udp-sport 53");
        assert_eq!(not.checks, watch::PROTO, "a negation is left to the reader");
        assert_eq!(quick("all"), Quick::default());
    }
}
