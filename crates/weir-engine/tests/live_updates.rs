//! Rules that change under traffic on real interfaces: a numbered stream through a thousand changes and some new layouts, of which no
//! packet is lost, seen by two states of the rules, or seen by half of one.
//!
//! Needs root. Every state of the rules is three rules: one writes the number of the state into a place of the payload, one writes it
//! into another place, one accepts what the policy drops. All are replaced at once, so a packet that met half of a change has two different
//! numbers, or one too many, or does not arrive.

#![allow(
    clippy::print_stderr,
    reason = "what was sent is said where the test runs"
)]

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use weir_engine::EngineKind;
use weir_engine::live::{Hook, Live, Options, written};
use weir_functions::middlebox::{Edit, Written};
use weir_kernel::{NetNs, XdpMode, bed};
use weir_policy::{FileSets, Parsed, Source, parse};

const CHANGES: u32 = 1000;
/// Changes between two new layouts.
const LAYOUT: u32 = 20;
/// Places for a state's number; neighbouring states use different ones.
const PLACES: u32 = 4;
const PORT: u16 = 7000;

#[test]
fn no_packet_sees_half_a_change_on_tc() {
    changes_under_traffic("tc", Hook::Tc, "");
}

#[test]
fn no_packet_sees_half_a_change_on_clsact() {
    changes_under_traffic("cls", Hook::Clsact, "");
}

#[test]
fn no_packet_sees_half_a_change_on_xdp() {
    changes_under_traffic("xdp", Hook::Xdp(XdpMode::Native), "");
}

/// The stream is a connection of the state's rules: it ends with them, and the packet that finds it so opens one of the next.
#[test]
fn no_packet_of_a_connection_sees_half_a_change() {
    changes_under_traffic("flow", Hook::Tc, "add-stateful ");
}

fn changes_under_traffic(name: &str, hook: Hook, rules: &str) {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let (near, far) = namespaces(name);
    let done = Arc::new(AtomicBool::new(false));
    let receiver = far
        .run(|| {
            let socket = UdpSocket::bind(("10.77.0.2", PORT)).expect("a socket");
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20)
                .expect("a large buffer");
            socket
                .set_read_timeout(Some(Duration::from_secs(2)))
                .expect("a timeout");
            socket
        })
        .expect("namespace");
    let sender = near
        .run(|| {
            let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket");
            socket.connect(("10.77.0.2", PORT)).expect("a route");
            socket
        })
        .expect("namespace");
    let mut live = far
        .run(|| {
            let policy = format!(
                "ip-proto udp udp-dport {PORT} drop\n{}",
                state_text(rules, 1)
            );
            let options = Options {
                hook: Some(hook),
                egress: false,
                checksums: None,
                vlan_in_frame: false,
            };
            Live::start(&read(&policy), &["wlive".to_owned()], options).expect("runs")
        })
        .expect("namespace");
    let (sent, seen) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| stream(&sender, &done));
        let receiving = scope.spawn(|| collect(&receiver, &done));
        let worst = far.run(|| change(&live, rules)).expect("namespace");
        // What is on its way meets the last state.
        std::thread::sleep(Duration::from_millis(20));
        done.store(true, Ordering::Release);
        let sent = sending.join().expect("sends");
        eprintln!("{name}: {sent} packets, slowest change {worst:?}");
        (sent, receiving.join().expect("receives"))
    });
    let _ = live.logs(Duration::ZERO);
    let report = far.run(|| live.stop()).expect("namespace").expect("stops");
    assert_eq!(seen, sent, "packets are missing");
    assert!(sent > u64::from(CHANGES), "the stream was over too soon");
    assert_eq!(report.packets.drop, 0, "{report:?}");
    assert!(report.packets.received >= sent && report.packets.balanced());
    // The rule of the policy counted all of them, through every layout.
    assert_eq!(report.rules[0].packets, sent);
}

