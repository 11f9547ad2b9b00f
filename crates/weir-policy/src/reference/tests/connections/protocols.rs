//! Protocols without an L4 header that weir knows: GRE, ESP, SCTP, AH and the rest.

use weir_packet::parse::protocol;

use super::*;

const GRE: u8 = 47;
const MASQUERADE: &str = "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1\n";
const HOST: [u8; 4] = [10, 0, 0, 1];
const OTHER_HOST: [u8; 4] = [10, 0, 0, 2];
const PEER: [u8; 4] = [198, 51, 100, 7];
const OTHER_PEER: [u8; 4] = [198, 51, 100, 8];

fn packet(number: u8, from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let frame = Frame::new().ip4(from, to).protocol(number);
    frame.payload(payload).build()
}

fn sctp(from: End, to: End) -> Vec<u8> {
    let ports = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    packet(protocol::SCTP, from.0, to.0, &[ports, vec![0; 12]].concat())
}

#[test]
fn one_host_has_the_tunnel_to_a_peer() {
    for number in [GRE, protocol::ESP, 4, 97] {
        let mut bench = Bench::new(MASQUERADE);
        let body = &[1, 2, 3, 4, 5, 6, 7, 8][..];
        let sent = bench.pass(&packet(number, HOST, PEER, body));
        assert_eq!(sent, packet(number, OUTSIDE, PEER, body));
        // What comes back says the same with other keys, call identifiers or SPIs.
        let answer = &[9; 8][..];
        let back = bench.pass(&packet(number, PEER, OUTSIDE, answer));
        assert_eq!(back, packet(number, PEER, HOST, answer));

        let other = packet(number, OTHER_HOST, PEER, body);
        assert_eq!(bench.drop(&other), Reason::NatPeerBusy, "{number}");
        let elsewhere = bench.pass(&packet(number, OTHER_HOST, OTHER_PEER, body));
        assert_eq!(elsewhere, packet(number, OUTSIDE, OTHER_PEER, body));

        bench.wait(600.1);
        let later = bench.pass(&other);
        assert_eq!(later, packet(number, OUTSIDE, PEER, body));
    }
}

#[test]
fn a_second_address_of_the_pool_takes_a_second_host() {
    let mut bench =
        Bench::new("add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1-192.0.2.2\n");
    let sources: std::collections::BTreeSet<u8> = [HOST, OTHER_HOST]
        .into_iter()
        .map(|host| bench.pass(&packet(GRE, host, PEER, &[0; 4]))[14 + 15])
        .collect();
    assert_eq!(sources.len(), 2);
    let third = packet(GRE, [10, 0, 0, 3], PEER, &[0; 4]);
    assert_eq!(bench.drop(&third), Reason::NatPeerBusy);
}

#[test]
fn sctp_keeps_its_ports() {
    let mut bench = Bench::new(MASQUERADE);
    let sent = bench.pass(&sctp((HOST, 4000), (PEER, 36412)));
    assert_eq!(sent, sctp((OUTSIDE, 4000), (PEER, 36412)));
    let back = bench.pass(&sctp((PEER, 36412), (OUTSIDE, 4000)));
    assert_eq!(back, sctp((PEER, 36412), (HOST, 4000)));
    // Another port is another association; the same one cannot be told apart.
    let second = bench.pass(&sctp((OTHER_HOST, 4001), (PEER, 36412)));
    assert_eq!(second, sctp((OUTSIDE, 4001), (PEER, 36412)));
    let taken = sctp((OTHER_HOST, 4000), (PEER, 36412));
    assert_eq!(bench.drop(&taken), Reason::NatPeerBusy);
    // Too short for an SCTP header: as any other protocol.
    let short = packet(
        protocol::SCTP,
        HOST,
        PEER,
        &[0x0f, 0xa0, 0x8e, 0x3c, 0, 0, 0],
    );
    let sent = bench.pass(&short);
    assert_eq!(sent[26..30], OUTSIDE);
}

