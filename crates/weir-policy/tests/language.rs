//! What rules mean once they are read: every spelling, condition, value form and target, and the lowering that
//! docs/semantics.md states.

use std::io;
use std::sync::Arc;

use weir_policy::field::{FIELDS, Field, Kind};
use weir_policy::model::{
    Classes, DropWhen, KindSet, LogLimit, Match, Per, PortName, Ranges, Rule, Subject, Target, Test,
};
use weir_policy::{NoFiles, Parsed, SetLoader, Source, describe, format_source, parse};

fn read(text: &str) -> Parsed {
    match parse(&Source::new("test.weir", text), &NoFiles) {
        Ok(parsed) => parsed,
        Err(errors) => panic!("{text}\n{errors}"),
    }
}

/// The only rule of a policy that is as it should be.
fn rule(text: &str) -> Rule {
    let parsed = read(text);
    assert!(parsed.warnings.is_empty(), "{}", parsed.warnings);
    let [rule] = parsed.policy.rules.as_slice() else {
        panic!("not one rule: {text}")
    };
    rule.clone()
}

/// The only match of a rule.
fn only(text: &str) -> Match {
    let rule = rule(&format!("{text} log"));
    let [one] = rule.matches.as_slice() else {
        panic!("not one match: {text}")
    };
    one.clone()
}

fn field(name: &str) -> Field {
    Field::find(name).unwrap_or_else(|| panic!("no field {name}"))
}

fn subject(name: &str) -> Subject {
    let option = match field(name).info().kind {
        Kind::TcpOption(kind) | Kind::Ip4Option(kind) => kind,
        _ => None,
    };
    Subject {
        field: field(name),
        option,
        at: 0,
    }
}

fn within(negated: bool, name: &str, intervals: &[(u128, u128)]) -> Match {
    Match {
        negated,
        subject: subject(name),
        test: Test::In(Ranges::new(intervals.to_vec()).into()),
    }
}

fn present(negated: bool, name: &str) -> Match {
    Match {
        negated,
        subject: subject(name),
        test: Test::Present,
    }
}

fn set(name: &str, value: u128) -> Target {
    Target::Set {
        field: field(name),
        value,
    }
}

fn kinds(list: &[u8]) -> KindSet {
    let mut set = KindSet::EMPTY;
    list.iter().for_each(|&k| set.insert(k));
    set
}

fn all_but(list: &[u8]) -> KindSet {
    let mut set = KindSet::ALL;
    list.iter().for_each(|&k| set.remove(k));
    set
}

#[test]
fn the_two_rules_of_the_paper() {
    let rewrite = rule("mmb add tcp-dport 80 mod tcp-dport 443");
    assert_eq!(rewrite.id, 1);
    assert_eq!(rewrite.requires, Classes::TCP);
    assert_eq!(rewrite.matches, [within(false, "tcp-dport", &[(80, 80)])]);
    assert_eq!(rewrite.targets, [set("tcp-dport", 443)]);

    let strip = rule("mmb add tcp-opt-timestamp strip ! tcp-opt-mss strip ! tcp-opt-wscale");
    assert_eq!(strip.matches, [present(false, "tcp-opt-timestamp")]);
    assert_eq!(strip.targets, [Target::Strip(all_but(&[2, 3]))]);
}

/// The idioms that mmb's own tutorials use, in its spelling.
#[test]
fn the_idioms_of_mmb() {
    for (text, targets) in [
        (
            "mmb add ip-ecn 1 mod ip-ecn 3 mod ip-dscp 2",
            vec![set("ip-ecn", 3), set("ip-dscp", 2)],
        ),
        (
            "mmb add ip-ect0 mod ip-ce mod ip-dscp 2",
            vec![set("ip-ce", 3), set("ip-dscp", 2)],
        ),
        (
            "mmb add tcp-syn tcp-opt-mss strip tcp-opt-mss add tcp-opt-mss 1452",
            vec![
                Target::Strip(kinds(&[2])),
                Target::AddOption {
                    kind: 2,
                    value: vec![5, 0xac],
                },
            ],
        ),
        (
            "mmb add tcp-opt-mss != 1460 mod tcp-opt-mss 1460",
            vec![Target::SetOption {
                kind: 2,
                value: vec![5, 0xb4],
            }],
        ),
        (
            "mmb add tcp-syn ! tcp-opt-mss add tcp-opt-mss 1460",
            vec![Target::AddOption {
                kind: 2,
                value: vec![5, 0xb4],
            }],
        ),
        (
            "mmb add tcp-syn ! tcp-opt-wscale add tcp-opt-wscale 8",
            vec![Target::AddOption {
                kind: 3,
                value: vec![8],
            }],
        ),
        (
            "mmb add tcp-opt-wscale != 8 mod tcp-opt-wscale 8",
            vec![Target::SetOption {
                kind: 3,
                value: vec![8],
            }],
        ),
        (
            "mmb add ip-proto tcp mod ip-dscp 8",
            vec![set("ip-dscp", 8)],
        ),
        (
            "mmb add ip-proto udp mod ip-dscp 16",
            vec![set("ip-dscp", 16)],
        ),
        (
            "mmb add ip-proto icmp mod ip-dscp 24",
            vec![set("ip-dscp", 24)],
        ),
        (
            "mmb add tcp-syn tcp-ece tcp-cwr drop",
            vec![Target::Drop(DropWhen::Always)],
        ),
        (
            "mmb add all drop 0.1",
            vec![Target::Drop(DropWhen::Random {
                below: (1 << 32) / 1000,
            })],
        ),
        (
            "mmb add-stateless tcp-dport 23 drop",
            vec![Target::Drop(DropWhen::Always)],
        ),
        (
            "mmb add ip-proto != tcp drop",
            vec![Target::Drop(DropWhen::Always)],
        ),
        (
            "mmb add tcp-syn strip ! tcp-opt-mss strip ! tcp-opt-wscale",
            vec![Target::Strip(all_but(&[2, 3]))],
        ),
        ("mmb add all strip all", vec![Target::Strip(KindSet::ALL)]),
    ] {
        assert_eq!(rule(text).targets, targets, "{text}");
    }
}

