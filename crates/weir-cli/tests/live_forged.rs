//! Connections cannot be forged: a real TCP connection through `weir run`, on tc and on XDP, and segments and ICMP errors that
//! somebody else sends in its name. What comes out is compared with what nftables' connection tracking lets out in the same bed.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::live_bed::{self, Bed, Run, look_at, root, stderr, weir};
use crate::live_path::{SERVER, TCP, UDP, ask, connect, octets, serve, settle};
use serde_json::Value;
use weir_kernel::{FrameSocket, pins};
use weir_packet::build::Frame;

const PATIENCE: Duration = Duration::from_secs(5);
const PORTS: [&str; 2] = ["box0", "box1"];
const CLIENT: &str = "10.0.1.2";

/// Who is inside may open connections; from outside come their answers only.
const POLICY: &str =
    "out: add-stateful in box0 net-proto ip4 accept\nrest: in box1 ip-proto tcp drop\n";

/// The same for nftables.
const NFT: &str = "table ip forged {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state invalid drop
        ct state established,related accept
        iifname \"box0\" accept
    }
}";

const FIN: u8 = Frame::FIN;
const SYN: u8 = Frame::SYN;
const RST: u8 = Frame::RST;
const ACK: u8 = Frame::ACK;

/// Far outside of every window of this bed.
const FAR: u32 = 0x4000_0000;

/// Frames from the server's wire, and what comes out at the client.
struct Wire {
    server: FrameSocket,
    client: FrameSocket,
    to_box1: [u8; 6],
}

impl Wire {
    fn open(bed: &Bed) -> Wire {
        let socket = |ns, name| {
            FrameSocket::open(ns, name, 1 << 22, Duration::from_millis(60)).expect("socket")
        };
        Wire {
            server: socket(&bed.server, "sv0"),
            client: socket(&bed.client, "cl0"),
            to_box1: look_at(&bed.middle, "box1").0.mac,
        }
    }

    /// Sends a frame in the server's name; whether it came out at the client.
    fn passes(&self, frame: &[u8]) -> bool {
        drop(drain(&self.client));
        let mut bytes = frame.to_vec();
        bytes[..6].copy_from_slice(&self.to_box1);
        let end = Instant::now() + PATIENCE;
        while let Err(error) = self.server.send(&bytes) {
            assert!(Instant::now() < end, "{error}");
            thread::sleep(Duration::from_micros(50));
        }
        // Routing changes the IPv4 header.
        let l4 = &bytes[34..];
        drain(&self.client)
            .iter()
            .any(|came| came.get(34..34 + l4.len()) == Some(l4))
    }
}

fn drain(wire: &FrameSocket) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 70_000];
    let mut frames = Vec::new();
    while let Some(frame) = wire.receive(&mut buffer).expect("receives") {
        frames.push(frame.to_vec());
    }
    frames
}

/// A connection that is open, and the numbers that come next.
struct Open {
    stream: TcpStream,
    port: u16,
    client_next: u32,
    server_next: u32,
}

impl Open {
    fn new(bed: &Bed, wire: &Wire) -> Open {
        let stream = connect(&bed.client, (SERVER[0], TCP), PATIENCE).expect("connects");
        let port = stream.local_addr().expect("bound").port();
        let mut open = Open {
            stream,
            port,
            client_next: 0,
            server_next: 0,
        };
        open.ask(wire).expect("an answer");
        open
    }

    /// Asks and gets an answer, and takes down the numbers that come next.
    fn ask(&mut self, wire: &Wire) -> io::Result<()> {
        drop(drain(&wire.server));
        ask(&self.stream, b"still there?")?;
        // The last acknowledgement of the client has both numbers; it may be delayed.
        thread::sleep(Duration::from_millis(60));
        let seen = drain(&wire.server);
        let is_from = |frame: &&Vec<u8>| {
            frame.len() >= 54 && frame[23] == 6 && frame[34..36] == self.port.to_be_bytes()
        };
        let last = (seen.iter().rev().find(is_from)).expect("a segment of the client");
        let word = |at: usize| u32::from_be_bytes(last[at..at + 4].try_into().expect("four bytes"));
        let total = u32::from(u16::from_be_bytes([last[16], last[17]]));
        let len = total - 20 - u32::from(last[46] >> 4) * 4;
        self.client_next = word(38).wrapping_add(len);
        self.server_next = word(42);
        Ok(())
    }

    fn segment(&self, flags: u8, ahead: u32, acknowledged: u32) -> Frame {
        let acknowledgement = if flags & ACK == 0 {
            0
        } else {
            self.client_next.wrapping_add(acknowledged)
        };
        Frame::new()
            .ip4(octets(SERVER[0]), octets(CLIENT))
            .tcp(TCP, self.port)
            .flags(flags)
            .numbers(self.server_next.wrapping_add(ahead), acknowledgement)
    }

    /// A port unreachable about a segment of the client.
    fn error(&self, ahead: u32) -> Frame {
        let about = Frame::new()
            .ip4(octets(CLIENT), octets(SERVER[0]))
            .tcp(self.port, TCP)
            .flags(ACK)
            .numbers(self.client_next.wrapping_add(ahead), self.server_next)
            .build();
        // A fragment is needed, and the way on carries 1,400 bytes.
        Frame::new()
            .ip4([10, 0, 2, 250], octets(CLIENT))
            .icmp(3, 4)
            .echo(0, 1400)
            .payload(&about[14..42])
    }

