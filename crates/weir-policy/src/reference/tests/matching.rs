//! Section 2: what presence, negation and values mean for every kind of field.

use super::*;
use crate::model::PortName;
use crate::reference::PortId;

/// Whether `F`, `! F`, `F == V` and `! F == V` (that is `F != V`) match a frame.
fn four(name: &str, value: u128, frame: &Frame) -> [bool; 4] {
    let frame = frame.build();
    let negated = format!("! {name}");
    [
        holds(present(name), &frame),
        holds(present(&negated), &frame),
        holds(is(name, value), &frame),
        holds(is(&negated, value), &frame),
    ]
}

const Y: bool = true;
const N: bool = false;

#[test]
fn numbers_and_addresses() {
    let tcp = ip4().tcp(1024, 80);
    let arp = Frame::new().ether_type(0x0806).payload(&[0; 28]);
    assert_eq!(four("tcp-dport", 80, &tcp), [Y, N, Y, N]);
    assert_eq!(four("tcp-dport", 81, &tcp), [Y, N, N, Y]);
    assert_eq!(four("tcp-dport", 80, &ip4().udp(1, 80)), [N, Y, N, N]);
    assert_eq!(four("tcp-dport", 80, &arp), [N, Y, N, N]);
    assert_eq!(four("udp-dport", 80, &ip6().udp(1, 80)), [Y, N, Y, N]);
    assert_eq!(four("ip-saddr", 0x0a00_0001, &tcp), [Y, N, Y, N]);
    assert_eq!(
        four("ip-saddr", 0x0a00_0001, &ip6().tcp(1, 2)),
        [N, Y, N, N]
    );
    assert_eq!(
        four(
            "ip6-daddr",
            u128::from_be_bytes(address6(2)),
            &ip6().tcp(1, 2)
        ),
        [Y, N, Y, N]
    );
    assert_eq!(four("ip-ttl", 64, &tcp), [Y, N, Y, N]);
    assert_eq!(
        four("ip6-flow-label", 0xabcde, &ip6().flow_label(0xabcde)),
        [Y, N, Y, N]
    );
    assert_eq!(
        four("ip6-traffic-class", 0x9a, &ip6().traffic_class(0x9a)),
        [Y, N, Y, N]
    );
    assert_eq!(four("eth-type", 0x0806, &arp), [Y, N, Y, N]);
    assert_eq!(
        four("eth-type", 0x0806, &arp.clone().vlan(5).vlan(6)),
        [Y, N, Y, N]
    );
    assert_eq!(four("net-proto", 4, &tcp), [Y, N, Y, N]);
    assert_eq!(four("net-proto", 4, &ip6()), [Y, N, N, Y]);
    assert_eq!(four("net-proto", 4, &arp), [N, Y, N, N]);
    assert_eq!(four("icmp-type", 8, &ip4().icmp(8, 0)), [Y, N, Y, N]);
    assert_eq!(four("icmp-type", 8, &ip6().icmp(8, 0)), [N, Y, N, N]);
    assert_eq!(four("icmp6-type", 135, &ip6().icmp(135, 0)), [Y, N, Y, N]);
}

#[test]
fn one_bit_fields_ask_for_their_header_when_negated() {
    let syn = ip4().tcp(1, 2).flags(Frame::SYN);
    assert_eq!(four("tcp-syn", 1, &syn), [Y, N, Y, N]);
    assert_eq!(four("tcp-ack", 1, &syn), [N, Y, N, Y]);
    assert_eq!(four("tcp-syn", 1, &ip4().udp(1, 2)), [N, N, N, N]);
    let ce = ip4().traffic_class(3);
    for (name, expected) in [
        ("ip-ce", [Y, N]),
        ("ip-ect0", [N, Y]),
        ("ip-ect1", [N, Y]),
        ("ip-non-ect", [N, Y]),
    ] {
        assert_eq!(four(name, 3, &ce)[..2], expected, "{name}");
        assert_eq!(four(name, 3, &ip6())[..2], [N, N], "{name}");
    }
    assert_eq!(four("ip-non-ect", 0, &ip4())[..2], [Y, N]);
    assert_eq!(four("ip-df", 1, &ip4()), [Y, N, Y, N]);
    assert_eq!(four("vlan-dei", 1, &ip4().tag(0x8100, 0x1005))[..2], [Y, N]);
    assert_eq!(four("vlan-dei", 1, &ip4().vlan(5))[..2], [N, Y]);
    assert_eq!(four("vlan-dei", 1, &ip4())[..2], [N, N]);
    assert_eq!(four("ip6-mf", 1, &ip6().fragment(0, true)), [Y, N, Y, N]);
    assert_eq!(four("ip6-mf", 1, &ip6().fragment(2, false)), [N, Y, N, Y]);
    assert_eq!(four("ip6-mf", 1, &ip6()), [N, N, N, N]);
}

