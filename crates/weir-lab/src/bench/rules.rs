//! Rule sets of the benchmarks: generators with the structure of real filters, packets that meet them, and the same rules as text for
//! weir. Deterministic: a set depends on its kind and size alone.
//!
//! What other programs call these rules is in `peers`, sets of ClassBench are read in `classbench`.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use weir_packet::build::Frame;

/// Any port.
pub(crate) const ANY: (u16, u16) = (0, u16::MAX);

/// A five-tuple rule with TCP flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Network and prefix length; no bits behind the prefix.
    pub(crate) source: (u32, u32),
    pub(crate) destination: (u32, u32),
    /// IPv4 protocol, 0 for any. Ports only with TCP and UDP, flags only with TCP.
    pub(crate) protocol: u8,
    pub(crate) sport: (u16, u16),
    pub(crate) dport: (u16, u16),
    /// Value and mask of the TCP flags.
    pub(crate) flags: (u8, u8),
}

/// A packet as far as such rules can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) protocol: u8,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    pub(crate) flags: u8,
}

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

impl Rule {
    /// All packets of a protocol.
    pub(crate) fn everything(protocol: u8) -> Rule {
        Rule {
            source: (0, 0),
            destination: (0, 0),
            protocol,
            sport: ANY,
            dport: ANY,
            flags: (0, 0),
        }
    }

    pub(crate) fn matches(&self, p: &Packet) -> bool {
        let inside = |(network, bits): (u32, u32), address: u32| address & mask(bits) == network;
        inside(self.source, p.source)
            && inside(self.destination, p.destination)
            && (self.protocol == 0 || self.protocol == p.protocol)
            && (self.sport == ANY || (self.sport.0..=self.sport.1).contains(&p.sport))
            && (self.dport == ANY || (self.dport.0..=self.dport.1).contains(&p.dport))
            && p.flags & self.flags.1 == self.flags.0
    }

    /// Whether some packet could match both.
    fn meets(&self, other: &Rule) -> bool {
        let nested = |a: (u32, u32), b: (u32, u32)| {
            let shorter = mask(a.1.min(b.1));
            a.0 & shorter == b.0 & shorter
        };
        let overlap = |a: (u16, u16), b: (u16, u16)| a.0 <= b.1 && b.0 <= a.1;
        nested(self.source, other.source)
            && nested(self.destination, other.destination)
            && (self.protocol == other.protocol || self.protocol == 0 || other.protocol == 0)
            && overlap(self.sport, other.sport)
            && overlap(self.dport, other.dport)
    }

    /// A packet that matches.
    pub(crate) fn packet(&self, random: &mut Random) -> Packet {
        let mut port = |(low, high): (u16, u16)| {
            let span = u64::from(high - low) + 1;
            low + (random.next() % span) as u16
        };
        let (sport, dport) = (port(self.sport), port(self.dport));
        let (source, destination) = (random.address(), random.address());
        Packet {
            source: self.source.0 | source & !mask(self.source.1),
            destination: self.destination.0 | destination & !mask(self.destination.1),
            protocol: if self.protocol == 0 {
                TCP
            } else {
                self.protocol
            },
            sport,
            dport,
            flags: self.flags.0 | Frame::ACK & !self.flags.1,
        }
    }

    /// The matches, as weir writes them.
    pub(crate) fn policy_line(&self, target: &str, text: &mut String) {
        let protocol = match self.protocol {
            TCP => "tcp",
            UDP => "udp",
            _ => "",
        };
        for (field, (network, bits)) in [("saddr", self.source), ("daddr", self.destination)] {
            let _ = write!(text, "ip-{field} {}/{bits} ", Ipv4Addr::from(network));
        }
        if self.protocol != 0 {
            let _ = write!(text, "ip-proto {} ", self.protocol);
        }
        for (field, range) in [("sport", self.sport), ("dport", self.dport)] {
            if range != ANY {
                let _ = write!(text, "{protocol}-{field} {} ", span(range));
            }
        }
        for (bit, name) in FLAGS.iter().enumerate() {
            if self.flags.1 & 1 << bit != 0 {
                let not = if self.flags.0 & 1 << bit == 0 {
                    "! "
                } else {
                    ""
                };
                let _ = write!(text, "{not}tcp-{name} ");
            }
        }
        text.push_str(target);
        text.push('\n');
    }
}

