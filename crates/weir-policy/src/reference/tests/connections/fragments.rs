//! Fragments follow the first of them.

use super::*;

const NAT: &str = "timeout udp-new 500s\nadd-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 map udp-sport 777 mod ip-ttl 9 mod udp-checksum 5 shuffle ip-id\nall log";

/// A datagram from inside in two fragments.
fn pieces(id: u16) -> (Vec<u8>, Vec<u8>) {
    let first = Frame::new()
        .ip4(CLIENT.0, SERVER.0)
        .id(id)
        .fragment(0, true)
        .udp(CLIENT.1, SERVER.1)
        .udp_len(24)
        .payload(&[1; 8]);
    (first.build(), later(CLIENT.0, SERVER.0, id).build())
}

fn later(from: [u8; 4], to: [u8; 4], id: u16) -> Frame {
    Frame::new()
        .ip4(from, to)
        .id(id)
        .fragment(2, false)
        .protocol(17)
        .payload(&[2; 8])
}

#[test]
fn a_later_fragment_is_translated_as_the_first() {
    let mut bench = Bench::new(NAT);
    let by = bench.draw((1 << 31) + 2) as u16;
    let (first, second) = pieces(7);
    let sent = bench.run(&first);
    assert_eq!(
        (sent.connection, ends(&sent.frame)),
        (Some(Part::Opened), ((OUTSIDE, 777), SERVER))
    );
    let outcome = bench.run(&second);
    assert_eq!(
        (outcome.connection, &outcome.matched[..]),
        (Some(Part::Forward), &[1, 2][..])
    );
    assert_right(&outcome.frame);
    let (from, to) = ends(&outcome.frame);
    assert_eq!((from.0, to.0), (OUTSIDE, SERVER.0));
    // The identification of both moved alike; rules that name UDP do not rewrite what has no UDP header.
    for frame in [&sent.frame, &outcome.frame] {
        assert_eq!(frame[18..20], 7u16.wrapping_add(by).to_be_bytes());
    }
    assert_eq!((sent.frame[22], outcome.frame[22]), (9, 64));
    assert_eq!(outcome.frame[34..], second[34..]);
}

#[test]
fn answers_in_fragments() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    bench.pass(&udp(CLIENT, SERVER).build());
    let first = Frame::new()
        .ip4(SERVER.0, OUTSIDE)
        .id(3)
        .fragment(0, true)
        .udp(80, 4000)
        .udp_len(24)
        .payload(&[1; 8]);
    let outcome = bench.run(&first.build());
    assert_eq!(
        (outcome.connection, ends(&outcome.frame).1),
        (Some(Part::Reverse), CLIENT)
    );
    let outcome = bench.run(&later(SERVER.0, OUTSIDE, 3).build());
    assert_eq!(
        (outcome.connection, ends(&outcome.frame).1.0),
        (Some(Part::Reverse), CLIENT.0)
    );
}

#[test]
fn before_the_first_they_are_dropped_and_no_rule_sees_them() {
    let mut bench = Bench::new(NAT);
    let (first, second) = pieces(7);
    for frame in [
        second.clone(),
        Frame::new()
            .ip6(address6(1), address6(2))
            .fragment(3, false)
            .payload(&[0; 8])
            .build(),
    ] {
        let outcome = bench.run(&frame);
        assert_eq!(
            (outcome.verdict, &outcome.reasons[..]),
            (Verdict::Drop, &[Reason::FragBeforeFirst][..])
        );
        assert_eq!(
            (outcome.connection, outcome.matched, outcome.logs),
            (None, vec![], vec![])
        );
    }
    bench.pass(&first);
    bench.pass(&second);
    // Others are not those.
    for other in [
        later(CLIENT.0, SERVER.0, 8),
        later(OTHER_CLIENT.0, SERVER.0, 7),
        later(CLIENT.0, OTHER_CLIENT.0, 7),
        later(SERVER.0, CLIENT.0, 7),
        later(CLIENT.0, SERVER.0, 7).protocol(6),
    ] {
        assert_eq!(bench.drop(&other.build()), Reason::FragBeforeFirst);
    }
    let noted = later(CLIENT.0, SERVER.0, 9).trailer(&[0; 4]).build();
    assert_eq!(notes(&bench.run(&noted)), ["trailer", "frag_before_first"]);
}

