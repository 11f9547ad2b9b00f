//! Section 4, TCP options: strip, add, modify, in place or anew, and every reason to leave them alone.

use weir_packet::Verdict;

use super::*;
use crate::model::KindSet;

const MSS: [u8; 4] = [2, 4, 5, 180];
const WSCALE: [u8; 3] = [3, 3, 7];
const SACK: [u8; 2] = [4, 2];
const TIME: [u8; 10] = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2];

fn strip(kinds: &[u8]) -> Target {
    let mut set = KindSet::EMPTY;
    kinds.iter().for_each(|&kind| set.insert(kind));
    Target::Strip(set)
}

fn keep(kinds: &[u8]) -> Target {
    let mut set = KindSet::ALL;
    kinds.iter().for_each(|&kind| set.remove(kind));
    Target::Strip(set)
}

fn add(kind: u8, value: &[u8]) -> Target {
    Target::AddOption {
        kind,
        value: value.to_vec(),
    }
}

fn modify(kind: u8, value: &[u8]) -> Target {
    Target::SetOption {
        kind,
        value: value.to_vec(),
    }
}

fn syn(options: &[&[u8]]) -> Frame {
    ip4()
        .tcp(1, 2)
        .flags(Frame::SYN)
        .tcp_bytes(&options.concat())
}

/// The options a SYN ends with; the rest of the frame must be that of a SYN built with them, checksums included.
fn ends(from: &[&[u8]], targets: Vec<Target>, to: &[&[u8]]) {
    for (name, base) in [("IPv4", ip4()), ("IPv6", ip6().extension(60, &[]))] {
        for payload in [&b""[..], b"odd"] {
            let frame = |options: &[&[u8]]| {
                base.clone()
                    .tcp(1, 2)
                    .tcp_bytes(&options.concat())
                    .payload(payload)
                    .trailer(b"tt")
                    .build()
            };
            let outcome = run(&frame(from), targets.clone());
            assert_eq!(notes(&outcome), ["trailer"], "{name} {targets:?}");
            assert_eq!(outcome.frame, frame(to), "{name} {targets:?}");
        }
    }
}

#[test]
fn options_are_stripped_added_and_modified() {
    let all: [&[u8]; 5] = [&MSS, &SACK, &TIME, &[1], &WSCALE];
    ends(&all, vec![strip(&[8])], &[&MSS, &SACK, &WSCALE, &[0, 0, 0]]);
    ends(&all, vec![strip(&[2, 4, 8, 3])], &[]);
    ends(&all, vec![Target::Strip(KindSet::ALL)], &[]);
    ends(&all, vec![keep(&[2, 3])], &[&MSS, &WSCALE, &[0]]);
    ends(&all, vec![keep(&[200])], &[]);
    ends(
        &all,
        vec![modify(2, &[2, 0])],
        &[&[2, 4, 2, 0], &SACK, &TIME, &[1], &WSCALE],
    );
    ends(
        &all,
        vec![modify(3, &[9, 9])],
        &[&MSS, &SACK, &TIME, &[3, 4, 9, 9]],
    );
    ends(&all, vec![modify(253, &[1])], &all);
    ends(
        &all,
        vec![add(253, b"abc")],
        &[&MSS, &SACK, &TIME, &WSCALE, &[253, 5, b'a', b'b', b'c']],
    );
    ends(&[], vec![add(2, &[5, 180])], &[&MSS]);
    ends(&[&MSS], vec![add(4, &[])], &[&MSS, &SACK, &[0, 0]]);
}

#[test]
fn a_list_that_ends_as_it_began_keeps_its_bytes() {
    let odd: [&[u8]; 5] = [&[1], &MSS, &[1, 1], &SACK, &[0, 9, 9]];
    ends(&odd, vec![strip(&[8])], &odd);
    ends(&odd, vec![strip(&[4]), add(4, &[])], &odd);
    ends(&odd, vec![modify(2, &[1, 1]), modify(2, &[5, 180])], &odd);
    ends(&odd, vec![add(30, &[0; 3]), strip(&[30])], &odd);
    // Another order is another list.
    ends(
        &odd,
        vec![strip(&[2]), add(2, &[5, 180])],
        &[&SACK, &MSS, &[0, 0]],
    );
}

