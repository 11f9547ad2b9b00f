//! Which packets have tuples and open connections, which rules count, and what they do.

use super::*;

const ACK: u8 = Frame::ACK;
const SYN: u8 = Frame::SYN;

/// The reflexive access list: what came from inside may be answered.
const REFLEXIVE: &str = "
    add-stateful ip-saddr 10.0.0.0/8 accept
    add-stateful ip6-saddr 2001:db8::/64 accept
    all drop
";

#[test]
fn answers_to_what_was_sent_pass_and_nothing_else() {
    let mut bench = Bench::new(REFLEXIVE);
    let syn = tcp(CLIENT, SERVER, SYN).build();
    let answer = tcp(SERVER, CLIENT, SYN | ACK).build();
    assert_eq!(bench.drop(&answer), Reason::RuleDrop);
    let opened = bench.run(&syn);
    assert_eq!(
        (opened.connection, &opened.matched[..]),
        (Some(Part::Opened), &[1, 3][..])
    );
    assert_eq!(opened.frame, syn);
    let answered = bench.run(&answer);
    assert_eq!(
        (answered.connection, &answered.matched[..]),
        (Some(Part::Reverse), &[1, 3][..])
    );
    assert_eq!(answered.verdict, Verdict::Pass);
    let third = bench.run(&tcp(CLIENT, SERVER, ACK).build());
    assert_eq!(
        (third.connection, &third.matched[..]),
        (Some(Part::Forward), &[1, 3][..])
    );
    for stranger in [
        tcp((SERVER.0, 81), CLIENT, ACK),
        tcp(SERVER, (CLIENT.0, 4001), ACK),
        tcp(SERVER, OTHER_CLIENT, ACK),
        tcp(([198, 51, 100, 8], 80), CLIENT, ACK),
        udp(SERVER, CLIENT),
        Frame::new().ip6(OUTSIDE6, address6(1)).tcp(80, 4000),
    ] {
        let outcome = bench.run(&stranger.build());
        assert_eq!(
            (outcome.verdict, outcome.connection, outcome.matched),
            (Verdict::Drop, None, vec![3])
        );
    }
}

#[test]
fn queries_of_icmp_are_connections_by_identifier_and_type() {
    let mut bench = Bench::new(REFLEXIVE);
    let (from, to) = (CLIENT.0, SERVER.0);
    for (query, answer, other) in [(8, 0, 14), (13, 14, 0)] {
        assert_eq!(
            bench.drop(&ping(to, from, answer, 5).build()),
            Reason::RuleDrop
        );
        assert_eq!(
            bench.run(&ping(from, to, query, 5).build()).connection,
            Some(Part::Opened)
        );
        assert_eq!(
            bench.run(&ping(from, to, query, 5).build()).connection,
            Some(Part::Forward)
        );
        assert_eq!(
            bench.run(&ping(to, from, answer, 5).build()).connection,
            Some(Part::Reverse)
        );
        assert_eq!(
            bench.drop(&ping(to, from, answer, 6).build()),
            Reason::RuleDrop
        );
        if query == 8 {
            assert_eq!(
                bench.drop(&ping(to, from, other, 5).build()),
                Reason::RuleDrop
            );
        }
        // A query the other way is another connection.
        assert_eq!(
            bench.drop(&ping(to, from, query, 5).build()),
            Reason::RuleDrop
        );
    }
    let six = |from: u8, to: u8, kind: u8| {
        Frame::new()
            .ip6(address6(from), address6(to))
            .icmp(kind, 0)
            .echo(5, 1)
            .build()
    };
    let outside = |from: Frame, kind: u8| from.icmp(kind, 0).echo(5, 1).build();
    let far = OUTSIDE6;
    let answer = || outside(Frame::new().ip6(far, address6(1)), 129);
    assert_eq!(bench.drop(&answer()), Reason::RuleDrop);
    assert_eq!(
        bench
            .run(&outside(Frame::new().ip6(address6(1), far), 128))
            .connection,
        Some(Part::Opened)
    );
    assert_eq!(bench.run(&answer()).connection, Some(Part::Reverse));
    // Type 8 is nothing in ICMPv6, 128 nothing in ICMP.
    assert_eq!(bench.run(&six(1, 2, 8)).connection, None);
    assert_eq!(bench.run(&ping(from, to, 128, 7).build()).connection, None);
}

