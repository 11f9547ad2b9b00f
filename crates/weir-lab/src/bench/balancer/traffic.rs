//! The packets of the balancer's benchmark: frames of 64 bytes, UDP to one service, of one of many clients.
//!
//! `bpf/baselines/callers.c` makes them; client n has the address FIRST + n and a port that follows from n.

use std::net::Ipv4Addr;

use weir_kernel::{KernelObject, LoadedProgram};

use crate::LabError;

/// Bytes of a frame.
pub(crate) const FRAME: usize = 64;
/// Link-layer address of the box's entrance.
pub(crate) const BOX_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The service's address and port.
pub(crate) const SERVICE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const PORT: u16 = 80;
/// The first client.
pub(crate) const FIRST: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 0);
/// Who attacks.
pub(crate) const ATTACKERS: &str = "198.18.0.0/16";
const XDP_DROP: u32 = 1;
const XDP_TX: u32 = 3;

/// Which packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) clients: u32,
    /// One client after the other, not at random.
    pub(crate) in_turn: bool,
    /// So many of 256 packets are an attacker's.
    pub(crate) bad: u32,
}

impl Traffic {
    /// Packets that leave by the interface that the test run names.
    pub(crate) fn generator(self) -> Result<LoadedProgram, LabError> {
        self.load(XDP_TX)
    }

    /// Packets that are thrown away at once: what generating them costs.
    pub(crate) fn floor(self) -> Result<LoadedProgram, LabError> {
        self.load(XDP_DROP)
    }

    fn load(self, verdict: u32) -> Result<LoadedProgram, LabError> {
        let (frame, sum, sum4) = template();
        let mut object = KernelObject::open(weir_bpf::baseline("callers").unwrap_or_default())?;
        object.set_rodata("weir_frame", &frame)?;
        for (symbol, value) in [
            ("weir_sum", sum),
            ("weir_sum4", sum4),
            ("weir_checksum_at", CHECKSUM_AT as u32),
            ("weir_first", FIRST.to_bits()),
            ("weir_clients", self.clients),
            ("weir_in_turn", u32::from(self.in_turn)),
            ("weir_bad", self.bad),
            ("weir_verdict", verdict),
        ] {
            object.set_rodata(symbol, &value.to_ne_bytes())?;
        }
        Ok(object.load("callers")?)
    }
}

/// Of UDP, behind Ethernet and IPv4.
const CHECKSUM_AT: usize = 40;

/// A frame without client and checksums, and the sums of all else that its two checksums cover.
fn template() -> ([u8; FRAME], u32, u32) {
    let mut frame = [0u8; FRAME];
    frame[..6].copy_from_slice(&BOX_MAC);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((FRAME - 14) as u16).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[30..34].copy_from_slice(&SERVICE.octets());
    frame[36..38].copy_from_slice(&PORT.to_be_bytes());
    let length = (FRAME - 34) as u16;
    frame[38..40].copy_from_slice(&length.to_be_bytes());
    let words = |range: std::ops::Range<usize>| -> u32 {
        let pairs = frame[range].chunks_exact(2);
        pairs
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum()
    };
    let (sum, sum4) = (words(14..34), words(30..FRAME) + u32::from(length) + 17);
    (frame, sum, sum4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::checksum::{checksum, fold, pseudo_header4, sum};

    #[test]
    fn packets_are_complete() {
        // What callers.c makes of the template.
        let (mut frame, all, all4) = template();
        for number in [0u32, 1, 59_999] {
            let address = FIRST.to_bits() + number;
            let port = 1024 + (number.wrapping_mul(40_503) & 0x7fff) as u16;
            let more = (address >> 16) + (address & 0xffff);
            frame[26..30].copy_from_slice(&address.to_be_bytes());
            frame[34..36].copy_from_slice(&port.to_be_bytes());
            frame[24..26].copy_from_slice(&(!fold(u64::from(all + more))).to_be_bytes());
            let sum4 = !fold(u64::from(all4 + more + u32::from(port)));
            frame[40..42].copy_from_slice(&sum4.to_be_bytes());
            assert_eq!(checksum(&frame[14..34]), 0);
            let source = Ipv4Addr::from_bits(address).octets();
            let pseudo = pseudo_header4(source, SERVICE.octets(), 17, 30);
            assert_eq!(fold(pseudo + sum(&frame[34..])), 0xffff);
            frame[24..26].fill(0);
            frame[40..42].fill(0);
        }
    }
}
