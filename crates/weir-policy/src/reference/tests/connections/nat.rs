//! Addresses and ports translated, in both directions, families and protocols.

use super::*;

const ACK: u8 = Frame::ACK;
const SYN: u8 = Frame::SYN;

#[test]
fn each_field_is_translated_and_answers_back() {
    for (targets, from, to) in [
        ("map ip-saddr 192.0.2.1", (OUTSIDE, 4000), SERVER),
        ("map ip-daddr 192.0.2.9", CLIENT, ([192, 0, 2, 9], 80)),
        ("map tcp-sport 777", (CLIENT.0, 777), SERVER),
        ("map tcp-dport 8080", CLIENT, (SERVER.0, 8080)),
        (
            "map ip-saddr 192.0.2.1 map tcp-sport 777",
            (OUTSIDE, 777),
            SERVER,
        ),
        (
            "map ip-daddr 192.0.2.9 map tcp-dport 8080",
            CLIENT,
            ([192, 0, 2, 9], 8080),
        ),
    ] {
        let mut bench = Bench::new(&format!("add-stateful tcp-syn {targets}"));
        let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
        assert_eq!(ends(&sent), (from, to), "{targets}");
        let answer = tcp(to, from, SYN | ACK).payload(b"hello").build();
        let received = bench.pass(&answer);
        assert_eq!(ends(&received), (SERVER, CLIENT), "{targets}");
        let again = bench.pass(&tcp(CLIENT, SERVER, ACK).payload(b"odd").build());
        assert_eq!(ends(&again), (from, to), "{targets}");
        // The bytes that are no address, port or checksum stay.
        assert_eq!(again.last_chunk(), Some(b"odd"));
    }
}

#[test]
fn udp_is_translated_and_without_a_checksum_stays_so() {
    let mut bench = Bench::new(
        "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 map udp-sport 777 map udp-dport 53",
    );
    let sent = bench.pass(&udp(CLIENT, SERVER).build());
    assert_eq!(ends(&sent), ((OUTSIDE, 777), (SERVER.0, 53)));
    let outcome = bench.run(&udp((SERVER.0, 53), (OUTSIDE, 777)).zero_checksum().build());
    assert_eq!(notes(&outcome), ["udp_zero_checksum"]);
    assert_eq!(ends(&outcome.frame), (SERVER, CLIENT));
    assert_eq!(outcome.frame[40..42], [0, 0]);
}

#[test]
fn icmp_queries_are_translated_by_address() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    for (query, answer) in [(8, 0), (13, 14)] {
        let sent = bench.pass(&ping(CLIENT.0, SERVER.0, query, 5).build());
        assert_eq!(ends(&sent), ((OUTSIDE, 5), (SERVER.0, 5)));
        let received = bench.pass(&ping(SERVER.0, OUTSIDE, answer, 5).build());
        assert_eq!(ends(&received), ((SERVER.0, 5), (CLIENT.0, 5)));
        assert_eq!(received[34], answer);
    }
}

#[test]
fn a_wrong_checksum_stays_wrong_by_the_same_difference() {
    let mut bench = Bench::new(
        "add-stateful tcp-syn map ip-saddr 192.0.2.1 map tcp-sport 5 shuffle tcp-seq-num",
    );
    bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    let frame = tcp(CLIENT, SERVER, SYN).wrong_checksum(77).build();
    assert_eq!(bench.drop(&frame), Reason::TcpChecksum);
    let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    bench.pass(&answer_to(&sent).build());
    let frame = tcp(CLIENT, SERVER, ACK).wrong_checksum(77).build();
    let sent = bench.run(&frame).frame;
    assert_eq!(ends(&sent), ((OUTSIDE, 5), SERVER));
    assert_eq!(checksum_error(&sent), checksum_error(&frame));
}