#[test]
fn every_field_in_every_spelling_and_case() {
    for info in FIELDS {
        for name in std::iter::once(&info.name).chain(info.aliases) {
            for name in [(*name).to_owned(), name.to_uppercase()] {
                let value = match info.kind {
                    Kind::InPort | Kind::OutPort => " eth0",
                    _ => "",
                };
                if info.kind == Kind::CtState {
                    continue;
                }
                let m = only(&format!("{name}{value}"));
                assert_eq!(m.subject.field, field(info.name), "{name}");
                assert!(!m.negated);
                if info.kind != Kind::All
                    && !matches!(
                        info.name,
                        "queue"
                            | "mark"
                            | "priority"
                            | "hour"
                            | "day"
                            | "eth-type"
                            | "eth-saddr"
                            | "eth-daddr"
                    )
                {
                    assert!(only(&format!("! {name}{value}")).negated, "{name}");
                }
            }
        }
    }
}

#[test]
fn every_condition() {
    for (text, negated, intervals) in [
        ("ip-ttl 5", false, vec![(5, 5)]),
        ("ip-ttl == 5", false, vec![(5, 5)]),
        ("ip-ttl != 5", true, vec![(5, 5)]),
        ("ip-ttl < 5", false, vec![(0, 4)]),
        ("ip-ttl <= 5", false, vec![(0, 5)]),
        ("ip-ttl > 5", false, vec![(6, 255)]),
        ("ip-ttl >= 5", false, vec![(5, 255)]),
        ("ip-ttl 5-7", false, vec![(5, 7)]),
        ("ip-ttl == 5-7", false, vec![(5, 7)]),
        ("ip-ttl != 5-7", true, vec![(5, 7)]),
        ("ip-ttl in { 5, 7 }", false, vec![(5, 5), (7, 7)]),
        ("ip-ttl in {7,5-6,x10}", false, vec![(5, 7), (16, 16)]),
    ] {
        assert_eq!(only(text), within(negated, "ip-ttl", &intervals), "{text}");
        assert_eq!(
            only(&format!("! {text}")),
            within(!negated, "ip-ttl", &intervals),
            "! {text}"
        );
    }
    assert_eq!(only("!ip-ttl!=5"), within(false, "ip-ttl", &[(5, 5)]));
}

#[test]
fn every_form_of_value() {
    let high = 0x2001_0db8_u128 << 96;
    for (text, name, intervals) in [
        ("tcp-dport x50", "tcp-dport", vec![(80, 80)]),
        ("tcp-dport 0x0050", "tcp-dport", vec![(80, 80)]),
        ("tcp-dport X1F", "tcp-dport", vec![(31, 31)]),
        (
            "ip-saddr 10.0.0.1",
            "ip-saddr",
            vec![(0x0a00_0001, 0x0a00_0001)],
        ),
        (
            "ip-saddr x0a000001",
            "ip-saddr",
            vec![(0x0a00_0001, 0x0a00_0001)],
        ),
        (
            "ip-saddr 10.0.0.0/30",
            "ip-saddr",
            vec![(0x0a00_0000, 0x0a00_0003)],
        ),
        (
            "ip-saddr 10.0.0.1-10.0.0.9",
            "ip-saddr",
            vec![(0x0a00_0001, 0x0a00_0009)],
        ),
        (
            "ip6-saddr 2001:db8::1",
            "ip6-saddr",
            vec![(high + 1, high + 1)],
        ),
        (
            "ip6-saddr 2001:DB8::/127",
            "ip6-saddr",
            vec![(high, high + 1)],
        ),
        (
            "ip6-saddr 2001:db8::1-2001:db8::9",
            "ip6-saddr",
            vec![(high + 1, high + 9)],
        ),
        ("ip6-saddr > ::1", "ip6-saddr", vec![(2, u128::MAX)]),
        ("ip-proto TCP", "ip-proto", vec![(6, 6)]),
        ("ip-proto ipv6-icmp", "ip-proto", vec![(58, 58)]),
        ("ip-proto tcp-udp", "ip-proto", vec![(6, 17)]),
        ("ip6-next icmp6", "ip6-next", vec![(58, 58)]),
        (
            "ip-proto in { udp, udp-lite, 6 }",
            "ip-proto",
            vec![(6, 6), (17, 17), (136, 136)],
        ),
        ("eth-type arp", "eth-type", vec![(0x0806, 0x0806)]),
        ("ip-dscp ef", "ip-dscp", vec![(46, 46)]),
        ("ip6-dscp cs1-cs3", "ip6-dscp", vec![(8, 24)]),
        (
            "tcp-seq 4294967295",
            "tcp-seq-num",
            vec![(0xffff_ffff, 0xffff_ffff)],
        ),
        ("vlan-id in { 1-4095 }", "vlan-id", vec![(1, 4095)]),
    ] {
        assert_eq!(only(text), within(false, name, &intervals), "{text}");
    }
}

/// Names stand for their numbers in every place of a value, in any case, and whatever the machine calls them.
#[test]
fn names_of_values() {
    for (text, wanted) in [
        ("tcp-dport http", within(false, "tcp-dport", &[(80, 80)])),
        (
            "tcp-dport != HTTPS",
            within(true, "tcp-dport", &[(443, 443)]),
        ),
        ("tcp-sport < ssh", within(false, "tcp-sport", &[(0, 21)])),
        (
            "udp-dport in { dns, ntp, 5000-5010, snmp-snmptrap }",
            within(
                false,
                "udp-dport",
                &[(53, 53), (123, 123), (161, 162), (5000, 5010)],
            ),
        ),
        (
            "! udp-sport ftp-data-ssh",
            within(true, "udp-sport", &[(20, 22)]),
        ),
        (
            "tcp-dport 8000-http-alt",
            within(false, "tcp-dport", &[(8000, 8080)]),
        ),
        (
            "icmp-type echo-request",
            within(false, "icmp-type", &[(8, 8)]),
        ),
        (
            "icmp-type in { ping, destination-unreachable }",
            within(false, "icmp-type", &[(3, 3), (8, 8)]),
        ),
        (
            "icmp-code port-unreachable",
            within(false, "icmp-code", &[(3, 3)]),
        ),
        (
            "icmp6-type nd-router-solicit-nd-neighbor-advert",
            within(false, "icmp6-type", &[(133, 136)]),
        ),
        (
            "icmp6-type echo-request",
            within(false, "icmp6-type", &[(128, 128)]),
        ),
        (
            "icmp6-code port-unreachable",
            within(false, "icmp6-code", &[(4, 4)]),
        ),
        (
            "eth-type lacp",
            within(false, "eth-type", &[(0x8809, 0x8809)]),
        ),
        ("ip-proto == ospf", within(false, "ip-proto", &[(89, 89)])),
    ] {
        assert_eq!(only(text), wanted, "{text}");
    }
    assert_eq!(
        rule("tcp-dport http mod tcp-dport http-alt").targets,
        [set("tcp-dport", 8080)]
    );
    let mapped = rule("add-stateful tcp-dport 8080 map tcp-dport http");
    assert!(matches!(&mapped.targets[..], [Target::Map { pool, .. }] if pool.contains(80)));
    let parsed = read(
        "set web = { http, https, 8000-8999 }\ntcp-dport in @web drop\nudp-dport in @web drop",
    );
    for rule in &parsed.policy.rules {
        assert!(
            matches!(&rule.matches[0].test, Test::In(set) if set.contains(80) && set.contains(443))
        );
    }
}

