//! What is to be sent: protocols, addresses, ports, sizes, or a capture -> templates and flows for the generator. Pure.
//!
//! A template is a frame without what differs from flow to flow, with the sums that its checksums are made from; the generator fills in
//! addresses, ports, number and time. Invariant: the checksums of every frame are right, which a test computes anew.

use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use weir_packet::build::Frame;
use weir_packet::checksum::sum;
use weir_packet::pcap::Capture;
use weir_value::Prefix;

use super::GenerateError;
use super::abi::{FRAME, Flow, MARK, Template, flag};

/// Shortest frame on an Ethernet, without its check sequence.
pub(super) const SHORTEST: usize = 60;
/// Frames of a capture that are kept at most.
pub const CAPTURE_MAX: usize = 65_536;
/// Flows at most.
pub const FLOWS_MAX: u32 = 1 << 20;
const ETHERNET: usize = 14;
/// RFC 2544 appendix C.2.2 and RFC 5180 section 8: addresses for benchmarks.
const BENCHMARK4: [u8; 4] = [198, 18, 0, 0];
const BENCHMARK6: [u16; 2] = [0x2001, 0x2];

/// What frames are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// UDP datagrams.
    #[default]
    Udp,
    /// TCP segments that open a connection, without payload.
    TcpSyn,
    /// Echo requests of ICMP or ICMPv6.
    Icmp,
}

/// Generated traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// What frames are.
    pub protocol: Protocol,
    /// Where sources are taken from, at random.
    pub sources: Prefix,
    /// Where destinations are taken from, at random; of the same family.
    pub destinations: Prefix,
    /// Source ports, or identifiers of ICMP.
    pub source_ports: RangeInclusive<u16>,
    /// Destination ports.
    pub destination_ports: RangeInclusive<u16>,
    /// Different flows.
    pub flows: u32,
    /// Bytes of frames without their check sequence; several are mixed at random, in equal parts. Empty: the shortest that is possible.
    pub sizes: Vec<usize>,
    /// Source and destination of the Ethernet header.
    pub macs: [[u8; 6]; 2],
    /// Seed of all that is random.
    pub seed: u64,
}

impl Traffic {
    /// Shortest UDP datagrams of one flow between addresses that are set aside for benchmarks.
    pub fn new(v6: bool) -> Traffic {
        let [sources, destinations] = benchmark(v6);
        Traffic {
            protocol: Protocol::Udp,
            sources,
            destinations,
            source_ports: 1024..=65_535,
            destination_ports: 9..=9,
            flows: 1,
            sizes: Vec::new(),
            macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
            seed: 1,
        }
    }
}

/// Sources and destinations that are set aside for benchmarks.
pub fn benchmark(v6: bool) -> [Prefix; 2] {
    let four = |second| Prefix::around(Ipv4Addr::new(BENCHMARK4[0], second, 0, 0).into(), 16);
    let six = |net| {
        let [first, second] = BENCHMARK6;
        Prefix::around(Ipv6Addr::new(first, second, 0, net, 0, 0, 0, 0).into(), 64)
    };
    if v6 {
        [six(1), six(2)]
    } else {
        [four(BENCHMARK4[1]), four(BENCHMARK4[1] + 1)]
    }
}

/// How many addresses there are; `u64::MAX` if there are more.
fn size(prefix: &Prefix) -> u64 {
    let free = prefix.width() - prefix.len;
    1u64.checked_shl(free.into()).unwrap_or(u64::MAX)
}

/// An address of a prefix, in network order; IPv4 first.
fn address_of(prefix: &Prefix, random: u128) -> [u8; 16] {
    let address = prefix.first | random & (prefix.last() ^ prefix.first);
    match prefix.is_ip6 {
        true => address.to_be_bytes(),
        false => (address << 96).to_be_bytes(),
    }
}

/// Templates and flows, ready for the generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// At least one.
    pub templates: Vec<Template>,
    /// Empty for a capture.
    pub flows: Vec<Flow>,
    /// Whether frames are a capture's: without marks, in their order.
    pub capture: bool,
    /// Frames of the capture that were left out because they are too long or too short.
    pub left_out: usize,
}

impl Load {
    /// Bytes of the longest frame.
    pub fn longest(&self) -> usize {
        self.templates
            .iter()
            .map(|t| t.len as usize)
            .max()
            .unwrap_or(0)
    }

