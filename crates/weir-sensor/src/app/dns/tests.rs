//! Messages by hand.

use super::*;
use crate::app::tests::{dump, wanted};
use crate::packet::Direction::ToServer;

/// A query for www.Example.com, type A.
pub(crate) const QUERY: &[u8] =
    b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07Example\x03com\x00\x00\x01\x00\x01";
/// Its answer: a CNAME by pointer, and an address.
const ANSWER: &[u8] = b"\x12\x34\x81\x80\x00\x01\x00\x02\x00\x00\x00\x00\x03www\x07Example\x03com\x00\x00\x01\x00\x01\
    \xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x04\x01x\xc0\x10\
    \xc0\x2d\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x01\x02\x03\x04";

#[test]
fn questions_and_answers_are_read() {
    let mut p = Dns::new(&wanted());
    let mut out = Transactions::default();
    p.data(ToServer, QUERY, 5, &mut out);
    p.data(ToClient, ANSWER, 6, &mut out);
    let q = &out.live[0];
    assert_eq!(
        q.get(Buffer::DnsQuery, ToServer).collect::<Vec<_>>(),
        [b"www.Example.com"]
    );
    assert_eq!(q.record["queries"][0]["rrtype"], "A");
    assert_eq!(q.record["id"], 0x1234);
    let a = &out.live[1];
    assert!(a.events.is_empty(), "{:?}", a.events);
    assert_eq!(a.get(Buffer::DnsQuery, ToClient).count(), 0);
    assert_eq!(a.record["answers"][0]["rdata"], "x.Example.com");
    assert_eq!(a.record["answers"][1]["rdata"], "1.2.3.4");
    assert_eq!(a.record["grouped"]["A"][0], "1.2.3.4");
    assert_eq!(a.record["rcode"], "NOERROR");
    assert_eq!(a.record["flags"], "8180");
    assert_eq!(a.facts("dns.rcode").collect::<Vec<_>>(), [0]);
    assert!(a.done && q.done);
}

#[test]
fn streams_are_cut_anywhere() {
    let mut stream = Vec::new();
    for _ in 0..3 {
        stream.extend_from_slice(&(QUERY.len() as u16).to_be_bytes());
        stream.extend_from_slice(QUERY);
    }
    let run = |step: usize| {
        let mut p = Dns::of_stream(&wanted());
        let mut out = Transactions::default();
        for piece in stream.chunks(step) {
            p.data(ToServer, piece, 0, &mut out);
        }
        dump(&out)
    };
    let whole = run(stream.len());
    assert_eq!(whole.len(), 3);
    for step in 1..40 {
        assert_eq!(run(step), whole);
    }
}

#[test]
fn loops_and_lies_end() {
    let mut looped = QUERY[..12].to_vec();
    looped.extend_from_slice(b"\xc0\x0c\x00\x01\x00\x01");
    let mut p = Dns::new(&wanted());
    let mut out = Transactions::default();
    p.data(ToServer, &looped, 0, &mut out);
    let events = ["infinite_loop", "too_many_labels", "name_too_long"];
    assert_eq!(out.live[0].events, events);
    // A long way round is none.
    let mut long = QUERY[..12].to_vec();
    let mut at = 12 + 6;
    for _ in 0..200 {
        long.extend_from_slice(&(0xc000 | at as u16).to_be_bytes());
        if long.len() == 14 {
            long.extend_from_slice(&[0, 1, 0, 1]);
        }
        at += 2;
    }
    long.extend_from_slice(b"\x01z\x00");
    p.data(ToServer, &long, 0, &mut out);
    let t = out.live.back().unwrap();
    assert!(t.events.is_empty(), "{:?}", t.events);
    assert_eq!(t.record["queries"][0]["rrname"], "z");
    for n in 0..ANSWER.len() {
        p.data(ToClient, &ANSWER[..n], 0, &mut out);
        let t = out.live.back().unwrap();
        assert_eq!(t.events, ["malformed_data"], "{n}");
        assert!(t.record.is_empty() && t.facts.is_empty(), "{n}");
    }
}

/// `ANSWER` with records of a question's own name behind it, in the sections that `counts` says.
fn with(counts: [u8; 3], records: &[(u8, &[u8])]) -> Transactions {
    let mut b = ANSWER[..ANSWER.len() - 32].to_vec();
    (b[7], b[9], b[11]) = (counts[0], counts[1], counts[2]);
    for (kind, data) in records {
        b.extend_from_slice(&[0xc0, 0x0c, 0, *kind, 0, 1, 0, 0, 0, 9, 0, data.len() as u8]);
        b.extend_from_slice(data);
    }
    let mut out = Transactions::default();
    Dns::new(&wanted()).data(ToClient, &b, 0, &mut out);
    out
}

