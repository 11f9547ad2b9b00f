//! What stateful rules and lines about connections mean once they are read, and how they are written and described.
//! Which of them are refused, and in what words, is in `diagnostics.rs`.

use weir_policy::field::Field;
use weir_policy::model::{Classes, Connections, FlowState, Ranges, Rule, Target};
use weir_policy::{NoFiles, Parsed, Source, describe, format_source, parse};

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

fn field(name: &str) -> Field {
    Field::find(name).unwrap_or_else(|| panic!("no field {name}"))
}

fn map(name: &str, intervals: &[(u128, u128)]) -> Target {
    Target::Map {
        field: field(name),
        pool: Ranges::new(intervals.to_vec()).into(),
    }
}

fn shuffle(name: &str) -> Target {
    Target::Shuffle { field: field(name) }
}

/// mmb's stateful idioms, in its spelling.
#[test]
fn the_stateful_idioms_of_mmb() {
    for (text, targets) in [
        (
            "mmb add-stateful ip-saddr 10.0.0.0/8 accept",
            vec![Target::Accept],
        ),
        (
            "mmb add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 shuffle tcp-sport",
            vec![
                map("ip-saddr", &[(0xc000_0201, 0xc000_0201)]),
                shuffle("tcp-sport"),
            ],
        ),
        (
            "mmb add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-ack-num shuffle tcp-opt-sack",
            vec![shuffle("tcp-seq-num"), shuffle("tcp-ack-num")],
        ),
        ("mmb add-stateful all shuffle ip-id", vec![shuffle("ip-id")]),
    ] {
        let rule = rule(text);
        assert!(rule.stateful, "{text}");
        assert_eq!(rule.targets, targets, "{text}");
    }
    assert!(!rule("mmb add-stateless tcp-syn accept").stateful);
}

/// What a value is chosen from, in every form.
#[test]
fn pools() {
    let (one, two) = (0xc000_0201, 0xc000_0202);
    for (text, target) in [
        ("map ip-saddr 192.0.2.1", map("ip-saddr", &[(one, one)])),
        (
            "map ip-daddr 192.0.2.1-192.0.2.2",
            map("ip-daddr", &[(one, two)]),
        ),
        (
            "map ip4-saddr in { 192.0.2.2, 192.0.2.1 }",
            map("ip-saddr", &[(one, two)]),
        ),
        (
            "map ip-saddr 192.0.2.0/30",
            map("ip-saddr", &[(one - 1, one + 2)]),
        ),
        (
            "map ip-saddr 0.0.0.0/0",
            map("ip-saddr", &[(0, 0xffff_ffff)]),
        ),
        ("map ip6-saddr ::/96", map("ip6-saddr", &[(0, 0xffff_ffff)])),
        (
            "map tcp-sport @pool",
            map("tcp-sport", &[(5, 5), (1024, 2047)]),
        ),
        (
            "map tcp-dport in @pool",
            map("tcp-dport", &[(5, 5), (1024, 2047)]),
        ),
        (
            "map udp-sport { x50, 90-99 }",
            map("udp-sport", &[(0x50, 0x50), (90, 99)]),
        ),
        ("MAP UDP-DPORT 53", map("udp-dport", &[(53, 53)])),
        ("map ip-id 0-9", map("ip-id", &[(0, 9)])),
        (
            "map ip6-flow-label xfffff",
            map("ip6-flow-label", &[(0xf_ffff, 0xf_ffff)]),
        ),
    ] {
        let policy = read(&format!(
            "set pool = {{ 5, 1024-2047 }}\nadd-stateful all {text}"
        ))
        .policy;
        assert_eq!(policy.rules[0].targets, [target], "{text}");
    }
    for name in [
        "tcp-seq-num",
        "tcp-ack-num",
        "tcp-sport",
        "tcp-dport",
        "udp-sport",
        "udp-dport",
        "ip-id",
        "ip6-flow-label",
    ] {
        let rule = rule(&format!("add-stateful all shuffle {name}"));
        assert_eq!(rule.targets, [shuffle(name)]);
    }
}

#[test]
fn targets_for_connections_require_their_headers() {
    for (targets, classes) in [
        ("map ip-saddr 192.0.2.1", Classes::IP4),
        ("map ip6-daddr ::1", Classes::IP6),
        ("map udp-sport 5", Classes::UDP),
        ("shuffle tcp-seq-num", Classes::TCP),
        (
            "shuffle ip6-flow-label shuffle tcp-sport",
            Classes::IP6.union(Classes::TCP),
        ),
        ("accept timeout 5s", Classes::default()),
    ] {
        let rule = rule(&format!("add-stateful all {targets}"));
        assert_eq!(rule.requires, classes, "{targets}");
    }
}

