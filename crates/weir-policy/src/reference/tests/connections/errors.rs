//! ICMP errors: they belong to the connection of the packet they quote, and are translated with it.

use super::*;

const SYN: u8 = Frame::SYN;

const NAT: &str = "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 map tcp-sport 777 shuffle tcp-seq-num shuffle tcp-ack-num mod ip-ttl 9 log";
const ROUTER: [u8; 4] = [203, 0, 113, 5];

/// An error about a packet: `kind` 3, with as much of the packet behind its Ethernet header as fits `len`.
fn error(from: [u8; 4], to: [u8; 4], about: &[u8], len: usize) -> Frame {
    let quote = &about[14..];
    Frame::new()
        .ip4(from, to)
        .icmp(3, 1)
        .payload(&quote[..quote.len().min(len)])
}

/// What an error quotes, as a frame of its own.
fn quoted(frame: &[u8]) -> Vec<u8> {
    let l4 = parse(frame).expect("well formed").l4.expect("ICMP");
    [&frame[..14], &frame[l4.payload]].concat()
}

fn sequence(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[38..42].try_into().expect("four bytes"))
}

#[test]
fn an_error_from_outside_reaches_the_host_that_sent() {
    let mut bench = Bench::new(NAT);
    let packet = tcp(CLIENT, SERVER, SYN).payload(b"some data").build();
    let sent = bench.pass(&packet);
    let outcome = bench.run(&error(ROUTER, OUTSIDE, &sent, usize::MAX).build());
    assert_eq!(
        (outcome.connection, &outcome.matched[..], outcome.logs.len()),
        (Some(Part::Error), &[1][..], 1)
    );
    assert_right(&outcome.frame);
    let (from, to) = ends(&outcome.frame);
    assert_eq!((from.0, to.0), (ROUTER, CLIENT.0));
    // The quote is the packet as its sender knows it, but for what rules wrote.
    let quote = quoted(&outcome.frame);
    assert_right(&quote);
    assert_eq!(ends(&quote), (CLIENT, SERVER));
    assert_eq!(sequence(&quote), sequence(&packet));
    assert_eq!(quote[22], 9);
    assert_eq!(
        outcome.frame[22], 64,
        "rules of the connection do not rewrite errors"
    );

    // An error of the server itself comes from its address, which is not translated here.
    let outcome = bench.run(&error(SERVER.0, OUTSIDE, &sent, 28).build());
    assert_right(&outcome.frame);
    let (from, to) = ends(&outcome.frame);
    assert_eq!((from.0, to.0), (SERVER.0, CLIENT.0));
}

#[test]
fn an_error_from_inside_looks_as_if_the_translated_host_sent_it() {
    let mut bench = Bench::new(NAT);
    let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    let answer = answer_to(&sent).build();
    let received = bench.pass(&answer);
    // Of a router in front of it, too.
    for from in [CLIENT.0, [10, 7, 7, 7]] {
        let outcome = bench.run(&error(from, SERVER.0, &received, usize::MAX).build());
        assert_eq!(outcome.connection, Some(Part::Error));
        assert_right(&outcome.frame);
        let (from, to) = ends(&outcome.frame);
        assert_eq!((from.0, to.0), (OUTSIDE, SERVER.0));
        let quote = quoted(&outcome.frame);
        assert_right(&quote);
        assert_eq!(ends(&quote), (SERVER, (OUTSIDE, 777)));
        assert_eq!(sequence(&quote), sequence(&answer));
    }
}