#[test]
fn mac_addresses() {
    let one = 0x02_00_00_00_00_01;
    assert_eq!(
        only("eth-saddr 02:00:00:00:00:01"),
        within(false, "eth-saddr", &[(one, one)])
    );
    assert_eq!(
        only("ETH-SRC 02:00:00:00:00:01"),
        only("eth-saddr x020000000001")
    );
    assert_eq!(
        only("eth-daddr != 02:00:00:00:00:00/24"),
        within(
            true,
            "eth-daddr",
            &[(0x02_00_00_00_00_00, 0x02_00_00_ff_ff_ff)]
        )
    );
    let multicast = (1 << 40, (2 << 40) - 1);
    assert_eq!(
        only("eth-daddr in { 01:00:00:00:00:00-01:ff:ff:ff:ff:ff, ff:ff:ff:ff:ff:ff }"),
        within(
            false,
            "eth-daddr",
            &[multicast, ((1 << 48) - 1, (1 << 48) - 1)]
        )
    );
    let rule = rule("ether-saddr 02:00:00:00:00:00/24 drop");
    assert_eq!(rule.requires, Classes::NONE);
    assert_eq!(
        describe(&rule),
        "Rule 1: every packet whose source MAC address is in 02:00:00:00:00:00/24 is dropped unless a matching rule accepts it."
    );
    let parsed = read(
        "set cameras = { 02:00:00:00:00:01, 02:00:00:00:00:10/44 }\neth-saddr in @cameras drop",
    );
    assert!(matches!(&parsed.policy.rules[0].matches[0].test, Test::In(set) if set.size() == 17));
}

/// Tests that do not ask for a family or a transport of their own.
#[test]
fn any_family_and_any_transport() {
    assert_eq!(only("dport 53"), within(false, "dport", &[(53, 53)]));
    assert_eq!(rule("sport ntp drop").requires, Classes::PORTS);
    assert_eq!(only("l4-proto gre"), within(false, "l4-proto", &[(47, 47)]));
    assert_eq!(rule("l4-proto gre drop").requires, Classes::NONE);
    assert_eq!(only("udp"), present(false, "udp"));
    assert_eq!(rule("udp drop").requires, Classes::UDP);
    assert_eq!(only("! icmpv6"), present(true, "icmp6"));
    assert_eq!(rule("! icmpv6 drop").requires, Classes::NONE);
    // Behind a field that takes protocols a name is its value.
    assert_eq!(only("ip-proto udp"), within(false, "ip-proto", &[(17, 17)]));
    assert_eq!(only("ip-proto == udp"), only("ip-proto udp"));
    assert_eq!(
        only("l4-proto in { tcp, udp }"),
        within(false, "l4-proto", &[(6, 6), (17, 17)])
    );
    // What nftables writes is a rule that means the same.
    assert_eq!(
        rule("tcp dport 80 drop").matches,
        [present(false, "tcp"), within(false, "dport", &[(80, 80)])]
    );
    assert_eq!(
        describe(&rule("udp dport 53 ! icmp drop")),
        "Rule 1: every UDP packet whose destination port is 53 (domain) and that is not ICMP is dropped unless a matching rule accepts it."
    );
}

#[test]
fn limits_of_addresses() {
    let written = |text: &str| format_source(&Source::new("p", text)).expect("valid");
    let whole = (32, 128);
    let cases = [
        (
            "udp drop over 10/s burst 20 per source",
            "udp drop over 10/s burst 20 per source",
            (true, false, whole),
            "every UDP packet is dropped above 10 packets a second (burst 20) from one source address.",
        ),
        (
            "udp drop over 10/S PER Destination burst 20",
            "udp drop over 10/s burst 20 per destination",
            (false, true, whole),
            "every UDP packet is dropped above 10 packets a second (burst 20) to one destination address.",
        ),
        (
            "udp drop over 3/m per pair",
            "udp drop over 3/m per pair",
            (true, true, whole),
            "every UDP packet is dropped above 3 packets a minute (burst 1) from one source address to one destination address.",
        ),
        (
            "udp drop over 3/m per source/24",
            "udp drop over 3/m per source/24",
            (true, false, (24, 64)),
            "every UDP packet is dropped above 3 packets a minute (burst 1) from one source network of /24 (IPv6: /64).",
        ),
        (
            "ip6-hop-limit 9 drop over 3/m per destination/1/56",
            "ip6-hop-limit 9 drop over 3/m per destination/1/56",
            (false, true, (1, 56)),
            "every IPv6 packet whose hop limit is 9 is dropped above 3 packets a minute (burst 1) to one destination network of /56.",
        ),
        (
            "ip-ttl 9 drop over 3/m per source/32/127",
            "ip-ttl 9 drop over 3/m per source/32/127",
            (true, false, (32, 127)),
            "every IPv4 packet whose time to live is 9 is dropped above 3 packets a minute (burst 1) from one source network of /32.",
        ),
    ];
    for (text, formatted, (source, destination, (len4, len6)), says) in cases {
        let parsed = read(text);
        assert_eq!(written(text), format!("{formatted}\n"));
        assert_eq!(describe(&parsed.policy.rules[0]), format!("Rule 1: {says}"));
        let per = Per {
            source,
            destination,
            len4,
            len6,
        };
        let target = &parsed.policy.rules[0].targets[0];
        assert!(
            matches!(target, Target::Drop(DropWhen::OverEach { per: found, .. }) if *found == per),
            "{target:?}"
        );
    }
    assert_eq!(read("udp drop").policy.connections.limits, 65_536);
    let small = read("limits 1000\nudp drop over 10/s per source");
    assert_eq!(small.policy.connections.limits, 1000);
    assert_eq!(written("LIMITS 1000"), "limits 1000\n");
}

