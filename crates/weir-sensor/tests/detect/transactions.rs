//! Rules about buffers of transactions: transforms, instances, absent buffers, both directions, and a part in the stream.

use weir_sensor::app::{App, Transaction};
use weir_sensor::buffer::Buffer;
use weir_sensor::matcher::Engine;
use weir_sensor::packet::Direction::{ToClient, ToServer};
use weir_sensor::rules::*;

use super::ENGINES;
use super::build::*;

#[test]
fn transforms_change_what_is_searched() {
    let mut rule = on(
        1,
        HeaderProtocol::App,
        Buffer::HttpHost,
        vec![with(b".evil.com", |c| c.ends = true)],
    );
    rule.groups[0].transforms = vec![Transform::DotPrefix];
    for engine in ENGINES {
        for (host, wanted) in [
            (&b"evil.com"[..], true),
            (b"a.evil.com", true),
            (b"notevil.com", false),
        ] {
            let mut bed = Bed::new(vec![rule.clone()], engine, 6, App::Http1);
            let mut t = request(&[(Buffer::HttpHost, host)]);
            assert_eq!(!bed.transaction(&mut t, false).is_empty(), wanted);
        }
    }
}

#[test]
fn conditions_of_one_group_hold_for_one_instance() {
    let both = on(
        1,
        HeaderProtocol::App,
        Buffer::DnsQuery,
        vec![plain(b"aaaa"), plain(b"bbbb")],
    );
    for (names, wanted) in [
        (vec![&b"aaaa.bbbb"[..]], true),
        (vec![b"aaaa", b"bbbb"], false),
    ] {
        let mut bed = Bed::new(vec![both.clone()], Engine::Prefilter, 17, App::Dns);
        let mut t = Transaction::default();
        t.app = App::Dns;
        t.complete = [true, false];
        for name in names {
            t.push(Buffer::DnsQuery, ToServer, name);
        }
        assert_eq!(!bed.transaction(&mut t, false).is_empty(), wanted);
    }
}

#[test]
fn absent_buffers_are_asked_for() {
    let absent = |or_else, more: Vec<Condition>| {
        let mut r = on(1, HeaderProtocol::App, Buffer::HttpUserAgent, more);
        r.groups[0].conditions.insert(0, Condition::Absent(or_else));
        r
    };
    let decide = |rule: Rule, buffers: &[(Buffer, &[u8])]| {
        let mut bed = Bed::new(vec![rule], Engine::Prefilter, 6, App::Http1);
        !bed.transaction(&mut request(buffers), false).is_empty()
    };
    let uri: (Buffer, &[u8]) = (Buffer::HttpUri, b"/");
    assert!(decide(absent(false, vec![]), &[uri]));
    assert!(!decide(
        absent(false, vec![]),
        &[uri, (Buffer::HttpUserAgent, b"x")]
    ));
    assert!(decide(absent(true, vec![plain(b"curl")]), &[uri]));
    assert!(decide(
        absent(true, vec![plain(b"curl")]),
        &[(Buffer::HttpUserAgent, b"curl/8")]
    ));
    assert!(!decide(
        absent(true, vec![plain(b"curl")]),
        &[(Buffer::HttpUserAgent, b"wget")]
    ));
    // A negated content wants its buffer there.
    let not = on(
        1,
        HeaderProtocol::App,
        Buffer::HttpUserAgent,
        vec![with(b"curl", |c| c.negated = true)],
    );
    assert!(!decide(not.clone(), &[uri]));
    assert!(decide(not, &[(Buffer::HttpUserAgent, b"wget")]));
}

#[test]
fn rules_of_both_directions_are_decided_once_at_the_end() {
    let mut rule = on(
        1,
        HeaderProtocol::App,
        Buffer::HttpUri,
        vec![plain(b"/admin")],
    );
    rule.groups.push(Group {
        way: None,
        buffer: Buffer::HttpStatusCode,
        transforms: vec![],
        conditions: vec![plain(b"200")],
    });
    for engine in ENGINES {
        let mut bed = Bed::new(vec![rule.clone()], engine, 6, App::Http1);
        let mut t = request(&[(Buffer::HttpUri, b"/admin")]);
        assert!(bed.transaction(&mut t, false).is_empty());
        t.push(Buffer::HttpStatusCode, ToClient, b"200");
        t.complete = [true; 2];
        assert_eq!(bed.transaction(&mut t, false), [1]);
        assert!(bed.transaction(&mut t, true).is_empty());
    }
}

#[test]
fn a_stream_part_waits_for_its_transaction() {
    let mut rule = on(1, HeaderProtocol::App, Buffer::HttpUri, vec![plain(b"/x")]);
    rule.groups.push(Group {
        way: None,
        buffer: Buffer::Payload,
        transforms: vec![],
        conditions: vec![plain(b"weird bytes")],
    });
    for (bytes, wanted) in [(&b"GET /x weird bytes"[..], vec![1]), (b"GET /x", vec![])] {
        let mut bed = Bed::new(vec![rule.clone()], Engine::Prefilter, 6, App::Http1);
        assert!(bed.segment(ToServer, bytes, false).is_empty());
        assert_eq!(
            bed.transaction(&mut request(&[(Buffer::HttpUri, b"/x")]), false),
            wanted
        );
    }
}
