//! When a connection is alive, and in which state.

use super::*;

const ACK: u8 = Frame::ACK;
const SYN: u8 = Frame::SYN;
const FIN: u8 = Frame::FIN;
const RST: u8 = Frame::RST;

/// Timeouts that differ by state, so that each tells which state it was.
const POLICY: &str = "
    timeout tcp-syn-sent 10s
    timeout tcp-syn-recv 20s
    timeout tcp-established 30s
    timeout tcp-fin-wait 40s
    timeout tcp-time-wait 50s
    timeout tcp-close 60s
    timeout udp-unreplied 70s
    timeout udp-stream 80s
    timeout icmp 90s
    timeout tcp-close-wait 100s
    timeout tcp-last-ack 110s
    add-stateful ip-saddr 10.0.0.0/8 accept
    all drop
";

/// The idle time after which the connection of a packet is dead, found by asking with an answer at the very last moment.
fn lives(packets: &[Vec<u8>], probe: &[u8]) -> u64 {
    let mut found = Vec::new();
    for seconds in (10..=110).step_by(10) {
        let asked = |extra_ns: u64| {
            let mut bench = Bench::new(POLICY);
            for packet in packets {
                bench.pass(packet);
            }
            let ns = 1_000_000_000_000 + seconds * 1_000_000_000 + extra_ns;
            bench
                .run_at_ns(probe, ns)
                .connection
                .is_some_and(|part| part != Part::Opened)
        };
        if asked(0) && !asked(1) {
            found.push(seconds);
        }
    }
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

fn out(flags: u8) -> Vec<u8> {
    tcp(CLIENT, SERVER, flags).build()
}

fn back(flags: u8) -> Vec<u8> {
    tcp(SERVER, CLIENT, flags).build()
}

#[test]
fn states_of_tcp() {
    let probe = back(ACK);
    let after = |packets: &[Vec<u8>]| lives(packets, &probe);
    assert_eq!(after(&[out(SYN)]), 10);
    assert_eq!(after(&[out(SYN), out(SYN)]), 10);
    assert_eq!(after(&[out(SYN), back(SYN | ACK)]), 20);
    // Only what acknowledges the SYN answers it.
    assert_eq!(after(&[out(SYN), back(SYN)]), 10);
    assert_eq!(after(&[out(SYN), back(ACK)]), 10);
    assert_eq!(after(&[out(SYN), back(SYN), back(SYN | ACK)]), 20);
    assert_eq!(after(&[out(SYN), back(SYN | ACK), out(ACK)]), 30);
    assert_eq!(after(&[out(ACK), back(ACK)]), 30);
    let established = [out(SYN), back(SYN | ACK), out(ACK)];
    let and = |more: &[Vec<u8>]| [&established[..], more].concat();
    assert_eq!(after(&and(&[out(FIN | ACK)])), 40);
    assert_eq!(after(&and(&[back(FIN | ACK)])), 40);
    // Nothing of this acknowledges a FIN.
    assert_eq!(after(&and(&[back(FIN | ACK), out(ACK)])), 40);
    assert_eq!(after(&and(&[back(FIN | ACK), out(FIN | ACK)])), 110);
    let numbered = |from, to, flags, sequence, acknowledgement| {
        let segment: Frame = tcp(from, to, flags);
        segment.numbers(sequence, acknowledgement).build()
    };
    let fin = back(FIN | ACK);
    let ack_of_fin = numbered(CLIENT, SERVER, ACK, 1001, 5002);
    assert_eq!(after(&and(&[fin.clone(), ack_of_fin.clone()])), 100);
    let own_fin = numbered(CLIENT, SERVER, FIN | ACK, 1001, 5002);
    assert_eq!(after(&and(&[fin.clone(), own_fin.clone()])), 110);
    let last_ack = numbered(SERVER, CLIENT, ACK, 5002, 1002);
    assert_eq!(
        after(&and(&[fin.clone(), own_fin.clone(), last_ack.clone()])),
        50
    );
    // Closed by both at once: each acknowledges the other's FIN afterwards.
    let crossing = [fin, out(FIN | ACK)];
    assert_eq!(after(&and(&crossing)), 110);
    let late = numbered(CLIENT, SERVER, ACK, 1002, 5002);
    let crossed = [&crossing[..], std::slice::from_ref(&late)].concat();
    assert_eq!(after(&and(&crossed)), 110);
    assert_eq!(after(&and(&[&crossed[..], &[last_ack]].concat())), 50);
    assert_eq!(after(&and(&[out(RST)])), 60);
    assert_eq!(after(&and(&[back(RST | ACK)])), 60);
    // Picked up, and ended.
    assert_eq!(after(&[out(ACK), out(FIN | ACK)]), 40);
}

#[test]
fn states_of_udp_and_icmp() {
    let (out, back) = (udp(CLIENT, SERVER).build(), udp(SERVER, CLIENT).build());
    assert_eq!(lives(std::slice::from_ref(&out), &back), 70);
    assert_eq!(lives(&[out.clone(), out.clone()], &back), 70);
    assert_eq!(lives(&[out, back.clone()], &back), 80);
    let query = ping(CLIENT.0, SERVER.0, 8, 5).build();
    let answer = ping(SERVER.0, CLIENT.0, 0, 5).build();
    assert_eq!(lives(std::slice::from_ref(&query), &answer), 90);
    assert_eq!(lives(&[query, answer.clone()], &answer), 90);
}

#[test]
fn the_defaults_are_those_of_the_page() {
    let bench = Bench::new("add-stateful all accept");
    let seconds = bench
        .reference
        .policy
        .connections
        .timeouts_ns
        .map(|ns| ns / 1_000_000_000);
    assert_eq!(
        seconds,
        [
            240, 240, 14_400, 240, 240, 10, 120, 300, 60, 30, 120, 600, 240, 240, 300, 300, 300, 30
        ]
    );
    assert_eq!(bench.reference.policy.connections.capacity, 65_536);
}

#[test]
fn every_packet_that_passes_lets_the_connection_live_on() {
    let mut bench = Bench::new(POLICY);
    bench.pass(&udp(CLIENT, SERVER).build());
    for _ in 0..5 {
        bench.wait(65.0);
        bench.pass(&udp(CLIENT, SERVER).build());
    }
    bench.wait(65.0);
    bench.pass(&udp(SERVER, CLIENT).build());
    bench.wait(75.0);
    assert_eq!(
        bench.run(&udp(SERVER, CLIENT).build()).connection,
        Some(Part::Reverse)
    );
    bench.wait(80.1);
    assert_eq!(bench.drop(&udp(SERVER, CLIENT).build()), Reason::RuleDrop);
}

#[test]
fn a_packet_that_is_dropped_does_not() {
    let mut bench = Bench::new(
        "add-stateful ip-saddr 10.0.0.0/8 log
         udp-payload == x62 drop",
    );
    let bad = udp(CLIENT, SERVER).payload(b"bad").build();
    bench.pass(&udp(CLIENT, SERVER).build());
    bench.wait(100.0);
    assert_eq!(bench.run(&bad).connection, Some(Part::Forward));
    bench.wait(30.0);
    // It would open one, if no stateless rule dropped it.
    assert_eq!(bench.run(&bad).connection, None);
    assert_eq!(bench.run(&udp(SERVER, CLIENT).build()).connection, None);
}

#[test]
fn time_that_runs_backwards_is_no_time() {
    let mut bench = Bench::new(POLICY);
    bench.run_at_ns(&udp(CLIENT, SERVER).build(), 500_000_000_000);
    let early = bench.run_at_ns(&udp(SERVER, CLIENT).build(), 5);
    assert_eq!(early.connection, Some(Part::Reverse));
    // `last` is still the later time.
    let late = bench.run_at_ns(&udp(SERVER, CLIENT).build(), 580_000_000_000);
    assert_eq!(late.connection, Some(Part::Reverse));
}

#[test]
fn a_syn_starts_anew_once_a_connection_is_over() {
    for end in [vec![out(RST)], vec![out(FIN | ACK), back(FIN | ACK)]] {
        let mut bench = Bench::new(POLICY);
        bench.pass(&out(SYN));
        bench.pass(&back(SYN | ACK));
        end.iter().for_each(|packet| drop(bench.pass(packet)));
        // Neither of these does.
        for packet in [back(SYN | ACK), out(ACK), back(ACK)] {
            assert_ne!(bench.run(&packet).connection, Some(Part::Opened));
        }
        // From outside nothing may be opened, and the old connection is not there for this packet.
        assert_eq!(bench.drop(&back(SYN)), Reason::RuleDrop);
        assert_eq!(bench.run(&back(ACK)).connection, Some(Part::Reverse));
        assert_eq!(bench.run(&out(SYN)).connection, Some(Part::Opened));
        bench.wait(11.0);
        assert_eq!(bench.drop(&back(ACK)), Reason::RuleDrop);
    }
    // Nor is there anything to start anew for who knows the translated tuple only.
    let mut bench = Bench::new("add-stateful all map ip-saddr 192.0.2.1");
    bench.pass(&out(SYN));
    bench.pass(&out(RST));
    let answer = tcp(SERVER, (OUTSIDE, CLIENT.1), SYN).build();
    assert_eq!(bench.run(&answer).connection, Some(Part::Reverse));
    assert_eq!(bench.run(&back(SYN)).connection, Some(Part::Opened));
    // One FIN is not the end.
    let mut bench = Bench::new(POLICY);
    bench.pass(&out(SYN));
    bench.pass(&back(SYN | ACK));
    bench.pass(&out(FIN | ACK));
    assert_eq!(bench.run(&out(SYN)).connection, Some(Part::Forward));
}

#[test]
fn the_smallest_timeout_of_the_rules_stands_in_for_that_of_answered_connections() {
    let text = "
        add-stateful ip-saddr 10.0.0.0/8 accept timeout 2m
        add-stateful ip-saddr 10.0.0.0/8 accept timeout 45s
        add-stateful ip-saddr 10.0.0.0/8 accept
        add-stateful ip-daddr 203.0.113.1 accept timeout 1s
        all drop";
    let lives_for = |packets: &[Vec<u8>], probe: &[u8], seconds: f64| {
        let asked = |wait: f64| {
            let mut bench = Bench::new(text);
            packets.iter().for_each(|packet| drop(bench.pass(packet)));
            bench.wait(wait);
            bench.run(probe).verdict == Verdict::Pass
        };
        asked(seconds) && !asked(seconds + 0.5)
    };
    let (a, b) = (udp(CLIENT, SERVER).build(), udp(SERVER, CLIENT).build());
    assert!(
        lives_for(std::slice::from_ref(&a), &b, 120.0),
        "udp-new keeps its own"
    );
    assert!(lives_for(&[a, b.clone()], &b, 45.0));
    assert!(lives_for(
        &[out(SYN), back(SYN | ACK), out(ACK)],
        &back(ACK),
        45.0
    ));
    assert!(lives_for(&[out(SYN), back(SYN | ACK)], &back(ACK), 240.0));
    assert!(lives_for(
        &[ping(CLIENT.0, SERVER.0, 8, 5).build()],
        &ping(SERVER.0, CLIENT.0, 0, 5).build(),
        45.0
    ));
}
