//! The packets of the XDP benchmarks: frames of 64 bytes, UDP over IPv4 or IPv6, from one source or from many at random.
//!
//! Sources are computed from their numbers as `bpf/baselines/flood.c` computes them. Invariant: number n below `sources` has a prefix of its own,
//! and its source lies in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use weir_kernel::{KernelError, KernelObject, LoadedProgram};

use crate::LabError;

/// Bytes of a frame: the paper's minimum.
pub(crate) const FRAME: usize = 64;
/// Sources that have prefixes of their own.
pub(crate) const MOST_SOURCES: u32 = 1 << 22;
/// Destination of every frame, an address of the box's.
pub(crate) const BOX_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Where every packet goes.
pub(crate) const TARGET_V4: Ipv4Addr = Ipv4Addr::new(10, 255, 1, 2);
/// The same in IPv6.
pub(crate) const TARGET_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 2);
/// The port that nobody listens on.
const PORT: u16 = 9;

const XDP_DROP: u32 = 1;
const XDP_TX: u32 = 3;

/// Which packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) ipv6: bool,
    /// Number of sources, picked at random for each packet.
    pub(crate) sources: u32,
}

/// What generates them, driven by test runs with live frames.
pub(crate) struct Generator {
    pub(crate) program: LoadedProgram,
}

/// How a flood is paced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Packets a second.
    pub(crate) rate: u64,
    /// How long it lasts.
    pub(crate) lasting: Duration,
}

impl Traffic {
    /// Packets that leave by the interface that the test run names.
    pub(crate) fn generator(self) -> Result<Generator, LabError> {
        self.load(XDP_TX)
    }

    /// Packets that are thrown away at once: what generating them costs.
    pub(crate) fn floor(self) -> Result<Generator, LabError> {
        self.load(XDP_DROP)
    }

    /// Source n.
    pub(crate) fn source(self, n: u32) -> IpAddr {
        let spread = n.wrapping_mul(0x9e37_79b1) & (MOST_SOURCES - 1);
        if self.ipv6 {
            let low = ((spread >> 16) << 10) as u16;
            Ipv6Addr::new(0x2001, spread as u16, low, 0, 0, 0, 0, 0).into()
        } else {
            Ipv4Addr::from_bits(0x0100_0000 + (spread << 8)).into()
        }
    }

    /// The prefix that stands for source n: mostly /24 (/48), some single hosts (/64), some between, as in lists that people publish.
    pub(crate) fn prefix(self, n: u32) -> (IpAddr, u8) {
        let bits = match (self.ipv6, n.wrapping_mul(7) % 16) {
            (false, 0..10) => 24,
            (false, 10..13) => 32,
            (false, k) => 24 + 2 * (k as u8 - 12),
            (true, 0..10) => 48,
            (true, 10..13) => 64,
            (true, k) => 40 + 4 * (k as u8 - 12),
        };
        (self.source(n), bits)
    }

    /// All prefixes, a line each.
    pub(crate) fn prefixes(self) -> impl Iterator<Item = String> {
        (0..self.sources).map(move |n| {
            let (address, bits) = self.prefix(n);
            format!("{address}/{bits}")
        })
    }