#[test]
fn errors_about_what_hides_its_destination() {
    // Port forwarding: the server is inside.
    let mut bench =
        Bench::new("add-stateful ip-daddr 192.0.2.1 map ip-daddr 10.0.0.9 map udp-dport 5353");
    let public = (OUTSIDE, 53);
    let sent = bench.pass(&udp(SERVER, public).build());
    assert_eq!(ends(&sent).1, ([10, 0, 0, 9], 5353));
    // The inner server refuses: its address must not show.
    let outcome = bench.run(&error([10, 0, 0, 9], SERVER.0, &sent, usize::MAX).build());
    assert_right(&outcome.frame);
    let (from, to) = ends(&outcome.frame);
    assert_eq!((from.0, to.0), (OUTSIDE, SERVER.0));
    let quote = quoted(&outcome.frame);
    assert_right(&quote);
    assert_eq!(ends(&quote), (SERVER, public));
    // Nor that of a router in front of it.
    let outcome = bench.run(&error([10, 0, 0, 250], SERVER.0, &sent, usize::MAX).build());
    assert_eq!(ends(&outcome.frame).0.0, OUTSIDE);
    // An error about the answer, from outside, goes to the inner server.
    let answer = bench.pass(&udp(([10, 0, 0, 9], 5353), SERVER).build());
    assert_eq!(ends(&answer).0, public);
    let outcome = bench.run(&error(ROUTER, OUTSIDE, &answer, usize::MAX).build());
    assert_eq!(ends(&outcome.frame).1.0, [10, 0, 0, 9]);
    assert_eq!(
        ends(&quoted(&outcome.frame)),
        (([10, 0, 0, 9], 5353), SERVER)
    );
    assert_right(&quoted(&outcome.frame));
}

#[test]
fn errors_about_packets_as_nobody_behind_weir_saw_them_are_of_no_connection() {
    let mut bench = Bench::new(NAT);
    let packet = tcp(CLIENT, SERVER, SYN).build();
    let sent = bench.pass(&packet);
    let answer = answer_to(&sent).build();
    bench.pass(&answer);
    for (about, to) in [(&packet, CLIENT.0), (&answer, SERVER.0)] {
        let frame = error(ROUTER, to, about, usize::MAX).build();
        let outcome = bench.run(&frame);
        assert_eq!((outcome.connection, outcome.matched), (None, vec![]));
        assert_eq!(outcome.frame, frame);
    }
}

#[test]
fn with_one_tuple_only_sequence_numbers_are_put_back() {
    let mut bench = Bench::new("add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-ack-num");
    let packet = tcp(CLIENT, SERVER, SYN).build();
    let sent = bench.pass(&packet);
    assert_ne!(sequence(&sent), sequence(&packet));
    put_back(&mut bench, &sent, &packet, CLIENT.0);
    let answer = answer_to(&sent).build();
    let received = bench.pass(&answer);
    assert_ne!(sequence(&received), sequence(&answer));
    put_back(&mut bench, &received, &answer, SERVER.0);
    // What was answered is no longer on its way.
    let late = error(ROUTER, CLIENT.0, &sent, usize::MAX).build();
    assert_eq!(bench.drop(&late), Reason::IcmpWindow);
}

/// Errors about a packet as it was sent on show it as it was received.
fn put_back(bench: &mut Bench, about: &[u8], original: &[u8], to: [u8; 4]) {
    for len in [28, 30, 36, 38, 39, 40] {
        let outcome = bench.run(&error(ROUTER, to, about, len).build());
        assert_eq!(outcome.connection, Some(Part::Error));
        assert_right(&outcome.frame);
        let quote = quoted(&outcome.frame);
        assert_eq!(sequence(&quote), sequence(original));
        // The acknowledgement lies behind the 8 bytes that every quote has, and stays as it was.
        if len >= 38 && to == CLIENT.0 {
            assert_eq!(
                quote[50..52],
                original[50..52],
                "the checksum of the original"
            );
        }
    }
}