#[test]
fn rejections() {
    let written = |text: &str| format_source(&Source::new("p", text)).expect("valid");
    let cases = [
        (
            "tcp-dport 22 reject",
            "tcp-dport 22 reject",
            "every TCP packet whose destination port is 22 (ssh) is dropped unless a matching rule accepts it, and answered with a TCP reset.",
        ),
        (
            "all REJECT",
            "all reject",
            "every packet is dropped unless a matching rule accepts it, and answered with a reset if it is TCP, else with ICMP admin-prohibited or ICMPv6 admin-prohibited.",
        ),
        (
            "udp reject with icmpx port-unreachable",
            "udp reject with icmpx port-unreachable",
            "every UDP packet is dropped unless a matching rule accepts it, and answered with ICMP port-unreachable or ICMPv6 port-unreachable.",
        ),
        (
            "all reject with icmp type Net-Prohibited",
            "all reject with icmp net-prohibited",
            "every IPv4 packet is dropped unless a matching rule accepts it, and answered with ICMP net-prohibited.",
        ),
        (
            "all reject with icmpv6 no-route",
            "all reject with icmp6 no-route",
            "every IPv6 packet is dropped unless a matching rule accepts it, and answered with ICMPv6 no-route.",
        ),
        (
            "all reject with tcp reset",
            "all reject with tcp-reset",
            "every TCP packet is dropped unless a matching rule accepts it, and answered with a TCP reset.",
        ),
    ];
    for (text, formatted, says) in cases {
        let parsed = read(text);
        assert_eq!(written(text), format!("{formatted}\n"));
        assert_eq!(describe(&parsed.policy.rules[0]), format!("Rule 1: {says}"));
    }
}

#[test]
fn states_of_connections() {
    let one = |text: &str| {
        let parsed = read(&format!("add-stateful all accept\n{text} log"));
        assert!(parsed.warnings.is_empty(), "{}", parsed.warnings);
        parsed.policy.rules[1].matches[0].clone()
    };
    assert_eq!(one("ct-state new"), within(false, "ct-state", &[(8, 8)]));
    assert_eq!(
        one("ct-state in { Established, related }"),
        within(false, "ct-state", &[(2, 2), (4, 4)])
    );
    assert_eq!(
        one("ct-state != invalid"),
        within(true, "ct-state", &[(1, 1)])
    );
    assert_eq!(one("! ct-state"), present(true, "ct-state"));
    let parsed = read("ct-state new drop");
    assert!(
        parsed
            .warnings
            .to_string()
            .contains("no packet has a state")
    );
    let rule = &read("add-stateful all accept\nct-state invalid tcp drop")
        .policy
        .rules[1];
    assert_eq!(
        describe(rule),
        "Rule 2: every TCP packet whose state of the connection is invalid is dropped unless a matching rule accepts it."
    );
}

/// Flags compare as the number they are; with a mask, only those behind the `/` count, set as in front of it.
#[test]
fn names_of_tcp_flags() {
    assert_eq!(only("tcp-flags syn"), within(false, "tcp-flags", &[(2, 2)]));
    assert_eq!(
        only("tcp-flags SYN,ack"),
        within(false, "tcp-flags", &[(18, 18)])
    );
    assert_eq!(
        only("tcp-flags == syn|ack"),
        within(false, "tcp-flags", &[(18, 18)])
    );
    assert_eq!(
        only("tcp-flags none"),
        within(false, "tcp-flags", &[(0, 0)])
    );
    assert_eq!(
        rule("tcp-flags syn/syn,ack,rst log").matches,
        [
            present(true, "tcp-ack"),
            present(true, "tcp-rst"),
            present(false, "tcp-syn")
        ]
    );
    assert_eq!(
        rule("! tcp-flags != cwr/cwr log").matches,
        [present(false, "tcp-cwr")]
    );
    let all = |keep: &dyn Fn(u128) -> bool| -> Vec<(u128, u128)> {
        (0..256).filter(|n| keep(*n)).map(|n| (n, n)).collect()
    };
    assert_eq!(
        only("tcp-flags != syn/syn,ack"),
        within(true, "tcp-flags", &all(&|n| n & 18 == 2))
    );
    assert_eq!(
        only("tcp-flags in { syn, syn|ack, rst/rst }"),
        within(
            false,
            "tcp-flags",
            &all(&|n| n == 2 || n == 18 || n & 4 != 0)
        )
    );
    assert_eq!(
        rule("tcp-flags x02/x12 log"),
        rule("tcp-flags 2/syn|ack log")
    );
    assert_eq!(
        rule("tcp-syn mod tcp-flags syn,ece,cwr").targets,
        [set("tcp-flags", 0xc2)]
    );
    let formatted = |text: &str| format_source(&Source::new("p", text)).expect("valid");
    assert_eq!(
        formatted(
            "tcp-flags SYN/SYN,ACK drop\ntcp-flags in {SYN,syn|ACK} drop\ntcp-dport == HTTP drop\nudp-dport 53 drop\n"
        ),
        "tcp-flags syn/syn,ack         drop\ntcp-flags in { syn, syn|ack } drop\ntcp-dport http                drop\nudp-dport 53                  drop\n"
    );
    let said = describe(&rule("tcp-flags 18 tcp-dport 443 drop"));
    assert_eq!(
        said,
        "Rule 1: every TCP packet whose eight flag bits is 18 (syn,ack) and whose destination port is 443 (https) is dropped unless a matching rule accepts it."
    );
}