#[test]
fn values_of_the_same_length_are_written_in_place() {
    let from: [&[u8]; 4] = [&[1, 1], &TIME, &MSS, &[0, 77, 88, 99]];
    let mut time = TIME;
    time[2..].copy_from_slice(b"ABCDEFGH");
    ends(
        &from,
        vec![modify(8, b"ABCDEFGH")],
        &[&[1, 1], &time, &MSS, &[0, 77, 88, 99]],
    );
    // At odd offsets the checksum follows, too.
    ends(
        &[&[1], &MSS, &WSCALE],
        vec![modify(2, &[9, 8]), modify(3, &[6])],
        &[&[1], &[2, 4, 9, 8], &[3, 3, 6]],
    );
}

#[test]
fn duplicates_are_changed_and_stripped_together() {
    let twice: [&[u8]; 3] = [&WSCALE, &MSS, &[3, 3, 9]];
    ends(
        &twice,
        vec![modify(3, &[5])],
        &[&[3, 3, 5], &MSS, &[3, 3, 5]],
    );
    ends(&twice, vec![strip(&[3])], &[&MSS]);
    ends(
        &twice,
        vec![add(3, &[1]), modify(3, &[2])],
        &[&[3, 3, 2], &MSS, &[3, 3, 2], &[3, 3, 2], &[0, 0, 0]],
    );
}

#[test]
fn forty_bytes_are_all_there_is() {
    let brim = [&[253u8, 36][..], &[7; 34]].concat();
    let frame = syn(&[&brim, &SACK]).build();
    // 38 bytes are taken: 2 fit, 3 do not.
    let outcome = run(&frame, vec![add(3, &[1]), add(30, &[]), add(30, &[])]);
    assert_eq!(notes(&outcome), ["no_room", "no_room"]);
    assert_eq!(outcome.frame, syn(&[&brim, &SACK, &[30, 2]]).build());
    let outcome = run(&frame, vec![modify(253, &[7; 37]), modify(253, &[8; 36])]);
    assert_eq!(notes(&outcome), ["no_room"]);
    assert_eq!(outcome.frame, syn(&[&[253, 38], &[8; 36], &SACK]).build());

    // A mod that does not fit for all duplicates is left out whole.
    let five: Vec<&[u8]> = vec![&[253, 8, 0, 0, 0, 0, 0, 0]; 5];
    let outcome = run(&syn(&five).build(), vec![modify(253, &[1; 7])]);
    assert_eq!(
        (notes(&outcome), outcome.frame),
        (vec!["no_room"], syn(&five).build())
    );
    // NOPs do not count.
    let nops: [&[u8]; 2] = [&[1; 36], &MSS];
    let outcome = run(&syn(&nops).build(), vec![add(253, &[9; 34])]);
    assert_eq!(outcome.frame, syn(&[&MSS, &[253, 36], &[9; 34]]).build());
}

#[test]
fn fragments_are_never_resized() {
    let frame = |options: &[&[u8]]| {
        ip4()
            .fragment(0, true)
            .tcp(1, 2)
            .tcp_bytes(&options.concat())
            .payload(&[0; 8])
            .build()
    };
    let from: [&[u8]; 3] = [&MSS, &[1], &WSCALE];
    let outcome = run(&frame(&from), vec![strip(&[3]), set("tcp-dport", 9)]);
    assert_eq!(notes(&outcome), ["frag_resize"]);
    assert_eq!(tcp_options(&outcome.frame), from.concat());
    assert_eq!(outcome.frame[37], 9);
    // No length changes, but the options would be written anew.
    let outcome = run(&frame(&from), vec![modify(3, &[7, 7])]);
    assert_eq!(notes(&outcome), ["frag_resize"]);
    assert_eq!(outcome.frame, frame(&from));
    // Values in place are written.
    let outcome = run(&frame(&from), vec![modify(2, &[1, 2])]);
    assert!(outcome.reasons.is_empty());
    assert_eq!(outcome.frame, frame(&[&[2, 4, 1, 2], &[1], &WSCALE]));
    // Nothing changes, nothing is noted.
    assert!(run(&frame(&from), vec![strip(&[8])]).reasons.is_empty());
}

