//! Helpers and what they expect: docs/semantics.md section 7, "Expectations".

use super::*;

const TFTP: End = (SERVER.0, 69);
/// The port that the server answers from.
const DATA: End = (SERVER.0, 3000);
const STRANGER: [u8; 4] = [203, 0, 113, 5];

const READ: &[u8] = b"\x00\x01boot\x00octet\x00";
const WRITE: &[u8] = b"\x00\x02boot\x00octet\x00";
const BLOCK: &[u8] = b"\x00\x03\x00\x01data";
const ACKNOWLEDGED: &[u8] = b"\x00\x04\x00\x01";

fn nat() -> Bench {
    Bench::new(
        "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 accept
         add-stateful udp-dport 69 helper tftp
         all drop",
    )
}

fn send(from: End, to: End, payload: &[u8]) -> Vec<u8> {
    udp(from, to).payload(payload).build()
}

/// The host asks; returns its end outside.
fn ask(bench: &mut Bench, client: End) -> End {
    ends(&bench.pass(&send(client, TFTP, READ))).0
}

#[test]
fn an_answer_from_another_port_is_of_the_connection_that_asked() {
    for request in [READ, WRITE] {
        let mut bench = nat();
        let outer = ends(&bench.pass(&send(CLIENT, TFTP, request))).0;
        assert_eq!(outer.0, OUTSIDE);
        let outcome = bench.run(&send(DATA, outer, BLOCK));
        assert_eq!(outcome.connection, Some(Part::Opened));
        // The rules of the connection that asked, and those that match the packet itself.
        assert_eq!(outcome.matched, [1, 2, 3]);
        assert_eq!(ends(&outcome.frame), (DATA, CLIENT));
        assert_right(&outcome.frame);
        let answer = bench.pass(&send(CLIENT, DATA, ACKNOWLEDGED));
        assert_eq!(ends(&answer), (outer, DATA));
        let more = bench.pass(&send(DATA, outer, b"anything"));
        assert_eq!(ends(&more), (DATA, CLIENT));
    }
    // Without the helper nobody may answer from another port.
    let mut plain = Bench::new(
        "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 accept
         all drop",
    );
    let outer = ask(&mut plain, CLIENT);
    assert_eq!(plain.drop(&send(DATA, outer, BLOCK)), Reason::RuleDrop);
}

#[test]
fn two_hosts_with_the_same_port_get_their_own_answers() {
    let mut bench = nat();
    let (first, second) = (ask(&mut bench, CLIENT), ask(&mut bench, OTHER_CLIENT));
    assert_ne!(first.1, second.1);
    let to_second = bench.pass(&send(DATA, second, BLOCK));
    assert_eq!(ends(&to_second), (DATA, OTHER_CLIENT));
    let to_first = bench.pass(&send(DATA, first, BLOCK));
    assert_eq!(ends(&to_first), (DATA, CLIENT));
}

#[test]
fn without_translation_and_over_ipv6() {
    let mut bench = Bench::new(
        "add-stateful udp-dport 69 helper tftp accept
         all drop",
    );
    assert_eq!(ask(&mut bench, CLIENT), CLIENT);
    let data = bench.pass(&send(DATA, CLIENT, BLOCK));
    assert_eq!(ends(&data), (DATA, CLIENT));
    let (client, server): ([u8; 16], [u8; 16]) = ([0x20; 16], [0x21; 16]);
    let six = |from, to, ports: (u16, u16), payload: &[u8]| {
        let frame = Frame::new().ip6(from, to).udp(ports.0, ports.1);
        frame.payload(payload).build()
    };
    bench.pass(&six(client, server, (4000, 69), READ));
    bench.drop(&six(client, server, (4001, 3000), BLOCK));
    bench.pass(&six(server, client, (3000, 4000), BLOCK));
    bench.drop(&six(server, client, (3001, 4000), BLOCK));
}