#[test]
fn the_memory_lasts_for_its_timeout() {
    for (setting, seconds) in [("", 30.0), ("timeout fragment 2s\n", 2.0)] {
        let mut bench = Bench::new(&format!("{setting}{NAT}"));
        let (first, second) = pieces(7);
        bench.pass(&first);
        bench.wait(seconds);
        bench.pass(&second);
        bench.wait(0.001);
        assert_eq!(bench.drop(&second), Reason::FragBeforeFirst);
        // Later fragments do not prolong it; another first fragment does.
        bench.pass(&first);
        bench.wait(seconds);
        bench.pass(&second);
    }
}

#[test]
fn without_a_connection_they_pass_and_open_none() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 log\nall log");
    for (first, protocol) in [
        (
            Frame::new()
                .ip4(SERVER.0, CLIENT.0)
                .id(1)
                .fragment(0, true)
                .udp(1, 2)
                .udp_len(24)
                .payload(&[1; 8]),
            17,
        ),
        (
            Frame::new()
                .ip4(CLIENT.0, [224, 0, 0, 9])
                .id(1)
                .fragment(0, true)
                .protocol(47)
                .payload(&[1; 16]),
            47,
        ),
        (
            Frame::new()
                .ip4(CLIENT.0, SERVER.0)
                .id(2)
                .fragment(0, true)
                .icmp(3, 0)
                .payload(&[1; 8]),
            1,
        ),
    ] {
        let outcome = bench.run(&first.build());
        assert_eq!(
            (outcome.verdict, outcome.connection, &outcome.matched[..]),
            (Verdict::Pass, None, &[2][..])
        );
        let frame = first.build();
        let address = |at: usize| -> [u8; 4] { frame[at..at + 4].try_into().expect("four bytes") };
        let second = later(address(26), address(30), u16::from(frame[19]))
            .protocol(protocol)
            .build();
        let outcome = bench.run(&second);
        assert_eq!(
            (outcome.verdict, outcome.connection, &outcome.matched[..]),
            (Verdict::Pass, None, &[2][..])
        );
        assert_eq!(outcome.frame, second);
    }
}

#[test]
fn only_a_first_fragment_that_passes_is_remembered() {
    let mut bench =
        Bench::new("add-stateful ip-saddr 10.0.0.0/8 log\nudp-dport 80 drop\nfrag-later accept");
    let (first, second) = pieces(7);
    assert_eq!(bench.drop(&first), Reason::RuleDrop);
    assert_eq!(bench.drop(&second), Reason::FragBeforeFirst);
    // A connection that drops: its first fragment does not pass either.
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 drop");
    assert_eq!(bench.drop(&first), Reason::RuleDrop);
    assert_eq!(bench.drop(&second), Reason::FragBeforeFirst);
    // A later fragment may be dropped by a rule of its connection, or by another.
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 log\nfrag-later drop");
    bench.pass(&first);
    let outcome = bench.run(&second);
    assert_eq!(
        (outcome.connection, &outcome.matched[..], outcome.verdict),
        (Some(Part::Forward), &[1, 2][..], Verdict::Drop)
    );
}

#[test]
fn of_a_dead_connection_nothing_is_left() {
    let mut bench = Bench::new("timeout udp-new 5s\nadd-stateful ip-saddr 10.0.0.0/8 log");
    let (first, second) = pieces(7);
    bench.pass(&first);
    bench.wait(4.0);
    // They keep it alive, like other packets.
    bench.pass(&second);
    bench.wait(4.0);
    bench.pass(&second);
    bench.wait(6.0);
    assert_eq!(bench.drop(&second), Reason::FragBeforeFirst);
    // A new connection with the same tuple is not theirs until a first fragment says so.
    bench.pass(&udp(CLIENT, SERVER).build());
    assert_eq!(bench.drop(&second), Reason::FragBeforeFirst);
    bench.pass(&first);
    bench.pass(&second);
}

#[test]
fn fragments_of_what_looks_translated_already_are_left_alone() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 map udp-sport 777 shuffle ip-id");
    let (first, second) = pieces(7);
    let (first, second) = (bench.run(&first).frame, bench.run(&second).frame);
    // They are remembered, without a connection.
    for piece in [first, second] {
        let again = bench.run(&piece);
        assert_eq!(
            (again.verdict, again.connection, again.frame),
            (Verdict::Pass, None, piece)
        );
    }
}

