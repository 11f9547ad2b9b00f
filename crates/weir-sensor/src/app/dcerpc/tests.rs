//! Sessions by hand.

use serde_json::json;

use super::pdu::{INTERFACE_HIGH, INTERFACE_LOW, INTERFACE_VERSION};
use super::*;
use crate::app::tests::{converse_all, wanted};
use crate::app::{Conversation, Ports};
use crate::buffer::Buffer;

/// `12345678-1234-abcd-ef00-01234567cffb` in little-endian order.
const LOGON: [u8; 16] = *b"\x78\x56\x34\x12\x34\x12\xcd\xab\xef\x00\x01\x23\x45\x67\xcf\xfb";

/// A message in little-endian order.
fn pdu(kind: u8, flags: u8, call: u32, body: &[u8]) -> Vec<u8> {
    let length = (HEADER + body.len()) as u16;
    let head = [5, 0, kind, flags, 0x10, 0, 0, 0];
    let length = length.to_le_bytes();
    let call = call.to_le_bytes();
    [&head[..], &length, &[0, 0], &call, body].concat()
}

/// Offers one interface as a context.
fn bind(kind: u8, call: u32, context: u16, interface: [u8; 16]) -> Vec<u8> {
    let offered = [
        &context.to_le_bytes()[..],
        &[1, 0],
        &interface,
        &[1, 0, 0, 0],
    ]
    .concat();
    let body = [&[0; 8][..], &[1, 0, 0, 0], &offered, &[8; 20]].concat();
    pdu(kind, 3, call, &body)
}

fn bound(kind: u8, call: u32, result: u16) -> Vec<u8> {
    let result = result.to_le_bytes();
    let list = [&[1, 0, 0, 0][..], &result, &[0, 0], &[8; 20]].concat();
    let body = [&[0; 8][..], &[4, 0], b"135\0", &[0; 2], &list].concat();
    pdu(kind, 3, call, &body)
}

fn request(flags: u8, call: u32, context: u16, operation: u16, stub: &[u8]) -> Vec<u8> {
    let body = [
        &[0; 4][..],
        &context.to_le_bytes(),
        &operation.to_le_bytes(),
        stub,
    ]
    .concat();
    pdu(kind::REQUEST, flags, call, &body)
}

fn response(flags: u8, call: u32, stub: &[u8]) -> Vec<u8> {
    let body = [&[0; 8][..], stub].concat();
    pdu(kind::RESPONSE, flags, call, &body)
}

fn fact(t: &Transaction, name: &str) -> Option<u64> {
    t.facts(name).next()
}

fn stub(t: &Transaction, d: Direction) -> Option<Vec<u8>> {
    t.get(Buffer::DcerpcStub, d).next().map(<[u8]>::to_vec)
}

#[test]
fn a_call_is_put_together_of_fragments() {
    let client = [
        request(1, 7, 4, 26, b"first "),
        request(0, 7, 4, 26, b"second "),
        request(2, 7, 4, 26, b"third"),
    ]
    .concat();
    let server = [response(1, 7, b"yes "), response(2, 7, b"and no")].concat();
    let c = converse_all(
        &[
            (ToServer, &bind(kind::BIND, 1, 4, LOGON)),
            (ToClient, &bound(kind::BIND_ACK, 1, 0)),
            (ToServer, &client),
            (ToClient, &server),
        ],
        Ports::default(),
    );
    assert_eq!(c.app(), App::Dcerpc);
    let [session, call] = &c.transactions.live.iter().collect::<Vec<_>>()[..] else {
        panic!("{} transactions", c.transactions.live.len());
    };
    let interface = json!([{
        "uuid": "12345678-1234-abcd-ef00-01234567cffb", "version": "1.0", "ack_result": 0
    }]);
    assert_eq!(session.record["interfaces"], interface);
    assert_eq!(fact(session, "dcerpc.opnum"), None);
    assert_eq!(stub(call, ToServer).unwrap(), b"first second third");
    assert_eq!(stub(call, ToClient).unwrap(), b"yes and no");
    assert_eq!(fact(call, "dcerpc.opnum"), Some(26));
    assert_eq!(fact(call, INTERFACE_HIGH), Some(0x1234_5678_1234_abcd));
    assert_eq!(fact(call, INTERFACE_LOW), Some(0xef00_0123_4567_cffb));
    assert_eq!(fact(call, INTERFACE_VERSION), Some(1));
    let sizes = |n: u64, bytes: u64| json!({"frag_cnt": n, "stub_data_size": bytes});
    assert_eq!(call.record["req"]["stub_data_size"], 18);
    assert_eq!(call.record["res"], sizes(2, 10));
    assert_eq!(
        (&call.record["request"], &call.record["response"]),
        (&json!("REQUEST"), &json!("RESPONSE"))
    );
    assert!(call.done && call.little == [true; 2]);
}