    /// From what is to be sent.
    ///
    /// # Errors
    /// A size that cannot be, families that differ, more flows than there are.
    pub fn new(traffic: &Traffic) -> Result<Load, GenerateError> {
        let v6 = traffic.sources.is_ip6;
        if v6 != traffic.destinations.is_ip6 {
            let (from, to) = (traffic.sources, traffic.destinations);
            return Err(GenerateError::Traffic(format!(
                "sources {from} and destinations {to} are not of one family"
            )));
        }
        let least = least(traffic.protocol, v6);
        let sizes = match traffic.sizes.as_slice() {
            [] => &[least],
            sizes => sizes,
        };
        if traffic.protocol == Protocol::TcpSyn && sizes != [least] {
            return Err(GenerateError::Traffic(format!(
                "a TCP SYN has no payload: its frames have {least} bytes, leave the size out"
            )));
        }
        if let Some(size) = sizes.iter().find(|size| !(least..=FRAME).contains(*size)) {
            return Err(GenerateError::Traffic(format!(
                "frames of {size} bytes: such frames have {least} to {FRAME} bytes"
            )));
        }
        Ok(Load {
            templates: sizes.iter().map(|size| template(traffic, *size)).collect(),
            flows: flows(traffic)?,
            capture: false,
            left_out: 0,
        })
    }

    /// The frames of a capture, as they are.
    ///
    /// # Errors
    /// It cannot be read, is of a link type that weir does not read, or has none that can be sent.
    pub fn from_capture(input: impl Read) -> Result<Load, GenerateError> {
        let wrong = |e: &dyn fmt::Display| GenerateError::Traffic(e.to_string());
        let mut capture = Capture::open(input).map_err(|e| wrong(&e))?;
        let mut load = Load {
            templates: Vec::new(),
            flows: Vec::new(),
            capture: true,
            left_out: 0,
        };
        while let Some(packet) = capture.next_frame().map_err(|e| wrong(&e))? {
            let whole = packet.data.len() == packet.original_len as usize;
            if !whole || !(ETHERNET..=FRAME).contains(&packet.data.len()) {
                load.left_out += 1;
                continue;
            }
            if load.templates.len() == CAPTURE_MAX {
                return Err(GenerateError::Traffic(format!(
                    "the capture has more than {CAPTURE_MAX} frames: cut it with `editcap -c {CAPTURE_MAX}`"
                )));
            }
            let mut template = Template::empty();
            template.len = packet.data.len() as u32;
            template.flags = flag::RAW;
            template.bytes[..packet.data.len()].copy_from_slice(packet.data);
            load.templates.push(template);
        }
        if load.templates.is_empty() {
            return Err(GenerateError::Traffic(format!(
                "the capture has no frame that can be sent ({} are cut off or longer than {FRAME} bytes)",
                load.left_out
            )));
        }
        Ok(load)
    }
}

/// Bytes of the shortest frame of a protocol.
fn least(protocol: Protocol, v6: bool) -> usize {
    let ip = if v6 { 40 } else { 20 };
    let l4 = match protocol {
        // The only option is the largest segment.
        Protocol::TcpSyn => 24,
        Protocol::Udp | Protocol::Icmp => 8 + MARK,
    };
    (ETHERNET + ip + l4).max(SHORTEST)
}

fn template(traffic: &Traffic, size: usize) -> Template {
    let v6 = traffic.sources.is_ip6;
    let ip = if v6 { 40 } else { 20 };
    let l4 = ETHERNET + ip;
    let base = match v6 {
        false => Frame::new().ip4([0; 4], [0; 4]),
        true => Frame::new().ip6([0; 16], [0; 16]),
    };
    let payload = |header: usize| -> Vec<u8> {
        let len = size - l4 - header;
        let pattern = (0..len).map(|i| if i < MARK { 0 } else { i as u8 });
        pattern.collect()
    };
    let (frame, flags, checksum) = match traffic.protocol {
        Protocol::Udp => (base.udp(0, 0).payload(&payload(8)), flag::UDP, 6),
        Protocol::Icmp if v6 => (
            base.icmp(128, 0).echo(0, 1).payload(&payload(8)),
            flag::ECHO,
            2,
        ),
        Protocol::Icmp => (
            base.icmp(8, 0).echo(0, 1).payload(&payload(8)),
            flag::ECHO | flag::ICMP4,
            2,
        ),
        Protocol::TcpSyn => {
            let syn = base.tcp(0, 0).flags(Frame::SYN).numbers(0, 0);
            (syn.tcp_option(2, &1460u16.to_be_bytes()), flag::TCP, 16)
        }
    };
    let mut bytes = frame.zero_checksum().build();
    let end = bytes.len();
    bytes.resize(size, 0);
    bytes[..6].copy_from_slice(&traffic.macs[1]);
    bytes[6..12].copy_from_slice(&traffic.macs[0]);
    let mut template = Template::empty();
    if !v6 {
        bytes[ETHERNET + 10..ETHERNET + 12].fill(0);
        template.ip_sum = sum(&bytes[ETHERNET..l4]) as u32;
    }
    bytes[l4 + checksum..l4 + checksum + 2].fill(0);
    template.l4_sum = sum(&bytes[l4..end]);
    if flags & flag::ICMP4 == 0 {
        let number = if v6 {
            bytes[ETHERNET + 6]
        } else {
            bytes[ETHERNET + 9]
        };
        template.l4_sum += (end - l4) as u64 + u64::from(number);
    }
    template.len = size as u32;
    template.flags = flags;
    template.family = if v6 { 6 } else { 4 };
    template.bytes[..size].copy_from_slice(&bytes);
    template
}