#[test]
fn a_server_behind_a_forwarded_port_answers_with_its_outer_address() {
    let mut bench = Bench::new(
        "add-stateful ip-daddr 192.0.2.1 udp-dport 69 map ip-daddr 10.0.0.1 map udp-dport 6969 helper tftp accept
         all drop",
    );
    let client = (STRANGER, 4000);
    let asked = bench.pass(&send(client, (OUTSIDE, 69), READ));
    assert_eq!(ends(&asked), (client, ([10, 0, 0, 1], 6969)));
    let data = bench.pass(&send(([10, 0, 0, 1], 3000), client, BLOCK));
    assert_eq!(ends(&data), ((OUTSIDE, 3000), client));
    let answer = bench.pass(&send(client, (OUTSIDE, 3000), ACKNOWLEDGED));
    assert_eq!(ends(&answer), (client, ([10, 0, 0, 1], 3000)));
}

#[test]
fn an_expectation_is_used_once() {
    let mut bench = nat();
    let outer = ask(&mut bench, CLIENT);
    bench.pass(&send(DATA, outer, BLOCK));
    let second = (DATA.0, 3001);
    assert_eq!(bench.drop(&send(second, outer, BLOCK)), Reason::RuleDrop);
    // Each request expects one answer.
    bench.pass(&send(CLIENT, TFTP, READ));
    bench.pass(&send(CLIENT, TFTP, READ));
    bench.pass(&send(second, outer, BLOCK));
    assert_eq!(
        bench.drop(&send((DATA.0, 3002), outer, BLOCK)),
        Reason::RuleDrop
    );
}

#[test]
fn an_expectation_ends() {
    for (setting, seconds) in [("", 30.0), ("timeout expectation 5s\n", 5.0)] {
        let text = format!("{setting}add-stateful udp-dport 69 helper tftp accept\nall drop");
        let mut bench = Bench::new(&text);
        ask(&mut bench, CLIENT);
        let mut late = bench.clone();
        bench.wait(seconds);
        bench.pass(&send(DATA, CLIENT, BLOCK));
        late.wait(seconds + 0.1);
        assert_eq!(late.drop(&send(DATA, CLIENT, BLOCK)), Reason::RuleDrop);
    }
}

#[test]
fn nobody_but_the_server_and_nothing_but_an_answer_is_expected() {
    let mut bench = nat();
    let outer = ask(&mut bench, CLIENT);
    let refused = [
        ("another host", send((STRANGER, 3000), outer, BLOCK)),
        ("another port", send(DATA, (outer.0, outer.1 + 2), BLOCK)),
        (
            "another address",
            send(DATA, ([192, 0, 2, 2], outer.1), BLOCK),
        ),
        ("a request", send(DATA, outer, READ)),
        ("no TFTP", send(DATA, outer, b"\x00\x07\x00\x01data")),
        ("no opcode", send(DATA, outer, b"data")),
        ("too short", send(DATA, outer, b"\x00\x03\x00")),
        ("TCP", tcp(DATA, outer, Frame::SYN).payload(BLOCK).build()),
    ];
    for (what, frame) in refused {
        assert_eq!(bench.drop(&frame), Reason::RuleDrop, "{what}");
    }
    bench.pass(&send(DATA, outer, BLOCK));
}