#[test]
fn an_unfinished_checksum_stays_unfinished() {
    for options in [
        offloaded(),
        Options {
            checksums: ChecksumMode::Tc,
            ..Options::default()
        },
    ] {
        let mut bench = Bench::with(
            "add-stateful tcp-syn map ip-saddr 192.0.2.1 map tcp-sport 5 shuffle tcp-seq-num",
            options,
        );
        let sent = bench
            .run(
                &tcp(CLIENT, SERVER, SYN)
                    .unfinished()
                    .payload(b"abc")
                    .build(),
            )
            .frame;
        assert_eq!(ends(&sent), ((OUTSIDE, 5), SERVER));
        assert!(super::super::super::rewrite::is_unfinished(
            &sent,
            &parse(&sent).expect("well formed")
        ));
        // A finished one beside it is finished.
        let sent = bench
            .run(&tcp(CLIENT, SERVER, ACK).payload(b"abc").build())
            .frame;
        assert_right(&sent);
    }
}

#[test]
fn ipv6_is_translated_like_ipv4() {
    let inside = address6(1);
    let (public, server) = (OUTSIDE6, address6(7));
    let mut bench =
        Bench::new("add-stateful ip6-saddr 2001:db8::/64 map ip6-saddr 2001:db8:900::1");
    let addresses = |frame: &[u8]| -> ([u8; 16], [u8; 16]) {
        (
            frame[22..38].try_into().expect("an address"),
            frame[38..54].try_into().expect("an address"),
        )
    };
    let from = |a, b| Frame::new().ip6(a, b);
    for (out, back) in [
        (
            from(inside, server).tcp(9, 80).payload(b"x"),
            from(server, public).tcp(80, 9),
        ),
        (
            from(inside, server).udp(9, 80).payload(b"x"),
            from(server, public).udp(80, 9),
        ),
        (
            from(inside, server).icmp(128, 0).payload(b"x"),
            from(server, public).icmp(129, 0),
        ),
        (
            from(inside, server)
                .extension(60, &[0; 14])
                .fragment(0, false)
                .udp(9, 81),
            from(server, public).extension(0, &[]).udp(81, 9),
        ),
    ] {
        assert_eq!(addresses(&bench.pass(&out.build())), (public, server));
        assert_eq!(addresses(&bench.pass(&back.build())), (server, inside));
    }
    let mut bench = Bench::new(
        "add-stateful ip6-daddr 2001:db8:900::1 tcp-dport 80 map ip6-daddr 2001:db8::7 map tcp-dport 8080",
    );
    let sent = bench.pass(&from(inside, public).tcp(9, 80).build());
    assert_eq!(addresses(&sent), (inside, server));
    assert_eq!(sent[56..58], 8080u16.to_be_bytes());
    let back = bench.pass(&from(server, inside).tcp(8080, 9).build());
    assert_eq!(addresses(&back), (public, inside));
    assert_eq!(back[54..56], 80u16.to_be_bytes());
}

#[test]
fn the_checksum_of_dccp_follows_its_addresses() {
    let mut bench = Bench::new("add-stateful all map ip-saddr 192.0.2.1");
    let outcome = bench.run(&ip4().protocol(33).payload(&[7; 16]).build());
    assert_eq!(outcome.connection, Some(Part::Opened));
    assert_eq!(outcome.frame[26..30], OUTSIDE);
    // 0x0a000001 became 0xc0000201: 0xb800 more, so much less in the checksum at 6 (RFC 1624).
    assert_eq!(outcome.frame[34 + 6..34 + 8], [0x4f, 0x06]);
}

#[test]
fn hairpin_with_source_and_destination() {
    // A host inside reaches another inside by the public address of both.
    let mut bench = Bench::new(
        "add-stateful ip-daddr 192.0.2.1 tcp-dport 80 map ip-daddr 10.0.0.2 map ip-saddr 192.0.2.1 map tcp-dport 8080",
    );
    let public = (OUTSIDE, 80);
    let web = ([10, 0, 0, 2], 8080);
    let sent = bench.pass(&tcp(CLIENT, public, SYN).build());
    assert_eq!(ends(&sent), ((OUTSIDE, 4000), web));
    let back = bench.pass(&tcp(web, (OUTSIDE, 4000), SYN | ACK).build());
    assert_eq!(ends(&back), (public, CLIENT));
    // As they were sent on, on receive, they are somebody else's.
    assert_eq!(bench.run(&sent).connection, None);
}

