//! Captures that are damaged in many ways, with fixed seeds: no panic, no stall, every frame in one counter, and the same results for any number of workers.
//!
//! Damaged are captures made here and, where they are, those of other projects. `WEIR_LONG=1` takes a hundred times as many.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use weir_packet::build::Frame;
use weir_packet::pcap::{Capture, Writer};
use weir_sensor::config::SensorConfig;
use weir_sensor::load::book;
use weir_sensor::matcher;
use weir_sensor::rules::Dialect;
use weir_sensor::settings::Settings;
use weir_sensor::worker::Engine;

use super::bed::{ANSWER, CLIENT, Folder, How, SERVER, Tape, over, web};
use super::hostile::captures;

/// Rules of every kind of buffer and condition that the accuracy suite has.
const RULES: &str = include_str!("../../../../examples/sensor/accuracy.rules");
/// Frames of one capture that are damaged.
const MOST_FRAMES: usize = 2_000;

/// A small generator, so that seeds mean the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

type Frames = Vec<(u64, Vec<u8>)>;

/// Frames of Ethernet of a capture.
fn frames(path: &Path) -> Frames {
    let mut found = Frames::new();
    let Ok(file) = std::fs::File::open(path) else {
        return found;
    };
    let Ok(mut capture) = Capture::open(std::io::BufReader::new(file)) else {
        return found;
    };
    while let Ok(Some(packet)) = capture.next_packet() {
        if packet.interface.link_type.0 == 1 {
            found.push((packet.timestamp_ns, packet.data.to_vec()));
        }
        if found.len() == MOST_FRAMES {
            break;
        }
    }
    found
}

/// Conversations of a few protocols, fragments and tunnels.
fn made() -> Frames {
    let mut tape = Tape::default();
    for n in 0..8 {
        web(
            &mut tape,
            40_000 + n,
            "GET /a/%63/../b?x=y HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n",
            ANSWER,
        );
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n";
        web(
            &mut tape,
            41_000 + n,
            "POST /form HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\nid=7&x=",
            chunked,
        );
    }
    let mail = "220 x\r\n250 y\r\n354 z\r\n250 ok\r\n";
    tape.session((CLIENT, 42_000), (SERVER, 25), &[b"EHLO a\r\nMAIL FROM:<a@b>\r\nDATA\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nx\r\n--b--\r\n.\r\n", mail.as_bytes()]);
    tape.session(
        (CLIENT, 42_001),
        (SERVER, 21),
        &[
            b"USER anonymous\r\nPORT 1,2,3,4,5,6\r\n",
            b"331 ok\r\n200 ok\r\n",
        ],
    );
    tape.session(
        (CLIENT, 42_002),
        (SERVER, 22),
        &[b"SSH-2.0-x\r\n", b"SSH-2.0-y\r\n"],
    );
    let question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x03org\x00\x00\x01\x00\x01";
    tape.push(
        &Frame::new()
            .ip4(CLIENT, SERVER)
            .udp(5_000, 53)
            .payload(question),
    );
    for (at, more) in [(0, true), (3, true), (6, false)] {
        tape.push(
            &Frame::new()
                .ip4(CLIENT, SERVER)
                .id(9)
                .protocol(17)
                .fragment(at, more)
                .payload(&[b'f'; 24]),
        );
        tape.push(
            &Frame::new()
                .ip6([1; 16], [2; 16])
                .fragment(at, more)
                .protocol(17)
                .payload(&[b'f'; 24]),
        );
    }
    let inner = Frame::new()
        .ip4(CLIENT, SERVER)
        .udp(1, 2)
        .payload(b"inside")
        .build();
    tape.push(
        &Frame::new()
            .vlan(4)
            .ip4(SERVER, CLIENT)
            .udp(9, 4_789)
            .payload(&[&[8, 0, 0, 0, 0, 0, 1, 0], &inner[..]].concat()),
    );
    tape.push(
        &Frame::new()
            .ip4(SERVER, CLIENT)
            .protocol(47)
            .payload(&[&[0, 0, 8, 0], &inner[14..]].concat()),
    );
    tape.frames
}