#[test]
fn only_accepted_interfaces_are_of_a_call() {
    // The second bind has the number of the first, as some clients write it, and the same context.
    let other = [9; 16];
    let parts = [
        (ToServer, bind(kind::BIND, 1, 0, other)),
        (ToClient, bound(kind::BIND_ACK, 1, 2)),
        (ToServer, request(3, 2, 0, 1, b"")),
        (ToServer, bind(kind::ALTER, 1, 0, LOGON)),
        (ToClient, bound(kind::ALTER_ANSWER, 1, 0)),
        (ToServer, request(3, 3, 0, 1, b"")),
        (ToServer, request(3, 4, 9, 1, b"")),
    ];
    let parts: Vec<_> = parts.iter().map(|(d, b)| (*d, &b[..])).collect();
    let c = converse_all(&parts, Ports::default());
    let high = |t: &Transaction| fact(t, INTERFACE_HIGH);
    let all: Vec<_> = c.transactions.live.iter().map(high).collect();
    let right = Some(0x1234_5678_1234_abcd);
    assert_eq!(all, [None, None, None, right, None]);
    let first = &c.transactions.live[0].record;
    assert_eq!(first["interfaces"].as_array().map(Vec::len), Some(1));
    assert_eq!(first["interfaces"][0]["ack_result"], 2);
    let open = &c.transactions.live[4].record;
    assert_eq!(open["response"], "UNREPLIED");
}

#[test]
fn big_endian_and_what_was_not_seen() {
    let mut call = request(3, 0x0500_0000, 0, 0x1a00, b"x");
    call[4] = 0;
    call[8..10].reverse();
    let faults = pdu(kind::FAULT, 3, 6, &[0; 16]);
    let c = converse_all(&[(ToServer, &call), (ToClient, &faults)], Ports::default());
    let live = &c.transactions.live;
    assert_eq!(fact(&live[0], "dcerpc.opnum"), Some(26));
    assert_eq!(
        (live[0].little, &live[0].record["call_id"]),
        ([false; 2], &json!(5))
    );
    assert_eq!(live[1].record["request"], "REQUEST_LOST");
    assert_eq!(live[1].record["response"], "FAULT");
    // What is no message ends the parsing, not the flow.
    let c = converse_all(
        &[(ToServer, &[&call[..], &[0xee; 40]].concat())],
        Ports::default(),
    );
    assert!(c.transactions.failed && c.transactions.live.len() == 1);
}

