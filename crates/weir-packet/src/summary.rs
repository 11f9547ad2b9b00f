//! One line about a frame, for people.
//!
//! Close to what `tcpdump -n` prints, without its protocol decoders. A malformed packet is described as far as it
//! was understood, with the reason. Never used for decisions.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::parse::{self, Fragment, Ip, L4, Layout, Protocol, Version, word16};

/// Describes a frame in one line.
pub fn summary(frame: &[u8]) -> String {
    match parse::parse(frame) {
        Ok(layout) => describe(frame, &layout),
        Err(malformed) => {
            let mut line = String::new();
            tags(&mut line, frame, &malformed.partial);
            let _ = write!(
                line,
                "malformed ({}), length {}",
                malformed.reason,
                frame.len()
            );
            line
        }
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the parser found a whole header of that protocol there"
)]
fn describe(frame: &[u8], layout: &Layout) -> String {
    let mut line = String::new();
    tags(&mut line, frame, layout);
    let Some(ip) = &layout.ip else {
        match layout.ether_type {
            0x0806 => line.push_str("ARP"),
            0..=0x05dc => line.push_str("802.3"),
            other => {
                let _ = write!(line, "ethertype 0x{other:04x}");
            }
        }
        let _ = write!(line, ", length {}", frame.len());
        return line;
    };
    line.push_str(if ip.version == Version::V4 {
        "IP "
    } else {
        "IP6 "
    });
    let (source, destination) = addresses(frame, ip);
    let Some(l4) = &layout.l4 else {
        let _ = write!(line, "{source} > {destination}: ");
        fragment(&mut line, frame, ip);
        let _ = write!(line, "proto {}, length {}", ip.protocol, ip.payload.len());
        return line;
    };
    let ports = matches!(l4.protocol, Protocol::Tcp | Protocol::Udp);
    if ports {
        let _ = write!(
            line,
            "{source}.{} > {destination}.{}: ",
            word16(frame, l4.at),
            word16(frame, l4.at + 2)
        );
    } else {
        let _ = write!(line, "{source} > {destination}: ");
    }
    fragment(&mut line, frame, ip);
    match l4.protocol {
        Protocol::Tcp => tcp(&mut line, frame, l4),
        Protocol::Udp => line.push_str("UDP"),
        Protocol::Icmp | Protocol::Icmp6 => {
            let name = if l4.protocol == Protocol::Icmp {
                "ICMP"
            } else {
                "ICMP6"
            };
            let _ = write!(
                line,
                "{name} type {} code {}",
                frame[l4.at],
                frame[l4.at + 1]
            );
        }
    }
    let _ = write!(line, ", length {}", l4.payload.len());
    line
}

fn tags(line: &mut String, frame: &[u8], layout: &Layout) {
    for &at in &layout.tags {
        let tci = word16(frame, at);
        let _ = write!(line, "vlan {}, ", tci & 0xfff);
        if tci >> 12 != 0 {
            let _ = write!(line, "p {}, ", tci >> 13);
        }
    }
}

fn addresses(frame: &[u8], ip: &Ip) -> (String, String) {
    let array = |at: usize| {
        frame
            .get(at..)
            .and_then(|tail| tail.first_chunk::<4>())
            .copied()
            .unwrap_or_default()
    };
    let array6 = |at: usize| {
        frame
            .get(at..)
            .and_then(|tail| tail.first_chunk::<16>())
            .copied()
            .unwrap_or_default()
    };
    match ip.version {
        Version::V4 => (
            Ipv4Addr::from(array(ip.at + 12)).to_string(),
            Ipv4Addr::from(array(ip.at + 16)).to_string(),
        ),
        Version::V6 => (
            Ipv6Addr::from(array6(ip.at + 8)).to_string(),
            Ipv6Addr::from(array6(ip.at + 24)).to_string(),
        ),
    }
}

fn fragment(line: &mut String, frame: &[u8], ip: &Ip) {
    if ip.fragment == Fragment::Whole {
        return;
    }
    let offset = match (ip.version, ip.fragment_header()) {
        (Version::V6, Some(at)) => word16(frame, at + 2) & 0xfff8,
        _ => (word16(frame, ip.at + 6) & 0x1fff) << 3,
    };
    let _ = write!(line, "frag {offset}, ");
}

#[expect(
    clippy::indexing_slicing,
    reason = "the parser found a whole header of that protocol there"
)]
fn tcp(line: &mut String, frame: &[u8], l4: &L4) {
    let flags = frame[l4.at + 13];
    let letters: String = (0..8)
        .filter(|bit| flags & 1 << bit != 0)
        .filter_map(|bit| "FSRP.UEW".chars().nth(bit))
        .collect();
    let word32 = |at: usize| u32::from(word16(frame, at)) << 16 | u32::from(word16(frame, at + 2));
    let _ = write!(
        line,
        "Flags [{}], seq {}",
        if letters.is_empty() { "none" } else { &letters },
        word32(l4.at + 4)
    );
    if flags & 16 != 0 {
        let _ = write!(line, ", ack {}", word32(l4.at + 8));
    }
    let _ = write!(line, ", win {}", word16(frame, l4.at + 14));
    if l4.options.is_empty() {
        return;
    }
    let options: Vec<String> = l4
        .options
        .iter()
        .map(|option| option_text(option.kind, option.value(frame)))
        .collect();
    let _ = write!(line, ", options [{}]", options.join(","));
}

fn option_text(kind: u8, value: &[u8]) -> String {
    let word32 = |at: usize| u32::from(word16(value, at)) << 16 | u32::from(word16(value, at + 2));
    match (kind, value) {
        (2, &[high, low]) => format!("mss {}", u16::from_be_bytes([high, low])),
        (3, &[shift]) => format!("wscale {shift}"),
        (4, []) => "sackOK".to_owned(),
        (5, _) => format!("sack {}", value.len() / 8),
        (8, _) if value.len() == 8 => format!("TS val {} ecr {}", word32(0), word32(4)),
        (30, _) => format!("mptcp {}", value.len()),
        (34, _) => format!("tfo {}", value.len()),
        _ => format!("opt-{kind} {}", value.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Frame;

    #[test]
    fn lines() {
        let ip4 = || Frame::new().ip4([10, 0, 0, 1], [10, 0, 0, 2]);
        for (frame, line) in [
            (
                ip4().vlan(7).udp(53, 1024).payload(b"abc"),
                "vlan 7, IP 10.0.0.1.53 > 10.0.0.2.1024: UDP, length 3",
            ),
            (
                ip4().icmp(8, 0),
                "IP 10.0.0.1 > 10.0.0.2: ICMP type 8 code 0, length 0",
            ),
            (
                ip4().protocol(17).fragment(3, true).payload(b"abcdefgh"),
                "IP 10.0.0.1 > 10.0.0.2: frag 24, proto 17, length 8",
            ),
            (ip4().ttl(0).tcp(1, 2), "malformed (ttl_zero), length 54"),
            (
                Frame::new().ether_type(0x806).payload(&[0; 28]),
                "ARP, length 42",
            ),
            (
                Frame::new().ip6([1; 16], [2; 16]).icmp(135, 0),
                "IP6 101:101:101:101:101:101:101:101 > 202:202:202:202:202:202:202:202: ICMP6 type 135 code 0, length 0",
            ),
        ] {
            assert_eq!(summary(&frame.build()), line);
        }
    }
}