#[test]
fn tags_and_fragments() {
    let two = ip4().tag(0x88a8, 0xe005).vlan(6);
    assert_eq!(four("vlan", 0, &two)[..2], [Y, N]);
    assert_eq!(four("vlan2", 0, &two)[..2], [Y, N]);
    assert_eq!(four("vlan2", 0, &ip4().vlan(5))[..2], [N, Y]);
    assert_eq!(four("vlan", 0, &ip4())[..2], [N, Y]);
    assert_eq!(four("vlan-id", 5, &two), [Y, N, Y, N]);
    assert_eq!(four("vlan-pcp", 7, &two), [Y, N, Y, N]);
    assert_eq!(four("vlan2-id", 6, &two), [Y, N, Y, N]);
    assert_eq!(four("vlan2-id", 6, &ip4().vlan(6)), [N, Y, N, N]);

    let rows = [
        (ip4().fragment(0, true), [Y, Y, N]),
        (ip4().fragment(3, true), [Y, N, Y]),
        (ip4().fragment(3, false), [Y, N, Y]),
        (ip4(), [N, N, N]),
        (ip6().fragment(0, true), [Y, Y, N]),
        (ip6().fragment(1, false), [Y, N, Y]),
        (ip6().fragment(0, false), [N, N, N]),
        (Frame::new(), [N, N, N]),
    ];
    for (frame, expected) in rows {
        let frame = frame.payload(&[0; 8]).build();
        for (name, expected) in ["frag", "frag-first", "frag-later"]
            .into_iter()
            .zip(expected)
        {
            assert_eq!(holds(present(name), &frame), expected, "{name}");
            assert_eq!(
                holds(present(&format!("! {name}")), &frame),
                !expected,
                "! {name}"
            );
        }
    }
    assert_eq!(
        four("ip6-frag-offset", 1, &ip6().fragment(1, false)),
        [Y, N, Y, N]
    );
    assert_eq!(
        four("ip6-frag-id", 7, &ip6().fragment(0, false)),
        [Y, N, Y, N]
    );
    assert_eq!(four("ip6-frag-id", 7, &ip6()), [N, Y, N, N]);
    assert_eq!(
        four("ip-frag-offset", 3, &ip4().fragment(3, true)),
        [Y, N, Y, N]
    );
}