#[test]
fn packets_do_not_grow_past_the_mtu_or_the_protocol() {
    let frame = syn(&[&MSS]).payload(b"abcd").build();
    let length = frame.len() as u32 - 14;
    for (mtu, fits) in [
        (length + 4, true),
        (length + 3, false),
        (100, true),
        (0, false),
    ] {
        let outcome = run_with(
            &frame,
            vec![add(3, &[7])],
            Options {
                mtu,
                ..Options::default()
            },
        );
        assert_eq!(notes(&outcome).is_empty(), fits, "{mtu}");
        assert_eq!(outcome.frame.len(), frame.len() + if fits { 4 } else { 0 });
        if !fits {
            assert_eq!((notes(&outcome), &outcome.frame), (vec!["too_big"], &frame));
        }
    }
    // Shrinking is always allowed.
    let outcome = run_with(
        &frame,
        vec![strip(&[2])],
        Options {
            mtu: 0,
            ..Options::default()
        },
    );
    assert!(outcome.reasons.is_empty());
    assert_eq!(outcome.frame.len(), frame.len() - 4);

    for (base, header) in [(ip4(), 40), (ip6(), 20)] {
        let full = base
            .clone()
            .tcp(1, 2)
            .payload(&vec![0; 65_535 - header])
            .build();
        if full.len() <= weir_packet::parse::MAX_FRAME {
            assert_eq!(notes(&run(&full, vec![add(3, &[7])])), ["too_big"]);
        }
        let almost = base
            .tcp(1, 2)
            .payload(&vec![0; 65_535 - header - 44])
            .build();
        assert!(run(&almost, vec![add(3, &[7])]).reasons.is_empty());
    }
}

#[test]
fn lengths_and_offset_are_those_received_plus_the_change() {
    let frame = syn(&[&MSS]).build();
    let outcome = run(
        &frame,
        vec![set("ip-len", 999), set("tcp-offset", 15), strip(&[2])],
    );
    assert_eq!(outcome.frame, syn(&[]).build());
    // Without a change of length they stay as written.
    let outcome = run(&frame, vec![set("tcp-offset", 15), modify(2, &[5, 181])]);
    assert_eq!(outcome.frame[46], 0xf0);
}

#[test]
fn options_come_last_and_from_the_packet_as_received() {
    let frame = syn(&[&MSS, &WSCALE, &[0]]).build();
    // The option bytes are overwritten as payload of IP, then written from the list.
    let outcome = run(
        &frame,
        vec![set_payload("ip-payload[20]", &[9; 8]), modify(2, &[1, 1])],
    );
    assert_eq!(outcome.frame[54..62], [9, 9, 1, 1, 9, 9, 7, 9]);
    assert_eq!(l4_sum(&outcome.frame), l4_sum(&frame));
    let outcome = run(
        &frame,
        vec![
            modify(2, &[1, 1]),
            set_payload("ip-payload[20]", &[9; 8]),
            strip(&[3]),
        ],
    );
    assert_eq!(outcome.frame, syn(&[&[2, 4, 1, 1]]).build());
}

/// The folded sum over TCP's pseudo-header and segment of an IPv4 frame.
fn l4_sum(frame: &[u8]) -> u16 {
    fold(sum(&frame[26..34]) + 6 + (frame.len() - 34) as u64 + sum(&frame[34..]))
}

