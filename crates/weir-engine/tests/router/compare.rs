//! What came of a packet on one side and on the other: the same frames by the same ports, byte for byte but for what is named here.
//!
//! Masked: the IPv4 identification of packets that the router itself made (and so their header checksum, which must be right), that of their IPv6
//! fragments, and bytes
//! behind the IP packet, which mean nothing: the kernel cuts them off.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use weir_packet::checksum::checksum;

use super::bed::{Passed, Seen};
use super::packets::Packet;
use super::world::World;

/// Next header of a fragment.
const FRAGMENT: u8 = 44;

/// A packet of which different things came.
#[derive(Debug)]
pub(crate) struct Difference {
    /// Its place in the batch; `None`: of packets that cannot be told.
    pub(crate) packet: Option<usize>,
    pub(crate) expected: Vec<Seen>,
    pub(crate) found: Vec<Seen>,
}

/// All packets of which different things came.
pub(crate) fn differences(world: &World, expected: &Passed, found: &Passed) -> Vec<Difference> {
    let mut all = Vec::new();
    for (packet, (a, b)) in expected.seen.iter().zip(&found.seen).enumerate() {
        let (a, b) = (masked(world, a), masked(world, b));
        if a != b {
            all.push(Difference {
                packet: Some(packet),
                expected: a,
                found: b,
            });
        }
    }
    let (a, b) = (strays(world, expected), strays(world, found));
    if a != b {
        all.push(Difference {
            packet: None,
            expected: a,
            found: b,
        });
    }
    all
}

/// What came out and belongs to no packet, without the router's own questions: those come when they come.
fn strays(world: &World, passed: &Passed) -> Vec<Seen> {
    let is_question = |frame: &[u8]| match frame.get(12..14) {
        Some([8, 6]) => true,
        Some([0x86, 0xdd]) => match frame.get(20) {
            // Reports of groups have an option for routers in front.
            Some(0) => frame.get(62) == Some(&143),
            Some(58) => matches!(frame.get(54), Some(133..=137)),
            _ => false,
        },
        _ => false,
    };
    let mut all = masked(world, &passed.others);
    all.retain(|seen| !is_question(&seen.frame));
    all
}

/// What the far ends see of a packet, in words: for counting what a run went through.
pub(crate) fn outcome(world: &World, packet: &Packet, seen: &[Seen]) -> String {
    let Some(first) = seen.first() else {
        return "nothing".to_owned();
    };
    let frame = &first.frame;
    let (ip, v6) = match frame.get(12..14) {
        Some([8, 0]) => (&frame[14..], false),
        Some([0x86, 0xdd]) => (&frame[14..], true),
        _ => return "something else".to_owned(),
    };
    let l4 = match v6 {
        true => ip.get(40..),
        false => ip.get(usize::from(ip[0] & 15) * 4..),
    };
    let protocol = ip[if v6 { 6 } else { 9 }];
    let own = match v6 {
        true => {
            let source: [u8; 16] = ip[8..24].try_into().expect("16 bytes");
            world.is_own(Ipv6Addr::from(source).into())
        }
        false => world.is_own(Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]).into()),
    };
    let family = if v6 { "IPv6" } else { "IPv4" };
    match (own, protocol, l4) {
        (true, 1 | 58, Some([kind, code, ..])) => format!("{family} ICMP {kind}/{code}"),
        (true, 6, _) => format!("{family} reset"),
        _ if seen.len() > 1 => format!("{family} in {} pieces", seen.len()),
        _ if first.port == packet.port => format!("{family} back by its port"),
        _ => format!("{family} forwarded"),
    }
}

fn masked(world: &World, seen: &[Seen]) -> Vec<Seen> {
    let mut all: Vec<Seen> = seen
        .iter()
        .map(|one| Seen {
            port: one.port,
            frame: mask(world, &one.frame),
        })
        .collect();
    all.sort();
    all
}

fn mask(world: &World, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    match frame.get(12..14) {
        Some([8, 0]) if frame.len() >= 34 => {
            let total = u16::from_be_bytes([frame[16], frame[17]]);
            frame.truncate((14 + usize::from(total)).max(34));
            let header = 14 + usize::from(frame[14] & 15) * 4;
            let source = Ipv4Addr::new(frame[26], frame[27], frame[28], frame[29]);
            let right = frame.get(14..header).is_some_and(|h| checksum(h) == 0);
            if right && world.is_own(source.into()) {
                frame[18..20].fill(0);
                frame[24..26].fill(0);
            }
        }
        Some([0x86, 0xdd]) if frame.len() >= 54 => {
            let length = u16::from_be_bytes([frame[18], frame[19]]);
            frame.truncate(54 + usize::from(length));
            let source: [u8; 16] = frame[22..38].try_into().expect("16 bytes");
            if frame[20] == FRAGMENT
                && frame.len() >= 62
                && world.is_own(Ipv6Addr::from(source).into())
            {
                frame[58..62].fill(0);
            }
        }
        _ => {}
    }
    frame
}

/// A difference with all that is known about it, for messages.
pub(crate) fn told(packets: &[Packet], difference: &Difference) -> String {
    let frames = |seen: &[Seen]| -> String {
        if seen.is_empty() {
            return "  nothing\n".to_owned();
        }
        seen.iter()
            .map(|s| {
                format!(
                    "  by port {}: {}\n    {}\n",
                    s.port,
                    weir_packet::summary(&s.frame),
                    hex(&s.frame)
                )
            })
            .collect()
    };
    let packet = match difference.packet {
        None => "of no packet".to_owned(),
        Some(at) => {
            let packet = &packets[at];
            format!(
                "packet {} by port {} ({}): {}\n    {}",
                at + 1,
                packet.port,
                packet.what,
                weir_packet::summary(&packet.frame),
                hex(&packet.frame)
            )
        }
    };
    let (expected, found) = (frames(&difference.expected), frames(&difference.found));
    format!("{packet}\nexpected:\n{expected}found:\n{found}")
}

/// The first bytes.
fn hex(bytes: &[u8]) -> String {
    let shown: Vec<String> = bytes.iter().take(110).map(|b| format!("{b:02x}")).collect();
    let more = if bytes.len() > 110 { "..." } else { "" };
    format!("{} bytes {}{more}", bytes.len(), shown.concat())
}

/// What packets came to, counted.
pub(crate) fn count(
    into: &mut BTreeMap<String, usize>,
    world: &World,
    packets: &[Packet],
    passed: &Passed,
) {
    for (packet, seen) in packets.iter().zip(&passed.seen) {
        *into.entry(outcome(world, packet, seen)).or_default() += 1;
    }
}