#[test]
fn tcp_options() {
    let syn = ip4()
        .tcp(1, 2)
        .tcp_option(2, &[5, 180])
        .tcp_bytes(&[1, 1])
        .tcp_option(4, &[]);
    assert_eq!(four("tcp-opt-mss", 1460, &syn), [Y, N, Y, N]);
    assert_eq!(four("tcp-opt 2", 1460, &syn), [Y, N, Y, N]);
    assert_eq!(four("tcp-opt-sackp", 0, &syn)[..2], [Y, N]);
    assert_eq!(four("tcp-opt-wscale", 7, &syn), [N, Y, N, N]);
    assert_eq!(four("tcp-opt", 0, &syn)[..2], [Y, N]);
    assert_eq!(
        four("tcp-opt", 0, &ip4().tcp(1, 2).tcp_bytes(&[1, 1, 0, 2]))[..2],
        [N, Y]
    );
    assert_eq!(four("tcp-opt 1", 0, &syn)[..2], [N, Y]);
    assert_eq!(four("tcp-opt-mss", 1460, &ip4().udp(1, 2)), [N, N, N, N]);

    // Another length than the kind's: present, never comparable.
    let odd = ip4()
        .tcp(1, 2)
        .tcp_option(2, &[180])
        .tcp_option(8, &[0; 4])
        .tcp_option(3, &[]);
    assert_eq!(four("tcp-opt-mss", 180, &odd), [Y, N, N, N]);
    assert_eq!(four("tcp-opt-timestamp", 0, &odd), [Y, N, N, N]);
    assert_eq!(four("tcp-opt-wscale", 0, &odd), [Y, N, N, N]);
    assert!(!holds(bytes("tcp-opt 2", &[180]), &odd.build()));

    // The last duplicate counts.
    let twice = ip4().tcp(1, 2).tcp_option(3, &[1]).tcp_option(3, &[2]);
    assert_eq!(four("tcp-opt-wscale", 2, &twice), [Y, N, Y, N]);
    assert_eq!(four("tcp-opt-wscale", 1, &twice), [Y, N, N, Y]);

    // Numbers up to 8 bytes; a prefix of bytes for hex literals.
    let other = ip4()
        .tcp(1, 2)
        .tcp_option(253, &[0, 0, 0, 0, 0, 0, 1, 0])
        .tcp_option(254, &[9; 9])
        .tcp_option(34, &[]);
    assert_eq!(four("tcp-opt 253", 256, &other), [Y, N, Y, N]);
    assert_eq!(four("tcp-opt 254", 0, &other), [Y, N, N, N]);
    assert_eq!(four("tcp-opt-fast-open", 0, &other), [Y, N, N, N]);
    let other = other.build();
    assert!(holds(bytes("tcp-opt 254", &[9, 9]), &other));
    assert!(!holds(bytes("! tcp-opt 254", &[9, 9]), &other));
    assert!(holds(bytes("! tcp-opt 254", &[9; 10]), &other));
    assert!(holds(bytes("! tcp-opt-fast-open", &[1]), &other));
    assert!(!holds(bytes("! tcp-opt-mptcp", &[1]), &other));
    assert!(holds(
        within("tcp-opt 253", &[(0, 255), (256, 256)]),
        &other
    ));
}

#[test]
fn ip_options_and_extension_headers() {
    let alert = ip4().ip_options(&[1, 148, 4, 0, 0]).tcp(1, 2);
    assert_eq!(four("ip-opt-router-alert", 0, &alert)[..2], [Y, N]);
    assert_eq!(four("ip-opt", 0, &alert)[..2], [Y, N]);
    assert_eq!(four("ip-opt 148", 0, &alert)[..2], [Y, N]);
    assert_eq!(four("ip-opt-rr", 0, &alert)[..2], [N, Y]);
    assert_eq!(four("ip-opt 1", 0, &alert)[..2], [N, Y]);
    assert_eq!(four("ip-opt", 0, &ip4().ip_options(&[1, 1]))[..2], [N, Y]);
    assert_eq!(four("ip-opt", 0, &ip6())[..2], [N, N]);

    let chain = ip6().extension(0, &[]).fragment(0, false).tcp(1, 2);
    assert_eq!(four("ip6-eh", 0, &chain)[..2], [Y, N]);
    assert_eq!(four("ip6-eh-hopbyhop", 0, &chain)[..2], [Y, N]);
    assert_eq!(four("ip6-eh-fragment", 0, &chain)[..2], [Y, N]);
    assert_eq!(four("ip6-eh-routing", 0, &chain)[..2], [N, Y]);
    assert_eq!(
        four("ip6-eh-esp", 0, &ip6().extension(50, &[]))[..2],
        [Y, N]
    );
    assert_eq!(four("ip6-eh", 0, &ip6())[..2], [N, Y]);
    assert_eq!(four("ip6-eh", 0, &ip4())[..2], [N, N]);
    // What is behind the chain has its fields.
    assert_eq!(four("tcp-dport", 2, &chain), [Y, N, Y, N]);
}

