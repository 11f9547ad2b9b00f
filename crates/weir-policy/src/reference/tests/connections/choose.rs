//! What is chosen for a connection, and what happens when it is taken.

use super::*;

const SYN: u8 = Frame::SYN;
const FIRST: u32 = 1 << 31;

/// Number of the draw of a try for the source port.
const fn port_of_try(t: u32) -> u32 {
    FIRST + (1 << 16) + 8 * t + 2
}

fn source(frame: &[u8]) -> End {
    ends(frame).0
}

fn destination(frame: &[u8]) -> End {
    ends(frame).1
}

#[test]
fn an_element_of_the_pool_by_the_draw_in_ascending_order() {
    let mut bench = Bench::new(
        "add-stateful tcp-syn map ip-saddr { 192.0.2.9, 192.0.2.1-192.0.2.3, 203.0.113.0/30 }",
    );
    let pool = [
        [192, 0, 2, 1],
        [192, 0, 2, 2],
        [192, 0, 2, 3],
        [192, 0, 2, 9],
        [203, 0, 113, 0],
        [203, 0, 113, 1],
        [203, 0, 113, 2],
        [203, 0, 113, 3],
    ];
    let mut seen = std::collections::HashSet::new();
    for port in 1..60 {
        let expected = pool[(bench.draw(FIRST) % 8) as usize];
        let sent = bench.pass(&tcp((CLIENT.0, port), SERVER, SYN).build());
        assert_eq!(source(&sent), (expected, port));
        seen.insert(expected);
    }
    assert_eq!(seen.len(), 8);
}

#[test]
fn draws_are_numbered_over_all_rules_and_the_later_target_holds() {
    let mut bench = Bench::new(
        "add-stateful tcp-syn shuffle tcp-seq-num map ip-saddr 192.0.2.0/24
         add-stateful tcp-dport 80 map tcp-dport 5000-5999 map ip-saddr 203.0.113.0/24
         add-stateful tcp-dport 81 map ip-saddr 9.9.9.9",
    );
    let (seq, port, address) = (
        bench.draw(FIRST),
        bench.draw(FIRST + 2),
        bench.draw(FIRST + 3),
    );
    let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    assert_eq!(source(&sent), ([203, 0, 113, (address % 256) as u8], 4000));
    assert_eq!(destination(&sent).1, 5000 + (port % 1000) as u16);
    assert_eq!(sent[38..42], 1000u32.wrapping_add(seq).to_be_bytes());
}

#[test]
fn a_shuffled_port_is_one_from_49152() {
    for (text, protocol) in [
        ("tcp-sport", 6),
        ("udp-sport", 17),
        ("tcp-dport", 6),
        ("udp-dport", 17),
    ] {
        let mut bench = Bench::new(&format!("add-stateful all shuffle {text}"));
        let expected = 49_152 + (bench.draw(FIRST) % 16_384) as u16;
        let frame = if protocol == 6 {
            tcp(CLIENT, SERVER, SYN)
        } else {
            udp(CLIENT, SERVER)
        };
        let sent = bench.pass(&frame.build());
        let (from, to) = ends(&sent);
        assert_eq!(
            if text.ends_with("sport") {
                from.1
            } else {
                to.1
            },
            expected
        );
        assert_eq!((from.0, to.0), (CLIENT.0, SERVER.0));
    }
}

#[test]
fn the_seed_and_the_number_of_the_packet_decide() {
    let text = "add-stateful all map ip-saddr 100.64.0.0/10";
    let sent = |seed: u64, number: u64| {
        let mut bench = Bench::with(
            text,
            Options {
                seed,
                ..Options::default()
            },
        );
        bench.number = number;
        source(&bench.pass(&udp(CLIENT, SERVER).build()))
    };
    assert_eq!(sent(1, 5), sent(1, 5));
    assert_ne!(sent(1, 5), sent(2, 5));
    assert_ne!(sent(1, 5), sent(1, 6));
}

#[test]
fn masquerading_keeps_the_port_until_it_is_taken() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    let first = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    assert_eq!(source(&first), (OUTSIDE, 4000));
    let port = (1024 + bench.draw(port_of_try(1)) % 64_512) as u16;
    let second = bench.pass(&tcp(OTHER_CLIENT, SERVER, SYN).build());
    assert_eq!(source(&second), (OUTSIDE, port));
    // Each gets its own answers.
    let back = bench.pass(&tcp(SERVER, (OUTSIDE, 4000), Frame::ACK).build());
    assert_eq!(ends(&back), (SERVER, CLIENT));
    let back = bench.pass(&tcp(SERVER, (OUTSIDE, port), Frame::ACK).build());
    assert_eq!(ends(&back), (SERVER, OTHER_CLIENT));
    // Another server is another tuple.
    let elsewhere = bench.pass(&tcp(OTHER_CLIENT, (SERVER.0, 81), SYN).build());
    assert_eq!(source(&elsewhere), (OUTSIDE, 4000));
    // UDP is another protocol.
    let other = bench.pass(&udp(OTHER_CLIENT, SERVER).build());
    assert_eq!(source(&other), (OUTSIDE, 4000));
}