/// weir's names of the TCP flags from bit 0 on.
const FLAGS: [&str; 8] = ["fin", "syn", "rst", "push", "ack", "urg", "ece", "cwr"];

impl Packet {
    /// TCP or UDP: rules of other protocols need headers that the generator does not make.
    fn has_ports(&self) -> bool {
        matches!(self.protocol, TCP | UDP)
    }

    /// A packet the other way.
    pub(crate) fn answer(&self) -> Packet {
        Packet {
            source: self.destination,
            destination: self.source,
            sport: self.dport,
            dport: self.sport,
            ..*self
        }
    }

    /// As a frame without payload.
    pub(crate) fn frame(&self) -> Frame {
        let frame = Frame::new().ip4(self.source.to_be_bytes(), self.destination.to_be_bytes());
        match self.protocol {
            TCP => frame.tcp(self.sport, self.dport).flags(self.flags),
            UDP => frame.udp(self.sport, self.dport),
            other => frame.protocol(other),
        }
    }
}

/// A policy of these rules.
pub(crate) fn policy(rules: &[Rule], target: &str) -> String {
    let mut text = String::new();
    for rule in rules {
        rule.policy_line(target, &mut text);
    }
    text
}

/// A range of ports as weir and nftables write it.
pub(crate) fn span((low, high): (u16, u16)) -> String {
    if low == high {
        low.to_string()
    } else {
        format!("{low}-{high}")
    }
}

/// Rules structured as filters of networks are: prefixes within sites whose number grows with the set, well-known ports, some ranges, some
/// rules on the opening packets of TCP, few short prefixes. The last two are one each for all of TCP and of UDP, so that every packet
/// can match two.
pub(crate) fn sites(count: usize) -> Vec<Rule> {
    let mut random = Random(42);
    let places = places(count, &mut random);
    (2..count)
        .map(|_| {
            let protocol = [TCP, TCP, TCP, TCP, TCP, UDP, UDP, UDP, 0][random.below(9)];
            let sport = match random.below(100) {
                0..5 if protocol != 0 => (1024, u16::MAX),
                _ => ANY,
            };
            let flags = match random.below(100) {
                // New connections only.
                0..8 if protocol == TCP => (Frame::SYN, Frame::SYN | Frame::ACK),
                _ => (0, 0),
            };
            Rule {
                source: side(&places, &mut random, true),
                destination: side(&places, &mut random, true),
                protocol,
                sport,
                dport: if protocol == 0 {
                    ANY
                } else {
                    service(&mut random)
                },
                flags,
            }
        })
        .chain([Rule::everything(TCP), Rule::everything(UDP)])
        .take(count)
        .collect()
}

/// Rules of the same structure of which no two can match the same packet, every one with a protocol and any source port: what
/// one concatenated set of nftables can hold.
pub(crate) fn disjoint(count: usize) -> Vec<Rule> {
    let mut random = Random(43);
    let places = places(count, &mut random);
    // By destination site: only rules of one site can meet.
    let mut by_site: std::collections::HashMap<u32, Vec<Rule>> = std::collections::HashMap::new();
    let mut rules = Vec::with_capacity(count);
    while rules.len() < count {
        let rule = Rule {
            source: side(&places, &mut random, false),
            destination: side(&places, &mut random, false),
            protocol: [TCP, TCP, UDP][random.below(3)],
            sport: ANY,
            dport: service(&mut random),
            flags: (0, 0),
        };
        let near = by_site.entry(rule.destination.0 & mask(16)).or_default();
        if near.iter().any(|other| other.meets(&rule)) {
            continue;
        }
        near.push(rule);
        rules.push(rule);
    }
    rules
}