#[test]
fn answers_are_of_the_types_of_their_records() {
    let out = with([1, 1, 0], &[(16, b"\x02hi\x01!"), (15, b"\0\x0a\xc0\x0c")]);
    let t = &out.live[0];
    assert_eq!(t.facts("dns.rrtype").collect::<Vec<_>>(), [16]);
    assert_eq!(t.record["answers"][1]["rdata"], "!");
    assert_eq!(t.record["authorities"][0]["rdata"], "www.Example.com");
    // An address of a wrong length is none, and a type without text says nothing.
    let out = with([2, 0, 0], &[(1, b"\x01"), (65, b"\0\x01\0")]);
    let record = &out.live[0].record;
    assert_eq!(record["answers"][0]["rdata"], "");
    assert_eq!(record["answers"][1]["rrtype"], "HTTPS");
    assert!(record["answers"][1].get("rdata").is_none());
    let out = with([1, 0, 0], &[(64, b"\0\x01\0")]);
    assert_eq!(out.live[0].record["grouped"], serde_json::json!({}));
    assert_eq!(out.live[0].record["answers"][0]["rrtype"], "64");
}

#[test]
fn answers_that_cannot_be_read_are_no_message_and_the_rest_may_be_broken() {
    for (kind, data) in [
        (5, &b"\x3fabc"[..]),
        (16, b"\x20short"),
        (33, b"\0\x01\0"),
        (44, b"\x01"),
        (15, b"\0"),
    ] {
        let out = with([1, 0, 0], &[(kind, data)]);
        assert_eq!(out.live[0].events, ["malformed_data"], "{kind}");
        assert!(out.live[0].record.is_empty());
        let out = with([0, 1, 0], &[(kind, data)]);
        assert_eq!(out.live[0].events, ["invalid_authorities"], "{kind}");
        let out = with([0, 0, 1], &[(kind, data)]);
        assert_eq!(out.live[0].events, ["invalid_additionals"], "{kind}");
        assert_eq!(out.live[0].record["queries"][0]["rrtype"], "A");
    }
    // Nothing at all is what an update says of what is to go.
    assert!(with([1, 0, 0], &[(6, b"")]).live[0].events.is_empty());
    let out = with([0, 0, 1], &[(41, b"\0\x0a\0\x09ab")]);
    assert_eq!(out.live[0].events, ["invalid_additionals"]);
}

#[test]
fn a_stream_is_read_on_behind_a_loss() {
    let framed = [&(QUERY.len() as u16).to_be_bytes()[..], QUERY].concat();
    let behind = [
        &framed[22..],
        b"\0\0",
        &[b"\0\0", &framed[..]].concat(),
        &framed,
        &[b"\0\0", &framed[..]].concat(),
    ]
    .concat();
    for piece in [behind.len(), 1, 7] {
        let mut p = Dns::of_stream(&wanted());
        let mut out = Transactions::default();
        p.data(ToServer, &framed[..10], 0, &mut out);
        p.gap(ToServer, 12, &mut out);
        for bytes in behind.chunks(piece) {
            p.data(ToServer, bytes, 0, &mut out);
        }
        assert_eq!(out.live.len(), 3, "{piece}");
        assert!(out.live.iter().all(|t| t.events.is_empty()));
        assert!(!out.failed);
    }
}

#[test]
fn what_is_odd_on_the_own_port_needs_a_question() {
    let mut odd = QUERY.to_vec();
    odd[2] = 9 << 3;
    assert_eq!(looks_like(&odd, odd.len(), false, true), Some(true));
    assert_eq!(looks_like(&odd, odd.len(), false, false), Some(false));
    assert_eq!(
        looks_like(b"garbage!garbage!", 16, false, true),
        Some(false)
    );
}

#[test]
fn chance_bytes_are_no_dns() {
    assert_eq!(looks_like(QUERY, QUERY.len(), false, false), Some(true));
    assert_eq!(looks_like(&QUERY[..20], QUERY.len(), false, false), None);
    assert_eq!(looks_like(ANSWER, ANSWER.len(), true, false), Some(true));
    assert_eq!(looks_like(&[0; 12], 12, false, false), Some(false));
    assert_eq!(looks_like(&[0xab; 60], 60, true, false), Some(false));
}
