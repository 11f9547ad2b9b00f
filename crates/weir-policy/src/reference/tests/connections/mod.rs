//! Tests of connections, sentence by sentence of docs/semantics.md section 7. Policies are written as text here, because
//! they are about several rules at once. Expected values are written by hand; checksums are computed anew over whole packets.

mod choose;
mod errors;
mod flags;
mod fragments;
mod helpers;
mod life;
mod mapping;
mod nat;
mod numbers;
mod protocols;
mod rules;
mod window;

use weir_packet::Verdict;

use super::*;
use crate::reference::Part;
use crate::{NoFiles, Source, parse as read};

/// A policy at work, with a clock and a count of packets.
#[derive(Clone)]
struct Bench {
    reference: Reference,
    seconds: f64,
    number: u64,
}

impl Bench {
    fn new(text: &str) -> Bench {
        Bench::with(text, Options::default())
    }

    fn with(text: &str, options: Options) -> Bench {
        let parsed =
            read(&Source::new("test.weir", text), &NoFiles).unwrap_or_else(|e| panic!("{e}"));
        Bench {
            reference: Reference::new(parsed.policy, options),
            seconds: 1000.0,
            number: 0,
        }
    }

    /// The next packet, at the time of the clock.
    fn run(&mut self, frame: &[u8]) -> Outcome {
        self.run_at_ns(frame, (self.seconds * 1e9) as u64)
    }

    fn run_at_ns(&mut self, frame: &[u8], now_ns: u64) -> Outcome {
        let number = self.number;
        self.number += 1;
        self.reference.run(Input {
            now_ns,
            number,
            ..Input::new(frame)
        })
    }

    /// What a packet that must pass becomes; its checksums must be right.
    fn pass(&mut self, frame: &[u8]) -> Vec<u8> {
        let outcome = self.run(frame);
        assert_eq!(outcome.verdict, Verdict::Pass, "{:?}", outcome.reasons);
        assert_right(&outcome.frame);
        outcome.frame
    }

    /// Why a packet that must be dropped is.
    fn drop(&mut self, frame: &[u8]) -> Reason {
        let outcome = self.run(frame);
        assert_eq!(outcome.verdict, Verdict::Drop);
        assert_eq!(outcome.frame, frame);
        *outcome
            .reasons
            .last()
            .expect("a dropped packet has a reason")
    }

    /// The draw of the packet that comes next.
    fn draw(&self, id: u32) -> u32 {
        crate::reference::random(0, self.number, id)
    }

    fn wait(&mut self, seconds: f64) {
        self.seconds += seconds;
    }
}

/// An address and a port.
type End = ([u8; 4], u16);

const CLIENT: End = ([10, 0, 0, 1], 4000);
const OTHER_CLIENT: End = ([10, 0, 0, 2], 4000);
const SERVER: End = ([198, 51, 100, 7], 80);
const OUTSIDE: [u8; 4] = [192, 0, 2, 1];
const OUTSIDE6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

fn tcp(from: End, to: End, flags: u8) -> Frame {
    let (sequence, acknowledgement) = numbers(from, flags);
    Frame::new()
        .ip4(from.0, to.0)
        .tcp(from.1, to.1)
        .flags(flags)
        .numbers(sequence, acknowledgement)
}

/// Numbers of a conversation: the server begins at 5000, the client at 1000; neither sends data.
fn numbers(from: End, flags: u8) -> (u32, u32) {
    let (own, other) = if [80, 81, 8080].contains(&from.1) {
        (5000, 1000)
    } else {
        (1000, 5000)
    };
    let sequence = own + u32::from(flags & Frame::SYN == 0);
    let acknowledgement = if flags & Frame::ACK != 0 {
        other + 1
    } else {
        0
    };
    (sequence, acknowledgement)
}

/// What a server answers to a SYN, as it was sent on.
fn answer_to(syn: &[u8]) -> Frame {
    let ((client, server), at) = (ends(syn), 38);
    let sequence = u32::from_be_bytes(syn[at..at + 4].try_into().expect("four bytes"));
    tcp(server, client, Frame::SYN | Frame::ACK).numbers(5000, sequence.wrapping_add(1))
}

fn udp(from: End, to: End) -> Frame {
    Frame::new()
        .ip4(from.0, to.0)
        .udp(from.1, to.1)
        .payload(b"data")
}

fn ping(from: [u8; 4], to: [u8; 4], kind: u8, identifier: u16) -> Frame {
    Frame::new()
        .ip4(from, to)
        .icmp(kind, 0)
        .echo(identifier, 9)
        .payload(b"ping")
}

/// The ends of a TCP or UDP packet over IPv4; of ICMP the port is the identifier.
fn ends(frame: &[u8]) -> (End, End) {
    let layout = parse(frame).expect("well formed");
    let ip = layout.ip.expect("IP").at;
    let address = |at: usize| -> [u8; 4] { frame[at..at + 4].try_into().expect("four bytes") };
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let ports = layout.l4.map_or((0, 0), |l4| match l4.protocol {
        Protocol::Tcp | Protocol::Udp => (word(l4.at), word(l4.at + 2)),
        Protocol::Icmp | Protocol::Icmp6 => (word(l4.at + 4), word(l4.at + 4)),
    });
    ((address(ip + 12), ports.0), (address(ip + 16), ports.1))
}

/// The packet parses (so its IPv4 checksum is right) and its L4 checksum is right, unless it is of a fragment.
fn assert_right(frame: &[u8]) {
    let layout = parse(frame).unwrap_or_else(|e| panic!("{e:?}"));
    if layout.ip.is_some_and(|ip| ip.fragment == Fragment::Whole) {
        assert_eq!(
            checksum_error(frame).unwrap_or(0),
            0,
            "{}",
            weir_packet::summary(frame)
        );
    }
}