#[test]
fn errors_about_what_is_not_on_its_way_are_dropped() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 accept");
    let segment = |number: u32| tcp(CLIENT, SERVER, Frame::ACK).numbers(number, 5001);
    let asked = |bench: &mut Bench, number: u32| {
        let about = segment(number).payload(&[1; 100]).build();
        let outcome = bench.run(&error(ROUTER, CLIENT.0, &about, 28).build());
        outcome.reasons.first().copied()
    };
    bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    assert_eq!(asked(&mut bench, 999), Some(Reason::IcmpWindow));
    assert_eq!(asked(&mut bench, 1000), None);
    assert_eq!(asked(&mut bench, 1002), Some(Reason::IcmpWindow));
    bench.pass(&tcp(SERVER, CLIENT, SYN | Frame::ACK).build());
    bench.pass(&segment(1001).payload(&[1; 100]).build());
    for (number, expected) in [
        (1000, Some(Reason::IcmpWindow)),
        (1001, None),
        (1101, None),
        (1102, Some(Reason::IcmpWindow)),
        (0x8000_0000, Some(Reason::IcmpWindow)),
    ] {
        assert_eq!(asked(&mut bench, number), expected, "{number}");
    }
    // Of datagrams nothing is known.
    let datagram = udp(CLIENT, SERVER).build();
    bench.pass(&datagram);
    let about = error(ROUTER, CLIENT.0, &datagram, 28).build();
    assert_eq!(bench.run(&about).connection, Some(Part::Error));
}

#[test]
fn quotes_are_cut_anywhere_behind_eight_bytes_of_l4() {
    let mut bench = Bench::new(NAT);
    let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).payload(&[1; 20]).build());
    let packet = tcp(CLIENT, SERVER, SYN).ttl(9).payload(&[1; 20]).build();
    for len in 20..=60 {
        let frame = error(ROUTER, OUTSIDE, &sent, len).build();
        let outcome = bench.run(&frame);
        if len < 28 {
            assert_eq!((outcome.connection, outcome.frame), (None, frame), "{len}");
            continue;
        }
        assert_right(&outcome.frame);
        let mut expected = packet[14..14 + len].to_vec();
        if len < 38 {
            // The TCP checksum is not there, or not all of it: what is there stays as it came.
            let at = 36.min(len);
            expected[at..].copy_from_slice(&sent[14 + at..14 + len]);
        }
        assert_eq!(quoted(&outcome.frame)[14..], expected, "{len}");
    }
}

#[test]
fn queries_in_quotes_have_their_identifier_translated() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    bench.pass(&ping(CLIENT.0, SERVER.0, 8, 5).build());
    let packet = ping(OTHER_CLIENT.0, SERVER.0, 8, 5).build();
    let sent = bench.pass(&packet);
    let identifier = ends(&sent).0.1;
    assert_ne!(identifier, 5);
    let outcome = bench.run(&error(ROUTER, OUTSIDE, &sent, usize::MAX).build());
    assert_right(&outcome.frame);
    assert_eq!(ends(&outcome.frame).1.0, OTHER_CLIENT.0);
    assert_eq!(quoted(&outcome.frame)[14..], packet[14..]);
    // And of the answer, from inside.
    let answer = ping(SERVER.0, OUTSIDE, 0, identifier).build();
    let received = bench.pass(&answer);
    let outcome = bench.run(&error(OTHER_CLIENT.0, SERVER.0, &received, usize::MAX).build());
    assert_right(&outcome.frame);
    assert_eq!(quoted(&outcome.frame)[14..], answer[14..]);
    assert_eq!(ends(&outcome.frame).0.0, OUTSIDE);
}

#[test]
fn a_quoted_datagram_without_a_checksum_stays_so() {
    let mut bench =
        Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 map udp-sport 9");
    let packet = udp(CLIENT, SERVER).zero_checksum().build();
    let sent = bench.run(&packet).frame;
    let outcome = bench.run(&error(ROUTER, OUTSIDE, &sent, usize::MAX).build());
    assert_right(&outcome.frame);
    assert_eq!(quoted(&outcome.frame)[14..], packet[14..]);
}

