//! Real and hostile captures of the shared corpora, when they are beside the workspace.

use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};

use weir_packet::Verdict;
use weir_packet::pcap::{Capture, LinkType};

use super::*;
use crate::model::KindSet;

#[test]
fn captured_packets_keep_their_checksums_and_untouched_ones_their_bytes() {
    let mut files = Vec::new();
    for folder in ["pcaps", "zeek-traces"] {
        let Some(folder) = weir_testdata::find(folder) else {
            return;
        };
        collect(&folder, &mut files);
    }
    let mut keep = KindSet::ALL;
    keep.remove(2);
    keep.remove(3);
    let rewriting = policy(vec![
        (
            all(),
            vec![
                Target::SetOption {
                    kind: 2,
                    value: vec![5, 0],
                },
                Target::Strip(keep),
            ],
        ),
        (
            all(),
            vec![
                set("tcp-sport", 8080),
                set_payload("tcp-payload[3]", b"weir"),
            ],
        ),
        (all(), vec![set("udp-dport", 5353)]),
        (
            all(),
            vec![set("ip-daddr", 0xc000_0207), set("ip-dscp", 10)],
        ),
        (
            all(),
            vec![set("ip6-saddr", u128::from_be_bytes(address6(7)))],
        ),
    ]);
    let mut idle = Reference::new(
        policy(vec![(
            vec![is("eth-type", 0x88b5)],
            vec![set("vlan-id", 1)],
        )]),
        offloaded(),
    );
    let (mut packets, mut rewritten) = (0u32, 0u32);
    for path in &files {
        let mut complete = Reference::new(rewriting.clone(), Options::default());
        let mut mixed = Reference::new(rewriting.clone(), offloaded());
        let Ok(mut capture) = std::fs::File::open(path)
            .map_err(Into::into)
            .and_then(|f| Capture::open(BufReader::new(f)))
        else {
            continue;
        };
        while let Ok(Some(packet)) = capture.next_packet() {
            if packet.interface.link_type != LinkType::ETHERNET {
                continue;
            }
            packets += 1;
            let input = Input {
                now_ns: packet.timestamp_ns,
                number: packet.number,
                ..Input::new(packet.data)
            };
            assert_eq!(
                idle.run(input).frame,
                packet.data,
                "{} {}",
                path.display(),
                packet.number
            );
            mixed.run(input);
            let outcome = complete.run(input);
            if outcome.verdict == Verdict::Drop {
                assert_eq!(
                    (outcome.reasons.last(), outcome.matched.len()),
                    (parse(packet.data).err().map(|m| m.reason).as_ref(), 0)
                );
                continue;
            }
            rewritten += u32::from(outcome.frame != packet.data);
            let zero = |frame: &[u8]| {
                parse(frame).is_ok_and(|layout| layout.notes.contains(&Reason::UdpZeroChecksum))
            };
            assert_eq!(zero(&outcome.frame), zero(packet.data));
            if !zero(packet.data) {
                assert_eq!(
                    checksum_error(&outcome.frame),
                    checksum_error(packet.data),
                    "{} {}: {}",
                    path.display(),
                    packet.number,
                    weir_packet::summary(packet.data)
                );
            }
        }
    }
    let _ = writeln!(
        std::io::stderr(),
        "{packets} packets, {rewritten} rewritten"
    );
    assert!(packets > 10_000 && rewritten > 5_000);
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
    files.sort();
}
