//! Two namespaces: frames are sent into one end of a veth pair, nftables judges them at the other, and what it lets pass
//! is handed on to a second pair and received.
//!
//! Frames are told apart by a number in their source address, which no chain names (`eth-saddr` is left out). A frame with a number of its own ends each batch:
//! all is sent from one CPU, so when it arrives, nothing that passed is still on its way.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use weir_kernel::bed::{self, End};
use weir_kernel::{FrameSocket, NetNs};

/// What a source address begins with; the number follows.
const MARK: [u8; 2] = [0x02, 0x57];
/// The number of the frame that ends a batch.
const LAST: u32 = u32::MAX;
/// Frames in flight; far below the kernel's backlog of 1,000.
const BATCH: usize = 200;

/// The chains before and behind the policy's.
const FRAME: &str = r#"
table netdev bed {
    chain before {
        type filter hook ingress device "eth0" priority -10; policy accept;
        ether saddr 02:57:ff:ff:ff:ff fwd to "out0"
    }
    chain behind {
        type filter hook ingress device "eth0" priority 10; policy accept;
        fwd to "out0"
    }
}
"#;

/// The test bed.
pub(crate) struct Bed {
    gate: NetNs,
    /// Not used after the sockets are open; it keeps its interfaces.
    _ends: NetNs,
    wire: FrameSocket,
    tap: FrameSocket,
}

impl Bed {
    /// Builds it. Everything goes when it is dropped.
    pub(crate) fn build() -> Bed {
        let ends = NetNs::create("weirn-ends").expect("namespace");
        let gate = NetNs::create("weirn-gate").expect("namespace");
        for ns in [&ends, &gate] {
            // No neighbour discovery between the frames.
            ns.sysctl("net.ipv6.conf.default.disable_ipv6", "1")
                .expect("sysctl");
        }
        let end = |ns, name| End {
            ns,
            name,
            addresses: &[],
        };
        bed::veth(end(&ends, "wire0"), end(&gate, "eth0")).expect("veth");
        bed::veth(end(&gate, "out0"), end(&ends, "tap0")).expect("veth");
        for (ns, name) in [
            (&ends, "wire0"),
            (&ends, "tap0"),
            (&gate, "eth0"),
            (&gate, "out0"),
        ] {
            ns.ip(&["link", "set", name, "mtu", "65000", "arp", "off"])
                .expect("ip link");
        }
        let mut one = rustix::thread::CpuSet::new();
        let here = rustix::thread::sched_getcpu();
        one.set(here);
        rustix::thread::sched_setaffinity(None, &one).expect("sched_setaffinity");
        let patience = Duration::from_secs(5);
        let wire = FrameSocket::open(&ends, "wire0", 1 << 16, patience).expect("socket");
        let tap = FrameSocket::open(&ends, "tap0", 1 << 26, patience).expect("socket");
        Bed {
            gate,
            _ends: ends,
            wire,
            tap,
        }
    }

    /// Replaces the policy by these lines, in one transaction. Everything is written anew, because nft 1.0.6 crashes now and
    /// then when it reads back rules that are there.
    pub(crate) fn load(&self, lines: &[String]) -> Result<(), String> {
        let mut script = format!("flush ruleset\n{FRAME}");
        script.push_str("table netdev rules {\nchain judge {\n");
        script.push_str("type filter hook ingress device \"eth0\" priority 0; policy accept;\n");
        for line in lines {
            script.push_str(line);
            script.push('\n');
        }
        script.push_str("}\n}\n");
        self.nft(&script)
    }

    /// Sends the frames, numbered; which of them passed.
    pub(crate) fn passed(&self, frames: &[Vec<u8>]) -> Vec<bool> {
        let mut passed = vec![false; frames.len()];
        let numbered: Vec<(usize, &Vec<u8>)> = frames.iter().enumerate().collect();
        for batch in numbered.chunks(BATCH) {
            for &(number, frame) in batch {
                self.send(frame, u32::try_from(number).expect("few frames"));
            }
            self.send(&[0; 60], LAST);
            while let Some(number) = self.receive() {
                let slot = passed.get_mut(number).expect("a number that was sent");
                assert!(!*slot, "frame {number} came twice");
                *slot = true;
            }
        }
        passed
    }

    fn send(&self, frame: &[u8], number: u32) {
        let mut frame = frame.to_vec();
        frame[6..8].copy_from_slice(&MARK);
        frame[8..12].copy_from_slice(&number.to_be_bytes());
        self.wire.send(&frame).expect("sent");
    }

    /// The number of the next frame; `None` for the last one.
    fn receive(&self) -> Option<usize> {
        let mut head = [0; 14];
        loop {
            let frame = self.tap.receive(&mut head).expect("received");
            let frame = frame.expect("the frame that ends a batch arrives");
            let (Some(mark), Some(number)) = (frame.get(6..8), frame.get(8..12)) else {
                continue;
            };
            if mark != MARK {
                continue;
            }
            let number = u32::from_be_bytes(number.try_into().expect("four bytes"));
            return (number != LAST).then_some(number as usize);
        }
    }

    fn nft(&self, script: &str) -> Result<(), String> {
        let mut child = (self.gate.command("nft").expect("namespace"))
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nft starts");
        child
            .stdin
            .take()
            .expect("piped")
            .write_all(script.as_bytes())
            .expect("nft reads its script");
        let output = child.wait_with_output().expect("nft ends");
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        Err(format!(
            "nft refuses this script ({}): {words}\n{script}",
            output.status
        ))
    }
}
