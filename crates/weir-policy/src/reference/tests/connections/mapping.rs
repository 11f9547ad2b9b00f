//! Endpoint-independent mappings, filtering and hairpin: docs/semantics.md section 7, "Mappings".

use super::*;

const SYN: u8 = Frame::SYN;
const ACK: u8 = Frame::ACK;
const PEER: End = ([198, 51, 100, 8], 80);
const STRANGER: End = ([203, 0, 113, 5], 9);

fn policy(filtering: &str) -> Bench {
    Bench::new(&format!(
        "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 mapping endpoint-independent {filtering} accept
         all drop"
    ))
}

fn from(frame: &[u8]) -> End {
    ends(frame).0
}

/// The first host has its own port outside, the second another one. Returns that.
fn two_hosts(bench: &mut Bench) -> End {
    let first = bench.pass(&udp(CLIENT, SERVER).build());
    assert_eq!(from(&first), (OUTSIDE, CLIENT.1));
    let second = from(&bench.pass(&udp(OTHER_CLIENT, SERVER).build()));
    assert_eq!(second.0, OUTSIDE);
    assert_ne!(second.1, OTHER_CLIENT.1);
    second
}

#[test]
fn a_port_is_the_same_outside_whoever_it_sends_to() {
    let mut bench = policy("");
    let outer = two_hosts(&mut bench);
    for peer in [PEER, STRANGER, (SERVER.0, 81)] {
        let sent = bench.pass(&udp(OTHER_CLIENT, peer).build());
        assert_eq!(ends(&sent), (outer, peer));
        let back = bench.pass(&udp(peer, outer).build());
        assert_eq!(ends(&back), (peer, OTHER_CLIENT));
    }
    // TCP has mappings of its own.
    let tcp = bench.pass(&tcp(OTHER_CLIENT, PEER, SYN).build());
    assert_eq!(from(&tcp), (OUTSIDE, OTHER_CLIENT.1));
    // Without, the port is that of the connection.
    let mut plain = Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    two_hosts(&mut plain);
    let sent = plain.pass(&udp(OTHER_CLIENT, PEER).build());
    assert_eq!(from(&sent), (OUTSIDE, OTHER_CLIENT.1));
}

#[test]
fn filtering_says_who_may_send() {
    for (filtering, same_host, anybody) in [
        ("", false, false),
        ("filtering address-and-port-dependent", false, false),
        ("filtering address-dependent", true, false),
        ("filtering endpoint-independent", true, true),
    ] {
        let mut bench = policy(filtering);
        let outer = two_hosts(&mut bench);
        let other_port = ((SERVER.0, 81), same_host);
        for (sender, passes) in [other_port, (PEER, anybody), (STRANGER, anybody)] {
            let frame = udp(sender, outer).build();
            if !passes {
                assert_eq!(bench.drop(&frame), Reason::RuleDrop, "{filtering}");
                continue;
            }
            let outcome = bench.run(&frame);
            assert_eq!(
                (outcome.connection, &outcome.matched[..]),
                (Some(Part::Opened), &[1, 2][..])
            );
            assert_eq!(ends(&outcome.frame), (sender, OTHER_CLIENT));
            assert_right(&outcome.frame);
            let answer = bench.pass(&udp(OTHER_CLIENT, sender).build());
            assert_eq!(ends(&answer), (outer, sender));
        }
        // Nobody has this one.
        assert_eq!(
            bench.drop(&udp(SERVER, (OUTSIDE, 1)).build()),
            Reason::RuleDrop
        );
    }
}

#[test]
fn of_tcp_only_a_syn_comes_in() {
    let mut bench = policy("filtering endpoint-independent");
    bench.pass(&tcp(CLIENT, SERVER, SYN).build());
    let outer = (OUTSIDE, CLIENT.1);
    for flags in [SYN | ACK, ACK, Frame::RST, Frame::FIN | ACK] {
        assert_eq!(
            bench.drop(&tcp(PEER, outer, flags).build()),
            Reason::RuleDrop
        );
    }
    let sent = bench.pass(&tcp(PEER, outer, SYN).build());
    assert_eq!(ends(&sent), (PEER, CLIENT));
    let back = bench.pass(&tcp(CLIENT, PEER, SYN | ACK).numbers(1000, 5001).build());
    assert_eq!(ends(&back), (outer, PEER));
}