#[test]
fn what_looks_translated_already_is_somebody_elses() {
    let mut bench = Bench::new(
        "timeout udp-new 10s
         add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 mod ip-ttl 9 log
         add-stateful all log
         all mod ip-dscp 1",
    );
    let sent = bench.pass(&udp(CLIENT, SERVER).build());
    bench.pass(&udp(SERVER, (OUTSIDE, 4000)).build());
    // It opens nothing either, though a rule would.
    for packet in [sent.clone(), udp(SERVER, CLIENT).build()] {
        let outcome = bench.run(&packet);
        assert_eq!((outcome.connection, &outcome.matched[..]), (None, &[3][..]));
        let mut expected = udp(SERVER, CLIENT).traffic_class(4).build();
        if packet == sent {
            expected = udp((OUTSIDE, 4000), SERVER).traffic_class(4).ttl(9).build();
        }
        assert_eq!(outcome.frame, expected);
    }

    // Nor does it keep the connection alive, or count as seen.
    let mut bench =
        Bench::new("timeout udp-new 10s\nadd-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    bench.pass(&udp(CLIENT, SERVER).build());
    bench.wait(6.0);
    bench.pass(&sent);
    bench.pass(&udp(SERVER, CLIENT).build());
    bench.wait(5.0);
    assert_eq!(
        bench.run(&udp(SERVER, (OUTSIDE, 4000)).build()).connection,
        None
    );
}

#[test]
fn mod_of_a_translated_field_has_the_last_word() {
    let mut bench = Bench::new(
        "tcp-sport 80 mod ip-daddr 10.9.9.9\nadd-stateful tcp-syn map ip-saddr 192.0.2.1",
    );
    bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    let back = bench.pass(&tcp(SERVER, (OUTSIDE, 4000), ACK).build());
    assert_eq!(ends(&back), (SERVER, ([10, 9, 9, 9], 4000)));
}

#[test]
fn identification_and_flow_label_change_the_same_way_in_both_directions() {
    let id = |frame: &[u8]| u16::from_be_bytes([frame[18], frame[19]]);
    let mut bench = Bench::new("add-stateful all map ip-id 7");
    assert_eq!(id(&bench.pass(&udp(CLIENT, SERVER).id(500).build())), 7);
    assert_eq!(id(&bench.pass(&udp(SERVER, CLIENT).id(600).build())), 7);

    let mut bench = Bench::new("add-stateful all shuffle ip-id");
    let by = (bench.draw(1 << 31) & 0xffff) as u16;
    assert_ne!(by, 0);
    for (packet, old) in [(udp(CLIENT, SERVER), 65_000), (udp(SERVER, CLIENT), 3)] {
        assert_eq!(
            id(&bench.pass(&packet.id(old).build())),
            old.wrapping_add(by)
        );
    }

    let six = |from, to| {
        Frame::new()
            .ip6(address6(from), address6(to))
            .traffic_class(0xa5)
            .udp(5, 5)
    };
    let first = |frame: &[u8]| u32::from_be_bytes([frame[14], frame[15], frame[16], frame[17]]);
    let mut bench = Bench::new("add-stateful all map ip6-flow-label 0x12345");
    assert_eq!(
        first(&bench.pass(&six(1, 2).flow_label(9).build())),
        0x6a51_2345
    );
    let mut bench = Bench::new("add-stateful all shuffle ip6-flow-label");
    let by = bench.draw(1 << 31) & 0xf_ffff;
    for (packet, old) in [(six(1, 2), 0xf_fff0), (six(2, 1), 3)] {
        let new = first(&bench.pass(&packet.flow_label(old).build()));
        assert_eq!(new, 0x6a50_0000 | (old + by) & 0xf_ffff);
    }
}
