//! A sensor that cannot keep up: with `--shed flows` it leaves whole flows out and finds what is in those that it keeps; without, packets are lost at random, and with them what their flows hold.
//!
//! Needs root. All traffic stays in namespaces that the tests make.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_packet::build::Frame;
use weir_xsk::{PacketConfig, PacketPort, Port};

use crate::live_bed::root;
use crate::live_sensor::{Folder, Sensor};
use crate::live_sensor_workers::Bed;

/// An attack is at both ends of a flow: a packet that is missing hides it. The last rule costs most.
const RULES: &str = "alert tcp any any -> any 80 (msg:\"begins\"; flow:established,to_server; content:\"THE-BEGINNING\"; flowbits:set,begun; flowbits:noalert; sid:1;)\n\
alert tcp any any -> any 80 (msg:\"attack\"; flow:established,to_server; flowbits:isset,begun; content:\"THE-END\"; sid:2;)\n\
alert tcp-pkt any any -> any any (msg:\"slow\"; pcre:\"/x[^yz]{150}[yz]/\"; sid:3;)\n";

/// Packets of a flow with data; others open and close it.
const PIECES: usize = 6;
const PACKETS: usize = PIECES + 6;
/// Flows that are open at a time.
const OPEN: usize = 64;

/// The packet of a flow at a step.
fn packet(flow: usize, step: usize) -> Vec<u8> {
    const ACK: u8 = Frame::ACK;
    const LEN: u32 = 1300;
    let [.., a, b, c] = (flow as u32).to_be_bytes();
    let (client, server) = ([10, a, b, c], [192, 0, 2, 1]);
    let to = |flags, seq, ack| {
        let frame = Frame::new().ip4(client, server).tcp(4000, 80);
        frame.flags(flags).numbers(seq, ack)
    };
    let from = |flags, seq, ack| {
        let frame = Frame::new().ip4(server, client).tcp(80, 4000);
        frame.flags(flags).numbers(seq, ack)
    };
    let end = 101 + PIECES as u32 * LEN;
    let data = |piece: usize| {
        let mut bytes = vec![b'x'; LEN as usize];
        if piece == 0 {
            bytes[..13].copy_from_slice(b"THE-BEGINNING");
        }
        if piece + 1 == PIECES {
            bytes[1200..1207].copy_from_slice(b"THE-END");
        }
        to(ACK, 101 + piece as u32 * LEN, 501).payload(&bytes)
    };
    let frame = match step {
        0 => to(Frame::SYN, 100, 0),
        1 => from(Frame::SYN | ACK, 500, 101),
        2 => to(ACK, 101, 501),
        step if step < PIECES + 3 => data(step - 3),
        step if step == PIECES + 3 => to(Frame::FIN | ACK, end, 501),
        step if step == PIECES + 4 => from(Frame::FIN | ACK, 501, end + 1),
        _ => to(ACK, end + 1, 502),
    };
    frame.build()
}

/// Sends so many flows, at so many packets a second; packets a second as it was.
fn send(bed: &Bed, flows: usize, rate: f64) -> f64 {
    bed.tap
        .run(|| {
            let config = PacketConfig {
                blocks: 0,
                slots: 256,
                longest: 1514,
                ..PacketConfig::default()
            };
            let mut out = PacketPort::open("copy0", &config).expect("a socket");
            let since = Instant::now();
            let mut sent = 0;
            for group in (0..flows).step_by(OPEN) {
                for step in 0..PACKETS {
                    for flow in group..flows.min(group + OPEN) {
                        let frame = packet(flow, step);
                        while !out.queue_or_lose(&frame).expect("it fits") {
                            out.flush().expect("sent");
                        }
                        sent += 1;
                    }
                    out.flush().expect("sent");
                    let due = Duration::from_secs_f64(sent as f64 / rate);
                    std::thread::sleep(due.saturating_sub(since.elapsed()));
                }
            }
            while out.flush().expect("sent") > 0 {}
            sent as f64 / since.elapsed().as_secs_f64()
        })
        .expect("namespace")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// A sensor on the port that gets the copy.
fn shedding(bed: &Bed, folder: &Folder, workers: &str, shed: &str) -> Sensor {
    let listen = ["-i", "mirror0", "-k", "none"];
    let args = [&listen[..], &["--shed", shed, "--workers", workers]].concat();
    Sensor::with_rules(&bed.host, folder, RULES, &args)
}

/// Does something while a sensor runs for 10 ms in 100: an overload also where the rules cost little.
fn stopping<T>(sensor: &Sensor, f: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let signal = |signal| kill_process(Pid::from_child(&sensor.0), signal).expect("it runs");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                signal(Signal::STOP);
                std::thread::sleep(Duration::from_millis(90));
                signal(Signal::CONT);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let value = f();
        done.store(true, Ordering::Relaxed);
        value
    })
}