/// Exact five-tuples, all different: the rules of the mmb paper's firewall.
pub(crate) fn exact(count: usize) -> Vec<Rule> {
    let mut random = Random(44);
    (0..count as u32)
        .map(|i| Rule {
            source: (random.address(), 32),
            // Different whatever the other fields are; 9 stands in front of the generator's sites.
            destination: (0x0900_0000 + i, 32),
            protocol: [TCP, UDP][random.below(2)],
            sport: [random.next() as u16; 2].into(),
            dport: [random.next() as u16; 2].into(),
            flags: (0, 0),
        })
        .collect()
}

/// One source address each, all different.
pub(crate) fn sources(count: usize) -> Vec<Rule> {
    (0..count as u32)
        .map(|i| Rule {
            // An odd factor: a permutation of the 2^24 addresses of 5.0.0.0/8.
            source: (0x0500_0000 | i.wrapping_mul(0x9e_3779) & 0xff_ffff, 32),
            ..Rule::everything(0)
        })
        .collect()
}

/// 2,000 rules of so many pairs of prefix lengths, spread over all pairs, and one short rule that makes every packet match two.
pub(crate) fn masks(masks: usize) -> Vec<Rule> {
    let mut random = Random(7);
    let pairs: Vec<(u32, u32)> = (8..=32)
        .flat_map(|s| (1..=40).map(move |d| (s, d)))
        .collect();
    (0..2000)
        .map(|i| {
            let (s, d) = pairs[(i % masks) * pairs.len() / masks];
            // Beyond 32 the pair differs in protocol instead.
            let (d, protocol) = if d > 32 { (d - 8, TCP) } else { (d, 0) };
            Rule {
                source: (random.address() & mask(s), s),
                destination: (random.address() & mask(d), d),
                ..Rule::everything(protocol)
            }
        })
        .chain([Rule::everything(TCP)])
        .collect()
}

/// Up to `want` packets made from the rules that match just so many of them.
pub(crate) fn packets_matching(rules: &[Rule], matching: usize, want: usize) -> Vec<Packet> {
    let mut random = Random(1234);
    let mut packets = Vec::new();
    for _ in 0..20 * want {
        let packet = rules[random.below(rules.len())].packet(&mut random);
        if !packet.has_ports() {
            continue;
        }
        let met = rules.iter().filter(|r| r.matches(&packet));
        if met.take(matching + 1).count() == matching {
            packets.push(packet);
            if packets.len() == want {
                break;
            }
        }
    }
    packets
}

/// Packets made from the rules, and how many rules each matches on average.
pub(crate) fn packets_any(rules: &[Rule], want: usize) -> (Vec<Packet>, f64) {
    let mut random = Random(4321);
    let packets: Vec<Packet> = (0..20 * want)
        .map(|_| rules[random.below(rules.len())].packet(&mut random))
        .filter(Packet::has_ports)
        .take(want)
        .collect();
    let met: usize = packets
        .iter()
        .map(|p| rules.iter().filter(|r| r.matches(p)).count())
        .sum();
    let mean = met as f64 / packets.len() as f64;
    (packets, mean)
}

/// Packets between the sites that match no rule.
pub(crate) fn packets_missing(rules: &[Rule], want: usize) -> Vec<Packet> {
    let mut random = Random(99);
    let mut packets = Vec::with_capacity(want);
    while packets.len() < want {
        let like = rules[random.below(rules.len())].packet(&mut random);
        // Other ports and neighbours of what a rule names.
        let packet = Packet {
            source: like.source ^ random.next() as u32 & 0xffff,
            destination: like.destination ^ random.next() as u32 & 0xff,
            protocol: [TCP, UDP][random.below(2)],
            sport: random.next() as u16,
            dport: random.next() as u16,
            flags: Frame::ACK,
        };
        if !rules.iter().any(|r| r.matches(&packet)) {
            packets.push(packet);
        }
    }
    packets
}

/// Which values of the maximum segment size the option rules name: `count` values, or ranges that are no prefixes.
pub(crate) fn mss_values(count: usize, ranges: bool) -> Vec<(u16, u16)> {
    let step = 60_000 / count;
    (0..count)
        .map(|i| i * step)
        .map(|at| match ranges {
            true => ((at + 1) as u16, (at + step - 3) as u16),
            false => (at as u16, at as u16),
        })
        .collect()
}