#[test]
fn payloads() {
    let udp = ip4().udp(1, 2).payload(b"GET /").trailer(b"xyz").build();
    assert!(holds(bytes("udp-payload", b"GET"), &udp));
    assert!(holds(bytes("udp-payload[4]", b"/"), &udp));
    assert!(!holds(bytes("udp-payload[4]", b"/x"), &udp));
    assert!(holds(bytes("! udp-payload[4]", b"/x"), &udp));
    assert!(holds(bytes("! udp-payload[99]", b"/"), &udp));
    assert!(holds(bytes("ip-payload[8]", b"GET"), &udp));
    assert!(holds(bytes("ip-payload", &[0, 1, 0, 2]), &udp));
    assert!(!holds(bytes("! tcp-payload", b"GET"), &udp));
    assert!(!holds(bytes("! ip6-payload", b"GET"), &udp));
    assert!(holds(present("udp-payload"), &ip4().udp(1, 2).build()));
    assert!(holds(present("! tcp-payload"), &udp));

    let later = ip4()
        .fragment(1, false)
        .protocol(17)
        .payload(b"GET")
        .build();
    assert!(holds(bytes("ip-payload", b"GET"), &later));
    assert!(holds(present("! udp-payload"), &later));
    let esp = ip6()
        .extension(50, &[1, 2, 3, 4, 5, 6])
        .payload(b"GET")
        .build();
    assert!(holds(bytes("ip6-payload[8]", b"GET"), &esp));
}

#[test]
fn ports_and_queues() {
    let frame = Frame::new().build();
    let port = |text: &str, ports: &[PortName]| matching_test(text, Test::Port(ports.to_vec()));
    let (lan, seven) = (PortName::Name("lan".to_owned()), PortName::Index(7));
    for (one, expected) in [
        (port("in", std::slice::from_ref(&lan)), Y),
        (port("! in", std::slice::from_ref(&lan)), N),
        (port("in", &[PortName::Name("LAN".to_owned())]), N),
        (port("in", std::slice::from_ref(&seven)), Y),
        (
            port(
                "in",
                &[PortName::Index(8), PortName::Name("wan".to_owned())],
            ),
            N,
        ),
        (port("! in", &[PortName::Index(8)]), Y),
        (port("in", &[PortName::Index(8), lan.clone()]), Y),
        (port("out", &[lan]), N),
        (is("queue", 3), Y),
        (within("! queue", &[(0, 2)]), Y),
        (present("in"), Y),
        (present("! queue"), N),
    ] {
        let rule = policy(vec![(vec![one.clone()], vec![Target::Accept])]);
        let input = Input {
            port: PortId {
                name: Some("lan"),
                index: 7,
            },
            queue: 3,
            ..Input::new(&frame)
        };
        let outcome = Reference::new(rule, Options::default()).run(input);
        assert_eq!(!outcome.matched.is_empty(), expected, "{one:?}");
    }
}

#[test]
fn a_rule_covers_the_classes_its_targets_name() {
    let rules = policy(vec![
        (all(), vec![set("tcp-win", 1)]),
        (vec![present("! tcp-dport")], vec![Target::Accept]),
        (all(), vec![set("ip-ttl", 1), set("vlan-id", 2)]),
    ]);
    let matched = |frame: Frame| {
        Reference::new(rules.clone(), Options::default())
            .run(Input::new(&frame.build()))
            .matched
    };
    assert_eq!(matched(ip4().tcp(1, 2)), [1]);
    assert_eq!(matched(ip6().tcp(1, 2).vlan(3)), [1]);
    assert_eq!(matched(ip4().tcp(1, 2).vlan(3)), [1, 3]);
    assert_eq!(matched(ip6().udp(1, 2)), [2]);
    assert_eq!(matched(Frame::new()), [2]);
}