#[test]
fn errors_of_icmpv6() {
    let (inside, server, router) = (address6(1), address6(7), address6(250));
    let text =
        "add-stateful ip6-saddr 2001:db8::/64 map ip6-saddr 2001:db8:900::1 map udp-sport 777";
    let mut bench = Bench::new(text);
    let packet = Frame::new()
        .ip6(inside, server)
        .udp(9, 53)
        .payload(b"abc")
        .build();
    let sent = bench.pass(&packet);
    for kind in 1..=5 {
        let frame = Frame::new()
            .ip6(router, OUTSIDE6)
            .icmp(kind, 0)
            .payload(&sent[14..])
            .build();
        let outcome = bench.run(&frame);
        if kind == 5 {
            assert_eq!((outcome.connection, outcome.frame), (None, frame));
            continue;
        }
        assert_eq!(outcome.connection, Some(Part::Error));
        assert_right(&outcome.frame);
        assert_eq!(outcome.frame[38..54], inside);
        assert_eq!(outcome.frame[22..38], router);
        assert_eq!(quoted(&outcome.frame)[14..], packet[14..]);
    }
    // From inside, about an answer, which is ICMPv6 itself.
    let mut bench =
        Bench::new("add-stateful ip6-saddr 2001:db8::/64 map ip6-saddr 2001:db8:900::1");
    bench.pass(&Frame::new().ip6(inside, server).icmp(128, 0).build());
    let answer = Frame::new()
        .ip6(server, OUTSIDE6)
        .icmp(129, 0)
        .payload(b"x")
        .build();
    let received = bench.pass(&answer);
    let outcome = bench.run(
        &Frame::new()
            .ip6(inside, server)
            .icmp(1, 4)
            .payload(&received[14..])
            .build(),
    );
    assert_right(&outcome.frame);
    assert_eq!(outcome.frame[22..38], OUTSIDE6);
    assert_eq!(quoted(&outcome.frame)[14..], answer[14..]);
    // A quote with an extension header has no tuple.
    let chained = Frame::new()
        .ip6(server, OUTSIDE6)
        .extension(60, &[])
        .icmp(129, 0)
        .build();
    let frame = Frame::new()
        .ip6(inside, server)
        .icmp(1, 4)
        .payload(&chained[14..])
        .build();
    assert_eq!(bench.run(&frame).connection, None);
}

#[test]
fn what_is_no_error_or_quotes_no_tuple() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 accept\nall drop");
    let packet = udp(CLIENT, SERVER).build();
    bench.pass(&packet);
    let about = |packet: &[u8]| error(ROUTER, CLIENT.0, packet, usize::MAX);
    bench.pass(&about(&packet).build());
    for kind in [3, 11, 12] {
        let frame = Frame::new()
            .ip4(ROUTER, CLIENT.0)
            .icmp(kind, 0)
            .payload(&packet[14..]);
        bench.pass(&frame.build());
    }
    // Source quench and redirects are of no connection, whatever they quote.
    for kind in [0, 1, 4, 5, 6, 9, 10, 13, 30] {
        let frame = Frame::new()
            .ip4(ROUTER, CLIENT.0)
            .icmp(kind, 0)
            .payload(&packet[14..]);
        assert_eq!(bench.drop(&frame.build()), Reason::RuleDrop);
    }
    let with = |at: usize, byte: u8| {
        let mut changed = packet.clone();
        changed[at] = byte;
        about(&changed).build()
    };
    // Another version, a header that is too short or too long, a later fragment, another protocol or port, GRE.
    for (at, byte) in [
        (14, 0x65),
        (14, 0x44),
        (14, 0x4f),
        (20, 1),
        (21, 1),
        (23, 6),
        (35, 9),
        (23, 47),
    ] {
        assert_eq!(bench.drop(&with(at, byte)), Reason::RuleDrop, "{at}");
    }
    // Flags and a first fragment are no matter; nor is what the quote says of its length and checksum.
    for (at, byte) in [(20, 0x20), (16, 0xff), (24, 0)] {
        assert_eq!(bench.run(&with(at, byte)).verdict, Verdict::Pass, "{at}");
    }
    // An error that quotes an error, and one that is itself a fragment.
    let nested = about(&about(&packet).build());
    assert_eq!(bench.drop(&nested.build()), Reason::RuleDrop);
    assert_eq!(
        bench.drop(&about(&packet).fragment(0, true).build()),
        Reason::RuleDrop
    );
}