    /// What somebody sends in the server's name, and why it is dropped; `None`: it may pass, and harms nothing.
    fn forged(&self) -> Vec<(&'static str, Frame, Option<&'static str>)> {
        let before = 0u32.wrapping_sub(1);
        let window = Some("tcp_window");
        let flags = Some("tcp_flags");
        vec![
            ("no flags", self.segment(0, 0, 0), flags),
            ("all flags", self.segment(0x3f, 0, 0), flags),
            ("SYN, FIN", self.segment(SYN | FIN, 0, 0), flags),
            ("SYN, RST", self.segment(SYN | RST, 0, 0), flags),
            ("FIN alone", self.segment(FIN, 0, 0), flags),
            ("FIN, PSH, URG", self.segment(0x29, 0, 0), flags),
            ("RST far ahead", self.segment(RST, FAR, 0), window),
            (
                "RST one behind",
                self.segment(RST, before, 0),
                Some("tcp_rst_stale"),
            ),
            (
                "RST, ACK far ahead",
                self.segment(RST | ACK, FAR, 0),
                window,
            ),
            (
                "RST, next number, bad checksum",
                self.segment(RST, 0, 0).wrong_checksum(5),
                Some("tcp_checksum"),
            ),
            ("RST five ahead", self.segment(RST, 5, 0), None),
            ("FIN far ahead", self.segment(FIN | ACK, FAR, 0), window),
            (
                "FIN acknowledges too much",
                self.segment(FIN | ACK, 0, 100_000),
                window,
            ),
            (
                "FIN, next number, bad checksum",
                self.segment(FIN | ACK, 0, 0).wrong_checksum(5),
                Some("tcp_checksum"),
            ),
            (
                "data far ahead",
                self.segment(ACK, FAR, 0).payload(b"forged"),
                window,
            ),
            (
                "data far behind",
                self.segment(ACK, 0u32.wrapping_sub(FAR), 0)
                    .payload(b"forged"),
                window,
            ),
            (
                "data acknowledges too much",
                self.segment(ACK, 0, FAR).payload(b"forged"),
                window,
            ),
            ("SYN", self.segment(SYN, 77, 0), window),
            ("SYN, ACK", self.segment(SYN | ACK, 77, 0), None),
            (
                "error about what was not sent",
                self.error(FAR),
                Some("icmp_window"),
            ),
            (
                "error about what arrived",
                self.error(0u32.wrapping_sub(3)),
                Some("icmp_window"),
            ),
        ]
    }
}

#[test]
fn forged_segments_end_no_connection() {
    if !root("forged_segments_end_no_connection") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let tracked = tracked();
    for hook in ["tc", "xdp"] {
        let bed = Bed::build("weirfg");
        let [peers, _] = serve(&bed.server, TCP, UDP);
        settle(&bed.client);
        drop(peers.take());
        let wire = Wire::open(&bed);
        let run = Run::start(&bed.middle, POLICY, &PORTS, &["--hook", hook]);
        let mut open = Open::new(&bed, &wire);
        let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
        for n in 0..open.forged().len() {
            let (name, frame, reason) = open.forged().swap_remove(n);
            let passed = wire.passes(&frame.build());
            let word = |passed: bool| if passed { "passes" } else { "dropped" };
            let other = tracked.get(n).map_or("not asked", |&passed| word(passed));
            println!(
                "{hook:4} {name:32} weir {:8} nftables {other}",
                word(passed)
            );
            assert_eq!(passed, reason.is_none(), "{hook}: {name}");
            assert!(
                !passed || tracked.get(n) != Some(&false),
                "{hook}: {name}: nftables is stricter"
            );
            if let Some(reason) = reason {
                *expected.entry(reason).or_default() += 1;
            }
            open.ask(&wire)
                .unwrap_or_else(|e| panic!("{hook}: {name}: {e}"));
            assert_eq!(state(&bed, open.port), "tcp-established", "{hook}: {name}");
        }
        // Who has the number can end it.
        assert!(wire.passes(&open.segment(RST, 0, 0).build()));
        assert_eq!(state(&bed, open.port), "tcp-close", "{hook}");
        assert!(ask(&open.stream, b"still there?").is_err());
        let report = run.stop();
        for (reason, count) in expected {
            let counted = report["reasons"][reason].as_u64().unwrap_or(0);
            assert_eq!(counted, count, "{hook}: {reason}: {report}");
        }
    }
}

/// What nftables lets pass of the same, in order; nothing if it is not there.
fn tracked() -> Vec<bool> {
    let bed = Bed::build("weirfn");
    let _served = serve(&bed.server, TCP, UDP);
    settle(&bed.client);
    let rules = live_bed::file("forged.nft", NFT);
    let loaded = bed
        .middle
        .run(|| Command::new("nft").arg("-f").arg(&rules).status());
    if !matches!(loaded, Ok(Ok(status)) if status.success()) {
        weir_testdata::not_run("there is no nftables that keeps connections");
        return Vec::new();
    }
    let wire = Wire::open(&bed);
    let mut passed = Vec::new();
    let mut open = Open::new(&bed, &wire);
    for n in 0..open.forged().len() {
        let (_, frame, _) = open.forged().swap_remove(n);
        passed.push(wire.passes(&frame.build()));
        if open.ask(&wire).is_err() {
            // It did not survive that; the next one is asked of another.
            open = Open::new(&bed, &wire);
        }
    }
    passed
}

/// The state of the client's connection.
fn state(bed: &Bed, port: u16) -> String {
    let port = port.to_string();
    let output = weir(&bed.middle, &["connections", "--json", "--port", &port]);
    assert!(output.status.success(), "{}", stderr(&output));
    let listed: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let state = &listed["connections"][0]["state"];
    state.as_str().unwrap_or("none").to_owned()
}