/// Damages some frames: bytes, lengths, order, number, times.
fn damage(frames: &Frames, random: &mut Numbers) -> Frames {
    let mut out = frames.clone();
    for _ in 0..1 + frames.len() / 6 {
        if out.is_empty() {
            break;
        }
        let at = random.below(out.len());
        let other = random.below(out.len());
        let bytes = &mut out[at].1;
        match random.below(12) {
            0 => {
                let end = random.below(bytes.len() + 1);
                bytes.truncate(end);
            }
            1 => out.swap(at, other),
            2 => {
                out.remove(at);
            }
            3 => {
                let copy = out[at].clone();
                out.insert(other, copy);
            }
            4 => {
                // Half of one, half of another.
                let tail = out[other].1.clone();
                let bytes = &mut out[at].1;
                let cut = random.below(bytes.len().min(tail.len()) + 1);
                bytes.truncate(cut);
                bytes.extend_from_slice(&tail[cut..]);
            }
            5 => out[at].0 = random.next() >> 1,
            6 => {
                // A word of a header, as large or as small as it can be.
                let place = random.below(bytes.len().min(60));
                let value = [0, 0xff, 0x7f, 0x80][random.below(4)];
                for byte in bytes.iter_mut().skip(place).take(2) {
                    *byte = value;
                }
            }
            7 => {
                let more = random.below(40);
                bytes.extend(std::iter::repeat_n(0x41, more));
            }
            _ => {
                for _ in 0..1 + random.below(4) {
                    let place = random.below(bytes.len());
                    if let Some(byte) = bytes.get_mut(place) {
                        *byte ^= 1 << random.below(8);
                    }
                }
            }
        }
    }
    out
}

fn file(frames: &Frames) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    for (time, frame) in frames {
        writer
            .write(*time, frame, frame.len() as u32)
            .expect("memory");
    }
    writer.finish().expect("memory")
}

#[test]
fn damaged_captures() {
    let rounds = if std::env::var_os("WEIR_LONG").is_some() {
        100
    } else {
        1
    };
    let mut all = vec![made()];
    for path in weir_testdata::find("").map_or_else(Vec::new, |root| captures(&root)) {
        let found = frames(&path);
        if !found.is_empty() {
            all.push(found);
        }
    }
    let folder = Folder::new();
    let rules = folder.0.join("r.rules");
    std::fs::write(&rules, RULES).expect("written");
    let mut settings = Settings::default();
    // Checksums are wrong after damage: without verification more of it is read. Small caps, so that they are met.
    for set in [
        "stream.checksum-validation=no",
        "stream.midstream=yes",
        "flow.max-flows=2000",
        "stream.reassembly.memcap=1mb",
        "app-layer.memcap=1mb",
        "defrag.memcap=64kb",
        "vars.address-groups.HOME_NET=any",
        "vars.address-groups.EXTERNAL_NET=any",
    ] {
        settings.set(set).expect(set);
    }
    let config = SensorConfig::from_settings(&settings).expect("right");
    let mut book = book(&config, Dialect::Suricata, &[rules]).expect("rules");
    let engine = Arc::new(Engine::new(&config, &mut book, matcher::Engine::Prefilter).0);
    let (mut read, mut alerts, mut runs) = (0, 0, 0);
    let started = Instant::now();
    for round in 0..rounds {
        let mut paths: Vec<PathBuf> = Vec::new();
        for (n, capture) in all.iter().enumerate() {
            let mut random = Numbers(round * 100_003 + n as u64);
            let mut bytes = file(&damage(capture, &mut random));
            // Of some, the file itself is damaged, too, behind its header.
            if n % 4 == 1 && bytes.len() > 100 {
                for _ in 0..3 {
                    let place = 24 + random.below(bytes.len() - 24);
                    bytes[place] ^= 1 << random.below(8);
                }
            }
            let path = folder.0.join(format!("{n}.pcap"));
            std::fs::write(&path, bytes).expect("written");
            paths.push(path);
        }
        let run = |workers| {
            // A stall would be one for ever: the run has a thread of its own, which is waited for.
            let (to, from) = mpsc::channel();
            let (paths, config, engine) = (paths.clone(), config.clone(), Arc::clone(&engine));
            std::thread::spawn(move || {
                let logs = Folder::new();
                let left = over(
                    &paths,
                    &config,
                    engine,
                    &How::rules("").workers(workers),
                    &logs,
                );
                let _ = to.send(left);
            });
            from.recv_timeout(Duration::from_secs(300))
                .unwrap_or_else(|e| {
                    panic!("round {round}, {workers} workers: it panicked or stalled ({e})")
                })
        };
        let one = run(1);
        assert_eq!(
            one.summary.ledger.unaccounted(),
            0,
            "round {round}: {:?}",
            one.summary.ledger
        );
        let three = run(3);
        assert!(
            three.text == one.text,
            "round {round}: three workers write other lines"
        );
        assert_eq!(
            three.summary.counters, one.summary.counters,
            "round {round}"
        );
        read += one.summary.ledger.read;
        alerts += one.summary.alerts;
        runs += 2;
    }
    println!(
        "{} captures, {read} damaged frames, {alerts} alerts, {runs} runs in {:?}",
        all.len(),
        started.elapsed()
    );
    assert!(read > 100);
}