#[test]
fn families() {
    let four = rule("net-proto ip4 drop");
    assert_eq!(four.matches, [within(false, "net-proto", &[(4, 4)])]);
    assert_eq!(four.requires, Classes::IP4);
    assert_eq!(rule("net-proto == IP6 drop").requires, Classes::IP6);
    let not_four = rule("net-proto != ip4 drop");
    assert_eq!(
        (not_four.requires, not_four.matches[0].negated),
        (Classes::NONE, true)
    );
    assert_eq!(rule("! net-proto != ip4 drop").requires, Classes::IP4);
    assert_eq!(
        rule("net-proto in { ip4, ip6 } drop").requires,
        Classes::NONE
    );
}

#[test]
fn required_classes() {
    for (text, classes) in [
        ("all drop", Classes::NONE),
        ("in eth0 drop", Classes::NONE),
        ("eth-type arp drop", Classes::NONE),
        ("frag-later drop", Classes::NONE),
        ("tcp-dport 80 drop", Classes::TCP),
        ("! tcp-dport 80 drop", Classes::TCP),
        ("! tcp-dport log", Classes::NONE),
        ("! tcp-syn log", Classes::TCP),
        ("! tcp-opt-mss log", Classes::TCP),
        ("! tcp-payload log", Classes::NONE),
        ("! ip-opt log", Classes::IP4),
        ("! ip6-eh log", Classes::IP6),
        ("! vlan log", Classes::NONE),
        ("vlan drop", Classes::VLAN),
        ("! vlan-dei log", Classes::VLAN),
        ("vlan2-id 5 drop", Classes::VLAN2),
        ("ip6-mf drop", Classes::IP6.union(Classes::IP6_FRAG)),
        ("icmp-type 8 drop", Classes::ICMP),
        ("icmpv6-type 128 drop", Classes::ICMP6),
        (
            "ip-ttl 1 udp-dport 53 drop",
            Classes::IP4.union(Classes::UDP),
        ),
        (
            "ip6-hop-limit 1 mod tcp-dport 80",
            Classes::IP6.union(Classes::TCP),
        ),
        ("all strip all", Classes::TCP),
        ("! tcp-dport mod udp-dport 5", Classes::UDP),
    ] {
        assert_eq!(rule(text).requires, classes, "{text}");
    }
}

#[test]
fn flags() {
    for (text, negated) in [
        ("tcp-syn", false),
        ("tcp-syn 1", false),
        ("tcp-syn == 1", false),
        ("tcp-syn != 0", false),
        ("tcp-syn > 0", false),
        ("! tcp-syn 0", false),
        ("! tcp-syn", true),
        ("tcp-syn 0", true),
        ("tcp-syn != 1", true),
        ("tcp-syn < 1", true),
        ("! tcp-syn 1", true),
    ] {
        assert_eq!(only(text), present(negated, "tcp-syn"), "{text}");
    }
    let any = rule("tcp-syn >= 0 drop");
    assert_eq!((any.requires, any.matches.len()), (Classes::TCP, 0));
    assert!(parse(&Source::new("test.weir", "tcp-syn < 0 drop"), &NoFiles).is_err());
    assert_eq!(only("ip-ce"), present(false, "ip-ce"));
}

#[test]
fn interfaces() {
    let eth = |names: &[&str]| {
        Test::Port(
            names
                .iter()
                .map(|n| PortName::Name((*n).to_owned()))
                .collect(),
        )
    };
    for (text, negated, test) in [
        ("in eth0", false, eth(&["eth0"])),
        ("in Eth0", false, eth(&["Eth0"])),
        ("in == drop", false, eth(&["drop"])),
        ("in != eth0.100", true, eth(&["eth0.100"])),
        ("! in eth0", true, eth(&["eth0"])),
        ("! in != eth0", false, eth(&["eth0"])),
        ("in 3", false, Test::Port(vec![PortName::Index(3)])),
        ("in { eth0, eth1, eth0 }", false, eth(&["eth0", "eth1"])),
        ("in in { eth0, eth1 }", false, eth(&["eth0", "eth1"])),
        ("! in {x10}", true, eth(&["x10"])),
    ] {
        let m = only(text);
        assert_eq!((m.negated, m.test), (negated, test), "{text}");
    }
    assert_eq!(only("out wan0").subject.field, field("out"));
    let both = rule("tcp-dport in in { eth0 } drop");
    assert_eq!(both.matches[0], present(false, "tcp-dport"));
    assert_eq!(both.matches[1].test, eth(&["eth0"]));
}

#[test]
fn tcp_options() {
    let option = |text: &str| {
        let m = only(text);
        (m.subject.option, m.negated, m.test)
    };
    let numbers = |list: &[(u128, u128)]| Test::In(Ranges::new(list.to_vec()).into());
    assert_eq!(option("tcp-opt"), (None, false, Test::Present));
    assert_eq!(option("! tcp-opt"), (None, true, Test::Present));
    assert_eq!(option("tcp-opt 30"), (Some(30), false, Test::Present));
    assert_eq!(option("tcp-opt x1e"), (Some(30), false, Test::Present));
    assert_eq!(
        option("tcp-opt 2 == 1460"),
        (Some(2), false, numbers(&[(1460, 1460)]))
    );
    assert_eq!(
        option("tcp-opt 2 1460"),
        (Some(2), false, numbers(&[(1460, 1460)]))
    );
    assert_eq!(
        option("tcp-opt-mss x05b4"),
        (Some(2), false, numbers(&[(1460, 1460)]))
    );
    assert_eq!(
        option("tcp-opt-mss < 1000"),
        (Some(2), false, numbers(&[(0, 999)]))
    );
    assert_eq!(
        option("tcp-opt-wscale > 8"),
        (Some(3), false, numbers(&[(9, 255)]))
    );
    assert_eq!(option("tcp-opt-sackp"), (Some(4), false, Test::Present));
    assert_eq!(
        option("tcp-opt 254 == x0102"),
        (Some(254), false, Test::Bytes(vec![1, 2]))
    );
    assert_eq!(
        option("tcp-opt 254 != x123"),
        (Some(254), true, Test::Bytes(vec![1, 0x23]))
    );
    assert_eq!(
        option("! tcp-opt 254 != x01"),
        (Some(254), false, Test::Bytes(vec![1]))
    );
    assert_eq!(
        option("tcp-opt 254 == 258"),
        (Some(254), false, numbers(&[(258, 258)]))
    );
    assert_eq!(
        option("tcp-opt 254 > x0102"),
        (Some(254), false, numbers(&[(259, u64::MAX.into())]))
    );
    assert_eq!(
        option("tcp-opt 254 x01-x02"),
        (Some(254), false, numbers(&[(1, 2)]))
    );
    assert_eq!(
        option("tcp-opt-tfo in { 1, x02 }"),
        (Some(34), false, numbers(&[(1, 2)]))
    );
    assert_eq!(option("ip-opt 148"), (Some(148), false, Test::Present));
    assert_eq!(option("ip-opt-ra"), (Some(148), false, Test::Present));
}