#[test]
fn what_waits_is_bounded() {
    let w = wanted();
    let mut parser = Stream::new(&w);
    let mut out = Transactions::default();
    for call in 0..2000 {
        parser.data(ToServer, &request(1, call, 0, 1, &[7; 64]), 1, &mut out);
        let many = bind(kind::BIND, call, call as u16, LOGON);
        parser.data(ToServer, &many, 1, &mut out);
        out.live.retain(|t| !t.done);
    }
    assert!(out.live.len() <= MOST_CALLS && parser.calls.len() <= MOST_CALLS);
    // The longest message, all but its last byte.
    let mut long = request(3, 1, 0, 1, &[0; 65_000]);
    long.pop();
    parser.data(ToServer, &long, 1, &mut out);
    assert!(parser.memory() < 256 * 1024, "{}", parser.memory());
    // One call that never ends.
    let mut out = Transactions::default();
    let mut parser = Stream::new(&w);
    parser.data(ToServer, &request(1, 1, 0, 1, b""), 1, &mut out);
    for _ in 0..40 {
        parser.data(ToServer, &request(0, 1, 0, 1, &[7; 60_000]), 1, &mut out);
    }
    assert_eq!(stub(&out.live[0], ToServer).unwrap().len(), pdu::MOST_STUB);
}

/// A datagram of a call.
fn datagram(kind: u8, flags: u8, sequence: u32, fragment: u16, stub: &[u8]) -> Vec<u8> {
    let mut b = vec![4, kind, flags, 0, 0x10, 0, 0, 0];
    b.extend_from_slice(&[0; 16]);
    b.extend_from_slice(&LOGON);
    b.extend_from_slice(&[0xac; 16]);
    b.extend_from_slice(&[0; 4]);
    b.extend_from_slice(&2u32.to_le_bytes());
    b.extend_from_slice(&sequence.to_le_bytes());
    b.extend_from_slice(&26u16.to_le_bytes());
    b.extend_from_slice(&[0xff; 4]);
    b.extend_from_slice(&(stub.len() as u16).to_le_bytes());
    b.extend_from_slice(&fragment.to_le_bytes());
    b.extend_from_slice(&[0, 0]);
    b.extend_from_slice(stub);
    b
}

#[test]
fn datagrams_are_calls_of_an_activity() {
    let w = wanted();
    let mut c = Conversation::datagrams(Ports::default());
    for (d, bytes) in [
        (ToServer, datagram(0, 4, 1, 0, b"begin ")),
        (ToServer, datagram(0, 6, 1, 1, b"end")),
        (ToServer, datagram(7, 0, 1, 0, b"")),
        (ToClient, datagram(2, 0, 1, 0, b"answer")),
        (ToServer, datagram(0, 0, 2, 0, b"another")),
        (ToClient, datagram(6, 0, 2, 0, b"")),
    ] {
        c.data(d, &bytes, 1, &w);
    }
    assert_eq!(c.app(), App::Dcerpc);
    let [one, two] = &c.transactions.live.iter().collect::<Vec<_>>()[..] else {
        panic!("{} transactions", c.transactions.live.len());
    };
    assert_eq!(stub(one, ToServer).unwrap(), b"begin end");
    assert_eq!(stub(one, ToClient).unwrap(), b"answer");
    assert_eq!(fact(one, "dcerpc.opnum"), Some(26));
    assert_eq!(fact(one, INTERFACE_VERSION), Some(2));
    assert_eq!(one.record["req"]["frag_cnt"], 2);
    assert_eq!(
        one.record["activityuuid"],
        "acacacac-acac-acac-acac-acacacacacac"
    );
    assert_eq!(two.record["response"], "REJECT");
    assert!(one.done && two.done);
    // Neither shorter ones nor other versions.
    let first = datagram(0, 0, 1, 0, b"x");
    for bad in [&first[..79], &[&[5], &first[1..]].concat()] {
        let mut c = Conversation::datagrams(Ports::default());
        c.data(ToServer, bad, 1, &w);
        assert_eq!(c.app(), App::Unknown);
    }
    // Activities without end.
    let mut parser = Datagrams::new(&w);
    let mut out = Transactions::default();
    for n in 0..1000 {
        parser.data(ToServer, &datagram(0, 4, n, 0, b""), 1, &mut out);
        out.live.retain(|t| !t.done);
    }
    assert!(out.live.len() <= 64 && parser.memory() < 16 * 1024);
}