#[test]
fn masquerading_icmp_takes_another_identifier() {
    let mut bench = Bench::new("add-stateful all map ip-saddr 192.0.2.1");
    bench.pass(&ping(CLIENT.0, SERVER.0, 8, 5).build());
    let identifier = (bench.draw(port_of_try(1)) & 0xffff) as u16;
    let sent = bench.pass(&ping(OTHER_CLIENT.0, SERVER.0, 8, 5).build());
    assert_eq!(source(&sent), (OUTSIDE, identifier));
    let back = bench.pass(&ping(SERVER.0, OUTSIDE, 0, identifier).build());
    assert_eq!(destination(&back), (OTHER_CLIENT.0, 5));
    let back = bench.pass(&ping(SERVER.0, OUTSIDE, 0, 5).build());
    assert_eq!(destination(&back), (CLIENT.0, 5));
}

#[test]
fn the_tuple_of_another_connection_is_taken_in_either_direction() {
    // Another host already talks under the address and port that would be chosen.
    for occupant in [
        tcp((OUTSIDE, 4000), SERVER, SYN),
        tcp(SERVER, (OUTSIDE, 4000), SYN),
    ] {
        let mut bench = Bench::new(
            "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1\nadd-stateful all log",
        );
        bench.pass(&occupant.build());
        let port = (1024 + bench.draw(port_of_try(1)) % 64_512) as u16;
        let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
        assert_eq!(source(&sent), (OUTSIDE, port));
    }
}

#[test]
fn a_pool_of_ports_is_gone_through_and_then_busy() {
    let mut bench = Bench::new(
        "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 map tcp-sport 700-702 accept log",
    );
    let mut ports = Vec::new();
    for host in 1..=3 {
        let first = bench.draw(FIRST + 1) % 3;
        let free = (0..3)
            .map(|t| 700 + ((first + t) % 3) as u16)
            .find(|port| !ports.contains(port));
        let sent = bench.pass(&tcp(([10, 0, 0, host], 9), SERVER, SYN).build());
        assert_eq!(source(&sent).1, free.expect("one is free"));
        ports.push(source(&sent).1);
    }
    let outcome = bench.run(&tcp(([10, 0, 0, 4], 9), SERVER, SYN).build());
    assert_eq!(
        (outcome.verdict, &outcome.reasons[..]),
        (Verdict::Drop, &[Reason::PoolBusy][..])
    );
    assert_eq!((outcome.connection, &outcome.matched[..]), (None, &[1][..]));
    assert_eq!(outcome.logs[0].verdict, Verdict::Drop);
    // Another server has the pool to itself; and once they are dead, so has this.
    bench.pass(&tcp(([10, 0, 0, 4], 9), (SERVER.0, 81), SYN).build());
    bench.wait(240.0);
    assert_eq!(
        bench.drop(&tcp(([10, 0, 0, 4], 9), SERVER, SYN).build()),
        Reason::PoolBusy
    );
    bench.wait(0.5);
    bench.pass(&tcp(([10, 0, 0, 4], 9), SERVER, SYN).build());
}

#[test]
fn a_busy_pool_comes_before_what_rules_say() {
    let mut bench = Bench::new(
        "add-stateful udp-dport 80 map udp-sport 700 drop\nadd-stateful ip-saddr 10.0.0.0/8 log",
    );
    assert_eq!(bench.drop(&udp(CLIENT, SERVER).build()), Reason::RuleDrop);
    assert_eq!(
        bench.run(&udp((CLIENT.0, 4001), SERVER).build()).reasons,
        [Reason::PoolBusy]
    );
}

#[test]
fn every_pool_goes_on_with_every_try() {
    // Two source addresses; then, with the first choice of address, other ports.
    let mut bench = Bench::new("add-stateful tcp-dport 80 map ip-saddr 192.0.2.0/31");
    let choice = |bench: &Bench| (bench.draw(FIRST) % 2) as u8;
    let a = choice(&bench);
    let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    assert_eq!(source(&sent), ([192, 0, 2, a], 4000));
    let sent = bench.pass(&tcp(OTHER_CLIENT, SERVER, SYN).build());
    assert_eq!(source(&sent), ([192, 0, 2, 1 - a], 4000));
    let (c, port) = (
        choice(&bench),
        (1024 + bench.draw(port_of_try(2)) % 64_512) as u16,
    );
    let sent = bench.pass(&tcp(([10, 0, 0, 3], 4000), SERVER, SYN).build());
    assert_eq!(source(&sent), ([192, 0, 2, c], port));

    // Addresses and ports step together: with 2 and 3 of them all 6 pairs come up.
    let mut bench = Bench::new(
        "add-stateful tcp-dport 80 map ip-saddr 192.0.2.0/31 map tcp-sport 700-702 map tcp-dport 8080",
    );
    let mut sent: Vec<End> = Vec::new();
    for host in 1..=6 {
        let (address, port) = (bench.draw(FIRST) % 2, bench.draw(FIRST + 1) % 3);
        let free = (0..6)
            .map(|t| {
                let port = 700 + (port + t) % 3;
                ([192, 0, 2, ((address + t) % 2) as u8], port as u16)
            })
            .find(|end| !sent.contains(end));
        let packet = bench.pass(&tcp(([10, 0, 0, host], 4000), SERVER, SYN).build());
        assert_eq!(Some(source(&packet)), free);
        assert_eq!(destination(&packet).1, 8080);
        sent.push(source(&packet));
    }
    let seventh = tcp(([10, 0, 0, 7], 4000), SERVER, SYN).build();
    assert_eq!(bench.drop(&seventh), Reason::PoolBusy);
}

