//! The box between two wires, and frames in and out of both.
//!
//! ```text
//! inside: cl0 ===== box0 :box: box1 ===== sv0 :outside
//! ```
//!
//! The far ends have no addresses: nothing answers but what a script sends. All frames are sent from one CPU, and a packet each way follows
//! each round. Invariant: when these two have arrived, nothing of the round is still under way in the kernel.

use std::time::{Duration, Instant};

use weir_kernel::bed::{self, End};
use weir_kernel::{FrameSocket, NetNs};
use weir_packet::build::Frame;

use super::script::Side;
use crate::LabError;

/// MAC addresses of box0, cl0, box1 and sv0.
const MACS: [[u8; 6]; 4] = [
    [2, 0, 0, 0, 10, 1],
    [2, 0, 0, 0, 10, 2],
    [2, 0, 0, 0, 11, 1],
    [2, 0, 0, 0, 11, 2],
];
/// Receive buffer of each wire.
const ROOM: usize = 1 << 25;
/// How long the packets that end a round may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// A receive call gives up after this; what is late is looked for again.
const BLINK: Duration = Duration::from_millis(1);
/// Who says that a round has ended: inside and outside.
const MARKS: [[u8; 4]; 2] = [[10, 1, 255, 254], [10, 2, 255, 254]];
const MARK_PORTS: [u16; 2] = [61_001, 61_002];
/// Bytes of the largest frame received.
const LARGEST: usize = 1 << 16;

/// A bed.
pub(crate) struct Bed {
    /// Where a device under test runs.
    pub(crate) middle: NetNs,
    _ends: [NetNs; 2],
    wires: [FrameSocket; 2],
    round: u32,
}

