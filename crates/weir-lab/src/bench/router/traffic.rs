//! The packets of the router's benchmark: frames of 64 bytes, UDP over IPv4 or IPv6, to destinations at random.
//!
//! `bpf/baselines/destined.c` sends them; it finds destinations in a map, whose cost is a part of the floor.

use weir_kernel::{KernelObject, LoadedProgram};

use crate::LabError;

/// Bytes of a frame: the paper's minimum.
pub(crate) const FRAME: usize = 64;
/// Link-layer address of the box's entrance.
pub(crate) const BOX_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Where all packets come from.
const SOURCE_V4: [u8; 4] = [10, 254, 0, 2];
const SOURCE_V6: [u8; 16] = [0xfd, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const TTL: u8 = 64;
const XDP_DROP: u32 = 1;
const XDP_TX: u32 = 3;

/// Where packets go: IPv4 addresses or first halves of IPv6 addresses.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    pub(crate) ipv6: bool,
    pub(crate) destinations: Vec<u64>,
}

impl Traffic {
    /// Packets that leave by the interface that the test run names.
    pub(crate) fn generator(&self) -> Result<LoadedProgram, LabError> {
        self.load(XDP_TX)
    }

    /// Packets that are thrown away at once: what generating them costs.
    pub(crate) fn floor(&self) -> Result<LoadedProgram, LabError> {
        self.load(XDP_DROP)
    }

    /// A frame with destination and checksum 0, and the sum of all that the checksum covers.
    fn template(&self) -> ([u8; FRAME], u32) {
        let mut frame = [0u8; FRAME];
        frame[..6].copy_from_slice(&BOX_MAC);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        let udp = if self.ipv6 { 54 } else { 34 };
        let udp_len = (FRAME - udp) as u16;
        if self.ipv6 {
            frame[12..14].copy_from_slice(&0x86ddu16.to_be_bytes());
            frame[14] = 0x60;
            frame[18..20].copy_from_slice(&udp_len.to_be_bytes());
            frame[20..22].copy_from_slice(&[17, TTL]);
            frame[22..38].copy_from_slice(&SOURCE_V6);
            // The second half of every destination.
            frame[53] = 1;
        } else {
            frame[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
            frame[14] = 0x45;
            frame[16..18].copy_from_slice(&((FRAME - 14) as u16).to_be_bytes());
            frame[22..24].copy_from_slice(&[TTL, 17]);
            frame[26..30].copy_from_slice(&SOURCE_V4);
        }
        frame[udp..udp + 2].copy_from_slice(&12345u16.to_be_bytes());
        frame[udp + 2..udp + 4].copy_from_slice(&9u16.to_be_bytes());
        frame[udp + 4..udp + 6].copy_from_slice(&udp_len.to_be_bytes());
        let words = |range: std::ops::Range<usize>| -> u32 {
            let pairs = frame[range].chunks_exact(2);
            pairs
                .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
                .sum()
        };
        // IPv4: its header. IPv6: UDP with its pseudo header. UDP over IPv4 goes without.
        let sum = match self.ipv6 {
            true => words(22..FRAME) + u32::from(udp_len) + 17,
            false => words(14..34),
        };
        (frame, sum)
    }

    fn load(&self, verdict: u32) -> Result<LoadedProgram, LabError> {
        let (frame, sum) = self.template();
        let count = self.destinations.len() as u32;
        let mut object = KernelObject::open(weir_bpf::baseline("destined").unwrap_or_default())?;
        object.set_rodata("weir_frame", &frame)?;
        for (symbol, value) in [
            ("weir_sum", sum),
            ("weir_destinations", count),
            ("weir_ipv6", u32::from(self.ipv6)),
            ("weir_verdict", verdict),
        ] {
            object.set_rodata(symbol, &value.to_ne_bytes())?;
        }
        object.set_map_entries("destinations", count.max(1))?;
        let program = object.load("destined")?;
        let keys: Vec<u8> = (0..count).flat_map(u32::to_ne_bytes).collect();
        let values: Vec<u8> = self
            .destinations
            .iter()
            .flat_map(|d| d.to_ne_bytes())
            .collect();
        program.update_batch("destinations", &keys, &values)?;
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::checksum::{checksum, fold};

    /// What `destined.c` makes of the template.
    fn frame(traffic: &Traffic, destination: u64) -> Vec<u8> {
        let (frame, sum) = traffic.template();
        let mut frame = frame.to_vec();
        let words: u64 = (0..4).map(|n| destination >> (16 * n) & 0xffff).sum();
        let sum = !fold(u64::from(sum) + words);
        let (at, sum_at) = if traffic.ipv6 { (38, 60) } else { (30, 24) };
        let bytes = destination.to_be_bytes();
        let bytes = if traffic.ipv6 {
            &bytes[..]
        } else {
            &bytes[4..]
        };
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    #[test]
    fn packets_are_complete() {
        for (ipv6, destination) in [(false, 0xc633_6407), (true, 0x2001_0db8_ffff_1234)] {
            let traffic = Traffic {
                ipv6,
                destinations: vec![destination],
            };
            let frame = frame(&traffic, destination);
            let said = weir_packet::summary(&frame);
            assert!(!said.contains("malformed"), "{said}");
            match ipv6 {
                false => assert_eq!(checksum(&frame[14..34]), 0),
                true => {
                    let mut pseudo = frame[22..54].to_vec();
                    pseudo.extend([0, 10, 0, 17]);
                    pseudo.extend(&frame[54..]);
                    assert_eq!(checksum(&pseudo), 0);
                }
            }
        }
    }
}
