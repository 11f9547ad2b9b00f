//! What `weir explain` says.

use super::*;
use crate::model::PortName;
use crate::reference::{Part, PortId, explain};

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
            "rule 1 (web) does not match: tcp-dport is 443 (https), not in {80 (http)}",
            "rule 2 does not match: tcp-dport is 443 (https), in {80 (http), 400-499}",
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

#[test]
fn rules_of_connections_are_explained_by_them() {
    let text = "out: add-stateful ip-saddr 10.0.0.1 accept\n\
                add-stateful tcp-dport 443 accept\n\
                web: add-stateful tcp-dport 80 accept\n\
                tcp-sport 80 accept\n";
    let parsed = crate::parse(&crate::Source::new("test.weir", text), &crate::NoFiles);
    let policy = parsed.expect("the policy is right").policy;
    let mut reference = Reference::new(policy, Options::default());
    let (inside, outside) = ([10, 0, 0, 1], [192, 0, 2, 80]);
    let reset = Frame::new()
        .ip4(inside, outside)
        .tcp(5, 80)
        .flags(4)
        .build();
    let (part, said) = lines(&mut reference, &reset);
    assert_eq!(part, None);
    let may_not = "does not count: the packet belongs to no connection and may open none";
    assert_eq!(said[0], format!("rule 1 (out) {may_not}"));
    assert_eq!(
        said[1],
        "rule 2 does not match: tcp-dport is 80 (http), not in {443 (https)}"
    );
    assert_eq!(said[2], format!("rule 3 (web) {may_not}"));

    let syn = Frame::new()
        .ip4(inside, outside)
        .tcp(5, 80)
        .flags(2)
        .numbers(0, 0)
        .build();
    let (part, said) = lines(&mut reference, &syn);
    assert_eq!(part, Some(Part::Opened));
    assert_eq!(said[0], "rule 1 (out) matches: it opens a connection");
    assert_eq!(
        said[1],
        "rule 2 does not match: tcp-dport is 80 (http), not in {443 (https)}"
    );

    let answer = Frame::new()
        .ip4(outside, inside)
        .tcp(80, 5)
        .flags(18)
        .numbers(5000, 1)
        .build();
    let (part, said) = lines(&mut reference, &answer);
    assert_eq!(part, Some(Part::Reverse));
    let with = "counts: the packet's connection was opened with it";
    assert_eq!(
        said,
        [
            format!("rule 1 (out) {with}"),
            "rule 2 does not count: the packet's connection was opened without it".to_owned(),
            format!("rule 3 (web) {with}"),
            "rule 4 matches".to_owned(),
        ]
    );

    let later = Frame::new()
        .ip4(inside, outside)
        .fragment(8, false)
        .payload(b"later")
        .build();
    let (_, said) = reference.explain(Input::new(&later));
    assert_eq!(said, Err(Reason::FragBeforeFirst));
}

/// What the packet has to do with a connection, and a line for each rule.
fn lines(reference: &mut Reference, frame: &[u8]) -> (Option<Part>, Vec<String>) {
    let (outcome, rules) = reference.explain(Input::new(frame));
    let rules = rules.expect("well formed");
    (
        outcome.connection,
        rules.iter().map(ToString::to_string).collect(),
    )
}
