//! What reaches over flows: thresholds, bits of hosts, and the order that makes workers equal.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weir_sensor::app::App;
use weir_sensor::buffer::Buffer;
use weir_sensor::detect::{Decision, Match, Ruleset, Sequencer};
use weir_sensor::matcher::Engine;
use weir_sensor::packet::Direction::ToServer;
use weir_sensor::rules::*;

use super::build::*;
use super::material::Numbers;

fn found(rule: u32, packet: u64, source: u8) -> Match {
    Match {
        rule,
        packet,
        order: 0,
        time: packet * SECOND,
        flow: Some(1),
        direction: Some(ToServer),
        source: (IpAddr::V4(Ipv4Addr::new(10, 0, 0, source)), 1),
        destination: (SERVER, 80),
        protocol: 17,
        app: App::Unknown,
        transaction: None,
        file: None,
        frame: None,
        stream: false,
        asks: Box::default(),
        whole_flow: false,
    }
}

fn threshold(kind: ThresholdKind, count: u32, seconds: u32) -> Option<Threshold> {
    Some(Threshold {
        kind,
        track: Track::Source,
        count,
        seconds,
    })
}

fn filters(kinds: Vec<FilterKind>) -> Vec<EventFilter> {
    let place = SourceLocation {
        file: "test".into(),
        line: 1,
    };
    let filter = |kind| EventFilter {
        gid: 1,
        sid: 1,
        kind,
        place: place.clone(),
    };
    kinds.into_iter().map(filter).collect()
}

fn alerts(rule: Rule, kinds: Vec<FilterKind>, matches: &[Match]) -> Vec<bool> {
    let (ruleset, _) = Ruleset::build(
        vec![rule],
        Expressions::default(),
        Arc::default(),
        Engine::Prefilter,
    );
    let mut sequencer = Sequencer::new(Arc::new(ruleset), &filters(kinds));
    matches
        .iter()
        .map(|m| matches!(sequencer.decide(m), Decision::Alert(_)))
        .collect()
}

#[test]
fn thresholds_count_as_the_language_says() {
    let every_second: Vec<Match> = (0..8).map(|i| found(0, i, 1)).collect();
    let base = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"abcd")],
    );
    let with_threshold = |t| Rule {
        threshold: t,
        ..base.clone()
    };
    let t = |kind| {
        alerts(
            with_threshold(threshold(kind, 2, 100)),
            vec![],
            &every_second,
        )
    };
    assert_eq!(
        t(ThresholdKind::Limit),
        [true, true, false, false, false, false, false, false]
    );
    assert_eq!(
        t(ThresholdKind::Threshold),
        [false, true, false, true, false, true, false, true]
    );
    assert_eq!(
        t(ThresholdKind::Both),
        [false, true, false, false, false, false, false, false]
    );
    let filter = Rule {
        detection_filter: threshold(ThresholdKind::Filter, 2, 100),
        ..base.clone()
    };
    assert_eq!(
        alerts(filter, vec![], &every_second),
        [false, false, true, true, true, true, true, true]
    );
    // A period that is over begins anew; hosts are counted apart.
    let limited = with_threshold(threshold(ThresholdKind::Limit, 1, 3));
    assert_eq!(
        alerts(limited.clone(), vec![], &every_second),
        [true, false, false, false, true, false, false, false]
    );
    let hosts: Vec<Match> = (0..4).map(|i| found(0, i, i as u8 % 2)).collect();
    assert_eq!(alerts(limited, vec![], &hosts), [true, true, false, false]);
    // The configuration suppresses, replaces, and changes actions.
    let suppress = FilterKind::Suppress {
        track: Some(Track::Source),
        addresses: address(Ipv4Addr::new(10, 0, 0, 0)),
    };
    assert_eq!(
        alerts(base.clone(), vec![suppress], &hosts),
        [false, true, false, true]
    );
    let (ruleset, _) = Ruleset::build(
        vec![base],
        Expressions::default(),
        Arc::default(),
        Engine::Prefilter,
    );
    let rate = Threshold {
        kind: ThresholdKind::Threshold,
        track: Track::Rule,
        count: 3,
        seconds: 100,
    };
    let mut sequencer = Sequencer::new(
        Arc::new(ruleset),
        &filters(vec![FilterKind::Rate {
            threshold: rate,
            action: Action::Drop,
            timeout: 2,
        }]),
    );
    let actions: Vec<Decision> = every_second.iter().map(|m| sequencer.decide(m)).collect();
    let (a, d) = (
        Decision::Alert(Action::Alert),
        Decision::Alert(Action::Drop),
    );
    // The first three keep their action; what is changed stays so for two seconds.
    assert_eq!(actions, [a, a, a, d, d, d, a, a]);
}

