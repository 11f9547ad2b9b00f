//! What flows remember, rules about addresses and headers, and what cannot be decided.

use std::net::Ipv4Addr;
use std::sync::Arc;

use weir_sensor::app::App;
use weir_sensor::buffer::Buffer;
use weir_sensor::detect::Ruleset;
use weir_sensor::matcher::Engine;
use weir_sensor::packet::Direction::{ToClient, ToServer};
use weir_sensor::rules::*;

use super::ENGINES;
use super::build::*;

fn flowbit(operation: BitOperation, name: &str) -> Bit {
    Bit::Flow {
        operation,
        names: name.split('|').map(str::to_owned).collect(),
    }
}

#[test]
fn bits_are_set_before_they_are_asked_for() {
    // Loaded the wrong way round; and the reader ranks higher by priority.
    let mut reader = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"bbbb")],
    );
    reader.bits = vec![flowbit(BitOperation::IsSet, "other|seen")];
    reader.priority = 1;
    let mut setter = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"aaaa")],
    );
    setter.bits = vec![flowbit(BitOperation::Set, "seen")];
    setter.silent = true;
    let mut clear = on(
        3,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"cccc")],
    );
    clear.bits = vec![flowbit(BitOperation::Unset, "seen")];
    for engine in ENGINES {
        let mut bed = Bed::new(
            vec![reader.clone(), setter.clone(), clear.clone()],
            engine,
            17,
            App::Unknown,
        );
        assert_eq!(bed.packet(ToServer, b"bbbb"), [0_u32; 0]);
        assert_eq!(bed.packet(ToServer, b"aaaa bbbb"), [1]);
        assert_eq!(bed.packet(ToServer, b"bbbb"), [1]);
        assert_eq!(bed.packet(ToServer, b"cccc"), [3]);
        assert_eq!(bed.packet(ToServer, b"bbbb"), [0_u32; 0]);
    }
}

#[test]
fn counters_count() {
    let flowint = |operator: &str, value: i64| Bit::Counter {
        name: "n".into(),
        operator: operator.into(),
        value: is(value),
    };
    let mut count = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"fail")],
    );
    count.bits = vec![flowint("+", 1)];
    count.silent = true;
    let mut ask = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"fail")],
    );
    ask.bits = vec![flowint(">=", 3)];
    let mut bed = Bed::new(vec![ask, count], Engine::Prefilter, 17, App::Unknown);
    let got: Vec<usize> = (0..4)
        .map(|_| bed.packet(ToServer, b"fail").len())
        .collect();
    assert_eq!(got, [0, 0, 1, 1]);
    // Nothing can be taken from what is not there.
    let mut take = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"less")],
    );
    take.bits = vec![flowint("-", 1)];
    take.silent = true;
    let mut ask = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"there")],
    );
    ask.bits = vec![flowint("<", 9)];
    let mut bed = Bed::new(vec![take, ask], Engine::Prefilter, 17, App::Unknown);
    for text in [&b"less"[..], b"there"] {
        assert_eq!(bed.packet(ToServer, text), [0_u32; 0]);
    }
}

#[test]
fn pass_rules_silence_packets_and_flows() {
    let alert = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"evil")],
    );
    let mut pass = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"good")],
    );
    pass.action = Action::Pass;
    let mut bed = Bed::new(
        vec![alert.clone(), pass],
        Engine::Prefilter,
        17,
        App::Unknown,
    );
    assert_eq!(bed.packet(ToServer, b"evil"), [1]);
    assert_eq!(bed.packet(ToServer, b"evil good"), [0_u32; 0]);
    assert_eq!(bed.packet(ToServer, b"evil"), [1]);
    let mut whole = rule(3, HeaderProtocol::Udp);
    whole.action = Action::Pass;
    whole.header.source = address(Ipv4Addr::new(10, 0, 0, 1));
    let mut bed = Bed::new(vec![alert, whole], Engine::Prefilter, 17, App::Unknown);
    assert_eq!(bed.packet(ToServer, b"evil"), [0_u32; 0]);
    assert_eq!(bed.packet(ToClient, b"evil"), [0_u32; 0]);
    assert!(bed.state.is_passed());
}