/// Clients with an alert.
fn attacked(folder: &Folder) -> u64 {
    let alerts = folder.records("alert");
    let clients: BTreeSet<String> = alerts.iter().map(|a| a["src_ip"].to_string()).collect();
    clients.len() as u64
}

/// Under an overload that lasts, what is found of what is kept.
#[test]
fn attacks_in_flows_that_are_kept() {
    if !root("attacks_in_flows_that_are_kept") {
        return;
    }
    // How much is lost depends on what else the machine does: the share is asked for in the long form only, which runs alone.
    let is_long = std::env::var_os("WEIR_LONG").is_some();
    let flows = if is_long { 20_000 } else { 10_000 };
    eprintln!(
        "shed   workers offered/s    sent    read ring_full    shed  flows kept attacks share"
    );
    let mut left_out = 0;
    for (workers, shed) in [("1", "none"), ("1", "flows"), ("2", "flows")] {
        let bed = Bed::new();
        let folder = Folder::new(&format!("shed-{workers}-{shed}"));
        let sensor = shedding(&bed, &folder, workers, shed);
        let offered = stopping(&sensor, || send(&bed, flows, 60_000.0));
        let sent = bed.sent();
        let (summary, _) = sensor.stop();
        let capture = &summary["capture"];
        let count = |what: &str| number(&capture[what]);
        let seen = folder.records("flow").len() as u64;
        let kept = match shed {
            "flows" => flows as u64 - count("shed_flows"),
            _ => seen,
        };
        let attacks = attacked(&folder);
        let share = attacks as f64 / kept.max(1) as f64;
        eprintln!(
            "{shed:6} {workers:7} {offered:9.0} {sent:7} {:7} {:9} {:7} {kept:11} {attacks:7} {share:5.3}",
            count("read"),
            count("ring_full"),
            count("shed"),
        );
        let what = format!("{workers} {shed}: {capture}");
        assert_eq!(count("received"), sent, "{what}");
        assert_eq!(capture["unaccounted"], 0, "{what}");
        assert_eq!(summary["ledger"]["unaccounted"], 0, "{what}");
        let counters = &summary["counters"];
        assert_eq!(counters["capture.shed"], capture["shed"], "{what}");
        assert!(count("shed_bytes") >= count("shed") * 54, "{what}");
        match shed {
            "flows" => {
                left_out += count("shed_flows");
                assert!(!is_long || share >= 0.99, "{share}: {what}");
            }
            _ => {
                assert_eq!(count("shed"), 0, "{what}");
            }
        }
    }
    assert!(left_out > 0, "the load was too small");
}

/// Without load nothing is left out, and a flow that was left out is seen again when it begins again.
#[test]
fn nothing_is_left_out_without_load() {
    if !root("nothing_is_left_out_without_load") {
        return;
    }
    const FLOWS: usize = 200;
    for workers in ["1", "2"] {
        let bed = Bed::new();
        let folder = Folder::new(&format!("shed-quiet-{workers}"));
        let sensor = shedding(&bed, &folder, workers, "flows");
        send(&bed, FLOWS, 5_000.0);
        std::thread::sleep(Duration::from_millis(500));
        let (summary, _) = sensor.stop();
        let capture = &summary["capture"];
        assert_eq!(capture["shed"], 0, "{capture}");
        assert_eq!(
            number(&capture["read"]),
            (FLOWS * PACKETS) as u64,
            "{capture}"
        );
        assert_eq!(attacked(&folder), FLOWS as u64, "{summary}");
    }
}