#[test]
fn bits_of_hosts_reach_over_flows_and_expire() {
    let bit = |operation, track| Bit::Host {
        operation,
        name: "seen".into(),
        track,
        expire: 3,
    };
    let mut set = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"abcd")],
    );
    set.bits = vec![bit(BitOperation::Set, Track::Source)];
    set.silent = true;
    let mut ask = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"abcd")],
    );
    ask.bits = vec![bit(BitOperation::IsSet, Track::Source)];
    let (ruleset, refused) = Ruleset::build(
        vec![ask, set],
        Expressions::default(),
        Arc::default(),
        Engine::Prefilter,
    );
    assert!(refused.is_empty());
    let index = |sid| {
        ruleset
            .rules()
            .iter()
            .position(|r| r.sid == sid)
            .expect("is there") as u32
    };
    let (set, ask) = (index(1), index(2));
    assert!(set < ask, "setters rank first");
    let mut s = Sequencer::new(Arc::new(ruleset), &[]);
    assert_eq!(s.decide(&found(ask, 1, 1)), Decision::Void);
    assert_eq!(s.decide(&found(set, 2, 1)), Decision::Silent);
    assert_eq!(s.decide(&found(ask, 3, 1)), Decision::Alert(Action::Alert));
    assert_eq!(s.decide(&found(ask, 3, 2)), Decision::Void);
    assert_eq!(s.decide(&found(ask, 5, 1)), Decision::Alert(Action::Alert));
    assert_eq!(s.decide(&found(ask, 6, 1)), Decision::Void);
}

#[test]
fn tables_forget_the_oldest_at_their_cap() {
    let mut base = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"abcd")],
    );
    base.threshold = threshold(ThresholdKind::Limit, 1, 1000);
    let (ruleset, _) = Ruleset::build(
        vec![base],
        Expressions::default(),
        Arc::default(),
        Engine::Prefilter,
    );
    let mut s = Sequencer::with_cap(Arc::new(ruleset), &[], 4);
    let mut alert = |i: u64, host: u8| matches!(s.decide(&found(0, i, host)), Decision::Alert(_));
    assert!((0..5).all(|h| alert(u64::from(h), h)));
    assert!(!alert(6, 4), "the newest is known");
    assert!(alert(7, 0), "the oldest was forgotten");
    assert_eq!(s.counts().thresholds_forgotten, 2);
}

/// The same packets spread over workers in many ways give the same alerts.
#[test]
fn any_number_of_workers_gives_the_same_alerts() {
    let mut limited = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"abab")],
    );
    limited.threshold = Some(Threshold {
        kind: ThresholdKind::Threshold,
        track: Track::Destination,
        count: 3,
        seconds: 5,
    });
    let mut set = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"bbbb")],
    );
    set.bits = vec![Bit::Host {
        operation: BitOperation::Toggle,
        name: "x".into(),
        track: Track::Destination,
        expire: 9,
    }];
    let mut ask = on(3, HeaderProtocol::Udp, Buffer::Payload, vec![plain(b"aaa")]);
    ask.bits = vec![Bit::Host {
        operation: BitOperation::IsSet,
        name: "x".into(),
        track: Track::Destination,
        expire: 9,
    }];
    let (ruleset, _) = Ruleset::build(
        vec![limited, set, ask],
        Expressions::default(),
        Arc::default(),
        Engine::Prefilter,
    );
    let ruleset = Arc::new(ruleset);
    let mut n = Numbers(1);
    let packets: Vec<(u64, usize, Vec<u8>)> = (1..800)
        .map(|number| {
            let letters = (0..12).map(|_| b"ab"[n.below(2)]).collect();
            (number, n.below(16), letters)
        })
        .collect();
    let mut first: Option<Vec<(u64, u32, Decision)>> = None;
    for (workers, seed) in [(1, 0), (2, 1), (3, 2), (4, 3), (8, 4), (4, 5)] {
        let mut n = Numbers(seed);
        let place: Vec<usize> = (0..16).map(|_| n.below(workers)).collect();
        let mut detectors: Vec<_> = (0..workers)
            .map(|_| weir_sensor::detect::Detector::new(ruleset.clone()))
            .collect();
        let mut states: Vec<_> = (0..16)
            .map(|_| weir_sensor::detect::FlowState::default())
            .collect();
        // Each worker by itself.
        let mut given: Vec<Vec<Match>> = vec![Vec::new(); workers];
        for (worker, detector) in detectors.iter_mut().enumerate() {
            for (number, flow, payload) in packets.iter().filter(|(_, f, _)| place[*f] == worker) {
                let packet = packet(*number, ToServer, false, payload);
                let v = weir_sensor::detect::FlowView {
                    opaque: false,
                    id: *flow as u64,
                    ..view(17, App::Unknown)
                };
                let flow = weir_sensor::detect::PacketFlow {
                    view: &v,
                    state: &mut states[*flow],
                    direction: ToServer,
                    offset: None,
                    transaction: None,
                };
                detector.packet(&packet, Default::default(), Some(flow));
            }
            given[worker] = detector.matches().to_vec();
        }
        // As a run puts them together: by packet, then as the worker gave them.
        let mut all: Vec<Match> = given.into_iter().flatten().collect();
        all.sort_by_key(|m| (m.packet, m.order));
        let mut sequencer = Sequencer::new(ruleset.clone(), &[]);
        let out: Vec<_> = all
            .iter()
            .map(|m| (m.packet, m.rule, sequencer.decide(m)))
            .collect();
        assert!(out.len() > 100);
        match &first {
            None => first = Some(out),
            Some(first) => assert_eq!(&out, first, "{workers} workers"),
        }
    }
}