#[test]
fn an_authentication_header_is_never_translated() {
    let ah = packet(
        protocol::AH,
        HOST,
        PEER,
        &[50, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
    );
    assert_eq!(Bench::new(MASQUERADE).drop(&ah), Reason::NatProtocol);
    // Without NAT it has connections as others.
    let mut firewall = Bench::new("add-stateful ip-saddr 10.0.0.0/8 accept\nall drop\n");
    assert_eq!(firewall.pass(&ah), ah);
    let back = packet(
        protocol::AH,
        PEER,
        HOST,
        &[50, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
    );
    assert_eq!(firewall.pass(&back), back);

    // In IPv6 it stands in front of TCP, whose connection may be translated.
    let (a, b) = (
        OUTSIDE6,
        [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
    );
    let udp = |from, to, ports: (u16, u16), authenticated: bool| {
        let frame = Frame::new().ip6(from, to);
        let frame = if authenticated {
            frame.extension(protocol::AH, &[0; 6])
        } else {
            frame
        };
        frame.udp(ports.0, ports.1).payload(b"x").build()
    };
    let mut bench =
        Bench::new("add-stateful ip6-saddr 2001:db8::/64 map ip6-saddr 2001:db8:900::1\n");
    assert_eq!(bench.drop(&udp(b, a, (5, 6), true)), Reason::NatProtocol);
    assert!(bench.pass(&udp(b, [9; 16], (5, 6), false))[22..38] == OUTSIDE6);
    let within = udp(b, [9; 16], (5, 6), true);
    assert_eq!(bench.drop(&within), Reason::NatProtocol);
    let answer = udp([9; 16], OUTSIDE6, (6, 5), true);
    assert_eq!(bench.drop(&answer), Reason::NatProtocol);
}

#[test]
fn groups_of_the_link_have_no_connection() {
    let mut bench = Bench::new(MASQUERADE);
    for group in [[224, 0, 0, 5], [224, 0, 0, 255]] {
        let hello = packet(89, HOST, group, &[2; 24]);
        assert_eq!(bench.pass(&hello), hello);
    }
    let sent = bench.pass(&packet(89, HOST, [224, 0, 1, 5], &[2; 24]));
    assert_eq!(sent[26..30], OUTSIDE);

    let mut bench = Bench::new("add-stateful all map ip6-saddr 2001:db8:900::1\n");
    let ospf = |group: [u8; 2]| {
        let mut to = [0; 16];
        to[..2].copy_from_slice(&group);
        let from = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        let frame = Frame::new().ip6(from, to).protocol(89);
        frame.payload(&[3; 16]).build()
    };
    for group in [[0xff, 1], [0xff, 2], [0xff, 0x12]] {
        assert_eq!(bench.pass(&ospf(group)), ospf(group));
    }
    for group in [[0xff, 5], [0xff, 0x0e], [0xff, 0]] {
        assert_eq!(bench.pass(&ospf(group))[22..38], OUTSIDE6, "{group:x?}");
    }
}

#[test]
fn errors_about_them_are_translated() {
    let mut bench = Bench::new(MASQUERADE);
    let body = [7; 8];
    let sent = bench.pass(&packet(GRE, HOST, PEER, &body));
    let unreachable = |from: [u8; 4], to: [u8; 4], about: &[u8]| {
        let frame = Frame::new().ip4(from, to).icmp(3, 2);
        frame.payload(&about[14..]).build()
    };
    let seen = bench.pass(&unreachable(PEER, OUTSIDE, &sent));
    let meant = unreachable(PEER, HOST, &packet(GRE, HOST, PEER, &body));
    assert_eq!(seen, meant);
    // Of a router on the way only what it quotes and where it goes change.
    let seen = bench.pass(&unreachable(OTHER_PEER, OUTSIDE, &sent));
    let meant = unreachable(OTHER_PEER, HOST, &packet(GRE, HOST, PEER, &body));
    assert_eq!(seen, meant);
}

#[test]
fn fragments_follow_their_first() {
    let mut bench = Bench::new(MASQUERADE);
    let part = |from: [u8; 4], offset: u16, more: bool| {
        let frame = Frame::new().ip4(from, PEER).id(9).fragment(offset, more);
        frame.protocol(protocol::ESP).payload(&[6; 16]).build()
    };
    assert_eq!(bench.drop(&part(HOST, 2, false)), Reason::FragBeforeFirst);
    assert_eq!(bench.pass(&part(HOST, 0, true)), part(OUTSIDE, 0, true));
    assert_eq!(bench.pass(&part(HOST, 2, false)), part(OUTSIDE, 2, false));
}

#[test]
fn their_states_and_timeouts() {
    let mut bench = Bench::new("add-stateful ip-saddr 10.0.0.0/8 accept\nall drop\n");
    let out = packet(GRE, HOST, PEER, &[0; 4]);
    let back = packet(GRE, PEER, HOST, &[0; 4]);
    bench.pass(&out);
    bench.wait(120.1);
    assert_eq!(bench.drop(&back), Reason::RuleDrop);
    bench.pass(&out);
    bench.wait(119.9);
    bench.pass(&back);
    bench.wait(599.9);
    bench.pass(&back);
    bench.wait(600.1);
    assert_eq!(bench.drop(&back), Reason::RuleDrop);

    let mut own = Bench::new("add-stateful ip-saddr 10.0.0.0/8 accept timeout 1h\nall drop\n");
    own.pass(&out);
    own.pass(&back);
    own.wait(3599.9);
    own.pass(&back);
}