#[test]
fn what_opens_nothing_matches_no_stateful_rule() {
    let mut bench = Bench::new("add-stateful all accept\nall log");
    for packet in [
        tcp(CLIENT, SERVER, Frame::RST),
        tcp(CLIENT, SERVER, Frame::RST | ACK),
        tcp(CLIENT, SERVER, SYN | ACK),
        ping(CLIENT.0, SERVER.0, 0, 1),
        ping(CLIENT.0, SERVER.0, 14, 1),
        ping(CLIENT.0, SERVER.0, 3, 1),
        ping(CLIENT.0, SERVER.0, 10, 1),
        ip6().icmp(129, 0),
        ip6().icmp(135, 0),
        Frame::new().ip4(CLIENT.0, [224, 0, 0, 22]).protocol(2),
        Frame::new().ether_type(0x0806),
    ] {
        let outcome = bench.run(&packet.build());
        assert_eq!(
            (outcome.connection, &outcome.matched[..]),
            (None, &[2][..]),
            "{packet:?}"
        );
    }
    for packet in [
        tcp(CLIENT, SERVER, SYN),
        tcp(OTHER_CLIENT, SERVER, ACK),
        udp(CLIENT, SERVER),
        ping(CLIENT.0, SERVER.0, 8, 1),
        ip6().icmp(128, 0),
        ip6().extension(0, &[]).udp(1, 2),
        ip6().fragment(0, false).udp(1, 3),
        ip4().protocol(47),
        ip6().extension(50, &[]),
    ] {
        let outcome = bench.run(&packet.build());
        assert_eq!(
            (outcome.connection, &outcome.matched[..]),
            (Some(Part::Opened), &[1, 2][..]),
            "{packet:?}"
        );
    }
}

#[test]
fn the_rules_of_a_connection_are_those_that_its_first_packet_matched() {
    let mut bench = Bench::new(
        "add-stateful tcp-syn log \"syn\"
         add-stateful ! tcp-syn log \"later\"
         tcp-dport 80 log \"each\"",
    );
    let syn = bench.run(&tcp(CLIENT, SERVER, SYN).build());
    assert_eq!(syn.matched, [1, 3]);
    let back = bench.run(&tcp(SERVER, CLIENT, SYN | ACK).build());
    assert_eq!(back.matched, [1]);
    let later = bench.run(&tcp(CLIENT, SERVER, ACK).build());
    assert_eq!(later.matched, [1, 3]);
    assert_eq!(back.logs.len(), 1);
    assert_eq!(back.logs[0].prefix, "syn");
}

#[test]
fn a_stateless_drop_in_force_opens_nothing() {
    let packets = (
        tcp(CLIENT, SERVER, SYN).build(),
        tcp(SERVER, CLIENT, ACK).build(),
    );
    let mut bench = Bench::new("add-stateful tcp-syn log\ntcp-dport 80 drop");
    let outcome = bench.run(&packets.0);
    assert_eq!((outcome.verdict, outcome.connection), (Verdict::Drop, None));
    assert_eq!(outcome.matched, [1, 2]);
    assert_eq!(bench.run(&packets.1).connection, None);
    // Unless a matching rule accepts, of whatever kind.
    for accept in ["add-stateful tcp-syn accept", "tcp-syn accept"] {
        let mut bench = Bench::new(&format!(
            "add-stateful tcp-syn log\ntcp-dport 80 drop\n{accept}"
        ));
        assert_eq!(bench.run(&packets.0).connection, Some(Part::Opened));
        assert_eq!(bench.run(&packets.1).connection, Some(Part::Reverse));
    }
}