#[test]
fn payloads() {
    let m = only("udp-payload[4] == x0102");
    assert_eq!((m.subject.at, m.test), (4, Test::Bytes(vec![1, 2])));
    let m = only("ip4-payload [x10] != x1");
    assert_eq!(
        (m.subject.at, m.negated, m.test),
        (16, true, Test::Bytes(vec![1]))
    );
    assert_eq!(only("icmp-payload x08").subject.at, 0);
    assert_eq!(only("! tcp-payload"), present(true, "tcp-payload"));
}

#[test]
fn every_target() {
    for (text, target) in [
        ("drop", Target::Drop(DropWhen::Always)),
        ("drop 100%", Target::Drop(DropWhen::Always)),
        (
            "drop 50%",
            Target::Drop(DropWhen::Random { below: 1 << 31 }),
        ),
        (
            "drop 0.001",
            Target::Drop(DropWhen::Random { below: 42949 }),
        ),
        (
            "drop over 100/s",
            Target::Drop(DropWhen::Over {
                period_ns: 10_000_000,
                burst: 1,
            }),
        ),
        (
            "drop over 3/m burst 20",
            Target::Drop(DropWhen::Over {
                period_ns: 20_000_000_000,
                burst: 20,
            }),
        ),
        (
            "DROP OVER 7/H",
            Target::Drop(DropWhen::Over {
                period_ns: 514_285_714_285,
                burst: 1,
            }),
        ),
        ("accept", Target::Accept),
        (
            "log",
            Target::Log {
                prefix: String::new(),
                limit: None,
            },
        ),
        (
            "log \"From Here # \"",
            Target::Log {
                prefix: "From Here # ".to_owned(),
                limit: None,
            },
        ),
        (
            "LOG \"few\" Limit 5/MIN Burst 3",
            Target::Log {
                prefix: "few".to_owned(),
                limit: Some(LogLimit {
                    period_ns: 12_000_000_000,
                    burst: 3,
                }),
            },
        ),
        (
            "log limit rate 2/s",
            Target::Log {
                prefix: String::new(),
                limit: Some(LogLimit {
                    period_ns: 500_000_000,
                    burst: 1,
                }),
            },
        ),
        (
            "drop over 1.5G bytes",
            Target::Drop(DropWhen::Quota {
                bytes: 1_500_000_000,
            }),
        ),
        (
            "DROP OVER 1 BYTE",
            Target::Drop(DropWhen::Quota { bytes: 1 }),
        ),
        ("mod ip-ttl 64", set("ip-ttl", 64)),
        ("mod ip-saddr 192.0.2.1", set("ip-saddr", 0xc000_0201)),
        ("mod ip-proto udp", set("ip-proto", 17)),
        ("mod ip-df", set("ip-df", 1)),
        ("mod ip-df 0", set("ip-df", 0)),
        ("mod ip-ce", set("ip-ce", 3)),
        ("mod ip-non-ect", set("ip-non-ect", 0)),
        (
            "mod tcp-payload[2] x0102",
            Target::SetPayload {
                subject: Subject {
                    field: field("tcp-payload"),
                    option: None,
                    at: 2,
                },
                bytes: vec![1, 2],
            },
        ),
        (
            "mod tcp-opt 2 1400",
            Target::SetOption {
                kind: 2,
                value: vec![5, 0x78],
            },
        ),
        (
            "mod tcp-opt-ts 1",
            Target::SetOption {
                kind: 8,
                value: vec![0, 0, 0, 0, 0, 0, 0, 1],
            },
        ),
        (
            "add tcp-opt 253",
            Target::AddOption {
                kind: 253,
                value: vec![],
            },
        ),
        (
            "add tcp-opt-sackp",
            Target::AddOption {
                kind: 4,
                value: vec![],
            },
        ),
        (
            "add tcp-opt 253 0",
            Target::AddOption {
                kind: 253,
                value: vec![0],
            },
        ),
        (
            "add tcp-opt 253 256",
            Target::AddOption {
                kind: 253,
                value: vec![1, 0],
            },
        ),
        (
            "add tcp-opt 253 x0001",
            Target::AddOption {
                kind: 253,
                value: vec![0, 1],
            },
        ),
        (
            "strip tcp-opt-mss strip tcp-opt 30",
            Target::Strip(kinds(&[2, 30])),
        ),
        (
            "strip ! tcp-opt-mss strip ! tcp-opt 30",
            Target::Strip(all_but(&[2, 30])),
        ),
        ("strip all", Target::Strip(KindSet::ALL)),
    ] {
        assert_eq!(rule(&format!("tcp-syn {text}")).targets, [target], "{text}");
    }
}

#[test]
fn strips_merge_at_the_place_of_the_first() {
    let rule = rule("all log strip tcp-opt 5 add tcp-opt 5 x01 strip tcp-opt 8 drop 5%");
    assert_eq!(rule.targets[1], Target::Strip(kinds(&[5, 8])));
    assert_eq!(rule.targets.len(), 4);
}

#[test]
fn names_comments_and_continued_lines() {
    let parsed = read(
        "\u{feff}# head\r\n\r\nweb-in: mmb add tcp-dport 80 \\\r\n  accept # why\r\n\n\
         _x.1:tcp-dport\n"
            .replace("_x.1:tcp-dport\n", "_x.1: udp-dport 5 log \"#\" # tail")
            .as_str(),
    );
    let rules = &parsed.policy.rules;
    assert_eq!(rules.len(), 2);
    assert_eq!(
        (rules[0].name.as_deref(), rules[0].line, rules[0].id),
        (Some("web-in"), 3, 1)
    );
    assert_eq!(
        (rules[1].name.as_deref(), rules[1].line, rules[1].id),
        (Some("_x.1"), 6, 2)
    );
    assert!(read("").policy.rules.is_empty());
}

