//! A router in a namespace with three interfaces: the kernel forwards and filters what is sent into one of them, and what it lets through arrives at another.
//!
//! All is sent from one CPU, so packets come out in their order; a frame for each interface that rules do not see ends a batch.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use weir_kernel::bed::{self, End};
use weir_kernel::{FrameSocket, NetNs};

use crate::packets::{INTERFACES, gate_mac};

/// What ends a batch, by the interface that it leaves by.
const LAST: [u8; 5] = [0x02, 0x57, 0xff, 0xff, 0xff];

/// The router.
pub(crate) struct Router {
    gate: NetNs,
    _ends: NetNs,
    sockets: Vec<FrameSocket>,
}

impl Router {
    pub(crate) fn build() -> Router {
        let ends = NetNs::create("weiri-ends").expect("namespace");
        let gate = NetNs::create("weiri-gate").expect("namespace");
        for ns in [&ends, &gate] {
            ns.sysctl("net.ipv6.conf.default.accept_dad", "0")
                .expect("sysctl");
            ns.sysctl("net.ipv6.conf.default.router_solicitations", "0")
                .expect("sysctl");
        }
        ends.sysctl("net.ipv6.conf.default.disable_ipv6", "1")
            .expect("sysctl");
        for (name, value) in [
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
            ("net.ipv4.conf.all.send_redirects", "0"),
            ("net.ipv4.conf.default.send_redirects", "0"),
        ] {
            gate.sysctl(name, value).expect("sysctl");
        }
        bed::forward(&gate).expect("forwarding");
        for (number, name) in INTERFACES.iter().enumerate() {
            let far = format!("far{number}");
            let end = |ns, name| End {
                ns,
                name,
                addresses: &[],
            };
            bed::veth(end(&gate, name), end(&ends, &far)).expect("veth");
            let mac: Vec<String> = gate_mac(number)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            gate.ip(&["link", "set", name, "address", &mac.join(":"), "arp", "off"])
                .expect("ip link");
            ends.ip(&["link", "set", &far, "arp", "off"])
                .expect("ip link");
        }
        for (interface, networks) in [
            ("wan0", &["0.0.0.0/0", "::/0"][..]),
            (
                "lan0",
                &["192.168.10.0/24", "192.168.20.0/24", "2001:db8:10::/64"],
            ),
            ("dmz0", &["10.20.0.0/24", "2001:db8:20::/64"]),
        ] {
            for network in networks {
                let family = if network.contains(':') { "-6" } else { "-4" };
                gate.ip(&[family, "route", "add", network, "dev", interface])
                    .expect("ip route");
            }
        }
        // No source address of its own: errors are not sent.
        let mut one = rustix::thread::CpuSet::new();
        one.set(rustix::thread::sched_getcpu());
        rustix::thread::sched_setaffinity(None, &one).expect("sched_setaffinity");
        let sockets = (0..INTERFACES.len())
            .map(|number| {
                FrameSocket::open(
                    &ends,
                    &format!("far{number}"),
                    1 << 24,
                    Duration::from_secs(5),
                )
                .expect("socket")
            })
            .collect();
        let router = Router {
            gate,
            _ends: ends,
            sockets,
        };
        router.feed("nft", &["-f", "-"], &router.ends_of_batches());
        for timeout in [
            "udp_timeout",
            "udp_timeout_stream",
            "generic_timeout",
            "icmp_timeout",
            "gre_timeout",
            "tcp_timeout_syn_sent",
        ] {
            let name = format!("net.netfilter.nf_conntrack_{timeout}");
            // What the kernel has not got it does not track by that.
            let _ = router.gate.sysctl(&name, "1000");
        }
        router
    }

    /// In front of everything: the frame that ends a batch leaves by the interface that its address names.
    fn ends_of_batches(&self) -> String {
        let mut script = "table netdev ends {\n".to_owned();
        script.push_str(
            "chain last { type filter hook ingress device \"lan0\" priority -500; policy accept;\n",
        );
        for (number, name) in INTERFACES.iter().enumerate() {
            script.push_str(&format!(
                "ether saddr 02:57:ff:ff:ff:{number:02x} fwd to \"{name}\"\n"
            ));
        }
        script.push_str("}\n}\n");
        // Answers of `reject` do not belong to the batch.
        script.push_str("table inet own {\nchain answers { type filter hook output priority 900; policy drop; }\n}\n");
        script
    }

    /// Runs a program in the router's namespace with this text.
    pub(crate) fn feed(&self, program: &str, arguments: &[&str], text: &str) {
        let mut child = (self.gate.command(program).expect("namespace"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect(program);
        child
            .stdin
            .take()
            .expect("piped")
            .write_all(text.as_bytes())
            .expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {words}\n{text}");
    }

    /// Sends frames into interfaces; which of them came out. Their numbers are their places in the batch, from 1.
    pub(crate) fn passed(&self, frames: &[(usize, Vec<u8>)]) -> Vec<bool> {
        let mut passed = vec![false; frames.len()];
        for (interface, frame) in frames {
            self.sockets[*interface].send(frame).expect("sent");
        }
        for number in 0..INTERFACES.len() {
            let mut frame = vec![0; 60];
            frame[6..11].copy_from_slice(&LAST);
            frame[11] = number as u8;
            frame[12] = 0x88;
            frame[13] = 0xb5;
            self.sockets[1].send(&frame).expect("sent");
        }
        for socket in &self.sockets {
            let mut buffer = [0; 64];
            loop {
                let frame = socket
                    .receive(&mut buffer)
                    .expect("received")
                    .expect("the end of the batch arrives");
                if frame.get(6..11) == Some(&LAST) {
                    break;
                }
                let number = match frame.get(12..14) {
                    Some([0x08, 0]) => frame.get(18..20),
                    Some([0x86, 0xdd]) => frame.get(16..18),
                    _ => None,
                };
                let Some(&[high, low]) = number else {
                    continue;
                };
                let number = usize::from(u16::from_be_bytes([high, low]));
                if let Some(slot) = number.checked_sub(1).and_then(|at| passed.get_mut(at)) {
                    *slot = true;
                }
            }
        }
        passed
    }

    /// Sends frames into `lan0`; what comes back by it.
    pub(crate) fn answers(&self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.through(frames, 1)
    }

    /// Sends frames into `lan0`; what came out of `dmz0`, which rules send them to as they are.
    pub(crate) fn bounced(&self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.through(frames, 2)
    }

    fn through(&self, frames: &[Vec<u8>], number: u8) -> Vec<Vec<u8>> {
        for frame in frames {
            self.sockets[1].send(frame).expect("sent");
        }
        let mut last = vec![0; 60];
        last[6..11].copy_from_slice(&LAST);
        last[11] = number;
        last[12] = 0x88;
        last[13] = 0xb5;
        self.sockets[1].send(&last).expect("sent");
        let mut came = Vec::new();
        let mut buffer = [0; 2048];
        loop {
            let frame = (self.sockets[usize::from(number)]
                .receive(&mut buffer)
                .expect("received"))
            .expect("the end of the batch arrives");
            if frame.get(6..11) == Some(&LAST) {
                return came;
            }
            // Of the router itself, from its link-local address.
            let own = frame.get(12..14) == Some(&[0x86, 0xdd])
                && frame.get(22..24) == Some(&[0xfe, 0x80]);
            if !own {
                came.push(frame.to_vec());
            }
        }
    }
}