#[test]
fn a_stateful_drop_drops_both_directions() {
    let mut bench = Bench::new("add-stateful tcp-syn drop");
    let (out, back) = (
        tcp(CLIENT, SERVER, SYN).build(),
        tcp(SERVER, CLIENT, ACK).build(),
    );
    assert_eq!(bench.run(&back).verdict, Verdict::Pass);
    let opened = bench.run(&out);
    assert_eq!(
        (opened.verdict, opened.connection),
        (Verdict::Drop, Some(Part::Opened))
    );
    assert_eq!(opened.reasons, [Reason::RuleDrop]);
    for (packet, part) in [(&back, Part::Reverse), (&out, Part::Forward)] {
        let outcome = bench.run(packet);
        assert_eq!(
            (outcome.verdict, outcome.connection),
            (Verdict::Drop, Some(part))
        );
    }
    // But for the first, what is dropped is not seen: the connection ends for lack of packets.
    for _ in 0..3 {
        bench.wait(70.0);
        bench.drop(&out);
        bench.drop(&back);
    }
    bench.wait(31.0);
    assert_eq!(bench.run(&back).connection, None);
}

#[test]
fn accept_of_a_connection_overrides_drops_of_both_kinds() {
    let mut bench = Bench::new(
        "add-stateful tcp-syn drop
         add-stateful tcp-dport 80 accept
         tcp-win drop",
    );
    bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    bench.pass(&tcp(SERVER, CLIENT, ACK).build());
    // Opened by other packets, another connection has other rules.
    assert_eq!(
        bench.drop(&tcp(CLIENT, (SERVER.0, 81), SYN).build()),
        Reason::RuleDrop
    );
}

#[test]
fn random_and_rate_drops_of_connections_count_every_packet() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 drop over 1/s burst 2");
    let (out, back) = (udp(CLIENT, SERVER).build(), udp(SERVER, CLIENT).build());
    let verdicts: Vec<Verdict> = [&out, &back, &out, &back]
        .map(|packet| bench.run(packet).verdict)
        .to_vec();
    assert_eq!(
        verdicts,
        [Verdict::Pass, Verdict::Pass, Verdict::Drop, Verdict::Drop]
    );
    bench.wait(2.0);
    assert_eq!(bench.run(&back).verdict, Verdict::Pass);
}

#[test]
fn rewrites_of_a_connection_run_in_both_directions_in_rule_order() {
    let mut bench = Bench::new(
        "tcp-dport 80 mod ip-ttl 5
         add-stateful tcp-syn mod ip-ttl 9 mod tcp-win 77
         tcp-sport 80 mod ip-ttl 7",
    );
    let ttl_and_window = |frame: &[u8]| {
        let at = parse(frame).expect("well formed").l4.expect("TCP").at;
        (
            frame[22],
            u16::from_be_bytes([frame[at + 14], frame[at + 15]]),
        )
    };
    let out = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    assert_eq!(ttl_and_window(&out), (9, 77));
    let back = bench.pass(&tcp(SERVER, CLIENT, SYN | ACK).build());
    assert_eq!(ttl_and_window(&back), (7, 77));
    // No packet without a connection is written by the stateful rule.
    let stray = bench.pass(&tcp(OTHER_CLIENT, SERVER, Frame::RST).build());
    assert_eq!(ttl_and_window(&stray), (5, 65_535));
}

#[test]
fn without_a_stateful_rule_nothing_is_kept() {
    let mut bench = Bench::new("all accept");
    let outcome = bench.run(&tcp(CLIENT, SERVER, SYN).build());
    assert_eq!(outcome.connection, None);
    assert_eq!(
        bench.run(&ip4().fragment(3, false).build()).verdict,
        Verdict::Pass
    );
}
