//! What a user hands the sensor beside rules: captures, capture filters, configurations.

use weir_packet::build::Frame;
use weir_packet::pcap::Capture;
use weir_sensor::config::SensorConfig;
use weir_sensor::settings::Settings;
use weir_sensor::source::filter::Filter;
use weir_sensor::source::{Framer, Step};

/// What was found in a capture: time, bytes, link type.
type Seen = Vec<(u64, Vec<u8>, u16)>;

/// Finds all packets of a capture of which `piece` more bytes come at a time; and whether it ended with an error.
fn frames(data: &[u8], piece: usize) -> (Seen, bool) {
    let (mut framer, mut seen) = (Framer::new(), Seen::new());
    let (mut at, mut end) = (0, piece.min(data.len()));
    let mut stood = false;
    loop {
        match framer.step(&data[at.min(end)..end]) {
            Ok(Step::Packet {
                start,
                len,
                time,
                link,
                next,
                ..
            }) => {
                assert!(
                    start + len <= next && at + next <= end,
                    "a packet lies in its record"
                );
                seen.push((time, data[at + start..at + start + len].to_vec(), link));
                at += next;
            }
            Ok(Step::Skip(next)) => {
                // Once it stands still: where the format is known from its first bytes.
                assert!(
                    next > 0 || !std::mem::replace(&mut stood, true),
                    "it goes on"
                );
                at += next;
                // What is left out may lie behind what has come.
                end = end.max(at.min(data.len()));
                if at > data.len() {
                    return (seen, false);
                }
            }
            Ok(Step::More(need)) => {
                assert!(at + need > end, "it has what it asks for");
                if end == data.len() {
                    let _ = framer.cut();
                    return (seen, false);
                }
                end = (end + piece).min(data.len());
            }
            Err(_) => return (seen, true),
        }
    }
}

/// Packets of a capture: the same however many bytes come at once, and those that the streaming reader finds.
pub fn framer(data: &[u8]) {
    let whole = frames(data, data.len().max(1));
    for piece in [1, 7, 64] {
        // Bytes one by one are looked at again and again: only of short ones.
        if data.len() <= 4096 || piece == 64 {
            assert_eq!(frames(data, piece), whole, "{piece} bytes at a time");
        }
    }
    // Times are left out: of an interface whose options are damaged, the readers may take its unit of time or not. Tests compare times on whole captures.
    let mut read = Vec::new();
    if let Ok(mut capture) = Capture::open(data) {
        while let Ok(Some(packet)) = capture.next_packet() {
            read.push((packet.data.to_vec(), packet.interface.link_type.0));
        }
        let found: Vec<_> = whole.0.into_iter().map(|(_, b, l)| (b, l)).collect();
        assert_eq!(read, found);
    }
}

/// A capture filter: refused or not, and what it says of a few frames, cut anywhere.
pub fn filter(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(filter) = Filter::parse(text) else {
        return;
    };
    let frames = [
        Frame::new()
            .vlan(7)
            .ip4([10, 0, 0, 1], [192, 0, 2, 9])
            .tcp(40_000, 80)
            .flags(Frame::SYN)
            .payload(b"GET /")
            .build(),
        Frame::new()
            .ip6([1; 16], [2; 16])
            .extension(0, &[0; 6])
            .udp(53, 4_000)
            .payload(&[0; 40])
            .build(),
        Frame::new()
            .ip4([10, 0, 0, 1], [10, 0, 0, 2])
            .fragment(3, true)
            .payload(&[1; 24])
            .build(),
        Frame::new().ether_type(0x0806).payload(&[0; 28]).build(),
    ];
    for frame in &frames {
        for end in [frame.len(), frame.len() / 2, 13, 0] {
            for link in [1, 101, 113, 276] {
                filter.takes(link, &frame[..end], frame.len() as u32);
            }
        }
    }
}

/// A configuration, as YAML or TOML (the first byte decides): refused, or read whole, and the same when it is read again.
pub fn settings(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    let toml = *kind == b't';
    let Ok(mut settings) = Settings::parse(text, toml) else {
        return;
    };
    let config = SensorConfig::from_settings(&settings);
    let again = SensorConfig::from_settings(&settings);
    assert_eq!(format!("{config:?}"), format!("{again:?}"));
    for set in text.lines().take(8) {
        // Lines are no settings, most of them; those that are must not do harm.
        let _ = settings.set(set);
    }
    let _ = SensorConfig::from_settings(&settings);
    let _ = settings.unknown();
}