/// Replaces the state again and again. Returns the longest time it took in place.
fn change(live: &Live, rules: &str) -> Duration {
    let mut worst = Duration::ZERO;
    for number in 2..=CHANGES {
        let mut running = live.running().lock().expect("nobody panicked");
        let ids: Vec<u32> = running
            .book()
            .entries()
            .map(|e| e.rule.id)
            .skip(1)
            .collect();
        assert_eq!(ids.len(), 3);
        let began = Instant::now();
        let edits = ids.into_iter().map(Edit::Delete);
        let added = state(rules, number)
            .into_iter()
            .map(|w| Edit::Add(Box::new(w)));
        let edited = running.edit(edits.chain(added).collect()).expect("changes");
        if !edited.rebuilt {
            worst = worst.max(began.elapsed());
        }
        if number % LAYOUT == 0 {
            running.compact().expect("lays out anew");
        }
        drop(running);
        std::thread::sleep(Duration::from_micros(300));
    }
    worst
}

/// Numbered packets until told to stop; returns how many.
fn stream(socket: &UdpSocket, done: &AtomicBool) -> u64 {
    let mut number = 0u64;
    let mut packet = [0u8; 8 + 4 * PLACES as usize];
    while !done.load(Ordering::Acquire) {
        number += 1;
        packet[..8].copy_from_slice(&number.to_be_bytes());
        socket.send(&packet).expect("sends");
        if number.is_multiple_of(16) {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    number
}

/// Judges every packet; returns how many came, each once and in order.
fn collect(socket: &UdpSocket, done: &AtomicBool) -> u64 {
    let (mut seen, mut state) = (0u64, 1);
    let mut packet = [0u8; 2048];
    loop {
        let length = match socket.recv(&mut packet) {
            Ok(length) => length,
            Err(_) if done.load(Ordering::Acquire) => return seen,
            Err(error) => panic!("{error} after {seen} packets"),
        };
        let number = u64::from_be_bytes(packet[..8].try_into().expect("eight bytes"));
        seen += 1;
        assert_eq!(number, seen, "lost or doubled");
        let marks = |at: usize| -> Vec<(usize, u32)> {
            let area = &packet[at..at + 2 * PLACES as usize];
            let words = area
                .chunks(2)
                .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
            words.enumerate().filter(|(_, word)| *word != 0).collect()
        };
        let (first, second) = (marks(8), marks(8 + 2 * PLACES as usize));
        assert_eq!(length, 8 + 4 * PLACES as usize);
        assert_eq!(
            first.len(),
            1,
            "packet {number} met {first:?} and {second:?}"
        );
        assert_eq!(first, second, "packet {number} met half a change");
        let met = first[0].1;
        assert_eq!(first[0].0 as u32, met % PLACES);
        assert!(
            met >= state,
            "packet {number} met state {met} after {state}"
        );
        state = met;
    }
}

fn state_text(rules: &str, number: u32) -> String {
    let at = 8 + 2 * (number % PLACES);
    let then = at + 2 * PLACES;
    format!(
        "{rules}udp-dport {PORT} mod udp-payload[{at}] x{number:04x}\n{rules}udp-dport {PORT} mod udp-payload[{then}] x{number:04x}\n{rules}udp-dport {PORT} accept\n"
    )
}

fn state(rules: &str, number: u32) -> Vec<Written> {
    written(&read(&state_text(rules, number)))
}

fn read(text: &str) -> Parsed {
    match parse(&Source::new("test.weir", text), &FileSets::relative_to(".")) {
        Ok(parsed) => parsed,
        Err(diagnostics) => panic!("{diagnostics}\n{text}"),
    }
}

/// Two namespaces joined by a veth pair.
fn namespaces(name: &str) -> (NetNs, NetNs) {
    let near = NetNs::create(&format!("weir-upd-{name}-1")).expect("namespace");
    let far = NetNs::create(&format!("weir-upd-{name}-2")).expect("namespace");
    let end = |ns, address| bed::End {
        ns,
        name: "wlive",
        addresses: address,
    };
    let ends = [end(&near, &["10.77.0.1/24"]), end(&far, &["10.77.0.2/24"])];
    bed::veth(ends[0], ends[1]).expect("veth");
    (near, far)
}