    /// A frame with source and checksum 0, and the sum of all that the checksum covers.
    fn template(self) -> ([u8; FRAME], u32) {
        let mut frame = [0u8; FRAME];
        frame[..6].copy_from_slice(&BOX_MAC);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        let udp = if self.ipv6 { 54 } else { 34 };
        let udp_len = (FRAME - udp) as u16;
        if self.ipv6 {
            frame[12..14].copy_from_slice(&0x86ddu16.to_be_bytes());
            frame[14] = 0x60;
            frame[18..20].copy_from_slice(&udp_len.to_be_bytes());
            frame[20..22].copy_from_slice(&[17, 64]);
            frame[38..54].copy_from_slice(&TARGET_V6.octets());
        } else {
            frame[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
            frame[14] = 0x45;
            frame[16..18].copy_from_slice(&((FRAME - 14) as u16).to_be_bytes());
            frame[22..24].copy_from_slice(&[64, 17]);
            frame[30..34].copy_from_slice(&TARGET_V4.octets());
        }
        frame[udp..udp + 2].copy_from_slice(&12345u16.to_be_bytes());
        frame[udp + 2..udp + 4].copy_from_slice(&PORT.to_be_bytes());
        frame[udp + 4..udp + 6].copy_from_slice(&udp_len.to_be_bytes());
        let words = |range: std::ops::Range<usize>| -> u32 {
            let pairs = frame[range].chunks_exact(2);
            pairs
                .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
                .sum()
        };
        // IPv4: its header. IPv6: UDP with its pseudo header. UDP over IPv4 goes without.
        let sum = match self.ipv6 {
            true => words(38..FRAME) + u32::from(udp_len) + 17,
            false => words(14..34),
        };
        (frame, sum)
    }

    fn load(self, verdict: u32) -> Result<Generator, LabError> {
        let (frame, sum) = self.template();
        let mut object = KernelObject::open(weir_bpf::baseline("flood").unwrap_or_default())?;
        object.set_rodata("weir_frame", &frame)?;
        for (symbol, value) in [
            ("weir_sum", sum),
            ("weir_sources", self.sources),
            ("weir_ipv6", u32::from(self.ipv6)),
            ("weir_verdict", verdict),
        ] {
            object.set_rodata(symbol, &value.to_ne_bytes())?;
        }
        let program = object.load("flood")?;
        Ok(Generator { program })
    }
}

impl Generator {
    /// Sets a pace for the next run; `None`: as fast as it goes, without end.
    pub(crate) fn pace(&self, pace: Option<Pace>) -> Result<(), KernelError> {
        // Frames of 20 us arrive together, as with moderated interrupts: else a receiver is woken for every one of them.
        const TOGETHER: u64 = 50_000;
        let of = |pace: Pace| (pace.rate.max(1), pace.lasting.as_nanos() as u64);
        let (rate, lasting) = pace.map_or((0, 0), of);
        let at_once = (rate / TOGETHER).clamp(1, 64);
        // `struct flood`: rate, lasting, start, sent, credit, random, over, at_once.
        let state = [rate, lasting, 0, 0, 0, 0, 0, at_once];
        let state = state.map(u64::to_ne_bytes).concat();
        self.program.update("floods", &[0; 4], &state, 0)
    }

    /// Packets sent since the pace was set.
    pub(crate) fn sent(&self) -> Result<u64, KernelError> {
        let states = self.program.lookup_percpu("floods", &[0; 4])?;
        let sent = |state: &Vec<u8>| {
            let bytes = state.get(24..32).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        Ok(states.iter().map(sent).sum())
    }

    /// Waits until the first packet was sent since the pace was set, or until `over` says that none will be.
    pub(crate) fn wait_for_start(&self, over: impl Fn() -> bool) -> Result<(), LabError> {
        for _ in 0..2000 {
            if over() || self.sent()? > 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(LabError::Engine("the flood did not begin".to_owned()))
    }

    /// Sends so many packets out of an interface of the current namespace.
    pub(crate) fn send(&self, ifindex: u32, count: u32) -> Result<(), KernelError> {
        self.program.run_live(&[0; FRAME], ifindex, count)
    }

    /// Sends at a pace until its time is over. Says whether it lasted so long.
    pub(crate) fn flood(&self, ifindex: u32, pace: Pace) -> Result<bool, KernelError> {
        // A run that is too early takes at least so long: it looks at the clock.
        const IDLE_NS: u64 = 50;
        self.pace(Some(pace))?;
        let nanos = pace.lasting.as_nanos() as u64;
        let frames = nanos.saturating_mul(pace.rate) / 1_000_000_000;
        let runs = frames + nanos / IDLE_NS;
        self.send(ifindex, u32::try_from(runs).unwrap_or(i32::MAX as u32))?;
        let states = self.program.lookup_percpu("floods", &[0; 4])?;
        Ok(states.iter().any(|s| s.get(48).is_some_and(|b| *b != 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_has_a_prefix_of_its_own() {
        for ipv6 in [false, true] {
            let traffic = Traffic {
                ipv6,
                sources: 5000,
            };
            let mut networks: Vec<u128> = (0..5000)
                .map(|n| {
                    let (address, bits) = traffic.prefix(n);
                    let number = match address {
                        IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
                        IpAddr::V6(a) => a.to_bits(),
                    };
                    assert_eq!(number << bits, 0, "{address}/{bits} has bits behind it");
                    number
                })
                .collect();
            networks.sort_unstable();
            networks.dedup();
            assert_eq!(networks.len(), 5000);
        }
    }

    #[test]
    fn lengths_are_mixed() {
        let traffic = Traffic {
            ipv6: false,
            sources: 1600,
        };
        let of = |bits| (0..1600).filter(|n| traffic.prefix(*n).1 == bits).count();
        assert_eq!(
            (of(24), of(32), of(26), of(28), of(30)),
            (1000, 300, 100, 100, 100)
        );
    }
}
