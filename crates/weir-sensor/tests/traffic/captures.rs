//! All captures at hand through decoding, defragmentation, flows and streams: no panic, every account exact, the same streams for any number of workers.

use std::collections::BTreeMap;

use super::common::{Heard, Line, Notes, captures, frames};
use weir_sensor::decode::{self, Decoder, spread};
use weir_sensor::flow::{self, Tracker};
use weir_sensor::stream;

fn line(checksums: bool, streams: stream::StreamConfig) -> Line {
    let decoder = Decoder::new(decode::DecodeConfig {
        checksums,
        ..decode::DecodeConfig::default()
    });
    Line::new(decoder, Tracker::new(flow::FlowConfig::default(), streams))
}

fn check_accounts(line: &Line, what: &str) {
    let counts = line.decoder.counts();
    assert_eq!(
        counts.ip + counts.not_ip + counts.invalid,
        counts.packets,
        "{what}: packets"
    );
    let flows = line.tracker.counts();
    assert_eq!(flows.active, 0, "{what}");
    assert_eq!(
        flows.made,
        flows.timeout + flows.forced + flows.shutdown + flows.reuse,
        "{what}: flows"
    );
    assert_eq!(
        flows.packets + flows.no_flow,
        counts.packets,
        "{what}: packets of flows"
    );
    let ledger = line.tracker.streams().ledger();
    assert_eq!(ledger.settled(), ledger.payload, "{what}: {ledger:?}");
    assert_eq!(ledger.delivered, line.notes.count, "{what}");
    assert_eq!(
        line.tracker.streams().memory().0,
        0,
        "{what}: held bytes after the end"
    );
    assert_eq!(line.tracker.memory(), 0, "{what}");
    assert_eq!(line.defragmenter.memory(), 0, "{what}");
    let f = line.defragmenter.counts();
    assert_eq!(
        f.fragments,
        f.used + f.timeout + f.evicted + f.dropped + f.overlap + f.invalid,
        "{what}: {f:?}"
    );
}

fn finish(line: &mut Line) {
    line.tracker.shutdown(&mut line.notes);
    line.defragmenter.shutdown();
}

#[test]
fn every_account_is_exact_on_every_capture() {
    let Some(paths) = captures() else { return };
    let settings = [
        (true, stream::StreamConfig::default()),
        (
            false,
            stream::StreamConfig {
                midstream: true,
                one_sided: true,
                depth: [0; 2],
                ..stream::StreamConfig::default()
            },
        ),
        (
            false,
            stream::StreamConfig {
                inline: true,
                memory: 100_000,
                depth: [500, 5000],
                ..stream::StreamConfig::default()
            },
        ),
    ];
    let mut sum = stream::Ledger::default();
    let mut packets = 0;
    for path in &paths {
        let frames = frames(path);
        for (i, (checksums, streams)) in settings.iter().enumerate() {
            let mut line = line(*checksums, streams.clone());
            for (link, time, bytes) in &frames {
                line.frame(*link, *time, bytes);
            }
            finish(&mut line);
            check_accounts(&line, &path.display().to_string());
            if i == 0 {
                let l = line.tracker.streams().ledger();
                packets += line.decoder.counts().packets;
                sum.payload += l.payload;
                sum.delivered += l.delivered;
                sum.overlapped += l.overlapped;
                sum.out_of_window += l.out_of_window;
                sum.bad_checksum += l.bad_checksum;
                sum.untracked += l.untracked;
                sum.closed += l.closed;
                sum.over_cap += l.over_cap;
                sum.beyond_depth += l.beyond_depth;
                sum.gap_bytes += l.gap_bytes;
                sum.gaps += l.gaps;
                sum.sessions += l.sessions;
            }
        }
    }
    println!("{} captures, {packets} packets: {sum:?}", paths.len());
}

/// Streams of all flows as a sorted list, without the flows' names: those of several workers are one multiset.
fn streams(notes: &Notes, into: &mut BTreeMap<[Heard; 2], usize>) {
    for heard in notes.streams.values() {
        *into.entry(heard.clone()).or_default() += 1;
    }
}

#[test]
fn workers_change_nothing() {
    let Some(paths) = captures() else { return };
    let step = if std::env::var_os("WEIR_LONG").is_some() {
        1
    } else {
        5
    };
    for path in paths.iter().step_by(step) {
        let frames = frames(path);
        let mut expected = None;
        for workers in [1, 2, 3] {
            let mut lines: Vec<Line> = (0..workers)
                .map(|_| line(false, stream::StreamConfig::default()))
                .collect();
            for (link, time, bytes) in &frames {
                let worker = spread(*link, bytes) as usize % workers;
                lines[worker].frame(*link, *time, bytes);
            }
            let mut found = BTreeMap::new();
            let mut made = 0;
            for line in &mut lines {
                finish(line);
                streams(&line.notes, &mut found);
                made += line.tracker.counts().made;
            }
            let found = (found, made);
            match &expected {
                None => expected = Some(found),
                Some(expected) => assert!(
                    *expected == found,
                    "{} with {workers} workers",
                    path.display()
                ),
            }
        }
    }
}

#[test]
fn spread_is_what_the_decoder_says() {
    let Some(paths) = captures() else { return };
    let mut decoder = Decoder::default();
    for path in paths.iter().step_by(3) {
        for (link, time, bytes) in frames(path) {
            assert_eq!(
                spread(link, &bytes),
                decoder.frame(link, time, 1, &bytes).spread,
                "{}",
                path.display()
            );
        }
    }
}

/// The project's other parser (`weir_packet::parse`, written for filters) finds the same headers in every Ethernet frame that both take.
#[test]
fn another_parser_finds_the_same_headers() {
    let Some(paths) = captures() else { return };
    let mut decoder = Decoder::default();
    let (mut ips, mut transports) = (0, 0);
    for path in &paths {
        for (number, (link, time, bytes)) in frames(path).iter().enumerate() {
            if link.0 != 1 {
                continue;
            }
            let packet = decoder.frame(*link, *time, 1, bytes);
            let (Ok(layout), Some(ip)) = (weir_packet::parse::parse(bytes), &packet.ip) else {
                continue;
            };
            let Some(other) = &layout.ip else { continue };
            let what = format!("{} {}", path.display(), number + 1);
            assert_eq!(
                (ip.header.start, ip.source.is_ipv6()),
                (other.at, other.version == weir_packet::parse::Version::V6),
                "{what}"
            );
            ips += 1;
            let Some(l4) = &layout.l4 else { continue };
            let at = match &packet.transport {
                weir_sensor::packet::Transport::Tcp(tcp) => tcp.header.start,
                weir_sensor::packet::Transport::Udp { header, .. } => *header,
                _ => continue,
            };
            assert_eq!(
                (at, packet.payload.start),
                (l4.at, l4.payload.start),
                "{what}"
            );
            if packet.tcp().is_some() {
                assert_eq!(packet.payload, l4.payload, "{what}");
            }
            transports += 1;
        }
    }
    println!("{ips} IP headers and {transports} TCP and UDP headers are the same");
    assert!(transports > 10_000);
}