#[test]
fn settings_of_connections() {
    const SECOND: u64 = 1_000_000_000;
    let state = "add-stateful all accept";
    assert_eq!(read(state).policy.connections, Connections::default());
    let text = format!(
        "CONNECTIONS 1000 # so many\n{state} timeout 90\ntimeout UDP-new 500ms\ntimeout tcp-established 2h\ntimeout fragment 1m"
    );
    let policy = read(&text).policy;
    let mut wanted = Connections {
        capacity: 1000,
        ..Connections::default()
    };
    wanted.timeouts_ns[FlowState::UdpUnreplied as usize] = SECOND / 2;
    wanted.timeouts_ns[FlowState::TcpEstablished as usize] = 7200 * SECOND;
    wanted.timeouts_ns[FlowState::Fragment as usize] = 60 * SECOND;
    assert_eq!(policy.connections, wanted);
    assert_eq!(policy.rules[0].timeout_ns, Some(90 * SECOND));
    for state in FlowState::ALL {
        let text = format!("timeout {} 7s\nadd-stateful all accept", state.name());
        let found = read(&text).policy.connections.timeouts_ns;
        assert_eq!(found[state as usize], 7 * SECOND, "{}", state.name());
    }
}

/// Names of earlier versions, of which one stood for two states.
#[test]
fn old_names_of_states() {
    let with = |lines: &str| {
        let text = format!("{lines}\nadd-stateful all accept");
        parse(&Source::new("t", text), &NoFiles)
    };
    for (old, states) in [
        ("tcp-syn-received", &[FlowState::TcpSynRecv][..]),
        ("TCP-fin", &[FlowState::TcpFinWait, FlowState::TcpCloseWait]),
        ("tcp-closed", &[FlowState::TcpClose]),
        ("udp-new", &[FlowState::UdpUnreplied]),
        ("udp", &[FlowState::UdpStream]),
        ("tcp-unacknowledged", &[FlowState::TcpUnack]),
        ("tcp-max-retrans", &[FlowState::TcpRetrans]),
    ] {
        let mut wanted = Connections::default();
        for &state in states {
            wanted.timeouts_ns[state as usize] = 7_000_000_000;
        }
        let read = with(&format!("timeout {old} 7s")).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(read.policy.connections, wanted, "{old}");
        let twice = format!("timeout {old} 7s\ntimeout {} 7s", states[0].name());
        let said = with(&twice)
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default();
        assert!(said.contains("is written twice"), "{said}");
    }
}

#[test]
fn loose_tcp_is_a_line_and_a_name_may_still_be_loose() {
    let loose = |text: &str| read(text).policy.connections.loose_tcp;
    assert!(loose("LOOSE tcp # one way\nadd-stateful all accept"));
    assert!(!loose("loose: add-stateful all accept"));
    let formatted = format_source(&Source::new(
        "t",
        "Loose  TCP # why\nadd-stateful all accept",
    ));
    assert_eq!(
        formatted.unwrap_or_else(|e| panic!("{e}")),
        "loose tcp  # why\nadd-stateful all accept\n"
    );
    for (text, part) in [
        (
            "loose tcp\nloose tcp\nadd-stateful all accept",
            "`loose tcp` is written twice",
        ),
        (
            "loose tcp yes\nadd-stateful all accept",
            "nothing may follow `loose tcp`",
        ),
    ] {
        let refused = parse(&Source::new("t", text), &NoFiles);
        let said = refused.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn formatting() {
    let text = "Connections  500\nTIMEOUT Udp 5M # why\nn: mmb Add-Stateful all MAP ip-saddr in {10.0.0.1,10.0.0.2-10.0.0.9} Timeout 5S\n\
                add-stateful tcp-syn shuffle TCP-SEQ shuffle tcp-opt-sack\n";
    let once = format_source(&Source::new("t", text)).unwrap_or_else(|e| panic!("{e}"));
    let expected = "connections 500\ntimeout udp 5m  # why\n\
                    n: add-stateful all     map ip-saddr { 10.0.0.1, 10.0.0.2-10.0.0.9 } timeout 5s\n   add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-opt-sack\n";
    assert_eq!(once, expected);
    assert_eq!(format_source(&Source::new("t", once.as_str())), Ok(once));
}

#[test]
fn descriptions() {
    for (text, sentence) in [
        (
            "nat: add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 shuffle tcp-sport timeout 90m",
            "Rule 1 (nat): every packet of a connection opened by an IPv4 TCP packet whose source address is in 10.0.0.0/8 gets its source address translated to 192.0.2.1 (answers back), gets its source port translated to a random one from 49152, chosen for the connection (answers back) and keeps its connection for 90 min without packets.",
        ),
        (
            "add-stateful tcp-syn shuffle tcp-seq-num accept",
            "Rule 1: every packet of a connection opened by a TCP packet with the SYN bit set gets its sequence number moved by a random offset, chosen for the connection and is accepted whatever other rules drop.",
        ),
    ] {
        assert_eq!(describe(&rule(text)), sentence);
    }
}