fn flows(traffic: &Traffic) -> Result<Vec<Flow>, GenerateError> {
    let ports = |range: &RangeInclusive<u16>| range.end().saturating_sub(*range.start()) as u64 + 1;
    for range in [&traffic.source_ports, &traffic.destination_ports] {
        if range.is_empty() {
            return Err(GenerateError::Traffic(format!(
                "ports {}-{}: the first is larger than the last",
                range.start(),
                range.end()
            )));
        }
    }
    let mut there_are = size(&traffic.sources)
        .saturating_mul(size(&traffic.destinations))
        .saturating_mul(ports(&traffic.source_ports));
    if traffic.protocol != Protocol::Icmp {
        there_are = there_are.saturating_mul(ports(&traffic.destination_ports));
    }
    let count = u64::from(traffic.flows);
    if count == 0 || count > there_are.min(FLOWS_MAX.into()) {
        return Err(GenerateError::Traffic(format!(
            "{count} flows: 1 to {} are possible between {} and {} with these ports",
            there_are.min(FLOWS_MAX.into()),
            traffic.sources,
            traffic.destinations
        )));
    }
    let mut random = Random(traffic.seed);
    let mut known = HashSet::new();
    let mut flows = Vec::with_capacity(traffic.flows as usize);
    let wide = |random: &mut Random| u128::from(random.next()) << 64 | u128::from(random.next());
    let pick = |range: &RangeInclusive<u16>, random: &mut Random| {
        let port = *range.start() + (random.next() % ports(range)) as u16;
        port.to_be_bytes()
    };
    while flows.len() < traffic.flows as usize {
        let mut flow = Flow {
            src: address_of(&traffic.sources, wide(&mut random)),
            dst: address_of(&traffic.destinations, wide(&mut random)),
            sport: pick(&traffic.source_ports, &mut random),
            dport: pick(&traffic.destination_ports, &mut random),
            addresses_sum: 0,
        };
        if traffic.protocol == Protocol::Icmp {
            flow.dport = [0; 2];
        }
        flow.addresses_sum = (sum(&flow.src) + sum(&flow.dst)) as u32;
        if known.insert(flow) {
            flows.push(flow);
        }
    }
    Ok(flows)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_read_and_pick() {
        let net: Prefix = "10.1.0.0/16".parse().expect("a prefix");
        assert_eq!(address_of(&net, 0xffff_0203)[..4], [10, 1, 2, 3]);
        assert_eq!(size(&net), 65_536);
        let one: Prefix = "10.1.2.3".parse().expect("an address");
        assert_eq!(
            (address_of(&one, u128::MAX)[..4].to_vec(), size(&one)),
            (vec![10, 1, 2, 3], 1)
        );
        let all: Prefix = "::/0".parse().expect("a prefix");
        assert_eq!((address_of(&all, 7)[15], size(&all)), (7, u64::MAX));
    }

    #[test]
    fn flows_differ_and_keep_to_what_was_asked() {
        let mut traffic = Traffic::new(false);
        traffic.flows = 256;
        traffic.sources = "192.0.2.0/28".parse().expect("a prefix");
        traffic.destinations = "198.51.100.7".parse().expect("an address");
        traffic.source_ports = 1..=16;
        let load = Load::new(&traffic).expect("all there are");
        let different: HashSet<Flow> = load.flows.iter().copied().collect();
        assert_eq!(different.len(), 256);
        assert!(load.flows.iter().all(|f| f.dst[..4] == [198, 51, 100, 7]));
        traffic.flows = 257;
        let error = Load::new(&traffic).expect_err("there are not so many");
        assert_eq!(
            error.to_string(),
            "257 flows: 1 to 256 are possible between 192.0.2.0/28 and 198.51.100.7 with these ports"
        );
    }

    #[test]
    fn sizes_that_cannot_be_are_refused_with_the_range() {
        let mut traffic = Traffic::new(true);
        traffic.sizes = vec![64];
        let error = Load::new(&traffic).expect_err("too small");
        assert_eq!(
            error.to_string(),
            "frames of 64 bytes: such frames have 78 to 2016 bytes"
        );
        traffic.protocol = Protocol::TcpSyn;
        assert!(Load::new(&traffic).is_err());
        traffic.sizes.clear();
        assert_eq!(Load::new(&traffic).expect("planned").longest(), 78);
        traffic.destinations = "10.0.0.0/8".parse().expect("a prefix");
        assert!(
            Load::new(&traffic)
                .expect_err("two families")
                .to_string()
                .contains("one family")
        );
    }
}
