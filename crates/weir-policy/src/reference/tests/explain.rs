//! What `weir explain` says.

use super::*;
use crate::model::PortName;
use crate::reference::{PortId, explain};

#[test]
fn each_rule_gets_its_line() {
    let mut rules = policy(vec![
        (vec![is("tcp-dport", 80)], vec![Target::Accept]),
        (
            vec![within("! tcp-dport", &[(400, 499), (80, 80)])],
            vec![Target::Accept],
        ),
        (vec![present("udp-dport")], vec![Target::Accept]),
        (
            vec![
                present("tcp-syn"),
                present("tcp-opt-mss"),
                is("tcp-sport", 1),
            ],
            vec![Target::Accept],
        ),
        (vec![bytes("tcp-payload[1]", b"xx")], vec![Target::Accept]),
        (vec![is("ip-saddr", 0x0a00_0009)], vec![Target::Accept]),
        (
            vec![matching_test(
                "in",
                Test::Port(vec![PortName::Name("wan".to_owned())]),
            )],
            vec![Target::Accept],
        ),
        (all(), vec![Target::Accept]),
        (vec![is("tcp-opt 253", 1)], vec![Target::Accept]),
    ]);
    rules.rules[0].name = Some("web".to_owned());
    let frame = ip4()
        .tcp(1, 443)
        .tcp_option(253, &[])
        .payload(b"abc")
        .build();
    let input = Input {
        port: PortId {
            name: Some("lan"),
            index: 2,
        },
        ..Input::new(&frame)
    };
    let lines: Vec<String> = explain(&rules, &input)
        .expect("well formed")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        lines,
        [
            "rule 1 (web) does not match: tcp-dport is 443, not in {80}",
            "rule 2 does not match: tcp-dport is 443, in {80, 400-499}",
            "rule 3 does not match: the packet has no UDP header; udp-dport is absent",
            "rule 4 does not match: tcp-syn is 0; tcp-opt-mss is absent",
            "rule 5 does not match: tcp-payload[1] is x6263, not x7878",
            "rule 6 does not match: ip-saddr is 10.0.0.1, not in {10.0.0.9}",
            "rule 7 does not match: in is lan, not in {wan}",
            "rule 8 matches",
            "rule 9 does not match: tcp-opt 253 has a value of another length",
        ]
    );
}

#[test]
fn a_malformed_packet_is_explained_by_its_reason() {
    let frame = ip4().ttl(0).build();
    assert_eq!(
        explain(&Policy::default(), &Input::new(&frame)),
        Err(Reason::TtlZero)
    );
}