/// A policy of rules on the maximum segment size.
pub(crate) fn mss_policy(values: &[(u16, u16)], target: &str) -> String {
    let mut text = String::new();
    for value in values {
        let _ = writeln!(text, "tcp-opt-mss {} {target}", span(*value));
    }
    text
}

/// A SYN with the options that Linux sends, and this maximum segment size.
pub(crate) fn syn(source: u32, mss: u16) -> Frame {
    Frame::new()
        .ip4(source.to_be_bytes(), [10, 0, 0, 2])
        .tcp(4000, 443)
        .flags(Frame::SYN)
        .tcp_option(2, &mss.to_be_bytes())
        .tcp_option(4, &[])
        .tcp_option(8, &[0, 0, 0, 1, 0, 0, 0, 0])
        .tcp_option(3, &[7])
}

/// A mask of so many leading bits.
pub(crate) fn mask(bits: u32) -> u32 {
    u32::MAX.checked_shl(32 - bits).unwrap_or(0)
}

fn places(count: usize, random: &mut Random) -> Vec<u32> {
    (0..40 + count / 100)
        .map(|_| random.address() & mask(16))
        .collect()
}

/// A prefix within a site, or with `wide` one in 250 times a short one.
fn side(places: &[u32], random: &mut Random, wide: bool) -> (u32, u32) {
    let place = places[random.below(places.len())];
    let bits = match random.below(1000) {
        0..4 if wide => [8, 12, 14, 16][random.below(4)],
        0..300 => 17 + random.below(7) as u32,
        300..750 => 24 + random.below(8) as u32,
        _ => 32,
    };
    ((place | random.next() as u32 & 0xffff) & mask(bits), bits)
}

/// Destination ports as filters name them.
fn service(random: &mut Random) -> (u16, u16) {
    const WELL_KNOWN: [u16; 12] = [22, 25, 53, 80, 110, 123, 143, 443, 993, 3306, 5432, 8080];
    const RANGES: [(u16, u16); 4] = [(1024, u16::MAX), (6000, 6063), (33_434, 33_600), (0, 1023)];
    let port = random.next() as u16;
    match random.below(100) {
        0..20 => ANY,
        20..75 => [WELL_KNOWN[random.below(12)]; 2].into(),
        75..90 => RANGES[random.below(4)],
        _ => (port, port),
    }
}

/// SplitMix64: fixed sequences, the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// An address that the stack forwards: 11.0.0.0 to 126.255.255.255, so outside the test beds' 10.0.0.0/8, loopback and multicast.
    pub(crate) fn address(&mut self) -> u32 {
        self.next() as u32 % 0x7400_0000 + 0x0b00_0000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_the_size_asked_for_and_are_the_same_every_time() {
        for count in [1, 2, 10, 500] {
            assert_eq!(sites(count).len(), count);
            assert_eq!(disjoint(count).len(), count);
            assert_eq!(exact(count), exact(count));
            assert_eq!(mss_values(count, true).len(), count);
        }
        assert_eq!(sites(300), sites(300));
    }

    #[test]
    fn no_packet_matches_two_disjoint_rules() {
        let rules = disjoint(2000);
        let (packets, met) = packets_any(&rules, 500);
        assert_eq!(met, 1.0);
        assert_eq!(packets.len(), 500);
        for packet in packets_missing(&rules, 500) {
            assert!(!rules.iter().any(|r| r.matches(&packet)));
        }
    }

    #[test]
    fn masks_are_as_many_as_asked_for() {
        for count in [1, 26, 1000] {
            let shapes: std::collections::HashSet<_> = masks(count)
                .iter()
                .map(|r| (r.source.1, r.destination.1, r.protocol))
                .collect();
            assert_eq!(shapes.len(), count + 1);
        }
    }

    #[test]
    fn sources_differ() {
        let rules = sources(10_000);
        let all: std::collections::HashSet<_> = rules.iter().map(|r| r.source.0).collect();
        assert_eq!(all.len(), 10_000);
        for packet in packets_missing(&rules, 100) {
            assert!(packet.destination >= 0x0b00_0000, "the stack forwards it");
        }
    }
}