#[test]
fn a_port_that_no_rule_maps_is_left_alone_for_eight_tries() {
    // Nine and more addresses; the port may change from try 8 on, the address goes on as before.
    let text = "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.0/28\nadd-stateful ip-saddr 192.0.2.0/28 log";
    for taken in [7, 8] {
        let mut bench = Bench::new(text);
        bench.number = 100;
        let first = bench.draw(FIRST) % 16;
        let port = (1024 + bench.draw(port_of_try(8)) % 64_512) as u16;
        bench.number = 0;
        let address = |t: u32| [192, 0, 2, ((first + t) % 16) as u8];
        for t in 0..taken {
            bench.pass(&tcp((address(t), 4000), SERVER, SYN).build());
        }
        bench.number = 100;
        let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
        let expected = if taken == 7 { 4000 } else { port };
        assert_eq!(source(&sent), (address(taken), expected));
    }
}

#[test]
fn the_second_half_of_32_tries_is_drawn_anew() {
    // 64 ports; those of all tries are held by other hosts, or of all but one.
    let text = "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 map tcp-sport 700-763\nadd-stateful ip-saddr 192.0.2.1 log";
    let number = 100;
    for left in [0, 15, 16, 31, 32] {
        let mut bench = Bench::new(text);
        bench.number = number;
        let first = bench.draw(FIRST + 1) % 64;
        let tries: Vec<u16> = (0..32)
            .map(|t| match t {
                0..16 => 700 + ((first + t) % 64) as u16,
                _ => 700 + (bench.draw(port_of_try(t)) % 64) as u16,
            })
            .collect();
        bench.number = 0;
        let spared = tries.get(left).copied();
        let ports: std::collections::BTreeSet<u16> = tries.iter().copied().collect();
        for &port in ports.iter().filter(|&&port| Some(port) != spared) {
            bench.pass(&tcp((OUTSIDE, port), SERVER, SYN).build());
        }
        bench.number = number;
        let outcome = bench.run(&tcp(CLIENT, SERVER, SYN).build());
        match spared {
            Some(port) => assert_eq!(source(&outcome.frame).1, port),
            None => assert_eq!(outcome.reasons, [Reason::PoolBusy]),
        }
    }
}

#[test]
fn a_new_connection_replaces_dead_ones_that_had_its_tuples() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    bench.pass(&udp(CLIENT, SERVER).build());
    bench.wait(121.0);
    let sent = bench.pass(&udp(OTHER_CLIENT, SERVER).build());
    assert_eq!(source(&sent), (OUTSIDE, 4000));
    // The first is gone for good: time that runs backwards does not bring it back.
    bench.wait(-100.0);
    let back = bench.pass(&udp(SERVER, (OUTSIDE, 4000)).build());
    assert_eq!(destination(&back), OTHER_CLIENT);
    assert_eq!(bench.run(&udp(SERVER, CLIENT).build()).connection, None);
}

#[test]
fn what_a_closed_connection_holds_is_not_chosen() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    bench.pass(&tcp(CLIENT, SERVER, Frame::RST).build());
    for (host, flags) in [(OTHER_CLIENT.0, SYN), ([10, 0, 0, 4], Frame::ACK)] {
        let sent = bench.pass(&tcp((host, 4000), SERVER, flags).build());
        assert_ne!(source(&sent).1, 4000);
    }
    bench.wait(10.5);
    let sent = bench.pass(&tcp(([10, 0, 0, 3], 4000), SERVER, SYN).build());
    assert_eq!(source(&sent), (OUTSIDE, 4000));
}

#[test]
fn of_a_port_that_is_chosen_as_it_was_nothing_is_translated() {
    let mut bench = Bench::new("add-stateful all map tcp-sport 4000 map ip-saddr 10.0.0.1");
    bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    let flow = bench.run(&tcp(SERVER, CLIENT, Frame::ACK).build());
    assert_eq!(flow.connection, Some(Part::Reverse));
    assert_eq!(ends(&flow.frame), (SERVER, CLIENT));
}

#[test]
fn a_connection_that_is_opened_again_may_keep_its_port() {
    // A closed one holds its translated tuple against all packets but the SYN that takes its place.
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    bench.pass(&tcp(CLIENT, SERVER, Frame::RST).build());
    let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    assert_eq!(source(&sent), (OUTSIDE, 4000));
}