#[test]
fn rules_about_addresses_are_decided_once_in_each_direction() {
    let mut from_client = rule(1, HeaderProtocol::Ip);
    from_client.header.source = address(Ipv4Addr::new(10, 0, 0, 1));
    let every = rule(2, HeaderProtocol::Udp);
    let mut each = rule(3, HeaderProtocol::Udp);
    each.flow.to_server = Some(true);
    let mut both = rule(4, HeaderProtocol::Ip);
    both.header.destination = address(Ipv4Addr::new(10, 0, 0, 1));
    both.header.both_ways = true;
    let mut bed = Bed::new(
        vec![from_client, every, each, both],
        Engine::Prefilter,
        17,
        App::Unknown,
    );
    assert_eq!(bed.packet(ToServer, b"x"), [1, 2, 3, 4]);
    assert_eq!(bed.packet(ToServer, b"x"), [3]);
    assert_eq!(bed.packet(ToClient, b"x"), [2, 4]);
    assert_eq!(bed.packet(ToClient, b"x"), [0_u32; 0]);
}

#[test]
fn what_is_alike_in_all_packets_is_asked_of_the_first() {
    let mut ports = rule(1, HeaderProtocol::Udp);
    ports.header.destination_ports = PortSet {
        any: false,
        ranges: Arc::from([(80, 80)]),
    };
    let mut number = rule(2, HeaderProtocol::Ip);
    number.packet = vec![PacketCondition::Protocol(Range::new(17, 17, false))];
    let mut no_stream = rule(3, HeaderProtocol::Udp);
    no_stream.flow.stream = Some(false);
    let headers = rule(4, HeaderProtocol::PacketHeader);
    let mut excluded = rule(5, HeaderProtocol::Ip);
    excluded.header.source = address(Ipv4Addr::new(10, 0, 0, 1));
    excluded.header.source.negated = true;
    let mut fragments = rule(6, HeaderProtocol::Ip);
    fragments.flow.fragment = Some(false);
    let rules = vec![ports, number, no_stream, headers, excluded, fragments];
    let mut bed = Bed::new(rules, Engine::Prefilter, 17, App::Unknown);
    assert_eq!(bed.packet(ToServer, b"x"), [1, 2, 3, 4, 5, 6]);
    assert_eq!(bed.packet(ToServer, b"x"), [5, 6]);
    assert_eq!(bed.packet(ToClient, b"x"), [2, 3, 4, 6]);
    assert_eq!(bed.packet(ToClient, b"x"), [6]);
}

#[test]
fn headers_and_packet_conditions_are_checked() {
    let mut port = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"data")],
    );
    port.header.destination_ports = PortSet {
        any: false,
        ranges: Arc::from([(80, 80)]),
    };
    let mut size = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"data")],
    );
    size.packet = vec![PacketCondition::PayloadSize(Range::new(4, 4, false))];
    let mut ttl = rule(3, HeaderProtocol::Ip);
    ttl.packet = vec![PacketCondition::Ttl(Range::new(65, 255, true))];
    let mut app = on(
        4,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"data")],
    );
    app.apps = vec![(App::Dns, true)];
    let mut bed = Bed::new(
        vec![port, size, ttl, app],
        Engine::Prefilter,
        17,
        App::Unknown,
    );
    // Not `!dns`: the protocol is not known yet.
    assert_eq!(bed.packet(ToServer, b"data"), [1, 2, 3]);
    assert_eq!(bed.packet(ToClient, b"data."), [3]);
    bed.view.app = App::Failed;
    assert_eq!(bed.packet(ToClient, b"data."), [3, 4]);
}

#[test]
fn what_cannot_be_decided_is_refused_with_its_reason() {
    let broken = on(
        2,
        HeaderProtocol::Tcp,
        Buffer::Payload,
        vec![plain(b"abcd"), pcre("(", |_| {})],
    );
    let unknown = on(
        3,
        HeaderProtocol::Tcp,
        Buffer::Payload,
        vec![with(b"abcd", |c| {
            c.offset = Some(Number::Variable("x".into()))
        })],
    );
    let good = on(
        4,
        HeaderProtocol::Tcp,
        Buffer::Payload,
        vec![plain(b"abcd")],
    );
    let (ruleset, refused) = Ruleset::build(
        vec![broken, unknown, good],
        Expressions::default(),
        Arc::default(),
        Engine::Prefilter,
    );
    assert_eq!(ruleset.len(), 1);
    let sids: Vec<u32> = refused.iter().map(|r| r.sid).collect();
    assert_eq!(sids, [2, 3]);
    assert!(refused[1].reason.contains("`x`"), "{}", refused[1].reason);
}