impl Bed {
    /// Builds it. Everything goes when it is dropped.
    pub(crate) fn build() -> Result<Bed, LabError> {
        let inside = NetNs::create("weir-fw-in")?;
        let middle = NetNs::create("weir-fw-box")?;
        let outside = NetNs::create("weir-fw-out")?;
        for ns in [&inside, &middle, &outside] {
            ns.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
            ns.sysctl("net.ipv4.conf.default.rp_filter", "0")?;
            ns.sysctl("net.ipv6.conf.default.accept_dad", "0")?;
        }
        for ns in [&inside, &outside] {
            ns.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
            ns.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        }
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&inside, "cl0", &[]),
            end(&middle, "box0", &["10.255.1.1/30", "fd00:255:1::1/64"]),
        )?;
        bed::veth(
            end(&outside, "sv0", &[]),
            end(&middle, "box1", &["10.255.2.1/30", "fd00:255:2::1/64"]),
        )?;
        for (ns, name, mac) in [
            (&middle, "box0", MACS[0]),
            (&inside, "cl0", MACS[1]),
            (&middle, "box1", MACS[2]),
            (&outside, "sv0", MACS[3]),
        ] {
            ns.ip(&["link", "set", name, "address", &text_of(mac)])?;
        }
        for port in ["box0", "box1"] {
            // No segments are joined, and checksums are finished.
            middle.offloads_off(port, &["gro", "tx"])?;
        }
        bed::forward(&middle)?;
        middle.sysctl("net.ipv4.conf.all.send_redirects", "0")?;
        middle.sysctl("net.ipv4.conf.default.send_redirects", "0")?;
        for (port, via, net, mac) in [("box0", 1, 1, MACS[1]), ("box1", 2, 2, MACS[3])] {
            for (via, to) in [
                (format!("10.255.{via}.2"), format!("10.{net}.0.0/16")),
                (format!("fd00:255:{via}::2"), format!("2001:db8:{net}::/48")),
            ] {
                middle.ip(&[
                    "neigh",
                    "add",
                    &via,
                    "lladdr",
                    &text_of(mac),
                    "dev",
                    port,
                    "nud",
                    "permanent",
                ])?;
                middle.ip(&["route", "add", &to, "via", &via, "dev", port])?;
            }
        }
        // Public addresses that nothing was translated for lead nowhere.
        middle.ip(&["route", "add", "blackhole", "198.18.0.0/16"])?;
        let wire = |ns, name| FrameSocket::open(ns, name, ROOM, BLINK);
        let wires = [wire(&inside, "cl0")?, wire(&outside, "sv0")?];
        Ok(Bed {
            middle,
            _ends: [inside, outside],
            wires,
            round: 0,
        })
    }

    /// Sends a frame into the box, whatever its Ethernet addresses are.
    pub(crate) fn send(&self, side: Side, frame: &[u8]) -> Result<(), LabError> {
        let (own, port) = match side {
            Side::Inside => (MACS[1], MACS[0]),
            Side::Outside => (MACS[3], MACS[2]),
        };
        let mut bytes = frame.to_vec();
        bytes[..6].copy_from_slice(&port);
        bytes[6..12].copy_from_slice(&own);
        let end = Instant::now() + PATIENCE;
        loop {
            match self.wire(side).send(&bytes) {
                Ok(()) => return Ok(()),
                // The queue of the device is full for a moment.
                Err(error) if Instant::now() > end => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Everything that came out since the last call: waits until what was sent before is through.
    pub(crate) fn round(&mut self) -> Result<Vec<(Side, Vec<u8>)>, LabError> {
        let mut came = self.quick_round()?;
        // What the box sent of itself meanwhile.
        self.waiting(&mut came)?;
        Ok(came)
    }

    /// The same without a last look: for packets that leave by the side that they did not come in by.
    pub(crate) fn quick_round(&mut self) -> Result<Vec<(Side, Vec<u8>)>, LabError> {
        self.round += 1;
        let text = self.round.to_be_bytes();
        let mark = Frame::new()
            .ip4(MARKS[0], MARKS[1])
            .udp(MARK_PORTS[0], MARK_PORTS[1])
            .payload(&text)
            .build();
        let mut came = Vec::new();
        self.send(Side::Inside, &mark)?;
        let from = self.until_mark(Side::Outside, &text, &mut came)?;
        let answer = Frame::new()
            .ip4(MARKS[1], from.0)
            .udp(MARK_PORTS[1], from.1)
            .payload(&text)
            .build();
        self.send(Side::Outside, &answer)?;
        self.until_mark(Side::Inside, &text, &mut came)?;
        Ok(came)
    }

    /// What came out within a time, until `enough` says so: for devices that hand packets to a process.
    pub(crate) fn late(
        &self,
        limit: Duration,
        mut enough: impl FnMut(&[(Side, Vec<u8>)]) -> bool,
    ) -> Result<Vec<(Side, Vec<u8>)>, LabError> {
        let end = Instant::now() + limit;
        let mut came = Vec::new();
        while !enough(&came) && Instant::now() < end {
            self.waiting(&mut came)?;
        }
        Ok(came)
    }

    fn waiting(&self, came: &mut Vec<(Side, Vec<u8>)>) -> Result<(), LabError> {
        let mut buffer = vec![0; LARGEST];
        for side in [Side::Inside, Side::Outside] {
            while let Some(frame) = self.wire(side).receive(&mut buffer)? {
                came.push((side, frame.to_vec()));
            }
        }
        Ok(())
    }

    /// Takes what comes up to the mark of this round; returns the source of the mark.
    fn until_mark(
        &self,
        side: Side,
        text: &[u8; 4],
        came: &mut Vec<(Side, Vec<u8>)>,
    ) -> Result<([u8; 4], u16), LabError> {
        let mut buffer = vec![0; LARGEST];
        let end = Instant::now() + PATIENCE;
        loop {
            let Some(frame) = self.wire(side).receive(&mut buffer)? else {
                if Instant::now() > end {
                    return Err(LabError::Child {
                        what: "the bed".to_owned(),
                        why: format!("no packet passes the box towards {side:?}"),
                    });
                }
                continue;
            };
            // Its destination is the host of the mark, whatever it was translated to.
            let is_mark = frame.get(23) == Some(&17)
                && frame.get(42..46) == Some(text)
                && matches!(frame.get(30..34), Some([10, 1 | 2, 255, 254]));
            if !is_mark {
                came.push((side, frame.to_vec()));
                continue;
            }
            let address = [frame[26], frame[27], frame[28], frame[29]];
            return Ok((address, u16::from_be_bytes([frame[34], frame[35]])));
        }
    }

    fn wire(&self, side: Side) -> &FrameSocket {
        match side {
            Side::Inside => &self.wires[0],
            Side::Outside => &self.wires[1],
        }
    }
}

/// Stays on one CPU, so that what is sent arrives in order.
pub(crate) fn pin() -> Result<(), LabError> {
    let mut one = rustix::thread::CpuSet::new();
    one.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &one)
        .map_err(|e| LabError::io("stay on one CPU")(e.into()))
}

fn text_of(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