#[test]
fn an_error_marks_nothing_and_its_connection_may_be_dead() {
    let mut bench =
        Bench::new("timeout udp-new 10s\nadd-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    let sent = bench.pass(&udp(CLIENT, SERVER).build());
    let frame = error(ROUTER, OUTSIDE, &sent, usize::MAX).build();
    bench.wait(8.0);
    assert_eq!(bench.run(&frame).connection, Some(Part::Error));
    bench.wait(3.0);
    let outcome = bench.run(&frame);
    assert_eq!((outcome.connection, outcome.frame), (None, frame));
}

#[test]
fn rules_of_the_connection_may_drop_its_errors() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 log drop\nicmp-type 3 log");
    bench.drop(&udp(CLIENT, SERVER).build());
    let outcome = bench.run(&error(ROUTER, CLIENT.0, &udp(CLIENT, SERVER).build(), 99).build());
    assert_eq!(
        (outcome.verdict, &outcome.matched[..]),
        (Verdict::Drop, &[1, 2][..])
    );
}

#[test]
fn the_deepest_quote_there_is_lies_within_reach() {
    let packet = Frame::new()
        .ip6(address6(1), address6(7))
        .tcp(9, 80)
        .flags(SYN)
        .payload(&[1; 60])
        .build();
    let mut bench =
        Bench::new("add-stateful tcp-syn map ip6-saddr 2001:db8:900::1 shuffle tcp-seq-num");
    let sent = bench.pass(&packet);
    // Four tags and 256 bytes of extension headers: the TCP header in the quote begins at byte 374.
    let tagged = (0..4).fold(Frame::new().ip6(address6(250), OUTSIDE6), |frame, _| {
        frame.vlan(1)
    });
    let frame = tagged
        .extension(60, &[0; 126])
        .extension(60, &[0; 126])
        .icmp(1, 0)
        .payload(&sent[14..])
        .build();
    assert_eq!(frame[374..376], [0, 9]);
    let outcome = bench.run(&frame);
    assert_right(&outcome.frame);
    assert_eq!(quoted(&outcome.frame)[14..], packet[14..]);
}

/// ICMP of a type from a router on the path.
fn from_router(kind: u8, code: u8, words: (u16, u16), about: &[u8]) -> Frame {
    Frame::new()
        .ip4(ROUTER, CLIENT.0)
        .icmp(kind, code)
        .echo(words.0, words.1)
        .payload(&about[14..])
}

fn six(kind: u8, words: (u16, u16)) -> Frame {
    let (router, host) = (
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        OUTSIDE6,
    );
    Frame::new()
        .ip6(router, host)
        .icmp(kind, 0)
        .echo(words.0, words.1)
        .payload(&[0; 48])
}

#[test]
fn an_error_with_a_wrong_checksum_is_none() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 accept");
    let packet = udp(CLIENT, SERVER).build();
    bench.pass(&packet);
    let about = || error(ROUTER, CLIENT.0, &packet, usize::MAX);
    bench.pass(&about().build());
    let wrong = about().wrong_checksum(5).build();
    assert_eq!(bench.drop(&wrong), Reason::IcmpChecksum);
    let wrong = six(2, (0, 1400)).wrong_checksum(5).build();
    assert_eq!(bench.drop(&wrong), Reason::IcmpChecksum);
    bench.pass(&six(2, (0, 1400)).build());
    // A ping is its receiver's to judge.
    let ping = ping(CLIENT.0, SERVER.0, 8, 5);
    let mut damaged = ping.build();
    damaged[37] ^= 1;
    assert_eq!(bench.run(&damaged).verdict, Verdict::Pass);
    // Nothing of this without stateful rules.
    let mut bench = Bench::new("all log");
    let wrong = about().wrong_checksum(5).build();
    assert_eq!(bench.run(&wrong).verdict, Verdict::Pass);
}