#[test]
fn unfinished_packets_with_payload_keep_their_headers_in_place() {
    let frame = |options: &[&[u8]]| syn(options).payload(b"abcde").unfinished().build();
    let from: [&[u8]; 4] = [&MSS, &TIME, &WSCALE, &[0, 0, 0]];
    let outcome = run_with(&frame(&from), vec![strip(&[8])], offloaded());
    assert_eq!(outcome.frame, frame(&[&MSS, &WSCALE, &[0; 13]]));
    assert!(outcome.reasons.is_empty());
    // 20 bytes of room: 17 are taken.
    let outcome = run_with(
        &frame(&from),
        vec![add(253, &[1, 2]), add(253, &[1])],
        offloaded(),
    );
    assert_eq!(notes(&outcome), ["no_room"]);
    assert_eq!(outcome.frame, frame(&[&MSS, &TIME, &WSCALE, &[253, 3, 1]]));
    let outcome = run_with(&frame(&from), vec![modify(3, &[0; 5])], offloaded());
    assert_eq!(notes(&outcome), ["no_room"]);
    assert_eq!(outcome.frame, frame(&from));
    let outcome = run_with(&frame(&from), vec![modify(2, &[1, 1])], offloaded());
    assert_eq!(
        outcome.frame,
        frame(&[&[2, 4, 1, 1], &TIME, &WSCALE, &[0, 0, 0]])
    );
    // Stripping first makes room.
    let outcome = run_with(
        &frame(&from),
        vec![strip(&[8]), add(34, b"cookie")],
        offloaded(),
    );
    assert_eq!(
        outcome.frame,
        frame(&[&MSS, &WSCALE, &[34, 8], b"cookie", &[0; 5]])
    );
}

#[test]
fn unfinished_packets_without_payload_change_at_their_tail() {
    for base in [ip4(), ip6()] {
        let frame = |options: &[&[u8]]| {
            base.clone()
                .tcp(1, 2)
                .tcp_bytes(&options.concat())
                .unfinished()
                .build()
        };
        let outcome = run_with(
            &frame(&[&MSS, &SACK, &WSCALE]),
            vec![strip(&[4, 3])],
            offloaded(),
        );
        assert_eq!(outcome.frame, frame(&[&MSS]));
        let outcome = run_with(&frame(&[&MSS]), vec![add(4, &[])], offloaded());
        assert_eq!(outcome.frame, frame(&[&MSS, &SACK]));
        let outcome = run_with(
            &frame(&[&MSS]),
            vec![add(4, &[])],
            Options {
                mtu: 0,
                ..offloaded()
            },
        );
        assert_eq!(
            (notes(&outcome), outcome.frame),
            (vec!["too_big"], frame(&[&MSS]))
        );
        // A trailer counts as payload.
        let padded = |options: &[&[u8]]| [frame(options), vec![0; 2]].concat();
        let outcome = run_with(
            &padded(&[&MSS, &SACK, &[1, 1]]),
            vec![strip(&[4])],
            offloaded(),
        );
        assert_eq!(outcome.frame, padded(&[&MSS, &[0; 4]]));
    }
}

#[test]
fn a_complete_packet_on_an_offloaded_port_is_resized_as_usual() {
    let frame = |options: &[&[u8]]| syn(options).payload(b"abc").build();
    let outcome = run_with(&frame(&[&MSS, &TIME]), vec![strip(&[8])], offloaded());
    assert_eq!(outcome.frame, frame(&[&MSS]));
}

#[test]
fn a_dropped_packet_gets_no_notes_of_rewriting() {
    let frame = syn(&[&[253, 40], &[0; 38]]).build();
    let outcome = run(
        &frame,
        vec![add(4, &[]), Target::Drop(crate::model::DropWhen::Always)],
    );
    assert_eq!(
        (outcome.verdict, notes(&outcome)),
        (Verdict::Drop, vec!["rule_drop"])
    );
}