#[test]
fn fragments_of_ipv6_and_of_tcp() {
    let mut bench = Bench::new(
        "add-stateful ip6-saddr 2001:db8::/64 map ip6-saddr 2001:db8:900::1 shuffle ip6-flow-label shuffle tcp-seq-num",
    );
    let label = bench.draw((1 << 31) + 1) & 0xf_ffff;
    let six = || {
        Frame::new()
            .ip6(address6(1), address6(7))
            .extension(60, &[])
    };
    let first = six()
        .fragment(0, true)
        .tcp(9, 80)
        .flags(Frame::ACK)
        .payload(&[1; 12])
        .build();
    let sent = bench.run(&first);
    assert_eq!(sent.connection, Some(Part::Opened));
    // The protocol that the later fragment names is no matter.
    let outcome = bench.run(
        &six()
            .fragment(4, false)
            .protocol(17)
            .payload(&[2; 8])
            .build(),
    );
    assert_eq!(outcome.connection, Some(Part::Forward));
    for frame in [sent.frame, outcome.frame] {
        assert_eq!(frame[22..38], OUTSIDE6);
        let word = u32::from_be_bytes(frame[14..18].try_into().expect("four bytes"));
        assert_eq!(word & 0xf_ffff, label);
    }
}

#[test]
fn a_datagram_put_together_again_has_the_right_checksum() {
    let mut bench =
        Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 map udp-sport 777");
    let whole = Frame::new()
        .ip4(CLIENT.0, SERVER.0)
        .udp(CLIENT.1, SERVER.1)
        .payload(&[1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2])
        .build();
    // Cut it by hand: header and 8 bytes of payload in the first.
    let mut first = Frame::new()
        .ip4(CLIENT.0, SERVER.0)
        .fragment(0, true)
        .udp(CLIENT.1, SERVER.1)
        .udp_len(19)
        .payload(&[1; 8])
        .build();
    first[34..].copy_from_slice(&whole[34..50]);
    let second = Frame::new()
        .ip4(CLIENT.0, SERVER.0)
        .fragment(2, false)
        .protocol(17)
        .payload(&[2, 2, 2])
        .build();
    let (first, second) = (bench.run(&first).frame, bench.run(&second).frame);
    assert_eq!(
        (first[26..34].to_vec(), second[26..34].to_vec()),
        ([OUTSIDE, SERVER.0].concat(), [OUTSIDE, SERVER.0].concat())
    );
    let mut joined = Frame::new()
        .ip4(OUTSIDE, SERVER.0)
        .udp(777, 80)
        .payload(&[0; 11])
        .build();
    joined[34..50].copy_from_slice(&first[34..]);
    joined[50..].copy_from_slice(&second[34..]);
    assert_right(&joined);
}

#[test]
fn what_overlaps_the_first_fragment_is_dropped() {
    let whole = |offset, more| {
        Frame::new()
            .ip4(CLIENT.0, SERVER.0)
            .id(9)
            .fragment(offset, more)
    };
    // A TCP header of 20 bytes and 12 of data: four units.
    let first = whole(0, true)
        .tcp(CLIENT.1, SERVER.1)
        .flags(Frame::ACK)
        .payload(&[1; 12])
        .build();
    for policy in [
        "add-stateful ip-saddr 10.0.0.0/8 accept",
        "add-stateful udp-dport 1 accept",
    ] {
        let mut bench = Bench::new(policy);
        let later = |offset| whole(offset, true).protocol(6).payload(&[2; 8]).build();
        assert_eq!(bench.drop(&later(1)), Reason::FragBeforeFirst);
        bench.run(&first);
        for offset in 1..=3 {
            assert_eq!(bench.drop(&later(offset)), Reason::FragOverlap);
        }
        for offset in [4, 5, 100] {
            assert_eq!(bench.run(&later(offset)).verdict, Verdict::Pass);
        }
    }
    // In IPv6 from the fragment header on, whatever follows it; a unit that is not full counts.
    let six = |offset, more| {
        Frame::new()
            .ip6(address6(1), address6(7))
            .fragment(offset, more)
    };
    let mut bench = Bench::new("add-stateful all accept");
    bench.run(
        &six(0, true)
            .extension(60, &[])
            .udp(9, 53)
            .udp_len(99)
            .payload(&[1; 9])
            .build(),
    );
    let later = |offset| six(offset, false).protocol(17).payload(&[2; 8]).build();
    assert_eq!(bench.drop(&later(3)), Reason::FragOverlap);
    assert_eq!(bench.run(&later(4)).verdict, Verdict::Pass);
}
