//! Community ID, version 1: a name of a flow that other tools compute in the same way, so that their logs can be joined.

use std::net::IpAddr;

use sha1::{Digest, Sha1};

use super::eve::Head;

/// Of the packet or flow that a record is about; none without addresses.
pub(super) fn id(seed: u16, head: &Head<'_>) -> Option<String> {
    let (source, destination) = head.addresses?;
    let (mut from, mut to) = (octets(source), octets(destination));
    let mut ports = head.ports;
    // Of ICMP, type and what answers it stand for ports; a type without an answer makes the flow one-way, with its code.
    let mut one_way = false;
    if let Some((kind, code)) = head.icmp {
        let answer = if head.protocol == 58 {
            answer6(kind)
        } else {
            answer4(kind)
        };
        one_way = answer.is_none();
        ports = Some((u16::from(kind), answer.map_or(u16::from(code), u16::from)));
    }
    let (mut a, mut b) = ports.unwrap_or_default();
    if !one_way && (&from, a) > (&to, b) {
        std::mem::swap(&mut from, &mut to);
        std::mem::swap(&mut a, &mut b);
    }
    let mut bytes = seed.to_be_bytes().to_vec();
    bytes.extend_from_slice(&from);
    bytes.extend_from_slice(&to);
    bytes.extend_from_slice(&[head.protocol, 0]);
    if ports.is_some() {
        bytes.extend_from_slice(&a.to_be_bytes());
        bytes.extend_from_slice(&b.to_be_bytes());
    }
    let mut text = Vec::from(*b"1:");
    let mut coded = Vec::new();
    super::json::base64(&mut coded, &Sha1::digest(&bytes));
    text.extend_from_slice(&coded[1..coded.len() - 1]);
    String::from_utf8(text).ok()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

fn answer4(kind: u8) -> Option<u8> {
    Some(match kind {
        0 => 8,
        8 => 0,
        9 => 10,
        10 => 9,
        13 => 14,
        14 => 13,
        15 => 16,
        16 => 15,
        17 => 18,
        18 => 17,
        _ => return None,
    })
}

fn answer6(kind: u8) -> Option<u8> {
    Some(match kind {
        128 => 129,
        129 => 128,
        130 => 131,
        131 => 130,
        133 => 134,
        134 => 133,
        135 => 136,
        136 => 135,
        139 => 140,
        140 => 139,
        144 => 145,
        145 => 144,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(
        protocol: u8,
        from: &str,
        to: &str,
        ports: Option<(u16, u16)>,
        icmp: Option<(u8, u8)>,
    ) -> Option<String> {
        seeded(0, protocol, from, to, ports, icmp)
    }

    fn seeded(
        seed: u16,
        protocol: u8,
        from: &str,
        to: &str,
        ports: Option<(u16, u16)>,
        icmp: Option<(u8, u8)>,
    ) -> Option<String> {
        let parse = |a: &str| a.parse().expect("an address");
        id(
            seed,
            &Head {
                time: 0,
                flow: 0,
                number: 0,
                interface: 0,
                vlan: &[],
                addresses: Some((parse(from), parse(to))),
                ports,
                icmp,
                answer: None,
                spi: None,
                parent: 0,
                protocol,
                origin: None,
                marks: None,
                ether: None,
            },
        )
    }

    /// The baseline of the community-id specification, version 1, seed 0.
    #[test]
    fn known_names() {
        let tcp = head(
            6,
            "128.232.110.120",
            "66.35.250.204",
            Some((34855, 80)),
            None,
        );
        assert_eq!(tcp.as_deref(), Some("1:LQU9qZlK+B5F3KDmev6m5PMibrg="));
        let back = head(
            6,
            "66.35.250.204",
            "128.232.110.120",
            Some((80, 34855)),
            None,
        );
        assert_eq!(tcp, back);
        let udp = head(17, "192.168.1.52", "8.8.8.8", Some((54585, 53)), None);
        assert_eq!(udp.as_deref(), Some("1:d/FP5EW3wiY1vCndhwleRRKHowQ="));
    }

    #[test]
    fn a_seed_makes_another_name_the_same_from_both_directions() {
        let (a, b) = ("128.232.110.120", "66.35.250.204");
        let there = seeded(1, 6, a, b, Some((34855, 80)), None);
        assert_eq!(there.as_deref(), Some("1:3V71V58M3Ksw/yuFALMcW0LAHvc="));
        assert_eq!(there, seeded(1, 6, b, a, Some((80, 34855)), None));
    }
}