#[test]
fn hosts_inside_meet_by_their_mappings() {
    for filtering in ["address-dependent", "endpoint-independent"] {
        let mut bench = policy(&format!("filtering {filtering}"));
        let second = two_hosts(&mut bench);
        let first = (OUTSIDE, CLIENT.1);
        if filtering == "address-dependent" {
            // The first sends before it was sent to: that opens its own side only.
            let early = udp(CLIENT, second).build();
            assert_eq!(bench.drop(&early), Reason::NatFiltered);
        }
        let sent = bench.pass(&udp(OTHER_CLIENT, first).build());
        assert_eq!(ends(&sent), (second, CLIENT));
        let back = bench.pass(&udp(CLIENT, second).build());
        assert_eq!(ends(&back), (first, OTHER_CLIENT));
    }
}

#[test]
fn a_mapping_lives_by_packets_of_its_host() {
    let mut bench = policy("filtering endpoint-independent");
    let outer = two_hosts(&mut bench);
    // Three times nearly its time.
    for _ in 0..3 {
        bench.wait(119.0);
        bench.pass(&udp(OTHER_CLIENT, SERVER).build());
    }
    bench.wait(299.0);
    bench.pass(&udp(PEER, outer).build());
    // What comes in keeps its connection, not the mapping.
    bench.wait(1.1);
    bench.pass(&udp(PEER, outer).build());
    assert_eq!(bench.drop(&udp(STRANGER, outer).build()), Reason::RuleDrop);
    // The port that the other host had is free by now.
    let sent = bench.pass(&udp(OTHER_CLIENT, STRANGER).build());
    assert_eq!(from(&sent), (OUTSIDE, OTHER_CLIENT.1));

    let mut own = Bench::new(
        "timeout mapping 10s
         add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 mapping endpoint-independent filtering address-dependent",
    );
    let outer = two_hosts(&mut own);
    own.wait(10.0);
    let from_other_port = udp((SERVER.0, 7), outer).build();
    assert_eq!(own.run(&from_other_port).connection, Some(Part::Opened));
    own.wait(0.1);
    let from_other_port = udp((SERVER.0, 8), outer).build();
    assert_eq!(own.run(&from_other_port).connection, None);
}

#[test]
fn answers_of_a_host_keep_the_mapping_that_others_came_in_by() {
    let mut bench = policy("filtering endpoint-independent");
    let outer = two_hosts(&mut bench);
    bench.wait(250.0);
    bench.pass(&udp(PEER, outer).build());
    bench.pass(&udp(OTHER_CLIENT, PEER).build());
    bench.wait(250.0);
    let sent = bench.pass(&udp(STRANGER, outer).build());
    assert_eq!(ends(&sent), (STRANGER, OTHER_CLIENT));
}

#[test]
fn a_rule_that_maps_the_destination_comes_before_a_mapping() {
    let mut bench = Bench::new(
        "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 mapping endpoint-independent filtering endpoint-independent
         add-stateful ip-daddr 192.0.2.1 udp-dport 4000 map ip-daddr 10.0.0.9 map udp-dport 53
         add-stateful ip-daddr 192.0.2.1 udp-dport 4001 log",
    );
    bench.pass(&udp(CLIENT, SERVER).build());
    let sent = bench.pass(&udp(PEER, (OUTSIDE, 4000)).build());
    assert_eq!(ends(&sent).1, ([10, 0, 0, 9], 53));
    // One that only matches has the mapping's destination.
    bench.pass(&udp((CLIENT.0, 4001), SERVER).build());
    let outcome = bench.run(&udp(PEER, (OUTSIDE, 4001)).build());
    assert_eq!(
        (ends(&outcome.frame).1, &outcome.matched[..]),
        ((CLIENT.0, 4001), &[3][..])
    );
}

#[test]
fn no_two_mappings_share_an_endpoint() {
    let mut bench = Bench::new(
        "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 map udp-sport 700-701 mapping endpoint-independent",
    );
    let ports: std::collections::BTreeSet<u16> = (1..=2)
        .map(|host| from(&bench.pass(&udp(([10, 0, 0, host], 9), SERVER).build())).1)
        .collect();
    assert_eq!(ports.into_iter().collect::<Vec<_>>(), [700, 701]);
    // Not even towards others.
    assert_eq!(
        bench.drop(&udp(([10, 0, 0, 3], 9), PEER).build()),
        Reason::PoolBusy
    );
    bench.pass(&udp(([10, 0, 0, 2], 9), PEER).build());
}