/// Files by name.
struct Files(Vec<(&'static str, String)>);

impl SetLoader for Files {
    fn load(&self, path: &str) -> io::Result<Source> {
        let found = self.0.iter().find(|(name, _)| *name == path);
        found
            .map(|(name, text)| Source::new(*name, text.clone()))
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "No such file"))
    }
}

#[test]
fn sets_are_typed_by_use() {
    let parsed = read(
        "set few = { 1, 3-4 }\ntcp-dport in @few drop\n! ip-ttl in @few drop\nin @few drop\nset late = {eth0}\nin @late accept",
    );
    // `3-4` is no index, and a name may hold a dash.
    let Test::Port(ports) = &parsed.policy.rules[2].matches[0].test else {
        panic!()
    };
    assert_eq!(
        ports,
        &[PortName::Index(1), PortName::Name("3-4".to_owned())]
    );
    assert_eq!(
        parsed.policy.rules[0].matches[0],
        within(false, "tcp-dport", &[(1, 1), (3, 4)])
    );
    assert_eq!(
        parsed.policy.rules[1].matches[0],
        within(true, "ip-ttl", &[(1, 1), (3, 4)])
    );
}

#[test]
fn set_files() {
    let files = Files(vec![(
        "bad.txt",
        "\u{feff}# hosts\n\n10.0.0.1\r\n  10.0.0.8/29 # net\n".to_owned(),
    )]);
    let text = "set bad = file \"bad.txt\"\nip-saddr in @bad drop\nip-daddr in @bad drop";
    let parsed = parse(&Source::new("p.weir", text), &files).unwrap_or_else(|e| panic!("{e}"));
    let expected = within(
        false,
        "ip-saddr",
        &[(0x0a00_0001, 0x0a00_0001), (0x0a00_0008, 0x0a00_000f)],
    );
    assert_eq!(parsed.policy.rules[0].matches, [expected]);
    let tests: Vec<_> = parsed
        .policy
        .rules
        .iter()
        .map(|r| &r.matches[0].test)
        .collect();
    let (Test::In(a), Test::In(b)) = (tests[0], tests[1]) else {
        panic!()
    };
    assert!(std::sync::Arc::ptr_eq(a, b), "the set is read once");
}

#[test]
fn a_set_of_a_million_lines() {
    let lines: String = (0..1_000_000u32)
        .map(|i| format!("{}\n", std::net::Ipv4Addr::from(0x0a00_0000 + i * 2)))
        .collect();
    let text = "set big = file \"big\"\nip-saddr in @big drop";
    let parsed = parse(&Source::new("p.weir", text), &Files(vec![("big", lines)]));
    let parsed = parsed.unwrap_or_else(|e| panic!("{e}"));
    let Test::In(ranges) = &parsed.policy.rules[0].matches[0].test else {
        panic!()
    };
    assert_eq!(ranges.intervals().len(), 1_000_000);
}

#[test]
fn host_bits_of_a_whole_list_are_one_error() {
    let lines: String = (0..100_000u32)
        .map(|i| {
            format!(
                "{}/24 # {i}\n",
                std::net::Ipv4Addr::from(0x0a00_0001 + i * 256)
            )
        })
        .collect();
    let text = "set big = file \"big\"\nip-saddr in @big drop";
    let list = format!("10.0.0.0/8\n{lines}");
    let errors =
        parse(&Source::new("p.weir", text), &Files(vec![("big", list)])).expect_err("refused");
    assert_eq!(errors.len(), 1, "{errors}");
    let error = errors.iter().next().expect("one");
    assert_eq!(
        (error.file.as_str(), error.line, error.column),
        ("big", 2, 1)
    );
    assert_eq!(
        error.message,
        "host bits are set in 100000 prefixes of this file; the first is `10.0.0.1/24`"
    );
    assert_eq!(
        error.help.as_deref(),
        Some("write `10.0.0.0/24`, or the address alone")
    );
}

#[test]
fn formatting() {
    let text = "# head   \n\n\n\nmmb ADD TCP-DPORT == 0X50 mod tcp-dport X1bb # one\n\
                web: ip4-saddr 10.0.0.0/8 ! in {a,B} accept   #two\n\
                \n\n  # mid\nip6-saddr != 2001:DB8:0:0::1 tcp-opt X2==1460 \\\n  log \"A  b\" \\\n drop 0.50\n\
                set s={1,2 , \\\n3}\nudp-payload [ 4 ]X1 drop over 5/S\n\n";
    let once = format_source(&Source::new("t", text)).unwrap_or_else(|e| panic!("{e}"));
    let expected = "# head\n\n     tcp-dport x50                     mod tcp-dport x01bb  # one\n\
                    web: ip-saddr 10.0.0.0/8 ! in { a, B } accept               #two\n\
                    \n# mid\nip6-saddr != 2001:db8::1 tcp-opt 2 == 1460 \\\n    log \"A  b\" \\\n    drop 0.50%\n\
                    set s = { 1, 2, \\\n    3 }\nudp-payload[4] == x01 drop over 5/s\n";
    assert_eq!(once, expected);
    assert_eq!(format_source(&Source::new("t", once.as_str())), Ok(once));
    assert_eq!(format_source(&Source::new("t", "\n\n")), Ok(String::new()));
}

#[test]
fn descriptions() {
    for (text, sentence) in [
        (
            "web: tcp-dport in { 80, 8000-8999 } drop",
            "Rule 1 (web): every TCP packet whose destination port is 80 (http) or from 8000 to 8999 is dropped unless a matching rule accepts it.",
        ),
        (
            "all drop 0.1",
            "Rule 1: every packet is dropped with a chance of 0.1 %.",
        ),
        (
            "tcp-syn ! tcp-ack ip-saddr != 10.0.0.0/8 drop over 20/m burst 5",
            "Rule 1: every IPv4 TCP packet with the SYN bit set, with the ACK bit clear and whose source address is not in 10.0.0.0/8 is dropped above 20 packets a minute (burst 5).",
        ),
        (
            "tcp-opt-timestamp strip ! tcp-opt-mss strip ! tcp-opt-wscale",
            "Rule 1: every TCP packet with TCP option timestamps loses all TCP options but the TCP option maximum segment size and TCP option window scale.",
        ),
        (
            "in eth0 udp-payload[4] == x0102 mod udp-dport 53 log \"x\"",
            "Rule 1: every UDP packet that came in by eth0 and whose UDP payload has x0102 at byte 4 gets its destination port set to 53 (domain) and is logged as \"x\".",
        ),
    ] {
        assert_eq!(describe(&rule(text)), sentence);
    }
}