#[test]
fn a_path_mtu_has_a_floor() {
    let rules = "add-stateful ip-saddr 10.0.0.0/8 accept";
    let packet = udp(CLIENT, SERVER).build();
    for (setting, floor) in [("", 552), ("min-pmtu 68\n", 68), ("min-pmtu 1500\n", 1500)] {
        let mut bench = Bench::new(&format!("{setting}{rules}"));
        bench.pass(&packet);
        let needed = |mtu| from_router(3, 4, (0, mtu), &packet).build();
        assert_eq!(bench.run(&needed(floor)).connection, Some(Part::Error));
        for low in [floor - 1, 0] {
            assert_eq!(bench.drop(&needed(low)), Reason::PmtuFloor, "{low}");
        }
        // Not of another code, nor about nothing.
        bench.pass(&from_router(3, 3, (0, 0), &packet).build());
        let stranger = udp(OTHER_CLIENT, SERVER).build();
        let about_nothing = from_router(3, 4, (0, floor - 1), &stranger).build();
        assert_eq!(bench.drop(&about_nothing), Reason::PmtuFloor);
        bench.pass(&six(2, (0, 1280)).build());
        bench.pass(&six(2, (1, 0)).build());
        for low in [1279, 0] {
            assert_eq!(bench.drop(&six(2, (0, low)).build()), Reason::PmtuFloor);
        }
        bench.pass(&six(1, (0, 0)).build());
    }
}

#[test]
fn what_tells_hosts_what_to_do_needs_a_rule_that_names_it() {
    let packet = udp(CLIENT, SERVER).build();
    let four = |kind| from_router(kind, 0, (0, 0), &packet).build();
    let verdicts = |rules: &str| {
        let mut bench = Bench::new(rules);
        let mut why = |frame: Vec<u8>| bench.run(&frame).reasons.last().copied();
        [
            why(four(4)),
            why(four(5)),
            why(four(9)),
            why(six(134, (0, 0)).build()),
            why(six(137, (0, 0)).build()),
            // These need nothing.
            why(four(10)),
            why(six(133, (0, 0)).build()),
            why(six(135, (0, 0)).build()),
            why(six(136, (0, 0)).build()),
        ]
    };
    let no = Some(Reason::IcmpNotAccepted);
    let state = "add-stateful ip-saddr 10.0.0.0/8 accept\n";
    let none = [no, no, no, no, no, None, None, None, None];
    for rules in [
        "",
        "all accept",
        "icmp-type != 8 accept",
        "! icmp-type 8 accept\nicmp6-type log",
        "icmp-type accept\nicmp6-type accept",
        "icmp-type 5 log\nall accept",
        "icmp-code 0 accept",
    ] {
        assert_eq!(verdicts(&format!("{state}{rules}")), none, "{rules}");
    }
    assert_eq!(
        verdicts(&format!(
            "{state}icmp-type 5 accept\nicmp6-type >= 135 accept"
        )),
        [no, None, no, no, None, None, None, None, None]
    );
    assert_eq!(
        verdicts(&format!(
            "{state}icmp-type in {{ 4, 9 }} accept\nicmp6-type 134 ip6-hop-limit 64 accept"
        )),
        [None, no, None, None, no, None, None, None, None]
    );
    // A rule that drops says so, and accepting overrides it as ever.
    let dropped = verdicts(&format!("{state}icmp-type 5 accept\nicmp-type 4-5 drop"));
    assert_eq!(dropped[..3], [Some(Reason::RuleDrop), None, no]);
    assert_eq!(verdicts("all log"), [None; 9]);
}
