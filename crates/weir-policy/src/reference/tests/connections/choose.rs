//! What is chosen for a connection, and what happens when it is taken.

use super::*;
use crate::reference::splitmix64;

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

/// What stands in for the draw of the source address.
fn paired([a, b, c, d]: [u8; 4]) -> u32 {
    let address = u64::from(u32::from_be_bytes([a, b, c, d]));
    (splitmix64(splitmix64(0).wrapping_add(address)) >> 32) as u32
}

#[test]
fn an_element_of_the_pool_by_the_draw_in_ascending_order() {
    let mut bench = Bench::new(
        "add-stateful tcp-syn map ip-daddr { 192.0.2.9, 192.0.2.1-192.0.2.3, 203.0.113.0/30 }",
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
        assert_eq!(ends(&sent), ((CLIENT.0, port), (expected, SERVER.1)));
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
    let (seq, port) = (bench.draw(FIRST), bench.draw(FIRST + 2));
    let address = paired(CLIENT.0);
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
    let text = "add-stateful all map ip-daddr 100.64.0.0/10";
    let sent = |seed: u64, number: u64| {
        let mut bench = Bench::with(
            text,
            Options {
                seed,
                ..Options::default()
            },
        );
        bench.number = number;
        destination(&bench.pass(&udp(CLIENT, SERVER).build()))
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
    // Two servers; then, with the first choice of server, other ports.
    let mut bench = Bench::new("add-stateful ip-daddr 198.51.100.0/24 map ip-daddr 192.0.2.0/31");
    let choice = |bench: &Bench| (bench.draw(FIRST) % 2) as u8;
    let to = |host: u8| tcp(CLIENT, ([198, 51, 100, host], 80), SYN).build();
    let server = |host: u8| ([192, 0, 2, host], 80);
    let a = choice(&bench);
    let sent = bench.pass(&to(1));
    assert_eq!(ends(&sent), (CLIENT, server(a)));
    let sent = bench.pass(&to(2));
    assert_eq!(ends(&sent), (CLIENT, server(1 - a)));
    let (c, port) = (
        choice(&bench),
        (1024 + bench.draw(port_of_try(2)) % 64_512) as u16,
    );
    let sent = bench.pass(&to(3));
    assert_eq!(ends(&sent), ((CLIENT.0, port), server(c)));

    // Addresses and ports step together: with 2 and 3 of them all 6 pairs come up.
    let mut bench = Bench::new(
        "add-stateful tcp-dport 80 map ip-daddr 192.0.2.0/31 map tcp-sport 700-702 map tcp-dport 8080",
    );
    let mut sent: Vec<([u8; 4], u16)> = Vec::new();
    for host in 1..=6 {
        let (address, port) = (bench.draw(FIRST) % 2, bench.draw(FIRST + 1) % 3);
        let free = (0..6)
            .map(|t| {
                let port = 700 + (port + t) % 3;
                ([192, 0, 2, ((address + t) % 2) as u8], port as u16)
            })
            .find(|pair| !sent.contains(pair));
        let packet = bench.pass(&to(host));
        let pair = (destination(&packet).0, source(&packet).1);
        assert_eq!(Some(pair), free);
        assert_eq!(destination(&packet).1, 8080);
        sent.push(pair);
    }
    assert_eq!(bench.drop(&to(7)), Reason::PoolBusy);
}

#[test]
fn a_host_has_one_address_of_the_pool() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.0/30");
    let mut used = std::collections::BTreeSet::new();
    for host in 1..=20 {
        let client = [10, 0, 0, host];
        let address = [192, 0, 2, (paired(client) % 4) as u8];
        used.insert(address);
        for port in 1..=5 {
            let sent = bench.pass(&udp((client, port), (SERVER.0, port + 7)).build());
            assert_eq!(source(&sent).0, address);
            let sent = bench.pass(&tcp((client, port), SERVER, SYN).build());
            assert_eq!(source(&sent).0, address);
        }
        let sent = bench.pass(&ping(client, SERVER.0, 8, 9).build());
        assert_eq!(source(&sent).0, address);
    }
    assert_eq!(used.len(), 4);
}

#[test]
fn a_host_has_another_address_if_nothing_else_is_free() {
    let mut bench =
        Bench::new("add-stateful tcp-dport 80 map ip-saddr 192.0.2.0/30 map tcp-sport 700");
    let own = (paired(CLIENT.0) % 4) as u8;
    let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    assert_eq!(source(&sent), ([192, 0, 2, own], 700));
    // Sixteen tries with its own, then any.
    let tries: Vec<u8> = (16..32)
        .map(|t| (bench.draw(port_of_try(t) - 2) % 4) as u8)
        .collect();
    let other = tries.into_iter().find(|&address| address != own);
    let sent = bench.pass(&tcp((CLIENT.0, 4001), SERVER, SYN).build());
    assert_eq!(source(&sent), ([192, 0, 2, other.expect("one")], 700));
}

#[test]
fn a_port_that_is_taken_becomes_one_of_its_kind() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    for port in [0, 1, 2, 1022, 1023, 1024, 1025, 5004, 65_534, 65_535] {
        bench.pass(&udp(([10, 0, 1, 0], port), SERVER).build());
        bench.pass(&tcp(([10, 0, 1, 0], port), SERVER, SYN).build());
        for host in 1..=30 {
            let r = bench.draw(port_of_try(1));
            let sent = bench.pass(&udp(([10, 0, 1, host], port), SERVER).build());
            let new = source(&sent).1;
            assert_eq!(
                (new < 1024, new % 2),
                (port < 1024, port % 2),
                "{port} {new}"
            );
            let first = match port {
                0..1024 => 2 + 2 * (r % 511) - u32::from(port % 2),
                _ => 1024 + 2 * (r % 32_256) + u32::from(port % 2),
            };
            if host == 1 {
                assert_eq!(u32::from(new), first);
            }
            assert_ne!(new, 0);
            let r = bench.draw(port_of_try(1));
            let sent = bench.pass(&tcp(([10, 0, 1, host], port), SERVER, SYN).build());
            let new = source(&sent).1;
            assert_eq!(new < 1024, port < 1024, "{port} {new}");
            let first = match port {
                0..1024 => 1 + r % 1023,
                _ => 1024 + r % 64_512,
            };
            if host == 1 {
                assert_eq!(u32::from(new), first);
            }
        }
    }
}

#[test]
fn a_port_that_no_rule_maps_is_left_alone_for_eight_tries() {
    // Nine and more servers; the port may change from try 8 on, the address goes on as before.
    let text = "add-stateful ip-daddr 198.51.100.0/24 map ip-daddr 192.0.2.0/28\nadd-stateful ip-daddr 192.0.2.0/28 log";
    for taken in [7, 8] {
        let mut bench = Bench::new(text);
        bench.number = 100;
        let first = bench.draw(FIRST) % 16;
        let port = (1024 + bench.draw(port_of_try(8)) % 64_512) as u16;
        bench.number = 0;
        let address = |t: u32| [192, 0, 2, ((first + t) % 16) as u8];
        for t in 0..taken {
            bench.pass(&tcp(CLIENT, (address(t), 80), SYN).build());
        }
        bench.number = 100;
        let sent = bench.pass(&tcp(CLIENT, SERVER, SYN).build());
        let expected = if taken == 7 { 4000 } else { port };
        assert_eq!(ends(&sent), ((CLIENT.0, expected), (address(taken), 80)));
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