#[test]
fn only_a_complete_request_of_the_side_that_opened_expects_an_answer() {
    let first = udp(CLIENT, TFTP).payload(READ).fragment(0, true).build();
    let named = |length: usize| {
        let name = vec![b'x'; length - 8];
        [b"\x00\x01", &name[..], b"\x00mail\x00"].concat()
    };
    let asked = |frame: &[u8]| {
        let mut bench = nat();
        assert_eq!(bench.run(frame).verdict, Verdict::Pass);
        bench.run(&send(DATA, (OUTSIDE, CLIENT.1), BLOCK)).verdict == Verdict::Pass
    };
    for payload in [READ.to_vec(), WRITE.to_vec(), named(9), named(512)] {
        assert!(asked(&send(CLIENT, TFTP, &payload)));
    }
    for (what, payload) in [
        ("not ended", b"\x00\x01boot\x00octet".to_vec()),
        ("too short", named(8)),
        ("too long", named(513)),
        ("data", BLOCK.to_vec()),
        ("another opcode", b"\x01\x01boot\x00octet\x00".to_vec()),
    ] {
        assert!(!asked(&send(CLIENT, TFTP, &payload)), "{what}");
    }
    assert!(!asked(&first), "a fragment");
    // What the server says is no request, and asks for nothing of the client.
    let mut bench = nat();
    let outer = ends(&bench.pass(&send(CLIENT, TFTP, b"hello"))).0;
    bench.pass(&send(TFTP, outer, READ));
    let other = (CLIENT.0, 4001);
    let sent = ends(&bench.pass(&send(other, TFTP, b"hello"))).0;
    assert_eq!(bench.drop(&send(DATA, sent, BLOCK)), Reason::RuleDrop);
    assert_eq!(bench.drop(&send(DATA, outer, BLOCK)), Reason::RuleDrop);
}

#[test]
fn no_helper_opens_the_port_of_a_server() {
    let mut bench = nat();
    let low = (CLIENT.0, 1023);
    let outer = ask(&mut bench, low);
    assert_eq!(bench.drop(&send(DATA, outer, BLOCK)), Reason::RuleDrop);
    // The port outside counts as well.
    let mut bench = Bench::new(
        "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 map udp-sport 53 helper tftp accept
         all drop",
    );
    let outer = ask(&mut bench, CLIENT);
    assert_eq!(bench.drop(&send(DATA, outer, BLOCK)), Reason::RuleDrop);
}

#[test]
fn a_connection_that_was_expected_expects_nothing() {
    let mut bench = Bench::new(
        "add-stateful udp-dport 69 helper tftp accept
         all drop",
    );
    ask(&mut bench, CLIENT);
    bench.pass(&send(DATA, CLIENT, BLOCK));
    // The server opened it, and sends what looks like a request.
    bench.pass(&send(DATA, CLIENT, READ));
    let other_port = send((CLIENT.0, 5000), DATA, BLOCK);
    assert_eq!(bench.drop(&other_port), Reason::RuleDrop);
}

#[test]
fn stateful_rules_do_not_match_what_is_expected_and_stateless_drops_hold() {
    let mut bench = Bench::new(
        "add-stateful udp-dport 69 helper tftp
         add-stateful ip-saddr 198.51.100.7 drop
         ip-ttl 9 drop",
    );
    ask(&mut bench, CLIENT);
    // A packet that is dropped uses nothing up.
    assert_eq!(
        bench.drop(&udp(DATA, CLIENT).ttl(9).payload(BLOCK).build()),
        Reason::RuleDrop
    );
    let outcome = bench.run(&send(DATA, CLIENT, BLOCK));
    assert_eq!(
        (outcome.verdict, &outcome.matched[..]),
        (Verdict::Pass, &[1][..])
    );
    assert_eq!(
        bench.drop(&send((DATA.0, 3001), CLIENT, BLOCK)),
        Reason::RuleDrop
    );
}

#[test]
fn a_taken_tuple_refuses_the_answer() {
    let mut bench = Bench::new(
        "add-stateful udp-dport 69 map ip-saddr 192.0.2.1 helper tftp accept
         add-stateful ip-saddr 10.0.0.1 ! udp-dport 69 accept
         all drop",
    );
    let outer = ask(&mut bench, CLIENT);
    // The host talks to that port of the server already, with its own address.
    bench.pass(&send(CLIENT, DATA, b"x"));
    assert_eq!(bench.drop(&send(DATA, outer, BLOCK)), Reason::PoolBusy);
    assert_eq!(bench.drop(&send(DATA, outer, BLOCK)), Reason::RuleDrop);
}