#[test]
fn marks_and_priorities() {
    let set = |name: &str, value, mask| Target::SetMeta {
        field: Field::find(name).expect("a field"),
        value,
        mask,
    };
    let masked = |value, mask| Test::Masked { value, mask };
    let one = |text: &str| read(text).policy.rules.remove(0);
    for (text, negated, test) in [
        ("mark x10/xff drop", false, masked(0x10, 0xff)),
        ("mark == 0x10/0xff drop", false, masked(0x10, 0xff)),
        ("mark != 16/255 drop", true, masked(0x10, 0xff)),
        ("! mark x0/x1 drop", true, masked(0, 1)),
        ("! fwmark != x1/x1 drop", false, masked(1, 1)),
        (
            "mark x10 drop",
            false,
            Test::In(Arc::new(Ranges::new(vec![(16, 16)]))),
        ),
        (
            "priority 1:10 drop",
            false,
            Test::In(Arc::new(Ranges::new(vec![(0x1_0010, 0x1_0010)]))),
        ),
    ] {
        let rule = one(text);
        assert_eq!(rule.matches.len(), 1, "{text}");
        assert_eq!(
            (rule.matches[0].negated, &rule.matches[0].test),
            (negated, &test),
            "{text}"
        );
        assert_eq!(rule.requires, Classes::NONE, "{text}");
    }
    for (text, targets) in [
        ("all mark set 0x10", vec![set("mark", 0x10, u32::MAX)]),
        ("tcp MARK SET x1/xf", vec![set("mark", 1, 0xf)]),
        (
            "mark 5 priority set :1f mark set 0",
            vec![set("priority", 0x1f, u32::MAX), set("mark", 0, u32::MAX)],
        ),
        (
            "priority set ffff:ffff",
            vec![set("priority", u32::MAX, u32::MAX)],
        ),
    ] {
        let text = match text.starts_with("priority set") {
            true => format!("all {text}"),
            false => text.to_owned(),
        };
        assert_eq!(one(&text).targets, targets, "{text}");
    }
    let formatted = |text: &str| format_source(&Source::new("t", text)).expect("formats");
    assert_eq!(
        formatted("MARK 0x1/0xF mark SET 0xAB/0xFF priority set A:1F"),
        "mark x01/x0f mark set xab/xff priority set a:1f\n"
    );
    for (text, part) in [
        ("mark x10/x0f drop", "bits in front of the `/`"),
        ("mark x0/x0 drop", "a mask of no bits"),
        ("mark < x1/xf drop", "takes no mask here"),
        ("mark in { x1/xf, 3 } drop", "takes no mask here"),
        ("priority 1/3 drop", "takes no mask here"),
        ("priority 10000:1 drop", "is not a class"),
        ("all mark set", "expected a value behind `mark set`"),
        ("all mark set x1/x0", "bits in front of the `/`"),
        ("all mark set x100000000", "too large"),
        ("all mod mark x1", "write `mark set VALUE`"),
    ] {
        let error = parse(&Source::new("t", text), &NoFiles).expect_err(text);
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
}

#[test]
fn tags_are_put_on_and_taken_off() {
    let one = |text: &str| read(text).policy.rules.remove(0);
    for (text, requires, targets) in [
        (
            "all vlan push 100",
            Classes::NONE,
            vec![Target::PushTag { tci: 100 }],
        ),
        (
            "tcp VLAN Push x0a dei PCP 7",
            Classes::TCP,
            vec![Target::PushTag { tci: 0xf00a }],
        ),
        (
            "tcp vlan pop",
            Classes::TCP.union(Classes::VLAN),
            vec![Target::PopTag],
        ),
        (
            "! vlan vlan push 1 pcp 2 vlan push 4094 log",
            Classes::NONE,
            vec![
                Target::PushTag { tci: 0x4001 },
                Target::PushTag { tci: 0x0ffe },
                Target::Log {
                    prefix: String::new(),
                    limit: None,
                },
            ],
        ),
    ] {
        let rule = one(text);
        assert_eq!((rule.requires, rule.targets), (requires, targets), "{text}");
    }
    let formatted = format_source(&Source::new("t", "VLAN vlan PUSH 0x64 DEI pcp 3 VLAN pop"));
    assert_eq!(
        formatted.expect("formats"),
        "vlan vlan push 100 pcp 3 dei vlan pop\n"
    );
    for (text, part) in [
        ("all vlan push 4095", "`4095` is not a VLAN identifier"),
        ("all vlan push 5 pcp 8", "`8` is not a VLAN priority"),
        (
            "all vlan push",
            "expected a VLAN identifier behind `vlan push`",
        ),
        ("all vlan push 5 pcp", "expected a priority behind `pcp`"),
        ("! vlan vlan pop", "never match"),
        ("all untag", "write `vlan pop`"),
    ] {
        let error = parse(&Source::new("t", text), &NoFiles).expect_err(text);
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
}

#[test]
fn a_ttl_is_decremented() {
    let one = |text: &str| read(text).policy.rules.remove(0);
    let rule = one("in eth0 TTL Dec log");
    let log = Target::Log {
        prefix: String::new(),
        limit: None,
    };
    assert_eq!(
        (rule.requires, rule.targets),
        (Classes::NONE, vec![Target::DecrementTtl, log])
    );
    let formatted = format_source(&Source::new("t", "tcp TTL dec mod ip-ttl 9"));
    assert_eq!(formatted.expect("formats"), "tcp ttl dec mod ip-ttl 9\n");
    for (text, part) in [
        ("all ttl", "expected `dec` behind `ttl`"),
        ("all ttl dec 2", "expected a target"),
        ("ttl 5 drop", "as a match write `ip-ttl`"),
        ("tcp ttl set 5", "to set it `mod ip-ttl 64`"),
    ] {
        let error = parse(&Source::new("t", text), &NoFiles).expect_err(text);
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
}
